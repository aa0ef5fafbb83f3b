/* redlock_bare.c - the ceiling on a quorum. It sends to all servers at once what the library sends
 * to them, including the write-back of the token, and waits only for a majority. */
#include "redis_bare.h"
#include "redis_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MOST = 16 };
enum step { ACQUIRE, RAISE, RELEASE, STEPS };

static struct captured learnt[SERVERS_MOST];
static int servers;

/* One server. Replies come in the order of the requests, some of them after the cycle has continued
 * without them. */
struct member {
    struct redis_socket *conn;
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
    enum step step; /* step of the present cycle */
    /* votes in this cycle; number of servers that proposed the highest token */
    int yes[STEPS], same;
    char id[ID_LEN], token[TOKEN_LEN]; /* token: the highest that was proposed */
};

/* Connects to the server with that number in redlock://127.0.0.1:PORT,127.0.0.1:PORT... */
static struct redis_socket *open_member(const char *url, int number)
{
    char one[64];
    const char *at = strstr(url, "127.0.0.1:");

    for (int i = 0; i < number && at; i++)
        at = strstr(at + 1, "127.0.0.1:");
    if (!at)
        bench_fail("%s: names fewer than %d servers", url, number + 1);

    snprintf(one, sizeof one, "redis://127.0.0.1:%d/0", atoi(at + strlen("127.0.0.1:")));
    return redis_socket_open(one);
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
        q->member[i].conn = open_member(b->url, i);
        q->fds[i] = (struct pollfd){.fd = q->member[i].conn->fd, .events = POLLIN};
        for (int step = 0; step < STEPS; step++)
            q->member[i].phrase[step] = phrase_copy(&learnt[i].phrase[step]);
    }

    return q;
}

static void quorum_close(void *lock)
{
    struct quorum *q = lock;
    for (int i = 0; i < servers; i++) {
        redis_socket_close(q->member[i].conn);
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
    redis_socket_send(m->conn, m->phrase[step].bytes, m->phrase[step].len);
}

static void note_token(struct quorum *q, const char *reply, size_t len)
{
    const char *token = memchr(reply, '\n', len);
    if (*reply != '$' || !token || len < TOKEN_LEN + 5)
        bench_fail("a server refused: %.*s", (int)len, reply);
    int above = q->yes[ACQUIRE] == 0 ? 1 : memcmp(token + 1, q->token, TOKEN_LEN);
    q->same = above > 0 ? 1 : q->same + (above == 0);
    memcpy(q->token, above > 0 ? token + 1 : q->token, TOKEN_LEN);
}

/* If a vote arrives after the token was agreed on, the token is sent to this server, too. */
static void receive(struct quorum *q, struct member *m, const char *reply, size_t len)
{
    enum step step = m->open[m->first].step;
    bool this_cycle = m->open[m->first].cycle == q->cycle;

    m->first = (m->first + 1) % OPEN_MOST;
    m->count--;
    if (!this_cycle)
        return;

    if (step == ACQUIRE && q->step == ACQUIRE)
        note_token(q, reply, len);
    q->yes[step]++;
    if (step == ACQUIRE && q->step == RAISE)
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
            redis_socket_receive(q->member[i].conn);
            while ((reply = redis_socket_reply_ready(q->member[i].conn, &len)))
                receive(q, &q->member[i], reply, len);
        }
    }
}

/* If no majority proposed the highest token, sends that token to the servers that have voted. A
 * server whose vote comes later is sent the token then. */
static void quorum_take(void *lock)
{
    struct quorum *q = lock;
    q->cycle++;
    memset(q->yes, 0, sizeof q->yes);
    phrase_next_id(q->id, 0, q->cycle);
    q->step = ACQUIRE;

    for (int i = 0; i < servers; i++)
        say(q, &q->member[i], ACQUIRE);
    await_majority(q, ACQUIRE);
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
