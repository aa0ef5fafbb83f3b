/* guard.c - the guard process, CMD's parent and the lease's owner: opens the engine, acquires,
 * watches, closes.
 *
 * One thread and one poll. Callbacks of the library's thread only set a flag and write to an
 * eventfd. */
#include "guard.h"
#include "descendants.h"
#include "holder_lookup.h"
#include "json_log.h"
#include "output.h"
#include "run_channel.h"
#include "verb_client.h"
#include "verbs.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- Events ---- */

/* Writes the event to the log file. Notes grants, and places in the queue for --status-fd. */
static void on_log(void *arg, const struct hf_log_event *event)
{
    struct guard *guard = arg;
    uint64_t one = 1;

    log_outlet_write(&guard->log, event);
    size_t which = event->name ? lock_set_find(&guard->locks, event->name) : guard->locks.count;
    if (which == guard->locks.count)
        return;
    if (strcmp(event->event, "granted") == 0)
        atomic_store(&guard->locks.granted[which], true);
    if (strcmp(event->event, "queued") == 0) {
        atomic_store(&guard->queued, which + 1);
        (void)!write(guard->lock_request.wake_fd, &one, sizeof one);
    }
}

/* Handles a signal for the job. If CMD runs, CMD gets the signal. Otherwise the signal ends the
 * wait, unless it is one that would not end a command. */
static void receive_signal(struct guard *guard, int number)
{
    if (number == SIGTSTP)
        guard->front_stopped = true; /* the front stops itself */
    if (guard->ended)
        return;
    bool ends_wait = number != SIGWINCH && number != SIGTSTP;
    if (guard->command.pid > 0)
        kill(-guard->command.pid, number);
    else if (ends_wait && guard->signal == 0)
        guard->signal = number;
}

static void receive_continued(struct guard *guard)
{
    guard->front_stopped = false;
    if (guard->command.pid == 0 || guard->ended)
        return;
    if (guard->terminal.at_once)
        terminal_give(&guard->terminal, guard->command.pid);
    kill(-guard->command.pid, SIGCONT);
}

static void receive_front(struct guard *guard)
{
    int value;

    for (;;) {
        switch (channel_read(guard->channel, &value)) {
        case CHANNEL_SIGNAL:
            receive_signal(guard, value);
            break;
        case CHANNEL_CONTINUED:
            receive_continued(guard);
            break;
        case CHANNEL_CLOSED:
            guard->front_gone = true;
            return;
        default:
            return;
        }
    }
}

/* Handles signals that were sent to the guard itself, whose pid others see as the holder's. A
 * SIGCONT of the guard does not concern CMD. */
static void receive_signals(struct guard *guard)
{
    for (int number; (number = signals_next(guard->signals, NULL)) != 0;)
        if (number != SIGCHLD && number != SIGCONT)
            receive_signal(guard, number);
}

void guard_receive(struct guard *guard)
{
    uint64_t woken;
    (void)!read(guard->lock_request.wake_fd, &woken, sizeof woken);
    receive_front(guard);
    receive_signals(guard);
}

/* Sleeps by a CLOCK_BOOTTIME timer, which counts the time of a suspended machine as a lease
 * does. The time-out of poll does not count it. */
void guard_sleep(struct guard *guard, int64_t ms)
{
    struct itimerspec when = {0};
    struct pollfd ready[] = {{.fd = guard->channel, .events = POLLIN},
                             {.fd = guard->signals, .events = POLLIN},
                             {.fd = guard->lock_request.wake_fd, .events = POLLIN},
                             {.fd = guard->timer, .events = POLLIN}};

    if (ms <= 0)
        return;
    if (ms != NO_LIMIT)
        when.it_value = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    timerfd_settime(guard->timer, 0, &when, NULL);
    poll(ready, sizeof ready / sizeof ready[0], -1);
}

/* ---- Start and end ---- */

static int open_descriptors(struct guard *guard)
{
    guard->signals = signals_open(&guard->order->signals);
    guard->lock_request.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    guard->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    bool opened = guard->signals >= 0 && guard->lock_request.wake_fd >= 0 && guard->timer >= 0;
    if (opened && descendants_adopt() == 0)
        return 0;
    complain("cannot prepare the guard process: %s", strerror(errno));
    return EXIT_INTERNAL;
}

/* Acquires the lease and runs CMD. Returns the exit code. */
static int serve_order(struct guard *guard)
{
    int code = 0;
    if (guard_acquire(guard, &code))
        return guard_watch(guard);
    status_fd_write(&guard->status, "refused", "\"code\":%d", code);
    return code;
}

static void take_order(struct guard *guard, const struct run_order *order, int channel)
{
    *guard = (struct guard){.order = order,
                            .channel = channel,
                            .lock_request = {.outcome = UNDECIDED},
                            .log = order->log};
    guard->status = (struct status_fd){.fd = order->status_fd, .name = order->names[0]};
    guard->locks.count = order->count;
    memcpy(guard->locks.names, order->names, order->count * sizeof *order->names);
}

int guard_run(const struct run_order *order, int channel)
{
    static struct guard
        guard; /* static because the thread that acquires several names may outlive this call */

    take_order(&guard, order, channel);
    struct hf_client_options how = {.size = sizeof how, .on_log = on_log, .log_arg = &guard};
    setpgid(0, 0);
    terminal_open(&guard.terminal, order->front, order->front_group);

    int code = open_descriptors(&guard);
    if (code != 0)
        return code;

    hf_status status = hf_open(order->url, &how, &guard.client);
    if (status != HF_OK) {
        code = fail_with(status);
        status_fd_write(&guard.status, "refused", "\"code\":%d", code);
        return code;
    }

    code = serve_order(&guard);
    status = hf_close(guard.client, verb_client_patience(code));
    if (status != HF_TIMEOUT)
        lock_set_join(&guard.locks);
    bool failed = status != HF_OK && status != HF_IN_DOUBT;
    if (failed && !holder_lookup_pending())
        fail_with(status);

    return code;
}
