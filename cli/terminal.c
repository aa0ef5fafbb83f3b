/* terminal.c - gives the controlling terminal to CMD's process group and takes it back. SIGTTOU
 * is blocked meanwhile. */
#include "terminal.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_pipe(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

/* Returns true if SIGTTIN is ignored, as inside `$(...)` of an interactive bash. There a
 * background process that reads is not stopped; its read fails. */
static bool terminal_reads_fail(void)
{
    struct sigaction action;
    return sigaction(SIGTTIN, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* In a pipeline (`holdfast run x cmd | less`) and in a script, other members of the front's
 * group need the terminal and Ctrl-C too. There CMD gets the terminal only when it reads and
 * SIGTTIN stops it. A front that leads its group is a job of its own in an interactive shell;
 * there CMD gets the terminal at once. */
void terminal_open(struct terminal *terminal, pid_t front, pid_t front_group)
{
    terminal->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    terminal->front_group = front_group;
    terminal->at_once = terminal_reads_fail() ||
                        (front == front_group && !is_pipe(STDIN_FILENO) && !is_pipe(STDOUT_FILENO));
}

void terminal_close(struct terminal *terminal)
{
    if (terminal->fd >= 0)
        close(terminal->fd);
    terminal->fd = -1;
}

bool terminal_is_ours(const struct terminal *terminal)
{
    return terminal->fd >= 0 && tcgetpgrp(terminal->fd) == terminal->front_group;
}

bool terminal_give(const struct terminal *terminal, pid_t group)
{
    if (!terminal_is_ours(terminal))
        return false;
    return tcsetpgrp(terminal->fd, group) == 0;
}

void terminal_claim(const struct terminal *terminal)
{
    tcsetpgrp(terminal->fd, getpid());
}

bool terminal_take_back(const struct terminal *terminal, pid_t group)
{
    if (terminal->fd < 0 || tcgetpgrp(terminal->fd) != group)
        return false;
    tcsetpgrp(terminal->fd, terminal->front_group);
    return true;
}
