/* waiting.c - threads that wait, and drive the lines meanwhile: callers park, the background thread attends. */
#include "inside.h"

#include "sys/clock.h"

#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define ORPHAN_AFTER HF_MS(20)
#define GATHER_LEAST 16 /* for fewer callers it does not pay to give the CPU away, which others may keep for long */

/* ---- Waking ---- */

static void write_kick(int fd)
{
    static const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) {
        /* An eventfd refuses only when it is already as readable as can be. */
    }
}

void hf_wire_rouse(struct hf_wire *wire, struct hf_wire_waiter *waiter)
{
    if (waiter->how == HF_WIRE_POLLING && !waiter->kicked) {
        waiter->kicked = true;
        write_kick(waiter->kick);
    } else if (waiter->how == HF_WIRE_SLEEPING && !atomic_load(&waiter->word)) {
        atomic_store(&waiter->word, 1);
        if (wire->wakes < HF_WIRE_WAKES)
            wire->wake[wire->wakes++] = &waiter->word;
        else
            hf_futex_wake(&waiter->word, 1);
    }
}

/* A sleeper may have left by itself meanwhile, and the word with it: the wake goes to the address alone. */
void hf_wire_unlock(struct hf_wire *wire)
{
    hf_word *wake[HF_WIRE_WAKES];
    uint32_t wakes = wire->wakes;
    for (uint32_t i = 0; i < wakes; i++)
        wake[i] = wire->wake[i];
    wire->wakes = 0;
    pthread_mutex_unlock(&wire->io);
    for (uint32_t i = 0; i < wakes; i++)
        hf_futex_wake(wake[i], 1);
}

void hf_wire_ring(struct hf_wire *wire)
{
    wire->nudged = true;
    hf_wire_rouse(wire, &wire->background);
}

void hf_wire_attend_wake(void *self)
{
    struct hf_wire *wire = self;
    if (!atomic_exchange(&wire->rung, true))
        write_kick(wire->background.kick);
}

static bool has_stake(const struct hf_wire_waiter *waiter, unsigned line)
{
    const struct hf_ask *ask = waiter->record->ask;
    return ask && ask->lines & hf_wire_bit(line);
}

/* Answers that nobody waits for are read by whoever drives that line next; if for a while nobody does, by the
 * background thread. So a caller that comes back soon finds its line free. */
static bool is_neglected(const struct hf_wire_line *line, hf_nanos now)
{
    return now >= line->orphaned_at + ORPHAN_AFTER && now >= line->read_at + ORPHAN_AFTER;
}

static void offer_line(struct hf_wire *wire, unsigned line)
{
    for (struct hf_wire_waiter *w = wire->waiters; w; w = w->next)
        if (w->how != HF_WIRE_AWAKE && has_stake(w, line)) {
            hf_wire_rouse(wire, w);
            return;
        }
    if (wire->stakes[line] || (wire->orphaned & hf_wire_bit(line) && is_neglected(&wire->line[line], hf_clock_boot())))
        hf_wire_rouse(wire, &wire->background);
}

void hf_wire_offer(struct hf_wire *wire, uint32_t lines)
{
    for (lines &= wire->open & ~wire->driven; lines;)
        offer_line(wire, hf_wire_pop(&lines));
}

/* ---- After a call of the engine ---- */

/* Brings the count of unattended stakes up to date. */
static void restake(struct hf_wire *wire, struct hf_wire_record *record)
{
    uint32_t now = record->attended ? 0 : record->ask->lines;
    for (uint32_t changed = now ^ record->stake; changed;) {
        unsigned line = hf_wire_pop(&changed);
        wire->stakes[line] += now & hf_wire_bit(line) ? 1 : UINT32_MAX;
        if (wire->stakes[line])
            wire->staked |= hf_wire_bit(line);
        else
            wire->staked &= ~hf_wire_bit(line);
    }
    record->stake = now;
}

static void announce(struct hf_wire *wire, struct hf_wire_record *record)
{
    if (!record->attended) {
        wire->host->nudge(wire->host->ctx, record->ask);
        hf_wire_ring(wire);
    }
    for (struct hf_wire_waiter *w = record->parked; w; w = w->beside) {
        wire->expected += w->how != HF_WIRE_AWAKE;
        hf_wire_rouse(wire, w);
    }
}

/* The background thread is to look at new ones in a while. */
static void note_orphans(struct hf_wire *wire)
{
    uint32_t orphaned = wire->type->lines ? wire->type->lines(wire->engine) : 0, fresh = orphaned & ~wire->orphaned;
    wire->orphaned = orphaned;
    if (!fresh)
        return;
    hf_nanos now = hf_clock_boot();
    while (fresh)
        wire->line[hf_wire_pop(&fresh)].orphaned_at = now;
    if (wire->background_until > now + ORPHAN_AFTER)
        hf_wire_rouse(wire, &wire->background);
}

void hf_wire_settle(struct hf_wire *wire)
{
    while (wire->touched) {
        struct hf_wire_record *record = wire->touched;
        wire->touched = record->next;
        record->touched = false;
        restake(wire, record);
        if (record->count)
            announce(wire, record);
    }
    note_orphans(wire);
    uint32_t dialled = wire->dialled;
    wire->dialled = 0;
    hf_wire_offer(wire, dialled);
}

void hf_wire_dismiss(struct hf_wire *wire, struct hf_wire_record *record)
{
    hf_wire_settle(wire);
    record->attended = true; /* it counts for no line any more */
    restake(wire, record);
    for (struct hf_wire_waiter *w = record->parked; w; w = w->beside)
        hf_wire_rouse(wire, w);
    record->parked = NULL;
    hf_wire_record_drop(wire, record);
}

hf_nanos hf_wire_tick(struct hf_wire *wire, hf_nanos now)
{
    hf_nanos again = wire->type->tick(wire->engine, now);
    hf_wire_settle(wire);
    return again;
}

/* ---- Driving ---- */

static void give_up(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t lines)
{
    me->lines &= ~lines;
    wire->driven &= ~lines;
    for (uint32_t left = lines; left;)
        wire->line[hf_wire_pop(&left)].driver = NULL;
    hf_wire_offer(wire, lines);
}

/* Drives those of the wanted lines that nobody else does, and no others. */
static void choose_lines(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t wanted)
{
    wanted &= wire->open;
    uint32_t taken = wanted & ~wire->driven;
    me->lines |= taken;
    wire->driven |= taken;
    while (taken)
        wire->line[hf_wire_pop(&taken)].driver = me;
    if (me->lines & ~wanted)
        give_up(wire, me, me->lines & ~wanted);
    if (me->record && me->lines) /* the background thread has a bell of its own */
        me->kick = wire->line[__builtin_ctz(me->lines)].kick;
}

static uint32_t ready_lines(const struct hf_wire *wire, uint32_t lines)
{
    uint32_t ready = 0;
    while (lines) {
        unsigned line = hf_wire_pop(&lines);
        ready |= hf_wire_line_ready(&wire->line[line]) ? hf_wire_bit(line) : 0;
    }
    return ready;
}

/* Until then; signals may shorten it. Not ppoll(2): the time that a process is stopped does not count there, and a
 * lease that ended meanwhile would be noticed late. */
static void poll_until(struct pollfd *fds, nfds_t count, hf_nanos until)
{
    int limit = -1;
    if (until != HF_NEVER) {
        hf_nanos ms = (until - hf_clock_boot() + HF_MS(1) - 1) / HF_MS(1);
        limit = ms <= 0 ? 0 : ms < INT32_MAX ? (int)ms : INT32_MAX;
    }
    for (nfds_t i = 0; i < count; i++)
        fds[i].revents = 0;
    poll(fds, count, limit);
}

/* Looks without sleeping, until then; did something come? */
static bool spin_until(struct pollfd *fds, nfds_t count, hf_nanos until)
{
    do {
        if (poll(fds, count, 0) > 0)
            return true;
    } while (hf_clock_boot() < until);
    return false;
}

/* The background thread has nobody who waits for its news; and where others wait, the CPU is theirs. */
static bool may_spin(struct hf_wire *wire, struct hf_wire_waiter *me)
{
    bool alone = wire->waiters == me && !me->next;
    return wire->spin && alone && hf_spin_pays(&wire->line[__builtin_ctz(me->lines)].spin);
}

/* With the io lock given up meanwhile. */
static void poll_unlocked(struct hf_wire *wire, struct hf_wire_waiter *me, struct pollfd *fds, nfds_t count,
                          hf_nanos until)
{
    bool spins = may_spin(wire, me), hit = false;
    me->how = HF_WIRE_POLLING;
    hf_wire_unlock(wire);
    if (spins) {
        hf_nanos limit = hf_clock_boot() + wire->spin;
        hit = spin_until(fds, count, limit < until ? limit : until);
    }
    if (!hit)
        poll_until(fds, count, until);
    pthread_mutex_lock(&wire->io);
    me->how = HF_WIRE_AWAKE;
    if (spins)
        hf_spin_learn(&wire->line[__builtin_ctz(me->lines)].spin, hit);
    uint64_t kicks;
    if ((me->kicked || fds[0].revents) && read(me->kick, &kicks, sizeof kicks) < 0) {
        /* It was empty after all: then nothing needs to be emptied. */
    }
    me->kicked = false;
}

/* Polls our lines; those on which something happened. */
static uint32_t poll_lines(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos until)
{
    struct pollfd fds[HF_WIRE_LINES + 1] = {{.fd = me->kick, .events = POLLIN}};
    nfds_t count = 1;
    uint32_t happened = 0;
    for (uint32_t lines = me->lines; lines;) {
        struct hf_wire_line *line = &wire->line[hf_wire_pop(&lines)];
        line->polled = hf_link_events(line->link);
        fds[count++] = (struct pollfd){.fd = hf_link_fd(line->link), .events = line->polled};
    }
    poll_unlocked(wire, me, fds, count, until);
    count = 1;
    for (uint32_t lines = me->lines; lines; count++) {
        unsigned number = hf_wire_pop(&lines);
        if (wire->line[number].corpse)
            hf_wire_bury(&wire->line[number]); /* what happened there concerns nobody any more */
        else if (fds[count].revents)
            happened |= hf_wire_bit(number);
    }
    return happened;
}

/* Waits for something to happen on our lines, and does what follows from it. */
static void drive(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos until)
{
    uint32_t happened = ready_lines(wire, me->lines);
    if (!happened)
        happened = poll_lines(wire, me, until);
    hf_nanos now = hf_clock_boot();
    while (happened)
        hf_wire_serve(wire, hf_wire_pop(&happened), now);
}

/* All lines of ours are driven by others, or down: they will rouse us. */
static void sleep_unlocked(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos until)
{
    me->how = HF_WIRE_SLEEPING;
    atomic_store(&me->word, 0);
    hf_wire_unlock(wire);
    hf_futex_wait(&me->word, 0, until);
    pthread_mutex_lock(&wire->io);
    me->how = HF_WIRE_AWAKE;
}

/* Several callers were just told something: most of them ask again at once. Who is to drive lets them come first, and
 * sends for all. */
static void gather(struct hf_wire *wire, struct hf_wire_waiter *me)
{
    wire->expected = 0;
    me->how = HF_WIRE_GATHERING;
    hf_wire_unlock(wire);
    sched_yield();
    pthread_mutex_lock(&wire->io);
    me->how = HF_WIRE_AWAKE;
}

/* ---- Callers ---- */

static void join(struct hf_wire *wire, struct hf_wire_waiter *me)
{
    struct hf_wire_record *record = me->record;
    me->woken = record->woken;
    record->woken = false;
    me->beside = record->parked;
    record->parked = me;
    me->next = wire->waiters;
    if (me->next)
        me->next->prev = me;
    wire->waiters = me;
}

static void part(struct hf_wire *wire, struct hf_wire_waiter *me)
{
    struct hf_wire_waiter **link = &me->record->parked;
    while (*link && *link != me)
        link = &(*link)->beside;
    if (*link) /* else the record was forgotten meanwhile */
        *link = me->beside;
    *(me->prev ? &me->prev->next : &wire->waiters) = me->next;
    if (me->next)
        me->next->prev = me->prev;
    give_up(wire, me, me->lines);
    hf_wire_offer(wire, wire->open); /* one may have been offered to us while we were on our way out */
}

static void wait_for_news(struct hf_wire *wire, struct hf_wire_waiter *me, uint64_t slot, uint32_t seen, hf_nanos until)
{
    for (;;) {
        if (hf_wire_record_at(wire, slot) != me->record || me->record->told != seen || me->woken)
            return;
        hf_nanos now = hf_clock_boot(), again = hf_wire_tick(wire, now);
        if (me->record->told != seen || now >= until)
            return;
        choose_lines(wire, me, me->record->ask->lines);
        if (me->lines && wire->expected >= GATHER_LEAST) {
            gather(wire, me);
            continue;
        }
        hf_wire_flush_lines(wire);
        hf_nanos wake = again < until ? again : until;
        if (me->lines)
            drive(wire, me, wake);
        else
            sleep_unlocked(wire, me, wake);
    }
}

void hf_wire_park(void *self, uint64_t slot, uint32_t seen, hf_nanos until)
{
    struct hf_wire *wire = self;
    pthread_mutex_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_at(wire, slot);
    if (record) {
        struct hf_wire_waiter me = {.record = record, .kick = -1};
        join(wire, &me);
        wait_for_news(wire, &me, slot, seen, until);
        part(wire, &me);
    }
    hf_wire_flush_lines(wire);
    hf_wire_unlock(wire);
}

void hf_wire_wake(void *self, uint64_t slot)
{
    struct hf_wire *wire = self;
    pthread_mutex_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_at(wire, slot);
    if (record && !record->parked)
        record->woken = true; /* for a caller that is about to park */
    for (struct hf_wire_waiter *w = record ? record->parked : NULL; w; w = w->beside) {
        w->woken = true;
        hf_wire_rouse(wire, w);
    }
    hf_wire_unlock(wire);
}

/* ---- The background thread ---- */

static bool is_called(struct hf_wire *wire)
{
    bool nudged = wire->nudged, rung = atomic_exchange(&wire->rung, false);
    wire->nudged = false;
    return nudged || rung;
}

static uint32_t neglected_lines(const struct hf_wire *wire, hf_nanos now)
{
    uint32_t neglected = 0;
    for (uint32_t lines = wire->orphaned; lines;) {
        unsigned line = hf_wire_pop(&lines);
        neglected |= is_neglected(&wire->line[line], now) ? hf_wire_bit(line) : 0;
    }
    return neglected;
}

void hf_wire_attend(void *self, hf_nanos until)
{
    struct hf_wire *wire = self;
    struct hf_wire_waiter *me = &wire->background;
    pthread_mutex_lock(&wire->io);
    for (;;) {
        hf_nanos now = hf_clock_boot(), again = hf_wire_tick(wire, now);
        hf_wire_flush_lines(wire);
        if (is_called(wire) || now >= until)
            break;
        hf_nanos bound = again < until ? again : until;
        uint32_t adopted = neglected_lines(wire, now) | (wire->orphaned & me->lines);
        if (wire->orphaned & ~adopted && now + ORPHAN_AFTER < bound)
            bound = now + ORPHAN_AFTER;
        choose_lines(wire, me, wire->staked | adopted);
        wire->background_until = bound;
        drive(wire, me, bound);
        wire->background_until = 0;
    }
    give_up(wire, me, me->lines);
    hf_wire_unlock(wire);
}
