/* redis_failing_calls.c - the system gives less than was asked for: every call that the library
 * makes on its connections is interrupted once, and fails once; signals rain on all threads; there
 * are no descriptors left; the command's own are closed. Interruptions are never seen; failures are
 * a documented status, leak nothing and cost nobody a lock. (That allocations fail is tried by
 * conformance/fail_nth_call.c.) The library's calls come here first because the linker wraps them
 * (tests/CMakeLists.txt). */
#include "lib/leak_check.h"
#include "redis_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TTL_MS = 20000,       /* a lock that is not given back is missed */
    LONG_TTL_MS = 180000, /* for what starts dozens of processes meanwhile */
    WAIT_MS = 5000,
    BRIEF_MS = 5,
    CALLS_MAX = 2000,
    STORM_MS = 2000,
    SHORT_MS = 300,
    LOOK_MS = 2000, /* a waiter looks by itself after half of its ttl */
    SLACK_MS = 400, /* a machine with much else to do */
};

/* ---- What happens to calls ---- */

enum trouble { NONE, INTERRUPTED, FAILED };

static _Atomic int trouble; /* enum trouble */
static _Atomic int countdown, every;
static _Atomic unsigned fired;

static void arm(enum trouble which, int n, int then_every)
{
    atomic_store(&fired, 0);
    atomic_store(&countdown, n);
    atomic_store(&every, then_every);
    atomic_store(&trouble, which);
}

/* Is it this call's turn? */
static bool is_hit(void)
{
    if (atomic_load(&trouble) == NONE || atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    atomic_store(&countdown, atomic_load(&every));
    atomic_fetch_add(&fired, 1);
    return true;
}

static int error_of(int failure)
{
    return atomic_load(&trouble) == INTERRUPTED ? EINTR : failure;
}

#define WRAP(type, name, error, parameters, ...)                                                   \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (!is_hit())                                                                             \
            return __real_##name(__VA_ARGS__);                                                     \
        errno = error_of(error);                                                                   \
        return -1;                                                                                 \
    }

WRAP(ssize_t, send, EPIPE, (int fd, const void *bytes, size_t size, int flags), fd, bytes, size,
     flags)
WRAP(ssize_t, recv, ECONNRESET, (int fd, void *bytes, size_t size, int flags), fd, bytes, size,
     flags)

/* Only one that finds nothing ready can be interrupted. */
int __real_poll(struct pollfd *fds, nfds_t count, int limit);
int __wrap_poll(struct pollfd *fds, nfds_t count, int limit);
int __wrap_poll(struct pollfd *fds, nfds_t count, int limit)
{
    if (!is_hit())
        return __real_poll(fds, count, limit);
    int ready = atomic_load(&trouble) == INTERRUPTED ? __real_poll(fds, count, 0) : 0;
    if (ready > 0)
        return ready;
    errno = error_of(ENOMEM);
    return -1;
}

/* These are never interrupted. */
int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol)
{
    if (atomic_load(&trouble) != FAILED || !is_hit())
        return __real_socket(family, type, protocol);
    errno = EMFILE;
    return -1;
}

int __real_eventfd(unsigned start, int flags);
int __wrap_eventfd(unsigned start, int flags);
int __wrap_eventfd(unsigned start, int flags)
{
    if (atomic_load(&trouble) != FAILED || !is_hit())
        return __real_eventfd(start, flags);
    errno = EMFILE;
    return -1;
}

/* One that is interrupted goes on all the same. */
int __real_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    bool hit = is_hit();
    if (!hit || atomic_load(&trouble) == INTERRUPTED) {
        int result = __real_connect(fd, to, size);
        if (!hit)
            return result;
    }
    errno = error_of(EADDRNOTAVAIL);
    return -1;
}

/* ---- The scene: everything once, while something happens to a call ---- */

static bool strict; /* nothing may be seen of it */
static _Atomic unsigned complaints;

/* The scene may be played on another thread, from which a test cannot fail. */
static void must(bool condition, const char *what, hf_status status)
{
    if (condition)
        return;
    print_error("%s: %s: %s\n", what, hf_status_name(status), hf_error_text());
    atomic_fetch_add(&complaints, 1);
}

static void documented(hf_status status, const char *what)
{
    bool failure = status == HF_UNAVAILABLE || status == HF_IN_DOUBT || status == HF_NO_MEMORY ||
                   status == HF_FULL || status == HF_TIMEOUT;
    must(status == HF_OK || (!strict && failure), what, status);
}

static struct hf_request ask_for(int64_t wait_ms)
{
    return request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = wait_ms});
}

struct outcome {
    _Atomic int times;
    hf_status status;
};

static void note_outcome(hf_lease *lease, hf_status status, void *arg)
{
    struct outcome *o = arg;
    (void)lease;
    o->status = status;
    atomic_fetch_add(&o->times, 1);
}

static hf_status await_outcome(const struct outcome *o)
{
    int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
    while (!atomic_load(&o->times) && now_ns() < end)
        nap_us(200);
    return atomic_load(&o->times) ? o->status : HF_INTERNAL;
}

/* One waits until `held` is released, and holds. */
static void hand_over(hf_client *client, hf_lease *held)
{
    struct hf_request request = ask_for(WAIT_MS);
    struct outcome o = {0};
    hf_lease *started;
    hf_status status = hf_acquire_start(client, &request, note_outcome, &o, &started);
    documented(status, "starting to wait");
    if (status == HF_OK)
        nap_us(2000);
    documented(hf_release(held), "a release");
    hf_lease_free(held);
    if (status == HF_OK) {
        documented(await_outcome(&o), "the outcome of a wait");
        hf_lease_free(started);
        must(atomic_load(&o.times) == 1, "the outcome of a wait, once", o.status);
    }
}

/* One waits in vain. */
static void time_out(hf_client *client)
{
    struct hf_request request = ask_for(BRIEF_MS);
    hf_lease *lease;
    hf_status status = hf_acquire(client, &request, &lease);
    if (status != HF_TIMEOUT)
        documented(status, "a wait in vain");
    must(!strict || status == HF_TIMEOUT, "a wait in vain", status);
    hf_lease_free(lease);
}

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

static void play(void)
{
    char url[256];
    hf_client *client;
    hf_lease *lease;
    snprintf(url, sizeof url, "%s?retry_min=1ms&retry_max=5ms&op_timeout=100ms", scene.url);
    hf_status status = hf_open(url, NULL, &client);
    documented(status, "opening");
    if (status != HF_OK)
        return;
    struct hf_request request = ask_for(WAIT_MS);
    status = hf_acquire(client, &request, &lease);
    documented(status, "an acquire");
    if (status == HF_OK) {
        time_out(client);
        documented(hf_extend(lease, 0), "an extend");
        hand_over(client, lease);
    }
    status = hf_acquire(client, &request, &lease);
    documented(status, "another acquire");
    documented(hf_list(client, NULL, ignore_row, NULL), "a list");
    documented(hf_close(client, WAIT_MS), "closing"); /* with one lock held */
}

/* The lock is free, and nobody stands in its queue. */
static void must_be_free(void)
{
    hf_lease *lease = must_acquire(
        scene_client(), &(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS});
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(server_count(scene.server, "EXISTS lock:turn {lock:turn}:q"), 0);
}

/* n goes up until there is no n-th call. */
static void hit_each(enum trouble which)
{
    must_be_free();
    int fds = count_in("/proc/self/fd"), threads = count_in("/proc/self/task"), n = 1;
    unsigned hits = 0;
    for (int quiet = 0; quiet < 3; n++) { /* how many there are depends a little on who is fast */
        arm(which, n, 0);
        play();
        atomic_store(&trouble, NONE);
        assert_threads(threads);
        assert_int_equal(count_in("/proc/self/fd"), fds);
        assert_int_equal(atomic_load(&complaints), 0);
        must_be_free();
        hits += atomic_load(&fired);
        quiet = atomic_load(&fired) ? 0 : quiet + 1;
        assert_true(n < CALLS_MAX);
    }
    print_message("# %u calls were hit\n", hits);
    assert_true(hits > 20);
}

static void test_interrupted(void **state)
{
    (void)state;
    strict = true;
    hit_each(INTERRUPTED);
}

static void test_often_interrupted(void **state)
{
    (void)state;
    strict = true;
    unsigned hits = 0;
    for (int every_nth = 2; every_nth <= 6; every_nth++) {
        arm(INTERRUPTED, 1, every_nth);
        play();
        atomic_store(&trouble, NONE);
        hits += atomic_load(&fired);
        assert_int_equal(atomic_load(&complaints), 0);
        must_be_free();
    }
    print_message("# %u calls were hit\n", hits);
    assert_true(hits > 50);
}

static void test_failed(void **state)
{
    (void)state;
    strict = false;
    hit_each(FAILED);
}

/* ---- Signals ---- */

static struct {
    _Atomic bool over;
    _Atomic unsigned handled, turns;
    pid_t sender;
} storm;

static void handle(int signal)
{
    (void)signal;
    atomic_fetch_add(&storm.handled, 1);
}

/* To every thread but this one and the test's own. */
static void signal_all(void)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        pid_t thread = (pid_t)atoi(task->d_name);
        if (thread > 0 && thread != storm.sender && thread != getpid())
            syscall(SYS_tgkill, getpid(), thread, SIGUSR1); /* it may have ended */
    }
    if (tasks)
        closedir(tasks);
}

static void *rain(void *arg)
{
    storm.sender = (pid_t)syscall(SYS_gettid);
    while (!atomic_load(&storm.over)) {
        signal_all();
        nap_us(300);
    }
    return arg;
}

/* While `held` is held by another client. */
static void *play_in_the_rain(void *held)
{
    struct hf_request request = ask_for(SHORT_MS);
    request.name = "held";
    while (!atomic_load(&storm.over)) {
        hf_lease *lease;
        play();
        int64_t from = now_ns();
        hf_status status = hf_acquire(scene.client, &request, &lease);
        int64_t took = (now_ns() - from) / 1000000;
        must(status == HF_TIMEOUT && took >= SHORT_MS && took < SHORT_MS + SLACK_MS,
             "a wait in the rain", status);
        atomic_fetch_add(&storm.turns, 1);
    }
    return held;
}

/* On a machine with much else to do it takes longer until it has rained. */
static void await_storm(void)
{
    int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
    nap_us(STORM_MS * 1000);
    while ((atomic_load(&storm.handled) <= 1000 || atomic_load(&storm.turns) <= 1) &&
           now_ns() < end)
        nap_us(1000);
}

static void test_signals(void **state)
{
    (void)state;
    pthread_t sender, player;
    struct sigaction action = {.sa_handler = handle}, before; /* without SA_RESTART */
    hf_lease *held = must_acquire(scene_client(), &(struct want){.name = "held", .ttl_ms = TTL_MS});
    strict = true;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(pthread_create(&sender, NULL, rain, NULL), 0);
    assert_int_equal(pthread_create(&player, NULL, play_in_the_rain, NULL), 0);
    await_storm();
    atomic_store(&storm.over, true);
    assert_int_equal(pthread_join(player, NULL), 0);
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    print_message("# %u signals handled in %u turns\n", atomic_load(&storm.handled),
                  atomic_load(&storm.turns));
    assert_int_equal(atomic_load(&complaints), 0);
    assert_true(atomic_load(&storm.handled) > 1000 && atomic_load(&storm.turns) > 1);
    assert_int_equal(hf_release(held), HF_OK);
    hf_lease_free(held);
    must_be_free();
}

/* ---- No descriptors ---- */

/* From here on there is none to be had; 0: as many as before. */
static void have_no_descriptors(bool none)
{
    static struct rlimit usual;
    struct rlimit limit = usual;
    if (none) {
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
        int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
        assert_true(next > 0);
        close(next);
        limit = (struct rlimit){(rlim_t)next, usual.rlim_max};
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (none) {
        assert_int_equal(fcntl(0, F_DUPFD_CLOEXEC, 0), -1);
        assert_int_equal(errno, EMFILE);
    }
}

static void test_no_descriptor_to_open(void **state)
{
    (void)state;
    hf_client *client;
    have_no_descriptors(true);
    hf_status status = hf_open(scene.url, NULL, &client);
    char words[256];
    snprintf(words, sizeof words, "%s", hf_error_text());
    have_no_descriptors(false);
    print_message("# %s: %s\n", hf_status_name(status), words);
    assert_true(status == HF_NO_MEMORY || status == HF_FULL || status == HF_UNAVAILABLE);
    assert_non_null(strstr(words, "open files"));
    assert_null(client);
    must_be_free();
}

static void test_no_descriptor_to_dial(void **state)
{
    (void)state;
    struct hf_request request = ask_for(SHORT_MS);
    hf_lease *lease;
    hf_client *client = scene_client();
    have_no_descriptors(true);
    int64_t from = now_ns();
    hf_status status = hf_acquire(client, &request, &lease);
    int64_t took = (now_ns() - from) / 1000000;
    char words[256];
    snprintf(words, sizeof words, "%s", hf_error_text());
    have_no_descriptors(false);
    print_message("# %s after %lld ms: %s\n", hf_status_name(status), (long long)took, words);
    assert_int_equal(status, HF_UNAVAILABLE);
    assert_non_null(strstr(words, "descriptor"));
    assert_in_range(took, SHORT_MS, SHORT_MS + SLACK_MS);
    must_be_free();
}

/* The connection by which it would hear of its turn cannot be made: it looks by itself. */
static void test_no_descriptor_to_wait(void **state)
{
    (void)state;
    struct actor *other = scene_actor();
    struct hf_request request =
        request_of(&(struct want){.name = "turn", .ttl_ms = 2 * LOOK_MS, .wait_ms = WAIT_MS});
    struct outcome o = {0};
    hf_lease *lease;
    must_be_free();
    actor_holds(other, 1, &(struct want){.name = "turn", .ttl_ms = TTL_MS});
    redisContext *to = server_connect(scene.server);
    have_no_descriptors(true);
    assert_int_equal(hf_acquire_start(scene_client(), &request, note_outcome, &o, &lease), HF_OK);
    for (int64_t waiting = 0; waiting == 0; nap_us(1000))
        waiting = scene_number(to, "ZCARD %s", "{lock:turn}:q");
    nap_us(100000);
    int64_t from = now_ns();
    assert_int_equal(actor_does(other, ORDER_RELEASE, 1).status, HF_OK);
    hf_status status = await_outcome(&o);
    have_no_descriptors(false);
    redisFree(to);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# %s %lld ms after the release, with %d connections\n", hf_status_name(status),
                  (long long)took, scene_connections(getpid()));
    assert_int_equal(status, HF_OK);
    assert_in_range(took, 0, LOOK_MS + SLACK_MS);
    assert_int_equal(scene_connections(getpid()), 1);
    hf_lease_free(lease);
    must_be_free();
}

/* ---- The command without its descriptors ---- */

/* What a command line exits with when those of the bits are closed; it is given the path of the
 * command as $0, the server as $1. */
static int run_without(unsigned closed, const char *line)
{
    char self[512] = "", command[600];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "%s/../../holdfast", dirname(self));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int fd = 0; fd < 3; fd++)
            if (closed & 1u << fd)
                close(fd);
        execl("/bin/sh", "sh", "-c", line, command, scene.url, (char *)NULL);
        _exit(70);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A socket in the place of one of them would be read or written by the command that is run. */
static void test_closed(void **state)
{
    (void)state;
    for (unsigned closed = 0; closed < 8; closed++) {
        assert_int_equal(
            run_without(closed,
                        "exec \"$0\" -u \"$1\" run --ttl 5s -w 5s turn sh -c "
                        "'ls -l /proc/$$/fd 2>&3 | grep -q socket: && exit 9; exit 7' 3>/dev/null"),
            7);
        must_be_free();
    }
    hf_lease *held =
        must_acquire(scene_client(), &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS});
    for (unsigned closed = 0; closed < 8; closed++) {
        int shown = run_without(closed, "exec \"$0\" -u \"$1\" list >/dev/null");
        assert_int_equal(shown, 0);
        int busy = run_without(closed, "exec \"$0\" -u \"$1\" run -w 0s turn true");
        assert_int_equal(busy, 75);
        if (closed & 2) /* what nobody can read was not said */
            assert_int_not_equal(run_without(closed, "exec \"$0\" -u \"$1\" list"), 0);
    }
    assert_true(hf_lease_ok(held));
    assert_int_equal(hf_release(held), HF_OK);
    hf_lease_free(held);
    must_be_free();
}

/* A test that failed leaves nothing to the next. */
static int teardown(void **state)
{
    atomic_store(&trouble, NONE);
    atomic_store(&complaints, 0);
    return scene_teardown(state);
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_setup, .teardown_func = teardown  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED("every call on a connection is interrupted once, and nobody notices",
               test_interrupted),
        PLAYED("every second to every sixth call is interrupted, and nobody notices",
               test_often_interrupted),
        PLAYED("every call on a connection fails once: a documented status, no leak, no lock lost",
               test_failed),
        PLAYED("signals that rain on all threads shorten no wait and break nothing", test_signals),
        PLAYED("opening without descriptors says so", test_no_descriptor_to_open),
        PLAYED("connecting without descriptors is tried again until the wait is over",
               test_no_descriptor_to_dial),
        PLAYED("a waiter that has no descriptor to listen with gets its turn",
               test_no_descriptor_to_wait),
        PLAYED("a command whose standard descriptors are closed gets no socket in their place",
               test_closed),
    };
    return cmocka_run_group_tests_name("redis: scarce", tests, NULL, NULL);
}
