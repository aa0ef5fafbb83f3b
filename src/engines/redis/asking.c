/* asking.c - an ask becomes a command, a reply becomes news. */
#include "redis.h"

#include "base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WAITERS = 100000 };

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
    a->ask->lines = (a->queued && r->box[0] != '-') || a->listens ? 1u << LINE_WAKE : 0;
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
}

/* ---- Commands ---- */

bool hf_attempt_script(struct hf_redis *r, enum hf_script script, const struct hf_keys *keys, unsigned arguments)
{
    static const char letters[HF_KEYS] = " tqwhp";
    struct hf_command *c = &r->command;
    char companion[HF_KEY_MAX];
    hf_command_begin(c, 3 + HF_KEYS + arguments);
    hf_command_word(c, "EVALSHA", 7);
    hf_command_word(c, hf_scripts[script].sha, 40);
    hf_command_word(c, "6", 1);
    hf_command_word(c, keys->lock, keys->lock_len);
    memcpy(companion, keys->companion, keys->companion_len);
    for (int i = 1; i < HF_KEYS; i++) {
        companion[keys->letter] = letters[i];
        hf_command_word(c, companion, keys->companion_len);
    }
    return !c->failed;
}

static void add_history(struct hf_redis *r, const struct attempt *a)
{
    hf_command_number(&r->command, a->said.history);
    hf_command_number(&r->command, a->said.history_age_ms);
}

static const struct hf_timing *timing_of(struct hf_redis *r, struct attempt *a)
{
    if (a->timing_ttl_ms == 0) { /* an extend for another ttl changes nothing in how long an answer may take */
        hf_timing_fill(&a->timing, a->said.ttl_ms, &r->limits, &r->wishes);
        a->timing_ttl_ms = a->said.ttl_ms;
    }
    return &a->timing;
}

enum { META_MAX = sizeof((struct hf_redis *)0)->about + HF_LABEL_MAX + 8 };

static size_t put_meta(const struct hf_redis *r, const struct hf_ask *ask, char meta[META_MAX])
{
    return (size_t)snprintf(meta, META_MAX, "0 %c%s%.*s", ask->detached ? 'd' : 'b', r->about, (int)ask->label_len,
                            ask->label);
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
    char meta[META_MAX], record[META_MAX + HF_ID_TEXT + 48];
    put_meta(r, &a->said, meta);
    int len = snprintf(record, sizeof record, "%s %d %lld %s", a->id, HF_NO_TOKEN, (long long)a->said.ttl_ms, meta);
    hf_command_begin(c, 6);
    hf_command_word(c, "SET", 3);
    hf_command_word(c, keys->lock, keys->lock_len);
    hf_command_word(c, record, (size_t)len);
    hf_command_word(c, "NX", 2);
    hf_command_word(c, "PX", 2);
    hf_command_number(c, a->said.ttl_ms);
}

static void write_ask(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    static const char kinds[] = {[HF_EXCLUSIVE] = 'e', [HF_SEMAPHORE] = 's', [HF_READ] = 'r', [HF_WRITE] = 'w'};
    const struct hf_ask *ask = &a->said;
    const struct hf_timing *t = timing_of(r, a);
    struct hf_command *c = &r->command;
    char owner[HF_ID_TEXT + 1] = "-", meta[META_MAX];
    if (has_owner(ask))
        hf_id_text(&ask->owner, owner);
    hf_attempt_script(r, HF_SCRIPT_ASK, keys, 20);
    hf_command_word(c, a->id, HF_ID_TEXT);
    hf_command_number(c, ask->ttl_ms);
    hf_command_word(c, meta, put_meta(r, ask, meta));
    hf_command_word(c, ask->queue ? "1" : "0", 1);
    hf_command_text(c, r->box);
    hf_command_number(c, t->refresh_first / HF_MS(1));
    hf_command_number(c, t->refresh / HF_MS(1));
    hf_command_number(c, t->turn / HF_MS(1));
    hf_command_word(c, a->unsure_undo ? "2" : a->sent ? "1" : "0", 1);
    hf_command_word(c, &kinds[ask->kind], 1);
    hf_command_number(c, ask->units);
    hf_command_number(c, ask->capacity);
    hf_command_text(c, owner);
    hf_command_word(c, ask->barging ? "1" : "0", 1);
    add_history(r, a);
    hf_command_number(c, t->margin / HF_MS(1));
    hf_command_number(c, t->stagger / HF_MS(1));
    hf_command_number(c, MOST_WAITERS);
    hf_command_number(c, r->hints ? (int64_t)ask->token : 0);
}

static void write_extend(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    bool vouched = hf_attempt_line(r, a, a->said.verb)->number == LINE_STRONG;
    hf_attempt_script(r, HF_SCRIPT_EXTEND, keys, 6);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_number(&r->command, a->said.verb == HF_V_EXTEND ? a->said.ttl_ms : 0);
    add_history(r, a);
    hf_command_word(&r->command, vouched ? "1" : "0", 1);
    hf_command_number(&r->command, r->hints ? (int64_t)a->said.token : 0);
}

static void write_release(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    /* What still waits for replicas would be overtaken. And a grant that is found in leaving was acknowledged by none.
     */
    bool doubt = a->said.doubt || a->in_flight[LINE_STRONG] || a->awaits_replicas;
    bool leaves = a->said.verb == HF_V_LEAVE && !r->strong;
    int64_t tombstone_ms = doubt ? timing_of(r, a)->release_for / HF_MS(1) : 0;
    char channel[HF_KEY_MAX];
    hf_attempt_script(r, HF_SCRIPT_RELEASE, keys, 6);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_word(&r->command, leaves ? "l" : a->said.lost ? "x" : "r", 1);
    hf_command_number(&r->command, tombstone_ms);
    add_history(r, a);
    hf_command_text(&r->command, r->hints && !a->said.quiet ? hf_keys_channel(keys, channel) : "-");
}

static void write_convert(struct hf_redis *r, struct attempt *a, const struct hf_keys *keys)
{
    hf_attempt_script(r, HF_SCRIPT_CONVERT, keys, 4);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_word(&r->command, a->said.verb == HF_V_UPGRADE ? "u" : "d", 1);
    add_history(r, a);
}

static void send_verb(struct hf_redis *r, struct attempt *a, hf_nanos now)
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
                              .patience = timing_of(r, a)->op_timeout,
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
        send_verb(r, a, now);
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
    hf_command_word(&r->command, "u", 1);
    hf_command_word(&r->command, "0", 1); /* whatever was in doubt has left its tombstone before it was forgotten */
    hf_command_number(&r->command, r->history);
    hf_command_number(&r->command, r->history_age_ms);
    hf_command_text(&r->command, "-");
    hf_line_send(r, line, (struct request){.kind = REQ_UNDO, .patience = r->connect_timeout}, now);
}

/* ---- News ---- */

static struct hf_news news_of(const struct request *request, enum hf_cue cue)
{
    return (struct hf_news){.cue = cue, .asked_at = request->sent_at, .retry_at = HF_NEVER};
}

/* {token, left}. Nothing is held for longer than the longest ttl. */
static bool read_held(const struct hf_redis *r, const struct hf_reply *reply, struct hf_news *news)
{
    int64_t token = hf_reply_count(hf_reply_item(reply, 0)), left = hf_reply_count(hf_reply_item(reply, 1));
    if (reply->type != HF_REPLY_LIST || reply->len != 2 || token <= 0 || left < 0 || left > r->limits.ttl_max_ms)
        return false;
    news->token = (uint64_t)token;
    news->good = HF_MS(left);
    return true;
}

/* {0, left, again, now, number, place}: nobody is told to ask again later than it offered to. */
static bool can_be_queued(const struct attempt *a, const struct hf_reply *reply)
{
    for (size_t i = 2; i < 6; i++)
        if (hf_reply_count(hf_reply_item(reply, i)) < 0)
            return false;
    return hf_reply_count(hf_reply_item(reply, 2)) <= a->timing.refresh / HF_MS(1) &&
           hf_reply_count(hf_reply_item(reply, 5)) < UINT32_MAX;
}

static void note_queued(struct hf_redis *r, struct attempt *a, const struct hf_reply *reply, struct hf_news *news,
                        hf_nanos now)
{
    news->cue = HF_N_QUEUED;
    news->retry_at = news->asked_at + HF_MS(hf_reply_count(hf_reply_item(reply, 2)));
    news->place = (uint32_t)hf_reply_count(hf_reply_item(reply, 5)) + 1;
    a->pair = (struct pair){
        .set = true,
        .asked_at = news->asked_at,
        .due = news->retry_at,
        .at = hf_reply_count(hf_reply_item(reply, 3)),
        .number = hf_reply_count(hf_reply_item(reply, 4)),
    };
    hf_attempt_set_queued(r, a, true);
    hf_wake_listen(r, now);
}

/* A refusal for a reason: {-2, class, capacity}, {-3, capacity}, {-4}, {-5}. */
static bool read_reason(struct attempt *a, const struct hf_reply *reply, struct hf_news *news)
{
    const struct hf_reply *class = hf_reply_item(reply, 1);
    news->cue = HF_N_FAILED;
    switch (hf_reply_item(reply, 0)->number) {
    case -2:
        if (!class || class->type != HF_REPLY_TEXT)
            return false;
        bool same = class->text[0] == (a->said.kind == HF_EXCLUSIVE ? 'e' : a->said.kind == HF_SEMAPHORE ? 's' : 'x');
        news->status = HF_MISMATCH;
        if (same)
            hf_why(HF_MISMATCH, "is in use with capacity %lld, not %u",
                   (long long)hf_reply_count(hf_reply_item(reply, 2)), a->said.capacity);
        else
            hf_why(HF_MISMATCH, "is in use as %s, not as %s",
                   class->text[0] == 'e'   ? "exclusive"
                   : class->text[0] == 's' ? "a semaphore"
                                           : "read-write",
                   a->said.kind == HF_EXCLUSIVE   ? "exclusive"
                   : a->said.kind == HF_SEMAPHORE ? "a semaphore"
                                                  : "read-write");
        break;
    case -3:
        news->status = HF_TOO_BIG;
        hf_why(HF_TOO_BIG, "%u units are more than its capacity, which was changed to %lld", a->said.units,
               (long long)hf_reply_count(hf_reply_item(reply, 1)));
        break;
    case -4:
        news->status = HF_FULL;
        hf_why(HF_FULL, "%d wait for it already", MOST_WAITERS);
        break;
    case -5:
        news->status = HF_MISMATCH;
        hf_why(HF_MISMATCH, "this owner reads it; hf_upgrade makes it the writer");
        break;
    default:
        return false;
    }
    news->text = hf_why_text();
    return true;
}

/* "token ticket flags pid host label": who is ahead, for a quorum to add up. */
static void read_holder(const struct hf_reply *holder, struct hf_news *news)
{
    static _Thread_local char words[HF_LABEL_MAX + 128];
    int64_t pid;
    int host_at = 0, host_end = 0;
    if (!holder || holder->type != HF_REPLY_TEXT ||
        sscanf(holder->text, "%" SCNu64 " %*u %*c %" SCNd64 " %n%*s%n", &news->token, &pid, &host_at, &host_end) < 2 ||
        !host_end)
        return;
    const char *label = holder->text[host_end] ? holder->text + host_end + 1 : "";
    snprintf(words, sizeof words, "pid %" PRId64 " on %.*s%s%s%s", pid, host_end - host_at, holder->text + host_at,
             *label ? " (" : "", label, *label ? ")" : "");
    news->text = words;
}

/* OK: it was free. */
static bool read_plain_asked(const struct request *request, const struct hf_reply *reply, struct hf_news *news)
{
    if (reply->type != HF_REPLY_STATUS)
        return false;
    news->cue = HF_N_GRANTED;
    news->token = HF_NO_TOKEN;
    news->good = HF_MS(request->ttl_ms);
    return true;
}

static bool read_asked(struct hf_redis *r, const struct request *request, const struct hf_reply *reply,
                       struct hf_news *news, hf_nanos now)
{
    struct attempt *a = request->attempt;
    int64_t token = hf_reply_count(reply);
    if (reply->type == HF_REPLY_TEXT && token > 0) {
        news->cue = HF_N_GRANTED;
        news->token = (uint64_t)token;
        news->good = HF_MS(request->ttl_ms);
        hf_attempt_set_queued(r, a, false);
        return true;
    }
    const struct hf_reply *first = hf_reply_item(reply, 0);
    if (!first || first->type != HF_REPLY_NUMBER)
        return false;
    if (first->number == 0 && reply->len == 6) {
        if (!can_be_queued(a, reply))
            return false;
        note_queued(r, a, reply, news, now);
        return true;
    }
    hf_attempt_set_queued(r, a, false);
    if (first->number == 0 && (reply->len == 2 || reply->len == 3)) {
        const struct hf_reply *left = hf_reply_item(reply, 1), *holder = hf_reply_item(reply, 2);
        if (left->type != HF_REPLY_NUMBER || (holder && holder->type != HF_REPLY_TEXT && holder->type != HF_REPLY_NIL))
            return false;
        news->cue = HF_N_BUSY;
        news->retry_at = left->number >= 0 ? news->asked_at + hf_timing_nanos(left->number) : HF_NEVER;
        if (r->hints)
            read_holder(holder, news);
        return true;
    }
    if (first->number == -1 && reply->len == 1) {
        news->cue = HF_N_GONE;
        return true;
    }
    return read_reason(a, reply, news);
}

static bool read_released(struct hf_redis *r, struct attempt *a, enum hf_verb verb, const struct hf_reply *reply,
                          struct hf_news *news)
{
    if (verb == HF_V_LEAVE && read_held(r, reply, news)) {
        news->cue = HF_N_GRANTED;
        news->brief = true;
        hf_attempt_set_queued(r, a, false);
        return true;
    }
    if (reply->type != HF_REPLY_NUMBER)
        return false;
    news->cue = verb == HF_V_LEAVE || reply->number ? HF_N_RELEASED : HF_N_GONE;
    hf_attempt_set_queued(r, a, false);
    if (verb == HF_V_RELEASE)
        hf_wake_own(r, a);
    return true;
}

/* {token, left}, {1}: others read it, {0}: not held. */
static bool read_extended(const struct hf_redis *r, const struct hf_reply *reply, struct hf_news *news)
{
    const struct hf_reply *first = hf_reply_item(reply, 0);
    if (read_held(r, reply, news)) {
        news->cue = HF_N_EXTENDED;
        return true;
    }
    if (!first || reply->len != 1 || first->type != HF_REPLY_NUMBER || (first->number != 0 && first->number != 1))
        return false;
    news->cue = first->number ? HF_N_BUSY : HF_N_GONE;
    return true;
}

static bool read_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply,
                        struct hf_news *news, hf_nanos now)
{
    switch (request->verb) {
    case HF_V_ACQUIRE:
        return request->plain ? read_plain_asked(request, reply, news) : read_asked(r, request, reply, news, now);
    case HF_V_LEAVE:
    case HF_V_RELEASE:
        return read_released(r, request->attempt, request->verb, reply, news);
    default:
        return read_extended(r, reply, news);
    }
}

/* Nothing happened, so it is sent again; but not if something was sent behind it, which it would overtake. */
static void ask_again(struct hf_redis *r, const struct request *request, const char *why, hf_nanos now)
{
    struct attempt *a = request->attempt;
    const struct line *line = hf_attempt_line(r, a, request->verb);
    if (hf_attempt_flies(a) || a->said.verb != request->verb || line->state != LINE_UP)
        hf_attempt_fail(r, a, request->sent_at, HF_UNAVAILABLE, why);
    else
        send_verb(r, a, now);
}

/* After a SCRIPT FLUSH. */
static void load_and_ask_again(struct hf_redis *r, const struct request *request, hf_nanos now)
{
    hf_line_load_scripts(r, hf_attempt_line(r, request->attempt, request->verb), now);
    ask_again(r, request, "the server has forgotten our scripts", now);
}

static void hear_refusal(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct line *line = hf_attempt_line(r, request->attempt, request->verb);
    if (strncmp(reply->text, "NOSCRIPT", 8) == 0) {
        load_and_ask_again(r, request, now);
        return;
    }
    struct refusal refusal = hf_refusal(r, reply);
    hf_attempt_fail(r, request->attempt, request->sent_at, refusal.status, refusal.text);
    if (refusal.leave)
        hf_line_drop(r, line, refusal.status, now, "%s", refusal.text);
}

void hf_attempt_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct attempt *a = request->attempt;
    a->asking -= request->verb == HF_V_ACQUIRE;
    if (reply->type == HF_REPLY_ERROR) {
        hear_refusal(r, request, reply, now);
        return;
    }
    if (request->plain && reply->type == HF_REPLY_NIL) { /* not free: the script knows why, and queues it */
        ask_again(r, request, "it was not free", now);
        return;
    }
    struct hf_news news = news_of(request, HF_N_CUT);
    bool understood = read_answer(r, request, reply, &news, now);
    if (!understood)
        news = news_of(request, HF_N_CUT);
    bool held = news.cue == HF_N_GRANTED || news.cue == HF_N_EXTENDED;
    if (held && hf_attempt_line(r, request->attempt, request->verb)->number == LINE_STRONG) {
        hf_strong_wait(r, a, request->verb, &news, now);
        return;
    }
    if (held)
        hf_strong_limit(a, &news);
    if (!understood) {
        struct line *line = hf_attempt_line(r, request->attempt, request->verb);
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "an answer that does not fit the question");
        news.text = line->why;
    }
    hf_attempt_tell(r, a, &news);
    if (a->queued && a->push.set)
        hf_wake_consider(r, a, now);
}
