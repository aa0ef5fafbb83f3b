/* consul_events.h - what the servers do of themselves, and what befalls them. */
#pragma once
#include "consul_agent.h"

#include "sim/wire_world/wire_events.h"

enum server_event { CLOCK, NATIVE_ENDS };

static void plan(enum server_event event, nanos after)
{
    schedule((struct occurrence){.at = w.now + after, .what = SERVER, .serial = event});
}

/* ---- Another program ---- */

/* What `consul lock` does. */
static void begin_native(void)
{
    struct kv_pair *lock = pair_of(LOCK ".lock");
    bool is_free = !(lock && lock->session[0]) && !is_closed(LOCK ".lock");
    if (w.kind != HF_EXCLUSIVE || store.native_until || !is_free)
        return;
    struct kv_pair taken = {.flags = CONSUL_LOCK_FLAGS, .session = NATIVE_SESSION, .lock_index = 1};
    snprintf(taken.key, KEY, LOCK ".lock");
    store.index++;
    write_pair(&taken);
    store.native_until = w.now + NANOS_OF_MS(1 + draw(800));
    sum.natives++;
    note("another program takes .lock");
    tell(&w.client[0].attempt[0],
         (struct history_event){.what = H_FOREIGN, .until = store.native_until});
    plan(NATIVE_ENDS, store.native_until - w.now);
    wake_queries();
}

static void end_native(void)
{
    struct kv_pair *lock = pair_of(LOCK ".lock");
    store.native_until = 0;
    note("another program gives .lock back");
    if (!lock || strcmp(lock->session, NATIVE_SESSION) != 0) {
        flaw(".lock was taken from another program");
        return;
    }
    store.index++;
    remove_pair(lock);
    wake_queries();
}

/* ---- Faults ---- */

/* A new leader gives every session its whole time again. */
static void elect(nanos at)
{
    sum.elections++;
    for (unsigned i = 0; i < store.sessions; i++) {
        prolong(&store.session[i]);
        store.session[i].ends_at += at - w.now;
    }
}

static void lose_leader(void)
{
    nanos gap = NANOS_OF_MS(100 + draw(600));
    note("there is no leader for %lld ms", (long long)(gap / NANOS_OF_MS(1)));
    store.leaderless_until = w.now + gap;
    elect(store.leaderless_until);
    for (unsigned i = store.queries; i-- > 0;) {
        bool is_cut = !is_stale(agent_of(store.query[i].link)) && draw(2);
        if (is_cut) {
            send_error(store.query[i].link, "No cluster leader");
            store.query[i] = store.query[--store.queries];
        }
    }
}

/* An agent goes on following a leader that was replaced. */
static void depose(void)
{
    struct agent *agent = &store.agent[draw(AGENTS)];
    if (is_stale(agent) || store.leaderless_until > w.now)
        return;
    nanos longest = NANOS_OF_MS(100 + draw(draw(2) ? 800 : 3000));
    agent->stale_since = w.now;
    agent->stale_until = w.now + longest;
    agent->index = store.index;
    agent->deleted_at = store.deleted_at;
    note("agent %c follows an old leader until %.3f", (char)('a' + (agent - store.agent)),
         (double)(agent->stale_until - FIRST_DAY) / 1e6);
    sum.deposed++;
    elect(w.now);
}

/* The attempts on that session do not count any more: a grant may be on its way to one of them. */
static void tell_broken(const char *session)
{
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        struct attempt *a = &w.client[i / SLOTS].attempt[i % SLOTS];
        const struct consul_entry *entry = a->alive ? a->op.engine_state : NULL;
        char key[KEY];
        if (!entry)
            continue;
        snprintf(key, sizeof key, LOCK "%s", entry->id);
        const struct kv_pair *pair = pair_of(key);
        if (pair && strcmp(pair->session, session) == 0)
            tell(a,
                 (struct history_event){.what = H_BROKEN, .owner = a->id, .token = a->claim.token});
    }
}

/* A leader that stood still for long ends a session that was renewed. With lock_delay that excuses
 * nothing. */
static void destroy_wrongly(void)
{
    if (!store.sessions)
        return;
    const struct kv_pair *lock = pair_of(LOCK ".lock");
    struct server_session *holder = lock ? session_of(lock->session) : NULL;
    struct server_session *session = &store.session[draw(store.sessions)];
    session = holder && draw(2) ? holder : session;
    if (!store.delays)
        tell_broken(session->id);
    sum.destroyed++;
    note("the leader ends a session that is alive");
    end_session(session);
    wake_queries();
}

/* An agent is silent, and then a connection to it breaks: requests that nobody waits for any more
 * arrive later. */
static void go_silent(struct client *c)
{
    int number = c->link[CONNECTION_COMMANDS];
    if (number < 0)
        return;
    struct stream *stream = &links[number].to_server;
    nanos at = w.now + NANOS_OF_MS(300 + draw(600));
    stream->at = at > stream->at ? at : stream->at;
    schedule((struct occurrence){
        .at = w.now + NANOS_OF_MS(draw(300)), .what = LINK_DOWN, .who = (unsigned)number});
}

enum fault { LEADERLESS, DEPOSED, DESTROYED, DOUBTFUL, SLOW, SILENT, NATIVE, FAULTS };

static void servers_fail(void)
{
    enum fault fault = draw(FAULTS);
    if (planted == PLANT_SAME_EPOCH) /* needs two of them */
        fault = SILENT;
    if (planted == PLANT_NOT_CONFIRMED) /* a client goes to an agent that lags behind */
        fault = draw(2) ? DEPOSED : LEADERLESS;
    if (fault == LEADERLESS)
        lose_leader();
    else if (fault == DESTROYED)
        destroy_wrongly();
    else if (fault == DOUBTFUL)
        store.doubtful_until = w.now + NANOS_OF_MS(draw(400));
    else if (fault == SLOW)
        store.agent[draw(AGENTS)].slow_until = w.now + NANOS_OF_MS(draw(3000));
    else if (fault == SILENT)
        go_silent(&w.client[draw(CLIENTS)]);
    else if (fault == NATIVE)
        begin_native();
    if (fault == DEPOSED || (fault == DESTROYED && draw(2)))
        depose();
}

static void servers_happen(const struct occurrence *o)
{
    if (o->serial == NATIVE_ENDS) {
        end_native();
        return;
    }
    expire_sessions();
    wake_queries();
    if (store.free_until > w.now)
        w.free_since = w.now;
    plan(CLOCK, NANOS_OF_MS(100));
}

/* ---- Schedules ---- */

static void servers_begin(enum plant plant)
{
    bool is_about_delay = plant == PLANT_SHORT_DELAY || plant == PLANT_NOT_CONSISTENT;
    memset(&store.agent, 0, sizeof store.agent);
    store.pairs = store.olds = store.sessions = store.closes = store.queries = 0;
    store.index = 5;
    store.deleted_at = store.last_session = 0;
    store.leaderless_until = store.doubtful_until = store.native_until = store.free_until = 0;
    w.calm |= plant == PLANT_NO_TOUCH || plant == PLANT_NO_ROW_CHECK;
    /* Where a waiter leaves between two requests of a release, and replies are overtaken. */
    bool are_slow = plant == PLANT_NO_ROW_CHECK || (w.calm && plant == PLANT_NONE && draw(2));
    for (unsigned i = 0; i < AGENTS && are_slow; i++)
        store.agent[i].slow_until = INT64_MAX;
    store.ends_early = !is_about_delay && draw(2);
    store.delays = is_about_delay || (plant == PLANT_NONE && !w.calm && draw(3) == 0);
    if (store.delays || plant == PLANT_LOCK_INDEX)
        w.kind = HF_EXCLUSIVE;
    if (plant == PLANT_OLD_TOKEN)
        w.kind = HF_READ;
    plan(CLOCK, 0);
}

static void client_url(char *text, size_t size)
{
    snprintf(text, size, "consul://a,b,c/s?session_min=1s%s", store.delays ? "&lock_delay=3s" : "");
}

static void client_wishes(struct engine_op *op)
{
    op->detached = draw(8) == 0;
    if (planted == PLANT_NOT_CONSISTENT)
        op->ttl_ms = LOCK_DELAY_MS;
}

/* Without a death, keys are gone before their sessions could have ended: they were deleted. A late
 * renewal may prolong the session of a dead client. */
static int64_t servers_rest_ms(bool has_died)
{
    return has_died ? 2 * WORLD_TTL_MAX_MS + 6000 : 800;
}

static void servers_check_rest(void)
{
    for (unsigned i = 0; i < store.pairs && !w.flaw[0]; i++)
        if (!is_epoch(store.pair[i].key))
            flaw("the key %s is left", store.pair[i].key);
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    const struct consul_entry *entry = op->engine_state;
    bool is_yes = reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED;
    if (planted == PLANT_REPLY_TIME && is_yes)
        reply->asked_at = local_time(c);
    if (planted == PLANT_OLD_TOKEN && is_yes && op->kind == HF_READ && entry)
        reply->token = entry->created;
    const struct kv_pair *lock = planted == PLANT_LOCK_INDEX ? pair_of(LOCK ".lock") : NULL;
    if (lock && is_yes)
        reply->token = lock->lock_index;
}

static void spoil_engine(struct client *c)
{
    const struct consul *consul = c->engine;
    for (struct session *s = consul->sessions; s; s = s->next) {
        if (planted == PLANT_TWO_TTL)
            s->length = 2 * NANOS_OF_MS(s->ttl * 1000);
    }
    for (struct consul_entry *entry = consul->entries; entry; entry = entry->next) {
        sum.reused += entry->born_after > 0;
        if (planted == PLANT_OLD_KEYS)
            entry->born_after = 0;
    }
}
