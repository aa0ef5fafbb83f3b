/* etcd_admin.c - list, show and break. A list is one read, then one request for the remaining
 * time of each lease in it. */
#include "etcd_admin.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct etcd_connection *commands(struct etcd *e)
{
    return &e->connection[CONNECTION_COMMANDS];
}

/* ---- Making and dropping ---- */

static void free_row(struct admin_row *row)
{
    free(row->name);
    free(row->key);
}

static void free_rows(struct etcd_admin *admin)
{
    for (size_t i = 0; i < admin->count; i++)
        free_row(&admin->row[i]);
    admin->count = 0;
}

static void free_admin(struct etcd_admin *admin)
{
    free_rows(admin);
    free(admin->row);
    free(admin);
}

void etcd_admin_drop(struct etcd *e, struct etcd_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    struct etcd_admin **at = &e->admins;
    while (*at != admin)
        at = &(*at)->next;
    *at = admin->next;

    for (struct etcd_call *call = commands(e)->calls; call; call = call->next)
        if (call->admin == admin)
            etcd_call_abandon(call);

    if (admin->op)
        admin->op->engine_state = NULL;
    free_admin(admin);
}

void etcd_admin_reply(struct etcd *e, struct etcd_admin *admin, enum reply_kind kind,
                      hf_status status, const char *text)
{
    assert(admin->op && admin->op->engine_state == admin);
    struct engine_op *op = admin->op;
    struct engine_reply reply = {.kind = kind,
                                 .asked_at = admin->asked_at,
                                 .retry_at = TIME_NEVER,
                                 .status = status,
                                 .text = text};
    op->connections = 0;
    etcd_admin_drop(e, admin);
    e->host->on_reply(e->host->ctx, op, &reply);
}

void etcd_admin_forget(struct etcd *e, struct engine_op *op)
{
    assert(op->verb == OP_ADMIN);
    if (op->engine_state)
        etcd_admin_drop(e, op->engine_state);
    op->engine_state = NULL;
    op->connections = 0;
}

void etcd_admins_fail(struct etcd *e, const struct etcd_connection *connection)
{
    assert(connection->status != HF_OK);
    while (e->admins)
        etcd_admin_reply(e, e->admins, REPLY_FAILED, connection->status, connection->why);
}

void etcd_admins_close(struct etcd *e)
{
    while (e->admins)
        etcd_admin_drop(e, e->admins);
}

struct etcd_call *etcd_admin_call(struct etcd *e, struct etcd_admin *admin, const char *path,
                                  nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    struct etcd_call *call = etcd_call_path(commands(e), path, now);
    if (call)
        call->admin = admin;
    else
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for a request");

    return call;
}

/* ---- Reading ---- */

static const char txn_path[] = "/etcdserverpb.KV/Txn",
                  ttl_path[] = "/etcdserverpb.Lease/LeaseTimeToLive";

/* Sends a read of the keys of one name, or of all names that begin with the text. */
static void send_read(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    const struct engine_op *op = admin->op;
    char first[ETCD_PREFIX_MAX + 3 * HF_NAME_MAX + 4], last[sizeof first];
    memcpy(first, e->prefix, e->prefix_len);
    size_t len =
        e->prefix_len + etcd_value_encode_name(first + e->prefix_len, op->name, op->name_len);
    bool one = !(admin_op_of(op)->verb == ADMIN_LIST && admin_op_of(op)->scope == LIST_PREFIX);
    char name[3 * HF_NAME_MAX + 1];
    size_t name_len = len - e->prefix_len;
    memcpy(name, first + e->prefix_len, name_len);
    if (one)
        first[len++] = '/';
    memcpy(last, first, len);
    while (len > 1 && (unsigned char)last[len - 1] == 0xff)
        len--;
    last[len - 1]++;

    struct range_request range = {.key = {first, len}, .range_end = {last, len}, .by_key = true};
    pb_clear(&e->message);
    message_txn_range(&e->message, TXN_THEN, &range);
    etcd_resize_read_range(e, (struct slice){name, name_len}, one);
    etcd_admin_call(e, admin, txn_path, now);
}

static void begin(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    const struct admin_op *op = admin_op_of(admin->op);
    if (op->verb == ADMIN_LIST && op->scope == LIST_HISTORY)
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_UNSUPPORTED,
                         "history: past holds are not kept by the engine etcd");
    else if (op->verb == ADMIN_DIAGNOSE)
        etcd_diagnose_begin(e, admin, now);
    else
        send_read(e, admin, now);
}

void etcd_admins_advance(struct etcd *e, nanos now)
{
    struct etcd_admin *next;
    if (commands(e)->state != CONNECTION_UP)
        return;
    /* The list must come after the releases that this client sent before it. */
    if (e->deleting) {
        e->has_backlog = true;
        return;
    }

    for (struct etcd_admin *admin = e->admins; admin; admin = next) {
        next = admin->next;
        if (admin->begun)
            continue;
        admin->begun = true;
        begin(e, admin, now);
    }
}

void etcd_admin_submit(struct etcd *e, struct engine_op *op, nanos now)
{
    assert(op->verb == OP_ADMIN && !op->engine_state);
    struct etcd_admin *admin = calloc(1, sizeof *admin);
    if (!admin) {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .status = HF_NO_MEMORY,
                                     .text = "no memory for a request"};
        e->host->on_reply(e->host->ctx, op, &reply);
        return;
    }

    admin->op = op;
    admin->asked_at = now;
    admin->next = e->admins;
    e->admins = admin;
    op->engine_state = admin;
    op->connections = 1u << CONNECTION_COMMANDS;

    if (etcd_connection_need(commands(e), now))
        etcd_admins_advance(e, now);
    else if (commands(e)->state == CONNECTION_DOWN)
        etcd_admin_reply(e, admin, REPLY_FAILED, commands(e)->status, commands(e)->why);
}

/* ---- Rows ---- */

/* Splits a key into the name and the part behind its slash. */
static bool split_key(const struct etcd *e, struct slice key, struct slice *name,
                      struct slice *tail)
{
    assert(key.at || !key.len);
    if (key.len <= e->prefix_len || memcmp(key.at, e->prefix, e->prefix_len) != 0)
        return false;

    const char *begin = key.at + e->prefix_len, *end = key.at + key.len;
    const char *slash = memchr(begin, '/', (size_t)(end - begin));
    if (*begin == '.' || !slash || slash + 1 == end)
        return false;

    *name = (struct slice){begin, (size_t)(slash - begin)};
    *tail = (struct slice){slash + 1, (size_t)(end - slash - 1)};
    return true;
}

static struct admin_row *add_row(struct etcd_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    if (admin->count == admin->room) {
        size_t room = admin->room ? 2 * admin->room : 16;
        struct admin_row *row = realloc(admin->row, room * sizeof *row);
        if (!row)
            return NULL;
        admin->row = row;
        admin->room = room;
    }
    return &admin->row[admin->count];
}

static bool take_row(const struct etcd *e, struct etcd_admin *admin, const struct key_value *pair)
{
    assert(admin->op && admin->count <= admin->room);
    struct slice name, tail;
    struct etcd_value value;
    char text[HF_NAME_MAX + 1];
    if (!split_key(e, pair->key, &name, &tail) || !etcd_value_read(&value, pair, tail))
        return true;

    struct admin_row *row = add_row(admin);
    if (!row)
        return false;

    etcd_value_decode_name(text, sizeof text, name.at, name.len);
    *row = (struct admin_row){.name = strdup(text),
                              .key = strndup(pair->key.at, pair->key.len),
                              .key_len = pair->key.len,
                              .value = value,
                              .created = pair->created,
                              .changed = pair->changed,
                              .lease = pair->lease,
                              .left_s = -1};
    admin->count++;
    return row->name && row->key;
}

static int by_name_and_arrival(const void *a, const void *b)
{
    const struct admin_row *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (names)
        return names;
    return x->created < y->created ? -1 : x->created > y->created;
}

/* Decides who holds among the rows `from` to `to`, all of one name. */
static bool judge_name(struct etcd_admin *admin, size_t from, size_t to)
{
    assert(admin->op && admin->count <= admin->room);
    struct queue_entry *queue = malloc((to - from) * sizeof *queue);
    if (!queue)
        return false;

    for (size_t i = from; i < to; i++)
        queue[i - from] = admin->row[i].value.queue;
    struct queue_summary summary = entry_order_judge(queue, to - from, admin->row[from].resize);
    for (size_t i = from; i < to; i++) {
        admin->row[i].value.queue = queue[i - from];
        admin->row[i].used = (uint32_t)summary.used;
    }

    free(queue);
    return true;
}

static bool judge_all(struct etcd_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    if (admin->count)
        qsort(admin->row, admin->count, sizeof *admin->row, by_name_and_arrival);

    for (size_t from = 0, to; from < admin->count; from = to) {
        for (to = from + 1; to < admin->count; to++)
            if (strcmp(admin->row[to].name, admin->row[from].name) != 0)
                break;
        if (!judge_name(admin, from, to))
            return false;
    }

    return true;
}

static uint64_t token_of(const struct admin_row *row)
{
    return row->value.token ? row->value.token : row->created;
}

/* Returns the token of the row's hold. If the hold is of this client, its entry on the server may
 * not have the token yet. */
static uint64_t own_token(const struct etcd *e, const struct admin_row *row)
{
    for (const struct etcd_entry *entry = e->entries; entry; entry = entry->next) {
        bool same = entry->stage == ENTRY_HELD && entry->created == row->created;
        if (same && entry->token)
            return entry->token;
    }

    return token_of(row);
}

static void show_row(struct etcd *e, struct etcd_admin *admin, const struct admin_row *row)
{
    assert(admin->op && admin->count <= admin->room);
    const struct queue_entry *q = &row->value.queue;
    int64_t wall_ms = e->last_now / NANOS_OF_MS(1) + e->wall_offset_ms;
    int64_t since = row->value.at_ms ? wall_ms - row->value.at_ms : 0;
    bool is_write = q->kind == HF_READ || q->kind == HF_WRITE;
    int64_t left_ms = row->left_s >= 0 ? row->left_s * 1000 : -1;
    struct hf_row out = {
        .size = sizeof out,
        .name = row->name,
        .role = q->holds ? HF_HOLDER : HF_WAITER,
        .kind = q->kind,
        .capacity = q->kind == HF_SEMAPHORE ? entry_order_capacity(q, row->resize) : 1,
        .used = is_write && row->used > 1 && row->used >= QUEUE_ALL ? 1 : row->used,
        .units = q->units,
        .depth = 1,
        .place = q->place,
        .token = q->holds ? own_token(e, row) : 0,
        .left_ms = q->holds ? left_ms : 0,
        .since_ms = since > 0 ? since : 0,
        .ticket = row->created,
        .ttl_ms = row->value.ttl_ms,
        .pid = row->value.pid,
        .host = row->value.host,
        .label = row->value.label,
        .detached = row->value.detached,
        .foreign = q->foreign,
    };
    e->host->row(e->host->ctx, admin->op, &out);
}

static void show_all(struct etcd *e, struct etcd_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    for (size_t from = 0, to; from < admin->count; from = to) {
        for (to = from; to < admin->count; to++)
            if (strcmp(admin->row[to].name, admin->row[from].name) != 0)
                break;
        for (int waiters = 0; waiters < 2; waiters++)
            for (size_t i = from; i < to; i++)
                if (admin->row[i].value.queue.holds != waiters)
                    show_row(e, admin, &admin->row[i]);
    }

    etcd_admin_reply(e, admin, REPLY_RELEASED, HF_OK, NULL);
}

/* Asks for the remaining time of the next lease; once all are known, shows the rows. */
static void send_lease_reads(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    for (size_t i = 0; i < admin->count && admin->leases_read < ADMIN_LEASES_MAX; i++) {
        const struct admin_row *row = &admin->row[i];
        bool is_asked_for = row->left_s >= 0 || row->asked;
        bool can_be_asked_for = row->value.queue.holds && row->lease;
        if (!can_be_asked_for || is_asked_for)
            continue;
        admin->lease = row->lease;
        admin->leases_read++;
        pb_clear(&e->message);
        message_lease_id(&e->message, row->lease);
        etcd_admin_call(e, admin, ttl_path, now);
        return;
    }

    show_all(e, admin);
}

/* A lease that has ended since the list was read has the ttl -1: its hold has no time left. That is
 * not a hold whose end is not known. */
static int64_t seconds_left(const struct message *m)
{
    int64_t ttl = m->ttl < ETCD_LEASE_TTL_MAX ? m->ttl : ETCD_LEASE_TTL_MAX;
    return ttl > 0 ? ttl : 0;
}

static void on_lease(struct etcd *e, struct etcd_admin *admin, const struct message *m, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    for (size_t i = 0; i < admin->count; i++)
        if (admin->row[i].lease == admin->lease) {
            admin->row[i].left_s = seconds_left(m);
            admin->row[i].asked = true;
        }
    admin->lease = 0;
    send_lease_reads(e, admin, now);
}

/* ---- Breaking ---- */

static void break_hold(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    const struct admin_row *found = NULL;
    for (size_t i = 0; i < admin->count && !found; i++) {
        const struct admin_row *row = &admin->row[i];
        bool matches = token_of(row) == admin->op->token || row->created == admin->op->token;
        if (row->value.queue.holds && matches)
            found = row;
    }

    if (!found) {
        etcd_admin_reply(e, admin, REPLY_NOT_HELD, HF_OK, NULL);
        return;
    }

    struct slice key = {found->key, found->key_len};
    pb_clear(&e->message);
    message_compare(&e->message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL, found->created);
    message_txn_delete(&e->message, TXN_THEN, key);
    admin->changes = true;
    etcd_admin_call(e, admin, txn_path, now);
}

/* ---- Replies ---- */

static void on_rows(struct etcd *e, struct etcd_admin *admin, struct message *m, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    struct key_value pair;
    struct message rows, resizes;
    bool good = message_next_response(&m->responses, &rows);
    while (good && message_next_pair(&rows.pairs, &pair))
        good = take_row(e, admin, &pair);
    if (message_next_response(&m->responses, &resizes))
        etcd_resize_note_rows(e, admin, &resizes);
    admin->revision = m->header.revision;

    if (!good || !judge_all(admin))
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for the list");
    else if (admin_op_of(admin->op)->verb == ADMIN_BREAK)
        break_hold(e, admin, now);
    else if (admin_op_of(admin->op)->verb == ADMIN_RESIZE)
        etcd_resize_rows(e, admin, now);
    else
        send_lease_reads(e, admin, now);
}

static void on_changed(struct etcd *e, struct etcd_admin *admin, bool succeeded, nanos now)
{
    bool resizes = admin_op_of(admin->op)->verb == ADMIN_RESIZE;
    admin->changes = false;
    if (succeeded) {
        etcd_admin_reply(e, admin, REPLY_RELEASED, HF_OK, NULL);
    } else if (!resizes) {
        etcd_admin_reply(e, admin, REPLY_NOT_HELD, HF_OK, NULL);
    } else if (etcd_resize_may_retry(admin)) {
        free_rows(admin);
        send_read(e, admin, now);
    } else {
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_UNAVAILABLE, "the cluster changes too fast");
    }
}

void etcd_admin_on_reply(struct etcd *e, struct etcd_call *call, const char *bytes, size_t len,
                         nanos now)
{
    assert(call->admin && call->admin->begun);
    struct etcd_admin *admin = call->admin;
    struct message m;
    bool leases = admin->lease != 0;
    if (admin_op_of(admin->op)->verb == ADMIN_DIAGNOSE) {
        etcd_diagnose_on_reply(e, admin, bytes, len, now);
        return;
    }

    enum message_kind kind = leases ? MESSAGE_LEASE : MESSAGE_TXN;
    if (!message_read(&m, kind, bytes, len))
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_UNAVAILABLE, "the reply cannot be read");
    else if (admin->changes)
        on_changed(e, admin, m.succeeded, now);
    else if (leases)
        on_lease(e, admin, &m, now);
    else
        on_rows(e, admin, &m, now);
}

void etcd_admin_on_end(struct etcd *e, struct etcd_call *call, const struct http2_end *end,
                       nanos now)
{
    assert(call->admin && call->admin->op);
    struct etcd_admin *admin = call->admin;
    (void)now;
    bool denied = end->code == 7 || end->code == 16 || strstr(end->text, "user name is empty");

    if (admin->changes && end->code < 0)
        etcd_admin_reply(e, admin, REPLY_UNKNOWN, HF_OK, end->text);
    else
        etcd_admin_reply(e, admin, REPLY_FAILED, denied ? HF_DENIED : HF_UNAVAILABLE, end->text);
}
