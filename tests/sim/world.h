/* world.h - the simulator's world: virtual time, processes that stall and die, and connections that lose and delay. It
 * carries the requests of production claims to the lock server's model and the news back.
 *
 * Included once, by claims.c. "Real" time is the server's; every process has a clock of its own that runs a little
 * slower or faster. */
#pragma once
#include "core/claim.h"
#include "coverage.h"
#include "lock_answers.h"

#define MAX_EVENTS 1024
#define PROCESSES 4
#define ROUNDS 4

enum happening { ARRIVE, NEWS, PUSHED, TIMER_DUE, WISHED, NEXT_ROUND, STALL, DIE };

struct occurrence {
    hf_nanos at;
    uint64_t order; /* among those at the same time */
    enum happening what;
    unsigned actor;  /* or process: NEXT_ROUND, STALL, DIE */
    uint32_t serial; /* TIMER_DUE: of the timer */
    bool unheard;    /* ARRIVE: its answer is lost */
    struct request request;
    hf_nanos asked_at;
    enum hf_input wish;
    struct hf_news news;
    struct answer answer;
    struct push push;
};

#include "calendar.h"

/* One claim, the user behind it, and the part of an engine that lives with it. */
struct actor {
    struct hf_claim claim;
    struct hf_sheet sheet; /* the claim's */
    unsigned process, owner, level;
    unsigned asked_units, units; /* asked for; what the user relies on while the claim is valid */
    enum hf_verb wants;          /* the conversion whose outcome the user waits for */
    bool fidgets;                /* converts all the time */
    bool upgrade_doubt;          /* an upgrade without an outcome: the token may have risen unseen */
    bool forfeited;
    bool disturbed; /* its process was stopped, or a message of it was lost, refused or late */
    uint64_t birth; /* of its hold in the server */
    uint32_t timer; /* serial of the timer that counts */
    bool decided, ended;
    hf_nanos hold_for;
    hf_nanos broken_until; /* the connection: requests before that time share its fate */
    bool swallows;         /* the broken connection executes nothing more */
    hf_nanos last_arrival, last_news;
    bool paired; /* the newest QUEUED answer: what a push is measured by */
    hf_nanos pair_asked, pair_at, pair_due;
    uint64_t pair_counter;
};

struct process {
    int64_t rate_ppm;
    hf_nanos offset, stalled_until;
    bool dead;
    unsigned rounds;
};

struct tally {
    uint64_t schedules, events, grants, hand_overs, lost, denied, cuts, stalls, deaths, doubled, upgrades, downgrades,
        reentries;
};

struct world {
    struct lock_server server;
    struct process processes[PROCESSES];
    struct actor actors[MAX_ATTEMPTS];
    struct occurrence heap[MAX_EVENTS];
    unsigned events, actor_count;
    hf_nanos now, ttl, heals_at;
    uint64_t order, random, highest_token;
    unsigned highest_owner;
    bool calm;        /* no fault in this schedule */
    bool shared;      /* readers and writers */
    bool nested;      /* owners that ask again while they hold */
    bool synchronous; /* the engine answers inside submit */
    enum plant plant;
    struct hf_limits limits;
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

static hf_nanos draw_time(hf_nanos below)
{
    return below / 4096 * draw(4096);
}

/* ---- Time ---------------------------------------------------------------------------------------------------- */

static hf_nanos local_time(const struct process *p, hf_nanos real)
{
    return p->offset + real + real * p->rate_ppm / 1000000;
}

/* The first real moment at which that clock shows at least `local`. */
static hf_nanos real_time(const struct process *p, hf_nanos local)
{
    hf_nanos real = (local - p->offset) * 1000000 / (1000000 + p->rate_ppm);
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

static hf_nanos travel(void)
{
    return HF_MS(1) / 20 + draw_time(draw(20) ? HF_MS(1) : HF_MS(8));
}

/* ---- Connections --------------------------------------------------------------------------------------------- */

static void apply(unsigned id, struct hf_event event);

static void tell(unsigned id, struct hf_news news)
{
    apply(id, (struct hf_event){.in = hf_input_of_cue(news.cue), .news = &news});
}

static void send_pushes(void)
{
    for (unsigned i = 0; i < w.server.push_count; i++) {
        hf_nanos delay = travel();
        bool lost = !healthy() && draw(100) < 3, late = !healthy() && draw(100) < 3;
        w.actors[w.server.pushes[i].id].disturbed |= lost || late;
        if (lost)
            continue;
        if (late)
            delay += draw_time(2 * w.ttl);
        schedule((struct occurrence){
            .at = w.now + delay, .what = PUSHED, .actor = w.server.pushes[i].id, .push = w.server.pushes[i]});
    }
    w.server.push_count = 0;
}

static struct hf_news news_of(const struct answer *answer, hf_nanos asked_at)
{
    return (struct hf_news){.cue = answer->cue,
                            .asked_at = asked_at,
                            .good = answer->good,
                            .token = answer->token,
                            .retry_at = asked_at + answer->again,
                            .brief = answer->cue == HF_N_GRANTED && answer->good < w.ttl};
}

static void note_pair(struct actor *actor, const struct hf_news *news, const struct answer *answer)
{
    if (news->cue == HF_N_CUT)
        actor->paired = false;
    if (news->cue != HF_N_QUEUED)
        return;
    actor->paired = true;
    actor->pair_asked = news->asked_at;
    actor->pair_at = answer->at;
    actor->pair_due = news->retry_at;
    actor->pair_counter = answer->counter;
}

/* Engines say things once; but should one repeat what it said of a hold, nothing may come of it. */
static void repeat_answer(const struct occurrence *answered, enum hf_verb verb)
{
    struct occurrence again = *answered;
    if (verb == HF_V_ACQUIRE || verb == HF_V_LEAVE || verb == HF_V_RELEASE || healthy() || draw(100) >= 5)
        return;
    again.at += draw_time(draw(2) ? HF_MS(4) : w.ttl / 2);
    w.tally.doubled++;
    schedule(again);
}

/* A request reaches the server. Its answer, if it is heard, arrives behind the earlier ones of its connection. */
static void arrive(const struct occurrence *o)
{
    struct actor *actor = &w.actors[o->actor];
    struct answer answer = serve(&w.server, &o->request, w.now);
    struct hf_news news = news_of(&answer, o->asked_at);
    send_pushes();
    if (o->unheard)
        return;
    hf_nanos at = w.now + travel();
    actor->last_news = at = at > actor->last_news ? at : actor->last_news;
    struct occurrence heard = {.at = at, .what = NEWS, .actor = o->actor, .news = news, .answer = answer};
    schedule(heard);
    repeat_answer(&heard, o->request.verb);
}

static void schedule_cut(unsigned id, hf_nanos at, hf_nanos asked_at)
{
    struct hf_news news = {.cue = HF_N_CUT, .asked_at = asked_at, .retry_at = HF_NEVER};
    w.tally.cuts++;
    schedule((struct occurrence){.at = at, .what = NEWS, .actor = id, .news = news});
}

/* The connection breaks at this request: it is lost, or executed with its answer lost, or executed much later when the
 * client has long turned to a new connection. Whatever follows on the broken connection is cut with it. */
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
    if (!broken && actor->broken_until) { /* a new connection: it does not wait for what the old one still carries */
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
    actor->last_arrival = request.at = request.at > actor->last_arrival ? request.at : actor->last_arrival;
    schedule(request);
    if (!healthy() && draw(100) < 5) { /* a message that arrives twice */
        request.unheard = true;
        w.tally.doubled++;
        schedule(request);
    }
}

static void submit(unsigned id, enum hf_verb verb, bool doubt, hf_nanos ttl)
{
    struct actor *actor = &w.actors[id];
    hf_nanos local = local_time(&w.processes[actor->process], w.now);
    struct request ask = {.verb = verb, .id = id, .owner = actor->owner, .units = actor->asked_units, .doubt = doubt};
    ask.wait = local < actor->claim.deadline;
    ask.ttl = verb == HF_V_EXTEND ? ttl : w.ttl;
    if (!healthy() && draw(100) < 2) {
        struct hf_news refused = {.cue = HF_N_FAILED, .status = HF_UNAVAILABLE, .asked_at = local};
        schedule((struct occurrence){.at = w.now + travel(), .what = NEWS, .actor = id, .news = refused});
        actor->disturbed = true;
        return;
    }
    if (!w.synchronous) {
        send_request(id, (struct occurrence){.what = ARRIVE, .actor = id, .request = ask, .asked_at = local});
        return;
    }
    struct answer answer = serve(&w.server, &ask, w.now);
    struct hf_news news = news_of(&answer, local);
    send_pushes();
    note_pair(actor, &news, &answer);
    tell(id, news);
}

/* A hand-over is heard of. It counts from our own last answered ask; where that does not carry, it is a hint. */
static void hear_push(unsigned id, const struct push *push)
{
    struct actor *actor = &w.actors[id];
    hf_nanos local = local_time(&w.processes[actor->process], w.now);
    struct hf_news news = {.cue = HF_N_HINT, .retry_at = HF_NEVER};
    if (actor->paired && push->token <= actor->pair_counter)
        return;
    hf_nanos good = push->end - actor->pair_at;
    hf_nanos until = actor->pair_asked + good - hf_timing_drift(&w.limits, good);
    if (actor->paired && until - local > actor->claim.sheet->t.op_timeout && local < actor->pair_due)
        news = (struct hf_news){
            .cue = HF_N_GRANTED, .asked_at = actor->pair_asked, .good = good, .token = push->token, .brief = true};
    tell(id, news);
}
