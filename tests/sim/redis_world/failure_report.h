/* failure_report.h - what people read: a failing schedule as small as it can be and as a table,
 * what happened how often, and which states met which inputs. */
#pragma once
#include "plant_in_script.h"
#include "redis_schedule.h"

enum { ROWS = 30, TEXT = 100 };
static struct {
    nanos at;
    int column;
    char text[TEXT];
} rows[ROWS];
static unsigned row_count;

static void print_row(int column, nanos at, const char *text)
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
    if (o->converts)
        len += snprintf(text + len, size - (size_t)len, " --converts");
    if (o->looks)
        len += snprintf(text + len, size - (size_t)len, " --looks");
    if (o->refuses)
        len += snprintf(text + len, size - (size_t)len, " --refuses");
    if (o->refused_call)
        len += snprintf(text + len, size - (size_t)len, " --refused-call %llu --refused-with %s",
                        (unsigned long long)o->refused_call, call_errors[o->refused_with].name);
    if (o->replicas)
        len += snprintf(text + len, size - (size_t)len, " --replicas");
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

/* Which promise a failure is about: what it says before the colon, without numbers. */
static void name_promise(char promise[sizeof w.failure])
{
    size_t len = 0;
    for (const char *at = w.failure; *at && *at != ':'; at++)
        if (*at < '0' || *at > '9')
            promise[len++] = *at;
    promise[len] = 0;
}

static bool still_breaks(const struct options *o, const char *promise)
{
    char broken[sizeof w.failure];
    run(o);
    name_promise(broken);
    return *w.failure && strcmp(broken, promise) == 0;
}

/* Fewer processes, rounds and kinds of fault, as long as it breaks the same promise. */
static struct options shrink(struct options o)
{
    struct options less = o;
    struct tally kept = tally;
    if (o.refused_call)
        return o; /* in another schedule that number is another call */
    char promise[sizeof w.failure];
    name_promise(promise);
    for (less.rounds = 1; less.rounds < o.rounds && !still_breaks(&less, promise); less.rounds++)
        ;
    o = less;
    for (less.processes = 1; less.processes < o.processes && !still_breaks(&less, promise);
         less.processes++)
        ;
    o = less;
    for (unsigned bit = 0; bit < FAULT_KINDS; bit++) {
        less = o;
        less.faults &= ~(1u << bit);
        if (less.faults != o.faults && still_breaks(&less, promise))
            o = less;
    }
    tally = kept;
    return o;
}

/* Right after that schedule has failed. */
static void show_failure(const struct options *o)
{
    char text[400];
    struct options small = shrink(*o);
    recording = true;
    record = record_last;
    row_count = 0;
    const char *failure = run(&small);
    recording = false;
    printf("# %s, %s, ttl %lld ms\n", kind_names[w.kind], w.wake,
           (long long)(w.ttl / NANOS_OF_MS(1)));
    unsigned first = row_count > ROWS - 2 ? row_count - (ROWS - 2) : 0;
    for (unsigned i = first; i < row_count; i++)
        print_row(rows[i % ROWS].column, rows[i % ROWS].at, rows[i % ROWS].text);
    print_options(&small, text, sizeof text);
    printf("# %s; hash %016llx; again with: redis --trace %s\n", failure,
           (unsigned long long)w.hash, text);
}

/* No table is lost here, no claim is told anything when it is over, and the engine tells each ask
 * what belongs to it.
 */
static const struct excuse never_here[] = {
    {CLAIM_NEW, INPUT_LOST_ALL},
    {CLAIM_HELD, INPUT_LOST_ALL},
    {CLAIM_EXTENDING, INPUT_LOST_ALL},
    {CLAIM_RELEASING, INPUT_LOST_ALL},
    {CLAIM_OVER, -1},
    {CLAIM_ACQUIRING, INPUT_NOT_HELD},
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
    {CLAIM_HELD, INPUT_BUSY},
    {CLAIM_HELD, INPUT_EXTENDED},
    {CLAIM_HELD, INPUT_RELEASED},
    {CLAIM_HELD, INPUT_NOT_HELD},
    {CLAIM_HELD, INPUT_UNKNOWN},
    {CLAIM_HELD, INPUT_FAILED},
    {CLAIM_EXTENDING, INPUT_GRANTED},
    {CLAIM_EXTENDING, INPUT_QUEUED},
    {CLAIM_EXTENDING, INPUT_RELEASED},
    {CLAIM_LEAVING, INPUT_CANCEL},
    {CLAIM_LEAVING, INPUT_BUSY},
    {CLAIM_LEAVING, INPUT_NOT_HELD},
    {CLAIM_LEAVING, INPUT_NOTIFY},
    {CLAIM_RELEASING, INPUT_QUEUED},
    {CLAIM_STATES, -1},
};

static void print_tally(void)
{
    const struct tally *t = &tally;
#define N(field) (unsigned long long)t->field
    printf("# %llu schedules, %llu events, %llu scripts, %llu connections\n", N(schedules),
           N(events), N(scripts), N(dials));
    printf("# %llu grants, %llu hand-overs, %llu begun by a message, %llu denied, %llu lost, %llu "
           "released, %llu left\n",
           N(grants), N(hand_overs), N(pushed), N(denied), N(lost), N(released), N(detached));
    printf("# %llu cuts, %llu half-open, %llu late, %llu parted, %llu stalls, %llu closed, %llu "
           "suspended, %llu clocks "
           "ahead, %llu deaths, %llu restarts, %llu wipes, "
           "%llu failovers, "
           "%llu steps, %llu full, %llu flushes\n",
           N(cuts), N(halves), N(lates), N(parts), N(stalls), N(closes), N(suspends), N(jumps),
           N(kills), N(restarts), N(wipes), N(failovers), N(steps), N(fulls), N(flushes));
    printf("# %llu foreign, %llu broken, %llu resized, %llu upgrades, %llu downgrades, %llu "
           "extends, %llu cancels, %llu "
           "re-entries, %llu barged, %llu stored\n",
           N(foreigners), N(breaks), N(resizes), N(upgrades), N(downgrades), N(extends), N(cancels),
           N(reentries), N(barges), N(stored));
    printf("# %llu stored late, %llu without a token, %llu left behind settled, %llu taken up, "
           "%llu wanted two names, %llu asked for both at once, %llu not acknowledged, "
           "%llu failovers after "
           "acknowledgement\n",
           N(stored_late), N(plain), N(settled), N(adopted), N(several), N(joint), N(unreplicated),
           N(kept_failovers));
    printf("# %llu times bytes came of a connection that its client had turned away from, %llu "
           "times news were read "
           "late\n",
           N(ghosts), N(unread));
    printf("# %llu calls of scripts refused half-way, %llu times a right was taken away\n",
           N(refused), N(rights));
    printf("# %llu times a place in the queue was checked by what users heard\n", N(orders));
#undef N
}

/* A run in which something never happened proves nothing about it. */
static bool all_happened(void)
{
    const struct tally *t = &tally;
    return t->hand_overs && t->pushed && t->denied && t->lost && t->detached && t->cuts &&
           t->halves && t->lates && t->parts && t->stalls && t->closes && t->suspends && t->jumps &&
           t->ghosts && t->kills && t->restarts && t->wipes && t->failovers && t->steps &&
           t->fulls && t->flushes && t->foreigners && t->breaks && t->resizes && t->upgrades &&
           t->downgrades && t->extends && t->cancels && t->reentries && t->barges && t->stored &&
           t->stored_late && t->plain && t->settled && t->adopted && t->several && t->joint &&
           t->unreplicated && t->kept_failovers && t->orders && t->unread && t->refused &&
           t->rights;
}
