/* toy_server.h - a server in a thread of the test: it answers each line of text with the same line.
 * The test says when it holds back replies, does not read, pushes a line, or cuts a connection.
 * A connection says which one it is with its first line, "hello N". */
#pragma once
#include "listen_socket.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOY_CONNECTIONS = 256, TOY_LINES = 256 };

struct toy_connection {
    int fd; /* -1: none */
    int number;
    char *in, *out;
    size_t in_len, out_len;
};

struct toy_server {
    int listener, control;
    char port[8];
    pthread_t thread;
    pthread_mutex_t lock; /* for all below */
    struct toy_connection connection[TOY_CONNECTIONS];
    bool stop, holds_back, deaf;
    int allowed; /* answers that go out while others are held back */
    int cut;     /* the number of a connection to be closed; -1: none */
    char push[64];
    int greetings[TOY_LINES];
    uint64_t received; /* lines */
};

static inline void toy_say(struct toy_connection *c, const char *text, size_t len)
{
    c->out = realloc(c->out, c->out_len + len);
    memcpy(c->out + c->out_len, text, len);
    c->out_len += len;
}

static inline void toy_close(struct toy_connection *c)
{
    close(c->fd);
    free(c->in);
    free(c->out);
    *c = (struct toy_connection){.fd = -1, .number = -1};
}

static inline void toy_hear(struct toy_server *s, struct toy_connection *c, char *line, size_t len)
{
    if (strncmp(line, "hello ", 6) == 0) {
        c->number = atoi(line + 6);
        s->greetings[c->number]++;
        return;
    }
    s->received++;
    if (line[0] == 'l') { /* a list of that many rows */
        for (int rows = atoi(line + 2); rows; rows--)
            toy_say(c, "r 0\n", 4);
    }
    char *space = memchr(line, ' ', len); /* ballast follows the number */
    char *ballast = space ? memchr(space + 1, ' ', len - (size_t)(space + 1 - line)) : NULL;
    toy_say(c, line, ballast ? (size_t)(ballast - line) : len);
    toy_say(c, "\n", 1);
}

static inline void toy_read(struct toy_server *s, struct toy_connection *c)
{
    char bytes[65536];
    ssize_t got = read(c->fd, bytes, sizeof bytes);
    if (got <= 0) {
        toy_close(c);
        return;
    }
    c->in = realloc(c->in, c->in_len + (size_t)got);
    memcpy(c->in + c->in_len, bytes, (size_t)got);
    size_t begin = 0, looked = c->in_len;
    c->in_len += (size_t)got;
    for (char *end; (end = memchr(c->in + looked, '\n', c->in_len - looked)) != NULL;) {
        toy_hear(s, c, c->in + begin, (size_t)(end - c->in) - begin);
        begin = looked = (size_t)(end - c->in) + 1;
    }
    memmove(c->in, c->in + begin, c->in_len - begin);
    c->in_len -= begin;
}

/* How much may go out. */
static inline size_t toy_due(const struct toy_server *s, const struct toy_connection *c)
{
    size_t due = 0;
    for (int answers = s->allowed; answers && due < c->out_len; due++)
        answers -= c->out[due] == '\n';
    return s->holds_back ? due : c->out_len;
}

static inline void toy_write(struct toy_server *s, struct toy_connection *c)
{
    ssize_t sent = send(c->fd, c->out, toy_due(s, c), MSG_NOSIGNAL | MSG_DONTWAIT);
    s->allowed = 0;
    if (sent <= 0)
        return;
    memmove(c->out, c->out + sent, c->out_len - (size_t)sent);
    c->out_len -= (size_t)sent;
}

static inline void toy_accept(struct toy_server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < TOY_CONNECTIONS; i++)
        if (s->connection[i].fd < 0) {
            s->connection[i].fd = fd;
            return;
        }
    abort();
}

/* What the test ordered. */
static inline void toy_obey(struct toy_server *s)
{
    for (int i = 0; i < TOY_CONNECTIONS; i++) {
        struct toy_connection *c = &s->connection[i];
        if (c->fd >= 0 && c->number == 1 && s->push[0]) {
            toy_say(c, s->push, strlen(s->push));
            s->push[0] = 0;
        }
        if (c->fd >= 0 && c->number == s->cut && c->number >= 0)
            toy_close(c);
    }
    s->cut = -1;
}

static inline void toy_turn(struct toy_server *s, struct pollfd *fds, const int *of, nfds_t count)
{
    uint64_t rung;
    if (fds[0].revents && read(s->control, &rung, sizeof rung) < 0)
        abort();
    toy_obey(s);
    if (fds[1].revents)
        toy_accept(s);
    for (nfds_t i = 2; i < count; i++) {
        struct toy_connection *c = &s->connection[of[i]];
        if (c->fd == fds[i].fd && fds[i].revents & (POLLIN | POLLHUP | POLLERR) && !s->deaf)
            toy_read(s, c);
    }
    for (int i = 0; i < TOY_CONNECTIONS; i++)
        if (s->connection[i].fd >= 0 && toy_due(s, &s->connection[i]))
            toy_write(s, &s->connection[i]);
}

static inline void *toy_serve(void *arg)
{
    struct toy_server *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct pollfd fds[TOY_CONNECTIONS + 2] = {{.fd = s->control, .events = POLLIN},
                                                  {.fd = s->listener, .events = POLLIN}};
        int of[TOY_CONNECTIONS + 2];
        nfds_t count = 2;
        for (int i = 0; i < TOY_CONNECTIONS; i++) {
            struct toy_connection *c = &s->connection[i];
            if (c->fd < 0)
                continue;
            short events = s->deaf ? 0 : POLLIN;
            events |= toy_due(s, c) ? POLLOUT : 0;
            of[count] = i;
            fds[count++] = (struct pollfd){.fd = events ? c->fd : -1, .events = events};
        }
        pthread_mutex_unlock(&s->lock);
        poll(fds, count, -1);
        pthread_mutex_lock(&s->lock);
        toy_turn(s, fds, of, count);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static inline void toy_start(struct toy_server *s)
{
    memset(s, 0, sizeof *s);
    s->cut = -1;
    for (int i = 0; i < TOY_CONNECTIONS; i++)
        s->connection[i] = (struct toy_connection){.fd = -1, .number = -1};
    s->control = eventfd(0, EFD_CLOEXEC);
    s->listener = listen_anywhere(s->port);
    static const int little = 65536; /* room for what a connection was sent and has not read */
    setsockopt(s->listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    pthread_mutex_init(&s->lock, NULL);
    assert_int_equal(pthread_create(&s->thread, NULL, toy_serve, s), 0);
}

/* Between these two the test may change what the server does. */
static inline void toy_order(struct toy_server *s)
{
    pthread_mutex_lock(&s->lock);
}

static inline void toy_go(struct toy_server *s)
{
    static const uint64_t one = 1;
    pthread_mutex_unlock(&s->lock);
    if (write(s->control, &one, sizeof one) < 0)
        abort();
}

static inline void toy_hold_back(struct toy_server *s, bool on)
{
    toy_order(s);
    s->holds_back = on;
    toy_go(s);
}

/* One of the answers that are held back goes out. */
static inline void toy_answer_one(struct toy_server *s)
{
    toy_order(s);
    s->allowed = 1;
    toy_go(s);
}

static inline uint64_t toy_received(struct toy_server *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t received = s->received;
    pthread_mutex_unlock(&s->lock);
    return received;
}

static inline int toy_greetings(struct toy_server *s, int line)
{
    pthread_mutex_lock(&s->lock);
    int greetings = s->greetings[line];
    pthread_mutex_unlock(&s->lock);
    return greetings;
}

static inline void toy_stop(struct toy_server *s)
{
    toy_order(s);
    s->stop = true;
    toy_go(s);
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    for (int i = 0; i < TOY_CONNECTIONS; i++)
        if (s->connection[i].fd >= 0)
            toy_close(&s->connection[i]);
    close(s->listener);
    close(s->control);
    pthread_mutex_destroy(&s->lock);
}
