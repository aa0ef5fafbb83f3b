/* client_clocks.h - clients' clocks step, where a step can happen in life. The library reads three
 * (sys/clock.h):
 *
 * BOOTTIME counts every lease: when it was asked for, until when it is good, when to renew. It is
 * what local_time() shows. Nobody can set it, and it goes on while the machine sleeps: who wakes up
 * finds it ahead by that much (SUSPEND). A host that puts its guest's clock right makes it jump
 * ahead while everybody runs (JUMP): then a lease is believed to be over before it is. Back it
 * never goes, and while time passes it does not stand: it would be slower than the drift that is
 * promised, a belief would outlast its hold, and no check here could hold. So neither is drawn.
 *
 * MONOTONIC says how long a system call sleeps. It stands while the machine sleeps: who slept then
 * sleeps on for what was left, and every timer comes late by that much. When the clock jumps, it
 * jumps, too.
 *
 * REALTIME is for people to read, and begins the tokens of a `local:` table. What runs in this
 * world reads no clock of the machine at all (see forbid_clocks), so that one may step as it likes.
 */
#pragma once
#include "redis_users.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What becomes of clients' clocks is drawn apart: where nothing becomes of them, a seed is the
 * schedule that it would be without. */
static uint32_t draw_clock(uint32_t below)
{
    return draw_from(&w.clock_random, below);
}

static nanos draw_clock_step(void)
{
    return 3 * w.ttl / 4096 * draw_clock(4096);
}

/* What this process waits for comes when its clock shows it, and that much later. */
static void arm_all_timers(unsigned number, nanos late)
{
    struct process *p = &w.process[number];
    for (unsigned id = 0; id < w.attempts; id++)
        if (w.attempt[id].process == number && w.attempt[id].life == p->life && w.attempt[id].alive)
            plan_timer(id, late);
    plan_next_tick(p, late);
}

static bool has_machine(unsigned number, enum fault fault)
{
    return number < w.options.processes && w.options.faults & fault;
}

static void suspend(unsigned number)
{
    struct process *p = &w.process[number];
    nanos span = draw_clock_step(), until = w.now + span;
    if (!has_machine(number, FAULT_SUSPEND) || p->dead)
        return;
    tally.suspends++;
    tell_fault(H_ASLEEP, number, until);
    note((int)number, "its machine sleeps until %.1f", (double)until / 1e6);
    p->stalled_until = later(p->stalled_until, until);
    arm_all_timers(number, span);
    if (w.options.plant == PLANT_CLOCK_STANDS)
        p->offset -= span;
    tell_beliefs(number);
}

/* No belief may be left when the clock is further ahead than any hold can last: what it asked for,
 * or a turn. */
static void check_jump(unsigned number, nanos by)
{
    for (unsigned id = 0; id < w.attempts; id++)
        if (w.attempt[id].process == number &&
            by > later(w.attempt[id].longest, w.refresh + w.handoff_grace) &&
            believes(&w.attempt[id]))
            fails("a%u believes to hold after its clock jumped by %lld ms", id,
                  (long long)(by / NANOS_OF_MS(1)));
}

static void jump(unsigned number)
{
    struct process *p = &w.process[number];
    nanos by = draw_clock_step();
    if (!has_machine(number, FAULT_JUMP) || p->jumped_by)
        return;
    tally.jumps++;
    tell_fault(H_JUMPED, number, w.now);
    note((int)number, "its clock jumps ahead by %.1f ms", (double)by / 1e6);
    p->jumped_at = w.now;
    p->jumped_by = by;
    check_jump(number, by);
    tell_beliefs(number);
    if (!p->dead)
        arm_all_timers(number, 0);
}

/* ---- Nothing here knows what time it is outside ---- */

static uint64_t clock_reads;

/* In the place of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    clock_reads++;
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static void forbid_clocks(uint64_t reads_before)
{
    if (clock_reads != reads_before)
        fails("something in this world read a clock of the machine");
}
