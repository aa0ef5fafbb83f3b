/* chaos_schedule.h - all faults, and the order in which they happen: a deck of cards that is
 * shuffled again and again.
 */
#pragma once
#include "chaos_connections.h"
#include "chaos_server.h"

enum { MORE_MS = 20000 };

/* ---- The faults ---- */

static struct fault {
    const char *name;
    unsigned (*happen)(void);
    unsigned cards; /* how often it is in the deck */
    bool forgets;   /* the server does not know any more what it granted */
    unsigned times;
} faults[] = {
    {"clients killed", kill_client, 3, false, 0},
    {"clients stopped", stop_client, 2, false, 0},
    {"cuts at a byte", plant_cut, 2, false, 0},
    {"resets at a byte", plant_reset, 1, false, 0},
    {"stalls at a byte", plant_stall, 1, false, 0},
    {"drops at a byte", plant_drop, 1, false, 0},
    {"late requests", plant_late, 1, false, 0},
    {"half-closes at a byte", plant_half, 1, false, 0},
    {"requests overtaken", plant_behind, 2, false, 0},
    {"slow lines", slow_line, 1, false, 0},
    {"dribbles", dribble, 1, false, 0},
    {"freezes", freeze, 1, false, 0},
    {"refusals to connect", refuse, 1, false, 0},
    {"lines cut", cut_all, 1, false, 0},
    {"servers stopped", pause_server, 1, false, 0},
    {"servers killed", kill_server, 2, false, 0},
    {"restarts without data", empty_server, 1, true, 0},
    {"truncated files", truncate_file, 1, true, 0},
    {"FLUSHALL", flush_all, 1, true, 0},
    {"the library forgotten", flush_library, 1, false, 0},
    {"connections killed", kill_connections, 1, false, 0},
    {"CLIENT PAUSE", pause_connections, 1, false, 0},
    {"refusals for memory", fill_memory, 1, false, 0},
    {"keys evicted", evict, 1, true, 0},
    {"refusals of a replica", make_replica, 1, false, 0},
    {"steps forward", step_forward, 1, true, 0},
    {"steps back", step_back, 1, false, 0},
    {"steps of the monotonic clock", step_monotonic, 1, false, 0},
};

enum { FAULTS = sizeof faults / sizeof *faults, DECK = 256 };

static inline const struct fault *missing_fault(void)
{
    for (const struct fault *f = faults; f < faults + FAULTS; f++)
        if (f->times == 0)
            return f;
    return NULL;
}

/* ---- What was begun ---- */

/* A plant's row in the table. */
static inline struct fault *fault_of(enum proxy_fault_kind planted)
{
    static unsigned (*const happen[])(void) = {
        [PROXY_CUT] = plant_cut,       [PROXY_RESET] = plant_reset, [PROXY_STALL] = plant_stall,
        [PROXY_DROP] = plant_drop,     [PROXY_LATE] = plant_late,   [PROXY_HALF] = plant_half,
        [PROXY_BEHIND] = plant_behind,
    };
    struct fault *f = faults;
    while (f->happen != happen[planted])
        f++;
    return f;
}

/* What was kept back comes to the server long after its client has gone on; the server must be up
 * for that. */
static inline void look_at_plants(struct client *c, bool deliver)
{
    for (int i = 0; i < c->plants; i++) {
        if (c->seen[i] || !proxy_happened(c->proxy, i))
            continue;
        if (c->kind[i] == PROXY_BEHIND && !proxy_overtaken(c->proxy, i))
            continue;
        c->seen[i] = true;
        fault_of(c->kind[i])->times++;
        if (deliver && (c->kind[i] == PROXY_STALL || c->kind[i] == PROXY_LATE))
            world.late_bytes += (unsigned)proxy_deliver(c->proxy, i);
    }
}

/* Of what was to last for a while, what is over by then. */
static inline void mend(int64_t now)
{
    for (struct client *c = world.client; c < world.client + CLIENTS; c++) {
        if (c->line_until <= now)
            mend_line(c);
        if (c->stopped_at && c->stopped_until <= now)
            go_on(c);
        look_at_plants(c, draw(3) == 0);
    }
}

/* ---- The deck ---- */

/* A long run is for kills. */
static inline void stack_deck(unsigned kills_wanted)
{
    if (!kills_wanted)
        return;
    for (struct fault *f = faults; f < faults + FAULTS; f++)
        f->cards *= f->happen == kill_client ? 12 : f->happen == kill_server ? 4 : 1;
}

/* Every other deck forgets nothing: two that are good together have no excuse then. */
static inline unsigned shuffle(struct fault *deck[DECK])
{
    static bool forgetful;
    unsigned count = 0;
    forgetful = !forgetful;
    for (struct fault *f = faults; f < faults + FAULTS; f++)
        for (unsigned i = 0; i < f->cards && (forgetful || !f->forgets); i++) {
            assert_true(count < DECK);
            deck[count++] = f;
        }
    for (unsigned i = count; i > 1; i--) {
        unsigned other = draw(i);
        struct fault *kept = deck[i - 1];
        deck[i - 1] = deck[other];
        deck[other] = kept;
    }
    return count;
}

/* Until the time is over; what was planted may need some more to happen at all. */
static inline bool goes_on(int64_t end, unsigned kills_wanted)
{
    int64_t now = now_ns();
    return now < end || world.kills < kills_wanted ||
           (missing_fault() && now < end + MORE_MS * 1000000LL);
}

/* One after the other, so that a short run has them all; those for a while overlap with what comes
 * next. */
static inline void let_happen(unsigned seconds, unsigned kills_wanted)
{
    struct fault *deck[DECK];
    unsigned left = 0;
    int64_t end = now_ns() + (int64_t)seconds * 1000000000;
    while (goes_on(end, kills_wanted)) {
        if (left == 0)
            left = shuffle(deck);
        struct fault *f = deck[--left];
        int64_t from = now_ns();
        f->times += f->happen();
        tell_fault(H_AWAY, H_ALL, from, 0); /* whoever was near it has an excuse to wait */
        nap_us(10000 + draw(120000));
        mend(now_ns());
    }
    mend(INT64_MAX);
    tell_fault(H_AWAY, H_ALL, now_ns(), 0);
}

/* A line that was spoilt as a whole while nobody used it proves nothing. */
static inline void check_lines_were_used(void)
{
    uint64_t delayed = 0, alone = 0, frozen = 0;
    for (const struct client *c = world.client; c < world.client + CLIENTS; c++) {
        delayed += proxy_delayed(c->proxy);
        alone += proxy_dribbled(c->proxy);
        frozen += proxy_frozen(c->proxy);
    }
    print_message("# %llu pieces delayed, %llu bytes sent alone, %llu found waiting in a freeze\n",
                  (unsigned long long)delayed, (unsigned long long)alone,
                  (unsigned long long)frozen);
    assert_true(delayed && alone && frozen);
}

static inline void show_faults(void)
{
    for (unsigned i = 0; i < FAULTS; i++)
        print_message("# %6u %s\n", faults[i].times, faults[i].name);
    print_message("# %6u kills in all, %u bytes came late\n", world.kills, world.late_bytes);
    check_lines_were_used();
}
