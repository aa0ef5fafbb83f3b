/* zk_admin.c - list, show and break. A list reads the names, then the places of each name, then
 * the data of each place. */
#include "zk_admin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READS_AT_ONCE = 256 };

/* ---- Making and dropping ---- */

static void free_rows(struct zk_admin *admin)
{
    for (size_t i = 0; i < admin->count; i++)
        free(admin->row[i].node);
    free(admin->row);
    admin->row = NULL;
    admin->count = admin->read = admin->sent = 0;
}

static void drop_admin(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    struct zk_admin **at = &zk->admins;
    while (*at != admin)
        at = &(*at)->next;
    *at = admin->next;
    zk_calls_abandon_admin(zk, admin);
    zk_words_abandon(zk, admin);
    if (admin->op)
        admin->op->engine_state = NULL;
    free_rows(admin);
    for (size_t i = 0; i < admin->names; i++)
        free(admin->name[i]);
    free(admin->name);
    free(admin);
}

void zk_admin_reply(struct zk *zk, struct zk_admin *admin, enum reply_kind kind, hf_status status,
                    const char *text)
{
    assert(admin->op && admin->at <= admin->names);
    struct engine_op *op = admin->op;
    struct engine_reply reply = {.kind = kind,
                                 .asked_at = admin->asked_at,
                                 .retry_at = TIME_NEVER,
                                 .status = status,
                                 .text = text};
    op->connections = 0;
    drop_admin(zk, admin);
    zk->host->on_reply(zk->host->ctx, op, &reply);
}

void zk_admin_forget(struct zk *zk, struct engine_op *op)
{
    if (op->engine_state)
        drop_admin(zk, op->engine_state);
    op->engine_state = NULL;
    op->connections = 0;
}

void zk_admins_fail(struct zk_session *s)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk_admin *next;
    for (struct zk_admin *admin = s->zk->admins; admin; admin = next) {
        next = admin->next;
        if (admin->session == s)
            zk_admin_reply(s->zk, admin, REPLY_FAILED, s->status, s->why);
    }
}

bool zk_admins_want(const struct zk_session *s)
{
    for (const struct zk_admin *admin = s->zk->admins; admin; admin = admin->next)
        if (admin->session == s)
            return true;
    return false;
}

void zk_admins_close(struct zk *zk)
{
    while (zk->admins)
        drop_admin(zk, zk->admins);
}

struct zk_call *zk_admin_call(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    struct zk_call *call = zk_call_send(admin->session, CALL_ADMIN, now);
    if (call)
        call->admin = admin;
    else
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for a request");

    return call;
}

/* ---- Rows ---- */

/* Returns this client's entry for a hold; NULL: the hold belongs to another client. The entry is
 * newer than the data of the node. */
static const struct zk_entry *own_entry(const struct zk *zk, const struct admin_row *row)
{
    for (const struct zk_entry *entry = zk->entries; entry; entry = entry->next)
        if (entry->stage == ENTRY_HELD && entry->created == (uint64_t)row->stat.created)
            return entry;
    return NULL;
}

/* Returns the time left. Only the leader knows when a session of another client ends, so its ttl
 * is shown. */
static int64_t left_of(const struct zk *zk, const struct admin_row *row)
{
    const struct zk_entry *own = own_entry(zk, row);
    if (own && own->good_until > zk->last_now)
        return (own->good_until - zk->last_now) / NANOS_OF_MS(1);
    return row->place.queue.foreign ? -1 : row->data.ttl_ms;
}

static void show_row(struct zk *zk, struct zk_admin *admin, const struct admin_row *row,
                     const char *name)
{
    assert(admin->op && admin->at <= admin->names);
    const struct queue_entry *q = &row->place.queue;
    int64_t since = zk->last_now / NANOS_OF_MS(1) + zk->wall_offset_ms -
                    (row->data.at_ms ? row->data.at_ms : row->stat.created_ms);
    bool writes = (q->kind == HF_READ || q->kind == HF_WRITE) && admin->used >= QUEUE_ALL;
    struct hf_row out = {
        .size = sizeof out,
        .name = name,
        .role = q->holds ? HF_HOLDER : HF_WAITER,
        .kind = q->kind,
        .capacity = q->kind == HF_SEMAPHORE ? q->capacity : 1,
        .used = writes ? 1 : (uint32_t)admin->used,
        .units = q->units,
        .depth = 1,
        .place = q->place,
        .token = q->holds ? (uint64_t)row->stat.created : 0,
        .left_ms = q->holds ? left_of(zk, row) : 0,
        .since_ms = since > 0 ? since : 0,
        .ticket = (uint64_t)row->stat.created,
        .ttl_ms = row->data.ttl_ms,
        .pid = row->data.pid,
        .host = row->data.host,
        .label = row->data.label,
        .detached = row->data.detached,
        .foreign = q->foreign,
    };
    zk->host->row(zk->host->ctx, admin->op, &out);
}

static void drop_gone_rows(struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    size_t kept = 0;
    for (size_t i = 0; i < admin->count; i++) {
        if (admin->row[i].is_gone)
            free(admin->row[i].node);
        else
            admin->row[kept++] = admin->row[i];
    }

    admin->count = kept;
}

/* Returns false without memory. */
static bool judge_rows(struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    drop_gone_rows(admin);
    struct queue_entry *queue = malloc((admin->count + 1) * sizeof *queue);
    if (!queue)
        return false;

    for (size_t i = 0; i < admin->count; i++)
        queue[i] = admin->row[i].place.queue;
    admin->used = entry_order_judge(queue, admin->count, (struct queue_resize){0, 0}).used;
    for (size_t i = 0; i < admin->count; i++)
        admin->row[i].place.queue = queue[i];
    free(queue);
    return true;
}

static void show_name(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    for (int waiters = 0; waiters < 2; waiters++)
        for (size_t i = 0; i < admin->count; i++)
            if (admin->row[i].place.queue.holds != waiters)
                show_row(zk, admin, &admin->row[i], admin->name[admin->at]);

    admin->shown += admin->count > 0;
}

/* Returns true if the page is full. It ends with its last name if others follow. */
static bool ends_page(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    const struct name_range *page = admin_op_of(admin->op)->page;
    bool is_full = page && page->most && admin->shown == page->most;
    if (!is_full || admin->at == admin->names)
        return false;

    struct hf_row end = end_of_page(admin->name[admin->at - 1]);
    zk->host->row(zk->host->ctx, admin->op, &end);
    return true;
}

/* ---- Sending ---- */

enum { PATH_ROOM = ZK_ROOT_MAX + 3 * HF_NAME_MAX + 512 };

/* Writes the path of name[at], or of a node below it. Returns false if it is too long. */
static bool write_path(const struct zk *zk, const struct zk_admin *admin, const char *node,
                       char path[PATH_ROOM])
{
    assert(admin->op && admin->at <= admin->names);
    const char *name = admin->name[admin->at];
    size_t at = (size_t)sprintf(path, "%s/", zk->root);
    at += zk_name_encode(path + at, name, strlen(name));
    path[at] = '\0';
    int len = node ? snprintf(path + at, PATH_ROOM - at, "/%s", node) : 0;
    return len >= 0 && (size_t)len < PATH_ROOM - at;
}

static void read_name(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    char path[PATH_ROOM];
    free_rows(admin);
    if (admin->at == admin->names || ends_page(zk, admin)) {
        zk_admin_reply(zk, admin, REPLY_RELEASED, HF_OK, NULL);
        return;
    }

    admin->step = STEP_PLACES;
    write_path(zk, admin, NULL, path);
    zk_put_children(&zk->message, zk_call_begin(admin->session), path, false);
    zk_admin_call(zk, admin, now);
}

static void send_delete(struct zk *zk, struct zk_admin *admin, const char *node, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    char path[PATH_ROOM];
    if (!write_path(zk, admin, node, path)) {
        zk_admin_reply(zk, admin, REPLY_NOT_HELD, HF_OK, NULL);
        return;
    }

    admin->step = STEP_DELETE;
    zk_put_delete(&zk->message, zk_call_begin(admin->session), path);
    zk_admin_call(zk, admin, now);
}

static void break_hold(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    for (size_t i = 0; i < admin->count; i++) {
        const struct admin_row *row = &admin->row[i];
        if (row->place.queue.holds && (uint64_t)row->stat.created == admin->op->token) {
            send_delete(zk, admin, row->node, now);
            return;
        }
    }

    zk_admin_reply(zk, admin, REPLY_NOT_HELD, HF_OK, NULL);
}

static void end_name(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    if (!judge_rows(admin)) {
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for the list");
    } else if (admin_op_of(admin->op)->verb == ADMIN_BREAK) {
        break_hold(zk, admin, now);
    } else {
        show_name(zk, admin);
        admin->at++;
        read_name(zk, admin, now);
    }
}

static void read_data(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    char path[PATH_ROOM];
    while (admin->sent < admin->count && admin->sent - admin->read < READS_AT_ONCE) {
        write_path(zk, admin, admin->row[admin->sent].node, path);
        zk_put_get_data(&zk->message, zk_call_begin(admin->session), path, false);
        struct zk_call *call = zk_admin_call(zk, admin, now);
        if (!call)
            return;
        call->index = (uint32_t)admin->sent++;
    }

    if (admin->read == admin->count)
        end_name(zk, admin, now);
}

/* ---- Replies ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void on_names(struct zk *zk, struct zk_admin *admin, struct jute_reader *body, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    uint32_t count;
    struct jute_bytes name;
    char plain[HF_NAME_MAX + 1];
    const struct engine_op *op = admin->op;
    bool is_good = zk_read_children(body, &count);
    admin->name = is_good ? calloc(count + 1, sizeof *admin->name) : NULL;

    for (uint32_t i = 0; admin->name && i < count && zk_next_child(body, &name); i++) {
        size_t len = zk_name_decode(plain, sizeof plain, name.len ? name.at : "", name.len);
        const struct name_range *page = admin_op_of(op)->page;
        bool matches = len >= op->name_len && memcmp(plain, op->name, op->name_len) == 0 &&
                       (!page || name_range_has(page, plain));
        char *copy = matches ? strdup(plain) : NULL;
        if (copy)
            admin->name[admin->names++] = copy;
    }

    if (!admin->name) {
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for the list");
        return;
    }

    qsort(admin->name, admin->names, sizeof *admin->name, by_text);
    read_name(zk, admin, now);
}

static int by_arrival(const void *a, const void *b)
{
    const struct admin_row *x = a, *y = b;
    uint64_t first = x->place.queue.arrival, second = y->place.queue.arrival;
    return first < second ? -1 : first > second;
}

static void on_places(struct zk *zk, struct zk_admin *admin, struct jute_reader *body, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    uint32_t count;
    struct jute_bytes name;
    bool is_good = zk_read_children(body, &count);
    admin->row = is_good ? calloc(count + 1, sizeof *admin->row) : NULL;

    for (uint32_t i = 0; admin->row && i < count && zk_next_child(body, &name); i++) {
        struct admin_row *row = &admin->row[admin->count];
        if (!name.len || !zk_place_read(&row->place, name) ||
            !(row->node = strndup(name.at, name.len)))
            continue;
        row->place.queue.arrival =
            zk_place_arrival(row->place.sequence, admin->row[0].place.sequence);
        admin->count++;
    }

    if (!admin->row) {
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for the list");
        return;
    }

    qsort(admin->row, admin->count, sizeof *admin->row, by_arrival);
    admin->step = STEP_DATA;
    read_data(zk, admin, now);
}

static void on_data(struct zk *zk, struct zk_admin *admin, const struct zk_call *call,
                    const struct zk_header *header, struct jute_reader *body, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    struct jute_bytes bytes;
    struct admin_row *row = &admin->row[call->index];
    if (header->error == ZK_OK && zk_read_data(body, &bytes, &row->stat))
        zk_data_read(&row->data, bytes);
    else
        row->is_gone = true;

    admin->read++;
    read_data(zk, admin, now);
}

static void on_error(struct zk *zk, struct zk_admin *admin, int32_t error, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    bool is_list = admin->step == STEP_NAMES || admin->step == STEP_PLACES;
    bool breaks = admin_op_of(admin->op)->verb == ADMIN_BREAK;
    if (error == ZK_NO_NODE && breaks) {
        zk_admin_reply(zk, admin, REPLY_NOT_HELD, HF_OK, NULL);
    } else if (error == ZK_NO_NODE && is_list) {
        admin->at += admin->step == STEP_PLACES;
        read_name(zk, admin, now);
    } else {
        zk_admin_reply(zk, admin, REPLY_FAILED, error == ZK_NO_AUTH ? HF_DENIED : HF_UNAVAILABLE,
                       zk_error_text(error));
    }
}

void zk_admin_on_reply(struct zk *zk, const struct zk_call *call, const struct zk_header *header,
                       struct jute_reader *body, nanos now)
{
    assert(body->at <= body->end);
    struct zk_admin *admin = call->admin;
    if (admin->step == STEP_DIAGNOSE)
        zk_diagnose_on_reply(zk, admin, call, header, body, now);
    else if (admin->step == STEP_DATA)
        on_data(zk, admin, call, header, body, now);
    else if (header->error)
        on_error(zk, admin, header->error, now);
    else if (admin->step == STEP_NAMES)
        on_names(zk, admin, body, now);
    else if (admin->step == STEP_PLACES)
        on_places(zk, admin, body, now);
    else
        zk_admin_reply(zk, admin, REPLY_RELEASED, HF_OK, NULL);
}

/* Handles a broken connection. A deletion may have been executed; other requests have changed
 * nothing. */
void zk_admin_on_cut(struct zk *zk, const struct zk_call *call)
{
    struct zk_admin *admin = call->admin;
    const char *why = admin->session->why;
    if (admin->step == STEP_DELETE)
        zk_admin_reply(zk, admin, REPLY_UNKNOWN, HF_OK, why);
    else
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_UNAVAILABLE, why);
}

/* ---- Beginning ---- */

static bool set_name(struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    char *name = strndup(admin->op->name, admin->op->name_len);
    admin->name = calloc(1, sizeof *admin->name);
    if (!name || !admin->name) {
        free(name);
        return false;
    }

    admin->name[admin->names++] = name;
    return true;
}

/* Sends a sync, so that the list is as new as every reply before the sync. */
static void send_sync(struct zk *zk, struct zk_admin *admin, nanos now)
{
    zk_put_sync(&zk->message, zk_call_begin(admin->session), zk->root);
    struct zk_call *call = zk_call_send(admin->session, CALL_SYNC, now);
    if (call)
        zk_call_claim_none(admin->session, call);
}

static void begin_list(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    const struct admin_op *op = admin_op_of(admin->op);
    bool all = op->verb == ADMIN_LIST && op->scope == LIST_PREFIX;
    send_sync(zk, admin, now);

    if (all) {
        admin->step = STEP_NAMES;
        zk_put_children(&zk->message, zk_call_begin(admin->session), zk->root, false);
        zk_admin_call(zk, admin, now);
    } else if (set_name(admin)) {
        read_name(zk, admin, now);
    } else {
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_NO_MEMORY, "no memory for the list");
    }
}

static void begin(struct zk *zk, struct zk_admin *admin, nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    const struct admin_op *op = admin_op_of(admin->op);
    if (op->verb == ADMIN_LIST && op->scope == LIST_HISTORY)
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_UNSUPPORTED,
                       "history: past holds are not kept by the engine zookeeper");
    else if (op->verb == ADMIN_RESIZE)
        zk_admin_reply(zk, admin, REPLY_FAILED, HF_UNSUPPORTED,
                       "the engine zookeeper cannot resize");
    else if (op->verb == ADMIN_DIAGNOSE)
        zk_diagnose_begin(zk, admin, now);
    else
        begin_list(zk, admin, now);
}

void zk_admins_advance(struct zk_session *s, nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk_admin *next;
    for (struct zk_admin *admin = s->zk->admins; admin; admin = next) {
        next = admin->next;
        if (admin->begun || admin->session != s)
            continue;
        /* A list waits for the releases that this client sent before it, so that it shows them. */
        if (s->zk->deleting) {
            s->zk->has_backlog = true;
            return;
        }
        if (!zk_session_need(s, now))
            return;
        admin->begun = true;
        begin(s->zk, admin, now);
    }
}

void zk_admin_submit(struct zk *zk, struct engine_op *op, nanos now)
{
    struct zk_session *s = zk_session_any(zk);
    struct zk_admin *admin = s ? calloc(1, sizeof *admin) : NULL;
    if (!admin) {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .status = HF_NO_MEMORY,
                                     .text = "no memory for a request"};
        zk->host->on_reply(zk->host->ctx, op, &reply);
        return;
    }

    admin->op = op;
    admin->session = s;
    admin->asked_at = now;
    admin->next = zk->admins;
    zk->admins = admin;
    op->engine_state = admin;
    bool is_up = zk_session_need(s, now);
    if (admin_op_of(op)->verb == ADMIN_DIAGNOSE)
        admin->awaited += zk_words_begin(zk, admin, now);
    op->connections = zk_session_bit(s) | zk_words_bit(zk);

    if (is_up)
        zk_admins_advance(s, now);
    else if (s->state == SESSION_DOWN)
        zk_admin_reply(zk, admin, REPLY_FAILED, s->status, s->why);
}
