/* redis_network.h - connections: two streams of bytes with delays, which break at any byte, are
 * heard of late or never, and go on carrying what was sent when one side has long turned away. And
 * the way back from the server: what its model has to say to anybody leaves here. */
#pragma once
#include "redis_world.h"

/* Bytes under way. Most are few, and lie there until the schedule ends. Every connection begins
 * with the texts of the scripts: those are kept once and for all, else each schedule would drive
 * everything else out of the processor's cache. */
static struct said {
    char bytes[LONG_MOST];
    size_t len;
} said_often[OFTEN];
static unsigned said_count;

static const char *what_was_said(const void *bytes, size_t len)
{
    for (unsigned i = 0; i < said_count; i++)
        if (said_often[i].len == len && memcmp(said_often[i].bytes, bytes, len) == 0)
            return said_often[i].bytes;
    if (said_count == OFTEN)
        return NULL;
    memcpy(said_often[said_count].bytes, bytes, len);
    said_often[said_count].len = len;
    return said_often[said_count++].bytes;
}

static const char *keep_bytes(const void *bytes, size_t len)
{
    const char *said = len >= LONG && len <= LONG_MOST ? what_was_said(bytes, len) : NULL;
    if (said)
        return said;
    if (bytes_used + len > BYTES_ROOM) {
        fails("too many bytes are under way");
        return NULL;
    }
    bytes_used += len;
    return memcpy(bytes_room + bytes_used - len, bytes, len);
}

static nanos later(nanos a, nanos b)
{
    return a > b ? a : b;
}

static void plan_server_tick(void)
{
    int64_t at_us = model_next_event(model);
    nanos at =
        at_us == MODEL_NEVER ? TIME_NEVER : later(w.now, (at_us - w.server_offset_us) * 1000);
    if (at == w.server_tick)
        return;
    w.server_tick = at;
    w.server_serial++;
    if (at != TIME_NEVER)
        schedule((struct occurrence){.at = at, .what = SERVER_WAKES, .serial = w.server_serial});
}

/* ---- Breaking ---- */

/* The client hears that the link is closed. */
static void plan_down(unsigned number)
{
    struct link *link = &links[number];
    link->down_last = later(link->down_last, w.now + travel());
    schedule((struct occurrence){.at = link->down_last, .what = LINK_DOWN, .who = number});
}

/* The server hears it, behind all that is under way to it. */
static void plan_closed(unsigned number)
{
    struct link *link = &links[number];
    link->up_last = later(link->up_last, w.now + travel());
    schedule((struct occurrence){.at = link->up_last, .what = LINK_CLOSED, .who = number});
}

/* What becomes of a piece that is to be sent: its length may shrink, and the way swallows all that
 * follows. */
static uint32_t perhaps_break(unsigned number, bool up, uint32_t len)
{
    struct link *link = &links[number];
    bool cut = strikes(FAULT_CUT, 8), half = strikes(FAULT_HALF, 4);
    uint32_t kept = draw(len + 1), heard = draw(4);
    if (!cut && !half)
        return len;
    disturb(link->process);
    if (half) {
        tally.halves++;
        *(up ? &link->up_dead : &link->down_dead) = true;
        note((int)link->process, "line %u is half open: %s is lost", link->line,
             up ? "what it sends" : "what it hears");
        return kept;
    }
    tally.cuts++;
    link->up_dead = link->down_dead = true;
    note((int)link->process, "line %u breaks after %u of %u bytes", link->line, kept, len);
    return kept | heard << 30;
}

static void break_heard(unsigned number, uint32_t heard)
{
    if (heard != 1)
        plan_down(number);
    if (heard != 2)
        plan_closed(number);
}

static nanos delay(unsigned p, bool wakes)
{
    bool late = strikes(FAULT_LATE, w.rough && wakes ? 80 : 12);
    nanos extra = draw_time(draw(2) ? 3 * w.ttl : w.ttl / 50);
    if (!late)
        return travel();
    tally.lates++;
    disturb(p);
    note((int)p, "bytes take %lld ms", (long long)(extra / NANOS_OF_MS(1)));
    return extra;
}

enum { LAG_STEP_MS = 5 };

static void carry(unsigned number, bool up, const void *bytes, uint32_t len)
{
    struct link *link = &links[number];
    nanos *last = up ? &link->up_last : &link->down_last;
    nanos takes = delay(link->process, link->line == CONNECTION_NOTIFY),
          again = draw_time(w.calm ? NANOS_OF_MS(LAG_STEP_MS)
                                   : w.ttl); /* until it is sent again after a parting */
    nanos parted_until = w.process[link->process].parted_until;
    if (w.now < parted_until)
        takes = parted_until - w.now + again;
    bool dead = up ? link->up_dead : link->down_dead;
    uint32_t fate = perhaps_break(number, up, len), kept = fate & (UINT32_MAX >> 2),
             heard = fate >> 30;
    if (dead)
        return;
    const char *copy = kept ? keep_bytes(bytes, len) : NULL;
    if (copy) {
        *last = later(*last, w.now + takes);
        schedule((struct occurrence){.at = *last,
                                     .what = up ? BYTES_UP : BYTES_DOWN,
                                     .who = number,
                                     .bytes = copy,
                                     .len = kept});
    }
    if (heard)
        break_heard(number, heard);
}

/* Its last words: the client hears at once that the line is gone, and they reach the server all the
 * same, some time. */
static void carry_last(unsigned number, const void *bytes, uint32_t len)
{
    struct link *link = &links[number];
    nanos extra = draw_time(draw(2) ? 3 * w.ttl : 2 * w.op_timeout);
    tally.lates++;
    disturb(link->process);
    note((int)link->process, "line %u breaks, and what it said last takes %lld ms", link->line,
         (long long)(extra / NANOS_OF_MS(1)));
    link->up_last = later(link->up_last, w.now + extra);
    carry(number, true, bytes, len);
    link->up_dead = link->down_dead = true;
    plan_down(number);
    plan_closed(number);
}

/* ---- The server's side ---- */

static unsigned link_of[MAX_LINKS]; /* the link of each connection of the model */

/* All that the server has to say to anybody. */
static void let_server_speak(void)
{
    for (int c; (c = model_ready(model)) >= 0;) {
        size_t len;
        const char *bytes = model_take(model, (unsigned)c, &len);
        carry(link_of[c], false, bytes, (uint32_t)len);
    }
    plan_server_tick();
}

static void set_server_time(void)
{
    model_time_set(model, server_us());
    model_advance(model);
}

static void accept_link(unsigned number)
{
    struct link *link = &links[number];
    link->connection = model_connect(model);
    link->server_open = true;
    link_of[link->connection] = number;
}

static void server_closes(unsigned number)
{
    struct link *link = &links[number];
    if (link->server_open)
        model_disconnect(model, link->connection);
    link->server_open = false;
    plan_server_tick();
}

/* ---- The client's side ---- */

static bool is_ours(const struct link *link)
{
    const struct process *p = &w.process[link->process];
    return !p->dead && link->life == p->life && link->client_open;
}

static void open_link(unsigned process, unsigned line)
{
    struct process *p = &w.process[process];
    bool lost = strikes(FAULT_HALF, 20) || w.now < p->parted_until;
    nanos takes = travel() + travel();
    tally.dials++;
    if (w.links == MAX_LINKS) {
        fails("process %u dials without end", process);
        return;
    }
    unsigned number = w.links++;
    links[number] =
        (struct link){.process = process, .line = line, .life = p->life, .client_open = true};
    links[number].up_last = links[number].down_last = w.now + takes;
    p->line[line] = (int)number;
    note((int)process, "dials line %u%s", line, lost ? ", and nobody answers" : "");
    if (lost)
        disturb(process);
    else
        schedule((struct occurrence){.at = w.now + takes, .what = LINK_UP, .who = number});
}

/* The process has closed it, or died. What it sent is still under way. */
static void close_link(unsigned number, bool heard)
{
    struct link *link = &links[number];
    link->client_open = false;
    if (heard && !link->up_dead && w.now >= w.process[link->process].parted_until)
        plan_closed(number);
}
