/* redis_bare_lock.c - two ceilings as kinds of lock: one sends the library's bytes, with
 * handoff; the other has neither tokens nor a queue. */
#include "redis_bare.h"

#include "redis_requests.h"
#include "redis_socket.h"

#include <stdlib.h>
#include <string.h>

static struct captured learnt[SERVERS_MOST];

void bare_learn(const struct bench *b)
{
    capture(b, 2, learnt);
}

const struct captured *bare_learnt(void)
{
    return learnt;
}

static double commands_sent(const struct bench *b)
{
    struct redis_socket *conn = redis_socket_open(b->url);
    double count = redis_socket_commands(conn, false);
    redis_socket_close(conn);
    return count;
}

/* ---- The library's bytes ---- */

struct bare {
    int worker;
    uint64_t cycle;
    struct redis_socket *commands, *wake;
    struct phrase acquire, release, pop;
    char id[ID_LEN];
};

/* Gives each worker its own inbox, with its number at the end. */
static void rename_box(struct bare *bare, const char *box)
{
    char own[sizeof learnt[0].box], digits[8];
    snprintf(own, sizeof own, "%s", box);
    snprintf(digits, sizeof digits, "%05d", bare->worker);
    memcpy(own + strlen(own) - 5, digits, 5);
    phrase_replace(&bare->acquire, box, own);
    phrase_replace(&bare->pop, box, own);
}

static void *bare_open(const struct bench *b, int worker)
{
    struct bare *bare = calloc(1, sizeof *bare);
    if (!bare)
        bench_fail("no memory");

    bare->worker = worker;
    bare->commands = redis_socket_open(b->url);
    bare->acquire = phrase_copy(&learnt[0].phrase[0]);
    bare->release = phrase_copy(&learnt[0].phrase[learnt[0].phrases - 1]);
    if (b->workers > 1) {
        bare->wake = redis_socket_open(b->url);
        bare->pop = phrase_copy(&learnt[0].pop);
        rename_box(bare, learnt[0].box);
    }

    return bare;
}

/* Waits for a notification. Returns true if it names this cycle; otherwise, or when the BLMPOP
 * times out, the caller asks again. */
static bool receive_notification(struct bare *bare)
{
    size_t len;
    redis_socket_send(bare->wake, bare->pop.bytes, bare->pop.len);
    const char *reply = redis_socket_reply(bare->wake, &len);
    return memmem(reply, len, bare->id, ID_LEN) != NULL;
}

/* Returns true for "*6\r
 * :0\r
 * ...", which means that the request is queued. */
static bool is_queued(const char *reply, size_t len)
{
    const char *mark = memchr(reply, '\n', len);
    return *reply == '*' && mark && strncmp(mark + 1, ":0\r\n", 4) == 0;
}

static void bare_take(void *lock)
{
    struct bare *bare = lock;
    size_t len;

    phrase_next_id(bare->id, bare->worker, bare->cycle++);
    phrase_set_id(&bare->acquire, bare->id);
    do {
        redis_socket_send(bare->commands, bare->acquire.bytes, bare->acquire.len);
        const char *reply = redis_socket_reply(bare->commands, &len);
        if (*reply != '*' && strncmp(reply, "$-1", 3) != 0)
            return;
        if (!bare->wake || !is_queued(reply, len))
            bench_fail("the lock was not granted: %.*s", (int)len, reply);
    } while (!receive_notification(bare));
}

static void bare_give(void *lock)
{
    struct bare *bare = lock;
    size_t len;

    phrase_set_id(&bare->release, bare->id);
    redis_socket_send(bare->commands, bare->release.bytes, bare->release.len);
    const char *reply = redis_socket_reply(bare->commands, &len);
    if (strncmp(reply, ":0\r\n", 4) == 0)
        bench_fail("the lock was lost before its release: %.*s", (int)len, reply);
}

static void bare_close(void *lock)
{
    struct bare *bare = lock;
    redis_socket_close(bare->commands);
    redis_socket_close(bare->wake);
    phrase_free(&bare->acquire);
    phrase_free(&bare->release);
    phrase_free(&bare->pop);
    free(bare);
}

const struct lock_kind BARE = {.who = "bare",
                               .engine = "redis",
                               .open = bare_open,
                               .take = bare_take,
                               .give = bare_give,
                               .close = bare_close,
                               .commands = commands_sent};

/* ---- No token, no queue ---- */

#define SCRIPT                                                                                     \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 "   \
    "end"

static struct phrase phrase_of(const char *text, size_t id_at)
{
    struct phrase phrase = {.bytes = (char *)text, .len = strlen(text), .ids = 1};
    phrase.id_at[0] = id_at;
    return phrase_copy(&phrase);
}

struct phrase bare_lock_set(void)
{
    char text[256];
    int at = snprintf(text, sizeof text, "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$22\r\n",
                      strlen(LOCK_NAME), LOCK_NAME);
    snprintf(text + at, sizeof text - (size_t)at,
             "%022d\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n", 0);
    return phrase_of(text, (size_t)at);
}

struct phrase bare_lock_delete(const struct bench *b)
{
    char text[256];
    size_t len;
    struct redis_socket *conn = redis_socket_open(b->url);
    const char *sha =
        redis_socket_request(conn, &len, "SCRIPT LOAD \"" SCRIPT "\"") + strlen("$40\r\n");
    int at = snprintf(text, sizeof text,
                      "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%.40s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n$22\r\n",
                      sha, strlen(LOCK_NAME), LOCK_NAME);

    snprintf(text + at, sizeof text - (size_t)at, "%022d\r\n", 0);
    redis_socket_close(conn);
    return phrase_of(text, (size_t)at);
}

static void *bare_lock_open(const struct bench *b, int worker)
{
    struct bare *bare = calloc(1, sizeof *bare);
    if (!bare)
        bench_fail("no memory");

    bare->worker = worker;
    bare->commands = redis_socket_open(b->url);
    bare->acquire = bare_lock_set();
    bare->release = bare_lock_delete(b);

    return bare;
}

static double commands_sent_and_sets(const struct bench *b)
{
    struct redis_socket *conn = redis_socket_open(b->url);
    double count = redis_socket_commands(conn, true);
    redis_socket_close(conn);
    return count;
}

const struct lock_kind BARE_LOCK = {.who = "bare-lock",
                                    .engine = "redis",
                                    .open = bare_lock_open,
                                    .take = bare_take,
                                    .give = bare_give,
                                    .close = bare_close,
                                    .commands = commands_sent_and_sets};
