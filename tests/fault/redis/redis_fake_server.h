/* redis_fake_server.h - a server of the test's own: a TCP port on which a thread speaks just enough
 * of Redis to be greeted, and then answers as the test's script says. It notes what it was asked
 * and who hung up.
 *
 * One at a time. The script is set before the first client comes, and not changed while one is
 * there. */
#pragma once
#include "engines/redis/scripts.h"
#include "lib/actors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALLERS = 16, REQUEST_MAX = 512 * 1024, WORDS_MAX = 64, BLOCK = 16 * 1024 };

#define TOKEN "1794739091582073"
#define GRANT "$16\r\n" TOKEN "\r\n"
#define INFO_OF(version, role)                                                                     \
    "# Server\r\nredis_version:" version "\r\nrun_id:0123456789012345678901234567890123456789\r\n" \
    "# Replication\r\nrole:" role "\r\n"

/* What happens behind an answer. */
enum behind {
    STAY,    /* nothing */
    CLOSE,   /* the connection is closed */
    POUR,    /* `more` follows, over and over, for as long as somebody takes it */
    TRICKLE, /* the same byte by byte, one each `pace_us` */
    SPELL,   /* the answer itself goes out byte by byte */
};

struct reply_script {
    const char *bytes;
    size_t len; /* 0: as a string */
    enum behind behind;
    const char *more;
    int64_t pace_us;
};

struct script {
    const char *hello;                   /* sent to whoever comes; NULL: nothing */
    const char *auth, *select, *setname; /* NULL: +OK */
    const char *info;                    /* NULL: a Redis 7.0 */
    const char *rights;                  /* to the first call of the library; NULL: none lacks */
    const char *load;                    /* NULL: what SCRIPT LOAD answers */
    bool turns_away;                     /* hangs up behind the hello */
    bool mute;                           /* does not even answer the greeting */
    struct reply_script ask;             /* to the first `hostile` asks; the others are granted */
    unsigned hostile;                    /* UINT32_MAX: all */
    struct reply_script pop;             /* to BLMPOP; without bytes: silence */
    struct reply_script
        change; /* to the first EXTEND, CHECK or conversion; without bytes: still held */
    struct reply_script release; /* to the first release; without bytes: it was held */
    void (*answer_pop)(char *out, size_t size); /* writes the answer to a BLMPOP instead */
};

/* One connection. */
struct caller {
    int fd; /* -1: none */
    char *in;
    size_t got;
    char out[BLOCK * 2];
    size_t out_len;
    enum behind behind;
    const char *more;
    size_t more_at;
    int64_t pace_ns, next_ns;
};

static struct {
    struct script script;
    bool open;
    int door, bell;
    uint16_t port;
    char where[32]; /* as messages name it */
    pthread_t thread;
    struct caller caller[CALLERS];
    char id[32];     /* of the newest ask */
    char served[64]; /* its key */
    _Atomic unsigned came, asks, changes, releases, tombstones, pops, hung_up, unknown;
    _Atomic uint64_t poured;
} impostor;

/* ---- Sending ---- */

static void see_off(struct caller *c)
{
    close(c->fd);
    free(c->in);
    c->fd = -1;
}

static void say(struct caller *c, const char *bytes, size_t len)
{
    if (c->out_len + len > sizeof c->out)
        abort();
    memcpy(c->out + c->out_len, bytes, len);
    c->out_len += len;
}

static void say_text(struct caller *c, const char *text)
{
    say(c, text, strlen(text));
}

static void say_bulk(struct caller *c, const char *text)
{
    char head[32];
    say(c, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", strlen(text)));
    say_text(c, text);
    say_text(c, "\r\n");
}

static void follow_script(struct caller *c, const struct reply_script *reply)
{
    if (!reply->bytes)
        return;
    say(c, reply->bytes, reply->len ? reply->len : strlen(reply->bytes));
    c->behind = reply->behind;
    c->more = reply->more;
    c->more_at = 0;
    c->pace_ns = reply->pace_us * 1000;
    c->next_ns = 0;
}

/* ---- Answering ---- */

static bool is(const char *word, const char *other)
{
    return strcasecmp(word, other) == 0;
}

static void answer_script(struct caller *c, char **word, int words)
{
    const struct script *s = &impostor.script;
    int script = 0;
    while (script < SCRIPT_VERBS &&
           !strstr(redis_script_verbs[script].fcall.bytes, word[1])) /* its whole name */
        script++;
    int id_at = 3 + atoi(word[2]); /* behind the keys */
    switch (script) {
    case SCRIPT_ACQUIRE:
        snprintf(impostor.id, sizeof impostor.id, "%s", word[id_at]);
        snprintf(impostor.served, sizeof impostor.served, "%s", word[3]);
        if (atomic_fetch_add(&impostor.asks, 1) < s->hostile)
            follow_script(c, &s->ask);
        else
            say_text(c, GRANT);
        break;
    case SCRIPT_RELEASE:
        atomic_fetch_add(&impostor.tombstones,
                         words > id_at + 2 && strncmp(word[id_at + 2] + 1, " 0 ", 3) != 0);
        if (atomic_fetch_add(&impostor.releases, 1) == 0 && s->release.bytes)
            follow_script(c, &s->release);
        else
            say_text(c, ":1\r\n");
        break;
    case SCRIPT_RIGHTS:
        say_text(c, s->rights ? s->rights : "*0\r\n");
        break;
    default:
        if (atomic_fetch_add(&impostor.changes, 1) == 0 && s->change.bytes)
            follow_script(c, &s->change);
        else
            say_text(c, "*2\r\n" GRANT ":1000\r\n");
    }
}

static void answer_pop(struct caller *c)
{
    char text[512];
    bool first = atomic_fetch_add(&impostor.pops, 1) == 0;
    if (first && impostor.script.answer_pop) {
        impostor.script.answer_pop(text, sizeof text);
        say_text(c, text);
    } else if (first) {
        follow_script(c, &impostor.script.pop);
    }
}

static void answer(struct caller *c, char **word, int words)
{
    const struct script *s = &impostor.script;
    if (s->mute)
        return;
    if (is(word[0], "AUTH"))
        say_text(c, s->auth ? s->auth : "+OK\r\n");
    else if (is(word[0], "SELECT"))
        say_text(c, s->select ? s->select : "+OK\r\n");
    else if (is(word[0], "CLIENT"))
        say_text(c, s->setname ? s->setname : "+OK\r\n");
    else if (is(word[0], "INFO") && s->info && *s->info == '-')
        say_text(c, s->info);
    else if (is(word[0], "INFO"))
        say_bulk(c, s->info ? s->info : INFO_OF("7.0.15", "master"));
    else if (is(word[0], "SCRIPT") || is(word[0], "FUNCTION"))
        say_text(c, s->load ? s->load : "$40\r\n0123456789012345678901234567890123456789\r\n");
    else if (is(word[0], "FCALL"))
        answer_script(c, word, words);
    else if (is(word[0], "EVALSHA"))
        say_text(c, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    else if (is(word[0], "BLMPOP"))
        answer_pop(c);
    else if (is(word[0], "SET") && strstr(word[1], ":alive"))
        say_text(c, "+OK\r\n");
    else if (is(word[0], "PEXPIRE"))
        say_text(c, ":1\r\n");
    else
        atomic_fetch_add(&impostor.unknown, 1);
}

/* The length behind a letter, and what follows its line. NULL: not all of it is there. */
static char *read_length(char *at, const char *end, char letter, int *length)
{
    char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line)
        return NULL;
    if (*at != letter)
        abort(); /* the library does not speak RESP */
    *length = atoi(at + 1);
    return line + 1;
}

/* Answers the first request in the buffer. 0: it is not whole; else its length. */
static size_t answer_one(struct caller *c)
{
    char *word[WORDS_MAX + 1], *end = c->in + c->got;
    int words, len;
    char *at = read_length(c->in, end, '*', &words);
    if (!at || words > WORDS_MAX)
        return 0;
    for (int i = 0; i < words; i++) {
        at = read_length(at, end, '$', &len);
        if (!at || end - at < len + 2)
            return 0;
        word[i] = at;
        at += len + 2;
    }
    for (int i = 0; i < words; i++)
        *strchr(word[i], '\r') = 0;
    answer(c, word, words);
    return (size_t)(at - c->in);
}

static void hear(struct caller *c)
{
    ssize_t got = recv(c->fd, c->in + c->got, REQUEST_MAX - c->got, MSG_DONTWAIT);
    if (got <= 0 && !(got < 0 && errno == EAGAIN)) {
        atomic_fetch_add(&impostor.hung_up, 1);
        see_off(c);
        return;
    }
    c->got += got > 0 ? (size_t)got : 0;
    for (size_t used; c->got && c->behind != CLOSE && (used = answer_one(c)) > 0;) {
        c->got -= used;
        memmove(c->in, c->in + used, c->got);
    }
}

/* ---- The thread ---- */

/* One byte is due: of the answer, or of what follows it. */
static void trickle(struct caller *c, int64_t now)
{
    if (c->out_len == 0 && c->behind == TRICKLE) {
        say(c, c->more + c->more_at++, 1);
        c->more_at %= strlen(c->more);
    }
    if (c->out_len && send(c->fd, c->out, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
        memmove(c->out, c->out + 1, --c->out_len);
        atomic_fetch_add(&impostor.poured, 1);
        c->next_ns = now + c->pace_ns;
    }
}

static void pour(struct caller *c)
{
    while (c->behind == POUR && c->out_len + strlen(c->more) <= BLOCK)
        say_text(c, c->more);
    ssize_t sent = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0)
        return;
    atomic_fetch_add(&impostor.poured, (uint64_t)sent);
    c->out_len -= (size_t)sent;
    memmove(c->out, c->out + sent, c->out_len);
}

static bool by_the_byte(const struct caller *c)
{
    return c->behind == TRICKLE || c->behind == SPELL;
}

static void speak(struct caller *c)
{
    int64_t now = now_ns();
    if (by_the_byte(c) && now >= c->next_ns)
        trickle(c, now);
    else if (!by_the_byte(c) && (c->out_len || c->behind == POUR))
        pour(c);
    if (c->behind == CLOSE && c->out_len == 0)
        see_off(c);
}

static void let_in(void)
{
    int fd = accept4(impostor.door, NULL, NULL, SOCK_CLOEXEC);
    struct caller *c = impostor.caller;
    while (c < impostor.caller + CALLERS && c->fd >= 0)
        c++;
    if (fd < 0 || c == impostor.caller + CALLERS)
        abort();
    int at_once = 1; /* the greeting is answered in two pieces: the second must not wait until the
                        first is confirmed */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    *c = (struct caller){.fd = fd, .in = malloc(REQUEST_MAX)};
    atomic_fetch_add(&impostor.came, 1);
    if (impostor.script.hello)
        say_text(c, impostor.script.hello);
    if (impostor.script.turns_away)
        c->behind = CLOSE;
}

static void *be_impostor(void *arg)
{
    (void)arg;
    for (;;) {
        struct pollfd fds[CALLERS + 2] = {{.fd = impostor.bell, .events = POLLIN},
                                          {.fd = impostor.door, .events = POLLIN}};
        int paced = -1;
        for (int i = 0; i < CALLERS; i++) {
            struct caller *c = &impostor.caller[i];
            bool more = c->fd >= 0 && !by_the_byte(c) &&
                        (c->out_len || c->behind == POUR || c->behind == CLOSE);
            fds[i + 2] =
                (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (more ? POLLOUT : 0))};
            paced = c->fd >= 0 && by_the_byte(c) ? 1 : paced;
        }
        poll(fds, CALLERS + 2, paced);
        if (fds[0].revents)
            return NULL;
        for (int i = 0; i < CALLERS; i++) {
            if (impostor.caller[i].fd >= 0 && fds[i + 2].revents & (POLLIN | POLLHUP | POLLERR))
                hear(&impostor.caller[i]);
            if (impostor.caller[i].fd >= 0)
                speak(&impostor.caller[i]);
        }
        if (fds[1].revents)
            let_in();
    }
}

/* ---- For the test ---- */

static void impostor_start(const struct script *script)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(&impostor, 0, sizeof impostor);
    impostor.open = true;
    impostor.script = *script;
    for (int i = 0; i < CALLERS; i++)
        impostor.caller[i].fd = -1;
    impostor.bell = eventfd(0, EFD_CLOEXEC);
    impostor.door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof at;
    assert_int_equal(bind(impostor.door, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(impostor.door, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(listen(impostor.door, 16), 0);
    impostor.port = ntohs(at.sin_port);
    snprintf(impostor.where, sizeof impostor.where, "127.0.0.1:%u", impostor.port);
    assert_int_equal(pthread_create(&impostor.thread, NULL, be_impostor, NULL), 0);
}

static void impostor_end(void)
{
    impostor.open = false;
    assert_int_equal(write(impostor.bell, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
    pthread_join(impostor.thread, NULL);
    for (int i = 0; i < CALLERS; i++)
        if (impostor.caller[i].fd >= 0)
            see_off(&impostor.caller[i]);
    close(impostor.bell);
    close(impostor.door);
    assert_int_equal(atomic_load(&impostor.unknown), 0);
}

/* For a test that failed in the middle. */
static int impostor_teardown(void **state)
{
    (void)state;
    if (impostor.open)
        impostor_end();
    return 0;
}
