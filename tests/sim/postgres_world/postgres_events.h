/* postgres_events.h - what the server does of itself, and what befalls it. */
#pragma once
#include "postgres_network.h"

#include "sim/wire_world/wire_events.h"

enum { FLUSH, SESSION_ENDS }; /* occurrences SERVER, by their serial */

/* ---- Faults ---- */

/* The server's processes are gone, and with them every session. */
static void end_sessions(void)
{
    for (unsigned i = 0; i < w.links; i++) {
        if (served[i].is_over)
            continue;
        served[i].is_over = true;
        if (links[i].is_open)
            schedule((struct occurrence){.at = w.now + delay(), .what = LINK_DOWN, .who = i});
    }
}

/* Goes back to a state since that one. */
static void undo_since(uint64_t first)
{
    uint64_t oldest = db.written >= STATES ? db.written - STATES + 1 : 0;
    first = first > oldest ? first : oldest;
    uint64_t to = first + draw((uint32_t)(db.written - first + 1));
    note("the server goes back by %lu transactions", (unsigned long)(db.written - to));
    sum.undone += db.written - to;
    db.rows = db.state[to % STATES];
    db.state[++db.written % STATES] = db.rows;
    db.durable = db.confirmed = db.written;
    db.has_lost = true;
    end_sessions();
}

static void crash(void)
{
    note("the server crashes");
    sum.crashes++;
    if (db.loss == FORGETS) {
        memset(&db.rows, 0, sizeof db.rows);
        db.rows.timeline = db.rows.incarnation = -1;
        db.state[++db.written % STATES] = db.rows;
        db.durable = db.written;
    }
    undo_since(db.durable);
}

/* A standby takes over that has what was confirmed, or just something. */
static void fail_over(void)
{
    bool tokens_may_fall = db.steps_back;
    if (db.loss == FORGETS || (db.loss == KEEPS && tokens_may_fall)) {
        crash();
        return;
    }
    note("a standby takes over");
    sum.failovers++;
    undo_since(db.loss == REPLICATES ? db.confirmed : 0);
    db.timeline++;
    db.is_alone = false;
}

static void servers_fail(void)
{
    unsigned fault = draw(6);
    if (planted == PLANT_NO_TOMBSTONE) { /* other faults would excuse what is left */
        cut(draw(CLIENTS));
        return;
    }
    if (planted == PLANT_TRUST_WARNING || planted == PLANT_NO_GRACE ||
        planted == PLANT_UPGRADE_IN_GRACE)
        fault = draw(2) ? 1 : 2;
    if (fault == 0 || fault == 5)
        crash();
    else if (fault == 1)
        fail_over();
    else if (fault == 2)
        db.is_alone = draw(3) > 0;
    else if (fault == 3)
        db.blocked_until = w.now + NANOS_OF_MS(draw(800));
    else if (db.steps_back) {
        sum.steps++;
        db.has_lost = true; /* rows live longer */
        db.wrong_us -= draw(2000000);
    }
    for (unsigned i = 0; i < CLIENTS && db.pooled; i++) {
        int link = w.client[i].link[0];
        if (link >= 0 && draw(3) == 0)
            snprintf(served[link].leftover, sizeof served[link].leftover,
                     "R{1,%ld,%ld,%ld,0}" NEXT "abc", db.rows.last, (int64_t)2000000, now_us());
    }
}

/* ---- Schedules ---- */

/* What a planted bug needs to do harm. */
static void suit(enum plant plant)
{
    bool is_durable = plant == PLANT_TRUST_NOTIFY || plant == PLANT_TRUST_LEFT ||
                      plant == PLANT_NO_COMMIT || plant == PLANT_NO_GRACE ||
                      plant == PLANT_UPGRADE_IN_GRACE;
    bool is_notified =
        plant == PLANT_TRUST_NOTIFY || plant == PLANT_NOTIFY_TIME || plant == PLANT_DEAF;
    if (is_durable)
        db.loss = KEEPS;
    if (plant == PLANT_TRUST_WARNING)
        db.loss = REPLICATES;
    if (plant == PLANT_NOTIFY_TIME)
        db.loss = FORGETS;
    if (is_notified)
        db.pooled = db.polls = false;
    if (plant == PLANT_NO_ECHO)
        db.pooled = true;
    w.calm |= plant == PLANT_DEAF;
}

static void servers_begin(enum plant plant)
{
    memset(&db, 0, sizeof db);
    db.rows.since = 0;
    db.loss = (enum loss)draw(3);
    db.pooled = draw(5) == 0;
    db.polls = db.pooled || draw(5) == 0;
    db.pids = 100;
    suit(plant);
    /* Tokens fall if data is lost that was told, and the clock is behind: a limit (G10). */
    db.steps_back = db.loss != FORGETS && draw(3) == 0;
    schedule((struct occurrence){.at = w.now, .what = SERVER, .serial = FLUSH});
}

static void client_url(char *text, size_t size)
{
    snprintf(text, size, "postgres://u@127.0.0.1/db?memory=%d&wake=%s", db.loss == FORGETS,
             db.polls && !db.pooled ? "poll" : "notify");
}

static void client_wishes(struct engine_op *op)
{
    if (op->kind != HF_READ && op->kind != HF_WRITE)
        return;
    op->capacity = QUEUE_ALL;
    op->units = op->kind == HF_WRITE ? QUEUE_ALL : 1;
}

static int64_t servers_rest_ms(bool has_died)
{
    return has_died || db.has_lost ? 10000 : 800;
}

static void servers_check_rest(void)
{
    int64_t now = now_us();
    for (unsigned i = 0; i < db.rows.holds; i++)
        if (db.rows.hold[i].till > now)
            flaw("a hold of %s is left", db.rows.hold[i].id);
    for (unsigned i = 0; i < db.rows.waiters; i++)
        if (!is_dead(&db.rows.waiter[i], now))
            flaw("a waiter %s is left", db.rows.waiter[i].id);
}

/* ---- Connections ---- */

static bool client_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    (void)ctx, (void)line, (void)bytes, (void)len; /* pg_session_execute() sends */
    abort();
}

static nanos dial_takes(unsigned line)
{
    (void)line;
    return delay();
}

static bool servers_link_up(unsigned link)
{
    (void)link;
    return true;
}

/* The server finds out behind the statements that were sent. */
static void servers_link_closed(unsigned link)
{
    nanos at = links[link].to_server.at > w.now ? links[link].to_server.at : w.now;
    schedule((struct occurrence){
        .at = at + delay(), .what = SERVER, .who = link, .serial = SESSION_ENDS});
}

static nanos servers_hold_up(const struct occurrence *o)
{
    (void)o;
    return 0;
}

/* The WAL writer comes by, and the standby follows. */
static void servers_happen(const struct occurrence *o)
{
    if (o->serial == SESSION_ENDS) {
        served[o->who].is_over = true;
        return;
    }
    db.durable = db.written;
    if (!db.is_alone)
        db.confirmed = db.written;
    schedule((struct occurrence){
        .at = w.now + NANOS_OF_MS(200 + draw(400)), .what = SERVER, .serial = FLUSH});
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    bool is_yes = reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED;
    bool is_notified = is_yes && reply->brief && op->verb == OP_ACQUIRE;
    bool extends = op->verb == OP_EXTEND || op->verb == OP_CHECK;
    if (planted == PLANT_REPLY_TIME && is_yes && !is_notified)
        reply->asked_at = local_time(c);
    if (planted == PLANT_NOTIFY_TIME && is_notified)
        reply->asked_at = local_time(c);
    if (planted == PLANT_DEAF && reply->kind == REPLY_QUEUED)
        reply->retry_at = TIME_NEVER;
    bool is_believed = (planted == PLANT_TRUST_CUT && extends && reply->kind == REPLY_UNKNOWN) ||
                       (planted == PLANT_TRUST_REFUSED && extends && reply->kind == REPLY_NOT_HELD);
    if (is_believed) {
        reply->kind = REPLY_EXTENDED;
        reply->good = NANOS_OF_MS(op->ttl_ms);
        reply->token = op->token;
    }
}

static void spoil_engine(struct client *c)
{
    struct postgres *p = c->engine;
    for (uint32_t i = 0; i < p->connection.count && planted == PLANT_NO_ECHO; i++)
        p->connection.queue[(p->connection.first + i) & (p->connection.room - 1)].echo = 0;
}
