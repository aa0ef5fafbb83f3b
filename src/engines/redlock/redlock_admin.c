/* redlock_admin.c - list, break and diagnose on a quorum.
 *
 * Every server is asked. An entry on fewer than a majority is not a hold: it is left from a former
 * hold, or a try is in progress. Such an entry is shown only if the list is of single servers
 * (LIST_SERVERS). */
#include "redlock.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST NANOS_OF_MS(1000) /* longest wait for replies */
/* shortest wait for servers that are slower than a majority */
#define LEAST_PAUSE NANOS_OF_MS(20)

struct shown {
    struct hf_row row;
    char *texts; /* buffer with name, host and label */
    unsigned servers;
    uint32_t on;    /* servers that have the entry, as bits */
    unsigned first; /* index of the first server that has the entry */
    /* time left on each server of `servers`; -1: it has no end */
    int64_t left[QUORUM_SERVERS_MAX];
};

struct redlock_admin {
    struct admin_op op[QUORUM_SERVERS_MAX];
    struct quorum quorum;
    unsigned open;           /* number of servers that have not answered yet */
    nanos asked_at, over_at; /* over_at: time to stop waiting for more servers */
    bool broken;             /* ADMIN_BREAK: some server had the hold */
    struct shown *shown;
    size_t count, room;
    bool out_of_memory;
    /* last name that every server has reported completely; "": all names */
    char end[HF_NAME_MAX + 1];
    hf_status status[QUORUM_SERVERS_MAX];
    char error_text[QUORUM_SERVERS_MAX][160]; /* errors of servers that did not answer */
};

bool redlock_admin_owns(const struct quorum_op *quorum_op, const struct engine_op *op)
{
    const struct admin_op *one = admin_op_of(op);
    return quorum_op->admin && one >= quorum_op->admin->op &&
           one < quorum_op->admin->op + QUORUM_SERVERS_MAX;
}

connection_set redlock_admin_connections(const struct quorum_op *quorum_op)
{
    connection_set connections = 0;
    for (unsigned i = 0; quorum_op->admin && i < quorum_op->admin->quorum.servers; i++)
        connections |= quorum_op->admin->op[i].op.connections << i * QUORUM_MEMBER_CONNECTIONS;
    return connections;
}

void redlock_admin_free(struct redlock *l, struct quorum_op *quorum_op)
{
    struct redlock_admin *t = quorum_op->admin;
    if (!t)
        return;

    assert(l->answers_due >= t->open);
    for (unsigned i = 0; i < l->servers; i++) {
        redis_wire_engine.forget(l->node[i].redis, &t->op[i].op);
        redlock_servers_drop_replies(l, &t->op[i].op);
    }
    l->answers_due -= t->open;
    for (size_t i = 0; i < t->count; i++)
        free(t->shown[i].texts);
    free(t->shown);
    free(t);
    quorum_op->admin = NULL;
}

/* ---- Rows ---- */

static bool is_same(const struct hf_row *a, const struct hf_row *b)
{
    bool is_same_wait = a->role != HF_WAITER || a->ticket == b->ticket;
    bool is_same_role = a->role == b->role && a->foreign == b->foreign;

    return a->token == b->token && is_same_role && is_same_wait && strcmp(a->name, b->name) == 0;
}

static struct shown *add(struct redlock_admin *t, const struct hf_row *row)
{
    if (t->count == t->room) {
        size_t room = t->room ? t->room * 2 : 32;
        struct shown *more = realloc(t->shown, room * sizeof *more);
        if (!more)
            return NULL;
        t->shown = more;
        t->room = room;
    }

    size_t name = strlen(row->name) + 1, host = strlen(row->host) + 1,
           label = strlen(row->label) + 1;
    struct shown *s = &t->shown[t->count];
    *s = (struct shown){.row = *row, .texts = malloc(name + host + label)};
    if (!s->texts)
        return NULL;

    s->row.name = memcpy(s->texts, row->name, name);
    s->row.host = memcpy(s->texts + name, row->host, host);
    s->row.label = memcpy(s->texts + name + host, row->label, label);
    t->count++;
    return s;
}

/* Notes that the page of one server ends at this name. The whole page is complete only up to the
 * lowest of these names. */
static void end_earlier(struct redlock_admin *t, const char *name)
{
    assert(strlen(name) < sizeof t->end);
    if (!t->end[0] || strcmp(name, t->end) < 0)
        strcpy(t->end, name);
}

/* Adds a row. Two rows of one server are never the same entry, even if they look alike: two
 * waits may have agreed on the same ticket. */
void redlock_admin_row(struct quorum_op *quorum_op, const struct engine_op *op,
                       const struct hf_row *row)
{
    struct redlock_admin *t = quorum_op->admin;
    struct shown *s = NULL;
    bool each = admin_op_of(quorum_op->op)->scope == LIST_SERVERS;
    unsigned server = (unsigned)(admin_op_of(op) - t->op);
    uint32_t bit = UINT32_C(1) << server;
    assert(redlock_admin_owns(quorum_op, op) && server < QUORUM_SERVERS_MAX);
    if (admin_op_of(op)->page && is_end_of_page(row)) {
        end_earlier(t, row->name);
        return;
    }

    for (size_t i = 0; !each && i < t->count && !s; i++)
        if (!(t->shown[i].on & bit) && is_same(&t->shown[i].row, row))
            s = &t->shown[i];
    if (!s && (s = add(t, row)))
        s->first = server;
    t->out_of_memory |= !s;
    if (!s)
        return;

    s->on |= bit;
    s->left[s->servers++] = row->left_ms;
    if (row->depth > s->row.depth)
        s->row.depth = row->depth;
}

static int by_number(uint64_t x, uint64_t y)
{
    return (x > y) - (x < y);
}

/* Sorts holders before waiters, waiters by ticket, past holds newest first. */
static int by_ticket(const void *a, const void *b)
{
    const struct hf_row *x = &((const struct shown *)a)->row, *y = &((const struct shown *)b)->row;
    int names = strcmp(x->name, y->name);
    if (names)
        return names;
    if (x->role != y->role)
        return (x->role == HF_WAITER) - (y->role == HF_WAITER);
    return x->role == HF_WAITER ? by_number(x->ticket, y->ticket) : by_number(y->token, x->token);
}

/* Numbers the places, counting only waiters that a majority knows. */
static void number_places(struct redlock *l, struct redlock_admin *t)
{
    uint32_t place = 0;
    if (t->count)
        qsort(t->shown, t->count, sizeof *t->shown, by_ticket);

    for (size_t i = 0; i < t->count; i++) {
        struct hf_row *row = &t->shown[i].row;
        if (i && strcmp(t->shown[i - 1].row.name, row->name) != 0)
            place = 0;
        if (row->role == HF_WAITER && t->shown[i].servers >= quorum_majority(l->servers))
            row->place = ++place;
    }
}

static int later_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    bool has_x_end = x >= 0, has_y_end = y >= 0;

    if (has_x_end != has_y_end)
        return has_x_end ? 1 : -1;
    return (x < y) - (x > y);
}

/* Returns how long a majority has the hold. A minority may have it for less time: a server that
 * came back late got the time of the last request. */
static int64_t majority_left(const struct redlock *l, struct shown *s)
{
    unsigned majority = quorum_majority(l->servers);
    assert(s->servers >= majority && s->servers <= QUORUM_SERVERS_MAX);

    qsort(s->left, s->servers, sizeof s->left[0], later_first);
    return s->left[majority - 1];
}

static void show_rows(struct redlock *l, struct quorum_op *quorum_op)
{
    struct redlock_admin *t = quorum_op->admin;

    number_places(l, t);
    for (size_t i = 0; i < t->count; i++) {
        struct shown *s = &t->shown[i];
        s->row.servers = s->servers;
        s->row.servers_all = l->servers;
        bool is_beyond = t->end[0] && strcmp(s->row.name, t->end) > 0;
        if (s->servers < quorum_majority(l->servers) || is_beyond)
            continue;
        s->row.left_ms = majority_left(l, s);
        l->host->row(l->host->ctx, quorum_op->op, &s->row);
    }

    if (t->end[0]) {
        struct hf_row end = end_of_page(t->end);
        l->host->row(l->host->ctx, quorum_op->op, &end);
    }
}

/* ---- Each server by itself ---- */

static const struct hf_row *holder_on(const struct redlock_admin *t, unsigned server)
{
    assert(server < QUORUM_SERVERS_MAX);

    for (size_t i = 0; i < t->count; i++)
        if (t->shown[i].first == server && t->shown[i].row.role == HF_HOLDER)
            return &t->shown[i].row;
    return NULL;
}

/* Returns an error text without the name of the server, which is shown beside the text. */
static const char *without_name(const char *text, const char *where)
{
    size_t len = strlen(where);
    bool has_name = strncmp(text, where, len) == 0 && strncmp(text + len, ": ", 2) == 0;

    return has_name ? text + len + 2 : text;
}

static void show_server(struct redlock *l, struct quorum_op *quorum_op, unsigned server)
{
    const struct redlock_admin *t = quorum_op->admin;
    struct node *m = &l->node[server];
    bool answered = t->quorum.vote[server] == VOTE_YES;
    assert(server < l->servers);
    struct hf_server_state server_state = {.size = sizeof server_state,
                                           .where = redis_quorum_member_where(m->redis),
                                           .status = t->status[server],
                                           .holder = answered ? holder_on(t, server) : NULL,
                                           .text = ""};

    server_state.counts = answered && redlock_server_counts(l, server, NULL, t->asked_at);
    if (!server_state.counts)
        server_state.text =
            without_name(answered ? m->error_text : t->error_text[server], server_state.where);
    l->host->server_state(l->host->ctx, quorum_op->op, &server_state);
}

/* ADMIN_DIAGNOSE: reports whether the vote of this server counts, which the server itself cannot
 * know. */
static void find_error(struct redlock *l, struct quorum_op *quorum_op, unsigned server)
{
    const struct redlock_admin *t = quorum_op->admin;
    struct node *m = &l->node[server];
    bool answered = t->quorum.vote[server] == VOTE_YES;
    assert(server < l->servers);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = redis_quorum_member_where(m->redis),
                                 .what = "quorum",
                                 .health = HF_HEALTH_WARN};

    if (answered && redlock_server_counts(l, server, NULL, t->asked_at)) {
        finding.health = HF_HEALTH_OK;
        finding.text = "counts";
        finding.advice = "";
    } else {
        finding.text =
            without_name(answered ? m->error_text : t->error_text[server], finding.where);
        finding.advice = answered ? "restart servers one at a time, max_ttl apart"
                                  : "start it, or repair the way to it";
    }
    l->host->find(l->host->ctx, quorum_op->op, &finding);
}

/* Describes, in words, what is unknown or undone because this server did not answer. */
static void find_silence(struct redlock *l, struct quorum_op *quorum_op, unsigned server)
{
    const struct redlock_admin *t = quorum_op->admin;
    enum admin_verb verb = admin_op_of(quorum_op->op)->verb;
    if (verb == ADMIN_DIAGNOSE) {
        find_error(l, quorum_op, server);
        return;
    }
    if (t->quorum.vote[server] == VOTE_YES)
        return;

    const char *where = redis_quorum_member_where(l->node[server].redis);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = where,
                                 .what = "library",
                                 .health = HF_HEALTH_BAD,
                                 .text = without_name(t->error_text[server], where),
                                 .advice = "start it, or repair the way to it, and try again"};
    if (verb == ADMIN_USES)
        finding.text = LIBRARY_UNKNOWN;
    l->host->find(l->host->ctx, quorum_op->op, &finding);
}

/* ---- Requests ---- */

static void send_to_servers(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    struct redlock_admin *t = quorum_op->admin;
    assert(quorum_op->op->verb == OP_ADMIN);

    for (unsigned i = 0; i < l->servers; i++) {
        t->op[i] = *admin_op_of(quorum_op->op);
        t->op[i].op.engine_state = NULL;
        t->op[i].op.slot = 0;
        t->op[i].op.connections = 0;
        redis_wire_engine.submit(l->node[i].redis, &t->op[i].op, now);
    }
}

/* Reserves room for the replies of all servers. */
static bool expect_all(struct redlock *l)
{
    for (unsigned i = 0; i < l->servers; i++)
        if (!redlock_servers_expect(l)) {
            l->answers_due -= i;
            return false;
        }
    return true;
}

void redlock_admin_submit(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    if (admin_op_of(quorum_op->op)->verb == ADMIN_RESIZE) {
        redlock_op_fail(l, quorum_op, now, HF_UNSUPPORTED, REDLOCK_COUNTS);
        return;
    }

    assert(!quorum_op->admin);
    struct redlock_admin *t = calloc(1, sizeof *t);
    if (!t || !expect_all(l)) {
        free(t);
        redlock_op_fail(l, quorum_op, now, HF_NO_MEMORY, "no memory to list");
        return;
    }

    quorum_op->admin = t;
    quorum_open(&t->quorum, l->servers);
    t->open = l->servers;
    t->asked_at = now;
    t->over_at = now + LONGEST;
    send_to_servers(l, quorum_op, now);
    redlock_op_set_connections(l, quorum_op);
}

/* ---- Replies ---- */

static void say_who_is_silent(const struct redlock *l, const struct redlock_admin *t, char *words,
                              size_t size)
{
    unsigned silent = quorum_count(&t->quorum, VOTE_FAILED);
    int len = snprintf(words, size, "%u of %u servers answered", l->servers - silent, l->servers);

    for (unsigned i = 0; i < l->servers && len < (int)size; i++)
        if (t->quorum.vote[i] == VOTE_FAILED)
            len += snprintf(words + len, size - (size_t)len, "; %s", t->error_text[i]);
}

static void conclude(struct redlock *l, struct quorum_op *quorum_op)
{
    struct redlock_admin *t = quorum_op->admin;
    const struct admin_op *asked = admin_op_of(quorum_op->op);
    bool each = asked->verb == ADMIN_LIST && asked->scope == LIST_SERVERS;
    struct engine_reply reply = {
        .kind = REPLY_RELEASED, .asked_at = t->asked_at, .retry_at = TIME_NEVER};
    char text[900];
    /* all servers have answered, or were given up */
    assert(quorum_count(&t->quorum, VOTE_OPEN) == 0);
    for (unsigned i = 0; admin_is_for_servers(asked->verb) && i < l->servers; i++)
        find_silence(l, quorum_op, i);

    if (t->out_of_memory || (!each && quorum_is_silent(&t->quorum))) {
        say_who_is_silent(l, t, text, sizeof text);
        reply.kind = REPLY_FAILED;
        reply.status = t->out_of_memory ? HF_NO_MEMORY : HF_NO_QUORUM;
        reply.text = t->out_of_memory ? "no memory to list" : text;
    } else if (each) {
        for (unsigned i = 0; i < l->servers; i++)
            show_server(l, quorum_op, i);
    } else if (asked->verb == ADMIN_LIST) {
        show_rows(l, quorum_op);
    } else if (!t->broken) {
        reply.kind = REPLY_NOT_HELD;
    }

    redlock_admin_free(l, quorum_op);
    redlock_op_reply(l, quorum_op, &reply);
}

static enum vote vote_of(const struct engine_reply *reply)
{
    if (reply->kind == REPLY_RELEASED)
        return VOTE_YES;
    return reply->kind == REPLY_NOT_HELD ? VOTE_NO : VOTE_FAILED;
}

/* Returns true if no open reply can change which rows a majority has. */
static bool are_rows_decided(const struct redlock *l, const struct redlock_admin *t)
{
    unsigned majority = quorum_majority(l->servers);

    for (size_t i = 0; i < t->count; i++) {
        unsigned servers = t->shown[i].servers;
        if (servers < majority && servers + t->open >= majority)
            return false;
    }
    return t->open < majority;
}

/* Hurries a list whose rows are decided: the other servers get as much more time as the list has
 * taken so far. */
static void hurry(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    struct redlock_admin *t = quorum_op->admin;
    const struct admin_op *asked = admin_op_of(quorum_op->op);
    bool is_plain_list = asked->verb == ADMIN_LIST && asked->scope != LIST_SERVERS;
    nanos took = now - t->asked_at, pause = took > LEAST_PAUSE ? took : LEAST_PAUSE;

    if (is_plain_list && are_rows_decided(l, t) && now + pause < t->over_at)
        t->over_at = now + pause;
}

void redlock_admin_on_reply(struct redlock *l, struct quorum_op *quorum_op,
                            const struct engine_op *op, const struct engine_reply *reply, nanos now)
{
    struct redlock_admin *t = quorum_op->admin;
    unsigned server = (unsigned)(admin_op_of(op) - t->op);
    enum vote vote = vote_of(reply);
    assert(redlock_admin_owns(quorum_op, op) && t->open > 0);

    t->quorum.vote[server] = vote;
    t->broken |= vote == VOTE_YES;
    if (vote == VOTE_FAILED) {
        t->status[server] =
            reply->kind == REPLY_FAILED && reply->status ? reply->status : HF_UNAVAILABLE;
        snprintf(t->error_text[server], sizeof t->error_text[0], "%s",
                 reply->text ? reply->text : redis_quorum_member_where(l->node[server].redis));
    }

    l->answers_due--;
    if (--t->open == 0)
        conclude(l, quorum_op);
    else
        hurry(l, quorum_op, now);
    redlock_op_set_alarm(l, quorum_op);
}

/* ---- Time ---- */

nanos redlock_admin_due(const struct quorum_op *quorum_op)
{
    return quorum_op->admin ? quorum_op->admin->over_at : TIME_NEVER;
}

void redlock_admin_tick(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    struct redlock_admin *t = quorum_op->admin;
    if (!t || now < t->over_at)
        return;

    for (unsigned i = 0; i < l->servers; i++)
        if (t->quorum.vote[i] == VOTE_OPEN) {
            t->quorum.vote[i] = VOTE_FAILED;
            t->status[i] = HF_UNAVAILABLE;
            snprintf(t->error_text[i], sizeof t->error_text[0], "%.100s: no answer within %lld ms",
                     redis_quorum_member_where(l->node[i].redis),
                     (long long)((t->over_at - t->asked_at) / NANOS_OF_MS(1)));
        }
    conclude(l, quorum_op);
}
