/* locks.c - seeing locks over HTTP, and taking one away. Silence of the engine is an error here, never "free". */
#include "engine.h"
#include "leases.h"
#include "routes.h"
#include "rows.h"
#include "view.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_STANDARD 100
#define LIMIT_MOST 1000
#define REASON_MAX 200

enum sight { SEE_LIST, SEE_ONE, SEE_HISTORY };

struct seeing {
    struct job job;
    struct exchange *x;
    struct server *server;
    enum sight sight;
    char name[HF_NAME_MAX + 1]; /* or prefix */
    char *cursor, *state;
    int64_t limit;
    json_t *rows;
    hf_status status;
    char words[512];
};

static void free_seeing(struct seeing *s)
{
    json_decref(s->rows);
    free(s->cursor);
    free(s->state);
    free(s);
}

static void work(struct job *job)
{
    struct seeing *s = (struct seeing *)(void *)job;
    hf_client *client = engine_client(s->server->engine);
    if (s->sight == SEE_LIST)
        s->status = hf_list(client, *s->name ? s->name : NULL, rows_append, s->rows);
    else if (s->sight == SEE_ONE)
        s->status = hf_show(client, s->name, rows_append, s->rows);
    else
        s->status = hf_history(client, s->name, rows_append, s->rows);
    if (s->status != HF_OK)
        snprintf(s->words, sizeof s->words, "%s", hf_error_text());
}

static const char *text_of(json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

/* A lock of the list: the rows of one name. */
static json_t *lock_json(const char *name)
{
    return json_pack("{s:s, s:[], s:[]}", "name", name, "holders", "waiters");
}

static bool is_wanted(const struct seeing *s, json_t *lock)
{
    bool held = json_array_size(json_object_get(lock, "holders")) > 0;
    bool waited = json_array_size(json_object_get(lock, "waiters")) > 0;
    if (!s->state)
        return true;
    return strcmp(s->state, "held") == 0 ? held : waited;
}

static void add_lock(const struct seeing *s, json_t *locks, json_t *lock)
{
    if (lock && is_wanted(s, lock))
        json_array_append(locks, lock);
    json_decref(lock);
}

/* Rows come in byte order of their names, which is what makes a name a cursor. */
static json_t *group_rows(const struct seeing *s)
{
    json_t *locks = json_array(), *lock = NULL;
    for (size_t i = 0; i < json_array_size(s->rows); i++) {
        json_t *row = json_array_get(s->rows, i);
        const char *name = text_of(row, "name");
        bool ours = strncmp(name, RECORD_PREFIX, strlen(RECORD_PREFIX)) == 0;
        if (ours || !access_allows(s->x->caller, RIGHT_READ, name) || (s->cursor && strcmp(name, s->cursor) <= 0))
            continue;
        if (!lock || strcmp(text_of(lock, "name"), name) != 0) {
            add_lock(s, locks, lock);
            lock = lock_json(name);
        }
        bool waits = strcmp(text_of(row, "role"), "waiter") == 0;
        json_array_append(json_object_get(lock, waits ? "waiters" : "holders"), row);
    }
    add_lock(s, locks, lock);
    return locks;
}

static void answer_list(struct seeing *s)
{
    json_t *locks = group_rows(s), *page = json_array(), *cursor = json_null();
    size_t limit = (size_t)s->limit, count = json_array_size(locks);
    for (size_t i = 0; i < count && i < limit; i++)
        json_array_append(page, json_array_get(locks, i));
    if (count > limit)
        cursor = json_incref(json_object_get(json_array_get(page, limit - 1), "name"));
    answer_json(s->x, 200, json_pack("{s:o, s:o}", "locks", page, "cursor", cursor));
    json_decref(locks);
}

static void answer_one(struct seeing *s)
{
    json_t *lock = lock_json(s->name);
    for (size_t i = 0; i < json_array_size(s->rows); i++) {
        json_t *row = json_array_get(s->rows, i);
        bool waits = strcmp(text_of(row, "role"), "waiter") == 0;
        json_array_append(json_object_get(lock, waits ? "waiters" : "holders"), row);
    }
    json_object_set_new(lock, "free", json_boolean(json_array_size(json_object_get(lock, "holders")) == 0));
    answer_json(s->x, 200, lock);
}

static void done(struct job *job)
{
    struct seeing *s = (struct seeing *)(void *)job;
    if (s->status != HF_OK)
        answer_status(s->x, s->status, s->words, NULL);
    else if (s->sight == SEE_LIST)
        answer_list(s);
    else if (s->sight == SEE_ONE)
        answer_one(s);
    else
        answer_json(s->x, 200, json_pack("{s:s, s:O}", "name", s->name, "holds", s->rows));
    free_seeing(s);
}

static struct seeing *new_seeing(struct exchange *x, enum sight sight)
{
    struct seeing *s = calloc(1, sizeof *s);
    json_t *rows = s ? json_array() : NULL;
    if (!rows) {
        free(s);
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return NULL;
    }
    *s = (struct seeing){.job = {work, done, NULL}, .x = x, .server = server_of(x), .sight = sight, .rows = rows};
    return s;
}

static void see_named(struct exchange *x, enum sight sight)
{
    char name[HF_NAME_MAX + 1];
    if (!read_name(x, 0, RIGHT_READ, name))
        return;
    struct seeing *s = new_seeing(x, sight);
    if (!s)
        return;
    strcpy(s->name, name);
    engine_ask(s->server->engine, s->server->workers, &s->job);
}

void locks_show(struct exchange *x)
{
    see_named(x, SEE_ONE);
}

void locks_history(struct exchange *x)
{
    see_named(x, SEE_HISTORY);
}

static bool whole_number(const char *text, int64_t low, int64_t high, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && *number >= low && *number <= high;
}

void locks_list(struct exchange *x)
{
    struct seeing *s = new_seeing(x, SEE_LIST);
    const char *wrong = NULL;
    if (!s)
        return;
    char *prefix = query_text(x, "prefix"), *limit = query_text(x, "limit");
    s->cursor = query_text(x, "cursor");
    s->state = query_text(x, "state");
    s->limit = LIMIT_STANDARD;
    if (prefix && strlen(prefix) > HF_NAME_MAX)
        wrong = "prefix: is too long";
    else if (prefix)
        strcpy(s->name, prefix);
    if (limit && !whole_number(limit, 1, LIMIT_MOST, &s->limit))
        wrong = "limit: must be a whole number between 1 and 1000";
    if (s->state && strcmp(s->state, "held") != 0 && strcmp(s->state, "waiting") != 0)
        wrong = "state: must be held or waiting";
    free(prefix);
    free(limit);
    if (wrong) {
        answer_problem(x, 400, "invalid", wrong, NULL);
        free_seeing(s);
        return;
    }
    workers_post(s->server->workers, &s->job);
}

/* ---- Taking away ---- */

struct breaking {
    struct job job;
    struct exchange *x;
    struct server *server;
    char name[HF_NAME_MAX + 1], reason[REASON_MAX + 1];
    int64_t token;
    hf_status status;
    char words[512];
};

static void do_break(struct job *job)
{
    struct breaking *b = (struct breaking *)(void *)job;
    b->status = hf_break(engine_client(b->server->engine), b->name, (uint64_t)b->token, b->reason);
    if (b->status != HF_OK)
        snprintf(b->words, sizeof b->words, "%s", hf_error_text());
}

static void after_break(struct job *job)
{
    struct breaking *b = (struct breaking *)(void *)job;
    if (b->status == HF_NOT_HELD)
        answer_problem(b->x, 412, "changed_hands", "nobody holds it with that token (any more)", NULL);
    else if (b->status != HF_OK)
        answer_status(b->x, b->status, b->words, NULL);
    else {
        view_broken(b->server->view, (uint64_t)b->token, b->reason);
        exchange_answer(b->x, 204, NULL, NULL, 0);
    }
    free(b);
}

void locks_break(struct exchange *x)
{
    struct breaking *b = calloc(1, sizeof *b);
    char *token = query_text(x, "token"), *reason = query_text(x, "reason");
    const char *wrong = NULL;
    if (!b)
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
    else if (read_name(x, 0, RIGHT_BREAK, b->name)) {
        *b = (struct breaking){.job = {do_break, after_break, NULL}, .x = x, .server = server_of(x)};
        size_t len;
        (void)piece_decode(x->arguments[0], b->name, sizeof b->name, &len);
        if (!token || !whole_number(token, 1, INT64_MAX, &b->token))
            wrong = "token: must be that of the holder";
        else if (!reason || !*reason || strlen(reason) > REASON_MAX)
            wrong = "reason: must have between 1 and 200 bytes";
        if (wrong) {
            answer_problem(x, 400, "invalid", wrong, NULL);
        } else {
            strcpy(b->reason, reason);
            engine_ask(b->server->engine, b->server->workers, &b->job);
            b = NULL;
        }
    }
    free(b);
    free(token);
    free(reason);
}
