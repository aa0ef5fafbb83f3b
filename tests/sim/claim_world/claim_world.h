/* claim_world.h - the simulator's world: virtual time, processes that stall and die, and
 * connections that lose and delay. It carries the requests of production claims to the lock
 * server's model and the news back.
 *
 * Included once, by claims.c. "Real" time is the server's; every process has a clock of its own
 * that runs a little slower or faster. */
#pragma once
#include "core/claim.h"
#include "lock_replies.h"
#include "sim/coverage.h"

#define MAX_EVENTS 1024
#define PROCESSES 4
#define ROUNDS 4

enum happening { ARRIVE, NEWS, PUSHED, TIMER_DUE, WISHED, NEXT_ROUND, STALL, DIE };

struct occurrence {
    nanos at;
    uint64_t order; /* among those at the same time */
    enum happening what;
    unsigned actor;  /* or process: NEXT_ROUND, STALL, DIE */
    uint32_t serial; /* TIMER_DUE: of the timer */
    bool unheard;    /* ARRIVE: its answer is lost */
    struct request request;
    nanos asked_at;
    enum claim_input wish;
    struct engine_reply reply;
    struct answer answer;
    struct push push;
};

#include "sim/calendar.h"

/* One claim, the user behind it, and the part of an engine that lives with it. */
struct actor {
    struct claim claim;
    struct timing_sheet sheet; /* the claim's */
    unsigned process, owner, level;
    unsigned asked_units, units; /* asked for; what the user relies on while the claim is valid */
    enum op_verb wants;          /* the conversion whose outcome the user waits for */
    bool fidgets;                /* converts all the time */
    bool upgrade_doubt; /* an upgrade without an outcome: the token may have risen unseen */
    bool forfeited;
    bool disturbed; /* its process was stopped, or a message of it was lost, refused or late */
    uint64_t birth; /* of its hold in the server */
    uint32_t timer; /* serial of the timer that counts */
    bool decided, ended;
    nanos hold_for;
    nanos broken_until; /* the connection: requests before that time share its fate */
    bool swallows;      /* the broken connection executes nothing more */
    nanos last_arrival, last_news;
    bool paired; /* the newest QUEUED answer: what a push is measured by */
    nanos pair_asked, pair_at, pair_due;
    uint64_t pair_counter;
};

struct process {
    int64_t rate_ppm;
    nanos offset, stalled_until;
    bool dead;
    unsigned rounds;
};

struct tally {
    uint64_t schedules, events, grants, hand_overs, lost, denied, cuts, stalls, deaths, doubled,
        upgrades, downgrades, reentries;
};

struct world {
    struct lock_server server;
    struct process processes[PROCESSES];
    struct actor actors[MAX_ATTEMPTS];
    struct occurrence heap[MAX_EVENTS];
    unsigned events, actor_count;
    nanos now, ttl, heals_at;
    uint64_t order, random, highest_token;
    unsigned highest_owner;
    bool calm;        /* no fault in this schedule */
    bool shared;      /* readers and writers */
    bool nested;      /* owners that ask again while they hold */
    bool synchronous; /* the engine answers inside submit */
    enum plant plant;
    struct engine_limits limits;
    struct tally tally;
};

static struct world w;

static uint32_t draw(uint32_t below)
{
    w.random ^= w.random << 13;
    w.random ^= w.random >> 7;
    w.random ^= w.random << 17;
    return (uint32_t)(w.random >> 32) % below;
}

static nanos draw_time(nanos below)
{
    return below / 4096 * draw(4096);
}

/* ---- Time ---- */

static nanos local_time(const struct process *p, nanos real)
{
    return p->offset + real + real * p->rate_ppm / 1000000;
}

/* The first real moment at which that clock shows at least `local`. */
static nanos real_time(const struct process *p, nanos local)
{
    nanos real = (local - p->offset) * 1000000 / (1000000 + p->rate_ppm);
    while (local_time(p, real) < local)
        real++;
    while (local_time(p, real - 1) >= local)
        real--;
    return real;
}

static void schedule(struct occurrence o)
{
    if (w.events == MAX_EVENTS) {
        server_fails(&w.server, "too many things happen at once");
        return;
    }
    o.order = ++w.order;
    calendar_add(w.heap, &w.events, o);
}

static bool healthy(void)
{
    return w.calm || w.now >= w.heals_at;
}

static nanos travel(void)
{
    return NANOS_OF_MS(1) / 20 + draw_time(draw(20) ? NANOS_OF_MS(1) : NANOS_OF_MS(8));
}

/* ---- Connections ---- */

static void apply(unsigned id, struct claim_event event);

static void tell(unsigned id, struct engine_reply reply)
{
    apply(id, (struct claim_event){.in = claim_input_of_reply(reply.kind), .reply = &reply});
}

static void send_pushes(void)
{
    for (unsigned i = 0; i < w.server.push_count; i++) {
        nanos delay = travel();
        bool lost = !healthy() && draw(100) < 3, late = !healthy() && draw(100) < 3;
        w.actors[w.server.pushes[i].id].disturbed |= lost || late;
        if (lost)
            continue;
        if (late)
            delay += draw_time(2 * w.ttl);
        schedule((struct occurrence){.at = w.now + delay,
                                     .what = PUSHED,
                                     .actor = w.server.pushes[i].id,
                                     .push = w.server.pushes[i]});
    }
    w.server.push_count = 0;
}

static struct engine_reply news_of(const struct answer *answer, nanos asked_at)
{
    return (struct engine_reply){.kind = answer->kind,
                                 .asked_at = asked_at,
                                 .good = answer->good,
                                 .token = answer->token,
                                 .retry_at = asked_at + answer->again,
                                 .brief = answer->kind == REPLY_GRANTED && answer->good < w.ttl};
}

static void note_pair(struct actor *actor, const struct engine_reply *reply,
                      const struct answer *answer)
{
    if (reply->kind == REPLY_UNKNOWN)
        actor->paired = false;
    if (reply->kind != REPLY_QUEUED)
        return;
    actor->paired = true;
    actor->pair_asked = reply->asked_at;
    actor->pair_at = answer->at;
    actor->pair_due = reply->retry_at;
    actor->pair_counter = answer->counter;
}

/* Engines say things once; but should one repeat what it said of a hold, nothing may come of it. */
static void repeat_answer(const struct occurrence *answered, enum op_verb verb)
{
    struct occurrence again = *answered;
    if (verb == OP_ACQUIRE || verb == OP_LEAVE || verb == OP_RELEASE || healthy() || draw(100) >= 5)
        return;
    again.at += draw_time(draw(2) ? NANOS_OF_MS(4) : w.ttl / 2);
    w.tally.doubled++;
    schedule(again);
}

/* A request reaches the server. Its answer, if it is heard, arrives behind the earlier ones of its
 * connection. */
static void arrive(const struct occurrence *o)
{
    struct actor *actor = &w.actors[o->actor];
    struct answer answer = serve(&w.server, &o->request, w.now);
    struct engine_reply reply = news_of(&answer, o->asked_at);
    send_pushes();
    if (o->unheard)
        return;
    nanos at = w.now + travel();
    actor->last_news = at = at > actor->last_news ? at : actor->last_news;
    struct occurrence heard = {
        .at = at, .what = NEWS, .actor = o->actor, .reply = reply, .answer = answer};
    schedule(heard);
    repeat_answer(&heard, o->request.verb);
}

static void schedule_cut(unsigned id, nanos at, nanos asked_at)
{
    struct engine_reply reply = {
        .kind = REPLY_UNKNOWN, .asked_at = asked_at, .retry_at = TIME_NEVER};
    w.tally.cuts++;
    schedule((struct occurrence){.at = at, .what = NEWS, .actor = id, .reply = reply});
}

/* The connection breaks at this request: it is lost, or executed with its answer lost, or executed
 * much later when the client has long turned to a new connection. Whatever follows on the broken
 * connection is cut with it. */
static void break_connection(struct actor *actor, struct occurrence *request)
{
    unsigned fate = draw(3);
    actor->broken_until = w.now + actor->claim.sheet->t.op_timeout;
    actor->swallows = fate == 0;
    actor->disturbed = true;
    request->unheard = true;
    if (fate == 2)
        request->at += draw_time(2 * w.ttl);
}

static void send_request(unsigned id, struct occurrence request)
{
    struct actor *actor = &w.actors[id];
    bool broken = w.now < actor->broken_until;
    request.at = w.now + travel();
    if (!broken && actor->broken_until) { /* a new connection: it does not wait for what the old one
                                             still carries */
        actor->broken_until = actor->last_arrival = 0;
        actor->swallows = false;
    }
    if (!broken && !healthy() && draw(100) < 8)
        break_connection(actor, &request);
    if (w.now < actor->broken_until) {
        request.unheard = true;
        schedule_cut(id, actor->broken_until, request.asked_at);
        if (actor->swallows || (broken && draw(2))) {
            actor->swallows = true;
            return;
        }
    }
    actor->last_arrival = request.at =
        request.at > actor->last_arrival ? request.at : actor->last_arrival;
    schedule(request);
    if (!healthy() && draw(100) < 5) { /* a message that arrives twice */
        request.unheard = true;
        w.tally.doubled++;
        schedule(request);
    }
}

static void submit(unsigned id, enum op_verb verb, bool may_be_in_flight, nanos ttl)
{
    struct actor *actor = &w.actors[id];
    nanos local = local_time(&w.processes[actor->process], w.now);
    struct request op = {.verb = verb,
                         .id = id,
                         .owner = actor->owner,
                         .units = actor->asked_units,
                         .may_be_in_flight = may_be_in_flight};
    op.wait = local < actor->claim.deadline;
    op.ttl = verb == OP_EXTEND ? ttl : w.ttl;
    if (!healthy() && draw(100) < 2) {
        struct engine_reply refused = {
            .kind = REPLY_FAILED, .status = HF_UNAVAILABLE, .asked_at = local};
        schedule((struct occurrence){
            .at = w.now + travel(), .what = NEWS, .actor = id, .reply = refused});
        actor->disturbed = true;
        return;
    }
    if (!w.synchronous) {
        send_request(
            id, (struct occurrence){.what = ARRIVE, .actor = id, .request = op, .asked_at = local});
        return;
    }
    struct answer answer = serve(&w.server, &op, w.now);
    struct engine_reply reply = news_of(&answer, local);
    send_pushes();
    note_pair(actor, &reply, &answer);
    tell(id, reply);
}

/* A hand-over is heard of. It counts from our own last answered ask; where that does not carry, it
 * is a hint. */
static void hear_push(unsigned id, const struct push *push)
{
    struct actor *actor = &w.actors[id];
    nanos local = local_time(&w.processes[actor->process], w.now);
    struct engine_reply reply = {.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER};
    if (actor->paired && push->token <= actor->pair_counter)
        return;
    nanos good = push->end - actor->pair_at;
    nanos until = actor->pair_asked + good - timing_drift(&w.limits, good);
    if (actor->paired && until - local > actor->claim.sheet->t.op_timeout &&
        local < actor->pair_due)
        reply = (struct engine_reply){.kind = REPLY_GRANTED,
                                      .asked_at = actor->pair_asked,
                                      .good = good,
                                      .token = push->token,
                                      .brief = true};
    tell(id, reply);
}
