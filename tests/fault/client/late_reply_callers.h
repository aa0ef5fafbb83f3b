/* late_reply_callers.h - callers on an engine that answers later: calls that block on threads of
 * their own, callbacks that are waited for, and an other side that answers everything by itself. */
#pragma once
#include "late_reply_engine.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>

enum { TTL_MS = 2000, OP_MS = 100, SLACK_MS = 1000, THREADS = 4 };

static inline struct hf_request ask_for(const char *name, int64_t wait_ms)
{
    return request_of(&(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = wait_ms});
}

/* ---- Calls on threads of their own ---- */

enum call { CALL_ACQUIRE, CALL_EXTEND, CALL_RELEASE, CALL_UPGRADE, CALL_ATTACH, CALL_CLOSE };

struct caller {
    pthread_t thread;
    enum call call;
    hf_client *client;
    hf_lease *lease;
    struct hf_request request;
    const char *text;
    int64_t close_ms;
    hf_status status;
    int64_t took_ms;
    char words[256];
};

static inline hf_status do_call(struct caller *c)
{
    switch (c->call) {
    case CALL_ACQUIRE:
        return hf_acquire(c->client, &c->request, &c->lease);
    case CALL_EXTEND:
        return hf_extend(c->lease, 0);
    case CALL_RELEASE:
        return hf_release(c->lease);
    case CALL_UPGRADE:
        return hf_upgrade(c->lease);
    case CALL_ATTACH:
        return hf_lease_attach(c->client, c->text, &c->lease);
    case CALL_CLOSE:
        return hf_close(c->client, c->close_ms);
    }
    return HF_INTERNAL;
}

static inline void *run_call(void *arg)
{
    struct caller *c = arg;
    int64_t from = now_ns();
    c->status = do_call(c);
    c->took_ms = (now_ns() - from) / 1000000;
    snprintf(c->words, sizeof c->words, "%s", c->status == HF_OK ? "" : hf_error_text());
    return NULL;
}

static inline void begin_call(struct caller *c)
{
    assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

static inline hf_status end_call(struct caller *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACTOR_PATIENCE_MS / 1000;
    if (pthread_timedjoin_np(c->thread, NULL, &until) != 0)
        fail_msg("a call never returned");
    return c->status;
}

/* Waits until that many threads are blocked in calls on the lease. */
static inline void await_callers(hf_lease *lease, uint32_t count)
{
    for (int64_t until = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; now_ns() < until; nap_us(100)) {
        small_mutex_lock(&lease->lock);
        bool there = lease->callers == count && lease->sleepers + (lease->parked != 0) == count;
        small_mutex_unlock(&lease->lock);
        if (there)
            return;
    }
    fail_msg("there are never %u callers", count);
}

static inline hf_lease *hold(hf_client *client, const char *name)
{
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for(name, 5000)};
    begin_call(&c);
    struct request asked = await_request(OP_ACQUIRE);
    assert_false(asked.in_background);
    reply(&asked, REPLY_GRANTED);
    if (end_call(&c) != HF_OK)
        fail_msg("%s", c.words);
    return c.lease;
}

/* Gives it back; somebody must answer. */
static inline void give(hf_lease *lease)
{
    struct caller c = {.call = CALL_RELEASE, .lease = lease};
    begin_call(&c);
    struct request asked = await_request(OP_RELEASE);
    reply(&asked, REPLY_RELEASED);
    assert_int_equal(end_call(&c), HF_OK);
    hf_lease_free(lease);
}

static inline void close_at_once(hf_client *client)
{
    assert_int_equal(hf_close(client, 5000), HF_OK);
}

/* ---- Callbacks ---- */

struct told {
    sem_t over;
    hf_status status, release;
};

static inline void note(hf_lease *lease, hf_status status, void *arg)
{
    struct told *told = arg;
    (void)lease;
    told->status = status;
    sem_post(&told->over);
}

static inline void await_told(struct told *told)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACTOR_PATIENCE_MS / 1000;
    if (sem_timedwait(&told->over, &until) != 0)
        fail_msg("a callback did not come");
}

/* ---- The other side ---- */

/* What the other side answers to everything, until it is told to stop. */
struct server {
    pthread_t thread;
    enum reply_kind (*answer)(const struct request *asked);
    _Atomic bool over;
    _Atomic unsigned answers;
};

static inline void *run_server(void *arg)
{
    struct server *server = arg;
    struct request asked;
    while (!atomic_load(&server->over)) {
        uint32_t seen = atomic_load(&later.changes);
        if (!take_request(0, &asked)) {
            futex_wait(&later.changes, seen, clock_boot() + NANOS_OF_MS(5));
            continue;
        }
        reply(&asked, server->answer(&asked));
        atomic_fetch_add(&server->answers, 1);
    }
    return NULL;
}

static inline void start_server(struct server *server)
{
    assert_int_equal(pthread_create(&server->thread, NULL, run_server, server), 0);
}

static inline void stop_server(struct server *server)
{
    atomic_store(&server->over, true);
    pthread_join(server->thread, NULL);
}
