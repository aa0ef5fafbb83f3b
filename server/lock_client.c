/* lock_client.c - turns the library's descriptor into an event of libevent. The loop reads the
 * engine's replies itself, so no other thread has part in a request. The library's background
 * thread renews leases, and reads replies if the loop is late. */
#include "lock_client.h"
#include "service_log.h"
#include <stdlib.h>

#define CLOSE_MS 2000

struct lock_client {
    hf_client *client;
    struct event *ready;
    bool at_once;
};

/* Returns true if jobs may run on the loop's own thread, because the engine asks no server. */
static bool answers_at_once(const hf_client *client)
{
    struct hf_capabilities capabilities = {.size = sizeof capabilities};
    bool known = hf_client_capabilities(client, &capabilities) == HF_OK;
    return known && (capabilities.can & HF_CAN_ANSWER_AT_ONCE);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct lock_client *engine = arg;
    (void)fd;
    (void)what;
    (void)hf_process(engine->client);
}

int lock_client_open(struct event_base *base, const char *url, hf_log_fn *log, void *arg,
                     struct lock_client **out)
{
    struct lock_client *engine = calloc(1, sizeof *engine);
    /* Renewals are logged at this level, and the metrics count them. */
    struct hf_client_options options = {.size = sizeof options,
                                        .own_callbacks = true,
                                        .on_log = log,
                                        .log_arg = arg,
                                        .log_level = HF_LOG_DEBUG};

    if (!engine)
        return hf_status_exit_code(HF_NO_MEMORY);

    hf_status status = hf_open(url, &options, &engine->client);
    if (status != HF_OK) {
        log_complain("%s", hf_error_text());
        free(engine);
        return hf_status_exit_code(status);
    }

    engine->at_once = answers_at_once(engine->client);
    engine->ready = event_new(base, hf_fd(engine->client), EV_READ | EV_PERSIST, on_ready, engine);
    if (!engine->ready || event_add(engine->ready, NULL) != 0) {
        lock_client_close(engine);
        return hf_status_exit_code(HF_NO_MEMORY);
    }

    *out = engine;
    return 0;
}

hf_client *lock_client_client(const struct lock_client *engine)
{
    return engine->client;
}

void lock_client_do(const struct lock_client *engine, struct workers *workers, struct job *job)
{
    if (engine->at_once)
        workers_do(workers, job);
    else
        workers_post(workers, job);
}

void lock_client_started(const struct lock_client *engine)
{
    if (engine->at_once)
        event_active(engine->ready, EV_READ, 0);
}

void lock_client_batch(const struct lock_client *engine)
{
    (void)hf_batch(engine->client);
}

void lock_client_flush(const struct lock_client *engine)
{
    (void)hf_flush(engine->client);
}

void lock_client_close(struct lock_client *engine)
{
    if (!engine)
        return;

    if (engine->ready)
        event_free(engine->ready);
    hf_close(engine->client, CLOSE_MS);
    free(engine);
}
