/* recorder.h - a proxy between clients and a server that records what the clients send. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { RECORDED_MOST = 8 }; /* most connections */

struct recording { /* the bytes that the client of one connection sent */
    char *bytes;
    size_t len;
};

struct recorder;

struct recorder *recorder_start(uint16_t server_port); /* on 127.0.0.1, in a thread of its own */
uint16_t recorder_port(const struct recorder *r);
/* Forgets everything that clients have sent so far; the connections stay. Call it when all requests
 * have been answered. */
void recorder_forget(struct recorder *r);
/* Stops after everything that was sent has been passed on. The recordings are valid until
 * recorder_free. */
const struct recording *recorder_stop(struct recorder *r, int *connections);
void recorder_free(struct recorder *r);
