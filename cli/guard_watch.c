/* guard_watch.c - the guard while CMD runs: watches lease and command until one of them ends.
 *
 * Every turn begins with a look at the time left: a process that was stopped beyond its ttl kills before it does
 * anything else. */
#include "descendants.h"
#include "guard.h"
#include "link.h"
#include "text.h"
#include <sys/wait.h>

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
    status_tell(&guard->status, "lost", "\"signal\":%d", guard->order->lost_signal);
    if (guard->order->lost_signal == 0)
        return;
    kill(-guard->command.pid, guard->order->lost_signal);
    kill(-guard->command.pid, SIGCONT);
}

/* --on-lost warn: CMD goes on, and everybody who can be told is told. */
static void let_go(struct guard *guard)
{
    guard->let_go = true;
    command_tell_lost(&guard->command);
    status_tell(&guard->status, "lost", "\"signal\":null");
    complain("the lease on \"%s\" was lost; the command goes on without it",
             text_shown(guard->order->request.name).text);
}

/* CMD ended. When it was asked to, its descendants were asked too and have the rest of the grace; when it ended by
 * itself they are left alone. */
static bool is_over(const struct guard *guard)
{
    return guard->ended && (!guard->warned || !descendants_exist());
}

/* Looks at the lease. True when CMD's time is over; otherwise *pause is how long nothing is to be done for its sake. */
static bool lease_is_over(struct guard *guard, int64_t *pause)
{
    int64_t left = hf_lease_left_ms(guard->lease);
    bool lost = atomic_load(&guard->lost);
    if (!guard->order->only_warns) {
        *pause = left - (guard->warned ? guard->kill_ms : guard->grace_ms);
        return lost || left <= guard->kill_ms;
    }
    if (lost && !guard->let_go)
        let_go(guard);
    *pause = NO_LIMIT;
    return false;
}

/* Returns when CMD ended, the lease is about to end, or the front is gone. CMD may begin once the lease was looked at
 * and all was heard that came before: what ends CMD then does so before it has done anything. */
static void watch(struct guard *guard)
{
    for (int64_t pause; !lease_is_over(guard, &pause);) {
        guard_hear(guard);
        reap(guard);
        if (guard->front_gone || is_over(guard))
            return;
        command_go(&guard->command);
        if (!guard->order->only_warns && !guard->warned && pause <= 0)
            warn(guard);
        else
            guard_nap(guard, pause);
    }
}

static int say_lost(struct guard *guard)
{
    if (!guard->let_go)
        complain("the lease on \"%s\" %s; the command was stopped", text_shown(guard->order->request.name).text,
                 guard->warned ? "could not be kept" : "was lost");
    return EXIT_LOST;
}

static void tell_end(struct guard *guard, hf_status released)
{
    int status = guard->command.status;
    if (!guard->warned && !guard->let_go && (!guard->ended || released != HF_OK))
        status_tell(&guard->status, "lost", "\"signal\":%d", guard->ended ? 0 : SIGKILL);
    if (!guard->ended)
        status_tell(&guard->status, "exited", "\"code\":null,\"signal\":%d", SIGKILL);
    else if (WIFSIGNALED(status))
        status_tell(&guard->status, "exited", "\"code\":null,\"signal\":%d", WTERMSIG(status));
    else
        status_tell(&guard->status, "exited", "\"code\":%d,\"signal\":null", WEXITSTATUS(status));
    status_tell(&guard->status, "released", "\"status\":\"%s\"", hf_status_name(released));
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
    tell_end(guard, released);
    if (guard->front_gone)
        return EXIT_INTERNAL;
    if (!guard->ended || guard->warned || guard->let_go || released == HF_NOT_HELD || released == HF_LOST)
        code = say_lost(guard);
    else
        code = command_exit_code(&guard->command, guard->order->argv[0]);
    if (released == HF_IN_DOUBT)
        complain("release of \"%s\": %s", text_shown(guard->order->request.name).text, hf_error_text());
    wake_front(guard);
    return code;
}

int guard_watch(struct guard *guard)
{
    struct command_facts facts = {guard->order->request.name, hf_lease_token(guard->lease), guard->ttl_ms};
    if (hf_lease_left_ms(guard->lease) <= guard->kill_ms) {
        complain("the lease on \"%s\" ended before the command was started", text_shown(facts.name).text);
        status_tell(&guard->status, "lost", "\"signal\":null");
        return EXIT_LOST;
    }
    status_tell(&guard->status, "granted", "\"token\":%llu,\"ttl_ms\":%lld", (unsigned long long)facts.token,
                (long long)facts.ttl_ms);
    if (command_start(&guard->command, guard->order, &facts, &guard->terminal) != 0)
        return EXIT_INTERNAL;
    status_tell(&guard->status, "started", "\"pid\":%d", (int)guard->command.pid);
    link_send(guard->link, LINK_STARTED, guard->command.pid);
    watch(guard);
    return conclude(guard);
}
