/* redlock_bare.c - the ceiling on a quorum: on each server what the library sends there, write-back included, all
 * servers at once, and no longer waited than for a majority. */
#include "redis_bare.h"
#include "redis_line.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MOST = 16 };
enum step { ASK, RAISE, RELEASE, STEPS };

static struct captured learnt[SERVERS_MOST];
static int servers;

/* One server. Answers come in the order of the questions, some of them when the cycle has gone on without them. */
struct member {
    struct redis_line *line;
    struct phrase phrase[STEPS];
    struct {
        enum step step;
        uint64_t cycle;
    } open[OPEN_MOST]; /* a ring */
    unsigned first, count;
};

struct quorum {
    struct member member[SERVERS_MOST];
    struct pollfd fds[SERVERS_MOST];
    uint64_t cycle;
    enum step step;                    /* of this cycle */
    int yes[STEPS], same;              /* in this cycle; so many have proposed the highest token */
    char id[ID_LEN], token[TOKEN_LEN]; /* the highest that was proposed */
};

/* redlock://127.0.0.1:PORT,127.0.0.1:PORT...: the i-th. */
static struct redis_line *open_member(const char *url, int number)
{
    char one[64];
    const char *at = strstr(url, "127.0.0.1:");
    for (int i = 0; i < number && at; i++)
        at = strstr(at + 1, "127.0.0.1:");
    if (!at)
        bench_fail("%s: names fewer than %d servers", url, number + 1);
    snprintf(one, sizeof one, "redis://127.0.0.1:%d/0", atoi(at + strlen("127.0.0.1:")));
    return line_open(one);
}

void quorum_learn(const struct bench *b)
{
    servers = capture(b, STEPS, learnt);
}

static void *quorum_open(const struct bench *b, int worker)
{
    struct quorum *q = calloc(1, sizeof *q);
    (void)worker;
    if (!q)
        bench_fail("no memory");
    for (int i = 0; i < servers; i++) {
        q->member[i].line = open_member(b->url, i);
        q->fds[i] = (struct pollfd){.fd = q->member[i].line->fd, .events = POLLIN};
        for (int step = 0; step < STEPS; step++)
            q->member[i].phrase[step] = phrase_copy(&learnt[i].phrase[step]);
    }
    return q;
}

static void quorum_close(void *lock)
{
    struct quorum *q = lock;
    for (int i = 0; i < servers; i++) {
        line_close(q->member[i].line);
        for (int step = 0; step < STEPS; step++)
            phrase_free(&q->member[i].phrase[step]);
    }
    free(q);
}

static void say(struct quorum *q, struct member *m, enum step step)
{
    unsigned at = (m->first + m->count++) % OPEN_MOST;
    if (m->count > OPEN_MOST)
        bench_fail("a server does not answer");
    m->open[at].step = step;
    m->open[at].cycle = q->cycle;
    phrase_set_id(&m->phrase[step], q->id);
    phrase_set_token(&m->phrase[step], q->token);
    line_send(m->line, m->phrase[step].bytes, m->phrase[step].len);
}

static void note_token(struct quorum *q, const char *reply, size_t len)
{
    const char *token = memchr(reply, '\n', len);
    if (*reply != '$' || !token || len < TOKEN_LEN + 5)
        bench_fail("a server did not agree: %.*s", (int)len, reply);
    int above = q->yes[ASK] == 0 ? 1 : memcmp(token + 1, q->token, TOKEN_LEN);
    q->same = above > 0 ? 1 : q->same + (above == 0);
    memcpy(q->token, above > 0 ? token + 1 : q->token, TOKEN_LEN);
}

/* A yes that comes when the token is agreed on: this server is told of it, too. */
static void hear(struct quorum *q, struct member *m, const char *reply, size_t len)
{
    enum step step = m->open[m->first].step;
    bool this_cycle = m->open[m->first].cycle == q->cycle;
    m->first = (m->first + 1) % OPEN_MOST;
    m->count--;
    if (!this_cycle)
        return;
    if (step == ASK && q->step == ASK)
        note_token(q, reply, len);
    q->yes[step]++;
    if (step == ASK && q->step == RAISE)
        say(q, m, RAISE);
}

static void await_majority(struct quorum *q, enum step step)
{
    const char *reply;
    size_t len;
    while (q->yes[step] <= servers / 2) {
        if (poll(q->fds, (nfds_t)servers, 1000) < 0 && errno != EINTR)
            bench_fail("poll: %s", strerror(errno));
        for (int i = 0; i < servers; i++) {
            if (!q->fds[i].revents)
                continue;
            line_receive(q->member[i].line);
            while ((reply = line_reply_ready(q->member[i].line, &len)))
                hear(q, &q->member[i], reply, len);
        }
    }
}

/* The highest token is written back where it was not the proposal of a majority; who agrees later is told then. */
static void quorum_take(void *lock)
{
    struct quorum *q = lock;
    q->cycle++;
    memset(q->yes, 0, sizeof q->yes);
    phrase_next_id(q->id, 0, q->cycle);
    q->step = ASK;
    for (int i = 0; i < servers; i++)
        say(q, &q->member[i], ASK);
    await_majority(q, ASK);
    if (q->same > servers / 2)
        return;
    q->step = RAISE;
    for (int i = 0; i < servers; i++)
        if (q->member[i].count == 0)
            say(q, &q->member[i], RAISE);
    await_majority(q, RAISE);
}

static void quorum_give(void *lock)
{
    struct quorum *q = lock;
    q->step = RELEASE;
    for (int i = 0; i < servers; i++)
        say(q, &q->member[i], RELEASE);
    await_majority(q, RELEASE);
}

const struct lock_kind BARE_QUORUM = {.who = "bare",
                                      .engine = "redlock",
                                      .open = quorum_open,
                                      .take = quorum_take,
                                      .give = quorum_give,
                                      .close = quorum_close};
