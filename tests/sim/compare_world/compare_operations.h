/* compare_operations.h - random operations for both sides: single commands, small scripts, and the
 * scripts that ship. */
#pragma once
#include "engines/redis/scripts.h"
#include "sim/compare_world/compare_sides.h"

/* ---- A request ---- */

enum { WORDS = 48 };

struct request {
    char *words[WORDS]; /* each freed with the request */
    size_t lens[WORDS];
    unsigned count;
};

static void add_bytes(struct request *r, const char *bytes, size_t len)
{
    assert_true(r->count < WORDS);
    r->words[r->count] = malloc(len + 1);
    assert_non_null(r->words[r->count]);
    memcpy(r->words[r->count], bytes, len);
    r->words[r->count][len] = 0;
    r->lens[r->count++] = len;
}

static void add_word(struct request *r, const char *word)
{
    add_bytes(r, word, strlen(word));
}

static void add_number(struct request *r, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    add_word(r, text);
}

static void forget_request(struct request *r)
{
    for (unsigned i = 0; i < r->count; i++)
        free(r->words[i]);
    r->count = 0;
}

static void remember_request(const struct request *r, unsigned line)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    fprintf(to, "%lld line %u:", (long long)model_time(t.model), line);
    for (unsigned i = 0; i < r->count; i++) {
        fputc(' ', to);
        print_bytes(to, r->words[i], r->lens[i] < 200 ? r->lens[i] : 200);
    }
    fclose(to);
    remember(text);
}

/* Both sides execute it, fed in two pieces at a random place. */
static void send_request(const struct request *r, unsigned line)
{
    char *bytes = NULL;
    size_t size;
    FILE *to = open_memstream(&bytes, &size);
    assert_non_null(to);
    fprintf(to, "*%u\r\n", r->count);
    for (unsigned i = 0; i < r->count; i++) {
        fprintf(to, "$%zu\r\n", r->lens[i]);
        fwrite(r->words[i], 1, r->lens[i], to);
        fputs("\r\n", to);
    }
    fclose(to);
    size_t first = draw(4) ? size : draw(size);
    send_both(line, bytes, first);
    send_both(line, bytes + first, size - first);
    free(bytes);
}

/* ---- Words ---- */

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define ONE_OF(...) pick((const char *const[]){__VA_ARGS__, NULL})

static const char *pick(const char *const *words)
{
    unsigned count = 0;
    while (words[count])
        count++;
    return words[draw(count)];
}

static const char *key_of(char kind)
{
    if (draw(12) == 0 || kind == 'k')
        return ONE_OF("s0", "s1", "h0", "h1", "z0", "z1", "l0", "l1", "none");
    switch (kind) {
    case 's':
        return ONE_OF("s0", "s1");
    case 'h':
        return ONE_OF("h0", "h1");
    case 'z':
        return ONE_OF("z0", "z1");
    default:
        return ONE_OF("l0", "l1");
    }
}

static const char *argument(char kind)
{
    switch (kind) {
    case 'i':
        return ONE_OF("0", "1", "2", "5", "-1", "-2", "-5", "10", "9223372036854775807",
                      "-9223372036854775808", "x", "", "01", "+1", "1.5", "-0", " 1",
                      "9223372036854775808");
    case 'n': /* a number that is mostly a good one */
        return ONE_OF("0", "1", "2", "3", "4", "-1", "-2", "-3", "1", "2", "x");
    case 't':
        return ONE_OF("1", "2", "5", "20", "100", "1000", "30000", "3600000", "0", "-1", "x",
                      "9223372036854775807");
    case 'T': /* seconds to wait */
        return ONE_OF("0.001", "0.01", "0.5", "1", "0.0105", "-1", "x", "5");
    case 'd':
        return ONE_OF("0", "1", "2", "3", "1.5", "-1", "-2.5", "1735689600000001", "inf", "-inf",
                      "+inf", "x", "1e3", "nan");
    case 'b':
        return ONE_OF("-inf", "+inf", "inf", "0", "1", "2", "(1", "(2", "1.5", "(1735689600000001",
                      "x", "(x", "-1");
    case 'm':
        return ONE_OF("a", "b", "c", "d", "aa", "ab", "", "A", "\xff", "z");
    case 'v':
        return ONE_OF("v", "", "7", "-3", "9223372036854775807", "a longer value with blanks",
                      "x\r\ny", "0");
    default:
        return key_of(kind);
    }
}

/* Writes a template's words: "%x" is an argument of that kind, "%{a|b|}" one of these, an empty one
 * being no word. */
static void add_template(struct request *r, const char *template)
{
    char copy[256], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", template);
    while ((word = strsep(&rest, " "))) {
        if (word[0] != '%') {
            add_word(r, word);
        } else if (word[1] != '{') {
            add_word(r, argument(word[1]));
        } else {
            unsigned choices = 1;
            for (const char *c = word; *c; c++)
                choices += *c == '|';
            char *choice = NULL, *list = word + 2;
            list[strcspn(list, "}")] = 0;
            for (unsigned skip = (unsigned)draw(choices) + 1; skip; skip--)
                choice = strsep(&list, "|");
            if (*choice)
                add_word(r, choice);
        }
    }
}

/* ---- Commands ---- */

static const char *const templates[] = {
    "SET %s %v",
    "SET %s %v %{NX|XX|} PX %t",
    "SET %s %v PX %t %{NX|XX|GET|KEEPTTL|}",
    "SET %s %v %{GET|} %{NX|XX|KEEPTTL|}",
    "SET %k %v %{nx|xx|get|bogus|px|keepttl} %{|GET|nx|xx}",
    "SET %s %v EX %n",
    "SET %k",
    "GET %s",
    "get %k",
    "DEL %k %{|s0|z0|h0}",
    "UNLINK %k",
    "EXISTS %k %k",
    "TYPE %k",
    "PEXPIRE %k %t",
    "PEXPIRE %k %t %{NX|XX|GT|LT|}",
    "PEXPIRE %k %i %{NX|XX|GT|LT|bogus} %{NX|XX|GT|LT|}",
    "PTTL %k",
    "PERSIST %k",
    "INCRBY %s %i",
    "ZADD %z %d %m",
    "ZADD %z %n %m %n %m",
    "ZADD %z %{NX|XX|GT|LT|CH} %{CH|XX|NX|GT|} %d %m",
    "ZADD %z %{|NX|XX|GT|LT|CH} INCR %d %m",
    "ZADD %z %n",
    "ZREM %z %m %{|a|b}",
    "ZPOPMIN %z",
    "ZPOPMIN %z %n",
    "ZRANGE %z %n %n",
    "ZRANGE %z %i %i %{WITHSCORES|REV|bogus|} %{WITHSCORES|REV|}",
    "ZRANGE %z %b %b BYSCORE %{WITHSCORES|REV|} %{LIMIT|} %{0|1|} %{-1|1|2|x|}",
    "ZRANGE %z 0 -1 LIMIT 0 1",
    "ZRANGE y0 %{-|[a|(a|[b|x} %{+|[b|(b|-} BYLEX %{REV|} %{LIMIT|} %{0|1|} %{-1|1|2|x|}",
    "ZADD y0 0 %m",
    "ZREM y0 %m",
    "ZRANGEBYSCORE %z %b %b %{WITHSCORES|REV|}",
    "ZRANGEBYSCORE %z %b %b %{WITHSCORES|} LIMIT %n %n",
    "ZREMRANGEBYRANK %z %n %n",
    "ZREMRANGEBYSCORE %z %b %b",
    "ZRANK %z %m",
    "ZSCORE %z %m",
    "ZCARD %z",
    "HSET %h %m %v",
    "HSET %h %m %v %m %v",
    "HSET %h %m %v %m",
    "HGET %h %m",
    "HMGET %h %m %m",
    "HDEL %h %m %{|a|b}",
    "HGETALL %h",
    "HKEYS %h",
    "HLEN %h",
    "HINCRBY %h %m %i",
    "HEXISTS %h %m",
    "RPUSH %l %v",
    "RPUSH %l %v %m %m",
    "LPUSH %l %v %m",
    "LPOP %l",
    "LPOP %l %n",
    "LPOP %l %i",
    "LLEN %l",
    "LRANGE %l %n %n",
    "LRANGE %l %i %i",
    "LTRIM %l %n %n",
    "PUBLISH %{c0|c1|c2} %v",
    "SPUBLISH %{c0|c1|c2} %v",
    "PING %{hello|}",
    "PING a b",
    "ECHO %v",
    "ROLE",
    "TIME",
    "SELECT %{0|0|0|1|15|16|-1|x}",
    "SELECT 0",
    "CLIENT SETNAME %{some-name|}",
    "CLIENT SETNAME a\nb",
    "CLIENT %{BOGUS|ID} x",
    "client bogus",
    "WAIT 0 %{0|5|100|x|-1}",
    "%{BOGUS|bogus|HELP} a b",
    "SCRIPT bogus",
    "EVALSHA %{0123456789012345678901234567890123456789|x} 0",
    "EVAL",
    "SET lock:b %v %{NX|} PX %t",
    "DEL %{lock:a|lock:b|lock:c}",
    "FLUSHALL %{SYNC|ASYNC|bogus|bogus|bogus}",
};

/* These go to the line that may wait; a request behind one that waits is executed when that is
 * over. */
static const char *const waiting_templates[] = {
    "BLPOP %l %T",
    "BLMPOP %T 1 %l LEFT %{COUNT|} %{2|10|}",
    "BLMPOP %T %n %l %{LEFT|bogus}",
    "BLPOP %k %T",
    "GET %s",
};

/* Newer servers look at the keys in their order again when one of them gets something. */
static const char *const waiting_templates_of_redis_7_0[] = {
    "BLPOP %l %l %T",
    "BLMPOP %T 2 l0 l1 LEFT COUNT %n",
};

static const char *const hearing_templates[] = {
    "SUBSCRIBE %{c0|c1|box}", "SUBSCRIBE c0 c1",          "UNSUBSCRIBE %{c0|c1|c2}",
    "UNSUBSCRIBE c0 c1 box",  "PING %{hello|}",           "GET %s",
    "SSUBSCRIBE %{c0|c1}",    "SUNSUBSCRIBE %{c0|c1|c2}",
};

static void draw_waiting(struct request *r)
{
    bool of_7_0 = !t.words_differ && draw(4) == 0;
    add_template(
        r, of_7_0 ? waiting_templates_of_redis_7_0[draw(LENGTH(waiting_templates_of_redis_7_0))]
                  : waiting_templates[draw(LENGTH(waiting_templates))]);
}

/* ---- Small scripts ---- */

static const char *const small_scripts[] = {
    "return {1.9, -1.9, false, true, 'x', nil, 3}",
    "return {1, {2, {3, 'four'}}, {}}",
    "return 3.99",
    "return -0.5",
    "return 2^53",
    "return 'a' .. 1e15",
    "return tostring(1735689600000001)",
    "return string.format('%.0f', 1735689600000001)",
    "return {KEYS[1], ARGV[1], ARGV[2], #KEYS, #ARGV}",
    "return redis.call('GET', KEYS[1])",
    "return redis.pcall('GET', KEYS[1])",
    "local e = redis.pcall('GET', 'h0'); return type(e) == 'table' and e.err or e",
    "return redis.call('HGETALL', 'h0')",
    "return redis.call('HMGET', 'h0', 'a', 'b')",
    "return redis.call('SET', 's0', ARGV[1])",
    "return redis.call('SET', 's0', 1.5)",
    "return redis.call('SET', 's0', 1735689600000001)",
    "return redis.call('SET', 's0', 1e20)",
    "return redis.call('SET', 's0', 'x', 'NX', 'PX', 100)",
    "return redis.call('SET', 's0', 'x', 'GET')",
    "return redis.call('ZADD', 'z0', 1735689600000001, 'a')",
    "return redis.call('ZPOPMIN', 'z0')",
    "return redis.call('ZRANGE', 'z0', 0, -1, 'WITHSCORES')",
    "return redis.call('PEXPIRE', KEYS[1], 10)",
    "return {redis.call('PTTL', KEYS[1]), redis.call('EXISTS', KEYS[1])}",
    "return redis.call('TIME')",
    "return redis.call('RPUSH', 'l0', 'from a script', 2)",
    "redis.call('RPUSH', 'l0', 'one') redis.call('RPUSH', 'l1', 'two') return redis.call('LPOP', "
    "'l0')",
    "return redis.call('PUBLISH', 'c0', 'from a script')",
    "return redis.call('BLMPOP', 0, 1, 'l0', 'LEFT')",
    "return redis.call('TYPE', KEYS[1])",
    "return redis.call('TYPE', KEYS[1]).ok",
    "return redis.error_reply('FOO')",
    "return redis.error_reply('-FOO bar')",
    "return redis.error_reply('My own words')",
    "return redis.status_reply('fine')",
    "return {ok = 'fine'}",
    "return {err = 'MINE own'}",
    "error('x')",
    "error({err = 'MINE own'})",
    "local a = nil; return a.b",
    "\n\nreturn zzz",
    "zzz = 1",
    "redis.call()",
    "redis.call({})",
    "redis.call('GET')",
    "redis.call('NOPE')",
    "return redis.pcall('NOPE')",
    "return redis.call('SUBSCRIBE', 'c0')",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('SCRIPT', 'LOAD', 'return 1')",
    "return redis.call('SELECT', 3)",
    "redis.call('SET', 's0', '1') redis.call('GET', 'h0') return 1",
    "redis.call('DEL', 's1') redis.call('SET', 's1', 'after a write')",
    "return redis.call('INCRBY', 's0', 1)",
    "#!lua\nreturn redis.call('SET', 's0', 'y')",
    "#!lua flags=allow-oom\nreturn redis.call('SET', 's0', 'z')",
    "#!lua flags=no-writes\nreturn redis.call('SET', 's0', 'z')",
    "#!lua flags=no-writes,allow-stale\nreturn redis.call('GET', 's0')",
    "#!lua flags=bogus\nreturn 1",
    "#!lux\nreturn 1",
    "#!lua bogus\nreturn 1",
    "#!lua",
    "x x",
    "return pcall(redis.call, 'GET', 'h0')",
    "return select(2, pcall(redis.call, 'GET', 'h0')).err",
    "return {string.byte('~'), math.ceil(1.2), math.max(3, 7), ('00000' .. 12):sub(-6)}",
    "local r = {} for w in ('a b c'):gmatch('%S+') do r[#r + 1] = w end return r",
    "return tonumber('12x')",
    "return {tonumber('1735689600000001') + 1}",
};

/* Newer servers allow more, or say it differently. */
static const char *const scripts_of_redis_7_0[] = {
    "return redis.call('BLPOP', 'l0', 0)",
    "return redis.call('WAIT', 0, 0)",
    "return redis.pcall('GET', KEYS[1]).err",
};

static void draw_small_script(struct request *r)
{
    bool of_7_0 = !t.words_differ && draw(8) == 0;
    add_word(r, "EVAL");
    add_word(r, of_7_0 ? scripts_of_redis_7_0[draw(LENGTH(scripts_of_redis_7_0))]
                       : small_scripts[draw(LENGTH(small_scripts))]);
    if (draw(30) == 0) {
        add_word(r, argument('i'));
        return;
    }
    add_word(r, "1");
    add_word(r, key_of('k'));
    if (draw(2))
        add_word(r, argument('v'));
}

/* ---- The scripts that ship ---- */

/* Which two waiters acquire looks at is a matter of luck, and the two sides draw differently. So
 * that they end up with the same data, the library looks at all of them. */
static const char draws[] = "redis.call('HRANDFIELD', lock.waiters, 2, 'WITHVALUES')",
                  draws_straight[] = "redis.call('HRANDFIELD', waiters, '-2', 'WITHVALUES')",
                  looks[] = "redis.call('HGETALL', lock.waiters)",
                  looks_straight[] = "redis.call('HGETALL', waiters)";

static char *shipped[SCRIPT_TEXTS], shas[SCRIPT_TEXTS][41];

/* The text stays as long as it was. */
static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_true(strlen(to) <= strlen(from));
    memset(at, ' ', strlen(from));
    memcpy(at, to, strlen(to));
}

static void prepare_scripts(void)
{
    for (unsigned i = 0; i < SCRIPT_TEXTS; i++) {
        if (asprintf(&shipped[i], "%s%s", redis_script_texts[i].head, redis_script_body) < 0)
            fail_msg("no memory");
        replace(shipped[i], draws, looks);
        replace(shipped[i], draws_straight, looks_straight);
    }
}

static void forget_scripts(void)
{
    for (unsigned i = 0; i < SCRIPT_TEXTS; i++)
        free(shipped[i]);
}

/* The lock, and so many of its companions. */
static void add_lock_keys(struct request *r, unsigned companions)
{
    static const char letters[] = "tqwhp";
    const char *lock = ONE_OF("lock:a", "lock:a", "lock:b", "lock:c");
    char key[32];
    add_number(r, 1 + companions);
    add_word(r, lock);
    for (const char *letter = letters; letter < letters + companions; letter++) {
        snprintf(key, sizeof key, "{%s}:%c", lock, *letter);
        add_word(r, key);
    }
}

static const char *draw_id(void)
{
    return ONE_OF("AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCCCCCCCC",
                  "DDDDDDDDDDDDDDDDDDDDDD", "EEEEEEEEEEEEEEEEEEEEEE", "FFFFFFFFFFFFFFFFFFFFFF");
}

static const char *draw_ttl(void)
{
    return ONE_OF("30", "100", "1000", "30000");
}

/* Past holds: how many are kept, and for how many ms. */
static void add_history(struct request *r)
{
    add_word(r, ONE_OF("0", "0", "3"));
    add_word(r, "60000");
}

/* One that somebody may hold with. */
static void draw_token(struct request *r)
{
    add_number(r, model_time(t.model) - (int64_t)draw(3));
}

static long long draw_least_token(void)
{
    return draw(5) ? 0 : (long long)(model_time(t.model) + (int64_t)draw(2000000) - 1000000);
}

/* An argument of several words. */
__attribute__((format(printf, 2, 3))) static void add_terms(struct request *r, const char *format,
                                                            ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    add_word(r, text);
}

static void draw_ask(struct request *r)
{
    const char *kind = ONE_OF("e", "e", "e", "s", "s", "r", "w");
    bool semaphore = *kind == 's', shared = *kind == 'r' || *kind == 'w';
    const char *big = "1048576";
    add_word(r, draw_id());
    add_word(r, draw_ttl());
    add_word(r, ONE_OF("0 b 17 host label", "0 b 17 host label", "0 b1 17 host label",
                       "0 d2 17 host label"));
    add_terms(r, "%s %s %s %lld %s %s", kind, ONE_OF("-", "-", "owner-1", "owner-2"),
              ONE_OF("0", "0", "3"), draw_least_token(),
              semaphore      ? ONE_OF("1", "2", "4")
              : *kind == 'w' ? big
                             : "1",
              semaphore ? ONE_OF("3", "3", "2")
              : shared  ? big
                        : "1");
    add_terms(r, "60000 %s %s %s %s 50 5000 %s 10 20 %s %s", ONE_OF("0", "1", "1"),
              ONE_OF("0", "1"), ONE_OF("0", "0", "0", "1"), ONE_OF("ibox", "pbox", "-"),
              ONE_OF("20", "200"), ONE_OF("100", "2"), ONE_OF("000", "000", "---"));
}

static void draw_shipped_arguments(struct request *r, unsigned script)
{
    switch (script) {
    case SCRIPT_ACQUIRE:
        draw_ask(r);
        break;
    case SCRIPT_EXTEND:
        add_word(r, draw_id());
        add_word(r, draw(4) ? draw_ttl() : "0");
        if (draw(2))
            add_terms(r, "%s 60000 %s %lld", ONE_OF("0", "3"), ONE_OF("0", "0", "1"),
                      draw_least_token());
        break;
    case SCRIPT_RELEASE:
        add_word(r, draw_id());
        if (draw(3) == 0)
            break; /* and the usual rest is not said */
        add_word(r, ONE_OF("-", "box"));
        if (draw(4)) /* the last word: it is taken back */
            add_terms(r, "%s %s %s 60000 %s", ONE_OF("r", "r", "l", "x", "u"),
                      ONE_OF("0", "0", "60000"), ONE_OF("0", "0", "3"),
                      draw(4) ? "-" : ONE_OF("0", "1", "2"));
        break;
    case SCRIPT_CONVERT:
        add_word(r, draw_id());
        add_word(r, ONE_OF("u", "d"));
        add_history(r);
        if (draw(2)) {
            add_word(r, ONE_OF("client-1", "client-2"));
            add_word(r, ONE_OF("0", "1", "2"));
        }
        break;
    case SCRIPT_BREAK:
        draw_token(r);
        add_history(r);
        break;
    case SCRIPT_RESIZE:
        add_word(r, ONE_OF("1", "2", "3", "5"));
        break;
    default:
        add_word(r, ONE_OF("n", "p"));
        add_word(r, ONE_OF("0", "0", "1"));
        add_word(r, ONE_OF("2000", "2000", "2"));
    }
}

static void draw_shipped(struct request *r)
{
    static const unsigned often[] = {SCRIPT_ACQUIRE, SCRIPT_ACQUIRE, SCRIPT_ACQUIRE, SCRIPT_EXTEND,
                                     SCRIPT_RELEASE, SCRIPT_RELEASE, SCRIPT_INSPECT};
    unsigned script = draw(5) ? often[draw(7)] : (unsigned)draw(SCRIPT_QUORUM_ACQUIRE);
    bool by_script = draw(3) == 0;
    char function[64];
    snprintf(function, sizeof function, "%s_%s", redis_library_name,
             redis_script_verbs[script].name);
    add_word(r, by_script ? "EVALSHA" : "FCALL");
    add_word(r, by_script ? shas[redis_script_verbs[script].text] : function);
    add_lock_keys(r, draw(2) ? 1 : 5); /* one: as on a single server; five: as in a cluster */
    if (by_script)
        add_word(r, redis_script_verbs[script].name);
    draw_shipped_arguments(r, script);
}
