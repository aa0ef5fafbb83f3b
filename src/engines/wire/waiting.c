/* waiting.c - threads that wait, and drive the lines meanwhile: callers park, the background thread attends. */
#include "inside.h"

#include "sys/clock.h"

#include <time.h>
#include <unistd.h>

#define ORPHAN_AFTER HF_MS(20)
#define LEFT_FOR HF_MS(5) /* longer than most answers take, which end the wait of who left the sending to others */
#define FINISH_WITHIN HF_MS(500) /* as long as a request may take at most; a server that hangs holds up no longer */
#define REDIAL_WITHIN HF_MS(50)  /* and one that was dialled in vain no longer than this */

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
        waiter->coming = true;
        wire->coming++;
        if (wire->wakes < HF_WIRE_WAKES)
            wire->wake[wire->wakes++] = &waiter->word;
        else
            hf_futex_wake_here(&waiter->word, 1);
    }
}

/* A sleeper may have left by itself meanwhile, and the word with it: the wake goes to the address alone. */
void hf_wire_unlock_and_wake(struct hf_wire *wire)
{
    hf_word *wake[HF_WIRE_WAKES];
    uint32_t wakes = wire->wakes;
    for (uint32_t i = 0; i < wakes; i++)
        wake[i] = wire->wake[i];
    wire->wakes = 0;
    hf_latch_unlock(&wire->io);
    for (uint32_t i = 0; i < wakes; i++)
        hf_futex_wake_here(wake[i], 1);
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
    for (struct hf_wire_waiter *w = record->parked; w; w = w->beside)
        hf_wire_rouse(wire, w);
}

/* The background thread is to look at new ones in a while. */
static void note_orphans(struct hf_wire *wire, uint32_t orphaned)
{
    uint32_t fresh = orphaned & ~wire->orphaned;
    wire->orphaned = orphaned;
    if (!fresh)
        return;
    hf_nanos now = hf_clock_boot();
    while (fresh)
        wire->line[hf_wire_pop(&fresh)].orphaned_at = now;
    if (wire->background_until > now + ORPHAN_AFTER)
        hf_wire_rouse(wire, &wire->background);
}

static void offer_dialled(struct hf_wire *wire)
{
    uint32_t dialled = wire->dialled;
    wire->dialled = 0;
    hf_wire_offer(wire, dialled);
}

static void settle_touched(struct hf_wire *wire)
{
    while (wire->touched) {
        struct hf_wire_record *record = wire->touched;
        wire->touched = record->next;
        record->touched = false;
        restake(wire, record);
        if (record->count)
            announce(wire, record);
    }
}

void hf_wire_settle(struct hf_wire *wire)
{
    if (wire->touched)
        settle_touched(wire);
    uint32_t orphaned = wire->type->lines ? wire->type->lines(wire->engine) : 0;
    if (orphaned != wire->orphaned)
        note_orphans(wire, orphaned);
    if (wire->dialled)
        offer_dialled(wire);
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

/* ---- Sleeping ---- */

/* All lines of ours are driven by others, or down: they will rouse us. True: they did. */
static bool sleep_unlocked(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos until)
{
    me->how = HF_WIRE_SLEEPING;
    atomic_store(&me->word, 0);
    hf_wire_unlock(wire);
    hf_futex_wait_here(&me->word, 0, until);
    hf_latch_lock(&wire->io);
    me->how = HF_WIRE_AWAKE;
    wire->coming -= me->coming;
    me->coming = false;
    return atomic_load(&me->word);
}

/* The sending may have been left to one who was roused, and gets no CPU: whoever wakes by himself sends. */
static void sleep_and_send(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos now, hf_nanos until)
{
    hf_wire_flush_or_leave(wire);
    if (wire->dirty && now + LEFT_FOR < until)
        until = now + LEFT_FOR;
    if (!sleep_unlocked(wire, me, until))
        hf_wire_flush_lines(wire);
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
    wire->parked++;
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
    wire->parked--;
    hf_wire_leave_lines(wire, me, me->lines);
    hf_wire_offer(wire, wire->open); /* also those that may have been offered to us while we were on our way out */
}

/* Returns the time of the last look at the clock; 0: others brought the news, and that may be long ago. */
static hf_nanos wait_for_news(struct hf_wire *wire, struct hf_wire_waiter *me, uint64_t slot, uint32_t seen,
                              hf_nanos until)
{
    hf_nanos now = slot == wire->asked_slot ? wire->asked_at : 0;
    wire->asked_slot = 0;
    while (hf_wire_record_at(wire, slot) == me->record && me->record->told == seen && !me->woken) {
        now = now ? now : hf_clock_boot();
        hf_nanos again = hf_wire_tick(wire, now);
        if (me->record->told != seen || now >= until)
            break;
        hf_wire_choose_lines(wire, me, me->record->ask->lines);
        hf_nanos wake = again < until ? again : until;
        if (me->lines) {
            hf_wire_flush_lines(wire);
            now = hf_wire_drive(wire, me, now, wake);
        } else {
            sleep_and_send(wire, me, now, wake);
            now = 0;
        }
    }
    return now;
}

hf_nanos hf_wire_park(void *self, uint64_t slot, uint32_t seen, hf_nanos until)
{
    struct hf_wire *wire = self;
    hf_nanos now = 0;
    hf_latch_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_at(wire, slot);
    if (record) {
        struct hf_wire_waiter me = {.record = record, .kick = -1};
        join(wire, &me);
        now = wait_for_news(wire, &me, slot, seen, until);
        part(wire, &me);
    }
    hf_wire_flush_or_leave(wire);
    hf_wire_unlock(wire);
    return now;
}

void hf_wire_wake(void *self, uint64_t slot)
{
    struct hf_wire *wire = self;
    hf_latch_lock(&wire->io);
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
    hf_latch_lock(&wire->io);
    for (;;) {
        hf_nanos now = hf_clock_boot(), again = hf_wire_tick(wire, now);
        hf_wire_flush_lines(wire);
        if (is_called(wire) || now >= until)
            break;
        hf_nanos bound = again < until ? again : until;
        uint32_t adopted = neglected_lines(wire, now) | (wire->orphaned & me->lines);
        if (wire->orphaned & ~adopted && now + ORPHAN_AFTER < bound)
            bound = now + ORPHAN_AFTER;
        hf_wire_choose_lines(wire, me, wire->staked | adopted);
        wire->background_until = bound;
        hf_wire_drive(wire, me, now, bound);
        wire->background_until = 0;
    }
    hf_wire_give_up(wire, me, me->lines);
    hf_wire_unlock(wire);
}

/* ---- The end ---- */

/* A line that was cut, and has not been dialled since: its server may be as well as ever. */
static bool may_come_back(const struct hf_wire *wire)
{
    for (uint32_t lines = wire->orphaned & ~wire->open; lines;)
        if (wire->line[hf_wire_pop(&lines)].misses == 0)
            return true;
    return false;
}

/* There is no other thread any more. */
void hf_wire_finish(void *self, hf_nanos until)
{
    struct hf_wire *wire = self;
    struct hf_wire_waiter *me = &wire->background;
    hf_nanos begin = hf_clock_boot(), bound = begin + FINISH_WITHIN < until ? begin + FINISH_WITHIN : until;
    hf_nanos redialled = begin + REDIAL_WITHIN < bound ? begin + REDIAL_WITHIN : bound;
    hf_latch_lock(&wire->io);
    for (;;) {
        hf_nanos now = hf_clock_boot(), again = hf_wire_tick(wire, now);
        hf_wire_flush_lines(wire);
        hf_wire_choose_lines(wire, me, wire->orphaned);
        hf_nanos end = me->lines || may_come_back(wire) ? bound : redialled;
        if (!wire->orphaned || now >= end)
            break;
        hf_wire_drive(wire, me, now, again < end ? again : end);
    }
    hf_wire_give_up(wire, me, me->lines);
    hf_wire_unlock(wire);
}
