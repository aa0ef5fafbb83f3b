/* redis_schedule.h - one schedule: what the seed draws, and the run from its first event to its
 * rest. */
#pragma once
#include "redis_events.h"

/* At most `most` of them, at any time before things heal. */
static void plan_faults(enum fault_bit bit, unsigned most)
{
    for (unsigned i = w.calm ? 0 : draw(most + 1); i; i--)
        schedule(
            (struct occurrence){.at = draw_time(w.heals_at), .what = SERVER_FAULT, .who = bit});
}

/* In every eighth schedule, or all; and what --refused-call says. */
static void plan_refusals(void)
{
    model_fail_call(model, w.options.refused_call, call_errors[w.options.refused_with].text);
    bool refuses = !draw_from(&w.refuse_random, 8) || w.options.refuses;
    unsigned count = !refuses || w.options.refused_call ? 0 : 1 + draw_from(&w.refuse_random, 4);
    if (count &&
        draw_from(&w.refuse_random, 2)) /* what was not counted shows when the clock is behind */
        schedule((struct occurrence){.at = w.heals_at / 4096 * draw_from(&w.refuse_random, 4096),
                                     .what = SERVER_FAULT,
                                     .who = FAULT_BIT_STEP});
    for (unsigned i = 0; i < count && !w.calm; i++)
        schedule((struct occurrence){.at = w.heals_at / 4096 * draw_from(&w.refuse_random, 4096),
                                     .what = SERVER_FAULT,
                                     .who = draw_from(&w.refuse_random, 2) ? FAULT_BIT_REFUSE
                                                                           : FAULT_BIT_RIGHT});
}

static void plan_all_faults(void)
{
    plan_refusals();
    plan_faults(FAULT_BIT_RESTART, draw(4) ? 0 : 1);
    plan_faults(FAULT_BIT_WIPE, draw(5) ? 0 : 1);
    if (!w.calm && !draw(w.strong ? 2 : 6))
        for (unsigned i = 0; i < (w.strong ? 6 : 2); i++)
            schedule((struct occurrence){
                .at = draw_time(w.heals_at), .what = SERVER_FAULT, .who = FAULT_BIT_FAILOVER});
    plan_faults(FAULT_BIT_STEP, draw(4) ? 0 : 2);
    plan_faults(FAULT_BIT_FULL, draw(6) ? 0 : 1);
    plan_faults(FAULT_BIT_FLUSH, draw(6) ? 0 : 1);
    if (w.kind == EXCLUSIVE || w.kind == REENTRANT)
        for (unsigned i = draw(3) ? 0 : 1 + draw(3); i; i--)
            schedule((struct occurrence){.at = draw_time(w.heals_at), .what = FOREIGN_ASK});
}

/* Seldom: most schedules are about something else. */
static void plan_apart(unsigned p)
{
    static const enum happening what[] = {SUSPEND, JUMP, CLOSE};
    for (unsigned i = 0; i < 3; i++) {
        bool happens = !draw_clock(what[i] == CLOSE ? 12 : 24);
        nanos at = w.heals_at / 4096 * draw_clock(4096);
        if (happens && !w.calm)
            schedule((struct occurrence){.at = at, .what = (uint8_t)what[i], .who = p});
    }
}

static void plan_process(unsigned p)
{
    bool plays = p < w.options.processes;
    bool wild = !draw(5) || w.rough;
    w.process[p].rate_ppm = wild ? (int64_t)draw(18001) - 9000 : (int64_t)draw(8001) - 4000;
    w.process[p].offset = NANOS_OF_MS(1000 + draw(100000));
    for (unsigned user = p; user < w.users * PROCESSES; user += PROCESSES) {
        nanos at = draw_time(w.ttl);
        if (plays)
            schedule((struct occurrence){.at = at, .what = NEXT_ROUND, .who = user});
    }
    for (unsigned i = w.calm || draw(2) ? 0 : draw(3); i; i--)
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = STALL, .who = p});
    if (!w.calm && !draw(8))
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = KILL, .who = p});
    if (!w.calm && !draw(5))
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = PART, .who = p});
    plan_apart(p);
    bool breaks = !draw(12), resizes = draw(2), looks = !draw(12);
    nanos at = draw_time(w.heals_at);
    if (breaks && plays && w.options.faults & FAULT_BREAK)
        schedule((struct occurrence){.at = at, .what = ERRAND, .who = p, .wish = ADMIN_BREAK});
    if (resizes && plays && w.kind == SEMAPHORE && w.options.faults & FAULT_RESIZE)
        schedule((struct occurrence){.at = at, .what = ERRAND, .who = p, .wish = ADMIN_RESIZE});
    if ((looks || w.options.looks) && plays)
        schedule((struct occurrence){.at = at, .what = ERRAND, .who = p, .wish = ADMIN_LIST});
    w.process[p].reply = &news_of_all[p * NEWS_ROOM / PROCESSES];
    w.process[p].news_room = NEWS_ROOM / PROCESSES;
    if (plays)
        start_process(p);
    else
        w.process[p].dead = true;
}

/* Every fourth group of seeds goes by EVALSHA: on a server without functions, or one where the user
 * may not load them. */
static enum model_functions functions_of(uint64_t seed)
{
    if (seed / 4 % 4)
        return MODEL_FUNCTIONS;
    return seed / 16 % 2 ? MODEL_NO_FUNCTIONS : MODEL_FUNCTION_DENIED;
}

static void set_up(const struct options *options)
{
    static const int64_t ttls_ms[] = {100, 200, 500, 1000, 10000};
    static const char *const wakes[] = {"inbox", "inbox", "pubsub", "poll"};
    memset(&w, 0, offsetof(struct world, attempt));
    w.options = *options;
    w.hash = UINT64_C(0xcbf29ce484222325);
    w.random = (options->seed + 1) * UINT64_C(0x9E3779B97F4A7C15);
    w.clock_random = (options->seed + 1) * UINT64_C(0xD1B54A32D192ED03);
    w.read_random = (options->seed + 1) * UINT64_C(0xBF58476D1CE4E5B9);
    w.plain_random = (options->seed + 1) * UINT64_C(0x94D049BB133111EB);
    w.refuse_random = (options->seed + 1) * UINT64_C(0xA0761D6478BD642F);
    for (unsigned i = 0; i < 4; i++)
        draw(2), draw_clock(2), draw_from(&w.read_random, 2), draw_from(&w.plain_random, 2),
            draw_from(&w.refuse_random, 2);
    w.reads_late = !draw_from(&w.read_random, 6);
    w.plain = !draw_from(&w.plain_random, 4);
    w.ttl = NANOS_OF_MS(ttls_ms[draw(5)]);
    w.kind = draw(2) ? EXCLUSIVE : (enum kind)draw(KINDS);
    if (options->converts)
        w.kind = options->seed % 2 ? READ_WRITE : READ_WRITE_AGAIN;
    w.wake = wakes[draw(4)];
    w.calm = !draw(10);
    w.rough = !w.calm && !draw(3);
    if (w.rough)
        w.options.faults &= FAULT_CUT | FAULT_HALF | FAULT_LATE | FAULT_PART | FAULT_STALL |
                            FAULT_SUSPEND | FAULT_JUMP | FAULT_KILL | FAULT_EXTEND | FAULT_PLAIN;
    if (w.rough && draw(2))
        w.ttl = NANOS_OF_MS(10000);
    w.history = draw(8) ? 0 : 3;
    w.users = 1 + !draw(3);
    w.owners = w.kind == REENTRANT || w.kind == READ_WRITE_AGAIN;
    w.shared_owners = w.owners && draw(2);
    w.several = !draw(5);
    w.strong = !draw(6) || options->replicas;
    w.acknowledge_ms = w.strong ? 1 + draw((uint32_t)(w.ttl / NANOS_OF_MS(10))) : 0;
    w.rounds = 1 + draw(ROUNDS);
    if (w.rounds > options->rounds)
        w.rounds = options->rounds;
    if (w.options.processes == PROCESSES)
        w.options.processes -= draw(3);
    w.capacity = w.kind == READ_WRITE || w.kind == READ_WRITE_AGAIN ? HF_CAPACITY_MAX
                 : w.kind == SEMAPHORE                              ? 1 + draw(4)
                                                                    : 1;
    w.heals_at = 12 * w.ttl;
    w.server_up = true;
    w.server_tick = TIME_NEVER;
    w.served = -1;
    struct timing sheet;
    struct engine_limits limits = REDIS_LIMITS;
    struct timing_overrides overrides = {.acknowledge_ms = w.acknowledge_ms};
    timing_fill(&sheet, w.ttl / NANOS_OF_MS(1), &limits, &overrides);
    w.op_timeout = sheet.op_timeout;
    w.refresh = sheet.refresh;
    w.handoff_grace = sheet.handoff_grace;
    history_begin(judge, &(struct history_rules){.exact = true,
                                                 .settles = 5 * w.ttl,
                                                 .recovery = 3 * w.ttl + w.refresh +
                                                             w.handoff_grace + NANOS_OF_MS(20),
                                                 .inbox = NANOS_OF_MS(60000)});
    has_snapshot = false;
    bytes_used = 0;
    model_reset(model, options->seed);
    if (options->seed %
        4) /* most servers have been asked before; a restart and a flush make new ones of them */
        model_script_recall(model);
    model_offer_functions(model, functions_of(options->seed));
    model_replicas(model, w.strong);
    w.server_offset_us = model_time(model);
    plan_all_faults();
    for (unsigned p = 0; p < PROCESSES; p++)
        plan_process(p);
}

static void tear_down(void)
{
    for (unsigned p = 0; p < PROCESSES; p++)
        if (w.process[p].engine)
            kill_process(p, false);
}

/* Runs one schedule; what went wrong, or "". */
static const char *run(const struct options *options)
{
    uint64_t reads_before = clock_reads;
    set_up(options);
    unsigned steps = 0;
    while (w.events && !*w.failure) {
        struct occurrence o = calendar_take(heap, &w.events);
        w.now = o.at;
        mix((uint64_t)o.at ^ (uint64_t)o.what << 56 ^ (uint64_t)o.who << 40 ^ o.len);
        if (!is_postponed(o))
            happen(&o);
        if (++steps > 100000)
            fails("it does not come to rest");
    }
    if (!*w.failure) {
        set_server_time();
        tell_rest();
        forbid_clocks(reads_before);
    }
    tally.schedules++;
    tally.orders += history_judged(judge, INV_TOLD_ORDER);
    tally.hand_overs += history_hand_overs(judge);
    tally.events += steps;
    tear_down();
    return w.failure;
}
