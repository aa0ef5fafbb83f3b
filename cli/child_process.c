/* child_process.c - forks CMD with its own process group, environment and signals; CMD execs
 * when the guard opens the gate. */
#include "child_process.h"
#include "held.h"
#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define OURS_ALWAYS 4 /* number of variables that are always set */
#define OURS_EACH 2   /* number of variables for each numbered lock */
#define OURS_MAX (OURS_ALWAYS + OURS_EACH * LOCK_SET_MAX)

struct pipes {
    int lost[2], exec[2], gate[2]; /* {read, write} */
};

struct environment {
    char ours[OURS_MAX][640];
    size_t count; /* number of entries in `ours` */
    char *held;   /* HOLDFAST_HELD=... */
    char **all;   /* ends with NULL */
};

__attribute__((format(printf, 2, 3))) static void add(struct environment *env, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(env->ours[env->count], sizeof env->ours[0], format, args);
    va_end(args);
    env->count++;
}

/* Returns true for a variable of a numbered lock, such as "HOLDFAST_TOKEN_2=...". An outer run
 * may have set some. */
static bool is_numbered(const char *entry)
{
    const char *rest = NULL;

    if (strncmp(entry, "HOLDFAST_NAME_", 14) == 0)
        rest = entry + 14;
    else if (strncmp(entry, "HOLDFAST_TOKEN_", 15) == 0)
        rest = entry + 15;
    size_t digits = rest ? strspn(rest, "0123456789") : 0;
    return digits > 0 && rest[digits] == '=';
}

static bool is_ours(const char *entry, const struct environment *env)
{
    if (is_numbered(entry) || strncmp(entry, env->held, strcspn(env->held, "=") + 1) == 0)
        return true;
    for (size_t i = 0; i < env->count; i++) {
        size_t len = strcspn(env->ours[i], "=") + 1;
        if (strncmp(entry, env->ours[i], len) == 0)
            return true;
    }
    return false;
}

static void set_ours(struct environment *env, const struct child_facts *facts, bool numbered,
                     int lost_fd)
{
    const struct lock_set *locks = facts->locks;

    env->count = 0;
    add(env, "HOLDFAST_NAME=%s", locks->names[0]);
    add(env, "HOLDFAST_TOKEN=%" PRIu64, hf_lease_token(locks->leases[0]));
    add(env, "HOLDFAST_TTL_MS=%" PRId64, facts->ttl_ms);
    add(env, "HOLDFAST_LOST_FD=%d", lost_fd);

    for (size_t i = 0; numbered && i < locks->count; i++) {
        add(env, "HOLDFAST_NAME_%zu=%s", i + 1, locks->names[i]);
        add(env, "HOLDFAST_TOKEN_%zu=%" PRIu64, i + 1, hf_lease_token(locks->leases[i]));
    }
}

/* Makes a copy of the inherited environment in which our variables replace those of the same
 * names. Returns 0, or -1 if memory is out. */
static int make_environment(struct environment *env, const struct lock_set *locks)
{
    size_t count = 0, kept = 0;

    env->held = held_variable(locks);
    if (!env->held)
        return -1;
    while (environ && environ[count])
        count++;

    env->all = calloc(count + env->count + 2, sizeof *env->all);
    if (!env->all)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (!is_ours(environ[i], env))
            env->all[kept++] = environ[i];

    for (size_t i = 0; i < env->count; i++)
        env->all[kept++] = env->ours[i];

    env->all[kept] = env->held;
    return 0;
}

/* Runs in the child. Only async-signal-safe calls are allowed, because the guard has threads.
 * Parent and child both call setpgid and tcsetpgrp: whichever comes first, nobody sees CMD
 * outside its group. */
static _Noreturn void become(const struct run_order *order, char **env,
                             const struct terminal *terminal, pid_t guard,
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

static int fork_command(struct child_process *command, const struct run_order *order,
                        const struct child_facts *facts, const struct terminal *terminal,
                        const struct pipes *pipes)
{
    static struct environment env; /* static because it is large; there is one CMD */
    bool give = terminal->at_once && terminal_is_ours(terminal);
    pid_t guard = getpid();

    set_ours(&env, facts, order->numbered, pipes->lost[0]);
    if (make_environment(&env, facts->locks) != 0)
        return -1;

    pid_t pid = fork();
    if (pid == 0)
        become(order, env.all, give ? terminal : NULL, guard, pipes);
    free(env.all);
    free(env.held);
    if (pid < 0)
        return -1;

    setpgid(pid, pid);
    if (give)
        terminal_give(terminal, pid);
    command->pid = pid;

    return 0;
}

int child_start(struct child_process *command, const struct run_order *order,
                const struct child_facts *facts, const struct terminal *terminal)
{
    struct pipes pipes = {{-1, -1}, {-1, -1}, {-1, -1}};
    int result = -1;

    /* CMD may block in a read of its end; the guard must never block in a write to the other
     * end. */
    bool opened = pipe2(pipes.lost, O_CLOEXEC) == 0 && pipe2(pipes.exec, O_CLOEXEC) == 0 &&
                  pipe2(pipes.gate, O_CLOEXEC) == 0 &&
                  fcntl(pipes.lost[1], F_SETFL, O_NONBLOCK) == 0;
    if (opened)
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

void child_go(struct child_process *command)
{
    if (command->gate_pipe < 0)
        return;
    (void)!write(command->gate_pipe, "\n", 1);
    close(command->gate_pipe);
    command->gate_pipe = -1;
}

bool child_began(const struct child_process *command)
{
    return command->gate_pipe < 0;
}

void child_notify_lost(struct child_process *command)
{
    (void)!write(command->lost_pipe, "\n", 1);
}

int child_exit_code(struct child_process *command, const char *program)
{
    int error;

    if (WIFSIGNALED(command->status))
        return 128 + WTERMSIG(command->status);
    if (read(command->exec_pipe, &error, sizeof error) != (ssize_t)sizeof error)
        return WEXITSTATUS(command->status);
    complain("cannot run \"%s\": %s", output_shown(program).text, strerror(error));
    return error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}
