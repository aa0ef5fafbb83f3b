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

static void fail(struct hf_redis *r, struct attempt *a, const struct hf_news *news)
{
    hf_job_free(a);
    hf_attempt_tell(r, a, news);
}

void hf_attempt_fail(struct hf_redis *r, struct attempt *a, hf_nanos asked_at, hf_status status, const char *text)
{
    fail(r, a,
         &(struct hf_news){
             .cue = HF_N_FAILED, .asked_at = asked_at, .retry_at = HF_NEVER, .status = status, .text = text});
}

void hf_attempt_fail_with(struct hf_redis *r, struct attempt *a, const struct line *line, hf_nanos now)
{
    fail(r, a,
         &(struct hf_news){.cue = HF_N_FAILED,
                           .asked_at = now,
                           .retry_at = line->state == LINE_DOWN ? line->dial_at : HF_NEVER,
                           .status = line->trouble == HF_OK ? HF_UNAVAILABLE : line->trouble,
                           .text = line->why});
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

static void write_pace(struct hf_redis *r)
{
    const struct hf_timing *t = &r->timing;
    hf_nanos often = hf_look_is_all(r) ? t->refresh : t->refresh_first; /* else looking.c says who looks often */
    snprintf(r->pace, sizeof r->pace, "%lld %lld %lld %lld %lld %d", (long long)(often / HF_MS(1)),
             (long long)(t->refresh / HF_MS(1)), (long long)(t->turn / HF_MS(1)), (long long)(t->margin / HF_MS(1)),
             (long long)(t->stagger / HF_MS(1)), HF_WAITERS_MOST);
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

/* One that needs no token first sees whether the lock is free: a command in place of a script, and no counter. And it
 * gives back as if nobody waited: a script with two keys costs a quarter less. Where somebody did, that was in vain,
 * and the next ones are given back with all of them. */
static bool may_be_plain(const struct hf_redis *r, const struct attempt *a)
{
    const struct hf_ask *ask = &a->said;
    bool simple =
        ask->tokenless && ask->kind == HF_EXCLUSIVE && !has_owner(ask) && !r->history && !r->strong && !r->hints;
    return simple && (ask->verb == HF_V_ACQUIRE ? !a->sent : ask->verb == HF_V_RELEASE && !r->crowded_for);
}

/* The record that ask.lua writes. */
static void write_plain_ask(struct hf_redis *r, struct attempt *a, const struct head *head)
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
    hf_command_words(c, head->words.bytes, head->lock_len);
    hf_command_word(c, record, (size_t)(at - record));
    hf_command_word(c, "NX", 2);
    hf_command_word(c, "PX", 2);
    hf_command_number(c, a->said.ttl_ms);
}

static char *add_number(char *to, uint64_t number)
{
    *to++ = ' ';
    return hf_put_number(to, number);
}

static char *add_text(char *to, const char *text)
{
    *to++ = ' ';
    return stpcpy(to, text);
}

/* "kind owner history token units capacity"; its length. */
static size_t put_wish(const struct hf_redis *r, const struct hf_ask *ask, char *wish)
{
    static const char kinds[] = {[HF_EXCLUSIVE] = 'e', [HF_SEMAPHORE] = 's', [HF_READ] = 'r', [HF_WRITE] = 'w'};
    char owner[HF_ID_TEXT + 1] = "-", *at = wish;
    if (has_owner(ask))
        hf_id_text(&ask->owner, owner);
    *at++ = kinds[ask->kind];
    at = add_text(at, owner);
    at = add_number(at, (uint64_t)r->history);
    at = add_number(at, r->hints ? ask->token : 0);
    at = add_number(at, ask->units);
    at = add_number(at, ask->capacity);
    return (size_t)(at - wish);
}

/* "age wait queued barging box", and the pace; its length. */
static size_t put_manner(const struct hf_redis *r, const struct attempt *a, char *manner)
{
    char *at = hf_put_number(manner, (uint64_t)r->history_age_ms);
    at = add_number(at, a->said.queue);
    at = add_number(at, a->sent);
    at = add_number(at, a->said.barging);
    at = add_text(at, r->box);
    at = add_text(at, r->pace);
    return (size_t)(at - manner);
}

/* Words 2 to 5 of ask.lua: what is asked for, and how. */
static void write_terms(struct hf_redis *r, const struct attempt *a)
{
    const struct hf_ask *ask = &a->said;
    char meta[META_MAX], wish[HF_ID_TEXT + 96], manner[sizeof r->box + sizeof r->pace + 48];
    hf_attempt_timing(r, a); /* the pace is that of this one */
    hf_command_number(&r->command, ask->ttl_ms);
    hf_command_word(&r->command, meta, put_meta(r, ask, meta));
    hf_command_word(&r->command, wish, put_wish(r, ask, wish));
    hf_command_word(&r->command, manner, put_manner(r, a, manner));
}

static struct terms terms_of(const struct hf_redis *r, const struct attempt *a)
{
    const struct hf_ask *ask = &a->said;
    return (struct terms){
        .ttl_ms = ask->ttl_ms,
        .first_ttl_ms = a->first_ttl_ms,
        .round = r->round,
        .token = r->hints ? ask->token : 0,
        .units = ask->units,
        .capacity = ask->capacity,
        .flags = (uint32_t)ask->kind | (uint32_t)ask->queue << 8 | (uint32_t)a->sent << 9 |
                 (uint32_t)ask->detached << 10 | (uint32_t)ask->barging << 11,
    };
}

/* Most asks of a client are for the same: then they are copied. A label or an owner is one's own. */
static void add_terms(struct hf_redis *r, const struct attempt *a)
{
    struct form *form = &r->form;
    struct hf_command *c = &r->command;
    struct terms terms = terms_of(r, a);
    bool own = a->said.label_len || has_owner(&a->said);
    if (!own && form->len && memcmp(&form->terms, &terms, sizeof terms) == 0) {
        hf_command_words(c, form->bytes, form->len);
        return;
    }
    size_t from = c->len;
    write_terms(r, a);
    if (own || c->failed || c->len - from > sizeof form->bytes)
        return;
    form->terms = terms;
    form->len = c->len - from;
    memcpy(form->bytes, c->bytes + from, form->len);
}

static void write_ask(struct hf_redis *r, struct attempt *a, const struct head *head)
{
    hf_head_script(r, HF_SCRIPT_ASK, head, 5);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    add_terms(r, a);
}

/* What it is in most cases, the scripts know. */
static void write_extend(struct hf_redis *r, struct attempt *a, const struct head *head)
{
    bool vouched = hf_attempt_line(r, a, a->said.verb)->number == LINE_STRONG;
    uint64_t token = r->hints ? a->said.token : 0;
    bool usual = !r->history && !vouched && !token;
    char terms[80];
    hf_head_script(r, HF_SCRIPT_EXTEND, head, usual ? 2 : 3);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_number(&r->command, a->said.verb == HF_V_EXTEND ? a->said.ttl_ms : 0);
    if (usual)
        return;
    snprintf(terms, sizeof terms, "%lld %lld %d %llu", (long long)r->history, (long long)r->history_age_ms, vouched,
             (unsigned long long)token);
    hf_command_text(&r->command, terms);
}

void hf_attempt_write_release(struct hf_redis *r, const char *id, const struct head *head, const char *channel,
                              const char *terms)
{
    hf_head_script(r, HF_SCRIPT_RELEASE, head, terms ? 3 : channel ? 2 : 1);
    hf_command_word(&r->command, id, HF_ID_TEXT);
    if (channel || terms)
        hf_command_text(&r->command, channel ? channel : "-");
    if (terms)
        hf_command_text(&r->command, terms);
}

/* Members of a quorum say there that it is free. NULL: nobody does. */
static const char *channel_of(const struct hf_redis *r, const struct attempt *a, char channel[HF_KEY_MAX])
{
    struct hf_keys keys;
    bool says = r->hints && !a->said.quiet && hf_keys_of(&keys, r->prefix, a->said.name, a->said.name_len) == HF_OK;
    return says ? hf_keys_channel(&keys, channel) : NULL;
}

/* Returns whether two keys were to do. */
static bool write_release(struct hf_redis *r, struct attempt *a, const struct head *head, bool may_be_brief)
{
    /* Whoever gives it back may not have heard yet that its ask went under. What still waits for replicas would be
     * overtaken. And a grant that is found in leaving was acknowledged by none. */
    bool doubt = a->said.doubt || a->cut || a->in_flight[LINE_STRONG] || a->awaits_replicas;
    bool leaves = a->said.verb == HF_V_LEAVE && !r->strong;
    bool usual = !doubt && !leaves && !a->said.lost && !r->history;
    int64_t tombstone_ms = doubt ? hf_attempt_timing(r, a)->release_for / HF_MS(1) : 0;
    char channel[HF_KEY_MAX], terms[80];
    if (usual && may_be_brief) {
        hf_head_script_of_two(r, HF_SCRIPT_RELEASE, head, 1);
        hf_command_word(&r->command, a->id, HF_ID_TEXT);
        return true;
    }
    r->crowded_for -= r->crowded_for > 0;
    if (!usual)
        snprintf(terms, sizeof terms, "%c %lld %lld %lld -",
                 leaves         ? 'l'
                 : a->said.lost ? 'x'
                                : 'r',
                 (long long)tombstone_ms, (long long)r->history, (long long)r->history_age_ms);
    hf_attempt_write_release(r, a->id, head, channel_of(r, a, channel), usual ? NULL : terms);
    return false;
}

static void write_convert(struct hf_redis *r, struct attempt *a, const struct head *head)
{
    bool vouched = hf_attempt_line(r, a, a->said.verb)->number == LINE_STRONG;
    hf_head_script(r, HF_SCRIPT_CONVERT, head, vouched ? 6 : 4);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_letter(&r->command, a->said.verb == HF_V_UPGRADE ? 'u' : 'd');
    hf_command_add(&r->command, &r->past);
    if (vouched) {
        hf_command_word(&r->command, r->self, HF_ID_TEXT);
        hf_command_number(&r->command, (int64_t)r->round);
    }
}

void hf_attempt_send(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    const struct head *head;
    enum hf_verb verb = a->said.verb;
    bool plain = may_be_plain(r, a);
    hf_status status = hf_head_of(r, a->said.name, a->said.name_len, &head);
    if (status != HF_OK) {
        hf_attempt_fail(r, a, now, status, hf_why_text());
        return;
    }
    switch (verb) {
    case HF_V_ACQUIRE:
        (plain ? write_plain_ask : write_ask)(r, a, head);
        break;
    case HF_V_EXTEND:
    case HF_V_CHECK:
        write_extend(r, a, head);
        break;
    case HF_V_UPGRADE:
    case HF_V_DOWNGRADE:
        write_convert(r, a, head);
        break;
    default:
        plain = write_release(r, a, head, plain);
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
    hf_attempt_fail_with(r, a, line, now);
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
        hf_attempt_fail_with(r, a, line, now);
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
    const struct head *head;
    char terms[80];
    const char *name = hf_keys_name(r->prefix, key, key_len);
    struct line *line = &r->line[LINE_COMMANDS];
    if (!name || line->state != LINE_UP)
        return;
    if (hf_head_of(r, name, key_len - (size_t)(name - key), &head) != HF_OK)
        return;
    /* Whatever was in doubt has left its tombstone before it was forgotten. */
    snprintf(terms, sizeof terms, "u 0 %lld %lld -", (long long)r->history, (long long)r->history_age_ms);
    hf_attempt_write_release(r, id, head, NULL, terms);
    hf_line_send(r, line, (struct request){.kind = REQ_UNDO, .patience = r->connect_timeout}, now);
}
