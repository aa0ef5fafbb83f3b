/* etcd_session.c - sessions: etcd leases with entries attached, their renewals, and the client's
 * epoch. */
#include "etcd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct etcd_connection *commands(struct etcd *e)
{
    return &e->connection[CONNECTION_COMMANDS];
}

/* ---- Finding ---- */

struct etcd_session *etcd_session_of(struct etcd *e, int64_t seconds, const struct id *attempt)
{
    assert(seconds > 0);
    return session_list_find_or_make(&e->sessions, seconds, attempt, sizeof(struct etcd_session));
}

static struct etcd_session *session_of(struct session *base)
{
    return (struct etcd_session *)base;
}

struct etcd_session *etcd_session_of_lease(struct etcd *e, int64_t lease)
{
    for (struct session *s = e->sessions; s; s = s->next)
        if (s->state == SESSION_ALIVE && session_of(s)->lease == lease)
            return session_of(s);
    return NULL;
}

struct etcd_session *etcd_session_adopt(struct etcd *e, const struct etcd_entry *entry,
                                        int64_t lease)
{
    assert(entry->name);
    int64_t seconds = (entry->sent.ttl_ms + 999) / 1000;
    struct etcd_session *session = etcd_session_of(e, seconds, &entry->sent.attempt);
    if (!session || (session->base.state == SESSION_ALIVE && session->lease == lease))
        return session;

    session->lease = lease;
    session_begin(&session->base, 0, NANOS_OF_MS(seconds * 1000));
    return session;
}

void etcd_session_attach(struct etcd_entry *entry, struct etcd_session *session)
{
    if (session == entry->session)
        return;
    etcd_renewal_leave(entry);
    entry->shown_at = 0;
    session_attach(&entry->member, session ? &session->base : NULL);
    entry->session = session;
}

static bool has_call(void *ctx, const struct session *session)
{
    struct etcd *e = ctx;
    for (const struct etcd_call *call = commands(e)->calls; call; call = call->next)
        if (call->session && &call->session->base == session)
            return true;
    return false;
}

/* ---- Beginning ---- */

static void begin(struct etcd *e, struct etcd_session *session, nanos now)
{
    assert(session->base.state != SESSION_ASKED_FOR);
    pb_clear(&e->message);
    message_lease_grant(&e->message, session->base.ttl);
    struct etcd_call *call = etcd_call(commands(e), CALL_GRANT_LEASE, now);
    if (!call)
        return;

    etcd_call_abandon(call);
    call->session = session;
    session->base.state = SESSION_ASKED_FOR;
    session_drop_kept(&session->base);
}

static bool need_alive(struct etcd *e, struct etcd_session *session, nanos now)
{
    const struct session *base = &session->base;
    if (base->state == SESSION_NONE)
        begin(e, session, now);
    if (base->state != SESSION_ALIVE)
        return false;
    if (session_is_fresh(base, now))
        return true;
    /* A session without entries gets a new lease: that is cheaper than proving the old lease. */
    if (base->count == 0 && session != e->door) {
        begin(e, session, now);
        return false;
    }
    /* The request that follows proves the keepalive. */
    return etcd_session_keep(e, session, now - base->length / 3, now);
}

static struct slice epoch_key(const struct etcd *e)
{
    return (struct slice){e->epoch_key, strlen(e->epoch_key)};
}

/* The condition is the key's last change: a late raise of unknown outcome must not lower the
 * epoch. */
static void raise_epoch(struct etcd *e, nanos now)
{
    assert(!e->raising && e->door->base.state == SESSION_ALIVE);
    char text[24];
    int len = snprintf(text, sizeof text, "%016" PRIx64, ++e->epoch);
    struct range_request own = {.key = epoch_key(e)};
    pb_clear(&e->message);
    message_compare(&e->message, epoch_key(e), SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL,
                    e->epoch_changed);
    message_txn_put(&e->message, TXN_THEN, epoch_key(e), (struct slice){text, (size_t)len},
                    e->door->lease);
    message_txn_range(&e->message, TXN_ELSE, &own);
    struct etcd_call *call = etcd_call(commands(e), CALL_RAISE_EPOCH, now);
    if (!call)
        return;

    etcd_call_abandon(call);
    call->session = e->door;
    e->raising = true;
}

bool etcd_epoch_need(struct etcd *e, nanos now)
{
    if (!e->door)
        e->door = etcd_session_of(e, ETCD_DOOR_S, NULL);
    if (!e->door || e->raising || !need_alive(e, e->door, now))
        return false;
    if (e->epoch_is_set && !e->must_raise_epoch)
        return true;

    raise_epoch(e, now);
    return false;
}

bool etcd_session_need(struct etcd *e, struct etcd_session *session, nanos now)
{
    return etcd_epoch_need(e, now) && (session == e->door || need_alive(e, session, now));
}

/* ---- Renewing ---- */

bool etcd_session_keep(struct etcd *e, struct etcd_session *session, nanos since, nanos now)
{
    assert(session->base.state == SESSION_ALIVE);
    if (session_is_kept_since(&session->base, since))
        return true;
    if (session->keepalive)
        return false;

    pb_clear(&e->message);
    message_lease_id(&e->message, session->lease);
    struct etcd_call *call = etcd_call(commands(e), CALL_KEEP_ALIVE, now);
    if (!call)
        return false;

    etcd_call_abandon(call);
    call->session = session;
    session->keepalive = call;
    return false;
}

/* `kept_term` is the Raft term of the last log entry that the member had applied before it renewed
 * the lease. The same term in a later quorum read means that its leader never changed, so that
 * leader renewed.
 */
void etcd_session_prove(struct etcd_session *session, const struct message *m)
{
    struct session *base = &session->base;
    bool is_later = m->call > session->kept_call, is_due = base->kept_at > base->proven_at;
    if (!is_later || !is_due)
        return;

    bool same = m->header.term == session->kept_term && m->header.member == session->kept_member;
    if (same)
        session_prove(base);
    else
        session_drop_kept(base); /* the leader may have changed: another keepalive is needed */
}

static void prove_door(struct etcd *e, nanos now)
{
    assert(e->door && e->epoch_is_set);
    struct range_request range = {.key = epoch_key(e)};
    pb_clear(&e->message);
    message_range(&e->message, &range);
    struct etcd_call *call = etcd_call(commands(e), CALL_PROVE_DOOR, now);
    if (!call)
        return;

    etcd_call_abandon(call);
    call->session = e->door;
}

/* ---- Losing ---- */

static void lose_entry(struct etcd *e, struct etcd_entry *entry)
{
    assert(entry->name);
    bool was_held = entry->stage == ENTRY_HELD, waited = entry->stage == ENTRY_QUEUED;
    etcd_session_attach(entry, NULL);
    entry->is_granted = false;
    if (was_held)
        e->host->recheck(e->host->ctx);
    if (!waited)
        return;

    etcd_entry_set_stage(entry, ENTRY_NONE);
    if (entry->op && entry->verb == OP_NONE)
        e->host->on_reply(e->host->ctx, entry->op,
                          &(struct engine_reply){.kind = REPLY_NOTIFY, .asked_at = e->last_now});
}

void etcd_session_lost(struct etcd *e, struct etcd_session *session, nanos now)
{
    (void)now;
    session_end_all(&session->base);
    session->lease = 0;
    session->round_at = 0;

    if (session == e->door) {
        e->epoch_is_set = false;
        e->epoch_changed = 0;
    }

    while (session->base.members)
        lose_entry(e, etcd_entry_of_member(session->base.members));
}

/* ---- Replies ---- */

static void on_granted(struct etcd_call *call, const struct message *m)
{
    assert(call->session);
    struct etcd_session *session = call->session;
    session->lease = m->lease;
    session_begin(&session->base, call->sent_at, NANOS_OF_MS(m->ttl * 1000));
}

static void on_kept(struct etcd *e, struct etcd_call *call, const struct message *m, nanos now)
{
    assert(call->kind == CALL_KEEP_ALIVE);
    struct etcd_session *session = call->session;
    session->keepalive = NULL;
    if (m->lease != session->lease)
        return; /* the reply is about an earlier lease of this session */
    if (m->ttl <= 0) {
        etcd_session_lost(e, session, now);
        return;
    }

    session_keep(&session->base, call->sent_at, NANOS_OF_MS(m->ttl * 1000));
    session->kept_term = m->header.term;
    session->kept_member = m->header.member;
    session->kept_call = e->calls;
    if (session == e->door && e->epoch_is_set)
        prove_door(e, now);
    etcd_renewal_kept(e, session, now);
}

static void on_door_read(struct etcd *e, struct message *m, nanos now)
{
    struct key_value pair;
    bool is_there = message_next_pair(&m->pairs, &pair) && pair.lease == e->door->lease;
    if (is_there)
        etcd_session_prove(e->door, m);
    else
        etcd_session_lost(e, e->door, now);
}

/* The condition fails if an earlier raise of unknown outcome took effect: raise again. */
static void on_raised(struct etcd *e, struct message *m)
{
    struct message own;
    struct key_value pair;
    e->raising = false;
    if (m->succeeded) {
        e->epoch_changed = m->header.revision;
        e->epoch_is_set = true;
        e->must_raise_epoch = false;
        return;
    }

    bool is_there =
        message_next_response(&m->responses, &own) && message_next_pair(&own.pairs, &pair);
    e->epoch_changed = is_there ? pair.changed : 0;
}

void etcd_session_on_reply(struct etcd *e, struct etcd_call *call, struct message *m, nanos now)
{
    assert(call->session);
    if (call->kind == CALL_GRANT_LEASE) {
        on_granted(call, m);
        if (call->session == e->door)
            e->epoch_is_set = false;
    } else if (call->kind == CALL_KEEP_ALIVE) {
        on_kept(e, call, m, now);
    } else if (call->kind == CALL_RAISE_EPOCH) {
        on_raised(e, m);
    } else {
        on_door_read(e, m, now);
    }

    etcd_entries_advance(e, now);
}

/* ---- Time ---- */

static void renew(void *ctx, struct session *session, nanos now)
{
    struct etcd_session *s = session_of(session);
    if (!s->keepalive)
        etcd_session_keep(ctx, s, now, now);
}

nanos etcd_session_tick(struct etcd *e, nanos now)
{
    session_list_drop_unused(&e->sessions, has_call, e);
    if (commands(e)->state != CONNECTION_UP)
        return TIME_NEVER;
    nanos round = etcd_renewal_tick(e, now);
    nanos renewal = session_list_renew(e->sessions, now, renew, e);
    return round < renewal ? round : renewal;
}

void etcd_sessions_close(struct etcd *e)
{
    assert(!e->entries);
    session_list_free(&e->sessions);
}
