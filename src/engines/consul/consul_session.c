/* consul_session.c - sessions that lock entries: their renewals, and their epochs. */
#include "consul.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Finding ---- */

struct consul_session *consul_session_of(struct consul *c, int64_t seconds,
                                         const struct id *attempt)
{
    return session_list_find_or_make(&c->sessions, seconds, attempt, sizeof(struct consul_session));
}

static struct consul_session *session_of(struct session *base)
{
    return (struct consul_session *)base;
}

struct consul_session *consul_session_of_id(struct consul *c, const char *id)
{
    for (struct session *s = c->sessions; s; s = s->next)
        if (s->state == SESSION_ALIVE && strcmp(session_of(s)->id, id) == 0)
            return session_of(s);
    return NULL;
}

static void set_alive(struct consul_session *session, const char *id, nanos asked_at)
{
    assert(strlen(id) == CONSUL_SESSION_TEXT);
    strcpy(session->id, id);
    session_begin(&session->base, asked_at, NANOS_OF_MS(session->base.ttl * 1000));
    session->epoch = 0;
    session->must_raise_epoch = false;
}

/* The remaining time of the session is not known, so the session is renewed before it counts. */
struct consul_session *consul_session_adopt(struct consul *c, const struct consul_entry *entry,
                                            const char *id)
{
    assert(entry->name);
    int64_t seconds = (entry->sent.ttl_ms + 999) / 1000;
    struct consul_session *session = consul_session_of(c, seconds, &entry->sent.attempt);
    bool is_known = session && session->base.state == SESSION_ALIVE && strcmp(session->id, id) == 0;
    if (session && !is_known)
        set_alive(session, id, 0);
    return session;
}

void consul_session_attach(struct consul_entry *entry, struct consul_session *session)
{
    session_attach(&entry->member, session ? &session->base : NULL);
    entry->session = session;
}

/* ---- Beginning ---- */

static void begin(struct consul *c, struct consul_session *session, nanos now)
{
    assert(session->base.waiters <= session->base.count);
    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "PUT /v1/session/create");
    text_print(&c->body,
               "{\"Name\":\"holdfast %s\",\"TTL\":\"%" PRId64 "s\",\"LockDelay\":\"%" PRId64
               "ms\",\"Behavior\":\"delete\",\"NodeChecks\":[]}",
               c->about, session->base.ttl, c->lock_delay_ms);
    struct consul_call *call = consul_call(consul_commands(c), CALL_CREATE_SESSION, now);
    if (!call)
        return;

    consul_call_abandon(call);
    call->session = session;
    session->base.state = SESSION_ASKED_FOR;
}

/* Renews a session that may end before a request is answered. The request that follows proves
 * the renewal. */
static bool need_alive(struct consul *c, struct consul_session *session, nanos now)
{
    assert(session->base.waiters <= session->base.count);
    const struct session *base = &session->base;
    if (base->state == SESSION_NONE)
        begin(c, session, now);
    if (base->state != SESSION_ALIVE)
        return false;

    return session_is_fresh(base, now) ||
           consul_session_keep(c, session, now - base->length / 3, now);
}

size_t consul_epoch_key(const struct consul *c, const struct consul_session *session, char *key,
                        size_t size)
{
    int len = snprintf(key, size, "%s.s/%s", c->prefix, session->id);
    assert(len > 0 && (size_t)len < size);
    return (size_t)len;
}

static void raise_epoch(struct consul *c, struct consul_session *session, nanos now)
{
    assert(session->base.waiters <= session->base.count);
    char key[CONSUL_PREFIX_MAX + 64];
    size_t len = consul_epoch_key(c, session, key, sizeof key);
    txn_begin(&c->body);
    txn_add(&c->body, &(struct txn_op){.verb = "lock",
                                       .key = {key, len},
                                       .session = session->id,
                                       /* Other Flags each time give the key a new modify index. */
                                       .flags = ++c->raises,
                                       .value = {"hf1", 3}});
    txn_end(&c->body);
    struct consul_call *call = consul_call_txn(c, CALL_RAISE_EPOCH, false, now);
    if (!call)
        return;

    consul_call_abandon(call);
    call->session = session;
    session->raising = true;
}

bool consul_epoch_need(struct consul *c, struct consul_session *session, nanos now)
{
    assert(session->base.waiters <= session->base.count);
    if (session->base.state != SESSION_ALIVE || !session->must_raise_epoch)
        return true;

    if (!session->raising)
        raise_epoch(c, session, now);
    return false;
}

bool consul_session_need(struct consul *c, struct consul_session *session, nanos now)
{
    return need_alive(c, session, now) && consul_epoch_need(c, session, now);
}

/* ---- Renewing ---- */

bool consul_session_keep(struct consul *c, struct consul_session *session, nanos since, nanos now)
{
    assert(session->base.state == SESSION_ALIVE);
    if (session_is_kept_since(&session->base, since))
        return true;
    if (session->renewal)
        return false;

    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "PUT /v1/session/renew/%s", session->id);
    struct consul_call *call = consul_call(consul_commands(c), CALL_RENEW_SESSION, now);
    if (!call)
        return false;

    consul_call_abandon(call);
    call->session = session;
    session->renewal = call;
    return false;
}

/* A deposed leader may still acknowledge a renewal, but it cannot answer a consistent read or a
 * write. If it becomes leader again within one ttl, the session still exists, because Consul keeps
 * a session for up to two. */
void consul_session_prove(struct consul_session *session)
{
    session_prove(&session->base);
}

/* ---- Losing ---- */

static struct consul_entry *entry_of_member(struct session_member *member)
{
    return (struct consul_entry *)(void *)((char *)member - offsetof(struct consul_entry, member));
}

static void lose_entry(struct consul *c, struct consul_entry *entry)
{
    assert(entry->name);
    bool was_held = entry->stage == ENTRY_HELD, waited = entry->stage == ENTRY_QUEUED;
    consul_session_attach(entry, NULL);
    if (was_held)
        c->host->recheck(c->host->ctx);
    if (!waited)
        return;

    consul_entry_set_stage(entry, ENTRY_NONE);
    if (entry->op && entry->verb == OP_NONE)
        consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
}

void consul_session_lost(struct consul *c, struct consul_session *session)
{
    assert(session->base.waiters <= session->base.count);
    session_end_all(&session->base);
    session->id[0] = '\0';
    session->epoch = 0;
    /* It is enough that the session has ended: a request that arrives late names that session. */
    session->must_raise_epoch = false;

    while (session->base.members)
        lose_entry(c, entry_of_member(session->base.members));
}

/* ---- Replies ---- */

static void on_created(struct consul *c, const struct consul_call *call,
                       const struct consul_reply *reply)
{
    assert(call->session);
    const char *id = reply->status == 200 ? reply_session(reply) : NULL;
    struct consul_session *session = call->session;
    session->base.state = SESSION_NONE;
    if (id) {
        set_alive(session, id, call->sent_at);
        return;
    }

    struct consul_connection *commands = consul_commands(c);
    bool too_short = strstr(reply->text, "Invalid Session TTL");
    commands->status = too_short ? HF_UNSUPPORTED : HF_CONFIG;
    snprintf(commands->why, sizeof commands->why, "%.100s: %s%.160s", c->where,
             too_short ? "session_min is shorter than the servers allow: " : "", reply->text);
    consul_entries_fail_unsent(c, commands);
}

static void on_renewed(struct consul *c, const struct consul_call *call,
                       const struct consul_reply *reply)
{
    assert(call->session);
    struct consul_session *session = call->session;
    session->renewal = NULL;

    if (reply->status == 404 && session->base.state == SESSION_ALIVE)
        consul_session_lost(c, session);
    else if (reply->status == 200)
        session_keep(&session->base, call->sent_at, session->base.length);
}

static void on_raised(struct consul *c, const struct consul_call *call,
                      const struct consul_reply *reply)
{
    assert(call->session);
    struct consul_session *session = call->session;
    struct consul_pair pair;
    session->raising = false;

    if (reply->status == 200 && reply_pair(reply, 0, &pair)) {
        session->epoch = pair.changed;
        session->must_raise_epoch = false;
    } else if (reply->status == 409) {
        /* the check can only fail because the session has ended */
        consul_session_lost(c, session);
    }
}

void consul_session_on_reply(struct consul *c, const struct consul_call *call,
                             const struct consul_reply *reply, nanos now)
{
    assert(call->session);
    if (call->kind == CALL_CREATE_SESSION)
        on_created(c, call, reply);
    else if (call->kind == CALL_RENEW_SESSION)
        on_renewed(c, call, reply);
    else if (call->kind == CALL_RAISE_EPOCH)
        on_raised(c, call, reply);

    consul_entries_advance(c, now);
}

/* ---- Time ---- */

static bool has_call(void *ctx, const struct session *session)
{
    struct consul *c = ctx;
    for (const struct consul_call *call = consul_commands(c)->calls; call; call = call->next)
        if (call->session && &call->session->base == session)
            return true;
    return false;
}

static void destroy(struct consul *c, const struct consul_session *session, nanos now)
{
    assert(session->base.waiters <= session->base.count);
    if (session->base.state != SESSION_ALIVE || consul_commands(c)->state != CONNECTION_UP)
        return;

    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "PUT /v1/session/destroy/%s", session->id);
    struct consul_call *call = consul_call(consul_commands(c), CALL_DESTROY_SESSION, now);
    if (call)
        consul_call_abandon(call);
}

static void renew(void *ctx, struct session *session, nanos now)
{
    struct consul_session *s = session_of(session);
    if (!s->renewal)
        consul_session_keep(ctx, s, now, now);
}

nanos consul_session_tick(struct consul *c, nanos now)
{
    session_list_drop_unused(&c->sessions, has_call, c);
    if (consul_commands(c)->state != CONNECTION_UP)
        return TIME_NEVER;
    return session_list_renew(c->sessions, now, renew, c);
}

/* Returns true if closing must not end the session. Either a hold was left on the session or is
 * being released, or the end of the session would start Consul's lock-delay. */
static bool is_needed(const struct consul *c, const struct consul_session *session, bool hurries)
{
    if (session->base.is_private || session->has_left_hold ||
        (c->lock_delay_ms && session->base.count))
        return true;

    for (const struct consul_entry *entry = c->entries; entry; entry = entry->next) {
        bool is_place = entry->stage != ENTRY_HELD && !entry->ends_hold;
        bool is_given_up = !entry->op && (is_place || hurries);
        if (entry->session == session && !is_given_up)
            return true;
    }

    return false;
}

void consul_sessions_farewell(struct consul *c, bool hurries, nanos now)
{
    for (struct session *base = c->sessions; base; base = base->next) {
        struct consul_session *s = session_of(base);
        if (base->state != SESSION_ALIVE || consul_commands(c)->state != CONNECTION_UP ||
            is_needed(c, s, hurries))
            continue;
        destroy(c, s, now);
        base->state = SESSION_NONE;
        for (struct consul_entry *entry = c->entries; entry; entry = entry->next)
            if (entry->session == s)
                consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_RELEASED});
    }
}

void consul_sessions_close(struct consul *c)
{
    session_list_free(&c->sessions);
}
