/* locks.c - lists, shows and breaks locks over HTTP. If the engine does not answer, that is an
 * error; a lock is never reported as free then. */
#include "caller_label.h"
#include "lease_ledger.h"
#include "leases.h"
#include "lock_client.h"
#include "routes.h"
#include "row_json.h"
#include "snapshot_stream.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_STANDARD 100
#define LIMIT_MOST HF_PAGE_MAX
#define PAGES_MOST 16 /* most pages of the engine that one request reads */
#define REASON_MAX 200

enum query { SEE_LIST, SEE_ONE, SEE_HISTORY };

struct admin_request {
    struct job job;
    struct exchange *x;
    struct server *server;
    enum query query;
    char name[HF_NAME_MAX + 1]; /* name of the lock; list: prefix of the names */
    char *state;                /* list: NULL, "held" or "waiting" */
    /* List: the last name that was read. In the answer, "" means that there are no more names. */
    char cursor[HF_NAME_MAX + 1];
    int64_t limit;
    json_t *rows;
    json_t *locks; /* list: the answer */
    hf_status status;
    char message[512];
};

static void free_admin_request(struct admin_request *s)
{
    json_decref(s->rows);
    json_decref(s->locks);
    free(s->state);
    free(s);
}

static const char *text_of(json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

/* ---- Lists ---- */

/* Returns an entry of the list: all rows of one name. */
static json_t *lock_json(const char *name)
{
    return json_pack("{s:s, s:[], s:[]}", "name", name, "holders", "waiters");
}

static void note_free(json_t *lock)
{
    bool is_free = json_array_size(json_object_get(lock, "holders")) == 0;
    json_object_set_new(lock, "free", json_boolean(is_free));
}

static bool is_wanted(const struct admin_request *s, json_t *lock)
{
    bool held = json_array_size(json_object_get(lock, "holders")) > 0;
    bool waited = json_array_size(json_object_get(lock, "waiters")) > 0;
    if (!s->state)
        return true;
    return strcmp(s->state, "held") == 0 ? held : waited;
}

/* Takes all rows that have the name of the first row. Returns their number. */
static size_t take_lock(struct admin_request *s, size_t first)
{
    const char *name = text_of(json_array_get(s->rows, first), "name");
    size_t at = first, count = json_array_size(s->rows);
    json_t *lock = lock_json(name);

    for (; at < count && strcmp(text_of(json_array_get(s->rows, at), "name"), name) == 0; at++) {
        json_t *row = json_array_get(s->rows, at);
        bool waits = strcmp(text_of(row, "role"), "waiter") == 0;
        json_array_append(json_object_get(lock, waits ? "waiters" : "holders"), row);
    }

    snprintf(s->cursor, sizeof s->cursor, "%s", name);
    if (is_wanted(s, lock)) {
        note_free(lock);
        json_array_append(s->locks, lock);
    }
    json_decref(lock);
    return at - first;
}

/* Moves the rows of a page into the answer until it is full. Returns true if some rows are left. */
static bool take_rows(struct admin_request *s)
{
    size_t at = 0, count = json_array_size(s->rows);

    while (at < count && json_array_size(s->locks) < (size_t)s->limit)
        at += take_lock(s, at);
    json_array_clear(s->rows);
    return at < count;
}

/* Reads pages of the engine until the answer is full or all names were read. It stops early if
 * many pages contain little: then the answer is short, and the cursor continues the list. The
 * service's own names are not read. */
static void read_list(struct admin_request *s, hf_client *client)
{
    char next[HF_NAME_MAX + 1];
    bool is_full = false;

    for (int i = 0; i < PAGES_MOST && !is_full; i++) {
        struct hf_page page = {.size = sizeof page,
                               .prefix = s->name,
                               .except = RECORD_PREFIX,
                               .after = s->cursor,
                               .names = s->state ? HF_PAGE_MAX : (uint32_t)s->limit};
        s->status = hf_list_page(client, &page, row_json_append, s->rows, next);
        if (s->status != HF_OK)
            return;

        bool has_more = take_rows(s);
        is_full = json_array_size(s->locks) == (size_t)s->limit;
        if (!has_more)
            snprintf(s->cursor, sizeof s->cursor, "%s", next);
        if (!next[0])
            return;
    }
}

static void answer_list(struct admin_request *s)
{
    json_t *cursor = s->cursor[0] ? json_string(s->cursor) : json_null();
    answer_json(s->x, 200, json_pack("{s:O, s:o}", "locks", s->locks, "cursor", cursor));
}

/* ---- One name ---- */

static void answer_one(struct admin_request *s)
{
    json_t *lock = lock_json(s->name);

    for (size_t i = 0; i < json_array_size(s->rows); i++) {
        json_t *row = json_array_get(s->rows, i);
        bool waits = strcmp(text_of(row, "role"), "waiter") == 0;
        json_array_append(json_object_get(lock, waits ? "waiters" : "holders"), row);
    }

    note_free(lock);
    answer_json(s->x, 200, lock);
}

static void work(struct job *job)
{
    struct admin_request *s = (struct admin_request *)(void *)job;
    hf_client *client = lock_client_client(s->server->engine);

    if (s->query == SEE_LIST)
        read_list(s, client);
    else if (s->query == SEE_ONE)
        s->status = hf_show(client, s->name, row_json_append, s->rows);
    else
        s->status = hf_history(client, s->name, hold_json_append, s->rows);

    if (s->status != HF_OK)
        snprintf(s->message, sizeof s->message, "%s", hf_error_text());
}

static void done(struct job *job)
{
    struct admin_request *s = (struct admin_request *)(void *)job;

    if (s->status != HF_OK)
        answer_status(s->x, s->status, s->message, NULL);
    else if (s->query == SEE_LIST)
        answer_list(s);
    else if (s->query == SEE_ONE)
        answer_one(s);
    else
        answer_json(s->x, 200, json_pack("{s:s, s:O}", "name", s->name, "holds", s->rows));

    free_admin_request(s);
}

static struct admin_request *new_admin_request(struct exchange *x, enum query query)
{
    struct admin_request *s = calloc(1, sizeof *s);
    json_t *rows = json_array(), *locks = json_array();

    if (!s || !rows || !locks) {
        free(s);
        json_decref(rows);
        json_decref(locks);
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return NULL;
    }

    *s = (struct admin_request){.job = {work, done, NULL},
                                .x = x,
                                .server = server_of(x),
                                .query = query,
                                .rows = rows,
                                .locks = locks};

    return s;
}

static void see_named(struct exchange *x, enum query query)
{
    char name[HF_NAME_MAX + 1];

    if (!read_name(x, 0, RIGHT_READ, name))
        return;

    struct admin_request *s = new_admin_request(x, query);
    if (!s)
        return;

    strcpy(s->name, name);
    lock_client_do(s->server->engine, s->server->workers, &s->job);
}

void route_show_lock(struct exchange *x)
{
    see_named(x, SEE_ONE);
}

void route_lock_history(struct exchange *x)
{
    see_named(x, SEE_HISTORY);
}

static bool whole_number(const char *text, int64_t low, int64_t high, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && *number >= low &&
           *number <= high;
}

/* Narrows the prefix to what the caller may see. Returns false if that is nothing. */
static bool narrow_prefix(struct admin_request *s)
{
    const char *allowed = s->x->caller ? s->x->caller->prefix : "";
    size_t asked = strlen(s->name), most = strlen(allowed);

    if (strncmp(s->name, allowed, asked < most ? asked : most) != 0)
        return false;
    if (most > asked)
        strcpy(s->name, allowed);
    return true;
}

/* Reads the query. Returns what is wrong with it, or NULL. */
static const char *read_query(struct exchange *x, struct admin_request *s)
{
    char *prefix = query_text(x, "prefix"), *limit = query_text(x, "limit");
    char *cursor = query_text(x, "cursor");
    const char *wrong = NULL;

    s->state = query_text(x, "state");
    s->limit = LIMIT_STANDARD;
    bool is_unknown_state =
        s->state && strcmp(s->state, "held") != 0 && strcmp(s->state, "waiting") != 0;
    if (prefix && strlen(prefix) > HF_NAME_MAX)
        wrong = "prefix: is too long";
    else if (cursor && strlen(cursor) > HF_NAME_MAX)
        wrong = "cursor: is too long";
    else if (limit && !whole_number(limit, 1, LIMIT_MOST, &s->limit))
        wrong = "limit: must be a whole number between 1 and 1000";
    else if (is_unknown_state)
        wrong = "state: must be held or waiting";
    if (!wrong) {
        strcpy(s->name, prefix ? prefix : "");
        strcpy(s->cursor, cursor ? cursor : "");
    }

    free(prefix);
    free(limit);
    free(cursor);
    return wrong;
}

void route_list_locks(struct exchange *x)
{
    struct admin_request *s = new_admin_request(x, SEE_LIST);
    const char *wrong = s ? read_query(x, s) : NULL;

    if (!s)
        return;
    if (wrong) {
        answer_problem(x, 400, "invalid", wrong, NULL);
        free_admin_request(s);
    } else if (!narrow_prefix(s)) {
        s->cursor[0] = 0;
        answer_list(s);
        free_admin_request(s);
    } else {
        workers_post(s->server->workers, &s->job);
    }
}

/* ---- Breaking ---- */

struct breaking {
    struct job job;
    struct exchange *x;
    struct server *server;
    char name[HF_NAME_MAX + 1], reason[REASON_MAX + 1];
    char label[HF_LABEL_MAX + 1]; /* label of the hold */
    int64_t token;
    char *host;              /* host that the caller saw; NULL if not given */
    int64_t pid;             /* pid that the caller saw; -1 if not given */
    int64_t ttl_ms, held_ms; /* -1 if unknown */
    /* number of holders with that token: of the given host and pid; of others */
    size_t matches, others;
    bool is_tried; /* the engine was asked to break */
    hf_status status;
    char message[512];
};

static void free_breaking(struct breaking *b)
{
    if (b)
        free(b->host);
    free(b);
}

static void note_hold(void *arg, const struct hf_row *row)
{
    struct breaking *b = arg;
    bool has_token = row->role == HF_HOLDER && row->token == (uint64_t)b->token;
    bool is_other = (b->host && strcmp(b->host, row->host) != 0) ||
                    (b->pid >= 0 && b->pid != (int64_t)row->pid);

    if (!has_token)
        return;

    *(is_other ? &b->others : &b->matches) += 1;
    b->ttl_ms = row->ttl_ms;
    b->held_ms = row->since_ms;
    snprintf(b->label, sizeof b->label, "%s", row->label);
}

/* Breaks a hold. A token names one hold, except 1, which every hold without a fencing token has.
 * So the caller may also give the host and pid that it saw; a hold of another process is not
 * broken. If the engine cannot show the lock, the break is tried only for a caller that gave the
 * token alone. */
static void do_break(struct job *job)
{
    struct breaking *b = (struct breaking *)(void *)job;
    hf_client *client = lock_client_client(b->server->engine);
    bool names_holder = b->host || b->pid >= 0;

    b->ttl_ms = b->held_ms = -1;
    b->status = hf_show(client, b->name, note_hold, b);
    bool is_another = b->status == HF_OK && b->matches == 0 && b->others > 0;
    if (is_another)
        b->status = HF_NOT_HELD;
    else if ((b->is_tried = b->status == HF_OK || !names_holder))
        b->status = hf_break(client, b->name, (uint64_t)b->token, b->reason);
    if (b->status != HF_OK)
        snprintf(b->message, sizeof b->message, "%s", hf_error_text());
}

static void log_break(const struct breaking *b)
{
    char correlation[HF_CORRELATION_MAX + 1];

    struct caller_label labels = caller_label_read(b->label);
    correlation_of(b->x, correlation);
    const struct log_field fields[] = {
        {"name", b->name, 0},
        {"token", NULL, b->token},
        {"ttlMs", NULL, b->ttl_ms},
        {"heldMs", NULL, b->held_ms},
        {"outcome", hf_status_name(b->status), 0},
        {"label", labels.label, 0},
        {"caller", caller_name(b->x), 0},
        {"correlationId", correlation, 0},
        {"requestId", b->x->id, 0},
        {"text", b->reason, 0},
    };
    log_event(b->server->log_form, HF_LOG_WARN, "broken", fields, sizeof fields / sizeof fields[0]);
}

static void report_break(const struct breaking *b)
{
    const struct lease_change change = {.event = "broken",
                                        .name = b->name,
                                        .label = b->label,
                                        .text = b->reason,
                                        .token = (uint64_t)b->token,
                                        .held_ms = b->held_ms,
                                        .waited_ms = -1};
    snapshot_change(b->server->view, &change);
}

static void after_break(struct job *job)
{
    struct breaking *b = (struct breaking *)(void *)job;
    bool may_be_broken = b->is_tried && (b->status == HF_OK || b->status == HF_IN_DOUBT);

    if (may_be_broken)
        lease_ledger_break(b->server->ledger, b->name, (uint64_t)b->token, b->status == HF_OK);
    if (b->status == HF_NOT_HELD)
        answer_problem(b->x, 412, "changed_hands",
                       "no such holder has this token; the lock may have changed hands", NULL);
    else if (b->status != HF_OK)
        answer_status(b->x, b->status, b->message, NULL);
    else {
        report_break(b);
        log_break(b);
        exchange_answer(b->x, 204, NULL, NULL, 0);
    }

    free_breaking(b);
}

/* Reads the parameters. Returns NULL, or what is wrong with them. */
static const char *read_break(struct exchange *x, struct breaking *b)
{
    char *token = query_text(x, "token"), *reason = query_text(x, "reason");
    char *pid = query_text(x, "pid");
    const char *wrong = NULL;

    b->host = query_text(x, "host");
    b->pid = -1;
    if (is_own_name(b->name))
        wrong = "name: belongs to the service";
    else if (!token || !whole_number(token, 1, INT64_MAX, &b->token))
        wrong = "token: must be the token of the holder";
    else if (pid && !whole_number(pid, 0, INT64_MAX, &b->pid))
        wrong = "pid: must be the process id of the holder";
    else if (!reason || !*reason || strlen(reason) > REASON_MAX)
        wrong = "reason: must have between 1 and 200 bytes";
    else
        strcpy(b->reason, reason);

    free(token);
    free(reason);
    free(pid);
    return wrong;
}

void route_break_lock(struct exchange *x)
{
    struct breaking *b = calloc(1, sizeof *b);

    if (!b) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }

    *b = (struct breaking){.job = {do_break, after_break, NULL}, .x = x, .server = server_of(x)};
    if (!read_name(x, 0, RIGHT_BREAK, b->name)) {
        free_breaking(b);
        return;
    }

    const char *wrong = read_break(x, b);
    if (wrong) {
        answer_problem(x, 400, "invalid", wrong, NULL);
        free_breaking(b);
        return;
    }

    lock_client_do(b->server->engine, b->server->workers, &b->job);
}
