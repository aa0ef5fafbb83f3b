/* library.c - the library as a kind of lock, on any engine. */
#include "library.h"

#include "redis_requests.h"
#include "redis_socket.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Most tries of one call. There may be many, because a server that shares its CPU with a thousand
 * clients is slow. */
#define TRIES_MOST 20

void library_must(hf_status status)
{
    if (status != HF_OK)
        bench_fail("%s", hf_error_text());
}

hf_client *library_open(const struct bench *b, bool own_loop)
{
    struct hf_client_options options = {
        .size = sizeof options, .no_environment = true, .no_thread = own_loop};
    hf_client *client;
    library_must(hf_open(b->url, &options, &client));
    return client;
}

const char *engine_of(const char *url)
{
    static char engine[32];
    size_t len = strcspn(url, ":");
    snprintf(engine, sizeof engine, "%.*s", (int)len, url);
    return engine;
}

const char *library_who(const struct bench *b)
{
    return b->who ? b->who : "holdfast";
}

double library_commands(const struct bench *b)
{
    if (strcmp(engine_of(b->url), "redis") != 0)
        return NAN;

    struct redis_socket *conn = redis_socket_open(b->url);
    bool is_set = request_of(b).flags & HF_TOKENLESS; /* a tokenless request is a SET */
    double count = redis_socket_commands(conn, is_set);
    redis_socket_close(conn);
    return count;
}

struct library {
    hf_client *client;
    hf_lease *lease;
    struct hf_request request;
};

static void *open_library(const struct bench *b, int worker)
{
    struct library *l = calloc(1, sizeof *l);
    (void)worker;
    if (!l)
        bench_fail("no memory");

    l->client = library_open(b, false);
    l->request = request_of(b);
    return l;
}

bool library_retries(hf_status status, int tries)
{
    if (status == HF_OK)
        return false;
    if (!hf_status_retry(status) || tries >= TRIES_MOST)
        library_must(status);

    static atomic_bool
        said; /* set once the message was printed: thousands of retries may follow each other */
    if (!atomic_exchange(&said, true))
        fprintf(stderr, "%s; trying again\n", hf_error_text());
    return true;
}

static void take(void *lock)
{
    struct library *l = lock;
    for (int tries = 0; library_retries(hf_acquire(l->client, &l->request, &l->lease), tries);
         tries++) {
    }
}

/* If a release gets no reply, the library repeats it. */
static void give(void *lock)
{
    struct library *l = lock;
    hf_status status = hf_release(l->lease);
    if (status != HF_IN_DOUBT)
        library_must(status);
    hf_lease_free(l->lease);
}

static void close_library(void *lock)
{
    struct library *l = lock;
    library_must(hf_close(l->client, 5000));
    free(l);
}

struct lock_kind library_kind(const struct bench *b)
{
    return (struct lock_kind){.who = library_who(b),
                              .engine = engine_of(b->url),
                              .open = open_library,
                              .take = take,
                              .give = give,
                              .close = close_library,
                              .commands = library_commands,
                              .holders = is_workload(b->workload, "semaphore-") ? SEMAPHORE_OF : 1};
}
