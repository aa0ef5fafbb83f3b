/* etcd_events.h - what the servers do of themselves, and what befalls them. */
#pragma once
#include "etcd_network.h"

#include "sim/wire_world/wire_events.h"

/* ---- Faults ---- */

/* The attempts on that lease do not count any more: a grant may be on its way to one of them. */
static void tell_broken(int64_t lease)
{
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        struct attempt *a = &w.client[i / SLOTS].attempt[i % SLOTS];
        const struct etcd_entry *entry = a->alive ? a->op.engine_state : NULL;
        const struct pair *pair = NULL;
        for (unsigned k = 0; entry && k < store.pairs; k++)
            if (memmem(store.pair[k].key, store.pair[k].key_len, entry->id, ETCD_ID_TEXT))
                pair = &store.pair[k];
        if (pair && pair->lease == lease)
            tell(a,
                 (struct history_event){.what = H_BROKEN, .owner = a->id, .token = a->claim.token});
    }
}

/* The cluster ends a lease that was renewed. With lock_delay that excuses nothing. */
static void revoke_wrongly(void)
{
    if (!store.leases)
        return;
    struct lease *lease = &store.lease[draw(store.leases)];
    bool is_orphan = store.delays && lease->seconds == LOCK_DELAY_MS / 1000;
    if (is_orphan)
        return; /* a second fault within the delay of the first */
    if (!store.delays)
        tell_broken(lease->id);
    sum.revokes++;
    end_lease(lease);
}

/* A member goes on following a leader that was replaced. */
static void lag_member(unsigned client)
{
    nanos until = w.now + NANOS_OF_MS(200 + draw(3000));
    for (unsigned line = 0; line < CONNECTIONS; line++) {
        int number = w.client[client].link[line];
        if (number < 0)
            continue;
        members[number].stale_until = until;
        members[number].term = store.term;
    }
    elect();
    sum.elections++;
}

static void servers_fail(void)
{
    switch (draw(4)) {
    case 0:
        elect();
        sum.elections++;
        break;
    case 1:
        revoke_wrongly();
        break;
    default:
        lag_member(draw(CLIENTS));
    }
}

/* ---- Schedules ---- */

static void servers_begin(enum plant plant)
{
    memset(&store, 0, sizeof store);
    store.revision = store.term = 5;
    bool is_about_delay = plant == PLANT_NO_GUARD || plant == PLANT_SHORT_DELAY;
    w.calm |= plant == PLANT_NO_LOOK;
    store.delays = is_about_delay || (plant == PLANT_NONE && !w.calm && draw(3) == 0);
    if (store.delays)
        w.kind = HF_EXCLUSIVE;
    if (plant == PLANT_OLD_TOKEN || plant == PLANT_NO_BAR || plant == PLANT_NO_CHANGES)
        w.kind = HF_READ;
    if (plant == PLANT_OLD_CAPACITY)
        w.kind = HF_SEMAPHORE;
    store.capacity = PERMITS;
    schedule((struct occurrence){.at = w.now, .what = SERVER});
}

static void client_url(char *text, size_t size)
{
    snprintf(text, size, "etcd://a,b,c/s%s", store.delays ? "?lock_delay=4s" : "");
}

static void client_wishes(struct engine_op *op)
{
    (void)op;
}

/* Without a death, keys are gone before their leases could have ended: they were deleted. */
static int64_t servers_rest_ms(bool has_died)
{
    return has_died ? 6000 : 800;
}

static void servers_check_rest(void)
{
    for (unsigned i = 0; i < store.pairs && !w.flaw[0] && !store.delays; i++)
        if (!memmem(store.pair[i].key, store.pair[i].key_len, "/.s/", 4) &&
            !memmem(store.pair[i].key, store.pair[i].key_len, "/.m/", 4))
            flaw("the key %.*s is left", (int)store.pair[i].key_len, store.pair[i].key);
}

/* ---- Connections ---- */

static bool client_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    (void)ctx, (void)line, (void)bytes, (void)len; /* http2_call() sends */
    return true;
}

/* A watch that begins late misses what was released before. */
static nanos dial_takes(unsigned line)
{
    bool is_late = line == CONNECTION_WATCHES && w.calm;
    return is_late ? NANOS_OF_MS(draw(400)) : delay();
}

static bool servers_link_up(unsigned link)
{
    members[link] = (struct member){0};
    return true;
}

static void servers_link_closed(unsigned link)
{
    end_watches(link);
}

static void servers_receive(const struct occurrence *o)
{
    struct frame frame;
    memcpy(&frame, o->bytes, sizeof frame);
    serve(o->who, frame.stream, frame.text,
          pb_read(o->bytes + sizeof frame, o->len - sizeof frame));
}

/* A member that follows an old leader answers nothing but keepalives. */
static nanos servers_hold_up(const struct occurrence *o)
{
    struct frame frame;
    if (o->what != TO_SERVER)
        return 0;
    memcpy(&frame, o->bytes, sizeof frame);
    return strstr(frame.text, "KeepAlive") ? 0 : members[o->who].stale_until;
}

static void servers_happen(const struct occurrence *o)
{
    (void)o;
    expire_leases();
    schedule((struct occurrence){.at = w.now + NANOS_OF_MS(300), .what = SERVER});
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    const struct etcd_entry *entry = op->engine_state;
    bool is_yes = reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED;
    if (planted == PLANT_REPLY_TIME && is_yes)
        reply->asked_at = local_time(c);
    if (planted == PLANT_OLD_TOKEN && reply->kind == REPLY_GRANTED && op->kind == HF_READ && entry)
        reply->token = entry->created;
}

static void spoil_engine(struct client *c)
{
    const struct etcd *e = c->engine;
    for (struct session *s = e->sessions; s && planted == PLANT_NO_VERIFY; s = s->next)
        session_prove(s);
}
