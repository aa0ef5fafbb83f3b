/* consul_admin.c - list, show and break. A list is one read of keys. */
#include "consul_admin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making and dropping ---- */

static void free_admin(struct consul_admin *admin)
{
    for (size_t i = 0; i < admin->count; i++) {
        free(admin->row[i].name);
        free(admin->row[i].key);
    }

    free(admin->row);
    free(admin);
}

static void drop_admin(struct consul *c, struct consul_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    struct consul_admin **at = &c->admins;
    while (*at != admin)
        at = &(*at)->next;
    *at = admin->next;

    for (struct consul_call *call = consul_commands(c)->calls; call; call = call->next)
        if (call->admin == admin)
            consul_call_abandon(call);

    if (admin->op)
        admin->op->engine_state = NULL;
    free_admin(admin);
}

void consul_admin_reply(struct consul *c, struct consul_admin *admin, enum reply_kind kind,
                        hf_status status, const char *text)
{
    assert(admin->op && admin->count <= admin->room);
    struct engine_op *op = admin->op;
    struct engine_reply reply = {.kind = kind,
                                 .asked_at = admin->asked_at,
                                 .retry_at = TIME_NEVER,
                                 .status = status,
                                 .text = text};
    op->connections = 0;
    drop_admin(c, admin);
    c->host->on_reply(c->host->ctx, op, &reply);
}

void consul_admin_forget(struct consul *c, struct engine_op *op)
{
    if (op->engine_state)
        drop_admin(c, op->engine_state);
    op->engine_state = NULL;
    op->connections = 0;
}

void consul_admins_fail(struct consul *c, const struct consul_connection *connection)
{
    while (c->admins)
        consul_admin_reply(c, c->admins, REPLY_FAILED, connection->status, connection->why);
}

void consul_admins_close(struct consul *c)
{
    while (c->admins)
        drop_admin(c, c->admins);
}

void consul_admin_call(struct consul *c, struct consul_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    struct consul_call *call = consul_call(consul_commands(c), CALL_ADMIN, now);
    if (call)
        call->admin = admin;
    else
        consul_admin_reply(c, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for a request");
}

/* ---- Reading ---- */

/* Sends a read of the keys of one name, or of all names that begin with the text. */
static void send_read(struct consul *c, struct consul_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    const struct engine_op *op = admin->op;
    char key[CONSUL_PREFIX_MAX + 3 * HF_NAME_MAX + 4];
    memcpy(key, c->prefix, c->prefix_len);
    size_t len =
        c->prefix_len + consul_value_encode_name(key + c->prefix_len, op->name, op->name_len);
    bool one = !(admin_op_of(op)->verb == ADMIN_LIST && admin_op_of(op)->scope == LIST_PREFIX);
    if (one)
        key[len++] = '/';
    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "GET /v1/kv/");
    text_path(&c->head, (struct slice){key, len});
    text_print(&c->head, "?recurse&consistent");
    consul_admin_call(c, admin, now);
}

static void begin(struct consul *c, struct consul_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    const struct admin_op *op = admin_op_of(admin->op);
    if (op->verb == ADMIN_LIST && op->scope == LIST_HISTORY)
        consul_admin_reply(c, admin, REPLY_FAILED, HF_UNSUPPORTED,
                           "history: past holds are not kept by the engine consul");
    else if (op->verb == ADMIN_RESIZE)
        consul_admin_reply(c, admin, REPLY_FAILED, HF_UNSUPPORTED,
                           "the engine consul cannot resize");
    else if (op->verb == ADMIN_DIAGNOSE)
        consul_diagnose_begin(c, admin, now);
    else
        send_read(c, admin, now);
}

void consul_admins_advance(struct consul *c, nanos now)
{
    struct consul_admin *next;
    if (consul_commands(c)->state != CONNECTION_UP)
        return;
    /* A list waits for the releases that this client sent before it, so that it shows them. */
    if (c->deleting) {
        c->has_backlog = c->admins != NULL;
        return;
    }

    for (struct consul_admin *admin = c->admins; admin; admin = next) {
        next = admin->next;
        if (admin->begun)
            continue;
        admin->begun = true;
        begin(c, admin, now);
    }
}

void consul_admin_submit(struct consul *c, struct engine_op *op, nanos now)
{
    struct consul_connection *commands = consul_commands(c);
    struct consul_admin *admin = calloc(1, sizeof *admin);
    if (!admin) {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .status = HF_NO_MEMORY,
                                     .text = "no memory for a request"};
        c->host->on_reply(c->host->ctx, op, &reply);
        return;
    }

    admin->op = op;
    admin->asked_at = now;
    admin->next = c->admins;
    c->admins = admin;
    op->engine_state = admin;
    op->connections = 1u << CONNECTION_COMMANDS;

    if (consul_connection_need(commands, now))
        consul_admins_advance(c, now);
    else if (commands->state == CONNECTION_DOWN)
        consul_admin_reply(c, admin, REPLY_FAILED, commands->status, commands->why);
}

/* ---- Rows ---- */

/* Splits a key into the name and the part behind its slash. */
static bool split_key(const struct consul *c, const struct consul_pair *pair, struct slice *name,
                      struct slice *tail)
{
    if (pair->key_len <= c->prefix_len || memcmp(pair->key, c->prefix, c->prefix_len) != 0)
        return false;

    const char *begin = pair->key + c->prefix_len, *end = pair->key + pair->key_len;
    const char *slash = memchr(begin, '/', (size_t)(end - begin));
    if (*begin == '.' || !slash || slash + 1 == end)
        return false;

    *name = (struct slice){begin, (size_t)(slash - begin)};
    *tail = (struct slice){slash + 1, (size_t)(end - slash - 1)};
    return true;
}

static bool make_room(struct consul_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    if (admin->count < admin->room)
        return true;

    size_t room = admin->room ? 2 * admin->room : 16;
    struct admin_row *row = realloc(admin->row, room * sizeof *row);
    if (!row)
        return false;

    admin->row = row;
    admin->room = room;
    return true;
}

/* Adds a pair. A .lock of another program becomes a row of its own. A .lock of ours is noted in the
 * row of the entry that it names. */
static bool take_row(const struct consul *c, struct consul_admin *admin,
                     const struct consul_pair *pair)
{
    assert(admin->op && admin->count <= admin->room);
    struct slice name, tail;
    struct consul_value value;
    char text[HF_NAME_MAX + 1];
    if (!split_key(c, pair, &name, &tail))
        return true;

    bool is_lock = consul_value_is_lock(tail);
    struct view_lock lock = {0};
    if (is_lock)
        lock = consul_value_read_lock(pair, &value);
    if (is_lock ? !lock.is_held : !consul_value_read(&value, pair, tail))
        return true;
    if (!make_room(admin))
        return false;

    consul_value_decode_name(text, sizeof text, name.at, name.len);
    struct admin_row *row = &admin->row[admin->count++];
    *row = (struct admin_row){.name = strdup(text),
                              .key = strndup(pair->key, pair->key_len),
                              .value = value,
                              .created = pair->created,
                              .changed = pair->changed,
                              .token = lock.token,
                              .is_lock = is_lock};
    memcpy(row->attempt, lock.attempt, sizeof row->attempt);
    return row->name && row->key;
}

/* Sorts .lock before the entries: if another program has .lock, that program is the holder. */
static int by_name_and_arrival(const void *a, const void *b)
{
    const struct admin_row *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (names)
        return names;
    if (x->is_lock != y->is_lock)
        return x->is_lock ? -1 : 1;
    return x->created < y->created ? -1 : x->created > y->created;
}

static bool is_named(const struct admin_row *row, const struct admin_row *lock)
{
    const char *slash = strrchr(row->key, '/');
    return lock && lock->attempt[0] && slash && strcmp(slash + 1, lock->attempt) == 0;
}

/* The entry that .lock names is the holder. All others wait, even if .lock is free at the
 * moment. */
static void judge_exclusive(struct admin_row *row, size_t count)
{
    const struct admin_row *lock = row[0].is_lock ? &row[0] : NULL;
    uint32_t place = 0;
    for (size_t i = 0; i < count; i++) {
        struct queue_entry *q = &row[i].value.queue;
        bool names_it = !row[i].is_lock && is_named(&row[i], lock);
        q->holds = names_it || (row[i].is_lock && !row[i].attempt[0]);
        q->place = q->holds || row[i].is_lock ? 0 : ++place;
        row[i].used = lock != NULL;
        if (names_it)
            row[i].token = lock->token;
    }
}

static bool judge_shared(struct admin_row *row, size_t count)
{
    struct queue_entry *queue = malloc(count * sizeof *queue);
    if (!queue)
        return false;

    for (size_t i = 0; i < count; i++) {
        queue[i] = row[i].value.queue;
        queue[i].arrival = i + 1;
    }

    struct queue_summary summary = entry_order_judge(queue, count, (struct queue_resize){0, 0});
    for (size_t i = 0; i < count; i++) {
        row[i].value.queue = queue[i];
        row[i].used = (uint32_t)summary.used;
        row[i].token = queue[i].holds ? row[i].value.token : 0;
    }

    free(queue);
    return true;
}

static bool judge_name(struct admin_row *row, size_t count)
{
    const struct admin_row *first = &row[row[0].is_lock && count > 1];
    bool is_shared = !first->value.queue.foreign && first->value.queue.kind != HF_EXCLUSIVE;
    bool skips_lock = row[0].is_lock && row[0].attempt[0];
    if (is_shared)
        return judge_shared(row + skips_lock, count - skips_lock);

    judge_exclusive(row, count);
    return true;
}

/* Returns the end of the rows of one name that begins at `from`. */
static size_t end_of_name(const struct consul_admin *admin, size_t from)
{
    size_t to = from + 1;
    while (to < admin->count && strcmp(admin->row[to].name, admin->row[from].name) == 0)
        to++;
    return to;
}

static bool judge_all(struct consul_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    if (admin->count)
        qsort(admin->row, admin->count, sizeof *admin->row, by_name_and_arrival);

    for (size_t from = 0, to; from < admin->count; from = to) {
        to = end_of_name(admin, from);
        if (!judge_name(admin->row + from, to - from))
            return false;
    }

    return true;
}

/* ---- Showing ---- */

/* Returns the time left. Consul does not say how long a session will last: for holds of this client
 * the time is known, for holds of other clients the ttl is the upper bound, for other programs
 * nothing is known. */
static int64_t left_ms_of(const struct consul *c, const struct admin_row *row)
{
    for (const struct consul_entry *entry = c->entries; entry; entry = entry->next) {
        bool same =
            entry->stage == ENTRY_HELD && entry->created == row->created && entry->good_until;
        nanos left = entry->good_until - c->last_now;
        if (same)
            return left > 0 ? left / NANOS_OF_MS(1) : 0;
    }

    int64_t wall_ms = c->last_now / NANOS_OF_MS(1) + c->wall_offset_ms;
    int64_t rest = row->value.ttl_ms - (wall_ms - row->value.at_ms);
    if (row->value.queue.foreign)
        return -1;
    if (!row->value.detached)
        return row->value.ttl_ms;
    return rest > 0 ? rest : 0;
}

static void show_row(struct consul *c, struct consul_admin *admin, const struct admin_row *row)
{
    assert(admin->op && admin->count <= admin->room);
    const struct queue_entry *q = &row->value.queue;
    int64_t wall_ms = c->last_now / NANOS_OF_MS(1) + c->wall_offset_ms;
    int64_t since = row->value.at_ms ? wall_ms - row->value.at_ms : 0;
    bool is_read_write = q->kind == HF_READ || q->kind == HF_WRITE;
    struct hf_row out = {
        .size = sizeof out,
        .name = row->name,
        .role = q->holds ? HF_HOLDER : HF_WAITER,
        .kind = q->kind,
        .capacity = q->kind == HF_SEMAPHORE ? q->capacity : 1,
        .used = is_read_write && row->used >= QUEUE_ALL ? 1 : row->used,
        .units = q->units,
        .depth = 1,
        .place = q->place,
        .token = q->holds ? row->token : 0,
        .left_ms = q->holds ? left_ms_of(c, row) : 0,
        .since_ms = since > 0 ? since : 0,
        .ticket = row->created,
        .ttl_ms = row->value.ttl_ms,
        .pid = row->value.pid,
        .host = row->value.host,
        .label = row->value.label,
        .detached = row->value.detached,
        .foreign = q->foreign,
    };
    c->host->row(c->host->ctx, admin->op, &out);
}

static void show_all(struct consul *c, struct consul_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    for (size_t from = 0, to; from < admin->count; from = to) {
        to = end_of_name(admin, from);
        for (int waiters = 0; waiters < 2; waiters++)
            for (size_t i = from; i < to; i++) {
                const struct admin_row *row = &admin->row[i];
                bool is_shown = !row->is_lock || !row->attempt[0];
                if (is_shown && row->value.queue.holds != waiters)
                    show_row(c, admin, row);
            }
    }

    consul_admin_reply(c, admin, REPLY_RELEASED, HF_OK, NULL);
}

/* ---- Breaking ---- */

static const struct admin_row *find_hold(const struct consul_admin *admin, uint64_t token)
{
    assert(admin->op && admin->count <= admin->room);
    for (size_t i = 0; i < admin->count; i++) {
        const struct admin_row *row = &admin->row[i];
        if (row->value.queue.holds && !row->is_lock && row->token == token)
            return row;
    }

    return NULL;
}

/* Deletes the holder's keys. The first waiter then takes .lock. */
static void break_hold(struct consul *c, struct consul_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    const struct admin_row *found = find_hold(admin, admin->op->token), *lock = &admin->row[0];
    if (!found) {
        consul_admin_reply(c, admin, REPLY_NOT_HELD, HF_OK, NULL);
        return;
    }

    struct slice key = {found->key, strlen(found->key)};
    txn_begin(&c->body);
    txn_add(&c->body, &(struct txn_op){.verb = "check-index", .key = key, .index = found->changed});
    txn_add(&c->body, &(struct txn_op){.verb = "delete", .key = key});

    if (found->value.queue.kind == HF_EXCLUSIVE) {
        struct slice lock_key = {lock->key, strlen(lock->key)};
        txn_add(&c->body,
                &(struct txn_op){.verb = "check-index", .key = lock_key, .index = lock->changed});
        txn_add(&c->body, &(struct txn_op){.verb = "delete", .key = lock_key});
    }

    txn_end(&c->body);
    text_clear(&c->head);
    text_print(&c->head, "PUT /v1/txn");
    admin->breaks = true;
    consul_admin_call(c, admin, now);
}

/* ---- Replies ---- */

static void on_rows(struct consul *c, struct consul_admin *admin, const struct consul_reply *reply,
                    nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    struct consul_pair pair;
    bool good = true;
    for (size_t i = 0; good && i < reply_pairs(reply); i++)
        good = !reply_pair(reply, i, &pair) || take_row(c, admin, &pair);

    if (!good || !judge_all(admin))
        consul_admin_reply(c, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for the list");
    else if (admin_op_of(admin->op)->verb == ADMIN_BREAK)
        break_hold(c, admin, now);
    else
        show_all(c, admin);
}

void consul_admin_on_reply(struct consul *c, struct consul_call *call,
                           const struct consul_reply *reply, nanos now)
{
    assert(call->connection);
    struct consul_admin *admin = call->admin;
    bool denied =
        reply->status == 401 || reply->status == 403 || strstr(reply->text, "Permission denied");
    bool usable = !denied && (reply->status == 200 || reply->status == 404 || reply->status == 409);

    if (admin_op_of(admin->op)->verb == ADMIN_DIAGNOSE)
        consul_diagnose_on_reply(c, admin, reply, now);
    else if (!usable && admin->breaks && !denied)
        consul_admin_reply(c, admin, REPLY_UNKNOWN, HF_OK, consul_commands(c)->why);
    else if (!usable)
        consul_admin_reply(c, admin, REPLY_FAILED, denied ? HF_DENIED : HF_UNAVAILABLE,
                           consul_commands(c)->why);
    else if (admin->breaks)
        consul_admin_reply(c, admin, reply->status == 200 ? REPLY_RELEASED : REPLY_NOT_HELD, HF_OK,
                           NULL);
    else
        on_rows(c, admin, reply, now);
}

void consul_admin_on_cut(struct consul *c, struct consul_call *call, const char *why)
{
    assert(call->connection);
    struct consul_admin *admin = call->admin;
    if (admin->breaks)
        consul_admin_reply(c, admin, REPLY_UNKNOWN, HF_OK, why);
    else
        consul_admin_reply(c, admin, REPLY_FAILED, HF_UNAVAILABLE, why);
}
