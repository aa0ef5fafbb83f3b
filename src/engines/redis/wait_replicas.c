/* wait_replicas.c - grants that count only when replicas have acknowledged them.
 *
 * The write and the WAIT behind it go out on one connection that carries nothing else, because WAIT
 * covers the writes of its own connection only: on another one it was seen to answer 1 while the
 * only replica was stopped. WAIT is sent behind a grant, one at a time. Replies come in the order
 * of the requests, so one WAIT covers every grant that was answered before it. A grant that too few
 * replicas acknowledged is revoked on the same connection, and reported once the revoke was
 * answered. A renewal that too few acknowledged counts for nothing: the end that is shown stays.
 *
 * If the connection breaks, a revoke may arrive at any later time, when the same attempt has asked
 * and was granted again, or has upgraded again; it must not remove the new hold. Tokens cannot tell
 * the two apart: all entries of an owner have the same token. So each revoke ends a round. It names
 * the round, every later request names a later round, and the server ignores a revoke if the hold
 * that it finds is of a later round:
 *
 *   acquire(0) granted, revoke(0) in flight   acquire(1) finds the hold, moves it to round 1, and
 *                                             is granted; revoke(0) arrives: 0 < 1, ignored
 *   acquire(0) granted, revoke(0) executed    acquire(1) enters beside its owner's other entry,
 *                                             with the same token; nothing is left to arrive
 *   acquire(0) late, after acquire(1)         rounds only rise: the hold stays in round 1
 *   upgrade(0), revoke(0) in flight           upgrade(1) finds a writer, moves it to round 1;
 *                                             revoke(0) is ignored
 *   upgrade(0) of one entry, then another     that entry relies on it, too: nobody may revoke it
 *   entry of its owner upgrades or writes     any more, and the server has a writer until it
 *                                             downgrades or all entries have left
 *
 * An upgrade also names the client whose round it is: a client that imports a lease counts its own
 * rounds. */
#include "redis.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void send_wait(struct redis *r, struct redis_op *a, nanos now)
{
    struct resp_command *c = &r->command;
    assert(r->durable && !r->waits);

    resp_command_begin(c, r->synced ? 4 : 3);
    resp_command_text(c, r->synced ? "WAITAOF" : "WAIT");
    if (r->synced)
        resp_command_number(c, 1);
    resp_command_number(c, r->replicas);
    resp_command_number(c, r->replica_timeout_ms);

    struct request request = {.kind = REQ_WAIT,
                              .op = a,
                              .patience = NANOS_OF_MS(r->replica_timeout_ms) +
                                          redis_op_timing(r, a)->op_timeout};
    r->waits = true;
    /* A failure needs no check here: the connection is down then, and redis_durable_cut() has
     * replied to all ops. */
    redis_connection_send(r, &r->connection[CONNECTION_DURABLE], request, now);
}

void redis_durable_wait(struct redis *r, struct redis_op *a, enum op_verb verb,
                        const struct engine_reply *reply, nanos now)
{
    assert(!a->awaits_replicas);
    a->held_back = *reply;
    a->held_verb = verb;
    a->awaits_replicas = true;
    a->op->connections |= redis_connection_bit(r, CONNECTION_DURABLE);
    if (!r->waits)
        send_wait(r, a, now);
}

void redis_durable_limit(const struct redis_op *a, struct engine_reply *reply)
{
    /* With good = 0 the client keeps the end that it knows. That is the end that replicas
     * acknowledged, but counted from an earlier request, with more subtracted for drift. */
    if (a->acknowledged && reply->asked_at + reply->good > a->acknowledged)
        reply->good = 0;
}

static void write_downgrade(struct redis *r, const struct redis_op *a,
                            const struct cached_keys *cached)
{
    redis_script_begin(r, SCRIPT_CONVERT, cached, 6);
    resp_command_word(&r->command, a->id, REDIS_ID_TEXT);
    resp_command_char(&r->command, 'd');
    resp_command_add(&r->command, &r->past);
    resp_command_word(&r->command, r->self, REDIS_ID_TEXT);
    resp_command_number(&r->command, (int64_t)r->round);
}

/* Releases a grant; after an upgrade downgrades it. */
static bool send_revoke(struct redis *r, struct redis_op *a, enum op_verb verb, nanos now)
{
    assert(a->sent_op.name);
    const struct cached_keys *cached;
    char terms[80];
    assert(verb == OP_ACQUIRE || verb == OP_UPGRADE);
    if (redis_key_cache_find(r, a->sent_op.name, a->sent_op.name_len, &cached) != HF_OK)
        return false;

    snprintf(terms, sizeof terms, "r 0 %lld %lld %llu", (long long)r->history,
             (long long)r->history_age_ms, (unsigned long long)r->round);
    if (verb == OP_ACQUIRE)
        redis_op_write_release(r, a->id, cached, NULL, terms);
    else
        write_downgrade(r, a, cached);

    r->round++;

    struct request request = {.kind = REQ_TAKE_BACK,
                              .verb = (uint8_t)verb,
                              .op = a,
                              .patience = redis_op_timing(r, a)->op_timeout};
    a->op->connections |= redis_connection_bit(r, CONNECTION_DURABLE);
    return redis_connection_send(r, &r->connection[CONNECTION_DURABLE], request, now);
}

static void reply_unconfirmed(struct redis *r, struct redis_op *a, const char *why)
{
    struct engine_reply cut = {.kind = REPLY_UNKNOWN,
                               .asked_at = a->held_back.asked_at,
                               .retry_at = TIME_NEVER,
                               .text = why};
    redis_op_reply(r, a, &cut);
}

static void reply_lack(struct redis *r, struct redis_op *a)
{
    assert(a->lack != HF_OK);
    redis_op_fail(r, a, a->held_back.asked_at, a->lack, a->lack_text);
}

/* Reports the failure only after the revoke is acknowledged: a retry reuses the id, and a late
 * revoke would remove its hold. */
static void revoke(struct redis *r, struct redis_op *a, nanos now)
{
    if (!send_revoke(r, a, a->held_verb, now))
        reply_unconfirmed(r, a, r->connection[CONNECTION_DURABLE].why);
}

/* If the op has left or released meanwhile, that request decides, and leaves a tombstone. The
 * request that awaited replicas is answered BUSY. */
static bool reply_if_left(struct redis *r, struct redis_op *a, enum op_verb verb)
{
    if (verb == OP_EXTEND || verb == OP_CHECK || a->sent_op.verb == verb)
        return false;

    redis_op_reply(r, a,
                   &(struct engine_reply){.kind = REPLY_BUSY,
                                          .asked_at = a->held_back.asked_at,
                                          .retry_at = TIME_NEVER});
    return true;
}

void redis_durable_taken_back(struct redis *r, const struct request *request,
                              const struct resp_reply *resp, nanos now)
{
    struct redis_op *a = request->op;
    assert(request->kind == REQ_TAKE_BACK);
    if (reply_if_left(r, a, (enum op_verb)request->verb))
        return;

    if (resp->type != RESP_ERROR) {
        reply_lack(r, a);
    } else if (redis_load_is_needed(resp)) {
        redis_load(r, &r->connection[CONNECTION_DURABLE], resp, now);
        revoke(r, a, now);
    } else {
        reply_unconfirmed(r, a, redis_error_reply(r, resp).text);
    }
}

static void too_few(const struct redis *r, int64_t acknowledged, bool in_file, char *text,
                    size_t size)
{
    int len = snprintf(text, size, "%s: ", r->where);

    if (r->replicas)
        len += snprintf(
            text + len, size - (size_t)len, "%lld of %lld replicas acknowledged it within %lld ms",
            (long long)acknowledged, (long long)r->replicas, (long long)r->replica_timeout_ms);

    if (!in_file)
        snprintf(text + len, size - (size_t)len,
                 "%sit was not in the server's own file within %lld ms",
                 r->replicas ? ", and " : "", (long long)r->replica_timeout_ms);
}

static void confirm(struct redis *r, struct redis_op *a)
{
    nanos until = a->held_back.asked_at + a->held_back.good;
    assert(!a->awaits_replicas);

    a->acknowledged = until > a->acknowledged ? until : a->acknowledged;
    redis_op_reply(r, a, &a->held_back);
}

/* A renewal is reported in any case, because it harms nobody. The same goes for a hold that a
 * check found, because another client made it. A grant is revoked if too few replicas acknowledged
 * it. */
static void reply_or_revoke(struct redis *r, struct redis_op *a, hf_status status, const char *text,
                            nanos now)
{
    free(a->lack_text);
    a->lack = status;
    a->lack_text = strdup(text); /* without memory the status is reported without text */

    if (a->held_verb == OP_EXTEND || a->held_verb == OP_CHECK)
        reply_lack(r, a);
    else
        revoke(r, a, now);
}

/* Handles the reply to WAIT, a number, or to WAITAOF, {1 if the server's own file has the write,
 * number}. */
void redis_durable_answer(struct redis *r, const struct resp_reply *resp, nanos now)
{
    assert(r->durable && r->waits);
    char text[sizeof r->where + 160];
    struct error_reply error_reply = {.status = HF_NOT_REPLICATED};
    bool refused = resp->type == RESP_ERROR;
    const struct resp_reply *number = r->synced ? resp_item(resp, 1) : resp;
    int64_t acknowledged = refused ? 0 : resp_count(number);
    bool in_file = !r->synced || (!refused && resp_count(resp_item(resp, 0)) == 1);
    bool enough = !refused && acknowledged >= r->replicas && in_file;
    too_few(r, acknowledged < 0 ? 0 : acknowledged, in_file, text, sizeof text);
    if (refused)
        error_reply = redis_error_reply(r, resp);

    r->waits = false;
    for (struct redis_op *a = r->ops; a; a = a->next) {
        if (!a->awaits_replicas)
            continue;
        a->awaits_replicas = false;
        if (reply_if_left(r, a, a->held_verb))
            continue;

        if (enough)
            confirm(r, a);
        else
            reply_or_revoke(r, a, error_reply.status, refused ? error_reply.text : text, now);
    }
}

void redis_durable_cut(struct redis *r, const char *why)
{
    r->waits = false;
    for (struct redis_op *a = r->ops; a; a = a->next) {
        if (!a->awaits_replicas)
            continue;
        a->awaits_replicas = false;
        reply_unconfirmed(r, a, why);
    }
}

void redis_durable_explain_leave(const struct redis *r, struct engine_reply *reply)
{
    assert(r->durable);
    error_set(HF_NOT_REPLICATED,
              "%s: %s had not acknowledged it when the wait ended (replica_timeout=%lldms)",
              r->where, r->replicas ? "enough replicas" : "the server's own file",
              (long long)r->replica_timeout_ms);
    reply->status = HF_NOT_REPLICATED;
    reply->text = error_text();
}
