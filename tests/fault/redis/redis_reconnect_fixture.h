/* redis_reconnect_fixture.h - the company of tests about what clients live through: a proxy in
 * front of the server, waits on threads of their own, and holds before them. */
#pragma once
#include "lib/loss_notes.h"
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TTL_MS = 2000,
    LONG_TTL_MS = 30000,
    OP_MS = 100, /* what one request may take with the first of them */
    WAIT_MS = 9000,
    SOON_MS = 2000, /* for what happens at once, on a machine with much else to do */
};

/* ---- Company ---- */

static struct proxy *proxy;

static inline hf_client *open_at(uint16_t port)
{
    char url[128];
    hf_client *client;
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", port);
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

/* Through the proxy. */
static inline hf_client *open_far(void)
{
    if (!proxy)
        proxy = proxy_start(server_port(scene.server));
    return open_at(proxy_port(proxy));
}

static inline int lasting_setup(void **state)
{
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(&(struct server_options){.appendonly = true});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    return 0;
}

static inline int teardown(void **state)
{
    if (proxy)
        proxy_end(proxy);
    proxy = NULL;
    return scene_teardown(state);
}

static inline void close_in_time(hf_client *client)
{
    if (hf_close(client, 5000) != HF_OK)
        fail_msg("%s", hf_error_text());
}

/* A wait on a thread of its own. */
struct waiter {
    pthread_t thread;
    hf_client *client;
    const char *name;
    int64_t wait_ms;
    hf_lease *lease;
    hf_status status;
    int64_t took_us;
    char words[256];
    _Atomic bool over;
};

static inline void *wait_there(void *arg)
{
    struct waiter *w = arg;
    struct hf_request request = request_of(&(struct want){
        .name = w->name, .ttl_ms = TTL_MS, .wait_ms = w->wait_ms, .flags = HF_AUTO_RENEW});
    int64_t from = now_ns();
    w->status = hf_acquire(w->client, &request, &w->lease);
    w->took_us = (now_ns() - from) / 1000;
    snprintf(w->words, sizeof w->words, "%s", w->status == HF_OK ? "" : hf_error_text());
    atomic_store(&w->over, true);
    return NULL;
}

/* Begins, and stands in the queue when this returns. */
static inline void begin_wait(struct waiter *w, int64_t place)
{
    assert_int_equal(pthread_create(&w->thread, NULL, wait_there, w), 0);
    scene_await_queue(w->name, place);
}

static inline void end_wait(struct waiter *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    if (w->status != HF_OK)
        fail_msg("%s: %s", w->name, w->words);
}

static inline void give(hf_lease *lease)
{
    hf_status status = hf_release(lease);
    if (status != HF_OK &&
        status != HF_IN_DOUBT) /* a connection that is gone may be noticed just now */
        fail_msg("%s", hf_error_text());
    hf_lease_free(lease);
}

static inline hf_lease *hold(hf_client *client, const char *name, int64_t ttl_ms, struct loss *loss)
{
    return hold_noting(
        client, &(struct want){.name = name, .ttl_ms = ttl_ms, .flags = HF_AUTO_RENEW}, loss);
}

/* A hold that another client waits for. A test that fails leaves it waiting. */
static inline hf_lease *hold_before(struct waiter *w, int64_t ttl_ms, struct loss *loss)
{
    hf_lease *held = hold(scene_client(), "turn", ttl_ms, loss);
    *w = (struct waiter){
        .client = open_at(server_port(scene.server)), .name = "turn", .wait_ms = WAIT_MS};
    begin_wait(w, 1);
    return held;
}

/* Within how many milliseconds it was told. */
static inline int64_t await_loss(const struct loss *loss, int64_t from_ns)
{
    while (!atomic_load(&loss->times)) {
        if (now_ns() - from_ns > ACTOR_PATIENCE_MS * 1000000LL)
            fail_msg("a loss is not told");
        nap_us(500);
    }
    return (atomic_load(&loss->at_ns) - from_ns) / 1000000;
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_setup, .teardown_func = teardown  \
    }
#define LASTING(text, function)                                                                    \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = lasting_setup,                          \
        .teardown_func = teardown                                                                  \
    }
