/* model_check.c - the model of a server by itself: what no comparison with a real one can show, the
 * faults that it plays and what it costs. */
#include "lib/sentence.h"
#include "sim/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct redis_model *model;
static unsigned line;

static int open_model(void **state)
{
    (void)state;
    model = model_open(1);
    line = model_connect(model);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

/* Words are separated by blanks; a comma in a word stands for a blank. */
static void send_on(unsigned to, const char *text)
{
    char copy[512], bytes[1024], *rest = copy, *word;
    size_t len = 0;
    unsigned words = 1;
    snprintf(copy, sizeof copy, "%s", text);
    for (const char *c = copy; *c; c++)
        words += *c == ' ';
    len += (size_t)snprintf(bytes + len, sizeof bytes - len, "*%u\r\n", words);
    while ((word = strsep(&rest, " "))) {
        for (char *c = word; (c = strchr(c, ','));)
            *c = ' ';
        len +=
            (size_t)snprintf(bytes + len, sizeof bytes - len, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    model_feed(model, to, bytes, len);
}

static void expect_on(unsigned from, const char *wanted)
{
    size_t len;
    const char *bytes = model_take(model, from, &len);
    char text[1024];
    snprintf(text, sizeof text, "%.*s", (int)len, len ? bytes : "");
    assert_string_equal(text, wanted);
}

static void answers(const char *request, const char *wanted)
{
    send_on(line, request);
    expect_on(line, wanted);
}

static void test_split(void **state)
{
    static const char bytes[] =
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nx\r\ny\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    (void)state;
    for (size_t cut = 0; cut < sizeof bytes; cut++) {
        model_feed(model, line, bytes, cut);
        model_feed(model, line, bytes + cut, sizeof bytes - 1 - cut);
        expect_on(line, "+OK\r\n$4\r\nx\r\ny\r\n");
    }
}

static void test_nonsense(void **state)
{
    (void)state;
    model_feed(model, line, "PING\r\n", 6);
    expect_on(line,
              "-ERR Protocol error: the model takes requests as arrays of bulk strings only\r\n");
    assert_false(model_connected(model, line));
}

static void test_expiry(void **state)
{
    int64_t begin = model_time(model);
    (void)state;
    answers("SET a b PX 10", "+OK\r\n");
    model_time_set(model, begin + 10999);
    answers("GET a", "$1\r\nb\r\n");
    model_time_set(model, begin + 11000);
    answers("GET a", "$-1\r\n");
}

static void test_restart(void **state)
{
    (void)state;
    answers("SET a b", "+OK\r\n");
    answers("EVAL return,1 0", ":1\r\n");
    answers("SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db x", "*2\r\n:1\r\n:0\r\n");
    model_restart(model, true);
    assert_false(model_connected(model, line));
    line = model_connect(model);
    answers("GET a", "$1\r\nb\r\n");
    answers("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
            "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    model_restart(model, false);
    line = model_connect(model);
    answers("GET a", "$-1\r\n");
}

static void run_id(char into[41])
{
    size_t len;
    send_on(line, "INFO server");
    const char *bytes = model_take(model, line, &len), *field = memmem(bytes, len, "run_id:", 7);
    assert_non_null(field);
    memcpy(into, field + 7, 40);
    into[40] = 0;
}

static void test_run_id(void **state)
{
    char before[41], same[41], after[41];
    (void)state;
    run_id(before);
    run_id(same);
    assert_string_equal(before, same);
    model_restart(model, true);
    line = model_connect(model);
    run_id(after);
    assert_string_not_equal(before, after);
}

static void test_stale_replica(void **state)
{
    (void)state;
    answers("SET a old", "+OK\r\n");
    answers("RPUSH l x", ":1\r\n");
    model_snapshot(model);
    answers("SET a new", "+OK\r\n");
    answers("RPUSH l y", ":2\r\n");
    answers("SET b new", "+OK\r\n");
    model_promote(model);
    assert_false(model_connected(model, line));
    line = model_connect(model);
    answers("GET a", "$3\r\nold\r\n");
    answers("LLEN l", ":1\r\n");
    answers("EXISTS b", ":0\r\n");
}

static void test_blocked(void **state)
{
    int64_t begin = model_time(model);
    unsigned other = model_connect(model);
    (void)state;
    assert_true(model_next_event(model) == MODEL_NEVER);
    answers("BLPOP l 0.05", "");
    answers("PING", ""); /* behind it */
    assert_true(model_next_event(model) == begin + 51000);
    send_on(other, "RPUSH l x");
    assert_int_equal(model_ready(model), line);
    expect_on(other, ":1\r\n");
    expect_on(line, "*2\r\n$1\r\nl\r\n$1\r\nx\r\n+PONG\r\n");
    assert_int_equal(model_ready(model), -1);
    answers("BLPOP l 0.05", "");
    model_time_set(model, begin + 50999);
    model_advance(model);
    expect_on(line, "");
    model_time_set(model, model_next_event(model));
    model_advance(model);
    expect_on(line, "*-1\r\n");
}

static void test_gone_while_blocked(void **state)
{
    unsigned other = model_connect(model);
    (void)state;
    send_on(other, "BLPOP l 0");
    model_disconnect(model, other);
    answers("RPUSH l x", ":1\r\n");
    answers("LLEN l", ":1\r\n");
}

static void test_wait(void **state)
{
    (void)state;
    answers("WAIT 1 100", "");
    model_time_set(model, model_time(model) + 102000);
    model_advance(model);
    answers("WAIT 0 100", ":0\r\n:0\r\n");
    answers("WAIT 1 0", "");
    model_replicas(model, 2);
    answers("WAIT 1 100", ":2\r\n:2\r\n");
}

static void test_same_seed(void **state)
{
    char first[256], again[256];
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        size_t len;
        model_reset(model, 7);
        line = model_connect(model);
        answers("HSET h a 1 b 2 c 3 d 4 e 5 f 6", ":6\r\n");
        send_on(line, "HRANDFIELD h 3");
        const char *bytes = model_take(model, line, &len);
        snprintf(i ? again : first, sizeof first, "%.*s", (int)len, bytes);
    }
    assert_string_equal(first, again);
}

static void test_compaction(void **state)
{
    (void)state;
    answers("SET keep this PX 600000", "+OK\r\n");
    answers("ZADD z 2 b 1 a", ":2\r\n");
    for (unsigned i = 0; i < 100000; i++)
        answers("SET other a-value-of-some-length-that-is-thrown-away-many-times", "+OK\r\n");
    answers("GET keep", "$4\r\nthis\r\n");
    answers("PTTL keep", ":600000\r\n");
    answers("ZRANGE z 0 -1", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
}

/* ---- What the model does faster than Lua, it does as Lua does it ---- */

static void evaluate(const char *script, const char *wanted)
{
    char bytes[4096];
    int len = snprintf(bytes, sizeof bytes, "*3\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n0\r\n",
                       strlen(script), script);
    model_feed(model, line, bytes, (size_t)len);
    expect_on(line, wanted);
}

#define DRAW "local x = 1 local function draw(n) x = (x * 16807) % 2147483647 return x % n + 1 end "

/* string.find() has the same captures, and is Lua's own; where a pattern has nothing special, it is
 * no pattern to it.
 */
static void test_match(void **state)
{
    (void)state;
    evaluate(DRAW
             "local pieces = {'%d', '%S', '%a', '%s', '.', ' ', 'a', '~', '1', '(%d', '(%S', '(.', "
             "')', ') ', "
             "'$', '-', '%%', "
             "'[a1]', '()', '(', '^'} "
             "local times = {'', '', '+', '*', '?', '-'} "
             "local letters = {'a', 'b', '1', '2', ' ', '~', '%', '-', '\\n', '\\0'} "
             "local matched = 0 "
             "for i = 1, 20000 do "
             "  local p, s = draw(2) == 1 and '^' or '', '' "
             "  for j = 1, draw(6) do p = p .. pieces[draw(#pieces)] .. times[draw(#times)] end "
             "  for j = 1, draw(9) - 1 do s = s .. letters[draw(#letters)] end "
             "  if not p:find('[%^%$%*%+%?%.%(%[%%%-]') then p = p .. '.?' end "
             "  local one, other = {pcall(string.match, s, p)}, {pcall(string.find, s, p)} "
             "  if other[1] and other[2] then "
             "    matched = matched + 1 "
             "    local from, to = other[2], other[3] "
             "    table.remove(other, 2) table.remove(other, 2) "
             "    if #other == 1 then other[2] = s:sub(from, to) end "
             "  end "
             "  if #one ~= #other then return p .. '|' .. s end "
             "  for j = 1, #one do "
             "    local same = one[j] == other[j] or not one[1] "
             "    if not same then return p .. '|' .. s end "
             "  end "
             "end "
             "return matched > 2000",
             ":1\r\n");
}

/* %G and a point are for Lua's own. */
static void test_numbers(void **state)
{
    (void)state;
    evaluate(
        DRAW
        "for i = 1, 20000 do "
        "  local text = '' "
        "  for j = 1, draw(20) do text = text .. (draw(10) - 1) end "
        "  local n = tonumber(text .. '.0') "
        "  if tonumber(text) ~= n or text + 0 ~= n then return text end "
        "  for _, m in ipairs({n, -n, n / 8, n % 1000, -(n % 10)}) do "
        "    local one, other = m .. '', ('%.14G'):format(m):lower() "
        "    if one ~= other then return one .. '|' .. other end "
        "    if ('%.0f'):format(m) ~= ('%1.0f'):format(m) then return text end "
        "  end "
        "end "
        "return {'' .. 99999999999999, '' .. 100000000000000, '' .. -0, '' .. 0.5, '' .. 1 / 0}",
        "*5\r\n$14\r\n99999999999999\r\n$5\r\n1e+14\r\n$1\r\n0\r\n$3\r\n0.5\r\n$3\r\ninf\r\n");
}

int main(void)
{
#define ROW(text, function)                                                                        \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = open_model,                             \
        .teardown_func = close_model                                                               \
    }
    const struct CMUnitTest tests[] = {
        ROW("a request may arrive in two pieces, cut anywhere", test_split),
        ROW("what is no request is refused, and the connection ends", test_nonsense),
        ROW("a key is gone in the millisecond after its last", test_expiry),
        ROW("a restart forgets connections and scripts, and data only if told to", test_restart),
        ROW("a restarted server has a new run id", test_run_id),
        ROW("a promoted replica has the data of the moment at which it was copied",
            test_stale_replica),
        ROW("a blocked request is served, or runs out", test_blocked),
        ROW("a blocked connection that is gone gets nothing", test_gone_while_blocked),
        ROW("WAIT waits for replicas, and no longer than it was told", test_wait),
        ROW("the same seed draws the same", test_same_seed),
        ROW("what is kept survives the throwing away of all else", test_compaction),
        ROW("match() finds what Lua finds", test_match),
        ROW("numbers become texts, and texts numbers, as in Lua", test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
