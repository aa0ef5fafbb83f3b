/* cluster_member.c - one primary of a cluster: redirects, requests that are sent again later, and
 * ops that move from one server to another.
 *
 * A refused request has done nothing, so it may be sent elsewhere. But if another request of the
 * same op is already in flight, the repeated request would be executed after that one; then it
 * fails instead. */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REDIRECTS_MAX = 5, DOUBLINGS_MAX = 6 };
/* pause after a refusal because the slot is being moved */
#define PAUSE_OF_MOVE NANOS_OF_MS(2)
#define PAUSE_OF_MOVE_MAX NANOS_OF_MS(100)
/* pause after a refusal because no server has the slot */
#define PAUSE_OF_DOWN NANOS_OF_MS(50)
#define PAUSE_OF_DOWN_MAX NANOS_OF_MS(500)

/* ---- Joining ---- */

unsigned redis_cluster_connections(const struct settings *settings, bool polls)
{
    bool is_durable = redis_wants_replicas(settings) || settings->value[SETTING_FSYNC];
    if (is_durable)
        return CONNECTIONS;
    return polls ? CONNECTION_COMMANDS + 1 : CONNECTION_NOTIFY + 1;
}

void redis_cluster_join(void *redis, const struct redis_cluster_place *place)
{
    struct redis *r = redis;
    assert(r->follow.is_on && !r->ops && !r->known_ops.count);
    assert(place->index < UINT16_MAX && place->is_needed && place->redirected);
    r->cluster =
        (struct cluster_membership){.is_on = true, .place = *place, .resend_at = TIME_NEVER};
    snprintf(r->box, sizeof r->box, "%c%s", place->polls ? 'c' : 's', r->self);
}

void redis_cluster_set_first_connection(void *redis, unsigned number)
{
    struct redis *r = redis;
    assert(r->cluster.is_on && !r->ops);
    r->cluster.place.first_connection = number;
}

void redis_cluster_set_probe(void *redis, unsigned slot)
{
    struct redis *r = redis;
    assert(r->cluster.is_on && slot < CLUSTER_SLOTS);
    r->cluster.probe_slot = slot;
}

/* ---- Ops ---- */

unsigned redis_cluster_slot(const char *prefix, const char *name, size_t len)
{
    char key[REDIS_KEY_MAX];
    size_t before = strlen(prefix);
    assert(before + len < sizeof key);
    memcpy(key, prefix, before);
    memcpy(key + before, name, len);
    return redis_slot_of(key, before + len);
}

int redis_cluster_home(const struct engine_op *op)
{
    const struct resting_op *resting = op->engine_state;
    return resting ? resting->home : -1;
}

bool redis_cluster_is_in_flight(const struct engine_op *op)
{
    const struct redis_op *a = redis_active_op(op);
    return a && redis_op_is_in_flight(a);
}

bool redis_cluster_has_ops(const void *redis)
{
    return ((const struct redis *)redis)->known_ops.count > 0;
}

static struct resting_op *resting_of(const struct engine_op *op)
{
    return op->engine_state;
}

/* Makes the op known to the engine `to`, without changing the engine `from`. */
static bool make_known(struct redis *to, struct engine_op *op, bool is_active)
{
    void *before = op->engine_state;
    op->engine_state = NULL;
    bool is_made = is_active ? redis_op_find_or_make(to, op) != NULL
                             : op_table_add(&to->known_ops, op, sizeof(struct resting_op)) != NULL;
    if (is_made)
        return true;
    if (op->engine_state) /* the first part was allocated, so the op is known */
        op_table_drop(&to->known_ops, op->engine_state);
    op->engine_state = before;
    return false;
}

/* Returns a server number that `to` does not have and will not get soon. It stands for "another
 * server": the next reply that confirms the hold is then known to come from another clock. */
static uint8_t number_of_another(const struct redis *to, uint8_t confirmed_by)
{
    if (!confirmed_by)
        return 0;
    return to->server_number > 1 ? (uint8_t)(to->server_number - 1) : UINT8_MAX;
}

/* Copies what is known of the op to its new struct. An ACQUIRE in flight counts as cut: nobody will
 * read its reply any more, but it may still be executed. */
static void carry(struct redis *to, struct redis_op *b, const struct redis_op *a)
{
    b->sent = a->sent;
    b->cut = a->cut || a->acquiring;
    b->confirmed_by = number_of_another(to, a->confirmed_by);
    b->first_ttl_ms = a->first_ttl_ms;
    b->acknowledged = a->acknowledged;
    b->arrival_number = a->arrival_number;
    b->released = a->released;
    b->asking = a->asking;
    b->redirects = a->redirects;
    b->refusals = a->refusals;
    b->refused_at = a->refused_at;
    b->floor = a->floor;
    b->sent_op = a->sent_op;
    assert(b->op == a->op && to->ops == b);
}

bool redis_cluster_move(void *from_redis, void *to_redis, struct engine_op *op, nanos now)
{
    struct redis *from = from_redis, *to = to_redis;
    struct resting_op *resting = resting_of(op), rested = *resting;
    struct redis_op *active = resting->known.active, a;
    bool is_active = active != NULL;
    assert(from != to && resting->home == from->cluster.place.index);
    if (is_active)
        a = *active;
    to->cluster.place.is_needed(to->cluster.place.ctx);
    if (!make_known(to, op, is_active))
        return false;

    struct resting_op *moved = resting_of(op);
    op->engine_state = resting;
    redis_op_forget(from, op);
    redis_ops_rest(from);
    op->engine_state = moved;
    moved->home = to->cluster.place.index;
    to->round = from->round > to->round ? from->round : to->round;
    to->last_now = now;
    if (!is_active) {
        moved->acknowledged = rested.acknowledged;
        moved->first_ttl_ms = rested.first_ttl_ms;
        moved->sent = rested.sent;
        moved->cut = rested.cut;
        moved->confirmed_by = number_of_another(to, rested.confirmed_by);
        return true;
    }

    struct redis_op *b = moved->known.active;
    carry(to, b, &a);
    if (a.unsent) {
        redis_op_submit(to, b, now);
        if (to->host->rerouted)
            to->host->rerouted(to->host->ctx, op);
    }
    redis_ops_rest(to);
    return true;
}

/* ---- Strays ---- */

static void set_stray(struct redis *r, struct redis_op *a, unsigned to)
{
    r->cluster.strays += !a->stray_to;
    a->stray_to = (uint16_t)(to + 1);
    a->unsent = true;
}

/* Returns true if the op is about one lock. */
static bool has_slot(const struct redis_op *a)
{
    if (a->sent_op.verb != OP_ADMIN)
        return true;
    const struct admin_op *asked = admin_op_of(a->op);
    bool lists = asked->verb == ADMIN_LIST && asked->scope == LIST_PREFIX;
    return !lists && !admin_is_for_servers(asked->verb);
}

void redis_cluster_review(void *redis, const uint16_t owner[CLUSTER_SLOTS])
{
    struct redis *r = redis;
    for (struct redis_op *a = r->ops; a; a = a->next) {
        if (!has_slot(a) || redis_op_is_in_flight(a))
            continue;
        uint16_t to = owner[redis_cluster_slot(r->prefix, a->sent_op.name, a->sent_op.name_len)];
        if (to == r->cluster.place.index)
            continue;

        if (a->unsent)
            set_stray(r, a, to);
        else if (a->queued)
            redis_op_reply(r, a,
                           &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
    }
    redis_ops_rest(r);
}

/* Moves them in the order in which they were submitted. The newest op is first in the list, so
 * begin at the end. */
void redis_cluster_move_strays(void *redis, void *const *members, nanos now)
{
    struct redis *r = redis;
    if (!r->cluster.strays)
        return;

    struct redis_op *last = r->ops;
    while (last && last->next)
        last = last->next;
    for (struct redis_op *a = last, *before; a; a = before) {
        before = a->prev;
        void *to = a->stray_to ? members[a->stray_to - 1] : NULL;
        if (!a->stray_to)
            continue;
        a->stray_to = 0;
        if (!to || to == r || !redis_cluster_move(r, to, a->op, now))
            /* it stays here, and redis_cluster_tick() sends it again */
            a->resend_at = now;
    }
    r->cluster.strays = 0;
    r->cluster.resend_at = now;
}

/* ---- Redirects ---- */

struct redirect {
    enum redis_redirect how;
    unsigned slot; /* the slot that MOVED or ASK names */
    char host[256], port[8];
};

/* Reads the target of "MOVED 3999 127.0.0.1:6381" or "ASK 3999 :6381". */
static bool read_target(const char *words, struct redirect *redirect)
{
    char target[300];
    if (sscanf(words, "%*s %u %299s", &redirect->slot, target) != 2)
        return false;
    char *colon = strrchr(target, ':');
    bool fits = colon && (size_t)(colon - target) < sizeof redirect->host &&
                strlen(colon + 1) < sizeof redirect->port;
    if (!fits || redirect->slot >= CLUSTER_SLOTS)
        return false;

    *colon = 0;
    snprintf(redirect->host, sizeof redirect->host, "%.255s", target);
    snprintf(redirect->port, sizeof redirect->port, "%.7s", colon + 1);
    return true;
}

static bool read_redirect(const char *error, struct redirect *redirect)
{
    *redirect = (struct redirect){.how = REDIS_TRY_AGAIN};
    if (strncmp(error, "TRYAGAIN", 8) == 0)
        return true;
    redirect->how = REDIS_CLUSTER_DOWN;
    if (strncmp(error, "CLUSTERDOWN", 11) == 0)
        return true;

    bool is_moved = strncmp(error, "MOVED ", 6) == 0;
    redirect->how = is_moved ? REDIS_MOVED : REDIS_IMPORTING;
    return (is_moved || strncmp(error, "ASK ", 4) == 0) && read_target(error, redirect);
}

static int report(const struct redis *r, const struct redirect *redirect)
{
    return r->cluster.place.redirected(r->cluster.place.ctx, redirect->how, redirect->slot,
                                       redirect->host, redirect->port);
}

bool redis_cluster_is_elsewhere(struct redis *r, const struct resp_reply *resp)
{
    struct redirect redirect;
    bool is_redirect =
        r->cluster.is_on && resp->type == RESP_ERROR && read_redirect(resp->text, &redirect);
    if (is_redirect)
        report(r, &redirect);
    return is_redirect;
}

static nanos pause_after(const struct redis *r, const struct redis_op *a, enum redis_redirect how)
{
    bool is_down = how == REDIS_CLUSTER_DOWN;
    unsigned doublings = a->refusals < DOUBLINGS_MAX ? a->refusals : DOUBLINGS_MAX;
    nanos pause = (is_down ? PAUSE_OF_DOWN : PAUSE_OF_MOVE) << doublings;
    nanos most = is_down ? PAUSE_OF_DOWN_MAX : PAUSE_OF_MOVE_MAX;
    pause = pause < most ? pause : most;
    return pause / 2 + pause * (nanos)(r->host->random(r->host->ctx) % 64) / 128;
}

/* Sends the request again later, for connect_timeout at most. After that it fails with a status
 * on which a waiting caller asks again. */
static void resend_later(struct redis *r, struct redis_op *a, const struct redirect *redirect,
                         const char *error, nanos asked_at, nanos now)
{
    if (!a->refused_at)
        a->refused_at = now;
    if (now - a->refused_at >= r->connect_timeout) {
        char text[400];
        bool is_down = redirect->how == REDIS_CLUSTER_DOWN,
             has_moved = redirect->how == REDIS_MOVED;
        const char *other =
            has_moved ? "nodes name each other for slot" : "the cluster is moving slot";
        snprintf(text, sizeof text, "%.100s: %s %u: %.150s", r->where,
                 is_down ? "no server has slot" : other,
                 redis_cluster_slot(r->prefix, a->sent_op.name, a->sent_op.name_len), error);
        a->unsent = false;
        a->refused_at = 0;
        a->refusals = 0;
        redis_op_fail(r, a, asked_at, HF_UNAVAILABLE, text);
        return;
    }

    a->resend_at = now + pause_after(r, a, redirect->how);
    a->refusals = (uint8_t)(a->refusals + (a->refusals < DOUBLINGS_MAX));
    if (a->resend_at < r->cluster.resend_at)
        r->cluster.resend_at = a->resend_at;
    redis_op_set_connections(r, a);
}

bool redis_cluster_on_error(struct redis *r, const struct request *request,
                            const struct resp_reply *resp, nanos now)
{
    struct redirect redirect;
    struct redis_op *a = request->op;
    if (!r->cluster.is_on || !read_redirect(resp->text, &redirect))
        return false;

    int to = report(r, &redirect);
    bool is_last = !redis_op_is_in_flight(a) &&
                   (request->kind == REQ_STEP || a->sent_op.verb == request->verb);
    if (!is_last) {
        redis_op_fail(r, a, request->sent_at, HF_UNAVAILABLE, resp->text);
        return true;
    }

    /* While a slot is being moved, keys of one lock may be on two servers. Then neither server can
     * execute a call with several keys. */
    bool has_one_key = request->kind == REQ_VERB && request->plain &&
                       (request->verb == OP_EXTEND || request->verb == OP_CHECK);
    bool may_go = redirect.how == REDIS_MOVED || (redirect.how == REDIS_IMPORTING && has_one_key);
    bool is_other = to >= 0 && (unsigned)to != r->cluster.place.index;
    redis_admin_free(a);
    a->unsent = true;
    if (may_go && is_other && a->redirects < REDIRECTS_MAX) {
        a->redirects++;
        a->asking = redirect.how == REDIS_IMPORTING;
        set_stray(r, a, (unsigned)to);
        redis_op_set_connections(r, a);
        return true;
    }
    a->redirects = 0;
    resend_later(r, a, &redirect, resp->text, request->sent_at, now);
    return true;
}

bool redis_cluster_send_asking(struct redis *r, struct redis_op *a,
                               struct redis_connection *connection, nanos now)
{
    a->asking = false;
    resp_command_begin(&r->command, 1);
    resp_command_text(&r->command, "ASKING");
    struct request request = {.kind = REQ_ASKING, .patience = r->connect_timeout};
    if (redis_connection_send(r, connection, request, now))
        return true;
    if (a->unsent) { /* otherwise the connection broke, and the op has its reply */
        a->unsent = false;
        redis_op_fail_with(r, a, connection, now);
    }
    return false;
}

nanos redis_cluster_tick(struct redis *r, nanos now)
{
    if (now < r->cluster.resend_at)
        return r->cluster.resend_at;

    r->cluster.resend_at = TIME_NEVER;
    for (struct redis_op *a = r->ops; a; a = a->next) {
        if (!a->unsent || !a->resend_at || a->stray_to)
            continue;
        if (now >= a->resend_at) {
            a->resend_at = 0;
            redis_op_submit(r, a, now);
        } else if (a->resend_at < r->cluster.resend_at) {
            r->cluster.resend_at = a->resend_at;
        }
    }
    return r->cluster.resend_at;
}
