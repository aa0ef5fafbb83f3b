/* history_check.c - judges what clients of one lock wrote down, and knows nothing else of them (G35, G36).
 *
 *     history_check LOG     0: no promise was broken, and a summary; 1: one was, and which
 *     history_check         proves that it finds what is wrong with planted histories
 *
 * A line of the log is an event; times are nanoseconds of a clock that all share:
 *
 *     grant LEASE TOKEN TIME            from here on its holder believes in it
 *     valid LEASE TOKEN TIME            its holder saw at that time, or later, that it is good
 *     write LEASE TOKEN TIME yes|no     what the fence said to a write, in the order of the fence
 *     end LEASE TOKEN TIME              its holder does not believe in it any more
 *
 * LEASE is any word. What is checked: two leases were never good at the same time; whoever was granted later has a
 * higher token; the fence admitted in the order of the tokens; a write while the lease was seen to be good, before and
 * after it, was admitted. A last line that is cut off is of a process that was killed while it wrote. */
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
    bool ended;
    int64_t refused_at; /* a write that the fence refused; 0: none */
};

static struct {
    struct lease *lease;
    size_t count, room;
    unsigned writes, refusals;
    uint64_t admitted; /* the highest token so far */
} history;

static unsigned violations;

#define VIOLATION(...) (violations++ < 20 ? (void)(fprintf(stderr, __VA_ARGS__), fputc('\n', stderr)) : (void)0)

/* ---- Reading ---- */

static struct lease *find(const char *name)
{
    for (size_t i = history.count; i-- > 0;)
        if (strcmp(history.lease[i].name, name) == 0)
            return &history.lease[i];
    return NULL;
}

static void hear_grant(const char *name, uint64_t token, int64_t time)
{
    if (find(name))
        VIOLATION("%s: granted twice", name);
    if (history.count == history.room) {
        history.room = history.room ? history.room * 2 : 1024;
        history.lease = realloc(history.lease, history.room * sizeof *history.lease);
        if (!history.lease)
            abort();
    }
    struct lease *l = &history.lease[history.count++];
    *l = (struct lease){.token = token, .from = time, .until = time};
    snprintf(l->name, sizeof l->name, "%s", name);
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

static bool hear(const char *line)
{
    char what[16], name[48], said[8] = "";
    uint64_t token;
    int64_t time;
    int fields = sscanf(line, "%15s %47s %" SCNu64 " %" SCNd64 " %7s", what, name, &token, &time, said);
    if (fields < 4)
        return false;
    if (strcmp(what, "grant") == 0) {
        hear_grant(name, token, time);
        return true;
    }
    struct lease *l = find(name);
    if (!l || l->token != token) {
        VIOLATION("%s: %s without a grant of token %" PRIu64, name, what, token);
        return true;
    }
    if (strcmp(what, "valid") == 0) {
        if (l->ended)
            VIOLATION("%s: good after its end", name);
        check_refusal(l);
        l->until = time > l->until ? time : l->until;
    } else if (strcmp(what, "write") == 0 && fields == 5) {
        hear_write(l, time, said);
    } else if (strcmp(what, "end") == 0) {
        l->ended = true;
    } else {
        return false;
    }
    return true;
}

/* ---- Judging ---- */

static int by_start(const void *a, const void *b)
{
    const struct lease *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static void check_leases(void)
{
    if (history.count)
        qsort(history.lease, history.count, sizeof *history.lease, by_start);
    const struct lease *last = NULL; /* of those before, the one that was good longest */
    for (size_t i = 0; i < history.count; i++) {
        const struct lease *l = &history.lease[i];
        if (last && last->until >= l->from)
            VIOLATION("%s (token %" PRIu64 ") was good until %" PRId64 ", and %s (token %" PRIu64 ") from %" PRId64
                      " on: %" PRId64 " us together",
                      last->name, last->token, last->until, l->name, l->token, l->from, (last->until - l->from) / 1000);
        if (i > 0 && l->token <= history.lease[i - 1].token)
            VIOLATION("%s has token %" PRIu64 ", but %s before it had %" PRIu64, l->name, l->token,
                      history.lease[i - 1].name, history.lease[i - 1].token);
        if (!last || l->until > last->until)
            last = l;
    }
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
            fprintf(stderr, "%s: not an event: %s", path, line);
            violations++;
        }
    }
    fclose(log);
    check_leases();
    printf("%zu leases, %u writes, %u of them refused by the fence: %u violations\n", history.count, history.writes,
           history.refusals, violations);
    free(history.lease);
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

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        SENTENCE("a history without a flaw is praised", test_good),
        SENTENCE("two leases that were good together are found", test_overlap),
        SENTENCE("a token that did not rise is found", test_tokens),
        SENTENCE("a fence that let the past in, or kept the present out, is found", test_fence),
        SENTENCE("events that cannot follow each other are found", test_sequence),
    };
    if (argc > 1)
        return judge(argv[1]);
    return cmocka_run_group_tests_name("history check", tests, NULL, NULL);
}
