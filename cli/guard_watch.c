/* guard_watch.c - the guard while CMD runs: watches lease and command until one of them ends.
 *
 * Every turn of the loop begins with a check of the time left: a guard that was stopped for
 * longer than the ttl kills CMD before it does anything else. */
#include "descendants.h"
#include "guard.h"
#include "output.h"
#include "run_channel.h"
#include <string.h>
#include <sys/wait.h>

/* Handles a stop of CMD. Without a terminal there is no job control, and the stop concerns CMD
 * alone. */
static void child_stopped(struct guard *guard, int number)
{
    pid_t group = guard->command.pid;

    if (guard->terminal.fd < 0)
        return;

    bool wants_terminal = number == SIGTTIN || number == SIGTTOU;
    if (wants_terminal && terminal_give(&guard->terminal, group)) {
        guard->terminal.at_once = true;
        kill(-group, SIGCONT);
        return;
    }

    terminal_take_back(&guard->terminal, group);
    if (!guard->front_stopped)
        channel_send(guard->channel, CHANNEL_STOPPED, 0);
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
            child_stopped(guard, WSTOPSIG(status));
        } else if (WIFCONTINUED(status)) {
            wake_front(guard);
        } else {
            guard->ended = true;
            guard->command.status = status;
            channel_send(guard->channel, CHANNEL_ENDED, 0);
        }
    }
}

/* Notes which lock is in trouble: the one that was lost, otherwise the one that ends first.
 * Returns its name. */
static const char *note_trouble(struct guard *guard)
{
    size_t lost = atomic_load(&guard->lost);
    guard->in_trouble = lost ? lost - 1 : lock_set_shortest(&guard->locks);
    return guard->locks.names[guard->in_trouble];
}

static void report_lost(struct guard *guard, const char *members)
{
    guard->status.name = guard->locks.names[guard->in_trouble];
    status_fd_write(&guard->status, "lost", "%s", members);
    guard->status.name = guard->locks.names[0];
}

/* Reports "lost" with the signal that was sent. */
static void report_lost_signal(struct guard *guard, int number)
{
    char members[32];
    snprintf(members, sizeof members, "\"signal\":%d", number);
    report_lost(guard, members);
}

/* The lease cannot be kept: notifies CMD and sends the signal. SIGCONT follows, so that a
 * stopped CMD can react. */
static void warn(struct guard *guard)
{
    guard->warned = true;
    note_trouble(guard);
    child_notify_lost(&guard->command);
    report_lost_signal(guard, guard->order->lost_signal);
    if (guard->order->lost_signal == 0)
        return;
    kill(-guard->command.pid, guard->order->lost_signal);
    kill(-guard->command.pid, SIGCONT);
}

/* --on-lost warn: notifies CMD, --status-fd and the user that the lease was lost. CMD goes on. */
static void let_go(struct guard *guard)
{
    guard->let_go = true;
    const char *name = note_trouble(guard);
    child_notify_lost(&guard->command);
    report_lost(guard, "\"signal\":null");
    complain("the lease on \"%s\" was lost; the command goes on without it",
             output_shown(name).text);
}

/* Returns true when nothing is left to wait for. If CMD ended by itself, its descendants are left
 * alone. If CMD was sent a signal, its descendants got the signal, too, and have the rest of the
 * grace. */
static bool is_over(const struct guard *guard)
{
    return guard->ended && (!guard->warned || !descendants_exist());
}

/* Checks the lease. Returns true when CMD must be killed now. Otherwise *pause is the time until
 * the next check, in milliseconds. */
static bool lease_is_over(struct guard *guard, int64_t *pause)
{
    int64_t left = lock_set_left_ms(&guard->locks);
    bool lost = atomic_load(&guard->lost) != 0;

    if (!guard->order->only_warns) {
        *pause = left - (guard->warned ? guard->kill_ms : guard->grace_ms);
        return lost || left <= guard->kill_ms;
    }
    if (lost && !guard->let_go)
        let_go(guard);
    *pause = NO_LIMIT;
    return false;
}

/* Returns when CMD ended, the lease is about to end, or the front has ended. The gate of CMD is
 * opened only after the lease was checked and all earlier events were read. So an event that
 * forbids CMD takes effect before CMD has done anything. */
static void watch(struct guard *guard)
{
    for (int64_t pause; !lease_is_over(guard, &pause);) {
        guard_receive(guard);
        reap(guard);
        if (guard->front_gone || is_over(guard))
            return;
        child_go(&guard->command);
        bool may_warn = !guard->order->only_warns && !guard->warned;
        if (may_warn && pause <= 0)
            warn(guard);
        else
            guard_sleep(guard, pause);
    }
}

/* Says how CMD ended. "Stopped" is said only if the guard killed CMD or CMD died of the guard's
 * signal. `killed_rest`: CMD had ended, and processes that it left behind were killed. */
static void describe_end(const struct guard *guard, bool killed_rest, char *words, size_t size)
{
    int status = guard->command.status, asked = guard->warned ? guard->order->lost_signal : 0;
    bool died_of_it = WIFSIGNALED(status) && WTERMSIG(status) == asked;

    if (!guard->ended || died_of_it) {
        snprintf(words, size, "the command was stopped");
        return;
    }

    char sent[64] = "";
    if (asked)
        snprintf(sent, sizeof sent, "was sent SIG%s and ", sigabbrev_np(asked));
    if (WIFSIGNALED(status))
        snprintf(words, size, "the command %sdied of signal %d", sent, WTERMSIG(status));
    else
        snprintf(words, size, "the command %sended%s with exit code %d", sent,
                 asked ? "" : " by itself", WEXITSTATUS(status));
    size_t full = strlen(words);
    if (killed_rest)
        snprintf(words + full, size - full,
                 "; the processes that it had left running were stopped");
}

static int say_lost(const struct guard *guard, bool killed_rest)
{
    char end[192];
    struct shown name = output_shown(guard->locks.names[guard->in_trouble]);

    describe_end(guard, killed_rest, end, sizeof end);
    if (!child_began(&guard->command))
        complain("the lease on \"%s\" ended before the command was started", name.text);
    else if (!guard->let_go)
        complain("the lease on \"%s\" %s; %s", name.text,
                 guard->warned ? "could not be kept" : "was lost", end);
    return EXIT_LOST;
}

static bool had_ended(hf_status released)
{
    return released == HF_NOT_HELD || released == HF_LOST;
}

/* Returns the index of the first lease that had ended before its release, or `count` if there is
 * none. */
static size_t find_unheld(const hf_status *released, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (had_ended(released[i]))
            return i;
    return count;
}

static void release_all(struct guard *guard, hf_status *released)
{
    for (size_t i = 0; i < guard->locks.count; i++) {
        released[i] = hf_release(guard->locks.leases[i]);
        bool may_still_hold = released[i] != HF_OK && !had_ended(released[i]);
        if (may_still_hold && !guard->front_gone)
            complain("release of \"%s\": %s", output_shown(guard->locks.names[i]).text,
                     hf_error_text());
    }
}

static void report_released(struct guard *guard, const hf_status *released)
{
    for (size_t i = 0; i < guard->locks.count; i++) {
        guard->status.name = guard->locks.names[i];
        status_fd_write(&guard->status, "released", "\"status\":\"%s\"",
                        hf_status_name(released[i]));
    }

    guard->status.name = guard->locks.names[0];
}

static void report_end(struct guard *guard, const hf_status *released)
{
    int status = guard->command.status;
    bool notified = guard->warned || guard->let_go;
    bool kept = guard->ended && find_unheld(released, guard->locks.count) == guard->locks.count;

    if (!notified && !kept)
        report_lost_signal(guard, guard->ended ? 0 : SIGKILL);
    if (!guard->ended)
        status_fd_write(&guard->status, "exited", "\"code\":null,\"signal\":%d", SIGKILL);
    else if (WIFSIGNALED(status))
        status_fd_write(&guard->status, "exited", "\"code\":null,\"signal\":%d", WTERMSIG(status));
    else
        status_fd_write(&guard->status, "exited", "\"code\":%d,\"signal\":null",
                        WEXITSTATUS(status));
    report_released(guard, released);
}

/* Kills CMD and all its descendants. CMD may have ended by itself just before; then its own
 * status is kept. */
static void stop_command(struct guard *guard)
{
    child_notify_lost(&guard->command);
    int status = descendants_end(guard->ended ? 0 : guard->command.pid, NULL);
    if (guard->ended)
        return;
    guard->command.status = status;
    guard->ended = !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
}

/* Releases all locks. Returns true if any of them was lost; `in_trouble` then says which. */
static bool release_and_judge(struct guard *guard, hf_status *released)
{
    bool known = guard->warned || guard->let_go || atomic_load(&guard->lost) != 0;
    release_all(guard, released);
    size_t unheld = find_unheld(released, guard->locks.count);
    if (!known && unheld < guard->locks.count)
        guard->in_trouble = unheld;
    return known || unheld < guard->locks.count;
}

static void report_interrupted(struct guard *guard)
{
    int status = guard->command.status;
    bool had_terminal = terminal_take_back(&guard->terminal, guard->command.pid);
    bool died_of_it = guard->ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
    if (had_terminal && died_of_it)
        channel_send(guard->channel, CHANNEL_INTERRUPTED, 0);
}

/* Cleans up after watch() and returns the exit code. If CMD has not ended by itself, CMD and its
 * descendants are killed before the locks are released. */
static int conclude(struct guard *guard)
{
    int code;
    hf_status released[LOCK_SET_MAX];
    bool in_time = is_over(guard), left_rest = guard->ended && !in_time;

    if (!guard->warned && !guard->let_go)
        note_trouble(guard);
    if (!in_time)
        stop_command(guard);
    bool lost = release_and_judge(guard, released) || !in_time;
    report_interrupted(guard);
    report_end(guard, released);
    if (guard->front_gone)
        return EXIT_INTERNAL;
    if (lost)
        code = say_lost(guard, left_rest);
    else
        code = child_exit_code(&guard->command, guard->order->argv[0]);

    wake_front(guard);
    return code;
}

static void report_granted(struct guard *guard)
{
    for (size_t i = 0; i < guard->locks.count; i++) {
        guard->status.name = guard->locks.names[i];
        status_fd_write(&guard->status, "granted", "\"token\":\"%llu\",\"ttlMs\":%lld",
                        (unsigned long long)hf_lease_token(guard->locks.leases[i]),
                        (long long)guard->ttl_ms);
    }

    guard->status.name = guard->locks.names[0];
}

int guard_watch(struct guard *guard)
{
    struct child_facts facts = {&guard->locks, guard->ttl_ms};

    if (lock_set_left_ms(&guard->locks) <= guard->kill_ms) {
        complain("the lease on \"%s\" ended before the command was started",
                 output_shown(note_trouble(guard)).text);
        report_lost(guard, "\"signal\":null");
        return EXIT_LOST;
    }

    report_granted(guard);
    if (child_start(&guard->command, guard->order, &facts, &guard->terminal) != 0)
        return EXIT_INTERNAL;

    status_fd_write(&guard->status, "started", "\"pid\":%d", (int)guard->command.pid);
    channel_send(guard->channel, CHANNEL_STARTED, guard->command.pid);
    watch(guard);

    return conclude(guard);
}
