/* fates.h - what becomes of whom, and one schedule from its first event to its end. */
#pragma once
#include "availability.h"

#include <sys/syscall.h>
#include <unistd.h>

static struct options_of_crowd {
    uint64_t seed;
    unsigned waits; /* at most, of the crowd */
} options;

static struct fates {
    uint64_t schedules, events, waits, kills, stops, cuts, lags, steps, dead_holders, newcomers,
        largest;
    nanos longest[3]; /* without a grant to a living waiter: one process dies, several do, the clock
                         steps back, too */
} fates;

enum { OWNED_MOST = 300 }; /* waits of owners: each of them costs as much as there are */

/* ---- Fates ---- */

static void note_silence(unsigned process)
{
    last_death = later(last_death, w.now);
    for (unsigned id = 0; id < w.attempts; id++) {
        if (w.attempt[id].process != process && process != PROCESSES)
            continue;
        const struct redis_op *active = redis_active_op(&w.attempt[id].op);
        waiters[id].silent = true;
        bool was_in_flight = w.attempt[id].alive && active && active->acquiring;
        *(waiters[id].arrival ? &waiters[id].polled : &waiters[id].granted) |= was_in_flight;
    }
}

/* A request of an owner comes when the hold of a dead holder has just ended, before anybody polls.
 */
static void plan_request_at_end(void)
{
    struct model_key ends;
    if (!model_look(model, "{lock:L}:h", 10, &ends))
        return;
    nanos end = ((int64_t)model_look_item(model, &ends, 0).score - w.server_offset_us) * 1000;
    schedule((struct occurrence){
        .at = end + draw_time(NANOS_OF_MS(5)), .what = NEXT_ROUND, .who = newcomer()});
}

static void die(unsigned process)
{
    if (w.process[process].dead)
        return;
    fates.kills++;
    note((int)process, "dies");
    note_silence(process);
    if (!process && w.kind == REENTRANT)
        plan_request_at_end();
    kill_process(process, draw(4) > 0);
}

/* The moment at which it goes on counts, too: it asks for its place again. */
static void stop(unsigned process, nanos until)
{
    fates.stops++;
    note((int)process, "is stopped until %.1f", (double)until / 1e6);
    note_silence(process);
    w.process[process].stalled_until = until;
    last_death = later(last_death, until < plan.over_at ? until : 0);
}

static void cut_off(unsigned process)
{
    fates.cuts++;
    note((int)process, "is cut off");
    note_silence(process);
    w.process[process].parted_until = TIME_NEVER / 2;
}

/* The server executes what the process sends from now on after the death of the process. */
static void die_in_a_lag(unsigned process)
{
    nanos lasts = NANOS_OF_MS(50 + draw(800));
    fates.lags++;
    note((int)process, "gets no answer for %lld ms, and dies meanwhile",
         (long long)(lasts / NANOS_OF_MS(1)));
    note_silence(process);
    w.process[process].parted_until = w.now + lasts;
    last_death = later(last_death, w.now + lasts + NANOS_OF_MS(LAG_STEP_MS));
    schedule((struct occurrence){.at = w.now + draw_time(lasts), .what = KILL, .who = process});
}

/* A handoff that stood when the clock stepped back lasts for its ttl at most. A short step makes
 * the last second of the dead happen twice. */
static void allow_for_step(nanos back)
{
    bool may_be_handed = w.now >= plan.free_at;
    stepped_back |= may_be_handed;
    plan.bound += may_be_handed ? w.ttl : 0;
    plan.bound += back < NANOS_OF_MS(SHORT_STEP_MS) ? back : 0;
    in_all += back < NANOS_OF_MS(SHORT_STEP_MS) ? back : 0;
}

static void step_clock(void)
{
    int64_t by_us = (int64_t)draw(2 * 3600 * 1000) * 1000 - INT64_C(3600000000);
    if (draw(2))
        by_us /= 1000;
    fates.steps++;
    stepped_ahead |= by_us > 0;
    if (by_us < 0)
        allow_for_step(-by_us * 1000);
    note(-1, "its clock steps by %lld ms", (long long)by_us / 1000);
    w.server_offset_us += by_us;
    set_server_time();
    plan_server_tick();
    note_silence(PROCESSES);
}

static void plan_fate(unsigned process, nanos at)
{
    static const enum happening usual[] = {KILL, KILL,  KILL,  KILL, KILL,
                                           KILL, STALL, STALL, PART, CLOSE};
    enum happening what = usual[draw(10)];
    if (what != CLOSE) /* it lives */
        schedule((struct occurrence){.at = at, .what = (uint8_t)what, .who = process});
}

/* ---- What happens ---- */

static unsigned process_of(const struct occurrence *o)
{
    switch (o->what) {
    case LINK_UP:
    case LINK_DOWN:
    case BYTES_DOWN:
        return links[o->who].process;
    case TIMER:
    case WISH:
        return w.attempt[o->who].process;
    case TICK:
    case NEXT_ROUND:
        return o->who;
    default:
        return PROCESSES;
    }
}

/* What is for a process that is stopped waits until it goes on. */
static bool is_postponed(struct occurrence o)
{
    unsigned number = process_of(&o);
    if (number == PROCESSES || w.now >= w.process[number].stalled_until || w.process[number].dead)
        return false;
    o.at = w.process[number].stalled_until;
    if (o.at < plan.over_at)
        schedule(o);
    return true;
}

static void serve(unsigned number, const char *bytes, uint32_t len)
{
    const struct link *link = &links[number];
    if (!link->server_open)
        return;
    model_feed(model, link->connection, bytes, len);
    let_server_speak();
    if (!model_connected(model, link->connection)) {
        links[number].server_open = false;
        plan_down(number);
    }
}

static void happen_to_link(const struct occurrence *o)
{
    struct link *link = &links[o->who];
    struct process *p = &w.process[link->process];
    nanos local = local_time(p, w.now);
    if (!is_ours(link))
        return;
    if (o->what == LINK_UP) {
        accept_link(o->who);
        redis_wire_engine.connection_up(p->engine, link->line, local);
    } else if (o->what == BYTES_DOWN) {
        redis_wire_engine.connection_bytes(p->engine, link->line, o->bytes, o->len, local);
    } else {
        link->client_open = false;
        p->line[link->line] = -1;
        redis_wire_engine.connection_down(p->engine, link->line, HF_UNAVAILABLE, "server: closed",
                                          local);
    }
    settle(p);
}

static void happen_to_process(const struct occurrence *o)
{
    struct process *p = &w.process[process_of(o)];
    if (p->dead || (o->what == TICK && o->serial != p->tick))
        return;
    if (o->what == TICK)
        p->tick_at = TIME_NEVER;
    else if (o->what == NEXT_ROUND)
        begin(o->who);
    else if (o->what == WISH &&
             !claim_legal(w.attempt[o->who].claim.state, (enum claim_input)o->wish))
        return;
    else if (o->what == WISH)
        apply(o->who, (struct claim_event){.in = (enum claim_input)o->wish});
    else if (o->serial == w.attempt[o->who].timer)
        apply(o->who, (struct claim_event){.in = INPUT_TIMER});
    settle(p);
}

static void happen(const struct occurrence *o)
{
    set_server_time();
    switch (o->what) {
    case LINK_UP:
    case LINK_DOWN:
    case BYTES_DOWN:
        happen_to_link(o);
        break;
    case BYTES_UP:
        serve(o->who, o->bytes, o->len);
        break;
    case LINK_CLOSED:
        server_closes(o->who);
        break;
    case SERVER_WAKES:
        if (o->serial == w.server_serial) {
            w.server_tick = TIME_NEVER;
            let_server_speak();
        }
        break;
    case SERVER_FAULT:
        step_clock();
        break;
    case KILL:
        die(o->who);
        break;
    case STALL:
        stop(o->who, draw(2) ? w.now + NANOS_OF_MS(1200 + draw(3000)) : plan.over_at);
        break;
    case PART:
        (draw(2) ? cut_off : die_in_a_lag)(o->who);
        break;
    case READ:
        judge_availability();
        schedule((struct occurrence){.at = w.now + NANOS_OF_MS(JUDGE_EVERY_MS), .what = READ});
        break;
    default:
        happen_to_process(o);
    }
}

/* ---- A schedule ---- */

static nanos draw_between(nanos from, nanos to)
{
    return from + draw_time(to - from);
}

/* Handoffs to the dead begin until their clients' signs of life have ended, and the last one lasts
 * for its grace. Then the first living waiter polls. */
static nanos bound_of(const struct timing *t)
{
    nanos poll = NANOS_OF_MS(2 * PRESENCE_RENEW_MS);
    nanos slack = NANOS_OF_MS(JUDGE_EVERY_MS + ROUND_TRIPS_MS);
    return NANOS_OF_MS(PRESENCE_MS) + t->handoff_grace + (t->refresh < poll ? t->refresh : poll) +
           slack;
}

static void draw_lock(void)
{
    static const int64_t ttls_ms[] = {1000, 2000, 5000, 10000, 30000, 30000};
    static const char *const wakes[] = {"inbox", "pubsub", "poll"};
    static const enum kind kinds[] = {EXCLUSIVE, EXCLUSIVE,  EXCLUSIVE,
                                      SEMAPHORE, READ_WRITE, REENTRANT};
    struct timing sheet;
    struct engine_limits limits = REDIS_LIMITS;
    w.ttl = NANOS_OF_MS(ttls_ms[draw(6)]);
    w.wake = wakes[draw(3)];
    w.kind = kinds[draw(6)];
    w.capacity = w.kind == READ_WRITE ? HF_CAPACITY_MAX : w.kind == EXCLUSIVE ? 1 : 2 + draw(3);
    timing_fill(&sheet, w.ttl / NANOS_OF_MS(1), &limits, &(struct timing_overrides){0});
    w.op_timeout = sheet.op_timeout;
    plan.bound = bound_of(&sheet);
}

/* Few waits in most schedules: they take less time. */
static void draw_crowd(void)
{
    unsigned all = options.waits, most = 2 + (all >> draw(9));
    if (w.kind == REENTRANT && all > OWNED_MOST)
        all = OWNED_MOST;
    plan.waits = 1 + draw(most < all ? most : all);
    plan.crowd = draw(2) ? plan.waits : 1 + draw(plan.waits < 4 ? plan.waits : 4);
    plan.living = draw(6) ? 1 + draw(3) : 0;
    plan.holder_dies = !draw(4);
    plan.free_at = NANOS_OF_MS(500 + draw(4000));
    plan.joined_at = draw_between(NANOS_OF_MS(20), plan.free_at);
    plan.over_at = plan.free_at + NANOS_OF_MS(15000) + 2 * w.ttl;
    plan.newcomer_at = plan.living && draw(2) ? H_NEVER : plan.over_at - NANOS_OF_MS(draw(8000));
}

static void start_at(unsigned process, nanos at)
{
    struct process *p = &w.process[process];
    unsigned room = process && process <= plan.crowd ? 4 * plan.waits / plan.crowd + 40 : 40;
    p->rate_ppm = (int64_t)draw(2001) - 1000;
    p->offset = NANOS_OF_MS(1000 + draw(100000));
    p->reply =
        process ? w.process[process - 1].reply + w.process[process - 1].news_room : news_of_all;
    p->news_room = room;
    start_process(process);
    schedule((struct occurrence){.at = at, .what = NEXT_ROUND, .who = process});
}

static void plan_crowd(void)
{
    bool together = draw(2), with_holder = draw(2);
    nanos death = plan.free_at + (with_holder ? NANOS_OF_MS(draw(200)) - NANOS_OF_MS(150)
                                              : NANOS_OF_MS(draw(3500)) - NANOS_OF_MS(2500));
    for (unsigned p = 1; p <= plan.crowd; p++) {
        nanos at = together ? death + draw_time(NANOS_OF_MS(20))
                            : plan.free_at + NANOS_OF_MS(draw(3500)) - NANOS_OF_MS(2500);
        start_at(p, draw_between(NANOS_OF_MS(10), plan.joined_at));
        plan_fate(p, later(at, NANOS_OF_MS(5)));
    }
    for (unsigned i = plan.crowd; i < plan.waits; i++)
        schedule((struct occurrence){.at = draw_between(NANOS_OF_MS(10), plan.joined_at),
                                     .what = NEXT_ROUND,
                                     .who = 1 + i % plan.crowd});
}

static void plan_others(void)
{
    start_at(0, 0);
    plan_crowd();
    for (unsigned p = first_living(); p < newcomer(); p++)
        start_at(p, draw_between(NANOS_OF_MS(10), plan.joined_at + NANOS_OF_MS(20)));
    start_at(newcomer(), plan.newcomer_at);
    if (plan.holder_dies)
        schedule((struct occurrence){.at = plan.free_at, .what = KILL, .who = 0});
    if (!draw(4))
        schedule((struct occurrence){
            .at = draw_between(plan.free_at - NANOS_OF_MS(500), plan.free_at + NANOS_OF_MS(2000)),
            .what = SERVER_FAULT});
    schedule((struct occurrence){.at = NANOS_OF_MS(JUDGE_EVERY_MS), .what = READ});
    fates.newcomers += plan.newcomer_at != H_NEVER;
    fates.dead_holders += plan.holder_dies;
}

static void set_up(void)
{
    memset(&w, 0, offsetof(struct world, attempt));
    w.hash = UINT64_C(0xcbf29ce484222325);
    w.random = (options.seed + 1) * UINT64_C(0x9E3779B97F4A7C15);
    for (unsigned i = 0; i < 4; i++)
        draw(2);
    w.options.plant = planted;
    w.calm = w.server_up = true;
    w.server_tick = TIME_NEVER;
    w.served = -1;
    bytes_used = 0;
    free_since = longest_free = last_death = 0;
    stepped_ahead = stepped_back = false;
    in_all = NANOS_OF_MS(IN_ALL_MS);
    grants = grants_seen = 0;
    model_reset(model, options.seed);
    model_script_recall(model);
    w.server_offset_us = model_time(model);
    draw_lock();
    draw_crowd();
    plan_others();
}

/* Nobody is left who could still be served. */
static bool is_over(void)
{
    if (w.now < plan.joined_at + NANOS_OF_MS(100) ||
        (plan.newcomer_at != H_NEVER && w.now < plan.newcomer_at + NANOS_OF_MS(100)))
        return false;
    for (unsigned id = 0; id < w.attempts; id++)
        if (!w.attempt[id].ended && !w.process[w.attempt[id].process].dead &&
            w.process[w.attempt[id].process].parted_until == 0 &&
            w.process[w.attempt[id].process].stalled_until < plan.over_at)
            return false;
    return true;
}

static void tear_down(void)
{
    for (unsigned p = 0; p <= newcomer(); p++)
        if (w.process[p].engine)
            kill_process(p, false);
    fates.schedules++;
    fates.waits += plan.waits;
    fates.largest = plan.waits > fates.largest ? plan.waits : fates.largest;
    unsigned what = stepped_back || in_all > NANOS_OF_MS(IN_ALL_MS) ? 2 : plan.crowd > 1;
    fates.longest[what] = later(fates.longest[what], longest_free);
}

/* Runs one schedule; what went wrong, or "". */
static const char *run(void)
{
    set_up();
    while (w.events && !*w.failure && w.now < plan.over_at) {
        struct occurrence o = calendar_take(heap, &w.events);
        w.now = o.at;
        mix((uint64_t)o.at ^ (uint64_t)o.what << 56 ^ (uint64_t)o.who << 40 ^ o.len);
        if (!is_postponed(o))
            happen(&o);
        fates.events++;
        if (o.what == READ && is_over())
            break;
    }
    tear_down();
    return w.failure;
}
