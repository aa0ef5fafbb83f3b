/* asking.c - an ask becomes a command; what becomes of it is told. */
#include "redis.h"

#include "base/why.h"

#include <stdio.h>
#include <string.h>

/* ---- Telling ---- */

/* What replicas must acknowledge has a line of its own: what lengthens the time that is shown, and a check of a hold
 * that was made elsewhere. What gives things back does not wait behind it. */
struct line *hf_attempt_line(struct hf_redis *r, const struct attempt *a, enum hf_verb verb)
{
    bool adopts = verb == HF_V_CHECK && !a->acknowledged;
    bool strong = r->strong && (verb == HF_V_ACQUIRE || verb == HF_V_EXTEND || verb == HF_V_UPGRADE || adopts);
    return &r->line[strong ? LINE_STRONG : LINE_COMMANDS];
}

bool hf_attempt_flies(const struct attempt *a)
{
    for (unsigned i = 0; i < LINES; i++)
        if (a->in_flight[i])
            return true;
    return a->awaits_replicas;
}

static void set_lines(struct hf_redis *r, struct attempt *a)
{
    a->ask->lines = (a->queued && !hf_look_is_all(r)) || a->listens ? 1u << LINE_WAKE : 0;
    for (unsigned i = 0; i < LINES; i++)
        a->ask->lines |= a->in_flight[i] ? 1u << i : 0;
    if (a->awaits_replicas)
        a->ask->lines |= 1u << LINE_STRONG;
    if (a->unsent)
        a->ask->lines |= 1u << hf_attempt_line(r, a, a->said.verb)->number;
}

void hf_attempt_tell(struct hf_redis *r, struct attempt *a, const struct hf_news *news)
{
    set_lines(r, a);
    if (!a->told) {
        a->told = true;
        a->next_told = r->told;
        r->told = a;
    }
    r->host->tell(r->host->ctx, a->ask, news);
}

void hf_attempt_fail(struct hf_redis *r, struct attempt *a, hf_nanos asked_at, hf_status status, const char *text)
{
    hf_job_free(a);
    hf_attempt_tell(r, a,
                    &(struct hf_news){.cue = HF_N_FAILED,
                                      .asked_at = asked_at,
                                      .retry_at = HF_NEVER,
                                      .status = status == HF_OK ? HF_UNAVAILABLE : status,
                                      .text = text});
}

void hf_attempt_set_queued(struct hf_redis *r, struct attempt *a, bool queued)
{
    if (queued && !a->queued)
        r->queued++;
    else if (!queued && a->queued)
        r->queued--;
    a->queued = queued;
    if (!queued)
        hf_look_leave(r, a, r->told_at);
}

/* ---- Commands ---- */

/* What every call of a script begins with, as it goes to the wire. */
static void call_script(struct hf_command *c, enum hf_script script)
{
    static const char before[] = "$7\r\nEVALSHA\r\n$40\r\n", behind[] = "\r\n$1\r\n6\r\n";
    enum { BEFORE = sizeof before - 1, SHA = 40, BEHIND = sizeof behind - 1 };
    char call[BEFORE + SHA + BEHIND];
    memcpy(call, before, BEFORE);
    memcpy(call + BEFORE, hf_scripts[script].sha, SHA);
    memcpy(call + BEFORE + SHA, behind, BEHIND);
    hf_command_words(c, call, sizeof call);
}

/* They differ in one letter: the first one is written, and copied for the others. */
static void add_companions(struct hf_command *c, const struct hf_keys *keys)
{
    static const char letters[] = "tqwhp";
    char word[HF_KEY_MAX + 16];
    size_t from = c->len;
    hf_command_word(c, keys->companion, keys->companion_len);
    if (c->failed)
        return;
    size_t len = c->len - from, letter = len - 2 - keys->companion_len + keys->letter;
    memcpy(word, c->bytes + from, len);
    c->bytes[from + letter] = letters[0];
    for (int i = 1; letters[i]; i++) {
        word[letter] = letters[i];
        hf_command_words(c, word, len);
    }
}

bool hf_attempt_script(struct hf_redis *r, enum hf_script script, const struct hf_keys *keys, unsigned arguments)
{
    struct hf_command *c = &r->command;
    hf_command_begin(c, 3 + HF_KEYS + arguments);
    call_script(c, script);
    hf_command_word(c, keys->lock, keys->lock_len);
    add_companions(c, keys);
    return !c->failed;
}

static void add_history(struct hf_redis *r, const struct attempt *a)
{
    if (a->said.history == r->history && a->said.history_age_ms == r->history_age_ms) {
        hf_command_add(&r->command, &r->past);
        return;
    }
    hf_command_number(&r->command, a->said.history);
    hf_command_number(&r->command, a->said.history_age_ms);
}

static void write_pace(struct hf_redis *r)
{
    const struct hf_timing *t = &r->timing;
    hf_nanos often = hf_look_is_all(r) ? t->refresh : t->refresh_first; /* else looking.c says who looks often */
    r->looks = hf_words_of((const int64_t[]){often / HF_MS(1), t->refresh / HF_MS(1), t->turn / HF_MS(1)}, 3);
    r->gaps = hf_words_of((const int64_t[]){t->margin / HF_MS(1), t->stagger / HF_MS(1), HF_WAITERS_MOST}, 3);
}

const struct hf_timing *hf_attempt_timing(struct hf_redis *r, const struct attempt *a)
{
    if (r->timing_ttl_ms != a->first_ttl_ms) {
        hf_timing_fill(&r->timing, a->first_ttl_ms, &r->limits, &r->wishes);
        r->timing_ttl_ms = a->first_ttl_ms;
        write_pace(r);
    }
    return &r->timing;
}

enum { META_MAX = sizeof((struct hf_redis *)0)->about + HF_LABEL_MAX + 28 };

/* "0 flags pid host label"; its length. */
static size_t put_meta(const struct hf_redis *r, const struct hf_ask *ask, char meta[META_MAX])
{
    char *at = meta;
    memcpy(at, ask->detached ? "0 d" : "0 b", 3);
    at += 3;
    if (r->round) /* strong.c */
        at = hf_put_number(at, r->round);
    memcpy(at, r->about, r->about_len);
    at += r->about_len;
    if (ask->label_len)
        memcpy(at, ask->label, ask->label_len);
    return (size_t)(at - meta) + ask->label_len;
}

static bool has_owner(const struct hf_ask *ask)
{
    return ask->named && memcmp(&ask->owner, &ask->attempt, sizeof ask->owner) != 0;
}

/* One that needs no token first sees whether the lock is free: a command in place of a script, and no counter. */
static bool may_be_plain(const struct hf_redis *r, const struct attempt *a)
{
    const struct hf_ask *ask = &a->said;
    return ask->tokenless && ask->kind == HF_EXCLUSIVE && !has_owner(ask) && !ask->history && !a->sent && !r->strong &&
           !r->hints;
}

/* The record that ask.lua writes. */
static void write_plain_ask(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    struct hf_command *c = &r->command;
    char record[META_MAX + HF_ID_TEXT + 48], *at = record;
    at = (char *)mempcpy(at, a->id, HF_ID_TEXT);
    *at++ = ' ';
    at = hf_put_number(at, HF_NO_TOKEN);
    *at++ = ' ';
    at = hf_put_number(at, (uint64_t)a->said.ttl_ms);
    *at++ = ' ';
    at += put_meta(r, &a->said, at);
    hf_command_begin(c, 6);
    hf_command_word(c, "SET", 3);
    hf_command_word(c, keys->lock, keys->lock_len);
    hf_command_word(c, record, (size_t)(at - record));
    hf_command_word(c, "NX", 2);
    hf_command_word(c, "PX", 2);
    hf_command_number(c, a->said.ttl_ms);
}

static void write_ask(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    static const char kinds[] = {[HF_EXCLUSIVE] = 'e', [HF_SEMAPHORE] = 's', [HF_READ] = 'r', [HF_WRITE] = 'w'};
    const struct hf_ask *ask = &a->said;
    struct hf_command *c = &r->command;
    char owner[HF_ID_TEXT + 1], meta[META_MAX];
    hf_attempt_timing(r, a); /* looks and gaps are those of this one */
    hf_attempt_script(r, HF_SCRIPT_ASK, keys, 20);
    hf_command_word(c, a->id, HF_ID_TEXT);
    hf_command_number(c, ask->ttl_ms);
    hf_command_word(c, meta, put_meta(r, ask, meta));
    hf_command_letter(c, ask->queue ? '1' : '0');
    hf_command_text(c, r->box);
    hf_command_add(c, &r->looks);
    hf_command_letter(c, a->sent ? '1' : '0');
    hf_command_letter(c, kinds[ask->kind]);
    hf_command_number(c, ask->units);
    hf_command_number(c, ask->capacity);
    if (has_owner(ask)) {
        hf_id_text(&ask->owner, owner);
        hf_command_word(c, owner, HF_ID_TEXT);
    } else {
        hf_command_letter(c, '-');
    }
    hf_command_letter(c, ask->barging ? '1' : '0');
    add_history(r, a);
    hf_command_add(c, &r->gaps);
    hf_command_number(c, r->hints ? (int64_t)ask->token : 0);
}

static void write_extend(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    bool vouched = hf_attempt_line(r, a, a->said.verb)->number == LINE_STRONG;
    hf_attempt_script(r, HF_SCRIPT_EXTEND, keys, 6);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_number(&r->command, a->said.verb == HF_V_EXTEND ? a->said.ttl_ms : 0);
    add_history(r, a);
    hf_command_letter(&r->command, vouched ? '1' : '0');
    hf_command_number(&r->command, r->hints ? (int64_t)a->said.token : 0);
}

static void write_release(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    /* What still waits for replicas would be overtaken. And a grant that is found in leaving was acknowledged by none.
     */
    bool doubt = a->said.doubt || a->in_flight[LINE_STRONG] || a->awaits_replicas;
    bool leaves = a->said.verb == HF_V_LEAVE && !r->strong;
    int64_t tombstone_ms = doubt ? hf_attempt_timing(r, a)->release_for / HF_MS(1) : 0;
    char channel[HF_KEY_MAX];
    hf_attempt_script(r, HF_SCRIPT_RELEASE, keys, 6);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_letter(&r->command, leaves ? 'l' : a->said.lost ? 'x' : 'r');
    hf_command_number(&r->command, tombstone_ms);
    add_history(r, a);
    hf_command_text(&r->command, r->hints && !a->said.quiet ? hf_keys_channel(keys, channel) : "-");
}

static void write_convert(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    bool vouched = hf_attempt_line(r, a, a->said.verb)->number == LINE_STRONG;
    hf_attempt_script(r, HF_SCRIPT_CONVERT, keys, vouched ? 6 : 4);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_letter(&r->command, a->said.verb == HF_V_UPGRADE ? 'u' : 'd');
    add_history(r, a);
    if (vouched) {
        hf_command_word(&r->command, r->self, HF_ID_TEXT);
        hf_command_number(&r->command, (int64_t)r->round);
    }
}

void hf_attempt_send(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    struct hf_keys keys;
    enum hf_verb verb = a->said.verb;
    bool plain = verb == HF_V_ACQUIRE && may_be_plain(r, a);
    if (hf_keys_of(&keys, r->prefix, a->said.name, a->said.name_len) != HF_OK) {
        hf_attempt_fail(r, a, now, HF_INVALID, hf_why_text());
        return;
    }
    switch (verb) {
    case HF_V_ACQUIRE:
        (plain ? write_plain_ask : write_ask)(r, a, &keys);
        break;
    case HF_V_EXTEND:
    case HF_V_CHECK:
        write_extend(r, a, &keys);
        break;
    case HF_V_UPGRADE:
    case HF_V_DOWNGRADE:
        write_convert(r, a, &keys);
        break;
    default:
        write_release(r, a, &keys);
    }
    a->sent = true;
    a->unsent = false;
    a->asking += verb == HF_V_ACQUIRE;
    struct request request = {.kind = REQ_VERB,
                              .verb = (uint8_t)verb,
                              .attempt = a,
                              .patience = hf_attempt_timing(r, a)->op_timeout,
                              .ttl_ms = a->said.ttl_ms,
                              .plain = plain};
    if (hf_line_send(r, hf_attempt_line(r, a, verb), request, now)) {
        set_lines(r, a);
        return;
    }
    const struct line *line = hf_attempt_line(r, a, verb);
    a->asking -= verb == HF_V_ACQUIRE;
    hf_attempt_fail(r, a, now, line->trouble, line->why);
}

static bool is_job(enum hf_verb verb)
{
    return verb == HF_V_LIST || verb == HF_V_BREAK || verb == HF_V_RESIZE || verb == HF_V_EXAMINE;
}

static void send_or_begin(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    if (is_job(a->said.verb)) {
        a->unsent = false;
        (a->said.verb == HF_V_EXAMINE ? hf_examine_begin : hf_job_begin)(r, a, now);
    } else {
        hf_attempt_send(r, a, now);
    }
}

/* The server never heard of it; whoever waited for it hears why. */
static void end_unheard(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    const struct line *line = hf_attempt_line(r, a, HF_V_ACQUIRE);
    char text[sizeof line->why];
    if (line->state == LINE_DOWN || line->failures)
        snprintf(text, sizeof text, "%s", line->why);
    else
        snprintf(text, sizeof text, "%.100s: no connection within %lld ms", r->where,
                 (long long)((now - line->since) / HF_MS(1)));
    a->unsent = false;
    hf_attempt_tell(
        r, a,
        &(struct hf_news){
            .cue = HF_N_RELEASED, .asked_at = now, .retry_at = HF_NEVER, .status = HF_UNAVAILABLE, .text = text});
}

void hf_attempt_submit(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    enum hf_verb verb = a->said.verb;
    struct line *line = hf_attempt_line(r, a, verb);
    a->hinted = false;
    if ((verb == HF_V_LEAVE || verb == HF_V_RELEASE) && !a->sent && !a->said.doubt) {
        end_unheard(r, a, now);
        return;
    }
    if (verb == HF_V_LISTEN) {
        hf_wake_set_ear(r, a, true, now);
        return;
    }
    if (!hf_line_need(r, line, now)) {
        a->unsent = false;
        hf_attempt_fail(r, a, now, line->trouble, line->why);
        return;
    }
    if (line->state == LINE_UP) {
        send_or_begin(r, a, now);
        return;
    }
    a->unsent = true;
    set_lines(r, a);
}

void hf_attempt_send_unsent(struct hf_redis *r, const struct line *line, hf_nanos now)
{
    struct attempt *last = r->attempts;
    while (last && last->next)
        last = last->next;
    /* The oldest first: that is the order in which they came. */
    for (struct attempt *a = last, *before; a && line->state == LINE_UP; a = before) {
        before = a->prev;
        if (a->unsent && hf_attempt_line(r, a, a->said.verb) == line)
            send_or_begin(r, a, now);
    }
}

void hf_attempt_undo(struct hf_redis *r, const char *id, const char *key, size_t key_len, hf_nanos now)
{
    struct hf_keys keys;
    const char *name = hf_keys_name(r->prefix, key, key_len);
    struct line *line = &r->line[LINE_COMMANDS];
    if (!name || line->state != LINE_UP)
        return;
    if (hf_keys_of(&keys, r->prefix, name, key_len - (size_t)(name - key)) != HF_OK)
        return;
    hf_attempt_script(r, HF_SCRIPT_RELEASE, &keys, 6);
    hf_command_word(&r->command, id, HF_ID_TEXT);
    hf_command_letter(&r->command, 'u');
    hf_command_letter(&r->command, '0'); /* whatever was in doubt has left its tombstone before it was forgotten */
    hf_command_number(&r->command, r->history);
    hf_command_number(&r->command, r->history_age_ms);
    hf_command_text(&r->command, "-");
    hf_line_send(r, line, (struct request){.kind = REQ_UNDO, .patience = r->connect_timeout}, now);
}
