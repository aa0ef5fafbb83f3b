/* run_front.c - the process that the user started: forks the guard, passes signals on, stops
 * when CMD is stopped. */
#include "descendants.h"
#include "output.h"
#include "run.h"
#include "run_channel.h"
#include "status_fd.h"
#include "terminal.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct front {
    const struct run_order *order;
    pid_t guard;
    int channel, signals, stops;
    struct spared spared;
    pid_t child_group; /* process group of CMD; 0 if it is not started */
    bool child_ended;
    bool interrupted; /* Ctrl-C was typed */
    bool guard_ended;
    int guard_status;
};

/* Stops this process if a stop is pending. In an orphaned process group Ctrl-Z has no effect,
 * because nobody could continue the group; then the guard continues CMD. */
static void stop(struct front *front)
{
    if (!signals_stop())
        channel_send(front->channel, CHANNEL_CONTINUED, 0);
}

/* CMD is stopped and the guard has taken the terminal back: stops the whole job, as a shell
 * expects. This holds even if Ctrl-Z is ignored, because other signals may have stopped CMD. */
static void stop_with_command(struct front *front)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, before;
    sigaction(SIGTSTP, &standard, &before);
    kill(0, SIGTSTP);
    stop(front);
    sigaction(SIGTSTP, &before, NULL);
}

/* Handles Ctrl-Z while CMD does not have the terminal: passes it on to CMD and stops without
 * waiting for CMD. */
static void stop_before_command(struct front *front)
{
    channel_send(front->channel, CHANNEL_SIGNAL, SIGTSTP);
    stop(front);
}

static void reap(struct front *front)
{
    int status;

    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != front->guard)
            continue;
        front->guard_ended = true;
        front->guard_status = status;
    }
}

static void receive_signals(struct front *front)
{
    bool typed;

    if (signals_stop_pending())
        stop_before_command(front);
    for (int number; (number = signals_next(front->signals, &typed)) != 0;) {
        front->interrupted |= number == SIGINT && typed;
        if (number == SIGCHLD)
            reap(front);
        else if (number == SIGCONT)
            channel_send(front->channel, CHANNEL_CONTINUED, 0);
        else
            channel_send(front->channel, CHANNEL_SIGNAL, number);
    }
}

/* Reads all messages of the guard. Returns false if the guard's end is closed. */
static bool receive_guard(struct front *front)
{
    int value;
    enum channel_message word;

    while ((word = channel_read(front->channel, &value)) > CHANNEL_NOTHING) {
        if (word == CHANNEL_STOPPED)
            stop_with_command(front);
        if (word == CHANNEL_STARTED)
            front->child_group = value;
        front->child_ended |= word == CHANNEL_ENDED;
        front->interrupted |= word == CHANNEL_INTERRUPTED;
    }

    return word != CHANNEL_CLOSED;
}

static int serve_guard(struct front *front)
{
    enum { SIGNALS, STOPS, CHANNEL };
    struct pollfd ready[] = {[SIGNALS] = {.fd = front->signals, .events = POLLIN},
                             [STOPS] = {.fd = front->stops, .events = POLLIN},
                             [CHANNEL] = {.fd = front->channel, .events = POLLIN}};

    while (!front->guard_ended) {
        if (poll(ready, sizeof ready / sizeof ready[0], -1) < 0 && errno != EINTR) {
            complain("poll: %s", strerror(errno));
            return -1;
        }
        if (ready[CHANNEL].fd >= 0 && !receive_guard(front))
            ready[CHANNEL].fd = -1;
        receive_signals(front);
    }

    return 0;
}

/* Returns words that say when the guard was killed: before or after CMD ran; "": while it ran. */
static const char *child_end(const struct front *front)
{
    if (front->child_group == 0)
        return " before the command was started";
    return front->child_ended ? " after the command had ended" : "";
}

/* Cleans up after a guard that was killed. CMD dies with the guard (PDEATHSIG), and its
 * descendants have become children of this process. */
static int clean_up_after_guard(struct front *front)
{
    struct terminal terminal;

    receive_guard(front);
    descendants_end(0, &front->spared);
    terminal_open(&terminal, front->order->front, front->order->front_group);
    if (front->child_group > 0)
        terminal_take_back(&terminal, front->child_group);
    terminal_close(&terminal);

    const char *end = child_end(front);
    struct status_fd status = {.fd = front->order->status_fd, .name = front->order->names[0]};
    if (*end)
        status_fd_write(&status, "lost", "\"signal\":null");
    else
        status_fd_write(&status, "lost", "\"signal\":%d", SIGKILL);
    complain("the guard process was killed by signal %d%s", WTERMSIG(front->guard_status),
             *end ? end : "; the command was stopped");

    return EXIT_INTERNAL;
}

/* Dies of SIGINT after Ctrl-C, because a shell stops its loop or script only if its child died
 * of that signal. */
static int exit_code(const struct front *front)
{
    int code = WEXITSTATUS(front->guard_status);

    if (front->interrupted && code == 128 + SIGINT) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
        signals_give_back(&front->order->signals);
    }

    return code;
}

int run_front(struct run_order *order)
{
    int ends[2];
    struct front front = {.order = order};

    order->front = getpid();
    order->front_group = getpgrp();
    signals_take(&order->signals);
    descendants_spare(&front.spared);
    front.signals = signals_open(&order->signals);
    front.stops = signals_open_stop();

    bool prepared = front.signals >= 0 && front.stops >= 0 && channel_open(ends) == 0 &&
                    descendants_adopt() == 0;
    front.guard = prepared ? fork() : -1;
    if (front.guard < 0) {
        complain("cannot start the guard process: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    if (front.guard == 0) {
        close(front.signals);
        close(front.stops);
        close(ends[0]);
        return guard_run(order, ends[1]);
    }

    /* The guard is outside the front's group, so that it survives a SIGKILL for the whole job
     * and can clean up. */
    setpgid(front.guard, front.guard);
    front.channel = ends[0];
    close(ends[1]);
    if (serve_guard(&front) != 0)
        return EXIT_INTERNAL;
    if (WIFSIGNALED(front.guard_status))
        return clean_up_after_guard(&front);

    receive_guard(&front);
    return exit_code(&front);
}
