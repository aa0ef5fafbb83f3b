/* command.c - forks CMD, lets it exec when it is told to, with its own process group, environment and signals. */
#include "command.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define OURS 4 /* variables that we set */

struct pipes {
    int lost[2], exec[2], gate[2]; /* {read, write} */
};

struct environment {
    char ours[OURS][640];
    char **all; /* ends with NULL */
};

static bool is_ours(const char *entry, const struct environment *env)
{
    for (size_t i = 0; i < OURS; i++) {
        size_t len = strcspn(env->ours[i], "=") + 1;
        if (strncmp(entry, env->ours[i], len) == 0)
            return true;
    }
    return false;
}

/* The inherited environment with our variables instead of inherited ones of the same names. */
static int make_environment(struct environment *env, const struct command_facts *facts, int lost_fd)
{
    size_t count = 0, kept = 0;
    snprintf(env->ours[0], sizeof env->ours[0], "HOLDFAST_NAME=%s", facts->name);
    snprintf(env->ours[1], sizeof env->ours[1], "HOLDFAST_TOKEN=%" PRIu64, facts->token);
    snprintf(env->ours[2], sizeof env->ours[2], "HOLDFAST_TTL_MS=%" PRId64, facts->ttl_ms);
    snprintf(env->ours[3], sizeof env->ours[3], "HOLDFAST_LOST_FD=%d", lost_fd);
    while (environ && environ[count])
        count++;
    env->all = calloc(count + OURS + 1, sizeof *env->all);
    if (!env->all)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (!is_ours(environ[i], env))
            env->all[kept++] = environ[i];
    for (size_t i = 0; i < OURS; i++)
        env->all[kept++] = env->ours[i];
    return 0;
}

/* In the child; only async-signal-safe calls, for the guard has threads. The parent does setpgid and tcsetpgrp too:
 * whoever comes first, nobody sees CMD outside its group. */
static _Noreturn void become(const struct run_order *order, char **env, const struct terminal *terminal, pid_t guard,
                             const struct pipes *pipes)
{
    char go;
    setpgid(0, 0);
    if (terminal)
        terminal_claim(terminal);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guard)
        _exit(EXIT_INTERNAL);
    close(pipes->gate[1]);
    if (read(pipes->gate[0], &go, sizeof go) != (ssize_t)sizeof go)
        _exit(EXIT_INTERNAL);
    fcntl(pipes->lost[0], F_SETFD, 0);
    signals_give_back(&order->signals);
    execvpe(order->argv[0], order->argv, env);
    int error = errno;
    (void)!write(pipes->exec[1], &error, sizeof error);
    _exit(EXIT_NOT_FOUND);
}

static int fork_command(struct command *command, const struct run_order *order, const struct command_facts *facts,
                        const struct terminal *terminal, const struct pipes *pipes)
{
    struct environment env;
    bool give = terminal->at_once && terminal_is_ours(terminal);
    pid_t guard = getpid();
    if (make_environment(&env, facts, pipes->lost[0]) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become(order, env.all, give ? terminal : NULL, guard, pipes);
    free(env.all);
    if (pid < 0)
        return -1;
    setpgid(pid, pid);
    if (give)
        terminal_give(terminal, pid);
    command->pid = pid;
    return 0;
}

int command_start(struct command *command, const struct run_order *order, const struct command_facts *facts,
                  const struct terminal *terminal)
{
    struct pipes pipes = {{-1, -1}, {-1, -1}, {-1, -1}};
    int result = -1;
    /* CMD may want to block in a read of its end; we never in a write to ours. */
    if (pipe2(pipes.lost, O_CLOEXEC) == 0 && pipe2(pipes.exec, O_CLOEXEC) == 0 && pipe2(pipes.gate, O_CLOEXEC) == 0 &&
        fcntl(pipes.lost[1], F_SETFL, O_NONBLOCK) == 0)
        result = fork_command(command, order, facts, terminal, &pipes);
    if (result != 0)
        complain("cannot start a process: %s", strerror(errno));
    close(pipes.lost[0]);
    close(pipes.exec[1]);
    close(pipes.gate[0]);
    command->lost_pipe = pipes.lost[1];
    command->exec_pipe = pipes.exec[0];
    command->gate_pipe = pipes.gate[1];
    return result;
}

void command_go(struct command *command)
{
    if (command->gate_pipe < 0)
        return;
    (void)!write(command->gate_pipe, "\n", 1);
    close(command->gate_pipe);
    command->gate_pipe = -1;
}

void command_tell_lost(struct command *command)
{
    (void)!write(command->lost_pipe, "\n", 1);
}

int command_exit_code(struct command *command, const char *program)
{
    int error;
    if (WIFSIGNALED(command->status))
        return 128 + WTERMSIG(command->status);
    if (read(command->exec_pipe, &error, sizeof error) != (ssize_t)sizeof error)
        return WEXITSTATUS(command->status);
    complain("cannot run \"%s\": %s", text_shown(program).text, strerror(error));
    return error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}
