/* answering.c - a reply becomes news. */
#include "redis.h"

#include "base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
static bool can_be_queued(struct hf_redis *r, const struct attempt *a, const struct hf_reply *reply)
{
    for (size_t i = 2; i < 6; i++)
        if (hf_reply_count(hf_reply_item(reply, i)) < 0)
            return false;
    return hf_reply_count(hf_reply_item(reply, 2)) <= hf_attempt_timing(r, a)->refresh / HF_MS(1) &&
           hf_reply_count(hf_reply_item(reply, 5)) < UINT32_MAX;
}

static void note_queued(struct hf_redis *r, struct attempt *a, const struct hf_reply *reply, struct hf_news *news,
                        hf_nanos now)
{
    news->cue = HF_N_QUEUED;
    news->retry_at = news->asked_at + HF_MS(hf_reply_count(hf_reply_item(reply, 2)));
    news->place = (uint32_t)hf_reply_count(hf_reply_item(reply, 5)) + 1;
    int64_t number = hf_reply_count(hf_reply_item(reply, 4));
    if (hf_look_is_all(r))
        news->retry_at = hf_look_next(r, a, number, news, now);
    a->pair = (struct pair){
        .set = true,
        .asked_at = news->asked_at,
        .due = news->retry_at,
        .at = hf_reply_count(hf_reply_item(reply, 3)),
        .number = number,
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
        hf_why(HF_FULL, "%d wait for it already", HF_WAITERS_MOST);
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
        if (!can_be_queued(r, a, reply))
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
        hf_look_own(r, a);
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
        hf_attempt_send(r, a, now);
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

/* It was not free: the script knows why, and queues it. Or somebody waits for what is given back. */
static void hear_that_others_want_it(struct hf_redis *r, const struct request *request, hf_nanos now)
{
    if (request->verb == HF_V_RELEASE)
        r->crowded_for = CROWDED_FOR;
    ask_again(r, request, "others want it, too", now);
}

void hf_attempt_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct attempt *a = request->attempt;
    a->asking -= request->verb == HF_V_ACQUIRE;
    if (reply->type == HF_REPLY_ERROR) {
        hear_refusal(r, request, reply, now);
        return;
    }
    if (request->plain && reply->type == HF_REPLY_NIL) {
        hear_that_others_want_it(r, request, now);
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
