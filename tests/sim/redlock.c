/* redlock.c - the simulator of a quorum: the production engine for redlock: against the shipped scripts in five models
 * of a server, under virtual time, with faults drawn from a seed (G35, G36, G37, G38).
 *
 *     redlock [SCHEDULES [FIRST SEED]]     prints TAP; every planted mistake must be found, too
 *
 * Servers restart empty, hang, and have clocks that are wrong and run at rates of their own; connections are cut and
 * slow, with what was sent still under way; clients stand still. Checked at every grant: nobody else believes in a
 * lease, and the token is above the last one. At the end, when all is healed and released: no key of a lock is left on
 * any server, and the engine has forgotten every try. */
#include "engines/redlock/redlock.h"
#include "base/settings.h"
#include "base/url.h"
#include "engines/redis/keys.h"
#include "sim/redis/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SERVERS = 5, CLIENTS = 3, LINES_EACH = SERVERS * HF_MEMBER_LINES, LINKS = 20000, ROUNDS = 8 };
#define MAX_TTL_MS 5000
#define START_US INT64_C(1735689600000000)
#define FIRST_DAY HF_MS(INT64_C(3600000)) /* servers have run for that long when the clients come */

/* ---- The world ---- */

enum what { LINK_UP, LINK_DOWN, TO_SERVER, TO_CLIENT, SERVER_CLOSES, TICK, WISH, FAULT };

struct occurrence {
    hf_nanos at;
    uint64_t number; /* what is due at the same time happens in this order */
    enum what what;
    unsigned who; /* link, client */
    char *bytes;
    size_t len;
};

struct link {
    unsigned client, line, server, connection;
    bool client_open, server_open;
    hf_nanos last_up, last_down; /* bytes do not overtake each other */
};

struct server {
    struct redis_model *model;
    hf_nanos hangs_until;
    int64_t wrong_us;  /* its clock, at the beginning, */
    int64_t fast_ppm;  /* and how it runs */
    bool lies;         /* planted: it looks old when it has just started */
    int64_t jumped_us; /* because of that */
};

enum state { IDLE, ASKING, PAUSED, HOLDING, EXTENDING, RELEASING, DONE };

struct client {
    void *engine;
    struct hf_wire_host host;
    int link[LINES_EACH];  /* -1: down */
    bool unheard[SERVERS]; /* what it asked there was not answered */
    uint32_t max_ttl_ms;
    hf_nanos stands_until, ticks_at;
    int64_t ahead, fast_ppm; /* of its clock */
    struct hf_ask ask;
    enum state state;
    hf_nanos valid_until, release_at; /* on its own clock */
    uint64_t token, wishes, ticks;
    unsigned rounds;
    struct hf_news news[64]; /* told inside a call of the engine: dealt with afterwards */
    unsigned count;
};

static struct {
    hf_nanos now;
    uint64_t seed, numbers;
    struct occurrence *heap;
    size_t count, room;
    struct server server[SERVERS];
    struct client client[CLIENTS];
    struct link link[LINKS];
    unsigned links;
    bool data_is_lost, peace;
    uint64_t last_token;
    unsigned grants, expiries, busy, failed;
    char flaw[300];
} w;

/* Each mistake that is planted must be found. */
#define PLANTS(X)                                                                                                      \
    X(HONEST, "honest", "")                                                                                            \
    X(FORGETS_AGREED, "forgets-agreed", "servers do not keep the token that was agreed on")                            \
    X(EMPTY_COUNTS, "empty-counts", "a server that restarted empty counts at once")                                    \
    X(BELIEVED_ONLY, "believed-only", "a release goes only where the hold is believed to be")                          \
    X(OWN_TTL, "own-ttl", "a server that restarted counts when the ttl of whoever asks is over, not the longest one")

enum plant {
#define X(id, name, text) id,
    PLANTS(X)
#undef X
        PLANT_COUNT
};
static const struct {
    const char *name, *text;
} plants[] = {
#define X(id, name, text) {name, text},
    PLANTS(X)
#undef X
};
static enum plant planted;

static struct redis_model *models[SERVERS];
static struct hf_limits limits = HF_REDLOCK_LIMITS;

static void flaw(const char *format, ...)
{
    if (w.flaw[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w.flaw, sizeof w.flaw, format, args);
    va_end(args);
}

static uint32_t draw(uint32_t below)
{
    w.seed = w.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w.seed >> 33) % below;
}

/* ---- Time ---- */

static bool sooner(const struct occurrence *a, const struct occurrence *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void schedule(struct occurrence o)
{
    if (w.count == w.room) {
        w.room = w.room ? w.room * 2 : 1024;
        w.heap = realloc(w.heap, w.room * sizeof *w.heap);
        if (!w.heap)
            abort();
    }
    o.number = w.numbers++;
    size_t i = w.count++;
    for (; i && sooner(&o, &w.heap[(i - 1) / 2]); i = (i - 1) / 2)
        w.heap[i] = w.heap[(i - 1) / 2];
    w.heap[i] = o;
}

static struct occurrence take_first(void)
{
    struct occurrence first = w.heap[0], last = w.heap[--w.count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w.count; i = child) {
        if (child + 1 < w.count && sooner(&w.heap[child + 1], &w.heap[child]))
            child++;
        if (!sooner(&w.heap[child], &last))
            break;
        w.heap[i] = w.heap[child];
    }
    w.heap[i] = last;
    return first;
}

static hf_nanos local_time(const struct client *c)
{
    return w.now + c->ahead + w.now / 1000000 * c->fast_ppm;
}

static void set_clock(struct server *s)
{
    int64_t us = w.now / 1000;
    model_time_set(s->model, START_US + us + us / 1000000 * s->fast_ppm + s->wrong_us + s->jumped_us);
}

/* Mostly a moment, sometimes longer than any time-out. */
static hf_nanos delay(void)
{
    if (w.peace || draw(40))
        return HF_MS(1) / 4 + (hf_nanos)draw(1000000);
    return HF_MS(draw(400));
}

/* ---- Connections ---- */

static void dial(void *ctx, unsigned line, const struct hf_address *to)
{
    struct client *c = ctx;
    (void)to;
    if (w.links == LINKS)
        abort();
    unsigned number = w.links++;
    w.link[number] = (struct link){.client = (unsigned)(c - w.client),
                                   .line = line,
                                   .server = line / HF_MEMBER_LINES,
                                   .client_open = true,
                                   .last_up = w.now,
                                   .last_down = w.now};
    c->link[line] = (int)number;
    schedule((struct occurrence){.at = w.now + delay(), .what = LINK_UP, .who = number});
}

static void send_bytes(unsigned number, enum what what, hf_nanos *last, const void *bytes, size_t len)
{
    char *copy = malloc(len);
    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    hf_nanos at = w.now + delay();
    *last = at > *last ? at : *last;
    schedule((struct occurrence){.at = *last, .what = what, .who = number, .bytes = copy, .len = len});
}

/* Planted: where no answer came, whatever is given back in these bytes is another one's. */
static void spoil_releases(char *bytes, size_t len)
{
    static const char id_mark[] = "$22\r\n", verb_mark[] = "\r\n$1\r\n";
    const size_t before = sizeof id_mark - 1, behind = before + HF_ID_TEXT, verb = behind + sizeof verb_mark - 1;
    for (char *at = bytes; len - (size_t)(at - bytes) > verb; at++)
        if (memcmp(at, id_mark, before) == 0 && memcmp(at + behind, verb_mark, sizeof verb_mark - 1) == 0 &&
            memchr("rxl", at[verb], 3))
            at[before] ^= 1;
}

static bool send_line(void *ctx, unsigned line, const void *bytes, size_t len)
{
    static char spoilt[1 << 18];
    struct client *c = ctx;
    bool *unheard = &c->unheard[line / HF_MEMBER_LINES];
    int number = c->link[line];
    if (number < 0)
        return false;
    if (planted == BELIEVED_ONLY && *unheard && len <= sizeof spoilt) {
        memcpy(spoilt, bytes, len);
        spoil_releases(spoilt, len);
        bytes = spoilt;
    }
    *unheard |= c->state == ASKING;
    send_bytes((unsigned)number, TO_SERVER, &w.link[number].last_up, bytes, len);
    return true;
}

/* What was sent is still under way; behind it comes the end. */
static void close_for_client(unsigned number)
{
    struct link *l = &w.link[number];
    l->client_open = false;
    w.client[l->client].link[l->line] = -1;
    schedule((struct occurrence){.at = l->last_up > w.now ? l->last_up : w.now, .what = SERVER_CLOSES, .who = number});
}

static void hang_up(void *ctx, unsigned line)
{
    struct client *c = ctx;
    if (c->link[line] >= 0)
        close_for_client((unsigned)c->link[line]);
}

static void flush_server(unsigned server)
{
    struct redis_model *model = w.server[server].model;
    for (int connection; (connection = model_ready(model)) >= 0;) {
        size_t len;
        const char *bytes = model_take(model, (unsigned)connection, &len);
        for (unsigned i = w.links; i-- > 0;) {
            struct link *l = &w.link[i];
            if (l->server_open && l->server == server && l->connection == (unsigned)connection) {
                if (l->client_open)
                    send_bytes(i, TO_CLIENT, &l->last_down, bytes, len);
                break;
            }
        }
    }
}

/* ---- Clients ---- */

static void tell(void *ctx, struct hf_ask *ask, const struct hf_news *news)
{
    struct client *c = ctx;
    if (ask != &c->ask || c->count == 64)
        abort();
    c->news[c->count++] = *news;
}

static void ignore_row(void *ctx, struct hf_ask *ask, const struct hf_row *row)
{
    (void)ctx, (void)ask, (void)row;
}

static void ignore_recheck(void *ctx)
{
    (void)ctx;
}

static uint32_t draw_for_engine(void *ctx)
{
    (void)ctx;
    return draw(UINT32_MAX);
}

static void wish_at(struct client *c, hf_nanos at)
{
    c->wishes++;
    schedule((struct occurrence){
        .at = at > w.now ? at : w.now, .what = WISH, .who = (unsigned)(c - w.client), .len = c->wishes});
}

static bool believes(const struct client *c)
{
    return (c->state == HOLDING || c->state == EXTENDING) && local_time(c) < c->valid_until;
}

static void submit(struct client *c, enum hf_verb verb, enum state state)
{
    c->state = state;
    c->ask.verb = verb;
    hf_wire_redlock.submit(c->engine, &c->ask, local_time(c));
}

static void ask(struct client *c)
{
    if (c->state == IDLE) {
        c->rounds++;
        c->ask = (struct hf_ask){.name = "job",
                                 .name_len = 3,
                                 .label = "",
                                 .kind = HF_EXCLUSIVE,
                                 .units = 1,
                                 .capacity = 1,
                                 .waits = true,
                                 .ttl_ms = 200 + draw(draw(2) && c->max_ttl_ms > 1000 ? 800 : c->max_ttl_ms - 199)};
        for (int i = 0; i < 16; i++)
            c->ask.attempt.b[i] = (uint8_t)draw(256);
        c->ask.owner = c->ask.attempt;
    }
    submit(c, HF_V_ACQUIRE, ASKING);
    wish_at(c, w.now + HF_MS(c->ask.ttl_ms / 2)); /* to look whether an answer came at all */
}

static void end_round(struct client *c)
{
    hf_wire_redlock.forget(c->engine, &c->ask);
    c->count = 0;
    c->state = c->rounds < ROUNDS && !w.peace ? IDLE : DONE;
    if (c->state == IDLE)
        wish_at(c, w.now + HF_MS(draw(60)));
}

static void release(struct client *c)
{
    submit(c, HF_V_RELEASE, RELEASING);
    wish_at(c, w.now + HF_MS(3000));
}

static void extend(struct client *c)
{
    submit(c, HF_V_EXTEND, EXTENDING);
    wish_at(c, w.now + HF_MS(600));
}

static void check_grant(struct client *c)
{
    unsigned me = (unsigned)(c - w.client);
    for (unsigned i = 0; i < CLIENTS; i++)
        if (i != me && believes(&w.client[i]))
            flaw("%lld ms: client %u holds with token %llu while client %u is granted %llu",
                 (long long)(w.now / HF_MS(1)), i, (unsigned long long)w.client[i].token, me,
                 (unsigned long long)c->token);
    if (c->token <= w.last_token)
        flaw("%lld ms: token %llu behind %llu", (long long)(w.now / HF_MS(1)), (unsigned long long)c->token,
             (unsigned long long)w.last_token);
    w.last_token = c->token;
    w.grants++;
}

static void hear_granted(struct client *c, const struct hf_news *news)
{
    c->valid_until = news->asked_at + news->good - hf_timing_drift(&limits, news->good);
    c->token = news->token;
    if (c->valid_until <= local_time(c)) {
        flaw("a lease without time left was told");
        return;
    }
    check_grant(c);
    c->state = HOLDING;
    c->release_at = local_time(c) + HF_MS(draw(draw(4) ? 600 : 4000));
    wish_at(c, w.now + HF_MS(draw((uint32_t)c->ask.ttl_ms)));
}

static void hear(struct client *c, const struct hf_news *news)
{
    if (news->cue == HF_N_HINT) {
        if (c->state == PAUSED)
            ask(c);
        return;
    }
    if (c->state == ASKING) {
        w.busy += news->cue == HF_N_BUSY;
        w.failed += news->cue == HF_N_FAILED && news->status == HF_NO_QUORUM;
        w.expiries += news->cue == HF_N_FAILED && news->status == HF_TIMEOUT;
        if (news->cue == HF_N_GRANTED) {
            hear_granted(c, news);
        } else {
            c->state = PAUSED;
            wish_at(c, w.now + HF_MS(5 + draw(400)));
        }
    } else if (c->state == EXTENDING) {
        hf_nanos until = news->asked_at + news->good - hf_timing_drift(&limits, news->good);
        bool still = local_time(c) < c->valid_until;
        if (news->cue == HF_N_EXTENDED && still) {
            c->valid_until = until > c->valid_until ? until : c->valid_until;
            if (news->token != c->token)
                flaw("a renewal changed token %llu to %llu", (unsigned long long)c->token,
                     (unsigned long long)news->token);
        }
        c->state = HOLDING;
        if (news->cue == HF_N_GONE || !still)
            release(c);
        else
            wish_at(c, w.now + HF_MS(draw((uint32_t)c->ask.ttl_ms / 2)));
    } else if (c->state == RELEASING) {
        end_round(c);
    }
}

static void tick_at(struct client *c, hf_nanos at)
{
    if (c->ticks_at && at >= c->ticks_at)
        return;
    c->ticks_at = at;
    schedule((struct occurrence){.at = at, .what = TICK, .who = (unsigned)(c - w.client), .len = ++c->ticks});
}

/* After every call of the engine. The tick comes behind whatever else is due now: a client that stood still reads all
 * of its connections first. */
static void settle(struct client *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        struct hf_news news = c->news[i];
        hear(c, &news);
        if (c->state == IDLE || c->state == DONE)
            break;
    }
    c->count = 0;
    tick_at(c, w.now);
}

static void tick(struct client *c)
{
    c->ticks_at = 0;
    hf_nanos next = hf_wire_redlock.tick(c->engine, local_time(c));
    if (c->count)
        settle(c);
    else if (next != HF_NEVER) {
        hf_nanos in = next - local_time(c);
        tick_at(c, w.now + (in > HF_MS(1) / 10 ? in : HF_MS(1) / 10));
    }
}

static void wish(struct client *c)
{
    switch (c->state) {
    case IDLE:
    case PAUSED:
        if (w.peace && c->state == PAUSED)
            release(c);
        else if (w.peace)
            c->state = DONE;
        else
            ask(c);
        break;
    case ASKING: /* a waiter whose deadline has come leaves */
        submit(c, HF_V_LEAVE, RELEASING);
        break;
    case HOLDING:
        if (local_time(c) >= c->release_at || local_time(c) >= c->valid_until || w.peace)
            release(c);
        else
            extend(c);
        break;
    case EXTENDING:
        release(c);
        break;
    case RELEASING:
        end_round(c);
        break;
    case DONE:
        break;
    }
}

/* ---- Faults ---- */

static void restart_empty(unsigned i)
{
    struct server *s = &w.server[i];
    set_clock(s);
    model_restart(s->model, false);
    s->hangs_until = 0;
    for (unsigned j = 0; j < w.links; j++)
        if (w.link[j].server == i && w.link[j].server_open) {
            w.link[j].server_open = false;
            if (w.link[j].client_open)
                schedule((struct occurrence){.at = w.now + delay(), .what = LINK_DOWN, .who = j});
        }
    if (s->lies)
        s->jumped_us += INT64_C(3600000000);
}

static void hurt(void)
{
    unsigned server = draw(SERVERS), client = draw(CLIENTS);
    switch (draw(w.data_is_lost ? 10 : 9)) {
    case 0:
    case 1:
        w.server[server].hangs_until = w.now + HF_MS(draw(1500));
        break;
    case 2:
    case 3:
    case 4:
        w.client[client].stands_until = w.now + HF_MS(draw(draw(3) ? 300 : 3000));
        break;
    case 5:
    case 6:
    case 7:
    case 8: { /* a connection is cut, and what was sent comes late */
        int number = w.client[client].link[draw(LINES_EACH)];
        if (number >= 0) {
            w.link[number].last_up += HF_MS(draw(3000));
            schedule((struct occurrence){.at = w.now, .what = LINK_DOWN, .who = (unsigned)number});
        }
        break;
    }
    default: /* one, or several that had the same power */
        for (unsigned i = draw(2) ? 1 : 1 + draw(3); i; i--)
            restart_empty((server + i) % SERVERS);
    }
    if (!w.peace)
        schedule((struct occurrence){.at = w.now + HF_MS(draw(1000)), .what = FAULT});
}

/* ---- What happens ---- */

static void happen_to_link(const struct occurrence *o)
{
    struct link *l = &w.link[o->who];
    struct client *c = &w.client[l->client];
    if (!l->client_open)
        return;
    if (o->what == LINK_UP) {
        l->connection = model_connect(w.server[l->server].model);
        l->server_open = true;
        hf_wire_redlock.line_up(c->engine, l->line, local_time(c));
    } else if (o->what == TO_CLIENT) {
        c->unheard[l->server] = false;
        hf_wire_redlock.line_bytes(c->engine, l->line, o->bytes, o->len, local_time(c));
    } else {
        unsigned line = l->line;
        close_for_client(o->who);
        hf_wire_redlock.line_down(c->engine, line, HF_UNAVAILABLE, "closed", local_time(c));
    }
    settle(c);
}

static void happen_to_server(const struct occurrence *o)
{
    struct link *l = &w.link[o->who];
    struct server *s = &w.server[l->server];
    if (!l->server_open)
        return;
    set_clock(s);
    if (o->what == TO_SERVER) {
        model_feed(s->model, l->connection, o->bytes, o->len);
    } else {
        model_disconnect(s->model, l->connection);
        l->server_open = false;
    }
    flush_server(l->server);
}

static bool is_postponed(struct occurrence o)
{
    bool to_server = o.what == TO_SERVER || o.what == SERVER_CLOSES || o.what == LINK_UP;
    bool to_client =
        o.what == TO_CLIENT || o.what == LINK_DOWN || o.what == TICK || o.what == WISH || o.what == LINK_UP;
    bool of_link = o.what != TICK && o.what != WISH && o.what != FAULT;
    hf_nanos until = 0;
    if (to_server)
        until = w.server[w.link[o.who].server].hangs_until;
    if (to_client) {
        hf_nanos stands = w.client[of_link ? w.link[o.who].client : o.who].stands_until;
        until = stands > until ? stands : until;
    }
    if (until <= w.now)
        return false;
    o.at = until + (o.what == TICK || o.what == WISH); /* it reads before it looks at the clock */
    schedule(o);
    return true;
}

static void happen(void)
{
    struct occurrence o = take_first();
    if (o.at < w.now)
        abort();
    w.now = o.at;
    if (is_postponed(o))
        return;
    switch (o.what) {
    case TO_SERVER:
    case SERVER_CLOSES:
        happen_to_server(&o);
        break;
    case TICK:
        if (o.len == w.client[o.who].ticks)
            tick(&w.client[o.who]);
        break;
    case WISH:
        if (o.len == w.client[o.who].wishes) {
            wish(&w.client[o.who]);
            settle(&w.client[o.who]);
        }
        break;
    case FAULT:
        if (!w.peace)
            hurt();
        break;
    default:
        happen_to_link(&o);
    }
    free(o.bytes);
}

/* ---- One schedule ---- */

/* The floor for later tokens is not written back. */
static const char *spoil_raise(const char *text, size_t len, size_t *spoilt_len)
{
    static char spoilt[65536];
    static const char good[] = "number = math.max(number, tonumber(agreed))";
    memcpy(spoilt, text, len);
    spoilt[len] = 0;
    char *at = strstr(spoilt, good);
    if (at)
        memset(at, ' ', sizeof good - 1);
    *spoilt_len = len;
    return spoilt;
}

static void open_servers(enum plant plant)
{
    /* Without loss of data clocks may be wrong by minutes; with it, by less than half of the longest ttl. */
    int64_t wrong_ms = w.data_is_lost ? MAX_TTL_MS / 2 - 20 : 300000;
    for (unsigned i = 0; i < SERVERS; i++) {
        struct server *s = &w.server[i];
        if (!models[i])
            models[i] = model_open(i + 1);
        model_reset(models[i], w.seed + i + 1);
        s->model = models[i];
        model_spoil(s->model, plant == FORGETS_AGREED ? spoil_raise : NULL);
        s->wrong_us = ((int64_t)draw((uint32_t)(2 * wrong_ms)) - wrong_ms) * 1000;
        s->fast_ppm = w.data_is_lost ? 0 : (int64_t)draw(4000) - 2000;
        s->lies = plant == EMPTY_COUNTS;
        set_clock(s);
        model_restart(s->model, false);
    }
    w.now = FIRST_DAY;
}

static void open_client(unsigned i)
{
    static const uint32_t own[CLIENTS] = {400, MAX_TTL_MS, 1000};
    static struct hf_settings settings;
    struct hf_url url;
    struct client *c = &w.client[i];
    hf_settings_defaults(&settings);
    char text[128];
    c->max_ttl_ms = planted == OWN_TTL ? own[i] : MAX_TTL_MS;
    snprintf(text, sizeof text, "redlock://a,b,c,d,e?max_ttl=%ums", c->max_ttl_ms);
    if (hf_url_parse(&url, text) != HF_OK || hf_settings_from_query(&settings, url.query) != HF_OK)
        abort();
    c->host = (struct hf_wire_host){.ctx = c,
                                    .dial = dial,
                                    .send = send_line,
                                    .hang_up = hang_up,
                                    .tell = tell,
                                    .row = ignore_row,
                                    .recheck = ignore_recheck,
                                    .random = draw_for_engine};
    c->ahead = HF_MS((int64_t)draw(1000000));
    c->fast_ppm = (int64_t)draw(4000) - 2000;
    for (unsigned line = 0; line < LINES_EACH; line++)
        c->link[line] = -1;
    if (hf_wire_redlock.open(&c->engine, &url, &settings, &c->host) != HF_OK)
        abort();
    wish_at(c, w.now + HF_MS(draw(50)));
}

static bool all_done(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        if (w.client[i].state != DONE)
            return false;
    return true;
}

static void run_until(hf_nanos end, bool until_done)
{
    while (w.count && w.heap[0].at < end && !w.flaw[0] && !(until_done && all_done()))
        happen();
}

/* Nothing of any try is left, and the engine knows of none. */
static void check_rest(void)
{
    for (unsigned i = 0; i < SERVERS && !w.flaw[0]; i++) {
        struct model_key key;
        set_clock(&w.server[i]);
        if (model_look(w.server[i].model, "lock:job", 8, &key))
            flaw("server %u still has the key, for %lld ms", i, (long long)key.left_ms);
    }
    for (unsigned i = 0; i < CLIENTS && !w.flaw[0]; i++) {
        const struct ballot *b = ((struct hf_redlock *)w.client[i].engine)->ballots;
        for (unsigned j = 0; b && j < SERVERS; j++)
            if (b->seat[j].open || b->seat[j].freed == HF_VOTE_OPEN)
                flaw("client %u still knows of a try: server %u owes %u answers, the first to verb %u", i, j,
                     b->seat[j].open, b->seat[j].asked[b->seat[j].first]);
    }
}

static void close_world(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        hf_wire_redlock.close(w.client[i].engine);
    while (w.count)
        free(take_first().bytes);
    free(w.heap);
}

static void close_models(void)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        model_close(models[i]);
        models[i] = NULL;
    }
}

static struct {
    unsigned long grants, busy, failed, expiries;
} sum;

/* False: a flaw was found; w.flaw says which. */
static bool run(uint64_t seed, enum plant plant)
{
    memset(&w, 0, sizeof w);
    w.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    draw(2);
    planted = plant;
    w.data_is_lost = plant == EMPTY_COUNTS || plant == OWN_TTL || (plant == HONEST && draw(2));
    open_servers(plant);
    for (unsigned i = 0; i < CLIENTS; i++)
        open_client(i);
    schedule((struct occurrence){.at = w.now + HF_MS(500), .what = FAULT});
    run_until(FIRST_DAY + HF_MS(30000), true);
    w.peace = true;
    run_until(w.now + HF_MS(3001), false); /* whoever stands still or hangs goes on by then */
    hf_nanos healed = w.now;
    run_until(healed + HF_MS(20000), true);
    if (!w.flaw[0] && !all_done())
        flaw("somebody did not end");
    hf_nanos ended = w.now;
    run_until(ended + HF_MS(4000), false); /* shorter than many ttls: what is gone was taken back */
    if (!w.flaw[0] && (plant == HONEST || plant == BELIEVED_ONLY))
        check_rest();
    sum.grants += w.grants;
    sum.busy += w.busy;
    sum.failed += w.failed;
    sum.expiries += w.expiries;
    bool good = !w.flaw[0];
    close_world();
    return good;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* From that seed on, until it is found. */
static bool is_found(enum plant plant, uint64_t first, unsigned long schedules)
{
    double began = seconds_now();
    uint64_t seed = first;
    close_models(); /* they keep what they have compiled */
    while (seed < first + schedules && run(seed, plant))
        seed++;
    bool found = w.flaw[0] != 0;
    printf("%sok %d - %s: seed %llu, %.1f s, %s: %s\n", found ? "" : "not ", plant + 1, plants[plant].name,
           (unsigned long long)seed, seconds_now() - began, plants[plant].text, found ? w.flaw : "not found");
    fflush(stdout);
    return found;
}

int main(int argc, char **argv)
{
    unsigned long schedules = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, seed = first;
    while (seed < first + schedules && run(seed, HONEST))
        seed++;
    bool good = seed == first + schedules;
    printf("1..%d\n", PLANT_COUNT);
    printf("# %lu grants, %lu times busy, %lu times no quorum, %lu times too late\n", sum.grants, sum.busy, sum.failed,
           sum.expiries);
    printf("%sok 1 - %lu schedules of a quorum\n", good ? "" : "not ", schedules);
    if (!good)
        printf("# seed %llu: %s\n", (unsigned long long)seed, w.flaw);
    bool covered = sum.grants && sum.busy && sum.failed && (sum.expiries || schedules < 1000);
    if (!covered)
        printf("# something never happened\n");
    for (unsigned plant = HONEST + 1; plant < PLANT_COUNT; plant++)
        good &= is_found((enum plant)plant, first, schedules);
    close_models();
    return good && covered ? 0 : 1;
}
