/* redis_bare_queue.c - the ceiling of handoffs: a lock that is one item in a list. BLPOP takes it
 * and RPUSH gives it back, in one command each. It has an order, but no ttl and no token: if a
 * holder dies, nobody ever gets the item again. */
#include "redis_bare.h"

#include "redis_socket.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE "bench-queue"

void bare_queue_fill(const struct bench *b)
{
    struct redis_socket *conn = redis_socket_open(b->url);
    size_t len;

    redis_socket_request(conn, &len, "DEL " QUEUE);
    redis_socket_request(conn, &len, "RPUSH " QUEUE " item");
    redis_socket_close(conn);
}

static void *queue_open(const struct bench *b, int worker)
{
    (void)worker;
    return redis_socket_open(b->url);
}

static void queue_take(void *lock)
{
    size_t len;
    const char *reply = redis_socket_request(lock, &len, "BLPOP " QUEUE " 0");
    if (strncmp(reply, "*2\r\n", 4) != 0)
        bench_fail("the queue gave no item: %.*s", (int)len, reply);
}

static void queue_give(void *lock)
{
    size_t len;
    redis_socket_request(lock, &len, "RPUSH " QUEUE " item");
}

static void queue_close(void *lock)
{
    redis_socket_close(lock);
}

const struct lock_kind BARE_QUEUE = {.who = "bare-queue",
                                     .engine = "redis",
                                     .open = queue_open,
                                     .take = queue_take,
                                     .give = queue_give,
                                     .close = queue_close};
