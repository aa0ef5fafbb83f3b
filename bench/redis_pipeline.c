/* redis_pipeline.c - ceilings with many cycles in flight: on one pipelined connection, or on a
 * connection each. */
#include "redis_bare.h"

#include "redis_requests.h"
#include "redis_socket.h"
#include "span.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_ROOM = 1 << 18, DEPTH_MOST = 256 };

/* One name, and the cycle in flight on it. */
struct slot {
    struct phrase acquire, release;
    char id[ID_LEN];
    int64_t asked_ns;
    uint64_t cycle;
};

/* One connection; replies come in the order of the requests. */
struct pipeline {
    struct redis_socket *conn;
    struct slot *slot;
    int slots;
    struct {
        int slot;
        bool requests;
    } open[2 * DEPTH_MOST]; /* a ring */
    unsigned first, count;
    size_t out_len;
    char out[OUT_ROOM];
    uint64_t granted;
    struct times *times;
};

static void put(struct pipeline *p, const struct phrase *phrase, int slot, bool requests)
{
    if (p->out_len + phrase->len > OUT_ROOM || p->count == 2 * DEPTH_MOST)
        bench_fail("too many requests in flight");

    memcpy(p->out + p->out_len, phrase->bytes, phrase->len);
    p->out_len += phrase->len;
    unsigned at = (p->first + p->count++) % (2 * DEPTH_MOST);
    p->open[at].slot = slot;
    p->open[at].requests = requests;
}

static void put_request(struct pipeline *p, int number)
{
    struct slot *slot = &p->slot[number];
    phrase_next_id(slot->id, number, slot->cycle++);
    phrase_set_id(&slot->acquire, slot->id);
    slot->asked_ns = now_ns();
    put(p, &slot->acquire, number, true);
}

static void put_release(struct pipeline *p, int number)
{
    phrase_set_id(&p->slot[number].release, p->slot[number].id);
    put(p, &p->slot[number].release, number, false);
}

static void receive(struct pipeline *p, const char *reply, size_t len, bool goes_on)
{
    int number = p->open[p->first].slot;
    bool requests = p->open[p->first].requests;

    p->first = (p->first + 1) % (2 * DEPTH_MOST);
    p->count--;
    bool not_granted = *reply == '*' || strncmp(reply, "$-1", 3) == 0;
    bool not_released = strncmp(reply, ":0", 2) == 0;
    if (requests ? not_granted : not_released)
        bench_fail("an uncontended lock was refused: %.*s", (int)len, reply);
    if (!requests)
        return;

    times_note(p->times, now_ns() - p->slot[number].asked_ns);
    p->granted++;
    put_release(p, number);
    if (goes_on)
        put_request(p, number);
}

/* Reads all replies that have arrived, and sends the next requests together. */
static void turn(struct pipeline *p, bool goes_on)
{
    const char *reply;
    size_t len;

    redis_socket_receive(p->conn);
    while ((reply = redis_socket_reply_ready(p->conn, &len)))
        receive(p, reply, len, goes_on);
    redis_socket_send(p->conn, p->out, p->out_len);
    p->out_len = 0;
}

static bool is_bare_lock(const struct bench *b)
{
    return b->who && strcmp(b->who, "bare-lock") == 0;
}

static void fill_slots(const struct bench *b, struct slot *slot, int slots, int first)
{
    char name[sizeof LOCK_NAME];
    struct phrase set = is_bare_lock(b) ? bare_lock_set() : phrase_copy(&bare_learnt()->phrase[0]);
    struct phrase del = is_bare_lock(b)
                            ? bare_lock_delete(b)
                            : phrase_copy(&bare_learnt()->phrase[bare_learnt()->phrases - 1]);

    for (int i = 0; i < slots; i++) {
        numbered_name(name, first + i);
        slot[i].acquire = phrase_copy(&set);
        slot[i].release = phrase_copy(&del);
        phrase_replace(&slot[i].acquire, LOCK_NAME, name);
        phrase_replace(&slot[i].release, LOCK_NAME, name);
    }

    phrase_free(&set);
    phrase_free(&del);
}

static struct pipeline *pipeline_open(const struct bench *b, int slots, int first,
                                      struct times *times)
{
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p || !(p->slot = calloc((size_t)slots, sizeof *p->slot)))
        bench_fail("no memory");

    p->conn = redis_socket_open(b->url);
    p->slots = slots;
    p->times = times;
    fill_slots(b, p->slot, slots, first);

    for (int i = 0; i < slots; i++)
        put_request(p, i);
    return p;
}

/* Waits for the requests in flight and frees the pipeline. Returns the number of grants before the
 * call. */
static uint64_t pipeline_close(struct pipeline *p)
{
    uint64_t granted = p->granted;
    while (p->count)
        turn(p, false);
    for (int i = 0; i < p->slots; i++) {
        phrase_free(&p->slot[i].acquire);
        phrase_free(&p->slot[i].release);
    }

    redis_socket_close(p->conn);
    free(p->slot);
    free(p);
    return granted;
}

static void start(struct pipeline *p)
{
    redis_socket_send(p->conn, p->out, p->out_len);
    p->out_len = 0;
}

static void turn_any(struct pipeline **p, struct pollfd *fds, int connections)
{
    if (connections == 1) {
        turn(p[0], true);
        return;
    }
    if (poll(fds, (nfds_t)connections, 1000) < 0 && errno != EINTR)
        bench_fail("poll: %s", strerror(errno));

    for (int i = 0; i < connections; i++)
        if (fds[i].revents)
            turn(p[i], true);
}

static int run(const struct bench *b, int connections, int depth)
{
    static struct pipeline *p[DEPTH_MOST];
    static struct pollfd fds[DEPTH_MOST];
    static struct times times;
    const struct lock_kind *kind = is_bare_lock(b) ? &BARE_LOCK : &BARE;
    struct result result = result_of(b, kind->who, kind->engine);
    bool valid = connections >= 1 && connections <= DEPTH_MOST && depth >= 1 && depth <= DEPTH_MOST;
    if (!valid)
        bench_fail("connections and depth must be from 1 to %d", DEPTH_MOST);

    pin(b->cpu);
    for (int i = 0; i < connections; i++) {
        p[i] = pipeline_open(b, depth, i * depth, &times);
        fds[i] = (struct pollfd){.fd = p[i]->conn->fd, .events = POLLIN};
    }

    struct span span = span_begin(b, kind->commands);
    for (int i = 0; i < connections; i++)
        start(p[i]);
    while (now_ns() - span.from_ns < (int64_t)(b->seconds * 1e9))
        turn_any(p, fds, connections);
    uint64_t granted = 0;

    for (int i = 0; i < connections; i++)
        granted += p[i]->granted;
    span_end(&span, (double)granted, &result);

    for (int i = 0; i < connections; i++)
        pipeline_close(p[i]);
    result.workers = connections * depth;
    result_times(&result, &times);
    result_print(&result);

    return 0;
}

int run_pipeline(const struct bench *b, int depth)
{
    return run(b, 1, depth);
}

int run_connections(const struct bench *b, int connections)
{
    return run(b, connections, 1);
}
