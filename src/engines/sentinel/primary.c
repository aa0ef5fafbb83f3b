/* primary.c - decides which server is the primary, and when to ask the sentinels again. */
#include "sentinel.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* time after which the next sentinel is asked as well, if one is silent */
#define NEXT_AFTER NANOS_OF_MS(50)
#define QUERY_PAUSE_MIN NANOS_OF_MS(100)  /* first pause between two searches */
#define QUERY_PAUSE_MAX NANOS_OF_MS(1000) /* longest pause */
/* longest time from the choice of a primary to its announcement */
#define HOLD_BACK_MAX NANOS_OF_MS(3000)
/* age at which a client subscribes; a short command never lives that long */
#define LISTEN_AFTER NANOS_OF_MS(1000)
/* time for which the epoch of a lost primary counts without confirmation */
#define EPOCH_LIFE NANOS_OF_MS(30000)

/* ---- Following ---- */

static bool is_followed(const struct sentinel *s, const char *host, const char *port)
{
    return strcmp(s->primary.host, host) == 0 && strcmp(s->primary.port, port) == 0;
}

static void follow(struct sentinel *s, const struct sentinel_answer *answer, nanos now)
{
    assert(answer->host[0] && answer->port[0]);
    snprintf(s->primary.host, sizeof s->primary.host, "%s", answer->host);
    snprintf(s->primary.port, sizeof s->primary.port, "%s", answer->port);
    s->epoch_at = now;
    redis_follow(s->redis, &s->primary, now);
}

void primary_on_answer(struct sentinel *s, const struct sentinel_answer *answer, nanos now)
{
    assert(answer->host[0] && answer->port[0]);
    s->search.found = true;
    bool is_first = !s->primary.host[0];
    bool is_new = answer->epoch > s->epoch;
    nanos doubted_at = s->lost_at > s->epoch_at ? s->lost_at : s->epoch_at;
    /* the sentinels seem to have been set up again, with lower epochs */
    bool is_outdated = s->lost_at && now - doubted_at > EPOCH_LIFE;
    if (is_followed(s, answer->host, answer->port)) {
        s->epoch_at = now;
        s->epoch = is_new ? answer->epoch : s->epoch;
        return;
    }

    if (!is_first && !is_new && !is_outdated)
        return;

    s->epoch = answer->epoch;
    follow(s, answer, now);
}

/* Asks all sentinels, without a pause. The announcement does not contain the epoch of the failover,
 * and it may come late. Answers in flight are older than the announcement. */
void primary_on_switch(struct sentinel *s, const char *host, const char *port, nanos now)
{
    assert(host[0] && port[0]);
    if (is_followed(s, host, port))
        return;

    for (unsigned i = 0; i < s->nodes; i++)
        sentinel_connection_close(s, &s->node[i].query);
    s->search.is_on = false;
    s->search.again_at = now;
    primary_query_all(s, now);
}

void primary_on_choice(struct sentinel *s, bool is_chosen, nanos now)
{
    redis_follow_hold_back(s->redis, is_chosen ? now + HOLD_BACK_MAX : 0, now);
}

/* ---- Searching ---- */

static void begin(struct sentinel *s, nanos now)
{
    uint32_t rounds = s->search.rounds < 30 ? s->search.rounds : 30;
    nanos pause = QUERY_PAUSE_MIN << (rounds < 4 ? rounds : 4);
    pause = pause < QUERY_PAUSE_MAX ? pause : QUERY_PAUSE_MAX;
    pause += pause * (nanos)(s->host->random(s->host->ctx) % 100) / 400;

    s->search = (struct sentinel_search){
        .is_on = true, .next_at = now, .again_at = now + pause, .rounds = rounds + 1};
    for (unsigned i = 0; i < s->nodes; i++)
        s->node[i].is_queried = false;
}

static void query_next(struct sentinel *s, nanos now)
{
    struct sentinel_node *node = &s->node[(s->first + s->search.next) % s->nodes];
    assert(s->search.next < s->nodes);
    s->search.next++;
    s->search.next_at = now + NEXT_AFTER;
    node->is_queried = true;
    node->query.dial_at = now;
    sentinel_connection_dial(s, node, &node->query, now);
}

void primary_query_all(struct sentinel *s, nanos now)
{
    assert(s->nodes > 0);
    bool begins = !s->search.is_on && now >= s->search.again_at;
    if (begins)
        begin(s, now);
    else
        s->search.is_wanted = true; /* answers in flight are older than this call */
    if (!s->search.is_on)
        return;

    while (s->search.next < s->nodes)
        query_next(s, now);
}

/* Returns false while a sentinel that was asked has not answered. */
static bool all_answered(const struct sentinel *s)
{
    for (unsigned i = 0; i < s->nodes; i++)
        if (s->node[i].query.state != SENTINEL_DOWN)
            return false;
    return s->search.next == s->nodes;
}

/* Picks the status to report. A refusal comes before silence, because silence may end. */
static void fail(struct sentinel *s, nanos now)
{
    assert(!s->search.found);
    char why[700];
    hf_status status = HF_UNAVAILABLE;
    int len = snprintf(why, sizeof why, "no sentinel names the primary \"%.100s\"", s->name);

    for (unsigned i = 0; i < s->nodes; i++) {
        const struct sentinel_node *node = &s->node[i];
        if (node->status == HF_CONFIG || (node->status == HF_DENIED && status == HF_UNAVAILABLE))
            status = node->status;
        if ((size_t)len < sizeof why)
            len += snprintf(why + len, sizeof why - (size_t)len, "; %.80s: %.180s", node->where,
                            node->why);
    }

    redis_follow_failed(s->redis, status, why, now);
}

static nanos search_tick(struct sentinel *s, nanos now)
{
    if (!s->search.is_on)
        return TIME_NEVER;

    unsigned last = (s->first + s->search.next + s->nodes - 1) % s->nodes;
    bool has_failed = s->search.next > 0 && s->node[last].query.state == SENTINEL_DOWN;
    if (s->search.found) {
        s->search.is_on = false;
        return TIME_NEVER;
    }

    if (s->search.next < s->nodes && (now >= s->search.next_at || has_failed))
        query_next(s, now);
    if (all_answered(s)) {
        s->search.is_on = false;
        fail(s, now);
        return TIME_NEVER;
    }
    return s->search.next < s->nodes ? s->search.next_at : TIME_NEVER;
}

nanos primary_tick(struct sentinel *s, nanos now)
{
    assert(s->nodes > 0 && s->redis);
    bool is_sought = redis_follow_is_sought(s->redis);
    bool was_lost = redis_follow_take_loss(s->redis);
    bool is_up = redis_follow_is_up(s->redis);
    if (is_up)
        s->search.rounds = 0;
    if (is_up && !s->listen_from)
        s->listen_from = now + LISTEN_AFTER;

    if (is_up)
        s->lost_at = 0;
    else if (was_lost && !s->lost_at)
        s->lost_at = now;

    bool is_full = s->lost_at || s->search.is_wanted, is_due = is_sought || is_full;
    if (is_due && !s->search.is_on && now >= s->search.again_at) {
        if (is_full)
            primary_query_all(s, now);
        else
            begin(s, now);
    }

    nanos next = search_tick(s, now);
    bool waits = is_due && !s->search.is_on;
    return waits && s->search.again_at < next ? s->search.again_at : next;
}
