/* http_load.c - keep-alive clients of an HTTP service on loopback, all on one thread. Each one
 * acquires a lock of its own and releases it at once, or asks for one path again and again. A
 * service of leases answers POST with 201 and a Location, which DELETE releases.
 *
 *     http_load PORT CLIENTS SECONDS pairs PATH     PATH has a %d for the number of the client
 *     http_load PORT CLIENTS SECONDS get PATH
 *
 * Prints JSON: pairs or requests a second, and percentiles of their time. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, SAMPLES_MAX = 4000000, EVENTS = 64 };

struct client {
    int fd, number;
    bool releases; /* the request in flight is a DELETE */
    int64_t began; /* time when the pair or request began, in nanoseconds */
    size_t len;
    char text[TEXT_MAX];
};

struct load {
    const char *path;
    bool pairs;
    int64_t end;
    size_t busy; /* clients with a request in flight */
    size_t count;
    uint32_t *sample; /* in units of 100 ns */
};

static void fail(const char *what)
{
    fprintf(stderr, "http_load: %s\n", what);
    exit(70);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void send_text(const struct client *c, const char *text, int len)
{
    if (len <= 0 || len >= TEXT_MAX || send(c->fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        fail("a request was not taken whole");
}

static void print_path(const struct load *load, const struct client *c, char path[512])
{
    const char *number = strstr(load->path, "%d");
    if (number)
        snprintf(path, 512, "%.*s%d%s", (int)(number - load->path), load->path, c->number,
                 number + 2);
    else
        snprintf(path, 512, "%s", load->path);
}

static void begin(struct load *load, struct client *c)
{
    static const char body[] = "{\"ttlMs\":30000}";
    char path[512], text[TEXT_MAX];

    c->began = now_ns();
    c->releases = false;
    if (c->began >= load->end) {
        load->busy--;
        return;
    }
    print_path(load, c, path);
    int len = load->pairs
                  ? snprintf(text, sizeof text,
                             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                             path, sizeof body - 1, body)
                  : snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    send_text(c, text, len);
}

static void release(struct client *c, const char *location, int len)
{
    char text[TEXT_MAX];
    c->releases = true;
    send_text(c, text,
              snprintf(text, sizeof text, "DELETE %.*s HTTP/1.1\r\nHost: localhost\r\n\r\n", len,
                       location));
}

/* Returns a field of the head and its length; NULL: it is absent. */
static const char *field(const char *head, const char *name, int *len)
{
    const char *at = strcasestr(head, name);
    if (!at)
        return NULL;
    at += strlen(name);
    at += strspn(at, " ");
    *len = (int)strcspn(at, "\r\n");
    return at;
}

static void note(struct load *load, const struct client *c)
{
    if (load->count < SAMPLES_MAX)
        load->sample[load->count] = (uint32_t)((now_ns() - c->began) / 100);
    load->count++;
}

/* Handles an answer that has arrived completely. */
static void take_answer(struct load *load, struct client *c)
{
    int status = atoi(c->text + 9), len;
    const char *location = field(c->text, "\r\nLocation:", &len);

    c->len = 0;
    if (status < 200 || status > 299) {
        fprintf(stderr, "%.400s\n", c->text);
        fail("the service refused");
    }
    if (load->pairs && !c->releases) {
        if (!location)
            fail("an answer has no Location");
        release(c, location, len);
        return;
    }
    note(load, c);
    begin(load, c);
}

static void on_readable(struct load *load, struct client *c)
{
    ssize_t got = recv(c->fd, c->text + c->len, sizeof c->text - 1 - c->len, 0);
    if (got <= 0)
        fail("the service closed a connection");
    c->len += (size_t)got;
    c->text[c->len] = 0;

    const char *end = strstr(c->text, "\r\n\r\n");
    int digits;
    if (!end)
        return;

    const char *length = field(c->text, "\r\nContent-Length:", &digits);
    size_t body = length ? strtoul(length, NULL, 10) : 0;
    if (c->len >= (size_t)(end - c->text) + 4 + body)
        take_answer(load, c);
}

static void dial(struct client *c, int port, int poll)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("nobody listens");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event) != 0)
        fail("epoll");
}

static int by_time(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static void report(const struct load *load, double seconds)
{
    size_t count = load->count < SAMPLES_MAX ? load->count : SAMPLES_MAX;
    if (count == 0)
        fail("nothing was answered");
    qsort(load->sample, count, sizeof *load->sample, by_time);
    printf("{\"perSecond\":%.0f,\"p50Us\":%.1f,\"p99Us\":%.1f}\n", (double)load->count / seconds,
           load->sample[count / 2] / 10.0, load->sample[count * 99 / 100] / 10.0);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        fail("usage: http_load PORT CLIENTS SECONDS pairs|get PATH");

    size_t clients = strtoul(argv[2], NULL, 10);
    double seconds = strtod(argv[3], NULL);
    struct client *all = calloc(clients, sizeof *all);
    struct load load = {.path = argv[5],
                        .pairs = strcmp(argv[4], "pairs") == 0,
                        .busy = clients,
                        .sample = malloc(SAMPLES_MAX * sizeof *load.sample)};
    int poll = epoll_create1(0);
    if (!all || !load.sample || poll < 0)
        fail("no memory");

    for (size_t i = 0; i < clients; i++) {
        all[i].number = (int)i;
        dial(&all[i], atoi(argv[1]), poll);
    }
    load.end = now_ns() + (int64_t)(seconds * 1e9);
    for (size_t i = 0; i < clients; i++)
        begin(&load, &all[i]);
    while (load.busy > 0) {
        struct epoll_event event[EVENTS];
        int ready = epoll_wait(poll, event, EVENTS, 5000);
        if (ready == 0)
            fail("no answer for five seconds");
        for (int i = 0; i < ready; i++)
            on_readable(&load, event[i].data.ptr);
    }
    report(&load, seconds);
    return 0;
}
