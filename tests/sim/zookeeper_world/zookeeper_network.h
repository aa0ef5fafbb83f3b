/* zookeeper_network.h - what travels between clients, servers and their leader.
 *
 * A server forwards writes, greetings and syncs to the leader, and the leader tells all servers
 * what was decided: two streams for each server, in order. Pings of the leader are in the second
 * one; to each a server answers which sessions it has heard of since the last: that restarts the
 * leader's timers of these sessions, and nothing else does. */
#pragma once
#include "zookeeper_model.h"

/* The kinds of SERVER. */
enum { CLOCK, FORWARD, COMMIT, DECIDED, HEARTBEAT, REPORT, GREETED, HEAL, ELECT };

/* In front of the bytes of what travels between servers. */
struct envelope {
    uint64_t epoch, number;
    unsigned member, link;
    uint64_t request; /* FORWARD: number in the link's queue; 0: a greeting */
    int64_t zxid;
    int64_t session;
    int32_t timeout_ms;
};

/* ---- Between servers ---- */

static void send_between(bool to_leader, uint64_t kind, struct envelope envelope, const void *bytes,
                         size_t len)
{
    struct member *m = &store.member[envelope.member];
    struct stream *stream = to_leader ? &m->to_leader : &m->from_leader;
    nanos at = w.now + NANOS_OF_MS(1) / 4 + (nanos)draw(1000000);
    stream->at = at = at > stream->at ? at : stream->at;
    envelope.epoch = m->epoch;
    envelope.number = ++stream->sent;
    char *whole = malloc(sizeof envelope + len);
    if (!whole)
        abort();
    memcpy(whole, &envelope, sizeof envelope);
    if (len)
        memcpy(whole + sizeof envelope, bytes, len);
    schedule((struct occurrence){.at = at,
                                 .what = SERVER,
                                 .who = to_leader,
                                 .serial = kind,
                                 .bytes = whole,
                                 .len = sizeof envelope + len});
}

static struct envelope envelope_of(const struct occurrence *o)
{
    struct envelope envelope;
    memcpy(&envelope, o->bytes, sizeof envelope);
    return envelope;
}

static bool is_lost(const struct envelope *envelope)
{
    const struct member *m = &store.member[envelope->member];
    return envelope->epoch != m->epoch || m->is_cut || !store.has_leader;
}

static nanos held_up_between(const struct occurrence *o)
{
    if (!o->bytes)
        return 0;
    struct envelope envelope = envelope_of(o);
    struct member *m = &store.member[envelope.member];
    const struct stream *stream = o->who ? &m->to_leader : &m->from_leader;
    nanos held = o->who ? m->to_held : m->from_held;
    if (is_lost(&envelope))
        return 0;
    return envelope.number != stream->arrived + 1 && held <= w.now ? w.now + 1 : held;
}

/* ---- The leader ---- */

/* The leader proposes what it has decided; servers hear of it when a majority has it on disk. */
static void propose(void)
{
    nanos at = w.now + NANOS_OF_MS(1) / 4 + (nanos)draw(1000000);
    if (!w.calm && !w.peace && draw(20) == 0)
        at += NANOS_OF_MS(draw(200));
    store.commits_at = at = at > store.commits_at ? at : store.commits_at;
    schedule((struct occurrence){
        .at = at, .what = SERVER, .serial = COMMIT, .who = (unsigned)store.zxid});
}

static void greeted(const struct envelope *to, int64_t session, int32_t timeout_ms)
{
    struct envelope envelope = *to;
    envelope.session = session;
    envelope.timeout_ms = timeout_ms;
    envelope.zxid = store.zxid;
    send_between(false, GREETED, envelope, NULL, 0);
}

static void greet_new_sessions(int64_t zxid)
{
    for (unsigned i = 0; i < store.sessions; i++) {
        struct zk_server_session *session = &store.session[i];
        bool is_due = session->greets_at && session->greets_at <= zxid;
        struct envelope to = {.member = served[session->owner]->member, .link = session->owner};
        if (is_due && !store.member[to.member].is_cut)
            greeted(&to, session->id, session->timeout_ms);
        if (is_due)
            session->greets_at = 0;
    }
}

static void commit(int64_t zxid)
{
    for (unsigned i = 0; i < MEMBERS && store.has_leader; i++)
        if (!store.member[i].is_cut)
            send_between(false, DECIDED, (struct envelope){.member = i, .zxid = zxid}, NULL, 0);
    greet_new_sessions(zxid);
}

static void touch(struct zk_server_session *session)
{
    if (session)
        session->ends_at = w.now + timeout_of(session);
}

static void expire_sessions(void)
{
    for (unsigned i = 0; i < store.sessions && store.has_leader;) {
        struct zk_server_session *session = &store.session[i];
        if (session->ends_at > w.now) {
            i++;
            continue;
        }
        sum.expired++;
        note("session %lld expires", (long long)session->id);
        store.zxid++;
        end_session(session);
        propose();
    }
}

static struct request *request_of(unsigned link, uint64_t number)
{
    struct served *s = served[link];
    for (unsigned i = 0; i < s->count; i++) {
        struct request *r = &s->queue[(s->first + i) % QUEUE];
        if (r->number == number)
            return r;
    }
    return NULL;
}

static void lead_request(const struct envelope *envelope, struct jute_reader from)
{
    static struct jute_writer reply;
    struct zk_server_session *session = session_of(envelope->session);
    int32_t xid = jute_get_int(&from), code = jute_get_int(&from);
    bool has_moved = session && session->owner != envelope->link && planted != PLANT_NOT_MOVED;
    sum.moved += has_moved;
    store.zxid++;
    begin_reply(&reply, xid, store.zxid, 0);
    size_t error_at = reply.len - sizeof(int32_t);
    int32_t error = ZK_OK;
    if (!session)
        error = ZK_SESSION_EXPIRED;
    else if (has_moved)
        error = ZK_SESSION_MOVED;
    else
        error = decide(envelope->session, code, &from, &reply);
    propose();
    jute_end_frame(&reply, 0);
    if (reply.len > REPLY)
        abort();

    struct request *r = request_of(envelope->link, envelope->request);
    if (!r)
        return;
    r->zxid = store.zxid;
    memcpy(r->reply, reply.bytes, r->reply_len = reply.len);
    uint32_t big = htobe32((uint32_t)error);
    memcpy(r->reply + error_at, &big, sizeof big);
}

static void lead_greeting(const struct envelope *envelope)
{
    struct zk_server_session *session = session_of(envelope->session);
    if (!envelope->session) {
        if (store.sessions == SESSIONS)
            abort();
        session = &store.session[store.sessions++];
        *session = (struct zk_server_session){.id = ++store.last_session,
                                              .first_timeout_ms = envelope->timeout_ms,
                                              .greets_at = ++store.zxid};
        propose();
    }
    if (!session) {
        greeted(envelope, 0, 0);
        return;
    }
    session->owner = envelope->link;
    note("session %lld of client %u is on server %u", (long long)session->id,
         links[envelope->link].client, envelope->member);
    session->timeout_ms = envelope->timeout_ms;
    touch(session);
    if (envelope->session)
        greeted(envelope, session->id, session->timeout_ms);
}

static void restart_member(unsigned member);

/* Starts the new leader: it gives each session its whole timeout, and servers that follow it close
 * what clients had opened. */
static void elect(void)
{
    store.has_leader = true;
    for (unsigned i = 0; i < store.sessions; i++) {
        store.session[i].timeout_ms = store.session[i].first_timeout_ms;
        touch(&store.session[i]);
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        if (!store.member[i].is_cut)
            restart_member(i);
    sum.elections++;
    note("server %u is elected", store.leader);
}

/* ---- Servers ---- */

static void hear_of_session(unsigned link)
{
    struct served *s = served[link];
    struct member *m = &store.member[s->member];
    if (!s->session)
        return;
    if (s->member == store.leader && !m->is_cut)
        touch(session_of(s->session));
    for (unsigned i = 0; i < m->touches; i++)
        if (m->touched[i] == s->session)
            return;
    if (m->touches == SESSIONS)
        abort();
    m->touched[m->touches++] = s->session;
}

static void report(unsigned member)
{
    struct member *m = &store.member[member];
    if (m->touches)
        send_between(true, REPORT, (struct envelope){.member = member}, m->touched,
                     m->touches * sizeof *m->touched);
    m->touches = 0;
}

static void lead_report(const struct occurrence *o)
{
    for (size_t at = sizeof(struct envelope); at < o->len; at += sizeof(int64_t)) {
        int64_t id;
        memcpy(&id, o->bytes + at, sizeof id);
        touch(session_of(id));
    }
}

static void answer_frame(unsigned link, const struct jute_writer *frame)
{
    answer(link, frame->bytes, frame->len);
}

static void answer_ping(unsigned link)
{
    static struct jute_writer frame;
    const struct member *m = &store.member[served[link]->member];
    sum.stale_pings += m->is_cut;
    begin_reply(&frame, ZK_XID_PING, m->applied, 0);
    jute_end_frame(&frame, 0);
    answer_frame(link, &frame);
}

static void answer_greeting(unsigned link, int64_t session, int32_t timeout_ms)
{
    static struct jute_writer frame;
    char password[PASSWORD] = {0};
    memcpy(password, &session, sizeof session);
    served[link]->session = session;
    jute_clear(&frame);
    jute_begin_frame(&frame);
    jute_put_int(&frame, 0);
    jute_put_int(&frame, timeout_ms);
    jute_put_long(&frame, session);
    jute_put_bytes(&frame, password, PASSWORD);
    jute_put_bool(&frame, false);
    jute_end_frame(&frame, 0);
    answer_frame(link, &frame);
    if (!session)
        close_by_server(link);
}

static void forget_link(unsigned link)
{
    for (unsigned i = 0; i < lives; i++)
        if (live[i] == link) {
            live[i] = live[--lives];
            return;
        }
}

static void close_by_server(unsigned link)
{
    served[link]->is_over = true;
    forget_link(link);
    struct stream *stream = &links[link].to_client;
    nanos at = w.now + delay();
    schedule((struct occurrence){
        .at = at > stream->at ? at : stream->at, .what = LINK_DOWN, .who = link});
}

static void restart_member(unsigned member)
{
    struct member *m = &store.member[member];
    m->epoch++;
    m->to_leader = m->from_leader = (struct stream){0};
    m->to_held = m->from_held = 0;
    m->is_cut = m->led = false;
    m->touches = 0;
    m->applied = store.zxid;
    m->change = store.changes;
    for (unsigned i = lives; i-- > 0;)
        if (served[live[i]]->member == member)
            close_by_server(live[i]);
}

/* A client begins a session, or takes up one. */
static void receive_greeting(unsigned link, struct jute_reader from)
{
    struct served *s = served[link];
    struct member *m = &store.member[s->member];
    jute_get_int(&from);
    int64_t zxid = jute_get_long(&from);
    int64_t wanted = jute_get_int(&from), session = jute_get_long(&from);
    int64_t least = 2 * store.tick_ms, most = 20 * store.tick_ms;
    wanted = wanted < least ? least : wanted;
    wanted = wanted > most ? most : wanted;
    if (zxid > m->applied) { /* the client has seen more than this server */
        close_by_server(link);
        return;
    }
    for (unsigned i = lives; session && i-- > 0;) {
        const struct served *other = served[live[i]];
        if (live[i] != link && other->member == s->member && other->session == session)
            close_by_server(live[i]);
    }
    if (m->led && session && session <= m->sessions_at) {
        answer_greeting(link, session, (int32_t)wanted);
        return;
    }
    send_between(
        true, FORWARD,
        (struct envelope){
            .member = s->member, .link = link, .session = session, .timeout_ms = (int32_t)wanted},
        NULL, 0);
}

static struct request *add_request(struct served *s)
{
    if (s->count == QUEUE)
        abort();
    struct request *r = &s->queue[(s->first + s->count++) % QUEUE];
    *r = (struct request){.number = ++s->numbers};
    return r;
}

static void receive_request(unsigned link, const struct occurrence *o, struct jute_reader from)
{
    struct served *s = served[link];
    struct jute_reader whole = from;
    int32_t xid = jute_get_int(&from), code = jute_get_int(&from);
    hear_of_session(link);
    if (code == CODE_PING && !store.pings_wait) {
        answer_ping(link);
        return;
    }
    struct request *r = add_request(s);
    r->xid = xid;
    r->code = code;
    r->is_write = is_write(code) && !(planted == PLANT_NO_SYNC && code == CODE_SYNC);
    if (!r->is_write && code != CODE_PING) {
        copy_text(r->path, jute_get_bytes(&from));
        r->watches = jute_get_bool(&from);
    }
    if (r->is_write)
        send_between(
            true, FORWARD,
            (struct envelope){
                .member = s->member, .link = link, .session = s->session, .request = r->number},
            whole.at, (size_t)(o->bytes + o->len - whole.at));
    answer_queue(link);
}

/* ---- What wire_world calls ---- */

static void servers_receive(const struct occurrence *o)
{
    struct served *s = served[o->who];
    if (s->is_over)
        return;
    struct jute_reader from = {.at = o->bytes, .end = o->bytes + o->len};
    jute_get_int(&from); /* each part is one frame */
    if (s->session)
        receive_request(o->who, o, from);
    else
        receive_greeting(o->who, from);
}

static bool servers_link_up(unsigned link)
{
    if (!served[link])
        served[link] = malloc(sizeof *served[link]);
    struct served *s = served[link];
    if (!s)
        abort();
    s->member = (unsigned)(links[link].host - 'a');
    s->session = 0;
    s->is_over = s->has_ended = false;
    s->closed_at = 0;
    s->numbers = 0;
    s->first = s->count = s->watches = 0;
    live[lives++] = link;
    return true;
}

/* The server notices later; what was sent before is received. */
static void servers_link_closed(unsigned link)
{
    if (served[link])
        served[link]->closed_at = w.now;
}

static void forget_closed_links(void)
{
    for (unsigned i = lives; i-- > 0;) {
        nanos closed_at = served[live[i]]->closed_at;
        if (closed_at && w.now > closed_at + NANOS_OF_MS(5000))
            forget_link(live[i]);
    }
}

static nanos servers_hold_up(const struct occurrence *o)
{
    return o->what == SERVER ? held_up_between(o) : 0;
}

static nanos dial_takes(unsigned line)
{
    (void)line;
    return delay();
}

static bool client_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    return send_bytes(ctx, line, bytes, len);
}
