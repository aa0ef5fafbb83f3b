/* driving.c - one who drives lines: takes them and gives them up, waits for what comes there, and does what follows. */
#include "inside.h"

#include "sys/clock.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define DOZE_MOST HF_MS(HF_LINK_DOZE_MS + 20) /* the kernel may round it up by a tick of its clock or two */
enum { DOZE_ROOM = 4096 };

/* ---- Lines ---- */

void hf_wire_leave_lines(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t lines)
{
    me->lines &= ~lines;
    wire->driven &= ~lines;
    while (lines)
        wire->line[hf_wire_pop(&lines)].driver = NULL;
}

void hf_wire_give_up(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t lines)
{
    hf_wire_leave_lines(wire, me, lines);
    hf_wire_offer(wire, lines);
}

void hf_wire_choose_lines(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t wanted)
{
    wanted &= wire->open;
    uint32_t taken = wanted & ~wire->driven;
    me->lines |= taken;
    wire->driven |= taken;
    while (taken)
        wire->line[hf_wire_pop(&taken)].driver = me;
    if (me->lines & ~wanted)
        hf_wire_give_up(wire, me, me->lines & ~wanted);
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

/* Only news by that line end its wait, or what it can hear of late; and nothing is due before the doze is over. */
static bool may_doze(const struct hf_wire *wire, const struct hf_wire_waiter *me, hf_nanos now, hf_nanos until)
{
    if (me->dozed || !me->record || me->record->ask->lines != me->lines || me->lines & (me->lines - 1))
        return false;
    const struct hf_wire_line *line = &wire->line[__builtin_ctz(me->lines)];
    return line->up && until - now > DOZE_MOST && hf_link_can_doze(line->link);
}

/* Looks without sleeping, until then. */
static ssize_t glance_until(int fd, char *bytes, size_t size, hf_nanos until)
{
    ssize_t came;
    do
        came = hf_link_glance(fd, bytes, size);
    while (came == -EAGAIN && hf_clock_boot() < until);
    return came;
}

/* Sleeps in a recv, with the io lock given up meanwhile. The time when it ended. */
static hf_nanos doze(struct hf_wire *wire, struct hf_wire_waiter *me)
{
    unsigned number = (unsigned)__builtin_ctz(me->lines);
    int fd = hf_link_fd(wire->line[number].link);
    bool spins = may_spin(wire, me);
    ssize_t came = -EAGAIN;
    char bytes[DOZE_ROOM];
    me->how = HF_WIRE_DOZING;
    hf_wire_unlock(wire);
    if (spins)
        came = glance_until(fd, bytes, sizeof bytes, hf_clock_boot() + wire->spin); /* from after the send on */
    bool hit = came != -EAGAIN;
    if (!hit)
        came = hf_link_doze(fd, bytes, sizeof bytes);
    hf_latch_lock(&wire->io);
    me->how = HF_WIRE_AWAKE;
    me->dozed = came < 0;
    hf_nanos now = hf_clock_boot();
    if (spins)
        hf_spin_learn(&wire->line[number].spin, hit);
    hf_wire_take(wire, number, bytes, sizeof bytes, came, now);
    return now;
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
    hf_latch_lock(&wire->io);
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

hf_nanos hf_wire_drive(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos now, hf_nanos until)
{
    uint32_t happened = ready_lines(wire, me->lines);
    if (!happened && may_doze(wire, me, now, until))
        return doze(wire, me);
    if (!happened)
        happened = poll_lines(wire, me, until);
    me->dozed = me->dozed && !happened;
    now = hf_clock_boot();
    while (happened)
        hf_wire_serve(wire, hf_wire_pop(&happened), now);
    return now;
}
