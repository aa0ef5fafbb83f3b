/* redis.c - the simulator of the Redis engine: production claims and the production engine against the shipped scripts
 * in the model of a server, under virtual time, with faults drawn from a seed. check.h has the promises.
 *
 *     redis [--seed FIRST] [--schedules N | --seconds S] [--kept FILE]   the kept schedules, then new ones
 *     redis --plants [--plant NAME] [--schedules N | --seconds S]        every planted bug, or that one, must be found;
 *                                                                        with --rare also those that take minutes
 *     redis --trace --seed N                                             every step of that schedule
 *     ... --plant NAME --processes P --rounds R --faults NAME,...        as the command for a shrunk schedule says
 *
 * The same seed is the same schedule: that is what the hash is for. Prints TAP. */
#include "redis_world/users.h"

#include <time.h>

/* ---- What happens ---------------------------------------------------------------------------------------------- */

/* Whom it happens to: a process, or PROCESSES for the server. */
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
    case NEXT_ROUND:
        return o->who % PROCESSES;
    case TICK:
    case ERRAND:
    case ADOPTION:
        return o->who;
    default:
        return PROCESSES;
    }
}

/* Something for a process that is stopped waits until it goes on: bytes in their order, clocks before or after. */
static bool is_postponed(struct occurrence o)
{
    unsigned number = process_of(&o);
    if (number == PROCESSES || w.now >= w.process[number].stalled_until || w.process[number].dead)
        return false;
    o.at = w.process[number].stalled_until;
    if (o.what == TIMER || o.what == WISH || o.what == TICK)
        o.at += (hf_nanos)draw(2);
    schedule(o);
    return true;
}

static void happen_to_link(const struct occurrence *o)
{
    struct link *link = &links[o->who];
    struct process *p = &w.process[link->process];
    hf_nanos local = local_time(p, w.now);
    if (!is_ours(link))
        return;
    if (o->what == LINK_UP && !w.server_up) {
        plan_down(o->who);
        return;
    }
    if (o->what == LINK_UP) {
        accept_link(o->who);
        hf_wire_redis.line_up(p->engine, link->line, local);
    } else if (o->what == BYTES_DOWN) {
        hf_wire_redis.line_bytes(p->engine, link->line, o->bytes, o->len, local);
    } else {
        note((int)link->process, "line %u is down", link->line);
        link->client_open = false;
        p->line[link->line] = -1;
        hf_wire_redis.line_down(p->engine, link->line, HF_UNAVAILABLE, "server: closed", local);
    }
    settle(p);
}

static void happen_to_process(const struct occurrence *o)
{
    unsigned number = process_of(o);
    if (number >= PROCESSES)
        return;
    struct process *p = &w.process[number];
    if (p->dead || (o->what == TICK && o->serial != p->tick))
        return;
    switch (o->what) {
    case TICK:
        p->tick_at = HF_NEVER;
        break;
    case TIMER:
        if (o->serial != w.attempt[o->who].timer || w.attempt[o->who].life != p->life)
            return;
        if (w.attempt[o->who].adopts)
            refuse_adoption(o->who);
        else
            apply(o->who, (struct hf_event){.in = HF_I_TIMER});
        break;
    case WISH:
        if (w.attempt[o->who].life != p->life)
            return;
        grant_wish(o->who, (enum hf_input)o->wish);
        break;
    case NEXT_ROUND:
        next_round(o->who);
        break;
    case ADOPTION:
        adopt(number, o->serial);
        break;
    default:
        send_errand(number, (enum hf_verb)o->wish);
    }
    settle(p);
}

static void stall(unsigned number)
{
    hf_nanos until = w.now + draw_time(3 * w.ttl);
    if (w.process[number].dead || !(w.options.faults & FAULT_STALL))
        return;
    disturb(number);
    tally.stalls++;
    note((int)number, "is stopped until %.1f", (double)until / 1e6);
    w.process[number].stalled_until = later(w.process[number].stalled_until, until);
    w.process[number].disturbed_until = until + 5 * w.ttl;
}

static void kill_one(unsigned number)
{
    bool heard = draw(4) > 0, follows = draw(2), steps = !draw(4);
    hf_nanos after = draw_time(2 * w.ttl);
    if (w.process[number].dead || !(w.options.faults & FAULT_KILL))
        return;
    tally.kills++;
    note((int)number, "dies");
    kill_process(number, heard);
    if (steps)
        schedule((struct occurrence){.at = w.now + after / 2, .what = SERVER_FAULT, .who = FAULT_BIT_STEP});
    if (follows)
        schedule((struct occurrence){.at = w.now + after, .what = SPAWN, .who = number});
}

static void spawn(unsigned number)
{
    note((int)number, "another process starts");
    start_process(number);
    w.process[number].stalled_until = w.now;
    for (unsigned user = number; user < w.users * PROCESSES; user += PROCESSES)
        schedule((struct occurrence){.at = w.now, .what = NEXT_ROUND, .who = user});
}

static void happen(const struct occurrence *o)
{
    set_server_time();
    observe();
    switch (o->what) {
    case LINK_UP:
    case LINK_DOWN:
    case BYTES_DOWN:
        happen_to_link(o);
        break;
    case BYTES_UP:
        serve_bytes(o->who, o->bytes, o->len);
        break;
    case LINK_CLOSED:
        server_closes(o->who);
        break;
    case STALL:
        stall(o->who);
        break;
    case PART:
        if (w.options.faults & FAULT_PART)
            part(o->who);
        break;
    case KILL:
        kill_one(o->who);
        break;
    case SPAWN:
        spawn(o->who);
        break;
    case SERVER_WAKES:
        if (o->serial == w.server_serial) {
            w.server_tick = HF_NEVER;
            let_server_speak();
        }
        break;
    case SERVER_FAULT:
        server_fault((enum fault_bit)o->who);
        break;
    case SERVER_UP:
        w.server_up = true;
        break;
    case SERVER_ROOM:
        model_full(model, false);
        break;
    case REPLICA_FOLLOWS:
        follow_again();
        break;
    case FOREIGN_ASK:
        foreign_asks();
        break;
    case FOREIGN_END:
        foreign_ends();
        break;
    default:
        happen_to_process(o);
    }
}

/* ---- One schedule ------------------------------------------------------------------------------------------------ */

/* At most `most` of them, at any time before things heal. */
static void plan_faults(enum fault_bit bit, unsigned most)
{
    for (unsigned i = w.calm ? 0 : draw(most + 1); i; i--)
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = SERVER_FAULT, .who = bit});
}

static void plan_all_faults(void)
{
    plan_faults(FAULT_BIT_RESTART, draw(4) ? 0 : 1);
    plan_faults(FAULT_BIT_WIPE, draw(5) ? 0 : 1);
    if (!w.calm && !draw(w.strong ? 2 : 6))
        for (unsigned i = 0; i < (w.strong ? 6 : 2); i++)
            schedule((struct occurrence){.at = draw_time(w.heals_at), .what = SERVER_FAULT, .who = FAULT_BIT_FAILOVER});
    plan_faults(FAULT_BIT_STEP, draw(4) ? 0 : 2);
    plan_faults(FAULT_BIT_FULL, draw(6) ? 0 : 1);
    plan_faults(FAULT_BIT_FLUSH, draw(6) ? 0 : 1);
    if (w.kind == EXCLUSIVE || w.kind == REENTRANT)
        for (unsigned i = draw(3) ? 0 : 1 + draw(3); i; i--)
            schedule((struct occurrence){.at = draw_time(w.heals_at), .what = FOREIGN_ASK});
}

static void plan_process(unsigned p)
{
    bool plays = p < w.options.processes;
    bool wild = !draw(5) || w.rough;
    w.process[p].rate_ppm = wild ? (int64_t)draw(18001) - 9000 : (int64_t)draw(8001) - 4000;
    w.process[p].offset = HF_MS(1000 + draw(100000));
    for (unsigned user = p; user < w.users * PROCESSES; user += PROCESSES) {
        hf_nanos at = draw_time(w.ttl);
        if (plays)
            schedule((struct occurrence){.at = at, .what = NEXT_ROUND, .who = user});
    }
    for (unsigned i = w.calm || draw(2) ? 0 : draw(3); i; i--)
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = STALL, .who = p});
    if (!w.calm && !draw(8))
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = KILL, .who = p});
    if (!w.calm && !draw(5))
        schedule((struct occurrence){.at = draw_time(w.heals_at), .what = PART, .who = p});
    bool breaks = !draw(12), resizes = draw(2), looks = !draw(12);
    hf_nanos at = draw_time(w.heals_at);
    if (breaks && plays && w.options.faults & FAULT_BREAK)
        schedule((struct occurrence){.at = at, .what = ERRAND, .who = p, .wish = HF_V_BREAK});
    if (resizes && plays && w.kind == SEMAPHORE && w.options.faults & FAULT_RESIZE)
        schedule((struct occurrence){.at = at, .what = ERRAND, .who = p, .wish = HF_V_RESIZE});
    if (looks && plays)
        schedule((struct occurrence){.at = at, .what = ERRAND, .who = p, .wish = HF_V_LIST});
    if (plays)
        start_process(p);
    else
        w.process[p].dead = true;
}

static void set_up(const struct options *options)
{
    static const int64_t ttls_ms[] = {100, 200, 500, 1000, 10000};
    static const char *const wakes[] = {"inbox", "inbox", "pubsub", "poll"};
    memset(&w, 0, sizeof w);
    w.options = *options;
    w.hash = UINT64_C(0xcbf29ce484222325);
    w.random = (options->seed + 1) * UINT64_C(0x9E3779B97F4A7C15);
    for (unsigned i = 0; i < 4; i++)
        draw(2);
    w.ttl = HF_MS(ttls_ms[draw(5)]);
    w.kind = draw(2) ? EXCLUSIVE : (enum kind)draw(KINDS);
    w.wake = wakes[draw(4)];
    w.calm = !draw(10);
    w.rough = !w.calm && !draw(3);
    if (w.rough)
        w.options.faults &= FAULT_CUT | FAULT_HALF | FAULT_LATE | FAULT_PART | FAULT_STALL | FAULT_KILL | FAULT_EXTEND;
    if (w.rough && draw(2))
        w.ttl = HF_MS(10000);
    w.history = draw(8) ? 0 : 3;
    w.users = 1 + !draw(3);
    w.owners = w.kind == REENTRANT || w.kind == READ_WRITE_AGAIN;
    w.shared_owners = w.owners && draw(2);
    w.several = !draw(5);
    w.strong = !draw(6);
    w.acknowledge_ms = w.strong ? 1 + draw((uint32_t)(w.ttl / HF_MS(10))) : 0;
    w.rounds = 1 + draw(ROUNDS);
    if (w.rounds > options->rounds)
        w.rounds = options->rounds;
    if (w.options.processes == PROCESSES)
        w.options.processes -= draw(3);
    w.capacity = w.kind == READ_WRITE || w.kind == READ_WRITE_AGAIN ? HF_CAPACITY_MAX
                 : w.kind == SEMAPHORE                              ? 1 + draw(4)
                                                                    : 1;
    w.capacity_most = w.capacity;
    w.heals_at = 12 * w.ttl;
    w.server_up = true;
    w.lost_at = w.forgot_at = -1;
    w.server_tick = HF_NEVER;
    struct hf_timing sheet;
    struct hf_limits limits = HF_REDIS_LIMITS;
    struct hf_timing_wishes wishes = {.acknowledge_ms = w.acknowledge_ms};
    hf_timing_fill(&sheet, w.ttl / HF_MS(1), &limits, &wishes);
    w.op_timeout = sheet.op_timeout;
    w.refresh = sheet.refresh;
    w.turn = sheet.turn;
    has_snapshot = false;
    bytes_used = crate_count = 0;
    model_reset(model, options->seed);
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
    set_up(options);
    unsigned steps = 0;
    while (w.events && !*w.failure) {
        struct occurrence o = take_next();
        w.now = o.at;
        mix((uint64_t)o.at ^ (uint64_t)o.what << 56 ^ (uint64_t)o.who << 40 ^ o.len);
        if (!is_postponed(o)) {
            happen(&o);
            drop_bytes(&o);
        }
        if (++steps > 100000)
            fails("it does not come to rest");
    }
    if (!*w.failure) {
        set_server_time();
        check_rest();
    }
    tally.schedules++;
    tally.events += steps;
    tear_down();
    return w.failure;
}

/* ---- Planting ---------------------------------------------------------------------------------------------------- */

static enum plant planted;
static unsigned spoilt; /* scripts */

static const char *find_once(const char *text, size_t len, const char *what)
{
    const char *first = memmem(text, len, what, strlen(what));
    if (first && memmem(first + 1, len - (size_t)(first + 1 - text), what, strlen(what))) {
        fprintf(stderr, "the text to be spoilt is there twice: %s\n", what);
        exit(70);
    }
    return first;
}

static const char *spoil_script(const char *text, size_t len, size_t *spoilt_len)
{
    static char out[1 << 16];
    const struct plant_row *row = &plants[planted];
    const char *name = NULL;
    for (int i = 0; i < HF_SCRIPTS; i++)
        if (len <= hf_scripts[i].len && memcmp(text, hf_scripts[i].text + hf_scripts[i].len - len, len) == 0)
            name = hf_scripts[i].name;
    *spoilt_len = len;
    if (!row->script || !name || (strcmp(row->script, "*") != 0 && strcmp(row->script, name) != 0))
        return text;
    const char *at = find_once(text, len, row->from);
    if (!at)
        return text;
    size_t before_it = (size_t)(at - text), from = strlen(row->from), to = strlen(row->to);
    memcpy(out, text, before_it);
    memcpy(out + before_it, row->to, to);
    memcpy(out + before_it + to, at + from, len - before_it - from);
    *spoilt_len = len - from + to;
    spoilt++;
    return out;
}

/* A server whose scripts have that bug. */
static void plant(enum plant which)
{
    if (model)
        model_close(model);
    model = model_open(1);
    planted = which;
    spoilt = 0;
    model_spoil(model, spoil_script);
}

/* ---- Telling ----------------------------------------------------------------------------------------------------- */

enum { ROWS = 30, TEXT = 100 };
static struct {
    hf_nanos at;
    int column;
    char text[TEXT];
} rows[ROWS];
static unsigned row_count;

static void print_row(int column, hf_nanos at, const char *text)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3"};
    printf("# %10.3f ms %*s%s %s\n", (double)at / 1e6, column < 0 ? 0 : 3 + 3 * column, "",
           column == -2   ? "!!"
           : column == -1 ? "server"
                          : names[column],
           text);
}

static void record_now(int column, const char *text)
{
    print_row(column, w.now, text);
}

static void record_last(int column, const char *text)
{
    unsigned i = row_count++ % ROWS;
    rows[i].at = w.now;
    rows[i].column = column;
    snprintf(rows[i].text, TEXT, "%s", text);
}

static void print_options(const struct options *o, char *text, size_t size)
{
    int len = snprintf(text, size, "--seed %llu", (unsigned long long)o->seed);
    if (o->processes < PROCESSES)
        len += snprintf(text + len, size - (size_t)len, " --processes %u", o->processes);
    if (o->rounds < ROUNDS)
        len += snprintf(text + len, size - (size_t)len, " --rounds %u", o->rounds);
    if (o->faults != FAULT_ALL) {
        len += snprintf(text + len, size - (size_t)len, " --faults ");
        const char *comma = "";
        for (unsigned bit = 0; bit < FAULT_KINDS; bit++)
            if (o->faults & 1u << bit) {
                len += snprintf(text + len, size - (size_t)len, "%s%s", comma, fault_names[bit]);
                comma = ",";
            }
        if (!*comma)
            len += snprintf(text + len, size - (size_t)len, "none");
    }
    if (o->plant)
        snprintf(text + len, size - (size_t)len, " --plant %s", plants[o->plant].name);
}

/* Fewer processes, rounds and kinds of fault, as long as it still fails. */
static struct options shrink(struct options o)
{
    struct options less = o;
    struct tally kept = tally;
    for (less.rounds = 1; less.rounds < o.rounds && !*run(&less); less.rounds++)
        ;
    o = less;
    for (less.processes = 1; less.processes < o.processes && !*run(&less); less.processes++)
        ;
    o = less;
    for (unsigned bit = 0; bit < FAULT_KINDS; bit++) {
        less = o;
        less.faults &= ~(1u << bit);
        if (less.faults != o.faults && *run(&less))
            o = less;
    }
    tally = kept;
    return o;
}

static void show_failure(const struct options *o)
{
    char text[400];
    struct options small = shrink(*o);
    recording = true;
    record = record_last;
    row_count = 0;
    const char *failure = run(&small);
    recording = false;
    printf("# %s, %s, ttl %lld ms\n", kind_names[w.kind], w.wake, (long long)(w.ttl / HF_MS(1)));
    unsigned first = row_count > ROWS - 2 ? row_count - (ROWS - 2) : 0;
    for (unsigned i = first; i < row_count; i++)
        print_row(rows[i % ROWS].column, rows[i % ROWS].at, rows[i % ROWS].text);
    print_options(&small, text, sizeof text);
    printf("# %s; again with: redis --trace %s\n", failure, text);
}

static void print_tally(void)
{
    const struct tally *t = &tally;
#define N(field) (unsigned long long)t->field
    printf("# %llu schedules, %llu events, %llu scripts, %llu connections\n", N(schedules), N(events), N(scripts),
           N(dials));
    printf(
        "# %llu grants, %llu hand-overs, %llu begun by a message, %llu denied, %llu lost, %llu released, %llu left\n",
        N(grants), N(hand_overs), N(pushed), N(denied), N(lost), N(released), N(detached));
    printf("# %llu cuts, %llu half-open, %llu late, %llu parted, %llu stalls, %llu deaths, %llu restarts, %llu wipes, "
           "%llu failovers, "
           "%llu steps, %llu full, %llu flushes\n",
           N(cuts), N(halves), N(lates), N(parts), N(stalls), N(kills), N(restarts), N(wipes), N(failovers), N(steps),
           N(fulls), N(flushes));
    printf(
        "# %llu foreign, %llu broken, %llu resized, %llu upgrades, %llu downgrades, %llu extends, %llu cancels, %llu "
        "re-entries, %llu barged, %llu stored\n",
        N(foreigners), N(breaks), N(resizes), N(upgrades), N(downgrades), N(extends), N(cancels), N(reentries),
        N(barges), N(stored));
    printf("# %llu stored late, %llu taken up, %llu wanted two names, %llu not acknowledged, %llu failovers after "
           "acknowledgement\n",
           N(stored_late), N(adopted), N(several), N(unreplicated), N(kept_failovers));
    printf("# %llu times a place in the queue was checked by what users heard\n", N(orders));
#undef N
}

/* A run in which something never happened proves nothing about it. */
static bool all_happened(void)
{
    const struct tally *t = &tally;
    return t->hand_overs && t->pushed && t->denied && t->lost && t->detached && t->cuts && t->halves && t->lates &&
           t->parts && t->stalls && t->kills && t->restarts && t->wipes && t->failovers && t->steps && t->fulls &&
           t->flushes && t->foreigners && t->breaks && t->resizes && t->upgrades && t->downgrades && t->extends &&
           t->cancels && t->reentries && t->barges && t->stored && t->stored_late && t->adopted && t->several &&
           t->unreplicated && t->kept_failovers && t->orders;
}

/* The pairs of state and input that claim.def knows: how often each was met. */
static void print_coverage(void)
{
    printf("# %-10s", "");
    for (unsigned in = 0; in < HF_I_COUNT; in++)
        printf(" %8.8s", hf_input_name(in));
    putchar('\n');
    for (unsigned state = 0; state < HF_S_COUNT; state++) {
        printf("# %-10s", hf_state_name(state));
        for (unsigned in = 0; in < HF_I_COUNT; in++) {
            if (hf_claim_legal(state, in))
                printf(" %8llu", (unsigned long long)covered[state][in]);
            else
                printf(" %8s", covered[state][in] ? "illegal" : ".");
        }
        putchar('\n');
    }
}

/* ---- Runs ----------------------------------------------------------------------------------------------------------
 */

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

struct limits {
    uint64_t schedules;
    double seconds;
};

static bool goes_on(const struct limits *limits, uint64_t done, double began)
{
    if (limits->schedules)
        return done < limits->schedules;
    return (done & 15) || seconds_now() - began < limits->seconds;
}

static unsigned faults_of(const char *list)
{
    unsigned faults = 0;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t len = strcspn(at, ",");
        unsigned bit = 0;
        while (bit < FAULT_KINDS && (strlen(fault_names[bit]) != len || memcmp(fault_names[bit], at, len) != 0))
            bit++;
        if (bit < FAULT_KINDS)
            faults |= 1u << bit;
        else if (strcmp(at, "none") != 0) {
            fprintf(stderr, "redis: no fault is called %.*s\n", (int)len, at);
            exit(64);
        }
    }
    return faults;
}

/* New schedules, from that seed on. */
static bool run_new(struct options o, const struct limits *limits, unsigned number)
{
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t done = 0, failures = 0;
    uint64_t hash = 0;
    for (; goes_on(limits, done, began) && failures < 5; done++, o.seed++) {
        if (*run(&o)) {
            failures++;
            printf("# seed %llu: %s\n", (unsigned long long)o.seed, w.failure);
            show_failure(&o);
        }
        hash = hash * 31 + w.hash;
    }
    double took = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used; /* others may be busy */
    print_tally();
    print_coverage();
    bool enough = done < 5000 || o.faults != FAULT_ALL || all_happened();
    if (!enough)
        puts("# some kind of fault never happened");
    bool ok = !failures && enough;
    printf("%s %u - %llu schedules with faults keep every promise (hash %016llx, %.0f a second of one processor)\n",
           ok ? "ok" : "not ok", number, (unsigned long long)done, (unsigned long long)hash,
           took > 0 ? (double)done / took : 0);
    return ok;
}

static bool is_found(struct options o, const struct limits *limits, unsigned number)
{
    const struct plant_row *row = &plants[o.plant];
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    plant(o.plant);
    uint64_t done = 0;
    for (; goes_on(limits, done, began); done++, o.seed++) {
        if (!*run(&o))
            continue;
        printf("ok %u - %-14s seed %7llu %6.2f s  %s: %s\n", number, row->name, (unsigned long long)o.seed,
               seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used, row->text, w.failure);
        fflush(stdout);
        return true;
    }
    if (row->script && !spoilt)
        printf("# the text of the script has changed: nothing was planted\n");
    printf("not ok %u - %s is not found within %llu schedules: %s\n", number, row->name, (unsigned long long)done,
           row->text);
    fflush(stdout);
    return false;
}

static enum plant find_plant(const char *name)
{
    for (unsigned i = 0; i < PLANT_COUNT; i++)
        if (strcmp(plants[i].name, name) == 0)
            return (enum plant)i;
    fprintf(stderr, "redis: no bug is called %s; there are:", name);
    for (unsigned i = 1; i < PLANT_COUNT; i++)
        fprintf(stderr, " %s", plants[i].name);
    fputc('\n', stderr);
    exit(64);
}

/* ---- The command line, and the schedules that once failed ---------------------------------------------------------
 */

struct wishes {
    struct options options;
    struct limits limits;
    const char *kept; /* a file with one schedule a line */
    bool all_plants, rare, trace;
};

/* One option that has a value. False: there is no such option. */
static bool set_option(struct wishes *wishes, const char *name, const char *value)
{
    struct options *o = &wishes->options;
    if (strcmp(name, "--seed") == 0)
        o->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--schedules") == 0)
        wishes->limits.schedules = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        wishes->limits.seconds = strtod(value, NULL);
    else if (strcmp(name, "--processes") == 0)
        o->processes = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--rounds") == 0)
        o->rounds = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--faults") == 0)
        o->faults = faults_of(value);
    else if (strcmp(name, "--plant") == 0)
        o->plant = find_plant(value);
    else if (strcmp(name, "--kept") == 0)
        wishes->kept = value;
    else
        return false;
    return true;
}

static struct wishes read_words(int count, char **words)
{
    struct wishes wishes = {.options = {.processes = PROCESSES, .rounds = ROUNDS, .faults = FAULT_ALL},
                            .limits = {.seconds = 30}};
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], "--trace") == 0)
            wishes.trace = true;
        else if (strcmp(words[i], "--plants") == 0)
            wishes.all_plants = true;
        else if (strcmp(words[i], "--rare") == 0)
            wishes.rare = true;
        else if (i + 1 < count && set_option(&wishes, words[i], words[i + 1]))
            i++;
        else {
            fputs("usage: redis [--seed N] [--schedules N | --seconds S] [--kept FILE]\n"
                  "             [--plants] [--rare] [--plant NAME]\n"
                  "             [--trace] [--processes P] [--rounds R] [--faults NAME,...]\n",
                  stderr);
            exit(64);
        }
    }
    return wishes;
}

/* Those that failed once are run first. */
static bool run_kept(const char *path, unsigned number)
{
    char line[400], *words[32];
    unsigned count = 0, failures = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        int words_in_line = 0;
        line[strcspn(line, "#\n")] = 0;
        for (char *word = strtok(line, " "); word && words_in_line < 32; word = strtok(NULL, " "))
            words[words_in_line++] = word;
        if (!words_in_line)
            continue;
        struct options o = read_words(words_in_line, words).options;
        count++;
        if (!*run(&o))
            continue;
        failures++;
        printf("# seed %llu: %s\n", (unsigned long long)o.seed, w.failure);
        show_failure(&o);
    }
    if (file)
        fclose(file);
    bool ok = file && count && !failures;
    printf("%s %u - %u schedules that once failed keep every promise\n", ok ? "ok" : "not ok", number, count);
    return ok;
}

/* Those that show in one of many thousand schedules only. */
static bool is_rare(unsigned which)
{
    return which == PLANT_TURN_DRIFT || which == PLANT_RETRY_TIME || which == PLANT_OLD_PUSH ||
           which == PLANT_NO_CUT_BACK || which == PLANT_STEP_COUNTS || which == PLANT_STEP_WAITS ||
           which == PLANT_GATHERED || which == PLANT_GATHER_DEAD || which == PLANT_ADOPT_SURE;
}

static bool find_all(struct options o, const struct limits *limits, bool rare)
{
    bool ok = true;
    unsigned number = 0;
    for (unsigned i = 1; i < PLANT_COUNT; i++) {
        o.plant = (enum plant)i;
        if (rare || !is_rare(i))
            ok &= is_found(o, limits, ++number);
    }
    printf("1..%u\n", number);
    return ok;
}

static bool show_one(const struct options *o)
{
    recording = true;
    record = record_now;
    bool ok = !*run(o);
    printf("%s 1 - seed %llu %s (hash %016llx)\n", ok ? "ok" : "not ok", (unsigned long long)o->seed, w.failure,
           (unsigned long long)w.hash);
    return ok;
}

static bool do_as_wished(const struct wishes *wishes)
{
    struct options o = wishes->options;
    bool every = wishes->all_plants && !o.plant, ok = true;
    if (!every)
        printf("1..%d\n", wishes->kept ? 2 : 1);
    plant(o.plant);
    if (wishes->trace)
        return show_one(&o);
    if (every)
        return find_all(o, &wishes->limits, wishes->rare);
    if (wishes->all_plants)
        return is_found(o, &wishes->limits, 1);
    if (wishes->kept)
        ok = run_kept(wishes->kept, 1);
    return run_new(o, &wishes->limits, wishes->kept ? 2 : 1) && ok;
}

int main(int argc, char **argv)
{
    struct wishes wishes = read_words(argc - 1, argv + 1);
    bytes_room = malloc(BYTES_ROOM);
    bool ok = bytes_room && do_as_wished(&wishes);
    model_close(model);
    free(bytes_room);
    return ok ? 0 : 1;
}
