/* front.c - the process that the user sees: forks the guard, passes signals on, stops when CMD is stopped. */
#include "descendants.h"
#include "link.h"
#include "run.h"
#include "status.h"
#include "terminal.h"
#include "text.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct front {
    const struct run_order *order;
    pid_t guard;
    int link, signals, stops;
    struct spared spared;
    pid_t command_group; /* 0: not started */
    bool interrupted;    /* by Ctrl-C */
    bool guard_ended;
    int guard_status;
};

/* Stops with what is pending. Where nobody could continue us CMD goes on as well: Ctrl-Z has no effect there. */
static void stop(struct front *front)
{
    if (!signals_stop())
        link_send(front->link, LINK_CONTINUED, 0);
}

/* CMD is stopped, and the guard has taken the terminal back: the whole job stops, as a shell expects it; also where
 * Ctrl-Z is ignored, for CMD may be stopped by other signals. */
static void stop_with_command(struct front *front)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, before;
    sigaction(SIGTSTP, &standard, &before);
    kill(0, SIGTSTP);
    stop(front);
    sigaction(SIGTSTP, &before, NULL);
}

/* Ctrl-Z while CMD does not have the terminal: CMD is told, and we stop without waiting for it. */
static void stop_before_command(struct front *front)
{
    link_send(front->link, LINK_SIGNAL, SIGTSTP);
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

static void hear_signals(struct front *front)
{
    bool typed;
    if (signals_stop_pending())
        stop_before_command(front);
    for (int number; (number = signals_next(front->signals, &typed)) != 0;) {
        front->interrupted |= number == SIGINT && typed;
        if (number == SIGCHLD)
            reap(front);
        else if (number == SIGCONT)
            link_send(front->link, LINK_CONTINUED, 0);
        else
            link_send(front->link, LINK_SIGNAL, number);
    }
}

/* False when the guard's end is closed. */
static bool hear_guard(struct front *front)
{
    int value;
    enum link_word word;
    while ((word = link_read(front->link, &value)) > LINK_NOTHING) {
        if (word == LINK_STOPPED)
            stop_with_command(front);
        if (word == LINK_STARTED)
            front->command_group = value;
        front->interrupted |= word == LINK_INTERRUPTED;
    }
    return word != LINK_CLOSED;
}

static int serve_guard(struct front *front)
{
    enum { SIGNALS, STOPS, LINK };
    struct pollfd ready[] = {[SIGNALS] = {.fd = front->signals, .events = POLLIN},
                             [STOPS] = {.fd = front->stops, .events = POLLIN},
                             [LINK] = {.fd = front->link, .events = POLLIN}};
    while (!front->guard_ended) {
        if (poll(ready, sizeof ready / sizeof ready[0], -1) < 0 && errno != EINTR) {
            complain("poll: %s", strerror(errno));
            return -1;
        }
        if (ready[LINK].fd >= 0 && !hear_guard(front))
            ready[LINK].fd = -1;
        hear_signals(front);
    }
    return 0;
}

/* The guard was killed. CMD dies with it (PDEATHSIG), CMD's descendants have become ours. */
static int clean_up_after_guard(struct front *front)
{
    struct terminal terminal;
    descendants_end(0, &front->spared);
    terminal_open(&terminal, front->order->front, front->order->front_group);
    if (front->command_group > 0)
        terminal_take_back(&terminal, front->command_group);
    terminal_close(&terminal);
    struct status status = {.fd = front->order->status_fd, .name = front->order->request.name};
    status_tell(&status, "lost", "\"signal\":%d", SIGKILL);
    complain("the guard process was killed by signal %d; the command was stopped", WTERMSIG(front->guard_status));
    return EXIT_INTERNAL;
}

/* A shell stops its loop or script at Ctrl-C only if what it waits for was ended by that signal, and did not exit. */
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

int front_run(struct run_order *order)
{
    int ends[2];
    struct front front = {.order = order};
    order->front = getpid();
    order->front_group = getpgrp();
    signals_take(&order->signals);
    descendants_spare(&front.spared);
    front.signals = signals_open(&order->signals);
    front.stops = signals_open_stop();
    if (front.signals < 0 || front.stops < 0 || link_open(ends) != 0 || descendants_adopt() != 0 ||
        (front.guard = fork()) < 0) {
        complain("cannot start the guard process: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    if (front.guard == 0) {
        close(front.signals);
        close(front.stops);
        close(ends[0]);
        return guard_run(order, ends[1]);
    }
    /* Outside our group, so that a SIGKILL for the whole job leaves somebody to clean up. */
    setpgid(front.guard, front.guard);
    front.link = ends[0];
    close(ends[1]);
    if (serve_guard(&front) != 0)
        return EXIT_INTERNAL;
    if (WIFSIGNALED(front.guard_status))
        return clean_up_after_guard(&front);
    hear_guard(&front);
    return exit_code(&front);
}
