/* fuzz_resp.c - whatever bytes come from a server, in whatever pieces: the engine for Redis neither
 * crashes nor grows, answers each submit once, and says nothing of an ask that was forgotten.
 *
 * An input is what the server sends, mixed with what happens meanwhile: ~ and a letter, see
 * do_letter(). */
#include "fuzz.h"

#include "base/settings.h"
#include "base/url.h"
#include "engines/engine.h"
#include "engines/redis/redis.h"

#include <malloc.h>

enum {
    ASKS = 5,
    PEOPLE = 4 /* the ask that lists, breaks and resizes */,
    MEMORY_MAX = 6 << 20,
    BLOCK = 64 * 1024
};

#define ID "AAAAAAAAAAAAAAAAAAAAAA" /* of the first ask */
#define TOKEN "1794739091582073"
#define NUMBER "$16\r\n" TOKEN "\r\n"
#define QUEUED "*7\r\n:0\r\n:900\r\n:100\r\n$16\r\n1794739091582000\r\n" NUMBER ":0\r\n" NUMBER
#define MESSAGE(till) "$80\r\n" ID " 1794739091582099 " till " 1794739091582000 lock:n\r\n"
#define HUGE_NUMBER ":9223372036854775807\r\n"
#define KEYS "*2\r\n$6\r\nlock:a\r\n$6\r\nlock:b\r\n"
#define HOLDER                                                                                     \
    "*5\r\n" NUMBER                                                                                \
    "$1\r\ne\r\n:1\r\n:1\r\n$51\r\nh 900 1 1 1794739091582073 1000 e 0 b 77 host label\r\n"
#define NOBODY "*4\r\n" NUMBER "$0\r\n\r\n:0\r\n:0\r\n"
#define WAITER "$45\r\nw 1794739091582073 2 1000 s 0 d 77 host a b c\r\n"

const char *const fuzz_seeds[] = {
    "i~a~0~u" NUMBER "~e*2\r\n" NUMBER ":900\r\n~r:1\r\n",
    "i~a~b~n~0~u*2\r\n:0\r\n:900\r\n" NUMBER "*1\r\n:-1\r\n~f",
    "i~a~0~u" QUEUED
    "~1~u*2\r\n$3\r\nbox\r\n*1\r\n" MESSAGE("1794739091882000") "~0~t~k*2\r\n" NUMBER ":900\r\n",
    "i~a~0~u" QUEUED "~1~u*2\r\n$3\r\nbox\r\n*1\r\n$82\r\n" ID
    " 1794739091582099 999999999999999999 1794739091582000 lock:n\r\n",
    "i~a~0~u" QUEUED "~1~u*2\r\n$3\r\nbox\r\n*1\r\n" MESSAGE("1795739091582000"),
    "i~a~0~u*7\r\n:0\r\n" HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER ":0\r\n" HUGE_NUMBER,
    "i~a~0~u*1\r\n:-6\r\n*1\r\n:-6\r\n" NUMBER "~r:3\r\n:2\r\n:0\r\n",
    "i~n~0~u*2\r\n:0\r\n" HUGE_NUMBER "~n" NUMBER "~e*2\r\n" NUMBER HUGE_NUMBER,
    "i~a~0~u~1" QUEUED "~l*2\r\n" NUMBER ":500\r\n~r:1\r\n",
    "i~s~a~0~u*3\r\n:-2\r\n$1\r\ns\r\n:5\r\n~a*2\r\n:-3\r\n:1\r\n~a*1\r\n:-4\r\n~a*1\r\n:-5\r\n",
    "i~a~0~u-NOSCRIPT No matching script\r\n~h" NUMBER "~t~d~T~a~u-READONLY x\r\n~T",
    "i~a~0~u-ERR Function not found\r\n~h" NUMBER "~r-ERR Function not found\r\n-OOM x\r\n",
    "i~a~0~U+OK\r\n+OK\r\n-ERR Function not found\r\n-NOPERM x\r\n*0\r\n*0\r\n" NUMBER,
    "i~S~0~u-ERR Function not found\r\n~h" HOLDER,
    "i~a~0~u-ERR max number of clients reached\r\n~a-LOADING\r\n~a-WRONGTYPE\r\n~a-OOM\r\n",
    "i~a~0~U-NOAUTH Authentication required.\r\n",
    "i~a~0~U+OK\r\n$34\r\nredis_version:6.2.1\r\nrole:master\r\n\r\n",
    "i~a~0~U+OK\r\n$12\r\nrole:slave\r\n\r\n",
    "i~L~0~u*2\r\n$1\r\n7\r\n" KEYS HOLDER NOBODY "*2\r\n$1\r\n0\r\n*0\r\n",
    "i~L~0~u*2\r\n$1\r\n0\r\n" KEYS HOLDER "~d",
    "i~S~0~u*6\r\n" NUMBER "$1\r\ns\r\n:5\r\n:1\r\n$4\r\nf -1\r\n" WAITER,
    "i~P~0~u*2\r\n" NUMBER
    "$76\r\n1794739091582073 1794739091582073 1794739091682073 0 - 1 e 1000 0 b 77 host \r\n",
    "i~B~0~u:1\r\n~F~R:-1\r\n~F~R:0\r\n",
    "p~a~0~u" QUEUED
    "~1~u*3\r\n$9\r\nsubscribe\r\n$3\r\nbox\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$3\r\nbox\r\n" MESSAGE(
        "1794739091882000"),
    "o~a~0~u" QUEUED "~t~t~T~a" NUMBER,
    "q~a~2~u" NUMBER ":1\r\n~e*2\r\n" NUMBER ":900\r\n:0\r\n~r~0~u:1\r\n",
    "q~a~2~u" NUMBER ":0\r\n:1\r\n",
    "q~a~2~u" NUMBER "~r:1\r\n",
    "q~a~2~u" NUMBER ":0\r\n~r:1\r\n",
    "i~a~0~u~x~T~a~u*100000000\r\n~y",
    "i~a~0~u$600000000\r\n~x",
    "i~a~b~0~u~!~e~T",
    NULL};
unsigned long fuzz_accepted, fuzz_refused;

/* One ask, and what is known of it. */
struct known {
    union {
        struct engine_op op;
        struct admin_op admin; /* of people */
    };
    char id[REDIS_ID_TEXT + 1];
    bool there;   /* was submitted, and not forgotten */
    bool unsent;  /* its last submit has not gone out: the next one stands for it, too */
    nanos at;     /* of its last submit */
    bool queued;  /* was told so: others may follow unasked */
    unsigned due; /* submits that await their answer */
    unsigned told;
};

static struct known known[ASKS];
static struct known *talked; /* the one that the letters are about */
static void *redis;
static nanos now;
static unsigned line; /* that the bytes come from */
static bool dialled[CONNECTIONS], up[CONNECTIONS];
static char waiting[CONNECTIONS]
                   [32]; /* requests of the greeting: what each of them is, a letter each */
static unsigned waiting_len[CONNECTIONS];
static size_t split;
static bool no_room; /* nothing can be sent */
static bool understood, hung_up;

/* ---- Memory ---- */

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t memory_before;

static size_t memory(void)
{
    return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes()
                                                   : mallinfo2().uordblks;
}

/* ---- The host ---- */

static void dial(void *ctx, unsigned number, const struct endpoint *to)
{
    (void)ctx;
    MUST(number < CONNECTIONS && !dialled[number] && !up[number]);
    MUST(strcmp(to->host, "server") == 0 && strcmp(to->port, "1") == 0);
    dialled[number] = true;
}

static bool holds(const char *bytes, size_t len, const char *text)
{
    return memmem(bytes, len, text, strlen(text)) != NULL;
}

static bool send_bytes(void *ctx, unsigned number, const void *bytes, size_t len)
{
    (void)ctx;
    MUST(number < CONNECTIONS && up[number] && len > 4 && *(const char *)bytes == '*');
    for (int i = 0; i < ASKS; i++)
        if (holds(bytes, len, known[i].id))
            known[i].unsent = false;
    if (no_room)
        return false;
    char what = holds(bytes, len, "\r\nINFO\r\n")                     ? 'i'
                : holds(bytes, len, "\r\nSCRIPT\r\n$6\r\nEXISTS\r\n") ? 'k'
                : holds(bytes, len, "\r\nSCRIPT\r\n")                 ? 's'
                                                                      : '+';
    if (waiting_len[number] < sizeof waiting[number])
        waiting[number][waiting_len[number]++] = what;
    return true;
}

static void hang_up(void *ctx, unsigned number)
{
    (void)ctx;
    MUST(number < CONNECTIONS && (dialled[number] || up[number]));
    hung_up |= up[number];
    dialled[number] = up[number] = false;
}

static void check_news(const struct engine_reply *reply)
{
    MUST(reply->kind < REPLY_KINDS);
    MUST(reply->kind == REPLY_NOTIFY || (reply->asked_at > 0 && reply->asked_at <= now));
    if (reply->text)
        MUST(strlen(reply->text) < 1024);
    if (reply->kind == REPLY_FAILED)
        MUST(reply->status != HF_OK && reply->text && *reply->text);
    if (reply->kind == REPLY_QUEUED)
        MUST(reply->place > 0 && reply->retry_at >= reply->asked_at);
    if (reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED)
        MUST(reply->token > 0 && reply->good >= 0 && reply->good <= NANOS_OF_MS(86400000));
}

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    (void)ctx;
    struct known *k = (struct known *)(void *)op;
    MUST(k >= known && k < known + ASKS && k->there);
    check_news(reply);
    understood |= reply->kind != REPLY_UNKNOWN && reply->kind != REPLY_FAILED;
    k->told++;
    if (reply->asked_at >= k->at) /* else it is the answer to an earlier one */
        k->unsent = false;
    if (reply->kind == REPLY_NOTIFY) {
        MUST(k->queued);
        return;
    }
    MUST(k->due > 0 || k->queued);
    k->due -= k->due > 0;
    k->queued |= reply->kind == REPLY_QUEUED;
}

static void row(void *ctx, struct engine_op *op, const struct hf_row *one)
{
    (void)ctx;
    MUST(op == &known[PEOPLE].op && known[PEOPLE].there && known[PEOPLE].due == 1 &&
         op->verb == OP_ADMIN && admin_op_of(op)->verb == ADMIN_LIST);
    MUST(one->name && *one->name && one->host && one->label &&
         strlen(one->host) + strlen(one->label) < 4096);
    understood = true;
}

static void recheck(void *ctx)
{
    (void)ctx;
}

static uint32_t draw(void *ctx)
{
    static uint32_t state = 1;
    (void)ctx;
    return state = state * 1103515245 + 12345;
}

static const struct wire_engine_host host = {.dial = dial,
                                             .send = send_bytes,
                                             .hang_up = hang_up,
                                             .on_reply = on_reply,
                                             .row = row,
                                             .recheck = recheck,
                                             .random = draw};

/* ---- What happens ---- */

static void submit(struct known *k, enum op_verb verb)
{
    k->due -= k->unsent && k->due > 0; /* it is answered with this one */
    k->op.verb = verb;
    k->op.may_be_in_flight = verb == OP_RELEASE && k->told > 2;
    k->op.until = now + NANOS_OF_MS(50);
    k->there = true;
    k->due++;
    k->unsent = true;
    k->at = now;
    redis_wire_engine.submit(redis, &k->op, now++);
}

/* As core/claim does it: one at a time; but a wait may be left, and anything be given back, at any
 * time. */
static void submit_alone(struct known *k, enum op_verb verb)
{
    talked = k;
    if (k->due == 0)
        submit(k, verb);
}

static void forget(struct known *k)
{
    if (k->there)
        redis_wire_engine.forget(redis, &k->op);
    k->there = k->queued = k->unsent = false;
    k->due = 0;
}

static void feed(const char *bytes, size_t len)
{
    char *copy = malloc(len ? len : 1); /* of exactly that size */
    MUST(copy);
    memcpy(copy, bytes, len);
    if (up[line] && len)
        redis_wire_engine.connection_bytes(redis, line, copy, len, now++);
    free(copy);
    MUST(memory() < memory_before + MEMORY_MAX);
}

/* ---- Letters: each takes the number that stands beside it in the table below ---- */

static void acquire(int which)
{
    submit_alone(&known[which], OP_ACQUIRE);
}

static void change(int verb)
{
    if (talked != &known[PEOPLE])
        submit_alone(talked, (enum op_verb)verb);
}

static void leave(int verb)
{
    if (talked->there && talked->op.verb == OP_ACQUIRE)
        submit(talked, (enum op_verb)verb);
}

static void give_back(int verb)
{
    if (talked->there && talked != &known[PEOPLE] && talked->due < 3)
        submit(talked, (enum op_verb)verb);
}

static void run_errand(int verb)
{
    if (known[PEOPLE].due == 0)
        known[PEOPLE].admin.verb = (enum admin_verb)verb;
    submit_alone(&known[PEOPLE], OP_ADMIN);
}

static void list(int scope)
{
    if (known[PEOPLE].due == 0)
        known[PEOPLE].admin.scope = (enum list_scope)scope;
    run_errand(ADMIN_LIST);
}

static void forget_some(int people)
{
    forget(people ? &known[PEOPLE] : talked);
}

static void hear_from(int number)
{
    line = (unsigned)number;
}

static void come_up(int politely)
{
    static const char *const answers[] = {
        ['+'] = "+OK\r\n",
        ['i'] = "$84\r\nredis_version:7.0.15\r\nrun_id:"
                "0123456789012345678901234567890123456789\r\nrole:master\r\n\r\n",
        ['k'] = "*3\r\n:1\r\n:0\r\n:1\r\n",
        ['s'] = "$40\r\n0123456789012345678901234567890123456789\r\n"};
    if (!dialled[line])
        return;
    dialled[line] = false;
    up[line] = true;
    waiting_len[line] = 0;
    redis_wire_engine.connection_up(redis, line, now++);
    for (unsigned i = 0, count = waiting_len[line]; politely && i < count; i++) {
        feed(answers[(int)waiting[line][i]], strlen(answers[(int)waiting[line][i]]));
        if (waiting[line][i] == 'k') /* it gets those that it lacks */
            count = waiting_len[line];
    }
}

static void go_down(int status)
{
    if (!up[line] && !dialled[line])
        return;
    up[line] = dialled[line] = false;
    redis_wire_engine.connection_down(redis, line, (hf_status)status,
                                      "server:1: the server closed the connection", now++);
}

static void say_ok(int times)
{
    for (int i = 0; i < times; i++)
        feed("+OK\r\n", 5);
}

static void flood(int with_numbers)
{
    static char block[BLOCK];
    const char *what = with_numbers ? ":1\r\n" : "x";
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = what[i % strlen(what)];
    for (int i = 0; i < 40; i++)
        feed(block, sizeof block);
}

static void split_after(int bytes)
{
    split = (size_t)bytes;
}

static void pass_time(int ms)
{
    now += NANOS_OF_MS(ms);
    MUST(redis_wire_engine.tick(redis, now) > now);
}

static void turn_room(int by)
{
    no_room ^= by;
}

static void do_letter(char letter)
{
    static const struct {
        char letter;
        void (*happens)(int number);
        int number;
    } letters[] = {
        {'a', acquire, 0}, /* three that wait, and one that does not */
        {'b', acquire, 1},
        {'c', acquire, 2},
        {'n', acquire, 3},
        {'e', change, OP_EXTEND},
        {'k', change, OP_CHECK},
        {'g', change, OP_UPGRADE},
        {'w', change, OP_DOWNGRADE},
        {'l', leave, OP_LEAVE},
        {'r', give_back, OP_RELEASE},
        {'L', list, LIST_PREFIX},
        {'S', list, LIST_ONE},
        {'P', list, LIST_HISTORY},
        {'B', run_errand, ADMIN_BREAK},
        {'R', run_errand, ADMIN_RESIZE},
        {'f', forget_some, false},
        {'F', forget_some, true},
        {'0', hear_from, 0}, /* from here on bytes come from this line */
        {'1', hear_from, 1},
        {'2', hear_from, 2},
        {'u', come_up, true}, /* the line comes up, and the server greets */
        {'U', come_up, false},
        {'d', go_down, HF_UNAVAILABLE},
        {'D', go_down, HF_CONFIG},
        {'h', say_ok, 1}, /* the library was loaded */
        {'x', flood, false},
        {'y', flood, true},
        {'s', split_after, 1}, /* byte by byte from here on */
        {'t', pass_time, 10},
        {'T', pass_time, 3000},
        {'!', turn_room, true},
    };
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == letter)
            letters[i].happens(letters[i].number);
}

/* ---- One input ---- */

static void open_redis(char way)
{
    struct settings settings;
    struct url url;
    const char *query = way == 'p'   ? "wake=pubsub"
                        : way == 'o' ? "wake=poll"
                        : way == 'q' ? "replicas=1"
                                     : "";
    memory_before = memory();
    settings_defaults(&settings, engine_settings());
    MUST(settings_from_query(&settings, query) == HF_OK);
    MUST(url_parse(&url, "redis://server:1/0") == HF_OK);
    MUST(redis_wire_engine.open(&redis, &url, &settings, &host) == HF_OK);
    memset(known, 0, sizeof known);
    for (unsigned i = 0; i < ASKS; i++) {
        known[i].op = (struct engine_op){.name = "n",
                                         .name_len = 1,
                                         .kind = i == 2 ? HF_READ : HF_EXCLUSIVE,
                                         .units = 1,
                                         .capacity = i == 2 ? HF_CAPACITY_MAX : 1,
                                         .ttl_ms = 1000,
                                         .queue = i < 3,
                                         .label = "",
                                         .token = 1};
        memset(&known[i].op.attempt, (int)i, sizeof known[i].op.attempt);
        known[i].op.owner = known[i].op.attempt;
        redis_id_text(&known[i].op.attempt, known[i].id);
    }
    talked = known;
    line = 0;
    memset(dialled, 0, sizeof dialled);
    memset(up, 0, sizeof up);
    now = NANOS_OF_MS(1000000);
    split = SIZE_MAX;
    no_room = understood = hung_up = false;
}

/* Everybody hears of the end. */
static void close_redis(void)
{
    for (line = 0; line < CONNECTIONS; line++)
        go_down(HF_UNAVAILABLE);
    for (unsigned i = 0; i < ASKS; i++)
        MUST(!known[i].there || known[i].due == 0);
    forget(&known[1]);
    for (unsigned i = 0; i < ASKS; i++)
        known[i].there = false; /* close() forgets the others */
    redis_wire_engine.close(redis);
    for (line = 0; line < CONNECTIONS; line++)
        MUST(!up[line] && !dialled[line]);
}

/* Bytes up to the next letter, in pieces. */
static size_t feed_pieces(const char *bytes, size_t len)
{
    const char *tilde = memchr(bytes, '~', len);
    size_t run = tilde ? (size_t)(tilde - bytes) : len;
    for (size_t at = 0, size; at < run; at += size) {
        size = run - at < split ? run - at : split;
        feed(bytes + at, size);
    }
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    open_redis(size ? bytes[0] : 'i');
    for (size_t at = 1; at < size;) {
        at += feed_pieces(bytes + at, size - at);
        if (at + 1 < size)
            do_letter(bytes[at + 1]);
        at += 2;
    }
    close_redis();
    fuzz_accepted += understood;
    fuzz_refused += hung_up;
    return 0;
}
