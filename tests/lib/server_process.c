/* server_process.c - starts, awaits and ends the process of a server. */
#include "server_process.h"

#include "actors.h"
#include "sentence.h"
#include "servers.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void server_process_place(struct server_process *p, const char *parent, const char *word)
{
    snprintf(p->directory, sizeof p->directory, "%s/holdfast-%s.XXXXXX", parent, word);
    assert_non_null(mkdtemp(p->directory));
}

_Noreturn static void become(const struct server_process *p, const char *const *argv, pid_t parent)
{
    char mark[256], *environment[2] = {NULL, NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(p->directory) != 0)
        _exit(70);

    int quiet = open("/dev/null", O_RDONLY), log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(quiet, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(70);
    close_range(3, ~0U, 0);

    if (getenv("HF_SUITE") && snprintf(mark, sizeof mark, "HF_SUITE=%s", getenv("HF_SUITE")) > 0)
        environment[0] = mark;
    execve(argv[0], (char *const *)(uintptr_t)argv, environment);
    _exit(71);
}

void server_process_start(struct server_process *p, const char *const *argv)
{
    pid_t parent = getpid();
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0)
        become(p, argv, parent);
}

bool server_process_await(struct server_process *p, bool (*is_ready)(const void *server),
                          const void *server, int patience_ms)
{
    for (int waited = 0; !is_ready(server); waited += 20) {
        if (waited > patience_ms)
            fail_msg("the server does not answer: see %s/log", p->directory);
        if (waitpid(p->pid, NULL, WNOHANG) == p->pid) {
            p->pid = 0;
            return false;
        }
        nap_us(20000);
    }
    return true;
}

void server_process_end(struct server_process *p, int signal)
{
    assert_true(p->pid > 0);
    kill(p->pid, signal);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

void server_process_pause(const struct server_process *p)
{
    assert_int_equal(kill(p->pid, SIGSTOP), 0);
}

void server_process_continue(const struct server_process *p)
{
    assert_int_equal(kill(p->pid, SIGCONT), 0);
}

void server_process_remove(struct server_process *p)
{
    if (p->pid)
        server_process_end(p, SIGKILL);
    remove_tree(p->directory);
}

void ask_port(uint16_t port, const void *question, size_t len, char *answer, size_t size,
              int patience_s)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = patience_s};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool asked = connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                 write(fd, question, len) == (ssize_t)len;

    size_t got = 0;
    for (ssize_t part = 1; asked && part > 0 && got < size - 1; got += (size_t)part) {
        part = read(fd, answer + got, size - 1 - got);
        part = part > 0 ? part : 0;
    }
    answer[got] = '\0';
    close(fd);
}
