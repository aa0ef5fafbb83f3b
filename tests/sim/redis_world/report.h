/* report.h - what people read: a failing schedule as small as it can be and as a table, what happened how often, and
 * which states met which inputs. */
#pragma once
#include "spoil.h"

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
    if (o->converts)
        len += snprintf(text + len, size - (size_t)len, " --converts");
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
