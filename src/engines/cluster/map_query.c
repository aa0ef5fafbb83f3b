/* map_query.c - asks nodes for the map of slots.
 *
 * The node that answered last, or that a redirect named, is asked first. If that node is silent for
 * NEXT_AFTER, the next node is asked as well. */
#include "cluster.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEXT_AFTER NANOS_OF_MS(50)
#define PAUSE NANOS_OF_MS(50)        /* pause between two searches */
#define PAUSE_LONG NANOS_OF_MS(1000) /* pause when a shard has been lost for long */
enum {
    ROUNDS_OFTEN = 300,   /* number of searches before the pause becomes longer */
    REPLY_MOST = 8 << 20, /* bytes in a map */
};

/* ---- Connections ---- */

static struct cluster_query *query_of(struct cluster *c, unsigned number)
{
    assert(number < CLUSTER_QUERIES);
    return &c->query[number];
}

static void put_down(struct cluster_query *q)
{
    q->state = CLUSTER_QUERY_DOWN;
    resp_reader_close(q->replies);
    q->replies = NULL;
}

static void close_query(struct cluster *c, struct cluster_query *q)
{
    if (q->state == CLUSTER_QUERY_DOWN)
        return;
    c->host->hang_up(c->host->ctx, q->number);
    put_down(q);
}

void map_query_close(struct cluster *c)
{
    for (int i = 0; i < CLUSTER_QUERIES; i++)
        close_query(c, &c->query[i]);
}

connection_set map_query_connections(const struct cluster *c)
{
    connection_set all = 0;
    for (int i = 0; i < CLUSTER_QUERIES; i++)
        all |= (connection_set)(c->query[i].state != CLUSTER_QUERY_DOWN) << c->query[i].number;
    return all;
}

/* Notes the status to report. A refusal comes before silence, because silence may end. */
static void note_failure(struct cluster *c, const struct cluster_node *node, hf_status status,
                         const char *why)
{
    struct cluster_search *search = &c->search;
    size_t len = strlen(search->why);
    bool is_known = search->status == HF_CONFIG;
    assert(status != HF_OK);

    if (status == HF_CONFIG || (status == HF_DENIED && !is_known))
        search->status = status;
    snprintf(search->why + len, sizeof search->why - len, "%s%.80s:%s: %.180s", len ? "; " : "",
             node->host, node->port, why);
}

static void fail_query(struct cluster *c, struct cluster_query *q, hf_status status,
                       const char *why)
{
    if (c->search.is_on)
        note_failure(c, &q->node, status, why);
    close_query(c, q); /* frees `why` if it points into a reply */
}

static bool send_command(struct cluster *c, const struct cluster_query *q)
{
    struct resp_command *command = &c->command;
    assert(q->state == CLUSTER_QUERY_UP);

    bool is_sent =
        !command->failed && c->host->send(c->host->ctx, q->number, command->bytes, command->len);
    command->len = 0;
    command->failed = false;
    return is_sent;
}

static bool log_in(struct cluster *c, struct cluster_query *q)
{
    q->awaits_login = c->user[0] || c->password[0];
    if (!q->awaits_login)
        return true;

    resp_command_begin(&c->command, c->user[0] ? 3 : 2);
    resp_command_text(&c->command, "AUTH");
    if (c->user[0])
        resp_command_text(&c->command, c->user);
    resp_command_text(&c->command, c->password);
    return send_command(c, q);
}

void map_query_up(struct cluster *c, unsigned number, nanos now)
{
    struct cluster_query *q = query_of(c, number);
    assert(q->state == CLUSTER_QUERY_DIALLING && !q->replies);

    q->state = CLUSTER_QUERY_UP;
    q->since = now;
    q->replies = resp_reader_open();
    bool is_sent = q->replies && log_in(c, q);

    resp_command_begin(&c->command, 2);
    resp_command_text(&c->command, "CLUSTER");
    resp_command_text(&c->command, "SLOTS");

    if (!is_sent || !send_command(c, q)) {
        c->command.len = 0;
        c->command.failed = false;
        fail_query(c, q, HF_UNAVAILABLE, "the connection accepts no more bytes");
    }
}

/* ---- Answers ---- */

static void on_error(struct cluster *c, struct cluster_query *q, const char *error)
{
    char text[300];
    bool is_login = strncmp(error, "NOAUTH", 6) == 0 || strncmp(error, "WRONGPASS", 9) == 0 ||
                    strncmp(error, "ERR AUTH", 8) == 0;
    bool is_denied = is_login || strncmp(error, "NOPERM", 6) == 0;
    bool is_alone = strstr(error, "cluster support disabled") != NULL;

    if (is_alone) {
        snprintf(text, sizeof text,
                 "the server is not part of a cluster: the URL is %s://%.120s:%s",
                 c->endpoint.tls ? "rediss" : "redis", q->node.host, q->node.port);
        fail_query(c, q, HF_CONFIG, text);
        return;
    }
    fail_query(c, q, is_denied ? HF_DENIED : HF_UNAVAILABLE, error);
}

static void on_map(struct cluster *c, struct cluster_query *q, const struct resp_reply *resp,
                   nanos now)
{
    const char *flaw = slot_map_read(c, &q->node, resp, now);
    if (flaw) {
        fail_query(c, q, HF_UNAVAILABLE, flaw);
        return;
    }

    map_query_prefer(c, q->node.host, q->node.port);
    c->search.found = true;
    close_query(c, q);
}

static void on_reply(struct cluster *c, struct cluster_query *q, const struct resp_reply *resp,
                     nanos now)
{
    if (resp->type == RESP_ERROR)
        on_error(c, q, resp->text);
    else if (q->awaits_login)
        q->awaits_login = false;
    else
        on_map(c, q, resp, now);
}

void map_query_bytes(struct cluster *c, unsigned number, const char *bytes, size_t len, nanos now)
{
    struct cluster_query *q = query_of(c, number);
    const char *error = NULL;
    if (q->state != CLUSTER_QUERY_UP)
        return;

    bool is_read = resp_reader_feed(q->replies, bytes, len, REPLY_MOST);
    for (const struct resp_reply *resp;
         is_read && q->replies && (resp = resp_reader_next(q->replies, &error));)
        on_reply(c, q, resp, now);

    if (q->state == CLUSTER_QUERY_UP && (!is_read || error))
        fail_query(c, q, HF_UNAVAILABLE, "not the protocol of Redis");
}

void map_query_down(struct cluster *c, unsigned number, hf_status status, const char *why,
                    nanos now)
{
    struct cluster_query *q = query_of(c, number);
    char where[ENDPOINT_TEXT_MAX];
    (void)now;

    snprintf(where, sizeof where, "%s:%s: ", q->node.host, q->node.port);
    /* `why` names the server already */
    bool has_prefix = strncmp(why, where, strlen(where)) == 0;

    put_down(q);
    if (c->search.is_on)
        note_failure(c, &q->node, status, has_prefix ? why + strlen(where) : why);
}

/* ---- Searching ---- */

void map_query_add_node(struct cluster *c, const struct cluster_node *node)
{
    if (c->nodes == c->node_room) {
        unsigned room = c->node_room ? 2 * c->node_room : 8;
        struct cluster_node *all = realloc(c->node, room * sizeof *all);
        if (!all)
            return;
        c->node = all;
        c->node_room = room;
    }

    c->node[c->nodes++] = *node;
}

void map_query_prefer(struct cluster *c, const char *host, const char *port)
{
    for (unsigned i = 0; i < c->nodes; i++)
        if (cluster_node_is_at(&c->node[i], host, port))
            c->first = i;
}

static void begin(struct cluster *c, nanos now)
{
    uint32_t rounds = c->search.rounds;
    nanos pause = rounds < ROUNDS_OFTEN ? PAUSE : PAUSE_LONG;
    assert(!c->search.is_on);

    if (c->is_doubted && c->nodes)
        c->first = (c->first + 1) % c->nodes;
    c->is_doubted = false;

    pause += pause * (nanos)(c->host->random(c->host->ctx) % 100) / 400;
    c->search = (struct cluster_search){.is_on = true,
                                        .next_at = now,
                                        .again_at = now + pause,
                                        .rounds = rounds + (rounds < ROUNDS_OFTEN),
                                        .status = HF_UNAVAILABLE};
}

static void query_next(struct cluster *c, nanos now)
{
    struct cluster_query *q = &c->query[c->search.next % CLUSTER_QUERIES];
    if (q->state != CLUSTER_QUERY_DOWN)
        fail_query(c, q, HF_UNAVAILABLE, "no answer in time");

    assert(c->search.is_on && c->nodes > 0);
    q->node = c->node[(c->first + c->search.next) % c->nodes];
    q->state = CLUSTER_QUERY_DIALLING;
    q->since = now;
    c->search.next++;
    c->search.next_at = now + NEXT_AFTER;

    struct endpoint to = c->endpoint;
    snprintf(to.host, sizeof to.host, "%s", q->node.host);
    snprintf(to.port, sizeof to.port, "%s", q->node.port);
    to.skip = c->search.rounds - 1;
    c->host->dial(c->host->ctx, q->number, &to);
}

static void give_up(struct cluster *c, nanos now)
{
    char why[CLUSTER_WHY_MAX + 64];
    assert(c->search.is_on && !c->search.found);

    c->search.is_on = false;
    if (c->is_mapped)
        return; /* if no node answers, the last map stays in use */

    snprintf(why, sizeof why, "no node of the cluster says which server has which slot: %s",
             c->search.why);
    redis_follow_failed(c->shard[0]->redis, c->search.status, why, now);
    surveys_fail(c, c->search.status, why);
}

static void end_silent(struct cluster *c, nanos now)
{
    char why[64];
    snprintf(why, sizeof why, "no answer within %lld ms",
             (long long)(c->connect_timeout / NANOS_OF_MS(1)));

    for (int i = 0; i < CLUSTER_QUERIES; i++) {
        struct cluster_query *q = &c->query[i];
        if (q->state != CLUSTER_QUERY_DOWN && now >= q->since + c->connect_timeout)
            fail_query(c, q, HF_UNAVAILABLE, why);
    }
}

static nanos search_tick(struct cluster *c, nanos now)
{
    if (!c->search.is_on)
        return TIME_NEVER;

    end_silent(c, now);
    if (c->search.found) {
        c->search.is_on = false;
        map_query_close(c);
        return TIME_NEVER;
    }

    bool is_idle = !map_query_connections(c);
    if (c->search.next < c->nodes && (now >= c->search.next_at || is_idle))
        query_next(c, now);
    else if (c->search.next >= c->nodes && is_idle)
        give_up(c, now);

    if (!c->search.is_on)
        return TIME_NEVER;
    return c->search.next < c->nodes ? c->search.next_at : now + c->connect_timeout;
}

nanos map_query_tick(struct cluster *c, nanos now)
{
    bool is_lost = shards_are_lost(c);
    bool is_sought =
        !c->is_mapped && (redis_follow_is_sought(c->shard[0]->redis) || surveys_wait(c));
    bool is_due = now >= c->review_at;
    bool is_wanted = c->search.is_wanted || is_lost || is_sought || is_due;

    if (!is_wanted)
        c->search.rounds = 0;
    if (is_wanted && !c->search.is_on && now >= c->search.again_at)
        begin(c, now);
    if (is_due && c->search.is_on)
        c->review_at = TIME_NEVER;

    nanos next = search_tick(c, now);
    bool waits = is_wanted && !c->search.is_on;
    next = waits && c->search.again_at < next ? c->search.again_at : next;
    return c->review_at > now && c->review_at < next ? c->review_at : next;
}
