/* redis_admin.c - list, history, break and resize.
 *
 * Each is done in one or more steps. A list reads the index of names (scripts/name_index.lua) and
 * inspects each name in use with one script. If the index is incomplete, the list first reads all
 * of it, which removes names that are no longer used. Then it walks through all keys with SCAN, and
 * a script adds the locks and counters among them to the index. A list that includes locks of other
 * programs inspects the keys that SCAN finds. SCAN may return a key twice, so the list remembers
 * the names that it has met. A page of a list collects the names that come first in byte order, and
 * inspects these only at the end. */
#include "redis.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of keys or names that one command inspects. A rebuild is rare, and each SCAN costs a
 * round trip. */
enum { SCAN_COUNT = 200, SCAN_COUNT_PAGE = 1000, SCAN_COUNT_REBUILD = 5000, NAMES_COUNT = 500 };
enum { PAGE = 2000 };           /* most waiters on a page */
#define NO_NAME SIZE_MAX        /* name_index of a step that inspects no name */
#define OF_NAMES (SIZE_MAX - 1) /* name_index of a step that reads the index */
#define OF_INDEX (SIZE_MAX - 2) /* name_index of a step that adds to the index */
#define AFTER_ALL_NAMES "\xff"  /* behind every name: UTF-8 has no such byte */
#define STEP_PATIENCE NANOS_OF_MS(2000)

struct redis_admin {
    char cursor[24]; /* cursor of the next SCAN; "": the scan is complete */
    uint32_t steps;  /* number of steps in flight */
    char **names;    /* names in the order in which they are inspected */
    size_t count, room;
    size_t *table; /* hash table of index + 1; 0: empty */
    size_t table_size;
    char bound[HF_NAME_MAX +
               /* where the next read of the index begins: "[name", "(name" or "-"; "": complete */
               3];
    bool clears;   /* reads the whole index to make room in it */
    bool rebuilds; /* SCAN collects names for the index; after that the index is read */
    bool rebuilt;  /* the rebuild is done, and is not repeated */
    bool is_page;  /* it is a page: `page` is in use */
    struct name_page page;
};

void redis_admin_free(struct redis_op *a)
{
    assert(!a->admin || a->sent_op.verb == OP_ADMIN);
    struct redis_admin *admin = a->admin;
    free(a->care);
    a->care = NULL;
    if (!admin)
        return;

    for (size_t i = 0; i < admin->count; i++)
        free(admin->names[i]);
    free(admin->names);
    free(admin->table);
    name_page_free(&admin->page);
    free(admin);
    a->admin = NULL;
}

static void finish(struct redis *r, struct redis_op *a, const struct request *request,
                   enum reply_kind kind)
{
    assert(request->op == a);
    redis_admin_free(a);
    redis_op_reply(
        r, a,
        &(struct engine_reply){.kind = kind, .asked_at = request->sent_at, .retry_at = TIME_NEVER});
}

/* Sends the command in r->command as the next step. Returns false on failure; the client then has
 * its reply. */
static bool send_step(struct redis *r, struct redis_op *a, size_t name_index, size_t from,
                      nanos now)
{
    struct request request = {.kind = REQ_STEP,
                              .verb = (uint8_t)admin_op_of(a->op)->verb,
                              .op = a,
                              .patience = STEP_PATIENCE};
    assert(a->admin);

    request.name_index = name_index;
    request.from = from;
    a->admin->steps++;
    a->op->connections = redis_connection_bit(r, CONNECTION_COMMANDS);
    if (redis_connection_send(r, &r->connection[CONNECTION_COMMANDS], request, now))
        return true;

    /* The send failed. If earlier steps were in flight, the client already has its reply and
     * `admin` is freed. */
    if (a->admin)
        redis_op_fail_with(r, a, &r->connection[CONNECTION_COMMANDS], now);
    return false;
}

/* ---- Names ---- */

/* Returns false if the table has that name already. */
static bool place_name(struct redis_admin *admin, size_t index)
{
    assert(admin->count < admin->table_size);
    const char *name = admin->names[index];

    for (size_t at = redis_name_hash(name, strlen(name));; at++) {
        size_t *cell = &admin->table[at & (admin->table_size - 1)];
        if (*cell == 0) {
            *cell = index + 1;
            return true;
        }
        if (strcmp(admin->names[*cell - 1], name) == 0)
            return false;
    }
}

static bool grow_names(struct redis_admin *admin)
{
    size_t room = admin->room ? admin->room * 2 : 256;
    char **names = realloc(admin->names, room * sizeof *names);
    if (names)
        admin->names = names;

    size_t *table = names ? calloc(room * 2, sizeof *table) : NULL;
    if (!table)
        return false;

    free(admin->table);
    admin->table = table;
    admin->table_size = room * 2;
    admin->room = room;
    for (size_t i = 0; i < admin->count; i++)
        place_name(admin, i);
    return true;
}

/* Returns 1 if the name is new, 0 if it was met before, -1 without memory. */
static int meet_name(struct redis_admin *admin, const char *name, size_t len)
{
    if (admin->count == admin->room && !grow_names(admin))
        return -1;
    if (!(admin->names[admin->count] = strndup(name, len)))
        return -1;

    if (!place_name(admin, admin->count)) {
        free(admin->names[admin->count]);
        return 0;
    }

    admin->count++;
    return 1;
}

/* ---- Steps ---- */

/* Inspects a name. A long queue is inspected in pages; `from` is the first waiter of the page. */
static bool inspect(struct redis *r, struct redis_op *a, size_t name_index, size_t from, nanos now)
{
    struct redis_keys keys;
    assert(name_index < a->admin->count);
    const char *name = a->admin->names[name_index];
    if (redis_keys_here(r, &keys, name, strlen(name)) != HF_OK) {
        redis_op_fail(r, a, now, HF_INVALID, error_text());
        return false;
    }

    redis_script_begin_uncached(r, SCRIPT_INSPECT, &keys, 3);
    resp_command_text(&r->command, admin_op_of(a->op)->scope == LIST_HISTORY ? "p" : "n");
    resp_command_number(&r->command, (int64_t)from);
    resp_command_number(&r->command, PAGE);
    return send_step(r, a, name_index, from, now);
}

static bool scan(struct redis *r, struct redis_op *a, nanos now)
{
    char key[REDIS_KEY_MAX], pattern[2 * REDIS_KEY_MAX];
    assert(a->admin->cursor[0]);
    int count = a->admin->is_page ? SCAN_COUNT_PAGE : SCAN_COUNT;
    int part = a->admin->rebuilds ? 0 : (int)a->sent_op.name_len;
    int len = snprintf(key, sizeof key, "%s%.*s", r->prefix, part, a->sent_op.name);
    redis_keys_pattern(a->admin->rebuilds ? "*" : "", key, (size_t)len, pattern, sizeof pattern);

    struct resp_command *c = &r->command;
    resp_command_begin(c, 6);
    resp_command_text(c, "SCAN");
    resp_command_text(c, a->admin->cursor);
    resp_command_text(c, "MATCH");
    resp_command_text(c, pattern);
    resp_command_text(c, "COUNT");
    resp_command_number(c, a->admin->rebuilds ? SCAN_COUNT_REBUILD : count);
    return send_step(r, a, NO_NAME, 0, now);
}

/* Reads the next names of the index. */
static bool read_index(struct redis *r, struct redis_op *a, nanos now)
{
    char last[HF_NAME_MAX + 3] = "+";
    if (a->sent_op.name_len && !a->admin->clears)
        snprintf(last, sizeof last, "(%.*s" AFTER_ALL_NAMES, (int)a->sent_op.name_len,
                 a->sent_op.name);

    redis_script_begin_index(r, SCRIPT_NAMES, 4);
    resp_command_text(&r->command, r->prefix);
    resp_command_text(&r->command, a->admin->bound);
    resp_command_text(&r->command, last);
    resp_command_number(&r->command, NAMES_COUNT);
    return send_step(r, a, OF_NAMES, 0, now);
}

/* Limits the read to the names of the page: others are not read at all. */
static void set_bound(struct redis_op *a, const char *after)
{
    const struct name_range *range = admin_op_of(a->op)->page;
    size_t except = range ? strlen(range->except) : 0;
    bool is_left_out = except && strncmp(after, range->except, except) == 0;
    char *bound = a->admin->bound;

    if (is_left_out)
        snprintf(bound, sizeof a->admin->bound, "(%s" AFTER_ALL_NAMES, range->except);
    else
        snprintf(bound, sizeof a->admin->bound, "(%s", after);
}

static bool begin_reading(struct redis *r, struct redis_op *a, nanos now)
{
    const struct name_range *range = admin_op_of(a->op)->page;
    const char *prefix = a->sent_op.name;
    size_t len = a->sent_op.name_len;
    bool is_behind = range && range->after[0] && strncmp(range->after, prefix, len) >= 0;

    if (is_behind)
        set_bound(a, range->after);
    else if (len)
        snprintf(a->admin->bound, sizeof a->admin->bound, "[%.*s", (int)len, prefix);
    else
        strcpy(a->admin->bound, "-");

    return read_index(r, a, now);
}

static bool begin_scan(struct redis *r, struct redis_op *a, bool rebuilds, nanos now)
{
    a->admin->rebuilds = rebuilds;
    a->admin->clears = false;
    a->admin->bound[0] = 0;
    strcpy(a->admin->cursor, "0");
    return scan(r, a, now);
}

static enum script_id script_of(enum admin_verb verb)
{
    if (verb == ADMIN_BREAK)
        return SCRIPT_BREAK;
    return verb == ADMIN_RESIZE ? SCRIPT_RESIZE : SCRIPT_INSPECT;
}

static void break_or_resize(struct redis *r, struct redis_op *a, nanos now)
{
    const struct engine_op *op = &a->sent_op;
    struct redis_keys keys;
    if (redis_keys_here(r, &keys, op->name, op->name_len) != HF_OK) {
        redis_op_fail(r, a, now, HF_INVALID, error_text());
        return;
    }

    enum admin_verb verb = admin_op_of(a->op)->verb;
    bool breaks = verb == ADMIN_BREAK;
    assert(breaks || verb == ADMIN_RESIZE);

    redis_script_begin_uncached(r, script_of(verb), &keys, breaks ? 3 : 1);
    resp_command_number(&r->command, breaks ? (int64_t)op->token : op->capacity);
    if (breaks) {
        resp_command_number(&r->command, r->history);
        resp_command_number(&r->command, r->history_age_ms);
    }

    send_step(r, a, NO_NAME, 0, now);
}

void redis_admin_begin(struct redis *r, struct redis_op *a, nanos now)
{
    const struct admin_op *asked = admin_op_of(a->op);
    assert(a->sent_op.verb == OP_ADMIN && !a->admin);
    a->admin = calloc(1, sizeof *a->admin);
    if (!a->admin) {
        redis_op_fail(r, a, now, HF_NO_MEMORY, "no memory to list");
        return;
    }

    bool is_page = asked->scope == LIST_PREFIX && asked->page && asked->page->most;
    if (is_page && name_page_open(&a->admin->page, asked->page) != HF_OK) {
        redis_admin_free(a);
        redis_op_fail(r, a, now, HF_NO_MEMORY, error_text());
        return;
    }

    a->admin->is_page = is_page;
    if (asked->verb != ADMIN_LIST) {
        break_or_resize(r, a, now);
    } else if (asked->scope == LIST_PREFIX &&
               (r->cluster.is_on || (asked->page && asked->page->foreign))) {
        begin_scan(r, a, false, now);
    } else if (asked->scope == LIST_PREFIX) {
        begin_reading(r, a, now);
    } else if (meet_name(a->admin, a->sent_op.name, a->sent_op.name_len) == 1) {
        inspect(r, a, 0, 0, now);
    } else {
        redis_op_fail(r, a, now, HF_NO_MEMORY, "no memory to list");
    }
}

/* ---- Rows ---- */

/* Reads the holder or waiter at the end of a row. */
static void read_meta(struct hf_row *row, char *text)
{
    struct redis_meta meta;
    row->host = row->label = "";
    if (!redis_meta_read(text, &meta))
        return;

    row->ticket = meta.ticket;
    row->pid = meta.pid;
    row->detached = meta.detached;
    row->host = meta.host;
    row->label = meta.label;
    text[meta.host - text + meta.host_len] = 0;
}

static hf_kind read_kind(char letter)
{
    switch (letter) {
    case 's':
        return HF_SEMAPHORE;
    case 'r':
        return HF_READ;
    case 'w':
        return HF_WRITE;
    default:
        return HF_EXCLUSIVE;
    }
}

static int64_t ms_since(int64_t now, int64_t then)
{
    return then < now ? (now - then) / 1000 : 0;
}

/* Reads "f left": a key of another program. */
static bool read_foreign(const char *text, struct hf_row *row)
{
    row->foreign = true;
    row->depth = row->units = 1;
    row->host = row->label = "";
    return sscanf(text, "f %" SCNd64, &row->left_ms) == 1;
}

/* Reads "w arrival units ttl kind meta". */
static bool read_waiter(char *text, int64_t now, struct hf_row *row)
{
    int meta_at = 0;
    char kind;
    uint64_t arrival = 0;
    int count = sscanf(text, "w %" SCNu64 " %u %" SCNd64 " %c %n", &arrival, &row->units,
                       &row->ttl_ms, &kind, &meta_at);
    if (count != 4 || !meta_at)
        return false;

    row->role = HF_WAITER;
    row->depth = 1;
    read_meta(row, text + meta_at);
    row->ticket = arrival;
    row->since_ms = ms_since(now, (int64_t)arrival);
    row->kind = read_kind(kind);
    return true;
}

/* Reads "h left depth units token ttl kind meta". */
static bool read_holder(char *text, int64_t now, struct hf_row *row)
{
    int meta_at = 0;
    char kind;
    int count = sscanf(text, "h %" SCNd64 " %u %u %" SCNu64 " %" SCNd64 " %c %n", &row->left_ms,
                       &row->depth, &row->units, &row->token, &row->ttl_ms, &kind, &meta_at);
    if (count != 6 || !meta_at)
        return false;

    read_meta(row, text + meta_at);
    row->since_ms =
        row->token > NO_TOKEN ? ms_since(now, (int64_t)row->token) : row->ttl_ms - row->left_ms;
    row->kind = read_kind(kind);
    return true;
}

/* Reads one row of the verb inspect, mode n. Returns false if there is nothing to show (d, a
 * dead waiter). */
static bool read_row(char *text, int64_t now, uint32_t *place, struct hf_row *row)
{
    switch (text[0]) {
    case 'f':
        return read_foreign(text, row);
    case 'd':
        return false;
    case 'w':
        row->place = ++*place;
        return read_waiter(text, now, row);
    default:
        return read_holder(text, now, row);
    }
}

/* Returns the number of waiters on the page. Holders are shown with the first page only. */
static size_t show_now(struct redis *r, struct redis_op *a, const struct request *request,
                       const struct resp_reply *resp)
{
    assert(request->name_index < a->admin->count);
    const struct resp_reply *item = resp->first;
    const char *name = a->admin->names[request->name_index];
    int64_t now = resp_count(item);
    uint32_t place = (uint32_t)request->from;
    size_t waiters = 0;
    int64_t capacity = resp_count(resp_item(resp, 2)), used = resp_count(resp_item(resp, 3));

    for (size_t i = 0; item; item = item->next, i++) {
        struct hf_row row = {.size = sizeof row,
                             .name = name,
                             .capacity = (uint32_t)capacity,
                             .used = (uint32_t)used};
        char *copy = i >= 4 && item->type == RESP_TEXT ? strdup(item->text) : NULL;
        waiters += copy && (copy[0] == 'w' || copy[0] == 'd');
        bool is_row = copy && read_row(copy, now, &place, &row);
        if (is_row && (row.role == HF_WAITER || !request->from))
            r->host->row(r->host->ctx, a->op, &row);
        free(copy);
    }

    return waiters;
}

/* Reads "token start until ended why units kind ttl meta". `ended` is 0 if the hold ended by
 * time: then it ended when it was due, at the latest when the next hold began. */
static bool read_past(char *text, int64_t now, int64_t *next_start, struct hf_row *row)
{
    int64_t start, until, ended;
    char why, kind;
    int meta_at = 0;
    int count = sscanf(
        text, "%" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %c %u %c %" SCNd64 " %n",
        &row->token, &start, &until, &ended, &why, &row->units, &kind, &row->ttl_ms, &meta_at);
    if (count != 8)
        return false;

    if (!ended)
        ended = until < *next_start ? until : *next_start;
    read_meta(row, text + meta_at);
    row->ticket = 0;
    row->detached = false;
    row->kind = read_kind(kind);
    row->ended = why == 'r' ? HF_OK : HF_LOST;
    row->ended_ms = ms_since(now, ended);
    row->since_ms = ms_since(ended, start);
    *next_start = start;
    return true;
}

static size_t show_past(struct redis *r, struct redis_op *a, const char *name,
                        const struct resp_reply *resp)
{
    const struct resp_reply *item = resp->first;
    int64_t now = resp_count(item), next_start = now;

    for (item = item ? item->next : NULL; item; item = item->next) {
        struct hf_row row = {.size = sizeof row, .name = name, .depth = 1};
        char *copy = item->type == RESP_TEXT ? strdup(item->text) : NULL;
        if (copy && read_past(copy, now, &next_start, &row))
            r->host->row(r->host->ctx, a->op, &row);
        free(copy);
    }

    return 0;
}

/* ---- Replies ---- */

/* Inspects a name, unless it was met before. Returns false if the client has its reply. */
static bool inspect_name(struct redis *r, struct redis_op *a, const char *name, size_t len,
                         nanos now)
{
    struct redis_admin *admin = a->admin;
    int met = meet_name(admin, name, len);
    if (met < 0) {
        redis_op_fail(r, a, now, HF_NO_MEMORY, "no memory to list");
        return false;
    }
    return !met || inspect(r, a, admin->count - 1, 0, now);
}

/* Returns the name that a key may stand for; NULL: the key is not a lock's. */
static const char *name_of(const struct redis *r, const struct resp_reply *key)
{
    return key->type == RESP_TEXT ? redis_keys_name(r->prefix, key->text, key->len) : NULL;
}

/* As name_of(), but accepts the key of a counter, too. */
static const char *any_name_of(const struct redis *r, const struct resp_reply *key, size_t *len)
{
    return key->type == RESP_TEXT ? redis_keys_any_name(r->prefix, key->text, key->len, len) : NULL;
}

/* Handles a name: a page keeps it, a whole list inspects it. Returns false if the client has its
 * reply. */
static bool on_name(struct redis *r, struct redis_op *a, const char *name, size_t len, nanos now)
{
    const struct name_range *range = admin_op_of(a->op)->page;
    if (range && !name_range_has(range, name))
        return true;
    if (!a->admin->is_page)
        return inspect_name(r, a, name, len, now);

    name_page_add(&a->admin->page, name, len);
    return true;
}

/* Inspects the names that the page has kept. Returns false if the client has its reply. */
static bool inspect_page(struct redis *r, struct redis_op *a, nanos now)
{
    const struct name_page *page = &a->admin->page;
    assert(a->admin->is_page);

    for (uint32_t i = 0; i < page->count; i++) {
        const char *name = name_page_at(page, i);
        if (!inspect_name(r, a, name, strlen(name), now))
            return false;
    }

    return true;
}

static void end_page(struct redis *r, struct redis_op *a)
{
    const char *end = a->admin->is_page ? name_page_end(&a->admin->page) : NULL;
    if (!end)
        return;

    struct hf_row row = end_of_page(end);
    r->host->row(r->host->ctx, a->op, &row);
}

/* Adds the names of these keys to the index. The script that gets the last ones marks the index
 * as complete. Returns false if the client has its reply. */
static bool add_to_index(struct redis *r, struct redis_op *a, const struct resp_reply *keys,
                         nanos now)
{
    unsigned count = 0;
    size_t len;
    for (const struct resp_reply *key = keys->first; key; key = key->next)
        count += any_name_of(r, key, &len) != NULL;
    if (!count && a->admin->cursor[0])
        return true;

    redis_script_begin_index(r, SCRIPT_INDEX, 2 + count);
    resp_command_text(&r->command, r->prefix);
    resp_command_number(&r->command, !a->admin->cursor[0]);

    for (const struct resp_reply *key = keys->first; key; key = key->next) {
        const char *name = any_name_of(r, key, &len);
        if (name)
            resp_command_word(&r->command, name, len);
    }

    return send_step(r, a, OF_INDEX, 0, now);
}

/* Reads {cursor, {key ...}}. Returns false if the client has its reply. */
static bool read_scan(struct redis *r, struct redis_op *a, const struct resp_reply *resp, nanos now)
{
    const struct resp_reply *cursor = resp_item(resp, 0), *keys = resp_item(resp, 1);
    struct redis_admin *admin = a->admin;
    bool is_scan = keys && keys->type == RESP_LIST && cursor->type == RESP_TEXT;
    if (!is_scan || cursor->len >= sizeof admin->cursor) {
        redis_op_fail(r, a, now, HF_UNAVAILABLE, "the server's reply to SCAN makes no sense");
        return false;
    }

    strcpy(admin->cursor, strcmp(cursor->text, "0") == 0 ? "" : cursor->text);
    if (admin->rebuilds)
        return add_to_index(r, a, keys, now);

    for (const struct resp_reply *key = keys->first; key; key = key->next) {
        const char *name = name_of(r, key);
        if (name && !on_name(r, a, name, key->len - (size_t)(name - key->text), now))
            return false;
    }

    return !admin->is_page || admin->cursor[0] || inspect_page(r, a, now);
}

/* Goes on with a list whose index is incomplete: reads the rest of the index, or scans if that was
 * done. `last` is the last name that was read. */
static void make_room(struct redis *r, struct redis_op *a, const struct resp_reply *last, nanos now)
{
    struct redis_admin *admin = a->admin;
    bool is_first = !admin->clears && !admin->rebuilt;

    if (!is_first && (admin->rebuilt || !last->len)) {
        begin_scan(r, a, !admin->rebuilt, now);
        return;
    }

    admin->clears = true;
    if (is_first)
        strcpy(admin->bound, "-");
    else
        snprintf(admin->bound, sizeof admin->bound, "(%s", last->text);

    read_index(r, a, now);
}

/* Reads {is complete, last name, name ...}. Returns false if the client has its reply, or if
 * another step was sent instead. */
static bool read_names(struct redis *r, struct redis_op *a, const struct resp_reply *resp,
                       nanos now)
{
    struct redis_admin *admin = a->admin;
    const struct resp_reply *last = resp_item(resp, 1);
    if (!last || last->type != RESP_TEXT || last->len > HF_NAME_MAX) {
        redis_op_fail(r, a, now, HF_UNAVAILABLE, "the server's reply to a list makes no sense");
        return false;
    }
    if (resp_count(resp->first) != 1 || admin->clears) {
        make_room(r, a, last, now);
        return false;
    }

    for (const struct resp_reply *name = last->next; name; name = name->next)
        if (name->type == RESP_TEXT && !on_name(r, a, name->text, name->len, now))
            return false;

    bool goes_on = last->len && !(admin->is_page && name_page_end(&admin->page));
    if (goes_on)
        set_bound(a, last->text);
    else
        admin->bound[0] = 0;

    return goes_on || !admin->is_page || inspect_page(r, a, now);
}

static void answer_list(struct redis *r, const struct request *request,
                        const struct resp_reply *resp, nanos now)
{
    struct redis_op *a = request->op;
    struct redis_admin *admin = a->admin;

    if (request->name_index == NO_NAME) {
        if (!read_scan(r, a, resp, now))
            return;
    } else if (request->name_index == OF_NAMES) {
        if (!read_names(r, a, resp, now))
            return;
    } else if (request->name_index == OF_INDEX) {
        if (!admin->cursor[0]) {
            admin->rebuilds = false;
            admin->rebuilt = true;
            begin_reading(r, a, now);
            return;
        }
    } else if (resp->type == RESP_LIST) { /* an error means that the key is not a lock */
        const char *name = admin->names[request->name_index];
        size_t shown = admin_op_of(a->op)->scope == LIST_HISTORY ? show_past(r, a, name, resp)
                                                                 : show_now(r, a, request, resp);
        if (shown == PAGE && !inspect(r, a, request->name_index, request->from + PAGE, now))
            return;
    }

    if (admin->steps)
        return;

    if (admin->cursor[0]) {
        scan(r, a, now);
    } else if (admin->bound[0]) {
        read_index(r, a, now);
    } else {
        end_page(r, a);
        finish(r, a, request, REPLY_RELEASED);
    }
}

/* Handles the reply to ADMIN_BREAK, the number of holds that were ended, or to ADMIN_RESIZE: 1
 * done, 0 not in use, -1 not a semaphore. */
static void answer_break_or_resize(struct redis *r, const struct request *request,
                                   const struct resp_reply *resp)
{
    struct redis_op *a = request->op;

    if (resp->type != RESP_NUMBER || (resp->number < 0 && request->verb == ADMIN_BREAK))
        redis_op_fail(r, a, request->sent_at, HF_UNAVAILABLE, "the server's reply makes no sense");
    else if (resp->number < 0) {
        error_set(HF_MISMATCH, "%s: is not a semaphore", a->op->name);
        redis_op_fail(r, a, request->sent_at, HF_MISMATCH, error_text());
    } else

        finish(r, a, request, resp->number ? REPLY_RELEASED : REPLY_NOT_HELD);
}

/* The server lacks the library: loads it, and sends the step again. */
static void load_and_resend_step(struct redis *r, const struct request *request,
                                 const struct resp_reply *error, nanos now)
{
    struct redis_op *a = request->op;
    assert(request->verb != ADMIN_LIST || request->name_index != NO_NAME);

    redis_load(r, &r->connection[CONNECTION_COMMANDS], error, now);
    if (!a->admin)
        return; /* the connection broke meanwhile, and the client has its reply */

    if (request->name_index == OF_NAMES)
        read_index(r, a, now);
    else if (request->name_index == OF_INDEX)
        begin_scan(r, a, true, now);
    else if (request->verb == ADMIN_LIST)
        inspect(r, a, request->name_index, request->from, now);
    else
        break_or_resize(r, a, now);
}

/* Returns true if a row may be missing: the key is not a lock, or its slot has moved and the new
 * server shows it. */
static bool may_be_left_out(struct redis *r, const struct resp_reply *error)
{
    return strncmp(error->text, "WRONGTYPE", 9) == 0 || redis_cluster_is_elsewhere(r, error);
}

void redis_admin_answer(struct redis *r, const struct request *request,
                        const struct resp_reply *resp, nanos now)
{
    struct redis_op *a = request->op;
    if (!a->admin)
        return; /* an earlier step failed, and the client has its reply */

    assert(a->admin->steps > 0);
    a->admin->steps--;
    const struct admin_op *asked = admin_op_of(a->op);
    bool one_of_many = asked->verb == ADMIN_LIST && asked->scope == LIST_PREFIX;

    bool is_list = asked->verb == ADMIN_LIST;
    bool is_scan = is_list && request->name_index == NO_NAME;
    bool is_about_index =
        is_list && (request->name_index == OF_NAMES || request->name_index == OF_INDEX);
    bool is_new = request->from == 0; /* no row of the name was shown yet */
    if (!one_of_many && is_new && resp->type == RESP_ERROR &&
        redis_cluster_on_error(r, request, resp, now))
        return;

    if (!is_scan && redis_load_is_needed(resp)) {
        load_and_resend_step(r, request, resp, now);
    } else if (resp->type == RESP_ERROR && is_about_index) {
        /* the index cannot be changed, for example for lack of a right: scan */
        begin_scan(r, a, false, now);
    } else if (resp->type == RESP_ERROR && !(one_of_many && may_be_left_out(r, resp))) {
        struct error_reply error_reply = redis_error_reply(r, resp);
        error_reply.outcome_unknown &= asked->verb != ADMIN_LIST;
        redis_op_refuse(r, a, request->sent_at, &error_reply);
    } else if (asked->verb == ADMIN_LIST) {
        answer_list(r, request, resp, now);
    } else {
        answer_break_or_resize(r, request, resp);
    }
}
