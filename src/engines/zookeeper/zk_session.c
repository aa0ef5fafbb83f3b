/* zk_session.c - sessions: their connections, how they are kept alive, and the time until which the
 * client believes that they live. */
#include "zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The timeout that is asked for is 3/2 of the ttl. A hold can be granted if the server allows
 * 4/3. */
enum { ASKED_NUMERATOR = 3, ASKED_DENOMINATOR = 2 };

static nanos timeout_of(const struct zk_session *s)
{
    return NANOS_OF_MS(s->timeout_ms);
}

/* Returns how long a server may be silent before another one is tried. */
static nanos patience_of(const struct zk_session *s)
{
    nanos part = timeout_of(s) / 4;
    part = part > ZK_CALL_LEAST ? part : ZK_CALL_LEAST;
    return part < s->zk->call_timeout ? part : s->zk->call_timeout;
}

/* ---- Finding ---- */

static int32_t timeout_for(int64_t ttl_ms)
{
    return (int32_t)(ttl_ms * ASKED_NUMERATOR / ASKED_DENOMINATOR);
}

static struct zk_session *make_session(struct zk *zk, int64_t ttl_ms, const struct id *attempt)
{
    struct zk_session *s = session_list_find_or_make(&zk->sessions, ttl_ms, attempt, sizeof *s);
    if (!s || s->zk)
        return s;
    s->zk = zk;
    s->number = -1;
    s->wanted_ms = timeout_for(ttl_ms);
    s->calls.size = sizeof(struct zk_call);
    s->first = zk->host->random(zk->host->ctx) % zk->endpoints.count;
    s->unused_at = zk->last_now;
    return s;
}

/* Returns the session for a ttl. If there are too many sessions, returns the one with the next
 * longer ttl. */
static struct zk_session *shared_session(struct zk *zk, int64_t ttl_ms)
{
    struct zk_session *longer = NULL;
    unsigned count = 0;
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        if (s->base.is_private)
            continue;
        count++;
        if (s->base.ttl == ttl_ms)
            return s;
        bool is_closer = !longer || s->base.ttl < longer->base.ttl;
        if (s->base.ttl > ttl_ms && is_closer)
            longer = s;
    }
    return count < ZK_SHARED_MAX ? make_session(zk, ttl_ms, NULL) : longer;
}

/* A private session is found by its attempt alone, because an EXTEND may have changed the ttl. */
struct zk_session *zk_session_of(struct zk *zk, int64_t ttl_ms, const struct id *attempt)
{
    assert(ttl_ms > 0);
    if (!attempt)
        return shared_session(zk, ttl_ms);
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s))
        if (s->base.is_private && id_same(&s->base.attempt, attempt))
            return s;
    return make_session(zk, ttl_ms, attempt);
}

struct zk_session *zk_session_any(struct zk *zk)
{
    struct zk_session *any = NULL;
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        if (s->base.is_private || s->is_closing)
            continue;
        if (s->state == SESSION_UP)
            return s;
        any = s;
    }
    return any ? any : zk_session_of(zk, zk->default_ttl_ms, NULL);
}

void zk_session_attach(struct zk_entry *entry, struct zk_session *session)
{
    struct zk_session *old = zk_session_from(entry->member.session);
    if (old)
        old->watched -= entry->is_seen;
    if (session)
        session->watched += entry->is_seen;
    session_attach(&entry->member, session ? &session->base : NULL);
    session_set_waits(&entry->member, entry->stage == ENTRY_QUEUED);
    if (old && old->base.count == 0)
        old->unused_at = old->zk->last_now;
}

/* ---- Belief ---- */

void zk_session_touch(struct zk_session *s, nanos sent_at, nanos now)
{
    assert(sent_at <= now);
    nanos last = s->touches ? s->touch[(s->touches - 1) % ZK_TOUCHES].sent_at : s->greeted_at;
    if (sent_at - last < timeout_of(s) / ZK_TOUCHES)
        return;
    s->touch[s->touches % ZK_TOUCHES].sent_at = sent_at;
    s->touch[s->touches++ % ZK_TOUCHES].answered_at = now;
}

nanos zk_session_touched(const struct zk_session *s, nanos now)
{
    nanos latest = now - timeout_of(s) / 4, best = s->greeted_at;
    unsigned kept = s->touches < ZK_TOUCHES ? s->touches : ZK_TOUCHES;
    for (unsigned i = 0; i < kept; i++)
        if (s->touch[i].answered_at <= latest && s->touch[i].sent_at > best)
            best = s->touch[i].sent_at;
    return best;
}

void zk_session_prove(struct zk_session *s, const struct zk_call *call)
{
    session_keep(&s->base, call->touched_at, timeout_of(s));
    session_prove(&s->base);
    s->written_at = call->flight.sent_at;
}

void zk_session_beat(struct zk_session *s, nanos now)
{
    if (s->is_beating)
        return;
    zk_put_quorum_check(&s->zk->message, zk_call_begin(s), s->zk->root);
    struct zk_call *call = zk_call_send(s, CALL_BEAT, now);
    if (!call)
        return;
    zk_call_claim_none(s, call);
    s->is_beating = true;
    s->beat_sent_at = now;
}

int64_t zk_session_ttl_max(const struct zk_session *s)
{
    return (int64_t)s->timeout_ms * 3 / 4;
}

bool zk_session_raise(struct zk_session *s, int64_t ttl_ms)
{
    if (s->must_redial)
        return false;
    if (ttl_ms <= zk_session_ttl_max(s) || timeout_for(ttl_ms) <= s->wanted_ms)
        return true;
    s->wanted_ms = timeout_for(ttl_ms);
    s->must_redial = true;
    return false;
}

/* ---- Dialling ---- */

static bool take_number(struct zk_session *s)
{
    struct connection_numbers *numbers = &s->zk->numbers;
    if (s->number < 0)
        s->number = connection_numbers_take(numbers, 1, s);
    if (s->number < 0 && connection_numbers_reserve(numbers, numbers->room + 8, s->zk->host))
        s->number = connection_numbers_take(numbers, 1, s);
    return s->number >= 0;
}

static void give_number_back(struct zk_session *s)
{
    if (s->number >= 0)
        connection_numbers_give_back(&s->zk->numbers, (unsigned)s->number, 1);
    s->number = -1;
}

static void dial(struct zk_session *s, nanos now)
{
    struct zk *zk = s->zk;
    zk->endpoints.first = s->first;
    const struct endpoint *endpoint = endpoints_turn(&zk->endpoints, s->redial.failures);
    endpoint_print(endpoint, s->where);
    s->state = SESSION_DIALLED;
    s->since = now;
    zk->host->dial(zk->host->ctx, (unsigned)s->number, endpoint);
}

bool zk_session_need(struct zk_session *s, nanos now)
{
    if (s->state == SESSION_DOWN && now >= s->redial.dial_at) {
        if (take_number(s)) {
            dial(s, now);
        } else {
            s->status = HF_NO_MEMORY;
            snprintf(s->why, sizeof s->why, "no memory for another connection");
        }
    }
    return s->state == SESSION_UP && !s->is_broken && !s->must_redial && !s->is_closing;
}

/* ---- The greeting ---- */

void zk_session_up(struct zk_session *s, nanos now)
{
    struct zk *zk = s->zk;
    assert(s->state == SESSION_DIALLED);
    struct zk_connect connect = {.zxid = s->zxid,
                                 .timeout_ms = s->wanted_ms,
                                 .session = s->id,
                                 .password = {s->password, s->password_len}};
    s->state = SESSION_GREETING;
    s->greeted_at = now;
    jute_clear(&zk->message);
    zk_put_connect(&zk->message, &connect);
    bool sent = !zk->message.failed && zk->host->send(zk->host->ctx, (unsigned)s->number,
                                                      zk->message.bytes, zk->message.len);
    if (!sent)
        zk_session_break(s, HF_UNAVAILABLE, "no memory for a request");
}

static void log_in(struct zk_session *s)
{
    struct zk *zk = s->zk;
    if (!zk->endpoints.user[0])
        return;
    jute_clear(&zk->message);
    zk_put_digest(&zk->message, zk->endpoints.user, zk->endpoints.password);
    if (zk->message.failed ||
        !zk->host->send(zk->host->ctx, (unsigned)s->number, zk->message.bytes, zk->message.len))
        zk_session_break(s, HF_UNAVAILABLE, "no memory for a request");
    explicit_bzero(zk->message.bytes, zk->message.room);
}

/* Sets the watches again that were lost with the old connection. The checks of holds set theirs. */
static void resume(struct zk_session *s, nanos now)
{
    bool has_holds = false;
    for (struct zk_lock *lock = s->locks; lock; lock = lock->next) {
        bool has_waiters = false;
        for (const struct zk_entry *entry = lock->entries; entry; entry = entry->beside) {
            has_holds |= entry->stage == ENTRY_HELD;
            has_waiters |= entry->stage == ENTRY_QUEUED;
        }
        if (has_waiters)
            zk_lock_list(lock, now);
    }
    if (has_holds && !s->base.is_private)
        s->zk->host->recheck(s->zk->host->ctx);
}

static void begin_connection(struct zk_session *s, const struct zk_connected *connected, nanos now)
{
    bool is_new = s->id == 0;
    s->id = connected->session;
    s->timeout_ms = connected->timeout_ms;
    s->password_len = connected->password.len;
    memcpy(s->password, connected->password.at, connected->password.len);
    s->state = SESSION_UP;
    s->first = (s->first + s->redial.failures) % s->zk->endpoints.count;
    s->redial.failures = 0;
    s->xid = 0;
    s->touches = 0;
    s->pinged_at = 0;
    s->answered_at = s->sent_at = now;
    if (is_new) { /* a new session is proven: its creation was a quorum write */
        s->written_at = s->greeted_at;
        session_begin(&s->base, s->greeted_at, timeout_of(s));
    }
    log_in(s);
}

static void on_greeting(struct zk_session *s, struct jute_reader *frame, nanos now)
{
    struct zk_connected connected;
    if (!zk_read_connected(frame, &connected)) {
        zk_session_break(s, HF_CONFIG, "the server does not speak ZooKeeper's protocol");
        return;
    }
    if (connected.timeout_ms <= 0 || connected.password.len == 0) {
        bool was_ours = s->id != 0;
        if (was_ours)
            zk_session_expired(s);
        zk_session_break(s, HF_UNAVAILABLE,
                         was_ours ? "the session has expired" : "the server gave no session");
        return;
    }
    begin_connection(s, &connected, now);
    resume(s, now);
    zk_session_advance(s, now);
    zk_admins_advance(s, now);
}

void zk_session_bytes(struct zk_session *s, const char *bytes, size_t len, nanos now)
{
    struct jute_reader frame;
    enum jute_frame found = JUTE_FRAME_NONE;
    if (!jute_inbox_add(&s->inbox, bytes, len)) {
        zk_session_break(s, HF_UNAVAILABLE, "no memory for a reply");
        return;
    }
    while (!s->is_broken && (found = jute_inbox_next(&s->inbox, &frame)) == JUTE_FRAME_WHOLE) {
        if (s->state == SESSION_GREETING)
            on_greeting(s, &frame, now);
        else if (!zk_call_on_frame(s, &frame, now))
            found = JUTE_FRAME_BAD;
        if (found == JUTE_FRAME_BAD)
            break;
    }
    if (found == JUTE_FRAME_BAD && !s->is_broken) {
        bool is_new = s->state == SESSION_GREETING;
        zk_session_break(s, is_new ? HF_CONFIG : HF_UNAVAILABLE,
                         is_new ? "the server does not speak ZooKeeper's protocol"
                                : "a reply of the server makes no sense");
    }
}

/* ---- Losing ---- */

void zk_session_break(struct zk_session *s, hf_status status, const char *why)
{
    if (s->is_broken)
        return;
    s->is_broken = true;
    s->status = status;
    snprintf(s->why, sizeof s->why, "%.120s: %.180s", s->where, why);
}

/* Notifies the client of a waiter of the session, which is lost. Returns true for a hold: the
 * client must check its holds, and the check of this one finds without a request that it is gone.
 */
static bool lose_member(struct zk *zk, struct zk_entry *entry)
{
    enum entry_stage stage = entry->stage;
    zk_entry_forget_place(entry);
    zk_entry_set_stage(entry, ENTRY_NONE);
    if (stage == ENTRY_QUEUED)
        zk_entry_notify(zk, entry);
    return stage == ENTRY_HELD;
}

void zk_session_expired(struct zk_session *s)
{
    s->id = s->zxid = 0;
    s->password_len = 0;
    s->written_at = 0;
    session_end_all(&s->base);
    bool had_holds = false;
    struct session_member *next;
    for (struct session_member *member = s->base.members; member; member = next) {
        next = member->next;
        had_holds |= lose_member(s->zk, zk_entry_of_member(member));
    }
    if (had_holds)
        s->zk->host->recheck(s->zk->host->ctx);
}

static void forget_watches(struct zk_session *s)
{
    for (struct zk_lock *lock = s->locks; lock; lock = lock->next)
        for (struct zk_entry *entry = lock->entries; entry; entry = entry->beside) {
            entry->is_seen = false;
            /* the place may have gone meanwhile, so read the list again */
            entry->is_granted = false;
            free(entry->ahead);
            entry->ahead = NULL;
        }
    s->watched = 0;
}

static void go_down(struct zk_session *s, bool on_purpose, nanos now)
{
    s->state = SESSION_DOWN;
    s->is_broken = s->must_redial = false;
    s->pinged_at = 0;
    jute_inbox_free(&s->inbox);
    if (s->is_closing) {
        s->is_closing = s->is_over = false;
        s->id = s->zxid = 0;
    }
    /* 0 and not `now`: the clock of the next call, by another thread, may be a little older. That
     * call would find a session that may not be dialled yet, for no reason. */
    if (on_purpose)
        s->redial.dial_at = 0;
    else
        redial_next_server(&s->redial, s->zk->endpoints.count, now, &s->zk->limits,
                           &s->zk->overrides, s->zk->host->random(s->zk->host->ctx));
    forget_watches(s);
    zk_calls_cut(s, now);

    bool dials_again = s->status == HF_UNAVAILABLE && s->redial.dial_at <= now;
    if (!on_purpose && !dials_again) {
        zk_entries_fail_unsent(s);
        zk_admins_fail(s);
    }
}

void zk_session_down(struct zk_session *s, hf_status status, const char *why, nanos now)
{
    if (s->state == SESSION_DOWN)
        return;
    bool was_closing = s->is_closing;
    if (!s->is_broken) {
        s->status = status;
        if (strstr(why, s->where))
            snprintf(s->why, sizeof s->why, "%.300s", why);
        else
            snprintf(s->why, sizeof s->why, "%.120s: %.180s", s->where, why);
    }
    go_down(s, was_closing, now);
}

static void hang_up(struct zk_session *s, bool on_purpose, nanos now)
{
    s->zk->host->hang_up(s->zk->host->ctx, (unsigned)s->number);
    go_down(s, on_purpose, now);
}

/* ---- Ending ---- */

static void close_session(struct zk_session *s, nanos now)
{
    zk_put_close_session(&s->zk->message, zk_call_begin(s));
    struct zk_call *call = zk_call_send(s, CALL_CLOSE, now);
    if (!call)
        return;
    zk_call_claim_none(s, call);
    s->is_closing = true;
}

static bool is_private_idle(const struct zk_session *s)
{
    for (const struct zk_lock *lock = s->locks; lock; lock = lock->next)
        for (const struct zk_entry *entry = lock->entries; entry; entry = entry->beside)
            if (entry->verb != OP_NONE || entry->stage == ENTRY_QUEUED || entry->in_flight)
                return false;
    return s->calls.count == 0;
}

/* Disconnects a private session that no op needs. Its hold lives on without a connection. */
static void rest_private(struct zk_session *s, nanos now)
{
    if (!s->base.is_private || !is_private_idle(s))
        return;
    if (s->state == SESSION_UP && s->is_over)
        close_session(s, now);
    else if (s->state == SESSION_UP)
        hang_up(s, true, now);
    if (s->state == SESSION_DOWN)
        give_number_back(s);
}

static void free_session(struct zk_session *s)
{
    give_number_back(s);
    zk_locks_free(s);
    pipeline_free(&s->calls);
    jute_inbox_free(&s->inbox);
    explicit_bzero(s->password, sizeof s->password);
    free(s);
}

static void drop_unused(struct zk *zk, nanos now)
{
    for (struct session **at = &zk->sessions; *at;) {
        struct zk_session *s = zk_session_from(*at);
        bool is_old = !s->id && !zk->admins && now >= s->unused_at + ZK_IDLE_CLOSE;
        bool unused = !s->base.count && s->state == SESSION_DOWN && (s->base.is_private || is_old);
        if (unused) {
            *at = s->base.next;
            free_session(s);
        } else {
            at = &s->base.next;
        }
    }
}

void zk_sessions_finish(struct zk *zk, nanos now)
{
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        bool redials = s->must_redial && s->state == SESSION_UP && s->calls.count == 0;
        if (s->is_broken && s->state != SESSION_DOWN)
            hang_up(s, false, now);
        else if (redials)
            hang_up(s, true, now);
        rest_private(s, now);
    }
    zk_locks_drop_unused(zk);
    drop_unused(zk, now);
}

void zk_sessions_end(struct zk *zk, nanos now)
{
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        bool ends =
            !s->base.is_private && s->state == SESSION_UP && !s->is_broken && !s->is_closing;
        if (ends)
            close_session(s, now);
    }
}

void zk_sessions_free(struct zk *zk)
{
    while (zk->sessions) {
        struct zk_session *s = zk_first_session(zk);
        zk->sessions = s->base.next;
        if (s->state != SESSION_DOWN)
            zk->host->hang_up(zk->host->ctx, (unsigned)s->number);
        free_session(s);
    }
}

/* ---- Time ---- */

/* Returns true if an op waits for the session, or if it must be kept alive. */
static bool is_wanted(const struct zk_session *s)
{
    if (!s->base.is_private && s->base.count)
        return true;
    for (const struct zk_lock *lock = s->locks; lock; lock = lock->next)
        for (const struct zk_entry *entry = lock->entries; entry; entry = entry->beside)
            if (entry->verb != OP_NONE)
                return true;
    return zk_admins_want(s);
}

static nanos ping_due(const struct zk_session *s)
{
    return s->sent_at + timeout_of(s) / (s->base.count ? ZK_PING_PART : ZK_IDLE_PART);
}

/* Sends none while one is unanswered: the reply would be taken for that of another ping, and what
 * it proves would count from too late a time. */
static void ping(struct zk_session *s, nanos now)
{
    struct zk *zk = s->zk;
    s->sent_at = now;
    if (s->pinged_at)
        return;
    jute_clear(&zk->message);
    zk_put_ping(&zk->message);
    if (zk->message.failed ||
        !zk->host->send(zk->host->ctx, (unsigned)s->number, zk->message.bytes, zk->message.len)) {
        zk_session_break(s, HF_UNAVAILABLE, "no memory for a request");
        return;
    }
    s->pinged_at = now;
}

/* Returns the time at which the server's silence becomes too long. Replies to pings do not count
 * for requests: a server that is cut off from its leader still answers pings. */
static nanos silence_end(const struct zk_session *s)
{
    nanos end = TIME_NEVER;
    if (s->pinged_at)
        end = s->pinged_at + patience_of(s);
    if (s->calls.count) {
        const struct flight *oldest = pipeline_at(&s->calls, 0);
        nanos since = oldest->sent_at > s->answered_at ? oldest->sent_at : s->answered_at;
        end = since + patience_of(s) < end ? since + patience_of(s) : end;
    }
    return end;
}

/* Returns when to send a quorum write for waiters: a grant that a watch shows is believed at
 * once if the session was proven recently. */
static nanos beat_due(const struct zk_session *s)
{
    if (!s->base.waiters || s->is_beating)
        return TIME_NEVER;
    return s->written_at + timeout_of(s) / 4;
}

static nanos earlier(nanos a, nanos b)
{
    return a < b ? a : b;
}

static nanos tick_up(struct zk_session *s, nanos now)
{
    nanos end = silence_end(s);
    if (now >= end) {
        zk_session_break(s, HF_UNAVAILABLE, "no answer came in time");
        return now;
    }
    if (s->is_closing)
        return end;
    bool is_unused = !s->base.is_private && !s->base.count && !s->zk->admins && !s->calls.count;
    if (is_unused && now >= s->unused_at + ZK_IDLE_CLOSE) {
        close_session(s, now);
        return silence_end(s);
    }
    if (now >= beat_due(s))
        zk_session_beat(s, now);
    if (now >= ping_due(s))
        ping(s, now);
    nanos next = earlier(earlier(silence_end(s), ping_due(s)), beat_due(s));
    return is_unused ? earlier(next, s->unused_at + ZK_IDLE_CLOSE) : next;
}

static nanos greeting_end(const struct zk_session *s)
{
    nanos limit = s->zk->connect_timeout;
    bool must_hurry = s->id && s->base.count && s->zk->endpoints.count > 1;
    return s->since + (must_hurry ? earlier(limit, patience_of(s)) : limit);
}

static nanos tick_session(struct zk_session *s, nanos now)
{
    if (s->state == SESSION_UP)
        return tick_up(s, now);
    if (s->state == SESSION_DOWN) {
        if (!is_wanted(s))
            return TIME_NEVER;
        zk_session_need(s, now);
        if (s->state != SESSION_DOWN)
            return greeting_end(s);
        return s->redial.dial_at > now ? s->redial.dial_at : TIME_NEVER;
    }
    if (now >= greeting_end(s)) {
        zk_session_break(s, HF_UNAVAILABLE, "connecting took too long");
        return now;
    }
    return greeting_end(s);
}

nanos zk_sessions_tick(struct zk *zk, nanos now)
{
    nanos next = TIME_NEVER;
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s))
        next = earlier(next, tick_session(s, now));
    return next;
}
