/* waking.c - how waiters hear of a hand-over: an inbox (a list), or a channel, on a connection of its own.
 *
 * The message is a hint, the record in the server is the truth. A hold that begins with a message is counted from a
 * request that we timed ourselves: with E the end in the message and T the server's time in the answer to our ask sent
 * at s, it is good for E - T from s on, and never longer than from now for what was given at the hand-over. Where
 * that does not carry, the waiter asks. */
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_S 5 /* how often a subscription is proved */
#define POP_S 15   /* how long one BLMPOP waits in the server: many who wait for long should cost it little */
#define POP_PATIENCE HF_MS(POP_S * 1000 + 1000)
enum { POP_MOST = 1000 };

static void pop(struct hf_redis *r, hf_nanos now)
{
    struct hf_command *c = &r->command;
    hf_command_begin(c, 7);
    hf_command_text(c, "BLMPOP");
    hf_command_number(c, POP_S);
    hf_command_text(c, "1");
    hf_command_text(c, r->box + 1);
    hf_command_text(c, "LEFT");
    hf_command_text(c, "COUNT");
    hf_command_number(c, POP_MOST);
    hf_line_send(r, &r->line[LINE_WAKE], (struct request){.kind = REQ_POP, .patience = POP_PATIENCE}, now);
}

static void send_listen(struct hf_redis *r, hf_nanos now)
{
    hf_line_send(r, &r->line[LINE_WAKE], (struct request){.kind = REQ_LISTEN, .patience = HF_MS(1000)}, now);
}

static void subscribe_or_prove(struct hf_redis *r, hf_nanos now)
{
    struct hf_command *c = &r->command;
    if (r->subscribed && now < r->listened_at + HF_MS(LISTEN_S * 1000))
        return;
    hf_command_begin(c, r->subscribed ? 1 : 2);
    hf_command_text(c, r->subscribed ? "PING" : "SUBSCRIBE");
    if (!r->subscribed)
        hf_command_text(c, r->box + 1);
    send_listen(r, now);
}

/* Members of a quorum: a channel for each lock that somebody waits for. */
static void follow(struct hf_redis *r, const struct attempt *a, const char *verb, hf_nanos now)
{
    struct hf_keys keys;
    char channel[HF_KEY_MAX];
    if (hf_keys_of(&keys, r->prefix, a->said.name, a->said.name_len) != HF_OK)
        return;
    hf_command_begin(&r->command, 2);
    hf_command_text(&r->command, verb);
    hf_command_text(&r->command, hf_keys_channel(&keys, channel));
    send_listen(r, now);
}

/* The line has come up, or it is time to prove that it works. */
static void subscribe_to_all(struct hf_redis *r, hf_nanos now)
{
    if (r->subscribed && now < r->listened_at + HF_MS(LISTEN_S * 1000))
        return;
    if (r->subscribed) {
        hf_command_begin(&r->command, 1);
        hf_command_text(&r->command, "PING");
        send_listen(r, now);
        return;
    }
    r->subscribed = r->unheard = true; /* what is published before the first answer is made up for by a hint */
    for (struct attempt *a = r->attempts; a && r->line[LINE_WAKE].state == LINE_UP; a = a->next)
        if (a->listens)
            follow(r, a, "SUBSCRIBE", now);
}

static bool has_same_name(const struct attempt *a, const struct attempt *other)
{
    return a->said.name_len == other->said.name_len && memcmp(a->said.name, other->said.name, a->said.name_len) == 0;
}

static bool is_alone(const struct hf_redis *r, const struct attempt *a)
{
    for (const struct attempt *other = r->attempts; other; other = other->next)
        if (other != a && other->listens && has_same_name(other, a))
            return false;
    return true;
}

void hf_wake_set_ear(struct hf_redis *r, struct attempt *a, bool listens, hf_nanos now)
{
    if (a->listens == listens)
        return;
    a->listens = listens;
    r->ears += listens ? 1 : (uint32_t)-1;
    bool up = r->line[LINE_WAKE].state == LINE_UP && r->subscribed;
    if (up && is_alone(r, a))
        follow(r, a, listens ? "SUBSCRIBE" : "UNSUBSCRIBE", now);
    a->ask->lines = listens ? 1u << LINE_WAKE : 0;
    if (listens && !up)
        hf_wake_listen(r, now);
}

/* Does anybody here want to be told anything? */
static bool is_wanted(const struct hf_redis *r)
{
    return r->hints ? r->ears > 0 : !hf_look_is_all(r) && r->queued > 0;
}

void hf_wake_listen(struct hf_redis *r, hf_nanos now)
{
    struct line *line = &r->line[LINE_WAKE];
    if (!is_wanted(r) || !hf_line_need(r, line, now) || line->state != LINE_UP || line->count)
        return;
    if (r->hints)
        subscribe_to_all(r, now);
    else if (r->box[0] == 'i')
        pop(r, now);
    else
        subscribe_or_prove(r, now);
}

/* Nothing is in flight on this line; but if somebody waits, somebody must listen. */
hf_nanos hf_wake_tick(struct hf_redis *r, hf_nanos now)
{
    const struct line *line = &r->line[LINE_WAKE];
    if (!is_wanted(r))
        return HF_NEVER;
    hf_wake_listen(r, now);
    if (line->state == LINE_DOWN)
        return line->dial_at > now ? line->dial_at : now + HF_MS(1);
    if (line->state != LINE_UP)
        return line->since + r->connect_timeout;
    if (line->count)
        return now + line->queue[line->first].patience;
    return r->listened_at + HF_MS(LISTEN_S * 1000);
}

/* {subscribe, channel, 1}, or {pong, ""}. What was published before the subscription was heard by nobody. */
void hf_wake_listens(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now)
{
    (void)reply;
    r->listened_at = now;
    if (!r->subscribed || r->unheard) {
        r->subscribed = true;
        r->unheard = false;
        hf_line_hint_all(r);
    }
}

/* A lock is free: everybody here who waits for it hears of it. */
static void hear_free(struct hf_redis *r, const struct hf_reply *channel)
{
    for (struct attempt *a = r->attempts; a; a = a->next) {
        struct hf_keys keys;
        char name[HF_KEY_MAX];
        if (a->listens && hf_keys_of(&keys, r->prefix, a->said.name, a->said.name_len) == HF_OK &&
            strcmp(hf_keys_channel(&keys, name), channel->text) == 0)
            hf_attempt_tell(r, a, &(struct hf_news){.cue = HF_N_HINT, .retry_at = HF_NEVER});
    }
}

/* ---- Messages ---- */

struct message {
    char id[HF_ID_TEXT + 1];
    struct push push;
    const char *key;
    size_t key_len;
};

/* "id token end now key". */
static bool read_message(const char *text, size_t len, struct message *m)
{
    const char *end = text + len, *at = text + HF_ID_TEXT;
    int64_t numbers[3];
    if (len <= HF_ID_TEXT || *at != ' ')
        return false;
    memcpy(m->id, text, HF_ID_TEXT);
    m->id[HF_ID_TEXT] = 0;
    for (int i = 0; i < 3; i++) {
        struct hf_reply word = {.type = HF_REPLY_TEXT, .text = ++at};
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        if (!blank)
            return false;
        word.len = (size_t)(blank - at);
        numbers[i] = hf_reply_count(&word);
        if (numbers[i] < 0)
            return false;
        at = blank;
    }
    m->push = (struct push){.set = true, .token = numbers[0], .till = numbers[1], .at = numbers[2]};
    m->key = at + 1;
    m->key_len = (size_t)(end - m->key);
    return true;
}

/* A server may send any number: within what can be added to a time. */
static hf_nanos microseconds(int64_t us)
{
    static const int64_t most = HF_NEVER / 8 / 1000;
    return (us > most ? most : us < -most ? -most : us) * 1000;
}

/* Both clocks in the sum must be one: command and message came from the same run of the same server. */
static bool same_server(const struct hf_redis *r)
{
    const char *one = r->line[LINE_COMMANDS].run_id, *other = r->line[LINE_WAKE].run_id;
    return one[0] && strcmp(one, other) == 0;
}

void hf_wake_consider(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    struct push push = a->push;
    a->push.set = false;
    if (a->pair.set && push.token <= a->pair.number)
        return; /* the answer is newer than the message */
    struct hf_news news = {.cue = HF_N_HINT, .retry_at = HF_NEVER};
    hf_nanos from_ask = microseconds(push.till - a->pair.at);
    hf_nanos from_now = now - a->pair.asked_at + microseconds(push.till - push.at);
    hf_nanos good = from_ask < from_now ? from_ask : from_now;
    hf_nanos until = a->pair.asked_at + good - hf_timing_drift(&r->limits, good);
    /* A hand-over lasts until the waiter's next look and a turn more: what says otherwise is asked about. */
    bool can_be = good <= hf_attempt_timing(r, a)->refresh + hf_attempt_timing(r, a)->turn;
    bool carries = a->pair.set && can_be && until - now > hf_attempt_timing(r, a)->op_timeout && now < a->pair.due;
    if (carries && same_server(r) && !r->strong) {
        news.cue = HF_N_GRANTED;
        news.asked_at = a->pair.asked_at;
        news.good = good;
        news.token = (uint64_t)push.token;
        news.brief = true;
        hf_attempt_set_queued(r, a, false);
    }
    hf_attempt_tell(r, a, &news);
}

/* True: somebody here waits with that id. */
static bool hear_message(struct hf_redis *r, const struct message *m, hf_nanos now)
{
    bool known = false;
    for (struct memo *memo = hf_memo_of(r, m->id); memo; memo = hf_memo_next(memo)) {
        struct attempt *a = memo->awake;
        known = true;
        if (!a || (!a->queued && !a->asking) || a->said.verb != HF_V_ACQUIRE)
            continue; /* it does not wait any more: what it last sent, or will send, settles it */
        if (m->push.token == 0) {
            hf_attempt_set_queued(r, a, false);
            hf_attempt_fail(r, a, now, HF_TOO_BIG, "more units than its capacity, which was changed");
            continue;
        }
        if (!a->push.set || m->push.token > a->push.token)
            a->push = m->push;
        if (!a->asking && !a->unsent)
            hf_wake_consider(r, a, now);
    }
    return known;
}

static void read_and_hear(struct hf_redis *r, const struct hf_reply *text, hf_nanos now)
{
    struct message m;
    if (text->type == HF_REPLY_TEXT && read_message(text->text, text->len, &m) && !hear_message(r, &m, now))
        hf_attempt_undo(r, m.id, m.key, m.key_len, now);
}

void hf_wake_popped(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now)
{
    const struct hf_reply *messages = hf_reply_item(reply, 1);
    if (reply->type != HF_REPLY_NIL && (!messages || messages->type != HF_REPLY_LIST)) {
        hf_line_drop(r, &r->line[LINE_WAKE], HF_UNAVAILABLE, now, "an answer that does not fit the question");
        return;
    }
    for (const struct hf_reply *text = messages ? messages->first : NULL; text; text = text->next)
        read_and_hear(r, text, now);
    hf_wake_listen(r, now);
}

bool hf_wake_published(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now)
{
    const struct hf_reply *what = hf_reply_item(reply, 0), *channel = hf_reply_item(reply, 1);
    const struct hf_reply *text = hf_reply_item(reply, 2);
    if (!r->subscribed || !text || what->type != HF_REPLY_TEXT || strcmp(what->text, "message") != 0 ||
        channel->type != HF_REPLY_TEXT)
        return false;
    r->listened_at = now;
    if (r->hints)
        hear_free(r, channel);
    else
        read_and_hear(r, text, now);
    return true;
}
