/* http.c - who may connect, and all connections as a whole. */
#include "connection.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 100    /* before it is tried again to accept somebody */
#define REFUSED_MAX 256 /* connections above the limit that get an answer that says so */

int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Accepting ---- */

static int by_address(const void *left, const void *right)
{
    return memcmp(((const struct address *)left)->bytes, ((const struct address *)right)->bytes, 16);
}

/* Of an IPv6 address the network counts: a customer has all of it. */
static bool address_key(const struct sockaddr *from, uint8_t bytes[16])
{
    memset(bytes, 0, 16);
    if (from->sa_family == AF_INET)
        memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else if (from->sa_family == AF_INET6)
        memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 8);
    else
        return false;
    return true;
}

static struct address *find_address(struct http *http, const struct sockaddr *from)
{
    struct address wanted = {.count = 0};
    if (!address_key(from, wanted.bytes))
        return NULL;
    struct address **found = tfind(&wanted, &http->addresses, by_address);
    if (found)
        return *found;
    struct address *new = malloc(sizeof *new);
    if (!new)
        return NULL;
    *new = wanted;
    if (!tsearch(new, &http->addresses, by_address)) {
        free(new);
        return NULL;
    }
    return new;
}

/* What is wrong with having one connection more; 0: nothing. */
static int over_limit(const struct http *http, const struct address *address)
{
    if (http->count > http->o.limits.connections)
        return 503;
    if (address && address->count > http->o.limits.connections_per_address)
        return 429;
    return 0;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int len, void *arg)
{
    struct http *http = arg;
    int one = 1;
    bool tls = false;
    (void)len;
    http->pauses = false;
    for (size_t i = 0; i < http->listener_count; i++)
        if (http->listeners[i] == listener)
            tls = http->listener_tls[i];
    if (http->count >= http->o.limits.connections + REFUSED_MAX) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a unix socket has no such thing */
    struct connection *c = connection_new(http, fd, tls);
    if (!c)
        return;
    c->address = find_address(http, from);
    if (c->address)
        c->address->count++;
    int refusal = over_limit(http, c->address);
    if (refusal != 0 && !tls) {
        connection_refuse(c, refusal,
                          refusal == 503 ? "there are too many connections"
                                         : "there are too many connections from this address");
        return;
    }
    if (refusal != 0) {
        connection_free(c);
        return;
    }
    bufferevent_enable(c->bev, tls ? EV_READ | EV_WRITE : EV_READ);
}

/* Out of descriptors, most of all: whoever knocks stays in the queue of the kernel, and the loop must not spin on it.
 */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct http *http = arg;
    struct timeval time = {.tv_usec = PAUSE_MS * 1000};
    (void)listener;
    if (!http->pauses)
        http->o.stuck(http->o.arg, strerror(errno));
    http->pauses = true;
    for (size_t i = 0; i < http->listener_count; i++)
        evconnlistener_disable(http->listeners[i]);
    event_add(http->resume, &time);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct http *http = arg;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < http->listener_count; i++)
        evconnlistener_enable(http->listeners[i]);
}

struct http *http_new(const struct http_options *options)
{
    struct http *http = calloc(1, sizeof *http);
    struct event *resume = http ? event_new(options->base, -1, 0, on_resume, http) : NULL;
    if (!resume) {
        free(http);
        return NULL;
    }
    http->o = *options;
    http->resume = resume;
    return http;
}

bool http_listen(struct http *http, int fd, bool tls)
{
    if (http->listener_count == LISTENERS_MAX) {
        errno = EMFILE;
        return false;
    }
    struct evconnlistener *listener =
        evconnlistener_new(http->o.base, on_accept, http, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!listener)
        return false;
    evconnlistener_set_error_cb(listener, on_accept_error);
    http->listener_tls[http->listener_count] = tls;
    http->listeners[http->listener_count++] = listener;
    return true;
}

int http_listening(const struct http *http, size_t i)
{
    return i < http->listener_count ? evconnlistener_get_fd(http->listeners[i]) : -1;
}

void http_stop_listening(struct http *http)
{
    for (size_t i = 0; i < http->listener_count; i++)
        evconnlistener_free(http->listeners[i]);
    http->listener_count = 0;
}

void http_drain(struct http *http)
{
    http->draining = true;
    for (struct connection *c = http->connections, *next; c; c = next) {
        next = c->next;
        if (!c->exchange && !c->lingers)
            connection_free(c);
    }
}

size_t http_connections(const struct http *http)
{
    return http->count;
}

void *http_arg(const struct http *http)
{
    return http->o.arg;
}

void http_free(struct http *http)
{
    http_stop_listening(http);
    while (http->connections)
        connection_lose(http->connections);
    tdestroy(http->addresses, free);
    event_free(http->resume);
    free(http);
}
