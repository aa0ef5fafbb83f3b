/* event_loop.c - a program with an event loop of its own and no thread beside the library's one:
 * hf_fd, hf_timeout_ms, hf_process, ten thousand waits, and no wake-up while nothing happens.
 * Usage: looping [WAITS]; with `--idle URL WAITS` it is the program that strace looks at. */
#include "lib/engines.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDLE_MS = 5000, LINE = 4096 };

static int many_waits = 10000;

static hf_client *open_loop(const char *url)
{
    hf_client *client;
    struct hf_client_options options = {.size = sizeof options, .no_thread = true};
    return hf_open(url, &options, &client) == HF_OK ? client : NULL;
}

/* One turn of a loop such as a user writes it, of `most_ms` at most. `also` is another descriptor
 * to wait for; true: it is readable. */
static bool turn_briefly(hf_client *client, int also, int most_ms)
{
    struct pollfd fds[2] = {{.fd = hf_fd(client), .events = POLLIN},
                            {.fd = also, .events = POLLIN}};
    int64_t left = hf_timeout_ms(client);
    poll(fds, 2, left < 0 || left > most_ms ? most_ms : (int)left);
    hf_process(client);
    return fds[1].revents != 0;
}

static bool turn(hf_client *client, int also)
{
    return turn_briefly(client, also, ACTOR_PATIENCE_MS);
}

/* Turns until the count is there: a minute at most, and only while it rises. */
static void turn_until(hf_client *client, _Atomic int *word, int at_least)
{
    int64_t patience = (int64_t)ACTOR_PATIENCE_MS * 1000000, last = now_ns() + 6 * patience,
            end = 0;
    for (int seen, before = -1; (seen = atomic_load(word)) < at_least; before = seen) {
        if (seen != before)
            end = now_ns() + patience;
        if (now_ns() > end || now_ns() > last)
            fail_msg("%d instead of %d", seen, at_least);
        turn(client, -1);
    }
}

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void test_loop(void **state)
{
    (void)state;
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "b"});
    int before = count_threads();
    hf_client *client = open_loop(engine_url());
    assert_non_null(client);
    assert_true(hf_fd(client) >= 0);
    assert_true(count_threads() <= before + 2); /* both only sleep: hf_client_options.no_thread */
    struct outcome free_one, taken, lost = {0}, timed;
    start_ask(client,
              ASK(.name = "a", .ttl_ms = ttl(300), .on_lost = note_outcome, .lost_arg = &lost),
              &free_one);
    start_ask(client, ASK(.name = "b", .wait_ms = HF_FOREVER), &taken);
    start_ask(client, ASK(.name = "b", .wait_ms = 150), &timed);
    assert_int_equal(atomic_load(&free_one.calls), 0); /* never inside the call */
    turn_until(client, &free_one.calls, 1);
    assert_int_equal(free_one.status, HF_OK);
    turn_until(client, &timed.calls, 1);
    assert_int_equal(timed.status, HF_TIMEOUT);
    turn_until(client, &lost.calls, 1);
    assert_int_equal(atomic_load(&taken.calls), 0);
    actor_order(holder, ORDER_RELEASE, 0);
    turn_until(client, &taken.calls, 1);
    assert_int_equal(taken.status, HF_OK);
    hf_lease_free(free_one.lease);
    hf_lease_free(timed.lease);
    give(taken.lease);
    close_client(client);
}

static void test_renews(void **state)
{
    (void)state;
    struct actor *other = actor_here();
    hf_client *client = open_loop(engine_url());
    hf_lease *lease = take(client, ASK(.name = "a", .ttl_ms = ttl(400), .flags = HF_AUTO_RENEW));
    uint64_t token = hf_lease_token(lease);
    actor_acquire(other, 0, ORDER_ACQUIRE, &(struct want){.name = "a", .wait_ms = 1500});
    while (actor_is_silent(other))
        turn(client, -1);
    assert_int_equal(actor_answer(other, ORDER_ACQUIRE, 0).status, HF_TIMEOUT);
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_lease_token(lease), token);
    give(lease);
    close_client(client);
}

static void test_only_for_loops(void **state)
{
    (void)state;
    hf_client *client = row_client();
    assert_int_equal(hf_fd(client), -1);
    assert_true(strstr(hf_error_text(), "no_thread"));
    assert_int_equal(hf_timeout_ms(client), -1);
    assert_refused(hf_process(client), HF_INVALID, "no_thread");
}

static void close_in_callback(hf_lease *lease, hf_status outcome, void *arg)
{
    struct outcome *seen = arg;
    hf_client *client = (hf_client *)seen->lease;
    hf_lease *none;
    part_must(outcome == HF_OK && hf_process(client) == HF_INVALID &&
              hf_close(client, 10) == HF_INVALID);
    part_must(hf_acquire(client, ASK(.name = "a", .wait_ms = 10), &none) == HF_INVALID);
    part_must(hf_release(lease) == HF_OK);
    note_outcome(lease, outcome, arg);
}

static void test_inside_process(void **state)
{
    (void)state;
    hf_client *client = open_loop(engine_url());
    struct outcome seen = {.lease = (hf_lease *)client};
    hf_lease *lease;
    assert_int_equal(hf_acquire_start(client, ASK(.name = "a"), close_in_callback, &seen, &lease),
                     HF_OK);
    turn_until(client, &seen.calls, 1);
    hf_lease_free(lease);
    struct outcome pending;
    hf_lease *held = take(row_client(), ASK(.name = "a"));
    start_ask(client, ASK(.name = "a", .wait_ms = HF_FOREVER), &pending);
    close_client(client);
    assert_int_equal(pending.status, HF_CLOSED);
    give(held);
}

/* Gives back and asks again, until it is told to stop. */
struct circle {
    hf_client *client;
    hf_lease *lease;
    _Atomic int rounds;
    bool stop;
};

static void go_round(hf_lease *lease, hf_status outcome, void *arg)
{
    struct circle *circle = arg;
    part_must(outcome == HF_OK);
    hf_lease_free(lease); /* gives it back */
    atomic_fetch_add(&circle->rounds, 1);
    if (!circle->stop)
        part_must(hf_acquire_start(circle->client, ASK(.name = "a", .wait_ms = HF_FOREVER),
                                   go_round, circle, &circle->lease) == HF_OK);
}

static void test_asks_again_at_once(void **state)
{
    (void)state;
    hf_client *client = open_loop(engine_url());
    struct circle circle = {.client = client};
    assert_int_equal(hf_acquire_start(client, ASK(.name = "a"), go_round, &circle, &circle.lease),
                     HF_OK);
    turn_until(client, &circle.rounds, 3000 / (many_waits < 10000 ? 10 : 1));
    circle.stop = true;
    int rounds = atomic_load(&circle.rounds);
    turn_until(client, &circle.rounds, rounds + 1);
    close_client(client);
}

/* ---- Ten thousand waits ---- */

struct tide {
    _Atomic int granted, wrong;
    uint64_t last;
};

static void pass_on(hf_lease *lease, hf_status outcome, void *arg)
{
    struct tide *tide = arg;
    uint64_t token = hf_lease_token(lease);
    atomic_fetch_add(&tide->wrong, outcome != HF_OK || token <= tide->last);
    tide->last = token;
    hf_lease_free(lease);
    atomic_fetch_add(&tide->granted, 1);
}

static bool start_waits(hf_client *client, int count, struct tide *tide)
{
    hf_lease *lease;
    for (int i = 0; i < count; i++)
        if (hf_acquire_start(client, ASK(.name = "a", .ttl_ms = 60000, .wait_ms = HF_FOREVER),
                             pass_on, tide, &lease) != HF_OK)
            return false;
    return true;
}

/* Turns until all of them are seen to wait: whoever has a loop of its own keeps its places only by
 * turning it. */
static void turn_until_seen(hf_client *client, hf_client *looker, int waiters)
{
    int64_t end = 0;
    uint32_t most = 0;
    for (uint32_t seen; (seen = see(looker, "a").waiters) != (uint32_t)waiters;) {
        if (seen > most || end == 0)
            end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
        if (now_ns() > end)
            fail_msg("%u wait, not %d", seen, waiters);
        most = seen > most ? seen : most;
        for (int64_t until = now_ns() + 50 * 1000000; now_ns() < until;)
            turn_briefly(client, -1, 10);
    }
}

static void test_ten_thousand(void **state)
{
    (void)state;
    if (!engine()->first_come || engine()->is_quorum) {
        print_message("# %s: keeps no order among so many\n", engine()->name);
        return;
    }
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "a", .ttl_ms = 3600000});
    hf_client *client = open_loop(engine_url());
    struct tide tide = {0};
    int threads = count_threads();
    assert_true(start_waits(client, many_waits, &tide));
    assert_int_equal(count_threads(), threads);
    turn_until_seen(client, row_client(), many_waits);
    assert_int_equal(atomic_load(&tide.granted), 0);
    actor_order(holder, ORDER_RELEASE, 0);
    turn_until(client, &tide.granted, many_waits);
    assert_int_equal(atomic_load(&tide.wrong), 0);
    assert_int_equal(look_at(client, "a").holders, 0);
    close_client(client);
}

/* ---- No wake-up ---- */

/* What strace looks at: says "begin" when all wait and it is about to sleep, "end" when it is told
 * to stop. */
static int be_idle(const char *url, int count)
{
    struct tide tide = {0};
    hf_client *client = open_loop(url);
    if (!client || !start_waits(client, count, &tide)) {
        fprintf(stderr, "# %s\n", hf_error_text());
        return 1;
    }
    while (hf_timeout_ms(client) == 0)
        hf_process(client);
    bool told = write(STDOUT_FILENO, "begin\n", 6) < 0;
    while (!told)
        told = turn(client, STDIN_FILENO);
    told = write(STDOUT_FILENO, "end\n", 4) == 4;
    _exit(told && atomic_load(&tide.granted) == 0
              ? 0
              : 1); /* a leak checker cannot work under strace */
}

/* System calls that began between the two words, beside the one poll that is slept in. */
static int count_calls(const char *path)
{
    char line[LINE];
    bool inside = false;
    int calls = 0, ends = 0;
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        if (strstr(line, "\"end\\n\""))
            ends++, inside = false;
        if (inside && !strstr(line, "resumed>")) {
            calls++;
            print_message("# %s", line);
        }
        if (strstr(line, "\"begin\\n\""))
            inside = true;
    }
    fclose(log);
    assert_int_equal(ends, 1);
    return calls;
}

static pid_t start_strace(const char *log, int in[2], int out[2])
{
    char self[512], waits[16];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(len > 0);
    self[len] = 0;
    snprintf(waits, sizeof waits, "%d", many_waits);
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execlp("strace", "strace", "-f", "-o", log, self, "--idle", engine_url(), waits, NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    return child;
}

static void test_no_wake_up(void **state)
{
    (void)state;
    if (!engine()->lasting_waiters) {
        print_message("# %s: places in its queue are kept by looking at them now and then\n",
                      engine()->name);
        return;
    }
    char log[128], word[8] = "";
    int in[2], out[2], status;
    snprintf(log, sizeof log, "%s/strace", stage_directory());
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "a", .ttl_ms = 3600000});
    pid_t child = start_strace(log, in, out);
    struct pollfd said = {.fd = out[0], .events = POLLIN};
    assert_int_equal(poll(&said, 1, 3 * ACTOR_PATIENCE_MS), 1);
    assert_true(read(out[0], word, sizeof word - 1) > 0);
    assert_string_equal(word, "begin\n");
    assert_int_equal(poll(&said, 1, IDLE_MS),
                     0); /* nothing happens, and nothing is said, for as long */
    assert_int_equal(write(in[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(in[1]);
    close(out[0]);
    assert_in_range(count_calls(log), 1,
                    3); /* the poll, and the read of the bell that came while it began */
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--idle") == 0)
        return be_idle(argv[2], atoi(argv[3]));
    if (argc > 1)
        many_waits = atoi(argv[1]);
    const struct CMUnitTest rows[] = {
        ROW("a loop of one's own hears of grants, time-outs and losses", test_loop),
        ROW("a loop of one's own renews", test_renews),
        ROW("the calls for loops say so when a client was not opened for one", test_only_for_loops),
        ROW("a callback inside hf_process must neither process, wait nor close; closing runs the "
            "last ones",
            test_inside_process),
        ROW("callbacks that ask again at once do not keep the loop", test_asks_again_at_once),
        ROW("10,000 waits in a poll loop, without a thread each, are granted in their order",
            test_ten_thousand),
        ROW("strace sees no wake-up of 10,000 waits in 5 idle seconds", test_no_wake_up),
    };
    return JUDGE(rows);
}
