/* redis_socket.h - a bare connection to a Redis server: sends bytes and reads whole replies. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONN_ROOM = 1 << 18 };

struct redis_socket {
    int fd;
    size_t from, to; /* range of the bytes that were received and not read yet */
    char bytes[CONN_ROOM];
};

struct redis_socket *
redis_socket_open(const char *url); /* redis://127.0.0.1:PORT/...; ends the program if it fails */
struct redis_socket *redis_socket_on(int fd); /* for an open socket */
void redis_socket_close(struct redis_socket *conn);
void redis_socket_send(struct redis_socket *conn, const char *bytes, size_t len);
/* Waits for a whole reply and returns it; valid until the next call. Its first byte is its type. An
 * error reply ends the program. */
const char *redis_socket_reply(struct redis_socket *conn, size_t *len);
/* As redis_socket_reply(), but without waiting; NULL if there is no whole reply yet. */
const char *redis_socket_reply_ready(struct redis_socket *conn, size_t *len);
/* Waits until something arrives, and receives it with one call. */
void redis_socket_receive(struct redis_socket *conn);

/* Sends an inline command and returns its reply. */
const char *redis_socket_request(struct redis_socket *conn, size_t *len, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the number after `field` ("used_memory:") in a section of INFO; NAN if it is missing. */
double redis_socket_info(struct redis_socket *conn, const char *section, const char *field);
/* Returns the number of commands that clients sent, by the server's counters (see redis_socket.c).
 * With `sets` SET counts as well; that is right only while no script that calls SET runs. */
double redis_socket_commands(struct redis_socket *conn, bool sets);

uint16_t url_port(const char *url);
