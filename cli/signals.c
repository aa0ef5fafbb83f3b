/* signals.c - blocks and reads the signals of `run`, and restores them for CMD. */
#include "signals.h"
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int PASSED_ON[] = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP};

static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == SIG_IGN;
}

void signals_take(struct signals *signals)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t blocked;

    sigemptyset(&signals->watched);
    for (size_t i = 0; i < sizeof PASSED_ON / sizeof PASSED_ON[0]; i++)
        if (!is_ignored(PASSED_ON[i]))
            sigaddset(&signals->watched, PASSED_ON[i]);

    sigaddset(&signals->watched, SIGCHLD);
    sigaddset(&signals->watched, SIGCONT);

    /* With SIGTTOU blocked this process may write to the terminal and pass it on from a
     * background group. */
    blocked = signals->watched;
    sigaddset(&blocked, SIGTTOU);
    sigaddset(&blocked, SIGTTIN);
    sigprocmask(SIG_BLOCK, &blocked, &signals->mask);

    /* With an inherited SIG_IGN for SIGCHLD the kernel would reap our children. */
    sigaction(SIGCHLD, &standard, &signals->child);
    sigaction(SIGPIPE, &ignore, &signals->pipe);
}

void signals_give_back(const struct signals *signals)
{
    sigaction(SIGCHLD, &signals->child, NULL);
    sigaction(SIGPIPE, &signals->pipe, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}

static sigset_t only(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    return set;
}

static bool is_pending(int number)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

int signals_open(const struct signals *signals)
{
    sigset_t read = signals->watched;
    sigdelset(&read, SIGTSTP);
    return signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK);
}

int signals_open_stop(void)
{
    sigset_t stop = only(SIGTSTP);
    return signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool signals_stop_pending(void)
{
    return is_pending(SIGTSTP);
}

bool signals_stop(void)
{
    sigset_t stop = only(SIGTSTP), before;
    sigprocmask(SIG_UNBLOCK, &stop, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return is_pending(SIGCONT);
}

int signals_next(int fd, bool *typed)
{
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    if (typed)
        *typed = info.ssi_code == SI_KERNEL;
    return (int)info.ssi_signo;
}

bool signals_ends_wait(int number)
{
    return number != SIGCHLD && number != SIGCONT && number != SIGWINCH;
}

int signals_number(const char *name)
{
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (int number = 1; number < NSIG; number++) {
        const char *known = sigabbrev_np(number);
        if (known && strcmp(known, name) == 0)
            return number;
    }
    return 0;
}
