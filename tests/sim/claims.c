/* clang-format off */
/* claims.c - the simulator: production claims against a model of a lock server, under virtual
 * time, with faults drawn from a seed. After every event: nobody holds beyond the capacity, tokens
 * rise, order holds, nothing is left behind, losses are noticed in time, and nobody loses what was
 * never in danger; every call ends by its deadline; at the end everything is free, and one release
 * more is an error that changes nothing.
 *
 *     claims [SCHEDULES [FIRST_SEED]]     all invariants on that many schedules; then every planted bug must be found
 *     claims --bug NAME [SCHEDULES]       that bug alone
 *     claims --trace SEED [BUG]           every step of every claim in that schedule
 *
 * The same seed is the same schedule. Prints TAP. */
/* clang-format on */
#include "sim/claim_world/claim_users.h"

#include <stdlib.h>

#define SCHEDULES 20000
#define FIND_WITHIN 20000 /* schedules in which each planted bug must show */

static bool has_moved_on(unsigned id)
{
    const struct actor *actor = &w.actors[id];
    return !w.processes[actor->process].dead && actor->claim.state == CLAIM_OVER;
}

/* ---- What happens ---- */

/* Something for a process that is stopped waits until it goes on: news in their order, the clock
 * before or after. */
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
        o.at += (nanos)draw(2);
    schedule(o);
    return true;
}

static void stall(unsigned p)
{
    struct process *process = &w.processes[p];
    for (unsigned id = 0; id < w.actor_count; id++)
        w.actors[id].disturbed |= w.actors[id].process == p;
    nanos until = w.now + draw_time(3 * w.ttl);
    if (until > process->stalled_until)
        process->stalled_until = until;
    w.tally.stalls++;
}

static void happen(const struct occurrence *o)
{
    struct actor *actor = &w.actors[o->actor];
    struct claim_event event = {
        .in = o->wish, .status = HF_CANCELLED, .ttl_ms = o->wish == INPUT_EXTEND ? draw(2000) : 0};
    switch (o->what) {
    case ARRIVE:
        arrive(o);
        break;
    case NEWS:
        note_pair(actor, &o->reply, &o->answer);
        tell(o->actor, o->reply);
        break;
    case PUSHED:
        hear_push(o->actor, &o->push);
        break;
    case TIMER_DUE:
        if (o->serial == actor->timer)
            apply(o->actor, (struct claim_event){.in = INPUT_TIMER});
        break;
    case WISHED:
        if (o->wish == INPUT_CONVERT)
            wish_to_convert(o->actor);
        else if (claim_legal(actor->claim.state, o->wish))
            apply(o->actor, event);
        break;
    case NEXT_ROUND:
        start_round(o->actor);
        break;
    case STALL:
        stall(o->actor);
        break;
    case DIE:
        w.processes[o->actor].dead = true;
        w.tally.deaths++;
        break;
    }
}

static bool believes(const struct actor *actor)
{
    const struct process *process = &w.processes[actor->process];
    return !process->dead && claim_valid(&actor->claim, local_time(process, w.now));
}

/* An owner's units count once. */
static unsigned believed_units(unsigned id)
{
    for (unsigned earlier = 0; earlier < id; earlier++)
        if (w.actors[earlier].owner == w.actors[id].owner && believes(&w.actors[earlier]))
            return 0;
    return believes(&w.actors[id]) ? w.actors[id].units : 0;
}

static void check_beliefs(void)
{
    unsigned units = 0;
    for (unsigned id = 0; id < w.actor_count; id++) {
        const struct actor *actor = &w.actors[id];
        const struct process *process = &w.processes[actor->process];
        nanos local = local_time(process, w.now);
        if (process->dead || !actor->claim.valid_until)
            continue;
        units += believed_units(id);
        if (w.now > process->stalled_until + NANOS_OF_MS(1) &&
            local > actor->claim.valid_until + NANOS_OF_MS(1))
            server_fails(&w.server, "attempt %u did not notice the end of its lease", id);
    }
    if (units > w.server.capacity)
        server_fails(&w.server, "%u units are believed to be held of %u", units, w.server.capacity);
}

static void check_rest(void)
{
    for (unsigned id = 0; id < w.actor_count; id++) {
        const struct actor *actor = &w.actors[id];
        if (w.processes[actor->process].dead)
            continue;
        if (actor->claim.state != CLAIM_OVER || !actor->decided)
            server_fails(&w.server, "attempt %u never ended: %s", id,
                         claim_state_name(actor->claim.state));
        struct request once_more = {.verb = OP_RELEASE, .id = id, .owner = actor->owner};
        if (serve(&w.server, &once_more, w.now).kind != REPLY_NOT_HELD)
            server_fails(&w.server, "attempt %u was released by its user and is still held", id);
    }
    reap(&w.server, w.now + 100 * w.ttl);
}

/* ---- Schedules ---- */

static void set_up(uint64_t seed, enum plant plant)
{
    static const int64_t ttls_ms[] = {200, 500, 1000};
    struct tally tally = w.tally;
    memset(&w, 0, sizeof w);
    w.tally = tally;
    w.random = (seed + 1) * 0x9E3779B97F4A7C15u;
    w.plant = w.server.plant = plant;
    w.ttl = NANOS_OF_MS(ttls_ms[draw(3)]);
    w.calm = !draw(10);
    w.synchronous = !draw(5);
    w.heals_at = 25 * w.ttl;
    w.limits = (struct engine_limits){
        .drift_ppm = 10000, .drift_ms = 2, .ttl_min_ms = 10, .ttl_max_ms = 86400000};
    w.server.queues = draw(4) > 0;
    w.limits.offers = w.server.queues ? ENGINE_QUEUES : 0;
    w.server.capacity = draw(3) ? 1 : 1 + draw(3);
    w.shared = !draw(3);
    w.nested = !w.shared && !draw(3);
    if (w.shared)
        w.server.capacity = PROCESSES;
    struct timing_overrides no_wishes = {0};
    struct timing sheet;
    timing_fill(&sheet, w.ttl / NANOS_OF_MS(1), &w.limits, &no_wishes);
    w.server.refresh = sheet.refresh;
    w.server.grace = sheet.handoff_grace;
    w.server.moved_on = has_moved_on;
    for (unsigned p = 0; p < PROCESSES; p++) {
        w.processes[p].rate_ppm = (int64_t)draw(8001) - 4000;
        w.processes[p].offset = NANOS_OF_MS(1000 + draw(100000));
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
        struct occurrence o = calendar_take(w.heap, &w.events);
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

/* No table is lost here, and a message comes twice only while its request is the last one. */
static const struct excuse never_here[] = {
    {-1, INPUT_LOST_ALL},
    {CLAIM_OVER, -1},
    {CLAIM_NEW, INPUT_CANCEL},
    {CLAIM_ACQUIRING, INPUT_NOT_HELD},
    {CLAIM_QUEUED, INPUT_QUEUED},
    {CLAIM_QUEUED, INPUT_BUSY},
    {CLAIM_QUEUED, INPUT_NOT_HELD},
    {CLAIM_QUEUED, INPUT_UNKNOWN},
    {CLAIM_QUEUED, INPUT_FAILED},
    {CLAIM_PAUSED, INPUT_GRANTED},
    {CLAIM_PAUSED, INPUT_QUEUED},
    {CLAIM_PAUSED, INPUT_BUSY},
    {CLAIM_PAUSED, INPUT_NOT_HELD},
    {CLAIM_PAUSED, INPUT_UNKNOWN},
    {CLAIM_PAUSED, INPUT_FAILED},
    {CLAIM_HELD, INPUT_QUEUED},
    {CLAIM_HELD, INPUT_RELEASED},
    {CLAIM_HELD, INPUT_NOT_HELD},
    {CLAIM_HELD, INPUT_FAILED},
    {CLAIM_EXTENDING, INPUT_GRANTED},
    {CLAIM_EXTENDING, INPUT_QUEUED},
    {CLAIM_EXTENDING, INPUT_RELEASED},
    {CLAIM_EXTENDING, INPUT_NOT_HELD},
    {CLAIM_LEAVING, INPUT_TIMER},
    {CLAIM_LEAVING, INPUT_CANCEL},
    {CLAIM_LEAVING, INPUT_NOT_HELD},
    {CLAIM_RELEASING, INPUT_QUEUED},
    {CLAIM_STATES, -1},
};

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
    printf("# %llu upgrades, %llu downgrades, %llu re-entries, %llu messages doubled\n",
           (unsigned long long)t->upgrades, (unsigned long long)t->downgrades,
           (unsigned long long)t->reentries, (unsigned long long)t->doubled);
    printf("# %llu events, %llu grants of which %llu by hand-over, %llu denied, %llu lost, %llu "
           "requests cut, %llu "
           "stalls, %llu deaths\n",
           (unsigned long long)t->events, (unsigned long long)t->grants,
           (unsigned long long)t->hand_overs, (unsigned long long)t->denied,
           (unsigned long long)t->lost, (unsigned long long)t->cuts, (unsigned long long)t->stalls,
           (unsigned long long)t->deaths);
    print_coverage();
    bool met = all_pairs_met(never_here) || count < 5000;
    /* A run in which nothing went wrong would prove nothing. */
    bool fired =
        count < 100 || (t->hand_overs && t->denied && t->lost && t->cuts && t->stalls &&
                        t->deaths && t->upgrades && t->downgrades && t->reentries && t->doubled);
    bool ok = !failures && fired && met;
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
        printf("ok %u - planted bug %s (%s) is found: seed %llu, %s\n", number, plants[plant].name,
               plants[plant].text, (unsigned long long)seed, failure);
        return true;
    }
    printf("not ok %u - planted bug %s (%s) is not found within %llu schedules\n", number,
           plants[plant].name, plants[plant].text, (unsigned long long)within);
    return false;
}

static int one_bug(const char *name, uint64_t within)
{
    enum plant plant = find_plant(name);
    puts("1..1");
    return is_found(1, plant, within) ? 0 : 1;
}

static int one_schedule(uint64_t seed, const char *bug)
{
    enum plant plant = find_plant(bug);
    tracing = true;
    puts("1..1");
    const char *failure = run(seed, plant);
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
        fputs("usage: claims [SCHEDULES [FIRST_SEED]] | claims --bug NAME [SCHEDULES] | claims "
              "--trace SEED [BUG]\n",
              stderr);
        return 64;
    }
    printf("1..%d\n", (int)PLANT_COUNT);
    bool ok = all_hold(1, count, argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    for (unsigned plant = 1; plant < PLANT_COUNT; plant++)
        ok &= is_found(plant + 1, (enum plant)plant, FIND_WITHIN);
    return ok ? 0 : 1;
}
