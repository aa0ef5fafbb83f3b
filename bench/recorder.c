/* recorder.c - a proxy between clients and a server that records what the clients send. */
#include "recorder.h"

#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct recorder {
    int listener, wake_fd, connections;
    uint16_t port, server_port;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the recordings */
    int client[RECORDED_MOST],
        server[RECORDED_MOST]; /* sockets of each connection; -1 once it has ended */
    struct recording recording[RECORDED_MOST];
    char bytes[1 << 16];
};

static int dial(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        bench_fail("port %u: %s", port, strerror(errno));
    return fd;
}

static void welcome(struct recorder *r)
{
    if (r->connections == RECORDED_MOST)
        bench_fail("there are more than %d connections to record", RECORDED_MOST);

    int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;

    r->client[r->connections] = fd;
    r->server[r->connections++] = dial(r->server_port);
}

static void keep(struct recording *recording, const char *bytes, size_t len)
{
    recording->bytes = realloc(recording->bytes, recording->len + len);
    if (!recording->bytes)
        bench_fail("no memory for a recording");
    memcpy(recording->bytes + recording->len, bytes, len);
    recording->len += len;
}

static void end(struct recorder *r, int connection)
{
    close(r->client[connection]);
    close(r->server[connection]);
    r->client[connection] = r->server[connection] = -1;
}

static void pass_on(struct recorder *r, int connection, bool from_client)
{
    int from = from_client ? r->client[connection] : r->server[connection];
    int to = from_client ? r->server[connection] : r->client[connection];
    ssize_t len = recv(from, r->bytes, sizeof r->bytes, 0);

    if (len > 0 && from_client) {
        pthread_mutex_lock(&r->mutex);
        keep(&r->recording[connection], r->bytes, (size_t)len);
        pthread_mutex_unlock(&r->mutex);
    }

    for (ssize_t done = 0, sent; len > 0 && done < len; done += sent) {
        sent = send(to, r->bytes + done, (size_t)(len - done), MSG_NOSIGNAL);
        if (sent < 0)
            len = -1;
    }

    if (len <= 0)
        end(r, connection);
}

static void *serve_clients(void *arg)
{
    struct recorder *r = arg;
    struct pollfd fds[2 + 2 * RECORDED_MOST];

    for (;;) {
        int count = r->connections;
        fds[0] = (struct pollfd){.fd = r->wake_fd, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = r->listener, .events = POLLIN};
        for (int i = 0; i < count; i++) {
            fds[2 + 2 * i] = (struct pollfd){.fd = r->client[i], .events = POLLIN};
            fds[3 + 2 * i] = (struct pollfd){.fd = r->server[i], .events = POLLIN};
        }
        if (poll(fds, (nfds_t)(2 + 2 * count), -1) < 0 && errno != EINTR)
            bench_fail("poll: %s", strerror(errno));
        bool idle = true;
        for (int i = 0; i < 2 * count; i++)
            if (fds[2 + i].revents && (i % 2 ? r->server : r->client)[i / 2] >= 0) {
                pass_on(r, i / 2, i % 2 == 0);
                idle = false;
            }
        if (fds[1].revents)
            welcome(r);
        if (fds[0].revents && idle && !fds[1].revents)
            return NULL;
    }
}

struct recorder *recorder_start(uint16_t server_port)
{
    struct recorder *r = calloc(1, sizeof *r);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof here;
    if (!r)
        bench_fail("no memory");

    pthread_mutex_init(&r->mutex, NULL);
    r->server_port = server_port;
    r->wake_fd = eventfd(0, EFD_CLOEXEC);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->wake_fd < 0 || bind(r->listener, (struct sockaddr *)&here, len) != 0 ||
        listen(r->listener, 64) != 0 ||
        getsockname(r->listener, (struct sockaddr *)&here, &len) != 0 ||
        pthread_create(&r->thread, NULL, serve_clients, r) != 0)
        bench_fail("cannot record: %s", strerror(errno));

    r->port = ntohs(here.sin_port);
    return r;
}

uint16_t recorder_port(const struct recorder *r)
{
    return r->port;
}

void recorder_forget(struct recorder *r)
{
    pthread_mutex_lock(&r->mutex);
    for (int i = 0; i < RECORDED_MOST; i++)
        r->recording[i].len = 0;
    pthread_mutex_unlock(&r->mutex);
}

const struct recording *recorder_stop(struct recorder *r, int *connections)
{
    uint64_t one = 1;
    if (write(r->wake_fd, &one, sizeof one) != sizeof one)
        bench_fail("cannot stop recording");

    pthread_join(r->thread, NULL);
    for (int i = 0; i < r->connections; i++)
        if (r->client[i] >= 0)
            end(r, i);

    *connections = r->connections;
    return r->recording;
}

void recorder_free(struct recorder *r)
{
    close(r->wake_fd);
    close(r->listener);
    for (int i = 0; i < r->connections; i++)
        free(r->recording[i].bytes);
    free(r);
}
