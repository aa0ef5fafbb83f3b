/* redis_line.h - a bare connection to a Redis server: bytes out, whole replies in, and nothing else. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE_ROOM = 1 << 18 };

struct redis_line {
    int fd;
    size_t from, to; /* what was received and not read yet */
    char bytes[LINE_ROOM];
};

struct redis_line *line_open(const char *url); /* redis://HOST:PORT/...; ends the program when it cannot */
struct redis_line *line_on(int fd);            /* on a connection that is there */
void line_close(struct redis_line *line);
void line_send(struct redis_line *line, const char *bytes, size_t len);
/* A whole reply, valid until the next call; its first byte says what it is. Waits for it. An error ends the program. */
const char *line_reply(struct redis_line *line, size_t *len);
/* The same without waiting: NULL, there is none yet. */
const char *line_reply_ready(struct redis_line *line, size_t *len);
/* Receives what there is, once; waits until there is something. */
void line_receive(struct redis_line *line);

/* A command in words, and its reply. */
const char *line_ask(struct redis_line *line, size_t *len, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A number of INFO's sections: "\r\nused_memory:". NAN: it is not there. */
double line_info(struct redis_line *line, const char *section, const char *field);
/* How often commands ran that only clients send, no script of ours (see redis_line.c). `sets`: SET counts, too, because
 * no script that runs now calls it. */
double line_commands(struct redis_line *line, bool sets);

uint16_t url_port(const char *url);
