/* history_check.c - judges what clients of some locks wrote down, and knows nothing else of them (G35, G36).
 *
 *     history_check LOG     0: no promise was broken, and a summary; 1: one was, and which
 *     history_check         proves that it finds what is wrong with planted histories
 *
 * A line of the log is an event; times are nanoseconds of a clock that all share:
 *
 *     grant LEASE TOKEN TIME                its holder believes in it from here on;
 *     ... ASKED REACH                       it began to ask then, and believes for REACH at most without the server;
 *     ... ASKED REACH LOCK UNITS CAPACITY   it has so many units of that lock. Without: all of the only one
 *     valid LEASE TOKEN TIME                its holder saw at that time, or later, that it is good
 *     write LEASE TOKEN TIME yes|no         what the fence said to a write, in the order of the fence
 *     end LEASE TOKEN TIME                  its holder does not believe in it any more
 *     call CALL 0 TIME                      a call into the library begins,
 *     return CALL 0 TIME LATEST             and returns, which it should by LATEST
 *     dead PREFIX 0 TIME                    who made the calls that begin with PREFIX was killed: one may not return
 *     forgot WHY BEHIND FROM TO             between these times the only server lost data or its clock went forward.
 *                                           BEHIND is 1 if its clock showed less then than it had shown before
 *
 * LEASE, CALL, WHY and LOCK are any words. What is checked: never were more units of a lock good than it has; who is
 * alone has a higher token than all who were granted before, and who comes after it a higher one than that; the fence
 * admitted in the order of the tokens; a write while the lease was seen to be good, before and after it, was admitted;
 * every call returned once and in time. A lease that was asked for before the server forgot it may be good beside
 * others, but for its REACH only, and without the counter tokens begin again at a clock that is behind. A last line
 * that is cut off is of a process that was killed while it wrote. */
#include "unit/sentence.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct lease {
    char name[48];
    uint64_t token;
    int64_t from, until; /* it was seen to be good at both, and so in between */
    int64_t asked, reach;
    char lock[16];
    unsigned units, capacity;
    bool ended;
    int64_t refused_at; /* a write that the fence refused; 0: none */
};

struct call {
    char name[48];
    bool returned;
};

struct forgetting {
    bool behind;
    int64_t from, to;
};

struct dead {
    char prefix[48];
};

/* A list of such things that grows. */
#define LIST(type)                                                                                                     \
    struct {                                                                                                           \
        struct type *at;                                                                                               \
        size_t count, room;                                                                                            \
    }

static struct {
    LIST(lease) leases;
    LIST(call) calls;
    LIST(forgetting) forgot;
    LIST(dead) dead;
    unsigned writes, refusals, excused;
    int64_t latest_by; /* how close to its deadline a call returned */
    uint64_t admitted; /* the highest token so far */
} history = {.latest_by = INT64_MAX};

static unsigned violations;

#define VIOLATION(...) (violations++ < 20 ? (void)(fprintf(stderr, __VA_ARGS__), fputc('\n', stderr)) : (void)0)

/* ---- Reading ---- */

static void *grown(void *at, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return at;
    *room = *room ? *room * 2 : 1024;
    at = reallocarray(at, *room, size);
    if (!at)
        abort();
    return at;
}

/* A new last one of a list. */
#define ADDED(list)                                                                                                    \
    ((list).at = grown((list).at, (list).count, &(list).room, sizeof *(list).at), &(list).at[(list).count++])

/* What is looked for is mostly among the last. */
#define FIND(list, wanted)                                                                                             \
    for (size_t i = (list).count; i-- > 0;)                                                                            \
        if (strcmp((list).at[i].name, wanted) == 0)                                                                    \
            return &(list).at[i];                                                                                      \
    return NULL

static struct lease *find_lease(const char *name)
{
    FIND(history.leases, name);
}

static struct call *find_call(const char *name)
{
    FIND(history.calls, name);
}

static bool hear_grant(const char *name, uint64_t token, int64_t time, const char *rest)
{
    if (find_lease(name))
        VIOLATION("%s: granted twice", name);
    struct lease *l = ADDED(history.leases);
    *l = (struct lease){.token = token, .from = time, .until = time, .asked = time, .units = 1, .capacity = 1};
    snprintf(l->name, sizeof l->name, "%s", name);
    int words =
        sscanf(rest, "%" SCNd64 " %" SCNd64 " %15s %u %u", &l->asked, &l->reach, l->lock, &l->units, &l->capacity);
    return !*rest || words == 2 || words == 5;
}

static bool hear_call(const char *name)
{
    if (find_call(name))
        VIOLATION("%s: called twice", name);
    struct call *c = ADDED(history.calls);
    *c = (struct call){.returned = false};
    snprintf(c->name, sizeof c->name, "%s", name);
    return true;
}

static bool hear_return(const char *name, int64_t time, const char *rest)
{
    int64_t latest;
    struct call *c = find_call(name);
    if (sscanf(rest, "%" SCNd64, &latest) != 1)
        return false;
    if (!c || c->returned)
        VIOLATION("%s: returned %s", name, c ? "twice" : "without a call");
    else
        c->returned = true;
    if (time > latest)
        VIOLATION("%s: returned %" PRId64 " us after its deadline", name, (time - latest) / 1000);
    history.latest_by = latest - time < history.latest_by ? latest - time : history.latest_by;
    return true;
}

static bool hear_dead(const char *prefix)
{
    struct dead *d = ADDED(history.dead);
    snprintf(d->prefix, sizeof d->prefix, "%s", prefix);
    return true;
}

static bool hear_forgot(uint64_t behind, int64_t from, const char *rest)
{
    struct forgetting *f = ADDED(history.forgot);
    *f = (struct forgetting){.behind = behind, .from = from};
    return sscanf(rest, "%" SCNd64, &f->to) == 1;
}

/* The fence refused a write of a lease that was good before it; now it turns out to have been good after it, too. */
static void check_refusal(struct lease *l)
{
    if (l->refused_at)
        VIOLATION("%s: the fence refused token %" PRIu64 ", which was good", l->name, l->token);
    l->refused_at = 0;
}

static void hear_write(struct lease *l, int64_t time, const char *said)
{
    bool admitted = strcmp(said, "yes") == 0;
    history.writes++;
    history.refusals += !admitted;
    if (admitted && l->token < history.admitted)
        VIOLATION("%s: the fence admitted token %" PRIu64 " behind %" PRIu64, l->name, l->token, history.admitted);
    if (admitted && l->token > history.admitted)
        history.admitted = l->token;
    if (!admitted)
        l->refused_at = time;
}

/* Of a lease that was granted. */
static bool hear_of_lease(struct lease *l, const char *what, int64_t time, const char *rest)
{
    if (strcmp(what, "valid") == 0) {
        if (l->ended)
            VIOLATION("%s: good after its end", l->name);
        check_refusal(l);
        l->until = time > l->until ? time : l->until;
    } else if (strcmp(what, "write") == 0 && *rest) {
        hear_write(l, time, rest);
    } else if (strcmp(what, "end") == 0) {
        l->ended = true;
    } else {
        return false;
    }
    return true;
}

static bool hear(char *line)
{
    char what[16], name[48];
    uint64_t token;
    int64_t time;
    int length = 0;
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%15s %47s %" SCNu64 " %" SCNd64 " %n", what, name, &token, &time, &length) < 4)
        return false;
    const char *rest = line + length;
    if (strcmp(what, "grant") == 0)
        return hear_grant(name, token, time, rest);
    if (strcmp(what, "call") == 0)
        return hear_call(name);
    if (strcmp(what, "return") == 0)
        return hear_return(name, time, rest);
    if (strcmp(what, "dead") == 0)
        return hear_dead(name);
    if (strcmp(what, "forgot") == 0)
        return hear_forgot(token, time, rest);
    struct lease *l = find_lease(name);
    if (l && l->token == token)
        return hear_of_lease(l, what, time, rest);
    VIOLATION("%s: %s without a grant of token %" PRIu64, name, what, token);
    return true;
}

/* ---- Judging ---- */

static int by_start(const void *a, const void *b)
{
    const struct lease *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Did the server forget it, and did it end in time after that? */
static bool was_forgotten(const struct lease *l)
{
    for (size_t i = 0; i < history.forgot.count; i++) {
        const struct forgetting *f = &history.forgot.at[i];
        if (l->asked <= f->to && l->until >= f->from && l->until <= f->to + l->reach)
            return true;
    }
    return false;
}

/* How many units of b's lock a has while b begins. What the server forgot is excused, and counts for none. */
static unsigned units_beside(const struct lease *a, const struct lease *b)
{
    if (a->until < b->from || strcmp(a->lock, b->lock) != 0)
        return 0;
    if (!was_forgotten(a) && !was_forgotten(b))
        return a->units;
    history.excused++;
    return 0;
}

/* The most are good at the beginning of one of them. */
static void check_together(const struct lease *before_it, const struct lease *b)
{
    unsigned units = b->units;
    const struct lease *last = NULL;
    for (const struct lease *a = before_it; a < b; a++) {
        unsigned more = units_beside(a, b);
        units += more;
        last = more ? a : last;
    }
    if (units > b->capacity && last)
        VIOLATION("%s (token %" PRIu64 ") was good until %" PRId64 ", and %s (token %" PRIu64 ") from %" PRId64
                  " on: %" PRId64 " us together, %u units of %u",
                  last->name, last->token, last->until, b->name, b->token, b->from, (last->until - b->from) / 1000,
                  units, b->capacity);
}

/* Did the counter begin again, at a clock that was behind, between these two? */
static bool counter_was_lost(const struct lease *a, const struct lease *b)
{
    for (size_t i = 0; i < history.forgot.count; i++) {
        const struct forgetting *f = &history.forgot.at[i];
        if (f->behind && a->asked <= f->to && b->until >= f->from)
            return true;
    }
    return false;
}

static bool is_alone(const struct lease *l)
{
    return l->units == l->capacity;
}

/* Those that share may hear of their grants in another order than that in which they were made. */
static bool must_rise(const struct lease *before_it, const struct lease *l)
{
    return strcmp(before_it->lock, l->lock) == 0 && (is_alone(before_it) || is_alone(l));
}

static void check_token(const struct lease *before_it, const struct lease *l)
{
    if (must_rise(before_it, l) && l->token <= before_it->token && !counter_was_lost(before_it, l) && !was_forgotten(l))
        VIOLATION("%s has token %" PRIu64 ", but %s before it had %" PRIu64, l->name, l->token, before_it->name,
                  before_it->token);
}

static void check_leases(void)
{
    const struct lease *at = history.leases.at;
    if (history.leases.count)
        qsort(history.leases.at, history.leases.count, sizeof *at, by_start);
    for (size_t i = 0; i < history.leases.count; i++) {
        check_together(at, &at[i]);
        for (size_t j = 0; j < i; j++)
            check_token(&at[j], &at[i]);
    }
}

static bool is_of_dead(const char *name)
{
    for (size_t i = 0; i < history.dead.count; i++)
        if (strncmp(name, history.dead.at[i].prefix, strlen(history.dead.at[i].prefix)) == 0)
            return true;
    return false;
}

static void check_calls(void)
{
    for (size_t i = 0; i < history.calls.count; i++)
        if (!history.calls.at[i].returned && !is_of_dead(history.calls.at[i].name))
            VIOLATION("%s: never returned", history.calls.at[i].name);
}

static void summarize(void)
{
    printf("%zu leases, %u writes, %u of them refused by the fence: %u violations\n", history.leases.count,
           history.writes, history.refusals, violations);
    if (history.calls.count)
        printf("%zu calls, the closest to its deadline by %" PRId64 " ms; %zu times the server forgot, %u times two "
               "were good for a while after it\n",
               history.calls.count, history.latest_by / 1000000, history.forgot.count, history.excused);
}

static int judge(const char *path)
{
    char line[256];
    FILE *log = fopen(path, "re");
    if (!log) {
        perror(path);
        return 2;
    }
    while (fgets(line, sizeof line, log)) {
        bool whole = strchr(line, '\n') != NULL;
        if (whole && !hear(line)) {
            fprintf(stderr, "%s: not an event: %s\n", path, line);
            violations++;
        }
    }
    fclose(log);
    check_leases();
    check_calls();
    summarize();
    free(history.leases.at);
    free(history.calls.at);
    free(history.forgot.at);
    free(history.dead.at);
    return violations ? 1 : 0;
}

/* ---- Planted histories ---- */

struct planted {
    const char *log;
    const char *complaint; /* NULL: there is nothing wrong */
};

static const char good[] = "grant a 10 100\nvalid a 10 150\nwrite a 10 160 yes\nvalid a 10 170\nend a 10 180\n"
                           "grant b 20 200\nwrite b 20 220 yes\nwrite a 10 230 no\nvalid b 20 240\nend b 20 250\n";

/* Judged by the program itself, as any other log is. */
static void check_planted(const struct planted *planted)
{
    char path[] = "/tmp/hf-history-XXXXXX", text[4096] = "";
    int said[2], fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, planted->log, strlen(planted->log)), (ssize_t)strlen(planted->log));
    close(fd);
    assert_int_equal(pipe(said), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(said[1], 1);
        dup2(said[1], 2);
        execl("/proc/self/exe", "history_check", path, (char *)NULL);
        _exit(70);
    }
    close(said[1]);
    size_t len = 0;
    for (ssize_t n; (n = read(said[0], text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)n;
    close(said[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    unlink(path);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != (planted->complaint ? 1 : 0) ||
        (planted->complaint && !strstr(text, planted->complaint)))
        fail_msg("exit %d instead of %s:\n%s", WEXITSTATUS(status), planted->complaint ? planted->complaint : "praise",
                 text);
}

static void test_good(void **state)
{
    (void)state;
    check_planted(&(struct planted){good, NULL});
    check_planted(&(struct planted){"grant a 10 100\nvalid a 10 1", NULL}); /* killed while it wrote */
    check_planted(&(struct planted){"", NULL});
}

static void test_overlap(void **state)
{
    (void)state;
    check_planted(&(struct planted){"grant a 10 100\nvalid a 10 201\ngrant b 20 200\n", "together"});
    check_planted(&(struct planted){"grant a 10 100\ngrant b 20 120\nvalid b 20 130\ngrant c 30 200\nvalid a 10 210\n",
                                    "a (token 10) was good until 210, and c"});
}

static void test_units(void **state)
{
    (void)state;
    check_planted(&(struct planted){
        "grant a 10 100 90 9 s 2 3\ngrant b 20 110 90 9 s 1 3\ngrant c 30 120 90 9 r 3 3\nvalid a 10 200\n"
        "valid b 20 200\nvalid c 30 200\n",
        NULL});
    check_planted(&(struct planted){
        "grant a 10 100 90 9 s 2 3\ngrant b 20 110 90 9 s 1 3\ngrant c 30 120 90 9 s 1 3\nvalid a 10 200\n"
        "valid b 20 200\n",
        "4 units of 3"});
    check_planted(&(struct planted){
        "grant a 10 100 90 9 r 1 9\ngrant b 20 110 90 9 r 1 9\nvalid b 20 130\ngrant w 30 120 90 9 r 9 9\n",
        "10 units of 9"});
    check_planted(&(struct planted){"grant a 20 100 90 9 r 1 9\ngrant b 10 110 90 9 r 1 9\n", NULL});
    check_planted(&(struct planted){"grant a 20 100 90 9 r 1 9\ngrant w 10 110 90 9 r 9 9\n", "w has token 10"});
    check_planted(&(struct planted){"grant w 20 100 90 9 r 9 9\ngrant a 10 110 90 9 r 1 9\n", "a has token 10"});
    check_planted(&(struct planted){"grant a 20 100 90 9 r 1\n", "not an event"});
}

static void test_tokens(void **state)
{
    (void)state;
    check_planted(&(struct planted){"grant a 10 100\nend a 10 110\ngrant b 10 200\n", "b has token 10"});
    check_planted(&(struct planted){"grant a 10 100\nend a 10 110\ngrant b 9 200\n", "b has token 9"});
}

static void test_fence(void **state)
{
    (void)state;
    check_planted(&(struct planted){
        "grant a 10 100\nend a 10 150\ngrant b 20 200\nwrite b 20 210 yes\nwrite a 10 220 yes\n", "behind 20"});
    check_planted(&(struct planted){"grant a 10 100\nwrite a 10 110 no\nvalid a 10 120\n", "which was good"});
}

static void test_sequence(void **state)
{
    (void)state;
    check_planted(&(struct planted){"valid a 10 100\n", "without a grant"});
    check_planted(&(struct planted){"grant a 10 100\nvalid a 11 110\n", "without a grant"});
    check_planted(&(struct planted){"grant a 10 100\nend a 10 110\nvalid a 10 120\n", "good after its end"});
    check_planted(&(struct planted){"grant a 10 100\ngrant a 10 110\n", "granted twice"});
    check_planted(&(struct planted){"nonsense\n", "not an event"});
}

/* a was asked for before the server forgot everything, between 150 and 160, and reaches 100 from there. */
static void test_forgotten(void **state)
{
    (void)state;
    check_planted(&(struct planted){
        "grant a 10 100 90 100\nforgot all 0 150 160\ngrant b 20 200 170 100\nvalid a 10 260\nvalid b 20 261\n", NULL});
    check_planted(&(struct planted){
        "grant a 10 100 90 100\nforgot all 0 150 160\ngrant b 20 200 170 100\nvalid a 10 261\nvalid b 20 300\n",
        "together"});
    check_planted(&(struct planted){
        "grant a 10 190 161 100\nforgot all 0 150 160\ngrant b 20 200 170 100\nvalid a 10 210\n", "together"});
    check_planted(&(struct planted){
        "grant a 10 100 90 100\nforgot all 0 300 310\ngrant b 20 200 170 100\nvalid a 10 210\n", "together"});
    check_planted(&(struct planted){"grant b 20 200 170 100\nforgot all 0 150 160\ngrant a 10 210 90 100\n", NULL});
    check_planted(&(struct planted){"forgot all 0 150\n", "not an event"});
}

static void test_counter(void **state)
{
    (void)state;
    check_planted(&(struct planted){"grant a 20 100 90 10\nforgot all 1 150 160\ngrant b 10 200 190 10\n", NULL});
    check_planted(
        &(struct planted){"grant a 20 100 90 10\nforgot all 0 150 160\ngrant b 10 200 190 10\n", "b has token 10"});
    check_planted(&(struct planted){
        "grant a 20 100 90 10\nforgot all 1 150 160\ngrant b 10 200 190 10\ngrant c 9 300 290 10\n", "c has token 9"});
}

static void test_calls(void **state)
{
    (void)state;
    check_planted(&(struct planted){"call a 0 100\nreturn a 0 200 200\n", NULL});
    check_planted(&(struct planted){"call a 0 100\nreturn a 0 201 200\n", "after its deadline"});
    check_planted(&(struct planted){"call a 0 100\n", "never returned"});
    check_planted(&(struct planted){"call 1-a 0 100\ndead 1- 0 150\n", NULL});
    check_planted(&(struct planted){"call 1-a 0 100\ndead 2- 0 150\n", "never returned"});
    check_planted(&(struct planted){"call a 0 100\nreturn a 0 150 200\nreturn a 0 160 200\n", "returned twice"});
    check_planted(&(struct planted){"return a 0 150 200\n", "without a call"});
    check_planted(&(struct planted){"call a 0 100\ncall a 0 110\nreturn a 0 150 200\n", "called twice"});
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        SENTENCE("a history without a flaw is praised", test_good),
        SENTENCE("two leases that were good together are found", test_overlap),
        SENTENCE("more permits than there are, and a writer beside readers, are found", test_units),
        SENTENCE("a token that did not rise is found", test_tokens),
        SENTENCE("a fence that let the past in, or kept the present out, is found", test_fence),
        SENTENCE("what the server forgot may be good for its reach, and not longer", test_forgotten),
        SENTENCE("tokens may fall only when the counter was lost while the clock was behind", test_counter),
        SENTENCE("a call that returns late, twice or never is found", test_calls),
        SENTENCE("events that cannot follow each other are found", test_sequence),
    };
    if (argc > 1)
        return judge(argv[1]);
    return cmocka_run_group_tests_name("history check", tests, NULL, NULL);
}
