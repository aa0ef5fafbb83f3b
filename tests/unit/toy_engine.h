/* toy_engine.h - a tiny engine behind engines/wire.h: each ask is a line of text on line 0 that the server answers in
 * order; one that waits in a queue is then told of by a line of text on line 1. What an ask is called is its token.
 *
 *     CHECK       answered at once
 *     ACQUIRE     "a TOKEN", GRANTED; with ask->queue "q TOKEN", QUEUED, and GRANTED when the server pushes "g TOKEN"
 *     RELEASE     "f TOKEN", RELEASED
 *     DOWNGRADE   hangs up and dials both lines, RELEASED
 *     LEAVE       tells RELEASED and then ten hints
 *     LIST        "l 3", three rows; BREAK GONE unless the token is 7; RESIZE FAILED
 *
 * A label is sent behind the token as ballast. */
#pragma once
#include "toy_server.h"

#include "base/why.h"
#include "engines/wire/wire_driver.h"

enum { TOY_PENDING = 4096 };

struct toy_engine {
    struct hf_wire_host host;
    struct hf_address address;
    struct hf_ask *pending[TOY_PENDING]; /* on line 0, in the order of asking; NULL: forgotten */
    unsigned first, count;
    struct hf_ask *queued[64];
    bool up[2], dialled[2];
    hf_nanos dial_at[2];
    char text[2][256]; /* the beginning of a line that has not come whole */
    size_t text_len[2];
    _Atomic int inside; /* threads; more than one is a failure of the driver */
    bool in_host;       /* inside a call of the host, which must not call back */
    _Atomic bool wants_recheck;
    _Atomic bool patient; /* who is queued waits for line 1 to come back, which the next ask dials */
    _Atomic int downs, answers;
    hf_status down_status;
    char down_why[256];
};

static struct toy_engine *toy; /* the one that was opened last */

static inline void toy_enter(struct toy_engine *t)
{
    if (atomic_fetch_add(&t->inside, 1) != 0 || t->in_host)
        abort();
}

static inline void toy_leave(struct toy_engine *t)
{
    atomic_fetch_sub(&t->inside, 1);
}

static inline void toy_tell(struct toy_engine *t, struct hf_ask *ask, enum hf_cue cue, hf_nanos now)
{
    struct hf_news news = {.cue = cue, .asked_at = now, .token = ask->token, .retry_at = HF_NEVER};
    if (cue == HF_N_FAILED)
        news.status = HF_UNAVAILABLE, news.text = "the toy has no answer";
    t->in_host = true;
    t->host.tell(t->host.ctx, ask, &news);
    t->in_host = false;
}

static inline void toy_dial(struct toy_engine *t, unsigned line)
{
    t->dialled[line] = true;
    t->dial_at[line] = HF_NEVER;
    t->in_host = true;
    t->host.dial(t->host.ctx, line, &t->address);
    t->in_host = false;
}

static inline void toy_send(struct toy_engine *t, struct hf_ask *ask)
{
    static const char letters[] = {
        [HF_V_ACQUIRE] = 'a', [HF_V_RELEASE] = 'f', [HF_V_LIST] = 'l', [HF_V_BREAK] = 'b', [HF_V_RESIZE] = 'z'};
    char text[64];
    int len =
        snprintf(text, sizeof text, "%c %llu%s", ask->verb == HF_V_ACQUIRE && ask->queue ? 'q' : letters[ask->verb],
                 (unsigned long long)(ask->verb == HF_V_LIST ? 3 : ask->token), ask->label_len ? " " : "");
    if (!t->host.send(t->host.ctx, 0, text, (size_t)len))
        return;
    if (ask->label_len)
        t->host.send(t->host.ctx, 0, ask->label, ask->label_len);
    t->host.send(t->host.ctx, 0, "\n", 1);
}

static inline void toy_ask(struct toy_engine *t, struct hf_ask *ask)
{
    if (t->count == TOY_PENDING)
        abort();
    t->pending[(t->first + t->count++) % TOY_PENDING] = ask;
    ask->lines = 1;
    for (unsigned line = 0; line < 2; line++)
        if (!t->dialled[line] && t->dial_at[line] == HF_NEVER)
            toy_dial(t, line);
    if (t->up[0])
        toy_send(t, ask);
}

static inline void toy_reset(struct toy_engine *t, unsigned line)
{
    t->up[line] = t->dialled[line] = false;
    t->text_len[line] = 0;
}

static inline void toy_cut(struct toy_engine *t, unsigned line, hf_nanos now)
{
    while (line == 0 && t->count) {
        struct hf_ask *ask = t->pending[t->first];
        t->first = (t->first + 1) % TOY_PENDING;
        t->count--;
        if (ask)
            ask->lines = 0, toy_tell(t, ask, HF_N_CUT, now);
    }
    for (unsigned i = 0; line == 1 && i < 64; i++)
        if (t->queued[i]) {
            struct hf_ask *ask = t->queued[i];
            t->queued[i] = NULL;
            ask->lines = 0;
            toy_tell(t, ask, HF_N_CUT, now);
        }
}

static inline void toy_submit(void *self, struct hf_ask *ask, hf_nanos now)
{
    struct toy_engine *t = self;
    toy_enter(t);
    switch (ask->verb) {
    case HF_V_CHECK:
        toy_tell(t, ask, HF_N_EXTENDED, now);
        break;
    case HF_V_LEAVE:
        toy_tell(t, ask, HF_N_RELEASED, now);
        for (int i = 0; i < 10; i++)
            toy_tell(t, ask, HF_N_HINT, now);
        break;
    case HF_V_DOWNGRADE:
        for (unsigned line = 0; line < 2; line++) {
            t->host.hang_up(t->host.ctx, line);
            toy_reset(t, line);
            toy_cut(t, line, now);
            toy_dial(t, line);
        }
        toy_tell(t, ask, HF_N_RELEASED, now);
        break;
    default:
        toy_ask(t, ask);
    }
    toy_leave(t);
}

static inline void toy_forget(void *self, struct hf_ask *ask)
{
    struct toy_engine *t = self;
    toy_enter(t);
    for (unsigned i = 0; i < t->count; i++)
        if (t->pending[(t->first + i) % TOY_PENDING] == ask)
            t->pending[(t->first + i) % TOY_PENDING] = NULL;
    for (unsigned i = 0; i < 64; i++)
        if (t->queued[i] == ask)
            t->queued[i] = NULL;
    toy_leave(t);
}

static inline void toy_line_up(void *self, unsigned line, hf_nanos now)
{
    struct toy_engine *t = self;
    char text[16];
    (void)now;
    toy_enter(t);
    t->up[line] = true;
    snprintf(text, sizeof text, "hello %u\n", line);
    t->host.send(t->host.ctx, line, text, strlen(text));
    for (unsigned i = 0; line == 0 && i < t->count; i++)
        if (t->pending[(t->first + i) % TOY_PENDING])
            toy_send(t, t->pending[(t->first + i) % TOY_PENDING]);
    toy_leave(t);
}

static inline void toy_line_down(void *self, unsigned line, hf_status status, const char *why, hf_nanos now)
{
    struct toy_engine *t = self;
    toy_enter(t);
    t->downs++;
    t->down_status = status;
    snprintf(t->down_why, sizeof t->down_why, "%s", why);
    toy_reset(t, line);
    if (line == 0 || !atomic_load(&t->patient)) {
        t->dial_at[line] = now + HF_MS(10);
        toy_cut(t, line, now);
    }
    toy_leave(t);
}

static inline void toy_queue(struct toy_engine *t, struct hf_ask *ask, hf_nanos now)
{
    for (unsigned i = 0; i < 64; i++)
        if (!t->queued[i]) {
            t->queued[i] = ask;
            ask->lines = 2;
            toy_tell(t, ask, HF_N_QUEUED, now);
            return;
        }
    abort();
}

static inline void toy_push(struct toy_engine *t, uint64_t token, hf_nanos now)
{
    for (unsigned i = 0; i < 64; i++) {
        struct hf_ask *ask = t->queued[i];
        if (!ask || ask->token != token)
            continue;
        t->queued[i] = NULL;
        toy_tell(t, ask, HF_N_GRANTED, now); /* lines change behind the tell here, before it elsewhere */
        ask->lines = 0;
    }
}

static inline void toy_answer(struct toy_engine *t, char letter, uint64_t token, hf_nanos now)
{
    struct hf_ask *ask = t->count ? t->pending[t->first] : NULL;
    if (!t->count)
        abort();
    if (letter == 'r') {
        struct hf_row row = {.size = sizeof row, .name = "row", .host = "", .label = ""};
        if (ask)
            t->host.row(t->host.ctx, ask, &row);
        return;
    }
    t->first = (t->first + 1) % TOY_PENDING;
    t->count--;
    atomic_fetch_add(&t->answers, 1);
    if (!ask)
        return;
    if (ask->verb != HF_V_LIST && ask->token != token)
        abort();
    ask->lines = 0;
    if (letter == 'q')
        toy_queue(t, ask, now);
    else if (letter == 'a')
        toy_tell(t, ask, HF_N_GRANTED, now);
    else if (letter == 'b' && token != 7)
        toy_tell(t, ask, HF_N_GONE, now);
    else
        toy_tell(t, ask, letter == 'z' ? HF_N_FAILED : HF_N_RELEASED, now);
}

static inline void toy_line_bytes(void *self, unsigned line, const char *bytes, size_t len, hf_nanos now)
{
    struct toy_engine *t = self;
    toy_enter(t);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n') {
            t->text[line][t->text_len[line]++] = bytes[i];
            continue;
        }
        t->text[line][t->text_len[line]] = 0;
        t->text_len[line] = 0;
        uint64_t token = strtoull(t->text[line] + 2, NULL, 10);
        if (t->text[line][0] == 'g')
            toy_push(t, token, now);
        else
            toy_answer(t, t->text[line][0], token, now);
    }
    toy_leave(t);
}

/* Forgotten asks are still answered by the server. */
static inline uint32_t toy_due_lines(void *self)
{
    const struct toy_engine *t = self;
    for (unsigned i = 0; i < t->count; i++)
        if (!t->pending[(t->first + i) % TOY_PENDING])
            return 1;
    return 0;
}

static inline hf_nanos toy_tick(void *self, hf_nanos now)
{
    struct toy_engine *t = self;
    hf_nanos again = HF_NEVER;
    toy_enter(t);
    if (atomic_exchange(&t->wants_recheck, false))
        t->host.recheck(t->host.ctx);
    for (unsigned line = 0; line < 2; line++) {
        if (t->dial_at[line] <= now)
            toy_dial(t, line);
        again = t->dial_at[line] < again ? t->dial_at[line] : again;
    }
    for (unsigned i = 0; i < t->count; i++) {
        struct hf_ask *ask = t->pending[(t->first + i) % TOY_PENDING];
        if (ask && ask->until <= now) {
            t->pending[(t->first + i) % TOY_PENDING] = NULL;
            ask->lines = 0;
            toy_tell(t, ask, HF_N_FAILED, now);
        } else if (ask && ask->until < again) {
            again = ask->until;
        }
    }
    toy_leave(t);
    return again;
}

static inline hf_status toy_open(void **self, const struct hf_url *url, const struct hf_settings *settings,
                                 const struct hf_wire_host *host)
{
    (void)settings;
    *self = NULL;
    if (!url)
        return hf_why(HF_CONFIG, "the toy wants a URL");
    struct toy_engine *t = calloc(1, sizeof *t);
    t->host = *host;
    t->dial_at[0] = t->dial_at[1] = HF_NEVER;
    *self = toy = t;
    return HF_OK;
}

static inline void toy_close_engine(void *self)
{
    struct toy_engine *t = self;
    for (unsigned line = 0; line < 2; line++)
        t->host.hang_up(t->host.ctx, line);
    free(t);
}

static const struct hf_wire_type toy_type = {
    .open = toy_open,
    .submit = toy_submit,
    .forget = toy_forget,
    .line_up = toy_line_up,
    .line_bytes = toy_line_bytes,
    .line_down = toy_line_down,
    .lines = toy_due_lines,
    .tick = toy_tick,
    .close = toy_close_engine,
};
