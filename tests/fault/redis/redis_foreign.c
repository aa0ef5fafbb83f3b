/* redis_foreign.c - locks of other programs under the same keys: redis-cli's SET NX PX, Python's
 * redis Lock, npm's redlock. They exclude us and we exclude them; when they go, by release or by
 * time, those who wait here get in.
 *
 *     redis_foreign [npm]      with npm: redlock as npm has it, and nothing else */
#include "redis_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TTL_MS = 2000,
    LOOK_MS =
        100, /* the first in line looks that often where nobody tells it: a twentieth of the ttl */
    SLACK_MS = 250,
    FOREIGN_MS = 700,
    WAIT_MS = 8000,
};

/* ---- Strangers: programs that are told line by line what to do, and answer with a line ---- */

struct stranger {
    pid_t pid;
    FILE *to, *from;
};

static const char python_program[] =
    "import sys, redis\n"
    "server, locks = redis.Redis(port=int(sys.argv[1])), {}\n"
    "for line in sys.stdin:\n"
    "    what, name, ms = line.split()\n"
    "    if what == 'give':\n"
    "        locks.pop(name).release()\n"
    "        print('given', flush=True)\n"
    "        continue\n"
    "    lock = server.lock(name, timeout=int(ms) / 1000, sleep=0.02)\n"
    "    took = lock.acquire(blocking=what == 'wait', blocking_timeout=8 if what == 'wait' else "
    "None)\n"
    "    if took: locks[name] = lock\n"
    "    print('taken' if took else 'refused', flush=True)\n";

static const char node_program[] =
    "const Redis = require('ioredis'), Lib = require('redlock'), Redlock = Lib.default || Lib;\n"
    "const client = new Redis(+process.argv[2]), locks = {};\n"
    "const once = new Redlock([client], {retryCount: 0});\n"
    "const again = new Redlock([client], {retryCount: 400, retryDelay: 20, retryJitter: 0});\n"
    "const take = (by, name, ms) => by.acquire ? by.acquire([name], ms) : by.lock(name, ms);\n"
    "once.on && once.on('error', () => {}); again.on && again.on('error', () => {});\n"
    "async function act(line) {\n"
    "    const [what, name, ms] = line.trim().split(' ');\n"
    "    if (what === 'give') {\n"
    "        const lock = locks[name];\n"
    "        await (lock.release ? lock.release() : lock.unlock());\n"
    "        return 'given';\n"
    "    }\n"
    "    try { locks[name] = await take(what === 'wait' ? again : once, name, +ms); return "
    "'taken'; }\n"
    "    catch (error) { return 'refused'; }\n"
    "}\n"
    "let last = Promise.resolve();\n"
    "require('readline').createInterface({input: process.stdin})\n"
    "    .on('line', line => { last = last.then(() => act(line)).then(answer => "
    "console.log(answer)); });\n";

static struct stranger stranger_start(const char *folder, char *const *words)
{
    int in[2], out[2];
    struct stranger s = {0};
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t parent = getpid();
    s.pid = fork();
    assert_true(s.pid >= 0);
    if (s.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 ||
            (folder && chdir(folder) != 0))
            _exit(70);
        execvp(words[0], words);
        _exit(71);
    }
    close(in[0]);
    close(out[1]);
    s.to = fdopen(in[1], "w");
    s.from = fdopen(out[0], "r");
    return s;
}

static void stranger_end(struct stranger *s)
{
    int status;
    fclose(s->to);
    fclose(s->from);
    kill(s->pid, SIGKILL);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
}

static void order(struct stranger *s, const char *what, const char *name, int ms)
{
    fprintf(s->to, "%s lock:%s %d\n", what, name, ms);
    fflush(s->to);
}

static void must_answer(struct stranger *s, const char *answer)
{
    char line[64] = "";
    if (!fgets(line, sizeof line, s->from))
        fail_msg("the other program says nothing");
    line[strcspn(line, "\n")] = 0;
    assert_string_equal(line, answer);
}

static void must(struct stranger *s, const char *what, const char *name, int ms, const char *answer)
{
    order(s, what, name, ms);
    must_answer(s, answer);
}

/* ---- redis-cli ---- */

/* What it prints, without the end of the line. */
static const char *redis_cli(const char *command)
{
    static char line[256];
    char whole[512];
    snprintf(whole, sizeof whole, "redis-cli -p %u %s", server_port(scene.server), command);
    FILE *out = popen(whole, "r");
    assert_non_null(out);
    if (!fgets(line, sizeof line, out))
        line[0] = 0;
    assert_int_equal(pclose(out), 0);
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* ---- Us ---- */

static hf_status ask(const char *name, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request request =
        request_of(&(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = wait_ms});
    return hf_acquire(scene_client(), &request, lease);
}

static hf_lease *take(const char *name, int64_t wait_ms)
{
    hf_lease *lease;
    if (ask(name, wait_ms, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    return lease;
}

static void give(hf_lease *lease)
{
    if (hf_release(lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    hf_lease_free(lease);
}

static void must_be_busy(const char *name)
{
    hf_lease *lease;
    assert_int_equal(ask(name, 0, &lease), HF_BUSY);
}

/* A wait that a callback ends. */
struct wait {
    hf_lease *lease;
    _Atomic int64_t over_ns;
    _Atomic int status;
};

static void note_end(hf_lease *lease, hf_status status, void *arg)
{
    struct wait *w = arg;
    (void)lease;
    atomic_store(&w->status, (int)status);
    atomic_store(&w->over_ns, now_ns());
}

static void begin_wait(struct wait *w, const char *name, int64_t place)
{
    struct hf_request request =
        request_of(&(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = WAIT_MS});
    *w = (struct wait){.lease = NULL};
    assert_int_equal(hf_acquire_start(scene_client(), &request, note_end, w, &w->lease), HF_OK);
    scene_await_queue(name, place);
}

/* Granted within that time after it was free. */
static void must_get_in(struct wait *w, int64_t free_ns, int64_t most_ms)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
         !atomic_load(&w->over_ns) && now_ns() < end;)
        nap_us(200);
    int64_t late_ms = (atomic_load(&w->over_ns) - free_ns) / 1000000;
    assert_true(atomic_load(&w->over_ns) > 0);
    assert_int_equal(atomic_load(&w->status), HF_OK);
    print_message("# in %lld ms after it was free\n", (long long)late_ms);
    assert_in_range(late_ms, 0, most_ms);
}

static void must_still_wait(const struct wait *w)
{
    assert_int_equal(atomic_load(&w->over_ns), 0);
}

/* What a list shows of a name. */
struct seen {
    const char *name;
    unsigned rows, foreign, waiters;
    int64_t left_ms;
};

static void note_row(void *arg, const struct hf_row *row)
{
    struct seen *seen = arg;
    if (strcmp(row->name, seen->name) != 0)
        return;
    seen->rows++;
    seen->waiters += row->role == HF_WAITER;
    if (row->foreign) {
        assert_int_equal(row->role, HF_HOLDER);
        seen->foreign++;
        seen->left_ms = row->left_ms;
    }
}

static struct seen list(const char *name)
{
    struct seen seen = {.name = name, .left_ms = -100};
    if (hf_list(scene_client(), NULL, note_row, &seen) != HF_OK)
        fail_msg("%s", hf_error_text());
    return seen;
}

/* ---- redis-cli and us ---- */

static void test_set_excludes_us(void **state)
{
    (void)state;
    struct wait w;
    char command[96];
    snprintf(command, sizeof command, "SET lock:job somebody NX PX %d", FOREIGN_MS);
    int64_t from = now_ns();
    assert_string_equal(redis_cli(command), "OK");
    must_be_busy("job");
    begin_wait(&w, "job", 1);
    struct seen seen = list("job");
    assert_int_equal(seen.foreign, 1);
    assert_int_equal(seen.waiters, 1);
    assert_in_range(seen.left_ms, 1, FOREIGN_MS);
    while (server_count(scene.server, "EXISTS lock:job") && !atomic_load(&w.over_ns))
        nap_us(1000);
    must_get_in(&w, from + FOREIGN_MS * 1000000LL,
                SLACK_MS); /* its end is known: no need to look often */
    assert_int_equal(list("job").foreign, 0);
    give(w.lease);
}

/* Nobody tells us of a DEL: the first in line looks now and then, and the others after it, in their
 * order. */
static void test_release_lets_us_in(void **state)
{
    (void)state;
    struct wait first, second;
    assert_string_equal(redis_cli("SET lock:job somebody NX PX 60000"), "OK");
    begin_wait(&first, "job", 1);
    begin_wait(&second, "job", 2);
    nap_us(4 * LOOK_MS * 1000);
    must_still_wait(&first);
    must_still_wait(&second);
    int64_t free_ns = now_ns();
    assert_string_equal(redis_cli("DEL lock:job"), "1");
    must_get_in(&first, free_ns, LOOK_MS + SLACK_MS);
    must_still_wait(&second);
    free_ns = now_ns();
    give(first.lease);
    must_get_in(&second, free_ns, SLACK_MS);
    give(second.lease);
}

/* A lock without an end is waited for, looked at gently, and never taken. */
static void test_without_end(void **state)
{
    (void)state;
    struct wait w;
    hf_lease *lease;
    assert_string_equal(redis_cli("SET lock:job somebody NX"), "OK");
    must_be_busy("job");
    assert_int_equal(ask("job", 3 * LOOK_MS, &lease), HF_TIMEOUT);
    begin_wait(&w, "job", 1);
    int64_t calls = server_calls(scene.server, "fcall");
    nap_us(12 * LOOK_MS * 1000);
    calls = server_calls(scene.server, "fcall") - calls;
    print_message("# %lld looks in %d ms\n", (long long)calls, 12 * LOOK_MS);
    assert_in_range(calls, 6, 14);
    must_still_wait(&w);
    assert_int_equal(list("job").left_ms, -1);
    assert_string_equal(redis_cli("GET lock:job"), "somebody");
    assert_string_equal(redis_cli("PTTL lock:job"), "-1");
    int64_t free_ns = now_ns();
    assert_string_equal(redis_cli("DEL lock:job"), "1");
    must_get_in(&w, free_ns, LOOK_MS + SLACK_MS);
    give(w.lease);
}

/* One with an end that lies beyond what can be counted in nanoseconds. */
static void test_almost_without_end(void **state)
{
    (void)state;
    hf_lease *lease;
    assert_string_equal(redis_cli("SET lock:job somebody NX PX 9000000000000000000"), "OK");
    must_be_busy("job");
    assert_int_equal(ask("job", LOOK_MS, &lease), HF_TIMEOUT);
    assert_true(list("job").left_ms > 1000000);
}

static const struct want our_kinds[] = {
    {.name = "job", .ttl_ms = TTL_MS},
    {.name = "job", .ttl_ms = TTL_MS, .kind = HF_SEMAPHORE, .capacity = 3},
    {.name = "job", .ttl_ms = TTL_MS, .kind = HF_READ},
    {.name = "job", .ttl_ms = TTL_MS, .kind = HF_WRITE},
};

static void test_we_exclude_set(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof our_kinds / sizeof *our_kinds; i++) {
        hf_lease *lease = must_acquire(scene_client(), &our_kinds[i]);
        assert_string_equal(redis_cli("SET lock:job somebody NX PX 60000"), "");
        assert_int_equal(list("job").foreign, 0);
        give(lease);
        assert_string_equal(redis_cli("SET lock:job somebody NX PX 60000"), "OK");
        struct hf_request request = request_of(&our_kinds[i]);
        assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_BUSY);
        assert_string_equal(redis_cli("GET lock:job"), "somebody");
        assert_string_equal(redis_cli("DEL lock:job"), "1");
    }
}

/* By force: our record goes, another's comes. We hear of it, and our release leaves theirs alone.
 */
static void test_overwritten(void **state)
{
    (void)state;
    struct hf_request request =
        request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW});
    struct wait lost = {.lease = NULL};
    request.on_lost = note_end;
    request.lost_arg = &lost;
    hf_lease *lease;
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
    int64_t from = now_ns();
    assert_string_equal(redis_cli("SET lock:job somebody PX 60000"), "OK");
    while (!atomic_load(&lost.over_ns) && now_ns() - from < ACTOR_PATIENCE_MS * 1000000LL)
        nap_us(500);
    assert_in_range((atomic_load(&lost.over_ns) - from) / 1000000, 0, TTL_MS / 3 + SLACK_MS);
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    hf_lease_free(lease);
    nap_us(100000);
    assert_string_equal(redis_cli("GET lock:job"), "somebody");
    must_be_busy("job");
}

/* What is no lock at all is refused, at once, and left as it is. */
static void test_other_types(void **state)
{
    (void)state;
    static const struct {
        const char *make, *check, *answer;
    } others[] = {
        {"RPUSH lock:job a b", "LLEN lock:job", "2"},
        {"SADD lock:job a b c", "SCARD lock:job", "3"},
        {"ZADD lock:job 1 a", "ZCARD lock:job", "1"},
        {"HSET lock:job field value", "HLEN lock:job", "1"},
        {"XADD lock:job 1-1 a b", "XLEN lock:job", "1"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        hf_lease *lease;
        redis_cli(others[i].make);
        for (int64_t wait_ms = 0; wait_ms <= WAIT_MS; wait_ms += WAIT_MS) {
            int64_t from = now_ns();
            assert_int_equal(ask("job", wait_ms, &lease), HF_MISMATCH);
            assert_non_null(strstr(hf_error_text(), "not a lock"));
            assert_true(now_ns() - from < WAIT_MS * 1000000LL / 4);
        }
        hf_lease *other = take("other", 0);
        assert_int_equal(list("other").rows, 1); /* others are listed all the same */
        assert_int_equal(list("job").rows, 0);
        give(other);
        assert_string_equal(redis_cli(others[i].check), others[i].answer);
        assert_string_equal(redis_cli("DEL lock:job"), "1");
    }
}

/* ---- Locks of other libraries ---- */

static void keep_apart(struct stranger *s)
{
    struct wait w;
    must(s, "take", "job", 60000, "taken"); /* theirs excludes us */
    must_be_busy("job");
    assert_int_equal(list("job").foreign, 1);
    begin_wait(&w, "job", 1);
    nap_us(2 * LOOK_MS * 1000);
    must_still_wait(&w);
    int64_t free_ns = now_ns(); /* before: the answer may come later than the lock */
    must(s, "give", "job", 0, "given");
    must_get_in(&w, free_ns, LOOK_MS + SLACK_MS);
    must(s, "take", "job", 60000, "refused"); /* ours excludes them */
    order(s, "wait", "job", FOREIGN_MS);
    nap_us(100000);
    give(w.lease);
    must_answer(s, "taken");
    int64_t taken_ns = now_ns();
    begin_wait(&w, "job", 1); /* it forgets to give it back, and it ends by time */
    must_get_in(&w, taken_ns + FOREIGN_MS * 1000000LL - SLACK_MS * 1000000LL, 2 * SLACK_MS);
    give(w.lease);
}

static void test_python(void **state)
{
    (void)state;
    char port[8];
    snprintf(port, sizeof port, "%u", server_port(scene.server));
    if (system("/usr/bin/python3 -c 'import redis' 2>/dev/null") != 0) {
        print_message("# skipped: python3-redis is not installed\n");
        skip();
    }
    char *words[] = {"/usr/bin/python3", "-c", (char *)(uintptr_t)python_program, port, NULL};
    struct stranger python = stranger_start(NULL, words);
    keep_apart(&python);
    stranger_end(&python);
}

static void test_npm(void **state)
{
    (void)state;
    char command[512], path[256], port[8];
    snprintf(port, sizeof port, "%u", server_port(scene.server));
    snprintf(command, sizeof command,
             "cd '%s' && npm install --no-audit --no-fund --silent redlock ioredis >npm.log 2>&1",
             stage_directory());
    if (system(command) != 0) {
        print_message("# skipped: npm cannot install redlock here\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/lock.js", stage_directory());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(node_program, file);
    assert_int_equal(fclose(file), 0);
    char *words[] = {"node", path, port, NULL};
    struct stranger node = stranger_start(stage_directory(), words);
    keep_apart(&node);
    stranger_end(&node);
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_setup,                            \
        .teardown_func = scene_teardown                                                            \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest npm[] = {PLAYED("npm's redlock and we exclude each other", test_npm)};
    const struct CMUnitTest tests[] = {
        PLAYED("SET NX PX excludes us until its end, and is listed as foreign",
               test_set_excludes_us),
        PLAYED("SET NX PX that is given back lets us in, in our order", test_release_lets_us_in),
        PLAYED("a foreign lock without an end is waited for, gently, and never taken",
               test_without_end),
        PLAYED("a foreign lock with an end beyond counting is one, too", test_almost_without_end),
        PLAYED("whatever we hold, SET NX PX is excluded", test_we_exclude_set),
        PLAYED("who overwrites our lock is left alone, and we hear of it", test_overwritten),
        PLAYED("a key of another type is refused and left as it is", test_other_types),
        PLAYED("Python's Lock and we exclude each other", test_python),
    };
    if (argc == 2 && strcmp(argv[1], "npm") == 0)
        return cmocka_run_group_tests(npm, NULL, NULL);
    return argc == 1 ? cmocka_run_group_tests(tests, NULL, NULL) : 64;
}
