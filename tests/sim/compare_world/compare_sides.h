/* compare_sides.h - the model and a real server side by side: the same time and the same bytes go
 * into both, and what comes out is compared. The server has a clock of the test's (wrong_clock.c),
 * so that even times are equal to the byte. */
#pragma once
#include "lib/servers.h"
#include "sim/model/model.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Ordinary ones, one that may wait, one that subscribes. */
enum { PLAIN_LINES = 2, WAITING_LINE = 2, HEARING_LINE = 3, LINES };

#define PATIENCE_MS 2000
#define REMEMBERED 40    /* operations shown before a difference */
#define SILENCE_EVERY 16 /* operations; each look costs a system call */
#define SHOWN 600        /* bytes of an answer */
#define ANSWER_MAX (1 << 20)

static struct sides {
    struct server *server;
    volatile int64_t *clock;
    redisContext *control;
    struct redis_model *model;
    int sockets[LINES];
    unsigned lines[LINES]; /* in the model */
    bool full;
    bool words_differ; /* the server has other words for some errors */
    uint64_t random;
    uint64_t seed;
    uint64_t operations;
    char *past[REMEMBERED];
    bool differ;
    bool quiet; /* a difference is expected: do not print it */
    char *answer;
} t;

static uint64_t draw(uint64_t below)
{
    t.random ^= t.random << 13;
    t.random ^= t.random >> 7;
    t.random ^= t.random << 17;
    return (t.random >> 11) % below;
}

/* ---- What is told ---- */

static void print_bytes(FILE *to, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len && i < SHOWN; i++) {
        if (bytes[i] == '\r')
            fputs("\\r", to);
        else if (bytes[i] == '\n')
            fputs("\\n", to);
        else if (bytes[i] < ' ' || bytes[i] > '~')
            fprintf(to, "\\x%02x", (unsigned char)bytes[i]);
        else
            fputc(bytes[i], to);
    }
}

static void remember(char *text) /* freed later */
{
    char **place = &t.past[t.operations % REMEMBERED];
    free(*place);
    *place = text;
}

static void tell_past(void)
{
    fprintf(stderr, "# seed %llu, operation %llu; those before it:\n", (unsigned long long)t.seed,
            (unsigned long long)t.operations);
    for (uint64_t i = 1; i <= REMEMBERED; i++) {
        const char *text = t.past[(t.operations + i) % REMEMBERED];
        if (text)
            fprintf(stderr, "#   %s\n", text);
    }
}

static void difference(unsigned line, const char *model, size_t model_len, const char *server,
                       size_t server_len)
{
    if (!t.differ && !t.quiet) {
        tell_past();
        fprintf(stderr, "# line %u\n# model:  ", line);
        print_bytes(stderr, model, model_len);
        fprintf(stderr, "\n# server: ");
        print_bytes(stderr, server, server_len);
        fprintf(stderr, "\n");
    }
    t.differ = true;
}

/* ---- The server ---- */

static int open_socket(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port(t.server))};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Reads `wanted` bytes of an answer, or what comes within our patience. */
static size_t read_answer(int fd, char *into, size_t wanted)
{
    size_t len = 0;
    while (len < wanted) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        ssize_t n = poll(&look, 1, PATIENCE_MS) == 1 ? recv(fd, into + len, wanted - len, 0) : 0;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    return len;
}

static void control(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(t.control, format, args);
    va_end(args);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    freeReplyObject(reply);
}

/* Waits until the server has as many blocked clients: a blocking request gives no other sign of its
 * arrival. */
static bool server_blocks(int wanted)
{
    for (int i = 0; i < PATIENCE_MS * 10; i++) {
        redisReply *reply = redisCommand(t.control, "INFO clients");
        assert_non_null(reply);
        const char *field = strstr(reply->str, "blocked_clients:");
        int blocked = field ? atoi(strchr(field, ':') + 1) : -1;
        freeReplyObject(reply);
        if (blocked == wanted)
            return true;
        usleep(100);
    }
    return false;
}

static void set_time(int64_t us)
{
    *t.clock = us;
    model_time_set(t.model, us);
}

static void set_full(bool full)
{
    t.full = full;
    model_full(t.model, full);
    control("CONFIG SET maxmemory %d", full);
}

/* ---- Life ---- */

static void map_clock(void)
{
    int fd = open(server_file(t.server, "clock"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    void *at = mmap(NULL, sizeof *t.clock, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    t.clock = at;
}

/* Hashes stay in the order of their arrival; time-outs are served at once; keys go when they are
 * looked at. */
static void start_sides(enum server_kind kind)
{
    static const char *const args[] = {"--hz",
                                       "500",
                                       "--hash-max-listpack-entries",
                                       "100000",
                                       "--hash-max-listpack-value",
                                       "100000",
                                       "--enable-debug-command",
                                       "yes",
                                       NULL};
    struct server_options options = {.kind = kind, .args = args, .preload = HF_WRONG_CLOCK};
    t.server = server_start(&options);
    t.words_differ = kind == SERVER_VALKEY;
    map_clock();
    t.control = server_connect(t.server);
    control("DEBUG SET-ACTIVE-EXPIRE 0");
    t.model = model_open(1);
    t.answer = malloc(ANSWER_MAX);
    assert_non_null(t.answer);
    for (unsigned i = 0; i < LINES; i++)
        t.sockets[i] = -1;
}

static void end_sides(void)
{
    for (unsigned i = 0; i < LINES; i++)
        close(t.sockets[i]);
    for (unsigned i = 0; i < REMEMBERED; i++)
        free(t.past[i]);
    munmap((void *)(uintptr_t)t.clock, sizeof *t.clock);
    redisFree(t.control);
    server_end(t.server);
    model_close(t.model);
    free(t.answer);
    memset(&t, 0, sizeof t);
}

/* Both sides empty and with new connections. */
static void begin(uint64_t seed, enum model_plant plant)
{
    for (unsigned i = 0; i < REMEMBERED; i++) {
        free(t.past[i]);
        t.past[i] = NULL;
    }
    t.seed = seed;
    t.random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    t.operations = 0;
    t.differ = false;
    model_reset(t.model, seed);
    model_plant(t.model, plant);
    set_full(false);
    set_time(model_time(t.model));
    control("FLUSHALL");
    control("SCRIPT FLUSH");
    control("FUNCTION FLUSH");
    for (unsigned i = 0; i < LINES; i++) {
        close(t.sockets[i]);
        t.sockets[i] = open_socket();
        t.lines[i] = model_connect(t.model);
    }
    assert_true(server_blocks(0));
}

/* ---- Comparing ---- */

static bool is_same(const redisReply *a, const redisReply *b)
{
    if (a->type != b->type || a->elements != b->elements || a->integer != b->integer)
        return false;
    if (a->type == REDIS_REPLY_ERROR) /* its code */
        return strcspn(a->str, " ") == strcspn(b->str, " ") &&
               strncmp(a->str, b->str, strcspn(a->str, " ")) == 0;
    bool same = a->len == b->len && (!a->str || memcmp(a->str, b->str, a->len) == 0);
    for (size_t i = 0; same && i < a->elements; i++)
        same = is_same(a->element[i], b->element[i]);
    return same;
}

/* The next reply that is complete; NULL if there is none. */
static redisReply *next_reply(redisReader *reader)
{
    void *reply = NULL;
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    return reply;
}

/* Waits for a reply of the server; its bytes go behind the *len that are in t.answer. */
static redisReply *read_reply(redisReader *reader, int fd, size_t *len)
{
    redisReply *reply;
    while (!(reply = next_reply(reader))) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        char *bytes = t.answer + *len;
        ssize_t n = poll(&look, 1, PATIENCE_MS) == 1 ? recv(fd, bytes, ANSWER_MAX - *len, 0) : 0;
        if (n <= 0)
            break;
        redisReaderFeed(reader, bytes, (size_t)n);
        *len += (size_t)n;
    }
    return reply;
}

/* Value by value, and of errors only the code. */
static void compare_meaning(unsigned line, const char *bytes, size_t len)
{
    redisReader *of_model = redisReaderCreate(), *of_server = redisReaderCreate();
    redisReply *model;
    size_t read = 0;
    redisReaderFeed(of_model, bytes, len);
    while ((model = next_reply(of_model))) {
        redisReply *server = read_reply(of_server, t.sockets[line], &read);
        if (!server || !is_same(model, server))
            difference(line, bytes, len, t.answer, read);
        freeReplyObject(model);
        if (server)
            freeReplyObject(server);
    }
    redisReaderFree(of_model);
    redisReaderFree(of_server);
}

static void compare_bytes(unsigned line, const char *bytes, size_t len)
{
    assert_true(len < ANSWER_MAX);
    size_t got = read_answer(t.sockets[line], t.answer, len);
    if (got == len && memcmp(bytes, t.answer, len) == 0)
        return;
    ssize_t more = recv(t.sockets[line], t.answer + got, ANSWER_MAX - got, MSG_DONTWAIT);
    difference(line, bytes, len, t.answer, got + (more > 0 ? (size_t)more : 0));
}

/* What the server says and the model does not. It stays there until somebody looks. */
static void compare_silence(unsigned line)
{
    ssize_t more = t.differ ? 0 : recv(t.sockets[line], t.answer, ANSWER_MAX, MSG_DONTWAIT);
    if (more > 0)
        difference(line, "", 0, t.answer, (size_t)more);
}

/* What the server says on a line must be what the model says there, and no more. */
static void compare_line(unsigned line)
{
    size_t len;
    const char *bytes = model_take(t.model, t.lines[line], &len);
    if (len && t.words_differ)
        compare_meaning(line, bytes, len);
    else if (len)
        compare_bytes(line, bytes, len);
    if (len || t.operations % SILENCE_EVERY == 0)
        compare_silence(line);
}

static void compare_lines(void)
{
    for (unsigned i = 0; i < LINES && !t.differ; i++)
        compare_line(i);
}

static void send_both(unsigned line, const char *bytes, size_t len)
{
    assert_int_equal(send(t.sockets[line], bytes, len, MSG_NOSIGNAL), len);
    model_feed(t.model, t.lines[line], bytes, len);
}

/* Time goes on, or back; blocked requests run out before anything else happens. */
static void pass_time(int64_t us)
{
    set_time(us);
    model_advance(t.model);
    if (model_ready(t.model) >= 0)
        compare_lines();
}
