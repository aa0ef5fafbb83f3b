/* consul_agent.h - the agents: they read requests and write replies as HTTP and JSON. */
#pragma once
#include "consul_model.h"

#include "sim/wire_world/wire_links.h"

/* ---- Replies ---- */

static struct consul_text reply_body;

static void send_reply(unsigned link, unsigned status, uint64_t index)
{
    static struct consul_text head;
    text_clear(&head);
    text_print(&head, "HTTP/1.1 %u -\r\nContent-Type: application/json\r\n", status);
    if (index)
        text_print(&head, "X-Consul-Index: %llu\r\n", (unsigned long long)index);
    text_print(&head, "Content-Length: %zu\r\n\r\n", reply_body.len);
    text_bytes(&head, reply_body.at, reply_body.len);
    struct stream *stream = &links[link].to_client;
    if (links[link].line == CONNECTION_COMMANDS && agent_of(link)->slow_until > w.now) {
        nanos at = w.now + NANOS_OF_MS(draw(100));
        stream->at = at > stream->at ? at : stream->at;
        sum.slow++;
    }
    note("agent %c answers client %u: %u %.200s", links[link].host, links[link].client, status,
         reply_body.len ? reply_body.at : "");
    answer(link, head.at, head.len);
    text_clear(&reply_body);
}

static void send_error(unsigned link, const char *text)
{
    text_clear(&reply_body);
    text_print(&reply_body, "%s", text);
    send_reply(link, 500, 0);
}

static void print_pair(const struct kv_pair *pair, bool with_value)
{
    uint64_t lock_index = pair->lock_index, created = pair->created, changed = pair->changed;
    text_print(&reply_body, "{\"LockIndex\":%llu,\"Key\":\"%s\",\"Flags\":%llu,",
               (unsigned long long)lock_index, pair->key, (unsigned long long)pair->flags);
    text_print(&reply_body, "\"Value\":");
    if (with_value) {
        text_bytes(&reply_body, "\"", 1);
        text_bytes(&reply_body, pair->value, strlen(pair->value));
        text_bytes(&reply_body, "\"", 1);
    } else {
        text_print(&reply_body, "null");
    }
    if (pair->session[0])
        text_print(&reply_body, ",\"Session\":\"%s\"", pair->session);
    text_print(&reply_body, ",\"CreateIndex\":%llu,\"ModifyIndex\":%llu}",
               (unsigned long long)created, (unsigned long long)changed);
}

static int by_key(const void *a, const void *b)
{
    const struct kv_pair *x = *(const struct kv_pair *const *)a;
    const struct kv_pair *y = *(const struct kv_pair *const *)b;
    return strcmp(x->key, y->key);
}

/* ---- Reads ---- */

struct read {
    char key[KEY];
    bool recurse;
    const struct agent *agent;
};

static bool is_read(const struct kv_pair *pair, const struct read *read)
{
    return read->recurse ? strncmp(pair->key, read->key, strlen(read->key)) == 0
                         : strcmp(pair->key, read->key) == 0;
}

/* Collects the pairs as the agent sees them, by key. Returns their number. */
static unsigned collect(const struct read *read, const struct kv_pair **found)
{
    bool stale = is_stale(read->agent);
    uint64_t index = stale ? read->agent->index : store.index;
    unsigned count = 0;
    for (unsigned i = 0; i < store.pairs; i++)
        if (store.pair[i].changed <= index && is_read(&store.pair[i], read))
            found[count++] = &store.pair[i];
    for (unsigned i = 0; i < store.olds && stale; i++) {
        const struct kv_pair *old = &store.old[i];
        if (old->changed <= index && index < old->to && is_read(old, read))
            found[count++] = old;
    }
    qsort(found, count, sizeof *found, by_key);
    return count;
}

/* Returns the index of what a read returns: of its keys, and of those deleted among them. */
static uint64_t index_of_read(const struct read *read, const struct kv_pair **found, unsigned count)
{
    bool stale = is_stale(read->agent);
    uint64_t index = stale ? read->agent->deleted_at : store.deleted_at;
    if (!read->recurse && count)
        return found[0]->changed;
    if (!count)
        return stale ? read->agent->index : store.index;
    for (unsigned i = 0; i < count; i++)
        index = found[i]->changed > index ? found[i]->changed : index;
    return index;
}

/* Answers, unless nothing has changed since `than`. Returns true if it answered. */
static bool answer_read(unsigned link, const struct read *read, uint64_t than)
{
    const struct kv_pair *found[2 * PAIRS];
    unsigned count = collect(read, found);
    uint64_t index = index_of_read(read, found, count);
    if (than && index <= than)
        return false;
    text_clear(&reply_body);
    for (unsigned i = 0; i < count; i++) {
        text_bytes(&reply_body, i ? "," : "[", 1);
        print_pair(found[i], true);
    }
    if (count)
        text_bytes(&reply_body, "]", 1);
    sum.stale += is_stale(read->agent);
    send_reply(link, count ? 200 : 404, index ? index : 1);
    return true;
}

/* ---- Blocking queries ---- */

static struct read read_of_query(const struct query *query)
{
    struct read read = {.recurse = query->recurse, .agent = agent_of(query->link)};
    memcpy(read.key, query->key, KEY);
    return read;
}

/* Answers the queries whose keys have changed, or that have waited long enough. */
static void wake_queries(void)
{
    for (unsigned i = 0; i < store.queries;) {
        struct query query = store.query[i];
        struct read read = read_of_query(&query);
        bool is_over = query.ends_at <= w.now;
        if (answer_read(query.link, &read, is_over ? 0 : query.index))
            store.query[i] = store.query[--store.queries];
        else
            i++;
    }
}

static void drop_queries(unsigned link)
{
    for (unsigned i = 0; i < store.queries;) {
        if (store.query[i].link == link)
            store.query[i] = store.query[--store.queries];
        else
            i++;
    }
}

static void receive_read(unsigned link, char *path)
{
    char *options = strchr(path, '?');
    struct read read = {.agent = agent_of(link)};
    unsigned wait_ms = 0;
    char unit[3] = "";
    unsigned long long index = 0;
    *options++ = '\0';
    if (strlen(path) >= KEY)
        abort();
    memcpy(read.key, path, strlen(path) + 1);
    read.recurse = strncmp(options, "recurse", 7) == 0;
    const char *wait = strstr(options, "wait=");
    if (wait && sscanf(wait, "wait=%u%2[ms]&index=%llu", &wait_ms, unit, &index) != 3)
        abort();
    wait_ms *= strcmp(unit, "s") == 0 ? 1000 : 1;
    if (answer_read(link, &read, index))
        return;
    if (store.queries == QUERIES)
        abort();
    nanos longest = NANOS_OF_MS(wait_ms + draw(wait_ms / 16 + 1));
    struct query *query = &store.query[store.queries++];
    *query = (struct query){
        .link = link, .recurse = read.recurse, .index = index, .ends_at = w.now + longest};
    memcpy(query->key, read.key, KEY);
}

/* ---- Transactions ---- */

static void print_result(const struct kv_pair *pair, bool with_value)
{
    text_print(&reply_body, "%s{\"KV\":", reply_body.at[reply_body.len - 1] == '[' ? "" : ",");
    print_pair(pair, with_value);
    text_bytes(&reply_body, "}", 1);
}

static void fail_txn(size_t step, const char *why)
{
    text_clear(&reply_body);
    text_print(&reply_body, "{\"Results\":null,\"Errors\":[{\"OpIndex\":%zu,\"What\":\"%s\"}]}",
               step, why);
}

/* The leader refuses keys that a lock-delay keeps closed before it begins. */
static bool is_refused_for_delay(const json_t *ops)
{
    for (size_t i = 0; i < json_array_size(ops); i++) {
        struct txn_step step = read_step(ops, i);
        if (strcmp(step.verb, "lock") == 0 && is_closed(step.pair.key)) {
            sum.delayed++;
            fail_txn(i, "failed to lock key due to lock delay");
            return true;
        }
    }
    return false;
}

static bool carry_out_all(const json_t *ops, const struct agent *agent)
{
    const struct kv_pair *found[2 * PAIRS];
    const char *why;
    text_print(&reply_body, "{\"Results\":[");
    for (size_t i = 0; i < json_array_size(ops); i++) {
        struct txn_step step = read_step(ops, i);
        bool gets_tree = strcmp(step.verb, "get-tree") == 0;
        struct read read = {.recurse = gets_tree, .agent = agent};
        memcpy(read.key, step.pair.key, KEY);
        bool gets = strcmp(step.verb, "get") == 0;
        bool reads_old = gets && is_stale(agent);
        unsigned count = gets_tree || reads_old ? collect(&read, found) : 0;
        const struct kv_pair *shown =
            count || gets_tree || reads_old ? NULL : carry_out(&step, &why);
        for (unsigned k = 0; k < count; k++)
            print_result(found[k], true);
        bool failed = reads_old ? !count : !gets_tree && why;
        if (failed) {
            fail_txn(i, reads_old ? "key doesn't exist" : why);
            return false;
        }
        if (shown)
            print_result(shown, gets);
    }
    text_print(&reply_body, "],\"Errors\":null}");
    return true;
}

/* Returns the HTTP status of the reply, which is in reply_body. */
static unsigned run_txn(const char *body, const struct agent *agent)
{
    json_t *ops = json_loadb(body, strlen(body), 0, NULL);
    if (!ops)
        abort();
    text_clear(&reply_body);
    bool good = false;
    if (!is_refused_for_delay(ops)) {
        unsigned pairs = store.pairs, olds = store.olds;
        uint64_t deleted_at = store.deleted_at;
        memcpy(store.before, store.pair, pairs * sizeof *store.pair);
        store.index++;
        good = carry_out_all(ops, agent);
        if (!good) {
            memcpy(store.pair, store.before, pairs * sizeof *store.pair);
            store.pairs = pairs;
            store.olds = olds;
            store.deleted_at = deleted_at;
        }
    }
    consul_json_free(ops);
    return good ? 200 : 409;
}

/* ---- Sessions ---- */

static void create_session(const char *body)
{
    json_t *wanted = json_loadb(body, strlen(body), 0, NULL);
    if (!wanted || store.sessions == SESSIONS)
        abort();
    struct server_session *session = &store.session[store.sessions++];
    const char *ttl = json_string_value(json_object_get(wanted, "TTL"));
    const char *delay = json_string_value(json_object_get(wanted, "LockDelay"));
    *session = (struct server_session){.seconds = strtoll(ttl, NULL, 10),
                                       .delay_ms = strtoll(delay, NULL, 10)};
    snprintf(session->id, sizeof session->id, "%08llx-1111-2222-3333-444444444444",
             (unsigned long long)++store.last_session);
    store.index++;
    prolong(session);
    text_clear(&reply_body);
    text_print(&reply_body, "{\"ID\":\"%s\"}", session->id);
    consul_json_free(wanted);
}

static void renew_session(unsigned link, const char *id)
{
    struct server_session *session = session_of(id);
    bool is_vain = is_stale(agent_of(link));
    sum.vain += is_vain;
    if (session && !is_vain)
        prolong(session);
    text_clear(&reply_body);
    text_print(&reply_body, "[]");
    send_reply(link, session || is_vain ? 200 : 404, 0);
}

/* ---- Requests ---- */

/* A leader that was replaced is soon told. Until then it acknowledges renewals, which it keeps in
 * its own memory. Writes, and reads that ask the others, wait until the agent knows the new one. */
static bool waits_for_leader(const struct agent *agent, const char *request, size_t len)
{
    enum { VAIN_MOST_MS = 900 }; /* less than the shortest ttl: consul_session_prove() */
    bool is_in_vain = !store.ends_early && w.now < agent->stale_since + NANOS_OF_MS(VAIN_MOST_MS);
    bool is_renewal = strncmp(request, "PUT /v1/session/renew/", 22) == 0;
    bool is_verify = strncmp(request, "PUT /v1/txn?consistent", 22) == 0;
    bool is_confirm = memmem(request, len, "?recurse&consistent", 19);
    if (is_renewal)
        return !is_in_vain;
    if (is_verify && planted == PLANT_NOT_CONSISTENT)
        return false;
    return (is_confirm && planted != PLANT_NOT_CONFIRMED) || strncmp(request, "PUT", 3) == 0;
}

static void receive_write(unsigned link, const char *request, const char *body)
{
    struct agent *agent = agent_of(link);
    unsigned status = 200;
    bool is_read_only = strncmp(request, "PUT /v1/txn?consistent", 22) == 0;
    bool is_doubtful = store.doubtful_until > w.now && !is_read_only;
    sum.doubtful += is_doubtful;
    if (is_doubtful && draw(2)) {
        send_error(link, "leadership lost while committing log");
        return;
    }
    if (strncmp(request, "PUT /v1/txn", 11) == 0)
        status = run_txn(body, agent);
    else if (strncmp(request, "PUT /v1/session/create", 22) == 0)
        create_session(body);
    else
        abort(); /* clients of a simulator close without a farewell */
    if (is_doubtful)
        send_error(link, "leadership lost while committing log");
    else
        send_reply(link, status, 0);
    wake_queries();
}

static void serve(unsigned link, char *request)
{
    char *body = strstr(request, "\r\n\r\n") + 4, *path_end = strstr(request, " HTTP/1.1\r\n");
    *path_end = '\0';
    note("agent %c, client %u: %.400s%s%.900s", links[link].host, links[link].client, request,
         *body ? " " : "", body);
    expire_sessions();
    bool has_leader = is_stale(agent_of(link)) || store.leaderless_until <= w.now;
    sum.leaderless += !has_leader;
    if (!has_leader)
        send_error(link, "No cluster leader");
    else if (strncmp(request, "GET /v1/kv/", 11) == 0)
        receive_read(link, request + 11);
    else if (strncmp(request, "PUT /v1/session/renew/", 22) == 0)
        renew_session(link, request + 22);
    else
        receive_write(link, request, body);
}

/* ---- What wire_world calls ---- */

static void servers_receive(const struct occurrence *o)
{
    static char request[65536];
    if (o->len >= sizeof request)
        abort();
    memcpy(request, o->bytes, o->len);
    request[o->len] = '\0';
    serve(o->who, request);
}

/* An agent answers the requests of a connection one after the other. */
static nanos servers_hold_up(const struct occurrence *o)
{
    if (o->what != TO_SERVER)
        return 0;
    const struct agent *agent = agent_of(o->who);
    if (is_stale(agent) && waits_for_leader(agent, o->bytes, o->len))
        held_until[o->who] = agent->stale_until;
    return held_until[o->who];
}

static bool servers_link_up(unsigned link)
{
    held_until[link] = 0;
    return true;
}

static void servers_link_closed(unsigned link)
{
    drop_queries(link);
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
