/* claims.c - the simulator: production claims against a model of a lock server, under virtual time, with faults drawn
 * from a seed. After every event: nobody holds beyond the capacity, tokens rise, order holds, nothing is left behind,
 * losses are noticed in time; every call ends by its deadline; at the end everything is free.
 *
 *     claims [SCHEDULES [FIRST_SEED]]     all invariants on that many schedules; then every planted bug must be found
 *     claims --bug NAME [SCHEDULES]       that bug alone
 *     claims --trace SEED [BUG]           every step of every claim in that schedule
 *
 * The same seed is the same schedule. Prints TAP. */
#include "world.h"

#include <stdlib.h>

#define SCHEDULES 20000
#define FIND_WITHIN 20000 /* schedules in which each planted bug must show */

static bool tracing;

static bool has_moved_on(unsigned id)
{
    const struct actor *actor = &w.actors[id];
    return !w.processes[actor->process].dead && actor->claim.state == HF_S_OVER;
}

/* ---- The claim, its user, and the bugs around it ------------------------------------------------------------- */

static void schedule_wish(unsigned id, enum hf_input wish, hf_nanos after)
{
    schedule((struct occurrence){.at = w.now + after, .what = WISHED, .actor = id, .wish = wish});
}

static void end_round(struct actor *actor)
{
    if (actor->ended)
        return;
    actor->ended = true;
    schedule((struct occurrence){.at = w.now + draw_time(w.ttl / 2), .what = NEXT_ROUND, .actor = actor->process});
}

static void check_outcome(unsigned id, hf_nanos local)
{
    struct actor *actor = &w.actors[id];
    const struct process *process = &w.processes[actor->process];
    hf_nanos woke = local_time(process, process->stalled_until), op = actor->claim.t.op_timeout;
    hf_nanos due = actor->claim.deadline > woke ? actor->claim.deadline : woke;
    if (actor->decided)
        server_fails(&w.server, "attempt %u has two outcomes", id);
    /* An ask without wait, then a leave: two op_timeouts each until silence counts as an answer. */
    if (actor->claim.deadline != HF_NEVER && local > due + 4 * op + HF_MS(1))
        server_fails(&w.server, "attempt %u ended %lld us after its deadline", id, (long long)(local - due) / 1000);
    actor->decided = true;
}

static void user_got_it(unsigned id)
{
    struct actor *actor = &w.actors[id];
    if (w.server.capacity == 1 && actor->claim.token <= w.highest_token)
        server_fails(&w.server, "attempt %u got token %llu after %llu", id, (unsigned long long)actor->claim.token,
                     (unsigned long long)w.highest_token);
    w.highest_token = actor->claim.token;
    w.tally.grants++;
    if (!draw(4))
        schedule_wish(id, HF_I_EXTEND, draw_time(w.ttl));
    schedule_wish(id, HF_I_RELEASE, actor->hold_for);
}

static void hear_report(unsigned id, const struct hf_move *move, hf_nanos local)
{
    struct actor *actor = &w.actors[id];
    if (move->report == HF_R_GRANTED || move->report == HF_R_DENIED)
        check_outcome(id, local);
    if (move->report == HF_R_GRANTED && actor->claim.cancelled)
        server_fails(&w.server, "attempt %u was cancelled and is granted", id);
    if (move->report == HF_R_GRANTED)
        user_got_it(id);
    if (move->report == HF_R_LOST && w.calm && actor->claim.auto_renew)
        server_fails(&w.server, "attempt %u lost its lease although nothing went wrong", id);
    w.tally.lost += move->report == HF_R_LOST;
    w.tally.denied += move->report == HF_R_DENIED;
    if (move->report == HF_R_DENIED || move->report == HF_R_LOST || move->report == HF_R_RELEASED)
        end_round(actor);
}

/* What a planted bug makes of an event. False: the claim never hears of it. */
static bool spoil_event(const struct actor *actor, struct hf_event *event, struct hf_news *news)
{
    bool good = news && (news->cue == HF_N_GRANTED || news->cue == HF_N_EXTENDED);
    if (w.plant == PLANT_ARRIVAL && news && news->cue == HF_N_GRANTED)
        news->asked_at = event->now;
    if (w.plant == PLANT_NO_DRIFT && good)
        news->good = (news->good + HF_MS(w.limits.drift_ms)) / (1000000 - w.limits.drift_ppm) * 1000000;
    if (w.plant == PLANT_LATE_GRANT && actor->claim.state == HF_S_LEAVING && event->in == HF_I_GRANTED)
        event->in = HF_I_RELEASED;
    return w.plant != PLANT_DEAF_TO_END || actor->claim.state != HF_S_EXTENDING || event->in != HF_I_TIMER;
}

static void trace_step(unsigned id, unsigned from, enum hf_input in, const struct hf_move *move)
{
    static const char *const verbs[] = {
        "", " sends ACQUIRE", " sends LEAVE", " sends EXTEND", " sends CHECK", " sends RELEASE"};
    static const char *const reports[] = {"",
                                          " reports GRANTED",
                                          " reports DENIED",
                                          " reports QUEUED",
                                          " reports EXTENDED",
                                          " reports WARN",
                                          " reports LOST",
                                          " reports RELEASED"};
    printf("# %10.3f ms attempt %u: %s, %s -> %s%s%s%s\n", (double)w.now / 1e6, id, hf_input_name(in),
           hf_state_name(from), hf_state_name(w.actors[id].claim.state), verbs[move->verb],
           move->verb && move->doubt ? " with doubt" : "", reports[move->report]);
}

static void apply(unsigned id, struct hf_event event)
{
    struct actor *actor = &w.actors[id];
    const struct process *process = &w.processes[actor->process];
    struct hf_news news;
    event.now = local_time(process, w.now);
    event.random = draw(UINT32_MAX);
    if (event.news) {
        news = *event.news;
        event.news = &news;
    }
    if (!spoil_event(actor, &event, event.news ? &news : NULL))
        return;
    unsigned from = actor->claim.state;
    bool had_ended = actor->claim.valid_until && !hf_claim_valid(&actor->claim, event.now);
    struct hf_move move = hf_claim_step(&actor->claim, &event);
    if (had_ended && hf_claim_valid(&actor->claim, event.now))
        server_fails(&w.server, "attempt %u came back to life", id);
    if (tracing)
        trace_step(id, from, event.in, &move);
    if (move.status == HF_INTERNAL)
        server_fails(&w.server, "attempt %u: %s in %s cannot be", id, hf_input_name(event.in),
                     hf_state_name(actor->claim.state));
    if (w.plant == PLANT_NO_DOUBT)
        actor->claim.doubt = move.doubt = false;
    hear_report(id, &move, event.now);
    actor->timer++;
    if (move.wake_at != HF_NEVER) {
        hf_nanos at = real_time(process, move.wake_at);
        schedule(
            (struct occurrence){.at = at > w.now ? at : w.now, .what = TIMER_DUE, .actor = id, .serial = actor->timer});
    }
    if (w.plant == PLANT_NO_LEAVE && move.verb == HF_V_LEAVE)
        tell(id, (struct hf_news){.cue = HF_N_RELEASED});
    else if (move.verb)
        submit(id, move.verb, move.doubt, move.ttl);
}

static void start_round(unsigned p)
{
    struct process *process = &w.processes[p];
    if (process->rounds++ == ROUNDS)
        return;
    unsigned id = w.actor_count++;
    struct actor *actor = &w.actors[id];
    hf_nanos waits[] = {0, draw_time(w.ttl / 4), draw_time(7 * w.ttl), HF_NEVER};
    hf_nanos wait = waits[draw(4)];
    struct hf_claim_terms terms = {.ttl_ms = w.ttl / HF_MS(1), .auto_renew = draw(3) > 0};
    struct hf_timing_wishes no_wishes = {0};
    terms.max_hold_ms = draw(6) ? 0 : draw(2000);
    terms.deadline = wait == HF_NEVER ? HF_NEVER : local_time(process, w.now) + wait;
    *actor = (struct actor){.process = p, .hold_for = draw_time(draw(3) ? w.ttl / 2 : 3 * w.ttl)};
    hf_claim_init(&actor->claim, &terms, &w.limits, &no_wishes);
    if (terms.max_hold_ms && w.calm)
        actor->claim.auto_renew = false; /* it may end by itself: no fault then */
    if (wait == HF_NEVER || !draw(8))
        schedule_wish(id, HF_I_CANCEL, draw_time(12 * w.ttl));
    apply(id, (struct hf_event){.in = HF_I_START});
}

/* ---- What happens -------------------------------------------------------------------------------------------- */

/* Something for a process that is stopped waits until it goes on: news in their order, the clock before or after. */
static bool postponed(struct occurrence o)
{
    bool of_process = o.what == NEXT_ROUND || o.what == STALL || o.what == DIE;
    const struct process *process = &w.processes[of_process ? o.actor : w.actors[o.actor].process];
    if (o.what == ARRIVE)
        return false;
    if (process->dead)
        return true;
    if (w.now >= process->stalled_until || o.what == STALL || o.what == DIE)
        return false;
    o.at = process->stalled_until;
    if (o.what == TIMER_DUE || o.what == WISHED)
        o.at += (hf_nanos)draw(2);
    schedule(o);
    return true;
}

static void stall(struct process *process)
{
    hf_nanos until = w.now + draw_time(3 * w.ttl);
    if (until > process->stalled_until)
        process->stalled_until = until;
    w.tally.stalls++;
}

static void happen(const struct occurrence *o)
{
    struct actor *actor = &w.actors[o->actor];
    struct hf_event event = {.in = o->wish, .status = HF_CANCELLED, .ttl_ms = o->wish == HF_I_EXTEND ? draw(2000) : 0};
    switch (o->what) {
    case ARRIVE:
        arrive(o);
        break;
    case NEWS:
        note_pair(actor, &o->news, &o->answer);
        tell(o->actor, o->news);
        break;
    case PUSHED:
        hear_push(o->actor, &o->push);
        break;
    case TIMER_DUE:
        if (o->serial == actor->timer)
            apply(o->actor, (struct hf_event){.in = HF_I_TIMER});
        break;
    case WISHED:
        if (hf_claim_legal(actor->claim.state, o->wish))
            apply(o->actor, event);
        break;
    case NEXT_ROUND:
        start_round(o->actor);
        break;
    case STALL:
        stall(&w.processes[o->actor]);
        break;
    case DIE:
        w.processes[o->actor].dead = true;
        w.tally.deaths++;
        break;
    }
}

static void check_beliefs(void)
{
    unsigned believers = 0;
    for (unsigned id = 0; id < w.actor_count; id++) {
        const struct actor *actor = &w.actors[id];
        const struct process *process = &w.processes[actor->process];
        hf_nanos local = local_time(process, w.now);
        if (process->dead || !actor->claim.valid_until)
            continue;
        believers += hf_claim_valid(&actor->claim, local);
        if (w.now > process->stalled_until + HF_MS(1) && local > actor->claim.valid_until + HF_MS(1))
            server_fails(&w.server, "attempt %u did not notice the end of its lease", id);
    }
    if (believers > w.server.capacity)
        server_fails(&w.server, "%u believe to hold what has room for %u", believers, w.server.capacity);
}

static void check_rest(void)
{
    reap(&w.server, w.now + 100 * w.ttl);
    for (unsigned id = 0; id < w.actor_count; id++) {
        const struct actor *actor = &w.actors[id];
        if (!w.processes[actor->process].dead && (actor->claim.state != HF_S_OVER || !actor->decided))
            server_fails(&w.server, "attempt %u never ended: %s", id, hf_state_name(actor->claim.state));
    }
}

/* ---- Schedules ----------------------------------------------------------------------------------------------- */

static void set_up(uint64_t seed, enum plant plant)
{
    static const int64_t ttls_ms[] = {200, 500, 1000};
    struct tally tally = w.tally;
    memset(&w, 0, sizeof w);
    w.tally = tally;
    w.random = (seed + 1) * 0x9E3779B97F4A7C15u;
    w.plant = w.server.plant = plant;
    w.ttl = HF_MS(ttls_ms[draw(3)]);
    w.calm = !draw(10);
    w.synchronous = !draw(5);
    w.heals_at = 25 * w.ttl;
    w.limits = (struct hf_limits){.drift_ppm = 10000, .drift_ms = 2, .ttl_min_ms = 10, .ttl_max_ms = 86400000};
    w.server.queues = draw(4) > 0;
    w.limits.offers = w.server.queues ? HF_QUEUES : 0;
    w.server.capacity = draw(3) ? 1 : 1 + draw(3);
    w.server.refresh = w.ttl / 2;
    w.server.grace = 4 * (w.ttl / 5 < HF_MS(50) ? w.ttl / 5 : HF_MS(50));
    w.server.moved_on = has_moved_on;
    for (unsigned p = 0; p < PROCESSES; p++) {
        w.processes[p].rate_ppm = (int64_t)draw(8001) - 4000;
        w.processes[p].offset = HF_MS(1000 + draw(100000));
        schedule((struct occurrence){.at = draw_time(w.ttl), .what = NEXT_ROUND, .actor = p});
        for (unsigned i = w.calm ? 0 : draw(3); i; i--)
            schedule((struct occurrence){.at = draw_time(w.heals_at), .what = STALL, .actor = p});
        if (!w.calm && !draw(8))
            schedule((struct occurrence){.at = draw_time(w.heals_at), .what = DIE, .actor = p});
    }
}

/* Runs one schedule; returns what went wrong, or "". */
static const char *run(uint64_t seed, enum plant plant)
{
    set_up(seed, plant);
    for (unsigned steps = 0; w.events && !*w.server.failure; steps++) {
        struct occurrence o = take_next();
        w.now = o.at;
        if (!postponed(o))
            happen(&o);
        check_beliefs();
        w.tally.events++;
        if (steps > 200000)
            server_fails(&w.server, "it does not come to rest");
    }
    if (!*w.server.failure)
        check_rest();
    w.tally.schedules++;
    w.tally.hand_overs += w.server.hand_overs;
    return w.server.failure;
}

static bool all_hold(unsigned number, uint64_t count, uint64_t first)
{
    uint64_t failures = 0;
    for (uint64_t seed = first; seed < first + count && failures < 10; seed++) {
        const char *failure = run(seed, PLANT_NONE);
        if (*failure)
            printf("# seed %llu: %s\n", (unsigned long long)seed, failure);
        failures += *failure != '\0';
    }
    const struct tally *t = &w.tally;
    printf("# %llu events, %llu grants of which %llu by hand-over, %llu denied, %llu lost, %llu requests cut, %llu "
           "stalls, %llu deaths\n",
           (unsigned long long)t->events, (unsigned long long)t->grants, (unsigned long long)t->hand_overs,
           (unsigned long long)t->denied, (unsigned long long)t->lost, (unsigned long long)t->cuts,
           (unsigned long long)t->stalls, (unsigned long long)t->deaths);
    /* A run in which nothing went wrong would prove nothing. */
    bool fired = count < 100 || (t->hand_overs && t->denied && t->lost && t->cuts && t->stalls && t->deaths);
    bool ok = !failures && fired;
    printf("%s %u - %llu schedules with faults keep every promise\n", ok ? "ok" : "not ok", number,
           (unsigned long long)t->schedules);
    return ok;
}

static bool is_found(unsigned number, enum plant plant, uint64_t within)
{
    for (uint64_t seed = 0; seed < within; seed++) {
        const char *failure = run(seed, plant);
        if (!*failure)
            continue;
        printf("ok %u - planted bug %s (%s) is found: seed %llu, %s\n", number, plant_name(plant), plant_text(plant),
               (unsigned long long)seed, failure);
        return true;
    }
    printf("not ok %u - planted bug %s (%s) is not found within %llu schedules\n", number, plant_name(plant),
           plant_text(plant), (unsigned long long)within);
    return false;
}

static int one_bug(const char *name, uint64_t within)
{
    unsigned plant = find_plant(name);
    if (plant == PLANT_COUNT)
        return 64;
    puts("1..1");
    return is_found(1, (enum plant)plant, within) ? 0 : 1;
}

static int one_schedule(uint64_t seed, const char *bug)
{
    unsigned plant = find_plant(bug);
    if (plant == PLANT_COUNT)
        return 64;
    tracing = true;
    puts("1..1");
    const char *failure = run(seed, (enum plant)plant);
    printf("%s 1 - seed %llu %s\n", *failure ? "not ok" : "ok", (unsigned long long)seed, failure);
    return *failure ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "--bug"))
        return one_bug(argv[2], argc > 3 ? strtoull(argv[3], NULL, 10) : FIND_WITHIN);
    if (argc > 2 && !strcmp(argv[1], "--trace"))
        return one_schedule(strtoull(argv[2], NULL, 10), argc > 3 ? argv[3] : "none");
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : SCHEDULES;
    if (!count) {
        fputs("usage: claims [SCHEDULES [FIRST_SEED]] | claims --bug NAME [SCHEDULES] | claims --trace SEED [BUG]\n",
              stderr);
        return 64;
    }
    printf("1..%d\n", (int)PLANT_COUNT);
    bool ok = all_hold(1, count, argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    for (unsigned plant = 1; plant < PLANT_COUNT; plant++)
        ok &= is_found(plant + 1, (enum plant)plant, FIND_WITHIN);
    return ok ? 0 : 1;
}
