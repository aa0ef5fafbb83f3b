/* pg_admin.c - list, history, break and resize. A long list is read in pages of names. */
#include "postgres.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 500, HISTORY_MOST = 100000 };
#define ADMIN_PATIENCE NANOS_OF_MS(5000)

/* ---- Requests ---- */

static void send_admin(struct postgres *p, struct pg_op *a, const char *function, int count,
                       const char *const *values, nanos now)
{
    char sql[160];
    struct pg_request request = {.kind = PG_REQ_ADMIN,
                                 .verb = (uint8_t)admin_op_of(a->op)->verb,
                                 .op = a,
                                 .patience = ADMIN_PATIENCE};

    snprintf(sql, sizeof sql, "SELECT * FROM %s.%s", p->schema, function);
    if (pg_connection_send(p, request, NULL, sql, count, values, now))
        pg_op_settle(p, a);
    else
        pg_op_fail_with_connection(p, a, now);
}

static void send_list(struct postgres *p, struct pg_op *a, nanos now)
{
    char name[PG_NAME_MAX + 1], page[16];
    bool one = admin_op_of(a->op)->scope != LIST_PREFIX;
    pg_full_name(p, &a->sent_op, name);
    snprintf(page, sizeof page, "%d", PAGE);
    const char *values[] = {name, one ? "t" : "f", a->list_after ? a->list_after : "", page};
    send_admin(p, a, "list_holds($1,$2,$3,$4)", 4, values, now);
}

static void send_history(struct postgres *p, struct pg_op *a, nanos now)
{
    char name[PG_NAME_MAX + 1], most[16];
    pg_full_name(p, &a->sent_op, name);
    snprintf(most, sizeof most, "%d", HISTORY_MOST);
    const char *values[] = {name, most};
    send_admin(p, a, "history($1,$2)", 2, values, now);
}

static void send_change(struct postgres *p, struct pg_op *a, const char *function, uint64_t number,
                        nanos now)
{
    char name[PG_NAME_MAX + 1], text[24];
    pg_full_name(p, &a->sent_op, name);
    snprintf(text, sizeof text, "%" PRIu64, number);
    const char *values[] = {name, text};
    send_admin(p, a, function, 2, values, now);
}

/* Called when the greeting has created or found the schema. */
static void on_installed(struct postgres *p, struct pg_op *a, nanos now)
{
    pg_diagnose_installation(p, a);
    pg_op_reply(
        p, a,
        &(struct engine_reply){.kind = REPLY_RELEASED, .asked_at = now, .retry_at = TIME_NEVER});
}

void pg_admin_begin(struct postgres *p, struct pg_op *a, nanos now)
{
    const struct admin_op *asked = admin_op_of(a->op);
    assert(a->sent_op.verb == OP_ADMIN);
    free(a->list_after);
    a->list_after = NULL;

    if (asked->verb == ADMIN_INSTALL)
        on_installed(p, a, now);
    else if (asked->verb == ADMIN_USES || asked->verb == ADMIN_PRUNE)
        pg_op_fail(p, a, now, HF_UNSUPPORTED, "a database has no library of another release");
    else if (asked->verb == ADMIN_BREAK)
        send_change(p, a, "break_hold($1,$2)", a->sent_op.token, now);
    else if (asked->verb == ADMIN_RESIZE)
        send_change(p, a, "resize($1,$2)", a->sent_op.capacity, now);
    else if (asked->scope == LIST_HISTORY)
        send_history(p, a, now);
    else
        send_list(p, a, now);
}

/* ---- Rows ---- */

static int64_t value_of(const struct pg_reply *reply, int row, int column)
{
    return strtoll(pg_reply_value(reply, row, column), NULL, 10);
}

static hf_kind kind_of(char letter)
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

/* Reads "flags pid host label". The texts point into `copy`. */
static void read_meta(struct hf_row *row, const char *meta, char copy[80])
{
    int label_at = 0;
    char flag = 'b';
    copy[0] = 0;
    row->host = row->label = "";
    if (sscanf(meta, "%c %" SCNd64 " %79s%n", &flag, &row->pid, copy, &label_at) != 3)
        return;

    row->detached = flag == 'd';
    row->host = copy;
    row->label = meta[label_at] == ' ' ? meta + label_at + 1 : "";
}

/* Reports a row: name role kind capacity used units depth place token left since ticket ttl
 * meta. */
static void show_row(struct postgres *p, struct pg_op *a, const struct pg_reply *reply, int i)
{
    char host[80];
    const char *name = pg_reply_value(reply, i, 0);
    size_t prefix = strlen(p->prefix);
    if (strncmp(name, p->prefix, prefix) != 0)
        return;

    struct hf_row row = {.size = sizeof row,
                         .name = name + prefix,
                         .role = pg_reply_value(reply, i, 1)[0] == 'w' ? HF_WAITER : HF_HOLDER,
                         .kind = kind_of(pg_reply_value(reply, i, 2)[0]),
                         .capacity = (uint32_t)value_of(reply, i, 3),
                         .used = (uint32_t)value_of(reply, i, 4),
                         .units = (uint32_t)value_of(reply, i, 5),
                         .depth = (uint32_t)value_of(reply, i, 6),
                         .place = (uint32_t)value_of(reply, i, 7),
                         .token = (uint64_t)value_of(reply, i, 8),
                         .left_ms = value_of(reply, i, 9) / 1000,
                         .since_ms = value_of(reply, i, 10) / 1000,
                         .ticket = (uint64_t)value_of(reply, i, 11),
                         .ttl_ms = value_of(reply, i, 12)};

    read_meta(&row, pg_reply_value(reply, i, 13), host);
    p->host->row(p->host->ctx, a->op, &row);
}

/* Reports a past hold: token kind units ttl lost ended held meta. */
static void show_past(struct postgres *p, struct pg_op *a, const struct pg_reply *reply, int i)
{
    char host[80], name[PG_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)a->sent_op.name_len, a->sent_op.name);
    struct hf_row row = {.size = sizeof row,
                         .name = name,
                         .depth = 1,
                         .token = (uint64_t)value_of(reply, i, 0),
                         .kind = kind_of(pg_reply_value(reply, i, 1)[0]),
                         .units = (uint32_t)value_of(reply, i, 2),
                         .ttl_ms = value_of(reply, i, 3),
                         .ended = pg_reply_value(reply, i, 4)[0] == 't' ? HF_LOST : HF_OK,
                         .ended_ms = value_of(reply, i, 5) / 1000,
                         .since_ms = value_of(reply, i, 6) / 1000};

    read_meta(&row, pg_reply_value(reply, i, 7), host);
    row.detached = false;
    p->host->row(p->host->ctx, a->op, &row);
}

/* ---- Replies ---- */

static void finish(struct postgres *p, const struct pg_request *request, enum reply_kind kind)
{
    pg_op_reply(
        p, request->op,
        &(struct engine_reply){.kind = kind, .asked_at = request->sent_at, .retry_at = TIME_NEVER});
}

static void on_list(struct postgres *p, const struct pg_request *request,
                    const struct pg_reply *reply, nanos now)
{
    struct pg_op *a = request->op;
    bool is_history = admin_op_of(a->op)->scope == LIST_HISTORY, more = false;

    for (int i = 0; i < reply->rows; i++) {
        if (is_history) {
            show_past(p, a, reply, i);
        } else if (pg_reply_value(reply, i, 1)[0] == 'n') {
            free(a->list_after);
            a->list_after = strdup(pg_reply_value(reply, i, 0));
            more = a->list_after != NULL;
        } else {
            show_row(p, a, reply, i);
        }
    }

    if (more)
        send_list(p, a, now);
    else
        finish(p, request, REPLY_RELEASED);
}

/* Handles the reply to ADMIN_BREAK, the number of holds that were ended, or to ADMIN_RESIZE: 1
 * done, 0 not in use, -1 not a semaphore. */
static bool on_change(struct postgres *p, const struct pg_request *request,
                      const struct pg_reply *reply)
{
    const char *text = reply->rows == 1 ? pg_reply_value(reply, 0, 0) : "";
    if (*text != '{')
        return false;

    int64_t number = strtoll(text + 1, NULL, 10);
    if (number >= 0) {
        finish(p, request, number ? REPLY_RELEASED : REPLY_NOT_HELD);
        return true;
    }

    error_set(HF_MISMATCH, "%s: is not a semaphore", request->op->op->name);
    pg_op_fail(p, request->op, request->sent_at, HF_MISMATCH, error_text());
    return true;
}

bool pg_admin_reply(struct postgres *p, const struct pg_request *request,
                    const struct pg_reply *reply, nanos now)
{
    assert(request->kind == PG_REQ_ADMIN && request->op);
    if (request->verb == ADMIN_DIAGNOSE) {
        pg_diagnose_reply(p, request, reply);
        return true;
    }
    if (reply->sqlstate) {
        struct pg_error error = pg_error_of(p, reply);
        pg_op_fail(p, request->op, request->sent_at, error.status, error.text);
        return true;
    }
    if (request->verb != ADMIN_LIST)
        return on_change(p, request, reply);

    on_list(p, request, reply, now);
    return true;
}
