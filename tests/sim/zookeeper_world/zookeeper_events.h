/* zookeeper_events.h - what the servers do of themselves, and what befalls them. */
#pragma once
#include "zookeeper_network.h"

#include "sim/wire_world/wire_events.h"

#define LOCK "/s/job"

/* ---- Time ---- */

static void plan(uint64_t kind, unsigned who, nanos after)
{
    schedule((struct occurrence){.at = w.now + after, .what = SERVER, .who = who, .serial = kind});
}

/* The leader looks for sessions that have ended, and for containers that nobody uses. */
static void tick_clock(void)
{
    expire_sessions();
    forget_closed_links();
    struct node *lock = node_now(LOCK);
    bool collects = store.has_leader && lock && !has_children(LOCK) && draw(40) == 0;
    if (collects) {
        sum.collected++;
        store.zxid++;
        remove_node(lock);
        propose();
    }
    plan(CLOCK, 0, NANOS_OF_MS(50));
}

/* The leader pings its followers every half tick. */
static void beat(void)
{
    for (unsigned i = 0; i < MEMBERS && store.has_leader; i++)
        if (!store.member[i].is_cut)
            send_between(false, HEARTBEAT, (struct envelope){.member = i}, NULL, 0);
    plan(HEARTBEAT, 0, NANOS_OF_MS(store.tick_ms) / 2);
}

static void arrive(const struct occurrence *o)
{
    struct envelope envelope = envelope_of(o);
    struct member *m = &store.member[envelope.member];
    if (is_lost(&envelope))
        return;
    (o->who ? &m->to_leader : &m->from_leader)->arrived++;
    struct jute_reader rest = {.at = o->bytes + sizeof envelope, .end = o->bytes + o->len};
    expire_sessions();
    switch (o->serial) {
    case FORWARD:
        if (envelope.request)
            lead_request(&envelope, rest);
        else
            lead_greeting(&envelope);
        break;
    case REPORT:
        lead_report(o);
        break;
    case DECIDED:
        carry_out(envelope.member, envelope.zxid);
        break;
    case GREETED:
        if (!served[envelope.link]->is_over)
            answer_greeting(envelope.link, envelope.session, envelope.timeout_ms);
        break;
    default:
        report(envelope.member);
    }
}

static void servers_happen(const struct occurrence *o)
{
    if (o->bytes)
        arrive(o);
    else if (o->serial == CLOCK)
        tick_clock();
    else if (o->serial == HEARTBEAT)
        beat();
    else if (o->serial == COMMIT)
        commit(o->who);
    else if (o->serial == ELECT)
        elect();
    else
        restart_member(o->who);
}

/* ---- Faults ---- */

static bool is_some_cut(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        if (store.member[i].is_cut)
            return true;
    return false;
}

/* Messages between a follower and its leader come late, in one direction or both. */
static void lag(void)
{
    unsigned member = (store.leader + 1 + draw(MEMBERS - 1)) % MEMBERS, both = draw(3);
    struct member *m = &store.member[member];
    nanos until = w.now + NANOS_OF_MS(draw(draw(3) ? 300 : 3000));
    if (both != 1 && until > m->to_held)
        m->to_held = until;
    if (both != 2 && until > m->from_held)
        m->from_held = until;
    sum.lags++;
    note("server %u is held up: to its leader %d, from it %d, until %.3f", member, both != 1,
         both != 2, (double)(until - FIRST_DAY) / 1e6);
}

/* A server loses its connection to the others. It serves its clients until it gives up. */
static void cut_off(unsigned member)
{
    struct member *m = &store.member[member];
    if (is_some_cut() || !store.has_leader)
        return;
    m->is_cut = true;
    note("server %u is cut off%s", member, member == store.leader ? ", the leader" : "");
    m->led = member == store.leader;
    m->sessions_at = store.last_session;
    plan(HEAL, member, NANOS_OF_MS(300 + draw(6000)));
    if (!m->led) {
        sum.cutoffs++;
        return;
    }
    sum.deposed++;
    store.has_leader = false;
    store.leader = (member + 1 + draw(MEMBERS - 1)) % MEMBERS;
    plan(ELECT, 0, NANOS_OF_MS(200 + draw(1500)));
}

static void servers_fail(void)
{
    switch (draw(8)) {
    case 0:
    case 1:
        lag();
        break;
    case 2:
    case 3:
        cut_off((store.leader + 1) % MEMBERS);
        break;
    case 4:
        cut_off(store.leader);
        break;
    case 5:
        if (store.has_leader)
            elect();
        break;
    default: {
        unsigned member = draw(MEMBERS);
        bool can_restart = member != store.leader && !store.member[member].is_cut;
        sum.restarts += can_restart;
        if (can_restart)
            restart_member(member);
    }
    }
}

/* ---- Schedules ---- */

static void servers_begin(enum plant plant)
{
    static const struct jute_bytes nothing;
    bool is_about_watches = plant == PLANT_EARLY_WATCH || plant == PLANT_LOST_WATCH;
    bool is_about_numbers = plant == PLANT_SEQUENCE_WRAP || plant == PLANT_NUMBER_TOKEN;
    lives = store.nodes = store.sessions = 0;
    store.changes = 0;
    store.commits_at = 0;
    store.zxid = 5;
    store.last_session = 100;
    memset(store.member, 0, sizeof store.member);
    store.leader = draw(MEMBERS);
    store.has_leader = true;
    store.tick_ms = draw(2) ? 100 : 200;
    store.pings_wait = draw(2);
    w.calm |= is_about_watches;
    if (is_about_numbers || draw(2)) {
        add_node("/s", nothing, 0);
        struct node *lock = add_node(LOCK, nothing, 0);
        bool is_near_end = is_about_numbers || draw(2);
        lock->next_number = is_near_end ? INT32_MAX - (int32_t)draw(30) : (int32_t)draw(100);
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        store.member[i].applied = store.zxid;
    plan(CLOCK, 0, 0);
    plan(HEARTBEAT, 0, 0);
}

static void client_url(char *text, size_t size)
{
    snprintf(text, size, "zookeeper://a,b,c/s");
}

/* Sessions of this ensemble last 20 ticks at most. */
static void client_wishes(struct engine_op *op)
{
    int64_t most = store.tick_ms * 15;
    op->ttl_ms = op->ttl_ms < most ? op->ttl_ms : most;
    if (draw(4) == 0 || planted == PLANT_TRUST_SENT)
        op->ttl_ms = 300 + draw(700);
    op->detached = draw(8) == 0;
}

static int64_t servers_rest_ms(bool has_died)
{
    return has_died ? 20 * store.tick_ms + 4000 : 800;
}

static void servers_check_rest(void)
{
    for (unsigned i = 0; i < store.nodes && !w.flaw[0]; i++)
        if (store.node[i].to == INT64_MAX && is_child(store.node[i].path, LOCK))
            flaw("the node %s is left", store.node[i].path);
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    const struct zk_entry *entry = op->engine_state;
    bool is_yes = reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED;
    if (planted == PLANT_REPLY_TIME && is_yes)
        reply->asked_at = local_time(c);
    if (planted == PLANT_NUMBER_TOKEN && is_yes && entry)
        reply->token = (uint64_t)((int64_t)entry->sequence - INT32_MIN) + 1;
}

static void believe(struct zk_session *s, nanos from)
{
    session_keep(&s->base, from, NANOS_OF_MS(s->timeout_ms));
    session_prove(&s->base);
    s->written_at = from > s->written_at ? from : s->written_at;
}

static void spoil_engine(struct client *c)
{
    const struct zk *zk = c->engine;
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        if (s->state != SESSION_UP || !s->id)
            continue;
        if (planted == PLANT_TRUST_PINGS && !s->pinged_at && s->touches)
            believe(s, s->sent_at);
        if (planted == PLANT_TRUST_READS && s->answered_at > s->greeted_at)
            believe(s, s->answered_at);
        if (planted == PLANT_TRUST_GREETING)
            believe(s, s->greeted_at);
        bool is_unheard = s->sent_at > s->greeted_at && planted == PLANT_TRUST_SENT;
        if (is_unheard)
            zk_session_touch(s, s->sent_at, s->sent_at);
        for (uint32_t i = 0; planted == PLANT_TRUST_WRITES && i < s->calls.count; i++) {
            struct zk_call *call = pipeline_at(&s->calls, i);
            call->touched_at = call->touched_at ? call->flight.sent_at : 0;
        }
    }
}

/* The linker sends the engine's calls of these here. */

uint64_t __real_zk_place_arrival(int32_t sequence, int32_t from);
uint64_t __wrap_zk_place_arrival(int32_t sequence, int32_t from);
uint64_t __wrap_zk_place_arrival(int32_t sequence, int32_t from)
{
    return planted == PLANT_SEQUENCE_WRAP ? (uint64_t)((int64_t)sequence - INT32_MIN)
                                          : __real_zk_place_arrival(sequence, from);
}

void __real_zk_lock_list(struct zk_lock *lock, nanos now);
void __wrap_zk_lock_list(struct zk_lock *lock, nanos now);
void __wrap_zk_lock_list(struct zk_lock *lock, nanos now)
{
    bool is_new = lock->session->xid == 0; /* nothing was sent on this connection */
    if (planted != PLANT_LOST_WATCH || !is_new)
        __real_zk_lock_list(lock, now);
}

bool __real_zk_list_find(struct zk_entry *entry, struct jute_reader *body);
bool __wrap_zk_list_find(struct zk_entry *entry, struct jute_reader *body);
bool __wrap_zk_list_find(struct zk_entry *entry, struct jute_reader *body)
{
    return planted != PLANT_ORPHAN && __real_zk_list_find(entry, body);
}
