/* guard.c - CMD's parent and the lease's owner: asks, waits, then watches both until one of them ends.
 *
 * One thread (the library has its own, whose callbacks only set a flag and ring a bell), one poll. Every turn begins
 * with a look at the time left: a process that was stopped beyond its ttl kills before it does anything else. */
#include "command.h"
#include "descendants.h"
#include "holders.h"
#include "link.h"
#include "run.h"
#include "terminal.h"
#include "text.h"
#include "verbs.h"
#include "waiting.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLOSE_MS 1000
#define GRACE_PART 6     /* the default grace is this part of the ttl */
#define KILL_PART 10     /* SIGKILL comes this part of the grace before the end of the validity, */
#define KILL_MOST_MS 500 /* but not earlier than this */
#define KILL_LEAST_MS 1
#define UNDECIDED (-1)

struct guard {
    const struct run_order *order;
    int link, signals, bell, timer;
    hf_client *client;
    hf_lease *lease;
    int64_t ttl_ms, grace_ms, kill_ms;
    atomic_int outcome; /* hf_status, or UNDECIDED; written by the library's thread, as is its text before it */
    char outcome_text[512];
    atomic_bool lost;
    struct terminal terminal;
    struct command command;
    bool front_gone, front_stopped;
    bool warned; /* CMD was sent SIGTERM because the lease is about to end */
    bool ended;  /* CMD was reaped */
    int signal;  /* came before CMD was started */
};

static void ring(struct guard *guard)
{
    uint64_t one = 1;
    (void)!write(guard->bell, &one, sizeof one);
}

static void on_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct guard *guard = arg;
    (void)lease;
    if (outcome != HF_OK)
        snprintf(guard->outcome_text, sizeof guard->outcome_text, "%s", hf_error_text());
    atomic_store(&guard->outcome, (int)outcome);
    ring(guard);
}

static void on_lost(hf_lease *lease, hf_status why, void *arg)
{
    struct guard *guard = arg;
    (void)lease;
    (void)why;
    atomic_store(&guard->lost, true);
    ring(guard);
}

/* ---- Hearing ---- */

/* A signal for the job: CMD's if it runs; while waiting it ends the wait, unless it would not have ended a command. */
static void hear_signal(struct guard *guard, int number)
{
    if (number == SIGTSTP)
        guard->front_stopped = true; /* it stops itself */
    if (guard->ended)
        return;
    if (guard->command.pid > 0)
        kill(-guard->command.pid, number);
    else if (number != SIGWINCH && number != SIGTSTP && guard->signal == 0)
        guard->signal = number;
}

static void hear_continued(struct guard *guard)
{
    guard->front_stopped = false;
    if (guard->command.pid == 0 || guard->ended)
        return;
    if (guard->terminal.at_once)
        terminal_give(&guard->terminal, guard->command.pid);
    kill(-guard->command.pid, SIGCONT);
}

static void hear_front(struct guard *guard)
{
    int value;
    for (;;) {
        switch (link_read(guard->link, &value)) {
        case LINK_SIGNAL:
            hear_signal(guard, value);
            break;
        case LINK_CONTINUED:
            hear_continued(guard);
            break;
        case LINK_CLOSED:
            guard->front_gone = true;
            return;
        default:
            return;
        }
    }
}

/* Signals sent to the guard itself: its pid is what others see as the holder's. Its own stops are no business of CMD.
 */
static void hear_signals(struct guard *guard)
{
    for (int number; (number = signals_next(guard->signals, NULL)) != 0;)
        if (number != SIGCHLD && number != SIGCONT && number != SIGTSTP)
            hear_signal(guard, number);
}

static void hear(struct guard *guard)
{
    uint64_t rung;
    (void)!read(guard->bell, &rung, sizeof rung);
    hear_front(guard);
    hear_signals(guard);
}

/* Sleeps until something is to be heard or the time is over. The timer counts a suspended machine's sleep, as a lease
 * does; poll's own time-out does not. */
static void nap(struct guard *guard, int64_t ms)
{
    struct itimerspec when = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}};
    struct pollfd ready[] = {{.fd = guard->link, .events = POLLIN},
                             {.fd = guard->signals, .events = POLLIN},
                             {.fd = guard->bell, .events = POLLIN},
                             {.fd = guard->timer, .events = POLLIN}};
    if (ms <= 0)
        return;
    timerfd_settime(guard->timer, 0, &when, NULL);
    poll(ready, sizeof ready / sizeof ready[0], -1);
}

/* ---- Asking ---- */

static bool setting(const struct guard *guard, const char *name, int64_t *value)
{
    const char *source;
    return hf_client_setting(guard->client, name, value, &source) == HF_OK && strcmp(source, "default") != 0;
}

/* ttl and grace in force; 0, or an exit code after a message. */
static int fix_times(struct guard *guard)
{
    const char *source;
    bool given = guard->order->grace_ms >= 0;
    guard->ttl_ms = guard->order->request.ttl_ms;
    if (guard->ttl_ms == 0) {
        hf_status status = hf_client_setting(guard->client, "ttl", &guard->ttl_ms, &source);
        if (status != HF_OK)
            return fail_with(status);
    }
    guard->grace_ms = guard->order->grace_ms;
    if (!given && !setting(guard, "grace", &guard->grace_ms))
        guard->grace_ms = guard->ttl_ms / GRACE_PART;
    if (guard->grace_ms * 2 >= guard->ttl_ms) {
        complain("%s of %lld ms is not below half of the ttl of %lld ms", given ? "--grace" : "the setting grace",
                 (long long)guard->grace_ms, (long long)guard->ttl_ms);
        return given ? EXIT_USAGE : hf_status_exit_code(HF_CONFIG);
    }
    guard->kill_ms = guard->grace_ms / KILL_PART;
    if (guard->kill_ms > KILL_MOST_MS)
        guard->kill_ms = KILL_MOST_MS;
    if (guard->kill_ms < KILL_LEAST_MS)
        guard->kill_ms = KILL_LEAST_MS;
    return 0;
}

static int ask(struct guard *guard)
{
    struct hf_request request = guard->order->request;
    request.ttl_ms = guard->ttl_ms;
    request.on_lost = on_lost;
    request.lost_arg = guard;
    if (request.wait_ms == HF_WAIT_DEFAULT && !setting(guard, "wait", &request.wait_ms))
        request.wait_ms = HF_FOREVER;
    hf_status status = hf_acquire_start(guard->client, &request, on_done, guard, &guard->lease);
    return status == HF_OK ? 0 : fail_with(status);
}

/* Not granted: says why, and for busy who holds it. */
static int explain_refusal(struct guard *guard)
{
    struct rows rows = {0};
    hf_status outcome = (hf_status)atomic_load(&guard->outcome);
    const char *name = guard->order->request.name;
    int code = hf_status_exit_code(outcome);
    if (outcome != HF_BUSY && outcome != HF_TIMEOUT) {
        complain("%s", *guard->outcome_text ? guard->outcome_text : hf_status_text(outcome));
        return code;
    }
    if (hf_show(guard->client, name, rows_add, &rows) == HF_OK && rows.count > 0)
        complain("%s", holders_describe(name, &rows).text);
    else
        complain("\"%s\": %s", text_shown(name).text, hf_status_text(outcome));
    rows_free(&rows);
    return guard->order->busy_code >= 0 ? guard->order->busy_code : code;
}

/* 0 when granted, else the exit code. A signal that came is honoured even if the grant came too. */
static int wait_for_grant(struct guard *guard, int *code)
{
    struct waiting waiting;
    waiting_begin(&waiting, guard->order->request.name, &guard->terminal);
    for (;;) {
        hear(guard);
        if (guard->front_gone || guard->signal || atomic_load(&guard->outcome) != UNDECIDED)
            break;
        waiting_tell(&waiting, guard->client);
        nap(guard, waiting_pause(&waiting));
    }
    waiting_end(&waiting);
    if (guard->front_gone || guard->signal) {
        hf_cancel(guard->lease);
        *code = guard->front_gone ? EXIT_INTERNAL : 128 + guard->signal;
        return -1;
    }
    if (atomic_load(&guard->outcome) == HF_OK)
        return 0;
    *code = explain_refusal(guard);
    return -1;
}

/* ---- Watching ---- */

/* Without a terminal there is no job control: who stops CMD then means CMD alone. */
static void command_stopped(struct guard *guard, int number)
{
    pid_t group = guard->command.pid;
    if (guard->terminal.fd < 0)
        return;
    if ((number == SIGTTIN || number == SIGTTOU) && terminal_give(&guard->terminal, group)) {
        guard->terminal.at_once = true;
        kill(-group, SIGCONT);
        return;
    }
    terminal_take_back(&guard->terminal, group);
    if (!guard->front_stopped)
        link_send(guard->link, LINK_STOPPED, 0);
    guard->front_stopped = true;
}

static void wake_front(struct guard *guard)
{
    if (guard->front_stopped && !guard->front_gone)
        kill(guard->order->front, SIGCONT);
    guard->front_stopped = false;
}

static void reap(struct guard *guard)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
        if (pid != guard->command.pid)
            continue;
        if (WIFSTOPPED(status)) {
            command_stopped(guard, WSTOPSIG(status));
        } else if (WIFCONTINUED(status)) {
            wake_front(guard);
        } else {
            guard->ended = true;
            guard->command.status = status;
        }
    }
}

/* The lease cannot be kept: CMD is asked to end. A stopped CMD must go on to hear it. */
static void warn(struct guard *guard)
{
    guard->warned = true;
    command_tell_lost(&guard->command);
    kill(-guard->command.pid, SIGTERM);
    kill(-guard->command.pid, SIGCONT);
}

/* CMD ended. When it was asked to, its descendants were asked too and have the rest of the grace; when it ended by
 * itself they are left alone. */
static bool is_over(const struct guard *guard)
{
    return guard->ended && (!guard->warned || !descendants_exist());
}

/* Returns when CMD ended, the lease is about to end, or the front is gone. */
static void watch(struct guard *guard)
{
    for (;;) {
        int64_t left = hf_lease_left_ms(guard->lease);
        if (atomic_load(&guard->lost) || left <= guard->kill_ms)
            return;
        hear(guard);
        reap(guard);
        if (guard->front_gone || is_over(guard))
            return;
        if (!guard->warned && left <= guard->grace_ms)
            warn(guard);
        nap(guard, left - (guard->warned ? guard->kill_ms : guard->grace_ms));
    }
}

static int say_lost(struct guard *guard)
{
    complain("the lease on \"%s\" %s; the command was stopped", text_shown(guard->order->request.name).text,
             guard->warned ? "could not be kept" : "was lost");
    return EXIT_LOST;
}

/* What is to be done once watch() returned: nothing of CMD may outlive a lease that it did not end itself. */
static int conclude(struct guard *guard)
{
    int code = EXIT_LOST;
    if (!is_over(guard)) {
        command_tell_lost(&guard->command);
        descendants_end(guard->ended ? 0 : guard->command.pid, NULL);
    }
    hf_status released = hf_release(guard->lease);
    bool had_terminal = terminal_take_back(&guard->terminal, guard->command.pid);
    if (guard->ended && had_terminal && WIFSIGNALED(guard->command.status) && WTERMSIG(guard->command.status) == SIGINT)
        link_send(guard->link, LINK_INTERRUPTED, 0);
    if (guard->front_gone)
        return EXIT_INTERNAL;
    if (!guard->ended || guard->warned || released == HF_NOT_HELD || released == HF_LOST)
        code = say_lost(guard);
    else
        code = command_exit_code(&guard->command, guard->order->argv[0]);
    if (released == HF_IN_DOUBT)
        complain("release of \"%s\": %s", text_shown(guard->order->request.name).text, hf_error_text());
    wake_front(guard);
    return code;
}

static int run_command(struct guard *guard)
{
    struct command_facts facts = {guard->order->request.name, hf_lease_token(guard->lease), guard->ttl_ms};
    if (hf_lease_left_ms(guard->lease) <= guard->kill_ms) {
        complain("the lease on \"%s\" ended before the command was started", text_shown(facts.name).text);
        return EXIT_LOST;
    }
    if (command_start(&guard->command, guard->order, &facts, &guard->terminal) != 0)
        return EXIT_INTERNAL;
    link_send(guard->link, LINK_STARTED, guard->command.pid);
    watch(guard);
    return conclude(guard);
}

/* ---- Life ---- */

static int open_descriptors(struct guard *guard)
{
    guard->signals = signals_open(&guard->order->signals);
    guard->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    guard->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (guard->signals >= 0 && guard->bell >= 0 && guard->timer >= 0 && descendants_adopt() == 0)
        return 0;
    complain("cannot prepare the guard process: %s", strerror(errno));
    return EXIT_INTERNAL;
}

int guard_run(const struct run_order *order, int link)
{
    struct guard guard = {.order = order, .link = link, .outcome = UNDECIDED};
    setpgid(0, 0);
    terminal_open(&guard.terminal, order->front, order->front_group);
    int code = open_descriptors(&guard);
    if (code != 0)
        return code;
    hf_status status = hf_open(order->url, NULL, &guard.client);
    if (status != HF_OK)
        return fail_with(status);
    code = fix_times(&guard);
    if (code == 0)
        code = ask(&guard);
    if (code == 0 && wait_for_grant(&guard, &code) == 0)
        code = run_command(&guard);
    status = hf_close(guard.client, CLOSE_MS);
    if (status != HF_OK && status != HF_IN_DOUBT)
        fail_with(status);
    return code;
}
