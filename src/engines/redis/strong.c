/* strong.c - grants that count only when replicas have acknowledged them.
 *
 * The write and the WAIT behind it go out on one connection that carries nothing else, because WAIT vouches for the
 * writes of its own connection: on another one it has been seen to answer 1 with the only replica stopped. WAIT is sent
 * only behind a grant, one at a time: answers come in the order of the requests, so all grants that were heard of
 * before its answer were written before it, and it vouches for them all. A grant that too few acknowledged is taken
 * back on the same connection, and only when that was answered is it told; a renewal without them counts for nothing,
 * and the time that is shown stays as it was.
 *
 * If the line breaks, what takes back may come at any time later, when the same attempt has asked again and was granted
 * again, or has upgraded again; and that it must not take. Tokens cannot tell the two apart: all entries of an owner
 * have the same one. So each take-back ends a round: it names the round, whatever is asked for afterwards says that it
 * is of a later one, and the server does nothing if what it finds was asked for later than that:
 *
 *   ask(0) granted, take-back(0) under way     ask(1) finds the hold, makes it one of round 1, and is granted;
 *                                              take-back(0) comes: 0 < 1, nothing
 *   ask(0) granted, take-back(0) executed      ask(1) enters beside its owner's other entry, with the same token;
 *                                              nothing is left to come
 *   ask(0) late, behind ask(1) and its grant   rounds only rise: the hold stays one of round 1
 *   upgrade(0), take-back(0) under way         upgrade(1) finds a writer, makes it one of round 1; take-back(0):
 * nothing upgrade(0) of one entry, then another one  that one counts on it, too: nobody takes it back any more, and the
 *   of its owner upgrades, or enters to write  server has a writer until it downgrades or all of them have left
 *
 * An upgrade says whose round it is, too: who takes a lease up from its text counts its own. */
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void send_wait(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    struct hf_command *c = &r->command;
    hf_command_begin(c, r->synced ? 4 : 3);
    hf_command_text(c, r->synced ? "WAITAOF" : "WAIT");
    if (r->synced)
        hf_command_number(c, 1);
    hf_command_number(c, r->replicas);
    hf_command_number(c, r->replica_timeout_ms);
    struct request request = {
        .kind = REQ_WAIT, .attempt = a, .patience = HF_MS(r->replica_timeout_ms) + hf_attempt_timing(r, a)->op_timeout};
    r->waits = true;
    hf_line_send(r, &r->line[LINE_STRONG], request, now); /* if not, all who wait have been told */
}

void hf_strong_wait(struct hf_redis *r, struct attempt *a, enum hf_verb verb, const struct hf_news *news, hf_nanos now)
{
    a->held_back = *news;
    a->held_verb = verb;
    a->awaits_replicas = true;
    a->ask->lines |= 1u << LINE_STRONG;
    if (!r->waits)
        send_wait(r, a, now);
}

void hf_strong_limit(const struct attempt *a, struct hf_news *news)
{
    if (a->acknowledged && news->asked_at + news->good > a->acknowledged)
        news->good = 0; /* what is believed already stays; a shorter rest would be no news, only less drift */
}

static void write_downgrade(struct hf_redis *r, const struct attempt *a, const struct head *head)
{
    hf_head_script(r, HF_SCRIPT_CONVERT, head, 6);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_letter(&r->command, 'd');
    hf_command_add(&r->command, &r->past);
    hf_command_word(&r->command, r->self, HF_ID_TEXT);
    hf_command_number(&r->command, (int64_t)r->round);
}

/* A grant is released, and an upgraded one is a reader again. */
static bool send_take_back(struct hf_redis *r, struct attempt *a, enum hf_verb verb, hf_nanos now)
{
    const struct head *head;
    char terms[80];
    if (hf_head_of(r, a->said.name, a->said.name_len, &head) != HF_OK)
        return false;
    snprintf(terms, sizeof terms, "r 0 %lld %lld %llu", (long long)r->history, (long long)r->history_age_ms,
             (unsigned long long)r->round);
    if (verb == HF_V_ACQUIRE)
        hf_attempt_write_release(r, a->id, head, NULL, terms);
    else
        write_downgrade(r, a, head);
    r->round++;
    struct request request = {
        .kind = REQ_TAKE_BACK, .verb = (uint8_t)verb, .attempt = a, .patience = hf_attempt_timing(r, a)->op_timeout};
    a->ask->lines |= 1u << LINE_STRONG;
    return hf_line_send(r, &r->line[LINE_STRONG], request, now);
}

static void tell_doubt(struct hf_redis *r, struct attempt *a, const char *why)
{
    struct hf_news cut = {.cue = HF_N_CUT, .asked_at = a->held_back.asked_at, .retry_at = HF_NEVER, .text = why};
    hf_attempt_tell(r, a, &cut);
}

static void tell_lack(struct hf_redis *r, struct attempt *a)
{
    hf_attempt_fail(r, a, a->held_back.asked_at, a->lack, a->lack_text);
}

/* It is told when the taking back was answered, and not before: who asks again does so with the same id, and what
 * takes back must not take that. */
static void take_back(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    if (!send_take_back(r, a, a->held_verb, now))
        tell_doubt(r, a, r->line[LINE_STRONG].why);
}

/* Has it left meanwhile? Then its release, which leaves a tombstone, decides; what was asked before is told to have
 * come to nothing. */
static bool tell_if_left(struct hf_redis *r, struct attempt *a, enum hf_verb verb)
{
    if (verb == HF_V_EXTEND || verb == HF_V_CHECK || a->said.verb == verb)
        return false;
    hf_attempt_tell(r, a, &(struct hf_news){.cue = HF_N_BUSY, .asked_at = a->held_back.asked_at, .retry_at = HF_NEVER});
    return true;
}

void hf_strong_taken_back(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct attempt *a = request->attempt;
    if (tell_if_left(r, a, (enum hf_verb)request->verb))
        return;
    if (reply->type != HF_REPLY_ERROR) {
        tell_lack(r, a);
    } else if (strncmp(reply->text, "NOSCRIPT", 8) == 0) {
        hf_line_load_scripts(r, &r->line[LINE_STRONG], now);
        take_back(r, a, now);
    } else {
        tell_doubt(r, a, hf_refusal(r, reply).text);
    }
}

static void too_few(const struct hf_redis *r, int64_t acknowledged, bool in_file, char *text, size_t size)
{
    int len = snprintf(text, size, "%s: ", r->where);
    if (r->replicas)
        len += snprintf(text + len, size - (size_t)len, "%lld of %lld replicas acknowledged it within %lld ms",
                        (long long)acknowledged, (long long)r->replicas, (long long)r->replica_timeout_ms);
    if (!in_file)
        snprintf(text + len, size - (size_t)len, "%sit was not in the server's own file within %lld ms",
                 r->replicas ? ", and " : "", (long long)r->replica_timeout_ms);
}

static void confirm(struct hf_redis *r, struct attempt *a)
{
    hf_nanos until = a->held_back.asked_at + a->held_back.good;
    a->acknowledged = until > a->acknowledged ? until : a->acknowledged;
    hf_attempt_tell(r, a, &a->held_back);
}

/* A renewal stays: it harms nobody. So does what a check found: it is somebody's. */
static void lack(struct hf_redis *r, struct attempt *a, hf_status status, const char *text, hf_nanos now)
{
    free(a->lack_text);
    a->lack = status;
    a->lack_text = strdup(text); /* without memory the status must speak for itself */
    if (a->held_verb == HF_V_EXTEND || a->held_verb == HF_V_CHECK)
        tell_lack(r, a);
    else
        take_back(r, a, now);
}

/* WAIT: a number. WAITAOF: {1 if our own file has it, number}. */
void hf_strong_answer(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now)
{
    char text[sizeof r->where + 160];
    struct refusal refusal = {.status = HF_NOT_REPLICATED};
    bool refused = reply->type == HF_REPLY_ERROR;
    int64_t acknowledged = refused ? 0 : hf_reply_count(r->synced ? hf_reply_item(reply, 1) : reply);
    bool in_file = !r->synced || (!refused && hf_reply_count(hf_reply_item(reply, 0)) == 1);
    bool enough = !refused && acknowledged >= r->replicas && in_file;
    too_few(r, acknowledged < 0 ? 0 : acknowledged, in_file, text, sizeof text);
    if (refused)
        refusal = hf_refusal(r, reply);
    r->waits = false;
    for (struct attempt *a = r->attempts; a; a = a->next) {
        if (!a->awaits_replicas)
            continue;
        a->awaits_replicas = false;
        if (tell_if_left(r, a, a->held_verb))
            continue;
        if (enough)
            confirm(r, a);
        else
            lack(r, a, refusal.status, refused ? refusal.text : text, now);
    }
}

void hf_strong_cut(struct hf_redis *r, const char *why)
{
    r->waits = false;
    for (struct attempt *a = r->attempts; a; a = a->next) {
        if (!a->awaits_replicas)
            continue;
        a->awaits_replicas = false;
        tell_doubt(r, a, why);
    }
}
