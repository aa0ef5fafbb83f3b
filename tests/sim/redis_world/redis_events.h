/* redis_events.h - what happens, to whom, and what follows from it at once. */
#pragma once
#include "client_close.h"

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
    case READ:
    case ERRAND:
    case ADOPTION:
    case CLOSE:
    case CLOSED:
        return o->who;
    default:
        return PROCESSES;
    }
}

/* Something for a process that is stopped waits until it goes on: bytes in their order, clocks
 * before or after. */
static bool is_postponed(struct occurrence o)
{
    unsigned number = process_of(&o);
    if (number == PROCESSES || w.now >= w.process[number].stalled_until || w.process[number].dead)
        return false;
    o.at = w.process[number].stalled_until;
    if (o.what == TIMER || o.what == WISH || o.what == TICK)
        o.at += (nanos)draw(2);
    schedule(o);
    return true;
}

static void happen_to_link(const struct occurrence *o)
{
    struct link *link = &links[o->who];
    struct process *p = &w.process[link->process];
    nanos local = local_time(p, w.now);
    if (!is_ours(link))
        return;
    if (o->what == LINK_UP && !w.server_up) {
        plan_down(o->who);
        return;
    }
    if (o->what == LINK_UP) {
        accept_link(o->who);
        redis_wire_engine.connection_up(p->engine, link->line, local);
    } else if (o->what == BYTES_DOWN) {
        redis_wire_engine.connection_bytes(p->engine, link->line, o->bytes, o->len, local);
    } else {
        note((int)link->process, "line %u is down", link->line);
        link->client_open = false;
        p->line[link->line] = -1;
        redis_wire_engine.connection_down(p->engine, link->line, HF_UNAVAILABLE, "server: closed",
                                          local);
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
        p->tick_at = TIME_NEVER;
        break;
    case READ:
        break;
    case TIMER:
        if (o->serial != w.attempt[o->who].timer || w.attempt[o->who].life != p->life)
            return;
        if (w.attempt[o->who].adopts)
            refuse_adoption(o->who);
        else
            apply(o->who, (struct claim_event){.in = INPUT_TIMER});
        break;
    case WISH:
        if (w.attempt[o->who].life != p->life)
            return;
        grant_wish(o->who, (enum claim_input)o->wish);
        break;
    case NEXT_ROUND:
        next_round(o->who);
        break;
    case ADOPTION:
        adopt(number, o->serial);
        break;
    case CLOSE:
        close_client(number);
        break;
    case CLOSED:
        if (p->closing)
            end_client(number);
        return;
    default:
        send_errand(number, (enum admin_verb)o->wish);
    }
    settle(p);
}

static void stall(unsigned number)
{
    nanos until = w.now + draw_time(3 * w.ttl);
    if (w.process[number].dead || !(w.options.faults & FAULT_STALL))
        return;
    tell_fault(H_PAUSED, number, until);
    tally.stalls++;
    note((int)number, "is stopped until %.1f", (double)until / 1e6);
    w.process[number].stalled_until = later(w.process[number].stalled_until, until);
}

static void kill_one(unsigned number)
{
    bool heard = draw(4) > 0, follows = draw(2), steps = !draw(4);
    nanos after = draw_time(2 * w.ttl);
    if (w.process[number].dead || !(w.options.faults & FAULT_KILL))
        return;
    tally.kills++;
    note((int)number, "dies");
    kill_process(number, heard);
    if (steps)
        schedule((struct occurrence){
            .at = w.now + after / 2, .what = SERVER_FAULT, .who = FAULT_BIT_STEP});
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
    case SUSPEND:
        suspend(o->who);
        break;
    case JUMP:
        jump(o->who);
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
            w.server_tick = TIME_NEVER;
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
    case SERVER_RIGHTS:
        note(-1, "forbids nothing any more");
        model_forbid(model, NULL);
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
