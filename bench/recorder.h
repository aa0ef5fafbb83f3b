/* recorder.h - stands between clients and a server, passes everything on, and keeps what the clients sent. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { RECORDED_MOST = 8 }; /* connections */

struct recording { /* of one connection, in the order of coming */
    char *bytes;
    size_t len;
};

struct recorder;

struct recorder *recorder_start(uint16_t server_port); /* on 127.0.0.1, in a thread of its own */
uint16_t recorder_port(const struct recorder *r);
/* What clients have said until now, and have been answered, is forgotten; the connections stay. */
void recorder_forget(struct recorder *r);
/* Stops, after everything that was sent before has been passed on. The recordings are valid until recorder_free. */
const struct recording *recorder_stop(struct recorder *r, int *connections);
void recorder_free(struct recorder *r);
