/* pg_interop.c - mutual exclusion with programs that use pg_advisory_lock (interop=).
 *
 * A lease takes the advisory lock of its name in the same statement. The session keeps that lock
 * until the release, which gives back both. If the lease is granted while another session has the
 * advisory lock, the waiter tries again after a pause that grows from 20 to 250 ms. Meanwhile it
 * keeps the lease, so no other waiter overtakes it. A request that does not wait gives the lease
 * back. */
#include "postgres.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_FIRST_MS = 20, POLL_MOST_MS = 250 };

hf_status pg_interop_read(struct postgres *p, const char *mode)
{
    static const char *const modes[] = {[PG_INTEROP_OFF] = "off",
                                        [PG_HASHTEXT] = "hashtext",
                                        [PG_HASHTEXTEXTENDED] = "hashtextextended",
                                        [PG_NUMBER] = "number"};
    bool is_known = false;

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(mode, modes[i]) == 0) {
            p->interop = (enum pg_interop)i;
            is_known = true;
        }
    if (!is_known)
        return error_set(
            HF_CONFIG, "interop=%s: a PostgreSQL server has hashtext, hashtextextended and number",
            mode);
    if (p->interop == PG_NUMBER && *p->prefix)
        return error_set(HF_CONFIG, "interop=number: not with a prefix, names are numbers");
    return HF_OK;
}

/* ---- Statements ---- */

/* Writes a call of `function` with the key. first: number of our first argument in the
 * statement. */
static void write_call(const struct postgres *p, const char *function, int first, char *call,
                       size_t size)
{
    if (p->interop == PG_HASHTEXT)
        snprintf(call, size, "%s(hashtext($1))", function);
    else if (p->interop == PG_HASHTEXTEXTENDED)
        snprintf(call, size, "%s(hashtextextended($1,0))", function);
    else
        snprintf(call, size,
                 "CASE WHEN $%d::int8 IS NULL THEN %s($%d::int8) ELSE "
                 "%s($%d::int8::int4,$%d::int8::int4) END",
                 first + 2, function, first + 1, function, first + 1, first + 2);
}

/* CASE fixes the order: first the lease is acquired. The advisory lock is tried only if the lease
 * is held and the session does not have the advisory lock yet. */
void pg_interop_statements(struct postgres *p)
{
    char call[250], old[sizeof p->acquire];
    assert(p->interop);

    write_call(p, "pg_try_advisory_lock", 21, call, sizeof call);
    strcpy(old, p->acquire + strlen("SELECT "));
    snprintf(p->acquire, sizeof p->acquire,
             "SELECT CASE WHEN r[1] <> 1 OR $21::bool THEN r WHEN %.240s THEN r "
             "ELSE ARRAY[7::int8] END FROM %.500s AS r",
             call, old);

    write_call(p, "pg_advisory_unlock", 10, call, sizeof call);
    strcpy(old, p->release + strlen("SELECT "));
    snprintf(p->release, sizeof p->release,
             "SELECT CASE WHEN NOT $10::bool THEN r WHEN %.240s THEN r ELSE r END FROM %.150s AS r",
             call, old);
}

/* Reads "7" or "7,8". Returns false for anything else. */
static bool read_key(const struct engine_op *op, char numbers[2][24], bool *has_two)
{
    char text[48], *end;
    if (op->name_len >= sizeof text)
        return false;

    memcpy(text, op->name, op->name_len);
    text[op->name_len] = 0;

    int64_t one = strtoll(text, &end, 10), two = 0;
    *has_two = *end == ',';
    bool is_read = end > text && (*end == 0 || *has_two);
    if (is_read && *has_two) {
        char *second = end + 1;
        two = strtoll(second, &end, 10);
        is_read = end > second && *end == 0 && one == (int32_t)one && two == (int32_t)two;
    }

    snprintf(numbers[0], sizeof numbers[0], "%" PRId64, one);
    snprintf(numbers[1], sizeof numbers[1], "%" PRId64, two);
    char again[50];
    snprintf(again, sizeof again, *has_two ? "%s,%s" : "%s", numbers[0], numbers[1]);
    /* accept only the usual spelling of a number, so that one key has one name */
    return is_read && strcmp(again, text) == 0;
}

bool pg_interop_has_key(const struct postgres *p, const struct pg_op *a)
{
    return a->key_ups && p->connection.state == PG_UP && a->key_ups == p->connection.ups;
}

int pg_interop_values(const struct postgres *p, const struct pg_op *a, const char **values,
                      char numbers[2][24])
{
    bool has_two;
    if (!p->interop)
        return 0;

    values[0] = pg_interop_has_key(p, a) ? "t" : "f";
    if (p->interop != PG_NUMBER)
        return 1;

    read_key(&a->sent_op, numbers, &has_two);
    values[1] = numbers[0];
    values[2] = has_two ? numbers[1] : NULL;
    return 3;
}

/* ---- Requests and replies ---- */

static const char *flaw_of(const struct postgres *p, const struct engine_op *op, hf_status *status)
{
    char numbers[2][24];
    bool has_two, has_owner = op->named && !id_same(&op->owner, &op->attempt);
    *status = HF_UNSUPPORTED;
    if (op->kind != HF_EXCLUSIVE)
        return "interop=: only exclusive locks exclude users of pg_advisory_lock";
    if (op->detached || has_owner)
        return "interop=: an advisory lock belongs to one session: no detached leases, no owners";

    *status = HF_INVALID;
    if (p->interop == PG_NUMBER && !read_key(op, numbers, &has_two))
        return "interop=number: the name must be a number, or two of 32 bits as 7,8";
    return NULL;
}

bool pg_interop_refuses(struct postgres *p, struct pg_op *a, nanos now)
{
    const struct engine_op *op = &a->sent_op;
    hf_status status;
    const char *flaw = op->verb == OP_ACQUIRE ? flaw_of(p, op, &status) : NULL;
    if (flaw) {
        a->unsent = false;
        pg_op_fail(p, a, now, status, flaw);
        return true;
    }

    bool relies = op->verb == OP_EXTEND || op->verb == OP_CHECK;
    if (!relies || pg_interop_has_key(p, a))
        return false;

    a->unsent = false;
    pg_op_give_back(p, a, now);
    pg_op_reply(p, a,
                &(struct engine_reply){.kind = REPLY_NOT_HELD,
                                       .asked_at = now,
                                       .retry_at = TIME_NEVER,
                                       .text = "the session that had the advisory lock has ended"});
    return true;
}

void pg_interop_key_is_taken(struct postgres *p, struct pg_op *a, struct engine_reply *reply)
{
    int64_t pause_ms = POLL_FIRST_MS << (a->key_polls < 4 ? a->key_polls : 4);
    pause_ms = pause_ms < POLL_MOST_MS ? pause_ms : POLL_MOST_MS;
    a->key_polls++;
    reply->retry_at = reply->asked_at + NANOS_OF_MS(pause_ms);
    if (a->sent_op.queue) {
        reply->kind = REPLY_QUEUED;
        reply->place = 1;
        return;
    }

    reply->kind = REPLY_BUSY;
    reply->retry_at = TIME_NEVER;
    pg_op_give_back(p, a, reply->asked_at);
}

void pg_interop_forget(struct postgres *p, struct pg_op *a)
{
    if (!pg_interop_has_key(p, a))
        return;
    pg_op_give_back(p, a, p->connection.received_at);
}
