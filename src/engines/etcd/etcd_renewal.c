/* etcd_renewal.c - renews all holds of a session together, in *rounds*.
 *
 * A round is one keepalive of the session, and then reads that show the entries of its holds: up to
 * PROOF_MAX entries in one transaction, which is a *proof*. The transaction compares when each
 * entry was last changed, and reads the entries only if one of them differs. A hold whose entry
 * exists is renewed, counted from when the keepalive was sent.
 *
 * The client renews each hold by an EXTEND of its own. Such an EXTEND is answered at once if the
 * keepalive of its hold's proof is younger than a third of the session's length, so at least two
 * thirds of it are left. When it gets older the next round begins, without waiting for another
 * EXTEND. However many holds there are, a session has three rounds in its length. An extend that a
 * caller asks for gets a keepalive of its own, because it needs the whole ttl from now on.
 *
 * A hold that begins to be watched joins the next round early: its entry may have been deleted
 * between the last time that it was seen and the beginning of the watch. */
#include "etcd.h"

#include <assert.h>
#include <stdlib.h>

/* A transaction of etcd has 128 parts at most. */
enum { PROOF_MAX = 100 };

/* A transaction that reads entries of a round. */
struct etcd_proof {
    nanos kept_at; /* send time of the round's keepalive */
    unsigned count;
    struct etcd_entry *entry[PROOF_MAX]; /* NULL: not a hold of the session any more */
    enum { FOUND, FOUND_ELSEWHERE /* on another lease */, FOUND_NONE } found[PROOF_MAX];
};

static struct etcd_connection *commands(struct etcd *e)
{
    return &e->connection[CONNECTION_COMMANDS];
}

/* ---- Proofs ---- */

void etcd_renewal_leave(struct etcd_entry *entry)
{
    if (!entry->proof)
        return;
    assert(entry->proof->entry[entry->proof_at] == entry);
    entry->proof->entry[entry->proof_at] = NULL;
    entry->proof = NULL;
}

void etcd_proof_free(struct etcd_proof *proof)
{
    for (unsigned i = 0; proof && i < proof->count; i++)
        if (proof->entry[i])
            etcd_renewal_leave(proof->entry[i]);
    free(proof);
}

/* Returns the send time of the newest keepalive that was answered. */
static nanos newest_keepalive(const struct etcd_session *session)
{
    const struct session *base = &session->base;
    return base->kept_at > base->proven_at ? base->kept_at : base->proven_at;
}

static bool needs_proof(const struct etcd_entry *entry, nanos kept_at)
{
    bool is_idle = !entry->call && !entry->proof && entry->op;
    return is_idle && entry->stage == ENTRY_HELD && entry->changed && entry->shown_at < kept_at;
}

static void send_proof(struct etcd *e, struct etcd_session *session, struct etcd_proof *proof,
                       nanos now)
{
    assert(proof->count > 0 && proof->count <= PROOF_MAX);
    pb_clear(&e->message);
    for (unsigned i = 0; i < proof->count; i++)
        message_compare(&e->message, etcd_value_key(proof->entry[i]), SLICE_NONE, COMPARE_CHANGED,
                        COMPARE_EQUAL, proof->entry[i]->changed);
    for (unsigned i = 0; i < proof->count; i++) {
        struct range_request own = {.key = etcd_value_key(proof->entry[i])};
        message_txn_range(&e->message, TXN_ELSE, &own);
    }

    struct etcd_call *call = etcd_call(commands(e), CALL_PROVE, now);
    if (!call) {
        etcd_proof_free(proof);
        return;
    }
    etcd_call_abandon(call);
    call->session = session;
    call->proof = proof;
}

/* Reads the entries of all holds that were not seen since the newest keepalive. */
static void prove(struct etcd *e, struct etcd_session *session, nanos now)
{
    nanos kept_at = newest_keepalive(session);
    struct etcd_proof *proof = NULL;
    for (struct session_member *m = session->base.members; m; m = m->next) {
        struct etcd_entry *entry = etcd_entry_of_member(m);
        if (!needs_proof(entry, kept_at))
            continue;
        if (!proof && !(proof = calloc(1, sizeof *proof)))
            return; /* no memory: the next EXTEND tries again */

        proof->kept_at = kept_at;
        entry->proof = proof;
        entry->proof_at = proof->count;
        proof->entry[proof->count++] = entry;
        if (proof->count == PROOF_MAX) {
            send_proof(e, session, proof, now);
            proof = NULL;
        }
    }

    if (proof)
        send_proof(e, session, proof, now);
}

/* ---- Rounds ---- */

static void plan_round(struct etcd_session *session, nanos at)
{
    if (!session->round_at || at < session->round_at)
        session->round_at = at;
}

static nanos third(const struct etcd_session *session)
{
    return session->base.length / 3;
}

static bool is_round_due(struct etcd *e, const struct etcd_session *session, nanos now)
{
    bool is_due = session->round_at && now >= session->round_at;
    return is_due && session->base.state == SESSION_ALIVE && commands(e)->state == CONNECTION_UP;
}

/* Begins the round if it is due: first the keepalive, then the proofs. */
static void advance_round(struct etcd *e, struct etcd_session *session, nanos now)
{
    if (!is_round_due(e, session, now))
        return;
    if (!etcd_session_keep(e, session, etcd_renewal_since(session, now), now))
        return; /* the reply to the keepalive continues the round */

    session->round_at = 0;
    prove(e, session, now);
}

nanos etcd_renewal_tick(struct etcd *e, nanos now)
{
    nanos next = TIME_NEVER;
    if (commands(e)->state != CONNECTION_UP)
        return next;
    for (struct session *s = e->sessions; s; s = s->next) {
        struct etcd_session *session = (struct etcd_session *)s;
        advance_round(e, session, now);
        bool waits = session->round_at && !session->keepalive && s->state == SESSION_ALIVE;
        if (waits && session->round_at < next)
            next = session->round_at;
    }

    return next;
}

void etcd_renewal_kept(struct etcd *e, struct etcd_session *session, nanos now)
{
    if (!is_round_due(e, session, now))
        return;
    /* However long ago the keepalive was sent: on a slow cluster no other one is younger. */
    session->round_at = 0;
    prove(e, session, now);
}

void etcd_renewal_read_soon(struct etcd_entry *entry, nanos now)
{
    assert(entry->session);
    entry->shown_at = 0;
    plan_round(entry->session, now + ETCD_SHARE);
}

nanos etcd_renewal_since(const struct etcd_session *session, nanos now)
{
    return now - third(session) + 1;
}

/* Returns how old the proof of a hold may be for its EXTEND: a third of the session's length, or of
 * the hold's own ttl if that is shorter. */
static nanos oldest_proof(const struct etcd_entry *entry)
{
    nanos own = NANOS_OF_MS(entry->sent.ttl_ms) / 3, shared = third(entry->session);
    return own < shared ? own : shared;
}

/* The age counts until the EXTEND was asked for, and not until now: on a slow cluster a proof is
 * always old when it arrives. */
bool etcd_renewal_is_recent(const struct etcd_entry *entry)
{
    assert(entry->session && entry->verb == OP_EXTEND);
    return entry->shown_at && entry->asked_at - entry->shown_at < oldest_proof(entry);
}

bool etcd_renewal_need(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->session && entry->verb == OP_EXTEND);
    struct etcd_session *session = entry->session;
    if (etcd_renewal_is_recent(entry)) {
        plan_round(session, entry->shown_at + oldest_proof(entry));
        return true;
    }
    if (entry->proof)
        return false;

    plan_round(session, now);
    advance_round(e, session, now);
    return false;
}

/* ---- Replies ---- */

void etcd_renewal_show(struct etcd_entry *entry, const struct message *m)
{
    const struct etcd_session *session = entry->session;
    if (session && m->call > session->kept_call)
        entry->shown_at = session->base.proven_at;
}

/* Reads the reply to a proof that found an entry changed. The responses are in the order of the
 * entries. No op gets its reply here, because that may change the proof. */
static void read_entries(struct etcd *e, struct etcd_session *session, struct etcd_proof *proof,
                         struct message *m)
{
    for (unsigned i = 0; i < proof->count; i++) {
        struct message own;
        struct key_value pair;
        struct etcd_entry *entry = proof->entry[i];
        bool is_read = message_next_response(&m->responses, &own);
        bool is_there = is_read && message_next_pair(&own.pairs, &pair);
        if (!entry)
            continue;

        proof->found[i] = FOUND_NONE;
        if (!is_there || pair.created != entry->created)
            continue;
        bool same_lease = pair.lease == session->lease;
        proof->found[i] = same_lease ? FOUND : FOUND_ELSEWHERE;
        if (same_lease)
            etcd_entry_take(e, entry, &pair);
    }
}

/* Handles that the entry of a hold is gone: fails its EXTEND, if there is one. Returns true if no
 * request of the hold awaits a reply, so that the client must be told to check its holds. */
static bool on_missing(struct etcd *e, struct etcd_entry *entry)
{
    entry->shown_at = 0;
    if (entry->verb == OP_EXTEND)
        etcd_entry_lose(e, entry);
    return entry->verb == OP_NONE && entry->stage == ENTRY_HELD;
}

static void on_shown(struct etcd *e, struct etcd_entry *entry, nanos kept_at,
                     const struct message *m, nanos now)
{
    assert(entry->session);
    entry->seen_at = m->header.revision;
    /* If the leader has changed since the keepalive, another keepalive is needed. */
    if (entry->session->base.proven_at >= kept_at)
        entry->shown_at = kept_at;
    if (entry->verb == OP_EXTEND)
        etcd_entry_again(e, entry, now);
}

void etcd_renewal_on_reply(struct etcd *e, struct etcd_call *call, struct message *m, nanos now)
{
    assert(call->proof && call->session);
    struct etcd_proof *proof = call->proof;
    bool is_missing = false;
    call->proof = NULL;
    etcd_session_prove(call->session, m);
    if (!m->succeeded)
        read_entries(e, call->session, proof, m);

    for (unsigned i = 0; i < proof->count; i++) {
        struct etcd_entry *entry = proof->entry[i];
        if (!entry)
            continue;
        etcd_renewal_leave(entry);
        if (entry->call) /* That call finds out what became of the entry. */
            continue;
        if (proof->found[i] == FOUND_ELSEWHERE)
            etcd_session_attach(entry, NULL); /* The next read shows its lease. */
        if (proof->found[i] == FOUND_NONE)
            is_missing |= on_missing(e, entry);
        else if (proof->found[i] == FOUND)
            on_shown(e, entry, proof->kept_at, m, now);
        else if (entry->verb == OP_EXTEND)
            etcd_entry_again(e, entry, now);
    }

    free(proof);
    if (is_missing)
        e->host->recheck(e->host->ctx);
}
