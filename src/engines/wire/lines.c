/* lines.c - the connections: dialled, written and hung up by the engine, read by whoever drives them. */
#include "inside.h"

#include "base/why.h"

#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_AFTER HF_MS(1000)
#define BATCH_WITHIN (HF_MS(1) / 2)

/* ---- For the engine ---- */

void hf_wire_dial(void *ctx, unsigned number, const struct hf_address *to)
{
    struct hf_wire *wire = ctx;
    struct hf_wire_line *line = &wire->line[number];
    if (line->kick < 0)
        line->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    line->link = line->kick >= 0 ? hf_link_dial(to, line->misses) : NULL;
    line->stillborn = !line->link;
    line->up = false;
    line->misses++;
    wire->open |= hf_wire_bit(number);
    wire->dialled |= hf_wire_bit(number);
}

bool hf_wire_send(void *ctx, unsigned number, const void *bytes, size_t len)
{
    struct hf_wire *wire = ctx;
    struct hf_wire_line *line = &wire->line[number];
    if (!line->link || !hf_link_send(line->link, bytes, len))
        return false;
    wire->dirty |= hf_wire_bit(number);
    wire->unsent++;
    return true;
}

/* Is somebody polling this very link? A corpse says that its driver polls that one. */
static bool is_polled(const struct hf_wire_line *line)
{
    return line->driver && (line->driver->how == HF_WIRE_POLLING || line->driver->how == HF_WIRE_DOZING) &&
           !line->corpse;
}

void hf_wire_hang_up(void *ctx, unsigned number)
{
    struct hf_wire *wire = ctx;
    struct hf_wire_line *line = &wire->line[number];
    wire->open &= ~hf_wire_bit(number);
    line->stillborn = false;
    if (!line->link)
        return;
    if (is_polled(line)) {
        hf_link_shut(line->link);
        line->corpse = line->link;
        hf_wire_rouse(wire, line->driver);
    } else {
        hf_link_free(line->link);
    }
    line->link = NULL;
}

/* ---- For the drivers ---- */

void hf_wire_bury(struct hf_wire_line *line)
{
    hf_link_free(line->corpse);
    line->corpse = NULL;
}

void hf_wire_flush_dirty(struct hf_wire *wire)
{
    uint32_t dirty = wire->dirty;
    wire->dirty = wire->unsent = 0;
    while (dirty) {
        struct hf_wire_line *line = &wire->line[hf_wire_pop(&dirty)];
        if (!line->link)
            continue;
        hf_link_flush(line->link);
        if (is_polled(line) && hf_link_events(line->link) & ~line->polled)
            hf_wire_rouse(wire, line->driver); /* he is to wait for room in the socket too */
    }
}

/* A third of all who wait: with fewer in one send there are more sends, with more the server has nothing to do while
 * they gather. */
static bool is_batch(const struct hf_wire *wire)
{
    return wire->unsent >= 2 && wire->unsent >= wire->parked / 3;
}

/* Each who comes leaves it to another who is coming, or sends; so the last one sends. Who is roused is awake, but may
 * have to wait for a CPU: not for long shall others wait for him. */
void hf_wire_flush_or_leave(struct hf_wire *wire)
{
    if (!wire->dirty)
        return;
    bool soon = wire->asked_at - wire->read_at < BATCH_WITHIN;
    if (!wire->coming || is_batch(wire) || !soon)
        hf_wire_flush_lines(wire);
}

bool hf_wire_line_ready(const struct hf_wire_line *line)
{
    return line->stillborn || hf_link_ready(line->link) || (!line->up && hf_link_state(line->link) == HF_LINK_UP);
}

static void lose(struct hf_wire *wire, unsigned number, hf_status status, const char *text, hf_nanos now)
{
    char why[HF_WHY_MAX]; /* the link has the text, and goes first: the engine may dial again */
    snprintf(why, sizeof why, "%s", text);
    hf_wire_hang_up(wire, number);
    wire->type->line_down(wire->engine, number, status, why, now);
    hf_wire_settle(wire);
}

static void lose_link(struct hf_wire *wire, unsigned number, hf_nanos now)
{
    const struct hf_link *link = wire->line[number].link;
    lose(wire, number, hf_link_status(link), hf_link_why(link), now);
}

static void go_on_opening(struct hf_wire *wire, unsigned number, hf_nanos now)
{
    struct hf_wire_line *line = &wire->line[number];
    enum hf_link_state state = hf_link_go_on(line->link);
    if (state == HF_LINK_FAILED) {
        lose_link(wire, number, now);
    } else if (state == HF_LINK_UP) {
        line->up = true;
        line->misses = 0;
        wire->type->line_up(wire->engine, number, now);
        hf_wire_settle(wire);
    }
}

static void read_line(struct hf_wire *wire, unsigned number, hf_nanos now)
{
    struct hf_wire_line *line = &wire->line[number];
    struct hf_link *link = line->link;
    bool more = true;
    line->read_at = wire->read_at = now;
    while (more && line->link == link) { /* another: the engine did not like what it read */
        size_t got;
        if (!hf_link_read(link, wire->bytes, sizeof wire->bytes, &got, &more)) {
            lose_link(wire, number, now);
            return;
        }
        if (!got)
            continue;
        wire->type->line_bytes(wire->engine, number, wire->bytes, got, now);
        hf_wire_settle(wire);
    }
}

void hf_wire_take(struct hf_wire *wire, unsigned number, const char *bytes, size_t room, ssize_t came, hf_nanos now)
{
    struct hf_wire_line *line = &wire->line[number];
    struct hf_link *link = line->link;
    size_t got;
    bool more;
    if (line->corpse) {
        hf_wire_bury(line); /* what came there concerns nobody any more */
        return;
    }
    line->read_at = wire->read_at = now;
    if (!hf_link_dozed(link, came, room, &got, &more)) {
        lose_link(wire, number, now);
        return;
    }
    if (got) {
        wire->type->line_bytes(wire->engine, number, bytes, got, now);
        hf_wire_settle(wire);
    }
    if (more && line->link == link)
        read_line(wire, number, now);
}

void hf_wire_serve(struct hf_wire *wire, unsigned number, hf_nanos now)
{
    struct hf_wire_line *line = &wire->line[number];
    if (line->stillborn) {
        lose(wire, number, HF_UNAVAILABLE, "no memory or descriptor for a connection", now);
    } else if (!line->link) {
        /* Hung up meanwhile, by what came on a line that was served before. */
    } else if (!line->up) {
        go_on_opening(wire, number, now);
    } else {
        if (line->polled & POLLOUT)
            hf_link_flush(line->link);
        read_line(wire, number, now);
    }
}

/* A server closes connections that were idle for long. Whoever asks next should not have to find out by losing his
 * request. */
void hf_wire_look_at_idle(struct hf_wire *wire, hf_nanos now)
{
    for (uint32_t lines = wire->open & ~wire->driven; lines;) {
        unsigned number = hf_wire_pop(&lines);
        const struct hf_wire_line *line = &wire->line[number];
        if (line->link && line->up && now - line->read_at > IDLE_AFTER)
            read_line(wire, number, now);
    }
}

void hf_wire_lines_close(struct hf_wire *wire)
{
    for (unsigned i = 0; i < HF_WIRE_LINES; i++) {
        hf_wire_hang_up(wire, i);
        if (wire->line[i].kick >= 0)
            close(wire->line[i].kick);
    }
}
