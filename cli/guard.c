/* guard.c - CMD's parent and the lease's owner: opens the engine, asks, watches, closes.
 *
 * One thread (the library has its own, whose callbacks only set a flag and ring a bell), one poll. */
#include "guard.h"
#include "descendants.h"
#include "glance.h"
#include "link.h"
#include "log.h"
#include "session.h"
#include "text.h"
#include "verbs.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- Hearing ---- */

/* The log goes to its file, and a place in the queue is news for --status-fd. */
static void on_log(void *arg, const struct hf_log_event *event)
{
    struct guard *guard = arg;
    uint64_t one = 1;
    if (guard->order->log_fd >= 0)
        log_write(guard->order->log_fd, event);
    if (strcmp(event->event, "queued") == 0) {
        atomic_store(&guard->queued, true);
        (void)!write(guard->asking.bell, &one, sizeof one);
    }
}

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
        if (number != SIGCHLD && number != SIGCONT)
            hear_signal(guard, number);
}

void guard_hear(struct guard *guard)
{
    uint64_t rung;
    (void)!read(guard->asking.bell, &rung, sizeof rung);
    hear_front(guard);
    hear_signals(guard);
}

/* The timer counts a suspended machine's sleep, as a lease does; poll's own time-out does not. */
void guard_nap(struct guard *guard, int64_t ms)
{
    struct itimerspec when = {0};
    struct pollfd ready[] = {{.fd = guard->link, .events = POLLIN},
                             {.fd = guard->signals, .events = POLLIN},
                             {.fd = guard->asking.bell, .events = POLLIN},
                             {.fd = guard->timer, .events = POLLIN}};
    if (ms <= 0)
        return;
    if (ms != NO_LIMIT)
        when.it_value = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    timerfd_settime(guard->timer, 0, &when, NULL);
    poll(ready, sizeof ready / sizeof ready[0], -1);
}

/* ---- Life ---- */

static int open_descriptors(struct guard *guard)
{
    guard->signals = signals_open(&guard->order->signals);
    guard->asking.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    guard->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (guard->signals >= 0 && guard->asking.bell >= 0 && guard->timer >= 0 && descendants_adopt() == 0)
        return 0;
    complain("cannot prepare the guard process: %s", strerror(errno));
    return EXIT_INTERNAL;
}

/* From the opened client to the exit code. */
static int serve_order(struct guard *guard)
{
    int code = 0;
    if (guard_ask(guard, &code))
        return guard_watch(guard);
    status_tell(&guard->status, "refused", "\"code\":%d", code);
    return code;
}

int guard_run(const struct run_order *order, int link)
{
    struct guard guard = {.order = order, .link = link, .asking = {.outcome = UNDECIDED}};
    struct hf_client_options how = {.size = sizeof how, .on_log = on_log, .log_arg = &guard};
    guard.status = (struct status){.fd = order->status_fd, .name = order->request.name};
    setpgid(0, 0);
    terminal_open(&guard.terminal, order->front, order->front_group);
    int code = open_descriptors(&guard);
    if (code != 0)
        return code;
    hf_status status = hf_open(order->url, &how, &guard.client);
    if (status != HF_OK) {
        code = fail_with(status);
        status_tell(&guard.status, "refused", "\"code\":%d", code);
        return code;
    }
    code = serve_order(&guard);
    status = hf_close(guard.client, session_patience(code));
    if (status != HF_OK && status != HF_IN_DOUBT && !glance_pending())
        fail_with(status);
    return code;
}
