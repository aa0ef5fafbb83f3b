/* operation_guard.c - the guard process. It is a fork of a program with threads, so it calls only
 * what is safe in a signal handler: system calls, no malloc, no stdio. */
#include "operation_guard.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_FOUND 127
#define FIRST_FREE 3     /* descriptor behind stdin, stdout and stderr */
#define KILL_ROUNDS 1000 /* a descendant that forks is found in the next round */
#define KILL_PAUSE_US 2000

/* What guard and command report to the service before the command runs: its pid, or why it does
 * not run. The pipe is closed by a successful exec. */
struct start_report {
    pid_t command; /* 0: the command does not run, and `error` says why */
    int error;
};

/* ---- In the command ---- */

static void exec_command(char *const argv[], char *const variables[], pid_t guard, int report)
{
    struct start_report failed = {0};
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
        _exit(EXIT_NOT_FOUND);

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);

    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvpe(argv[0], argv, variables);
    failed.error = errno;
    (void)!write(report, &failed, sizeof failed);
    _exit(EXIT_NOT_FOUND);
}

/* ---- In the guard ---- */

/* Keeps `kept` and closes everything else: the guard must not hold the service's sockets open. */
static int keep_only(int kept)
{
    int moved = fcntl(kept, F_DUPFD_CLOEXEC, FIRST_FREE);
    dup2(moved, FIRST_FREE);
    fcntl(FIRST_FREE, F_SETFD, FD_CLOEXEC);
    close_range(FIRST_FREE + 1, ~0U, 0);
    return FIRST_FREE;
}

/* Kills the children of this process, which is a subreaper: orphans of the command are among
 * them. */
static void kill_children(void)
{
    char list[4096];
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, list, sizeof list - 1) : 0;
    pid_t pid = 0;

    for (ssize_t i = 0; i < len; i++) {
        bool is_digit = list[i] >= '0' && list[i] <= '9';
        if (is_digit)
            pid = pid * 10 + (list[i] - '0');
        else if (pid > 0)
            kill(pid, SIGKILL);
        pid = is_digit ? pid : 0;
    }
    if (fd >= 0)
        close(fd);
}

static void kill_all(pid_t command)
{
    kill(-command, SIGKILL);
    for (int round = 0; round < KILL_ROUNDS; round++) {
        kill_children();
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
            return;
        usleep(KILL_PAUSE_US);
    }
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Returns the exit code of the command, or -1 if the service has died. */
static int await_end(pid_t command, int life, int children)
{
    for (;;) {
        struct pollfd ready[] = {{.fd = life, .events = POLLIN},
                                 {.fd = children, .events = POLLIN}};
        struct signalfd_siginfo info;
        int status;

        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            return -1;
        if (ready[1].revents && read(children, &info, sizeof info) < 0)
            return -1;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            if (pid == command)
                return code_of(status);
        if (ready[0].revents)
            return -1;
    }
}

static void run_guard(char *const argv[], char *const variables[], int life, int report)
{
    sigset_t child;
    pid_t self = getpid(), command;

    setpgid(0, 0);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);

    command = _Fork();
    if (command == 0)
        exec_command(argv, variables, self, report);
    if (command > 0)
        setpgid(command, command);
    struct start_report started = {.command = command > 0 ? command : 0, .error = errno};
    if (write(report, &started, sizeof started) != sizeof started || command < 0)
        _exit(EXIT_NOT_FOUND);

    life = keep_only(life);
    int children = signalfd(-1, &child, SFD_CLOEXEC);
    int code = children >= 0 ? await_end(command, life, children) : -1;
    if (code < 0)
        kill_all(command);
    _exit(code < 0 ? 128 + SIGKILL : code);
}

/* ---- In the service ---- */

/* Reads reports until the command's exec closes the pipe. */
static int await_start(int report, pid_t *command)
{
    struct start_report each;
    int error = EAGAIN;

    *command = 0;
    while (read(report, &each, sizeof each) == sizeof each) {
        if (each.command > 0)
            *command = each.command;
        else
            return each.error;
        error = 0;
    }
    return error;
}

int operation_start(char *const argv[], char *const variables[], struct operation_process *process)
{
    int life[2], report[2];

    if (pipe2(life, O_CLOEXEC) != 0)
        return errno;
    if (pipe2(report, O_CLOEXEC) != 0) {
        close(life[0]);
        close(life[1]);
        return ENFILE;
    }

    process->guard = _Fork();
    if (process->guard == 0) {
        close(life[1]);
        run_guard(argv, variables, life[0], report[1]);
    }
    close(life[0]);
    close(report[1]);

    int error = process->guard > 0 ? await_start(report[0], &process->command) : EAGAIN;
    close(report[0]);
    process->life = life[1];
    if (error == 0)
        return 0;

    close(life[1]);
    if (process->guard > 0)
        waitpid(process->guard, NULL, 0);
    return error;
}
