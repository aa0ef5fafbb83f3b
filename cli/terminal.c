/* terminal.c - hands the controlling terminal to CMD's process group and takes it back. SIGTTOU is blocked meanwhile.
 */
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

/* As inside `$(...)` of an interactive bash: there who reads from the background is not stopped, its read fails. */
static bool asking_is_ignored(void)
{
    struct sigaction action;
    return sigaction(SIGTTIN, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* In a pipeline (`holdfast run x cmd | less`) and in a script our group has other members that need the terminal, and
 * that Ctrl-C is meant for too. There CMD gets it only when it asks: it reads, and is stopped by SIGTTIN. A job of its
 * own in an interactive shell is a group leader. */
void terminal_open(struct terminal *terminal, pid_t front, pid_t front_group)
{
    terminal->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    terminal->front_group = front_group;
    terminal->at_once =
        asking_is_ignored() || (front == front_group && !is_pipe(STDIN_FILENO) && !is_pipe(STDOUT_FILENO));
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
