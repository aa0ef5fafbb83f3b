/* engine.c - the library's own descriptor and time-out, as events of libevent. */
#include "engine.h"
#include "log.h"
#include <stdlib.h>
#include <string.h>

#define CLOSE_MS 2000
#define SHARED_MEMORY "local:" /* nobody is asked there who could be silent */

struct engine {
    hf_client *client;
    struct event *ready, *timer;
    bool at_once;
};

static bool is_shared_memory(const char *url)
{
    if (!url)
        url = getenv("HOLDFAST_URL");
    return !url || strncmp(url, SHARED_MEMORY, strlen(SHARED_MEMORY)) == 0;
}

static void arm(struct engine *engine)
{
    int64_t ms = hf_timeout_ms(engine->client);
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    if (ms < 0)
        event_del(engine->timer);
    else
        event_add(engine->timer, &time);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct engine *engine = arg;
    (void)fd;
    (void)what;
    (void)hf_process(engine->client);
    arm(engine);
}

int engine_open(struct event_base *base, const char *url, hf_log_fn *log, void *arg, struct engine **out)
{
    struct engine *engine = calloc(1, sizeof *engine);
    struct hf_client_options options = {.size = sizeof options,
                                        .no_thread = true,
                                        .on_log = log,
                                        .log_arg = arg,
                                        .log_level = HF_LOG_DEBUG}; /* renewals are counted */
    if (!engine)
        return hf_status_exit_code(HF_NO_MEMORY);
    hf_status status = hf_open(url, &options, &engine->client);
    if (status != HF_OK) {
        log_complain("%s", hf_error_text());
        free(engine);
        return hf_status_exit_code(status);
    }
    engine->at_once = is_shared_memory(url);
    engine->ready = event_new(base, hf_fd(engine->client), EV_READ | EV_PERSIST, on_ready, engine);
    engine->timer = event_new(base, -1, 0, on_ready, engine);
    if (!engine->ready || !engine->timer || event_add(engine->ready, NULL) != 0) {
        engine_close(engine);
        return hf_status_exit_code(HF_NO_MEMORY);
    }
    arm(engine);
    *out = engine;
    return 0;
}

hf_client *engine_client(const struct engine *engine)
{
    return engine->client;
}

void engine_ask(const struct engine *engine, struct workers *workers, struct job *job)
{
    if (engine->at_once)
        workers_do(workers, job);
    else
        workers_post(workers, job);
}

void engine_started(const struct engine *engine)
{
    if (engine->at_once)
        event_active(engine->ready, EV_READ, 0);
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    if (engine->ready)
        event_free(engine->ready);
    if (engine->timer)
        event_free(engine->timer);
    hf_close(engine->client, CLOSE_MS);
    free(engine);
}
