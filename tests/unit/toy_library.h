/* toy_library.h - a client library that owns its socket, as libpq does: it connects, sends and
 * receives by itself, and only says which descriptor it uses and for which events it waits. */
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct toy_library {
    int fd; /* -1: not connected */
    char *unsent;
    size_t unsent_len;
    char in[4096]; /* received and not parsed */
    size_t in_len;
};

/* Sends what the socket takes. */
static inline void library_flush(struct toy_library *l)
{
    ssize_t sent = l->unsent_len ? send(l->fd, l->unsent, l->unsent_len, MSG_NOSIGNAL) : 0;
    if (sent <= 0)
        return;

    memmove(l->unsent, l->unsent + sent, l->unsent_len - (size_t)sent);
    l->unsent_len -= (size_t)sent;
}

static inline void library_send(struct toy_library *l, const char *bytes, size_t len)
{
    if (!len)
        return;

    l->unsent = realloc(l->unsent, l->unsent_len + len);
    memcpy(l->unsent + l->unsent_len, bytes, len);
    l->unsent_len += len;
}

static inline void library_open(struct toy_library *l, const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&to, sizeof to) != 0)
        abort();
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
    library_send(l, "hello 2\n", 8);
}

static inline void library_request(struct toy_library *l, uint64_t token, const char *ballast,
                                   size_t ballast_len)
{
    char text[64];
    int len = snprintf(text, sizeof text, "u %llu ", (unsigned long long)token);
    library_send(l, text, (size_t)len);
    library_send(l, ballast, ballast_len);
    library_send(l, "\n", 1);
    library_flush(l);
}

static inline bool library_wants_to_write(const struct toy_library *l)
{
    return l->unsent_len > 0;
}

/* Sends and receives without blocking. Returns false if the server closed the connection. */
static inline bool library_process(struct toy_library *l)
{
    library_flush(l);
    ssize_t got = recv(l->fd, l->in + l->in_len, sizeof l->in - l->in_len, 0);
    if (got < 0)
        return errno == EAGAIN;

    l->in_len += (size_t)got;
    return got > 0;
}

/* Returns false if no whole reply is there. */
static inline bool library_next_reply(struct toy_library *l, uint64_t *token)
{
    char *end = memchr(l->in, '\n', l->in_len);
    if (!end)
        return false;

    *token = strtoull(l->in + 2, NULL, 10);
    size_t used = (size_t)(end + 1 - l->in);
    memmove(l->in, l->in + used, l->in_len - used);
    l->in_len -= used;
    return true;
}

static inline void library_close(struct toy_library *l)
{
    if (l->fd >= 0)
        close(l->fd);
    free(l->unsent);
    *l = (struct toy_library){.fd = -1};
}
