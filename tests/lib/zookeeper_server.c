/* zookeeper_server.c - real ZooKeeper servers for tests. */
#include "zookeeper_server.h"

#include "actors.h"
#include "servers.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000, STARTS_MAX = 5 };

#define JAVA "/usr/bin/java"
#define JAR "/usr/share/java/zookeeper.jar"
#define LOG_JAR "/usr/share/java/slf4j-simple.jar"

struct zookeeper_server {
    struct zookeeper_server *next;
    char directory[64];
    uint16_t port;
    const char *config;
    pid_t pid; /* 0: it is down */
};

static struct zookeeper_server *servers;

const char *zookeeper_missing(void)
{
    if (access(JAVA, X_OK) != 0)
        return "java is not installed (Debian: default-jre-headless)";
    if (access(JAR, R_OK) != 0)
        return "ZooKeeper is not installed (Debian: libzookeeper-java)";
    return access(LOG_JAR, R_OK) == 0 ? NULL : "slf4j is not installed (Debian: libslf4j-java)";
}

void zookeeper_needed(void)
{
    if (!zookeeper_missing())
        return;
    print_message("# skipped: %s\n", zookeeper_missing());
    skip();
}

/* ---- Starting ---- */

static void write_config(const struct zookeeper_server *s)
{
    char path[96];
    snprintf(path, sizeof path, "%s/zoo.cfg", s->directory);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file,
            "tickTime=150\ninitLimit=20\nsyncLimit=10\ndataDir=%s/data\nclientPort=%u\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            "maxSessionTimeout=200000000\nmaxClientCnxns=0\n%s",
            s->directory, s->port, s->config ? s->config : "");
    assert_int_equal(fclose(file), 0);
}

_Noreturn static void become(const struct zookeeper_server *s, pid_t parent)
{
    char mark[256], *environment[2] = {NULL, NULL};
    const char *argv[] = {JAVA,
                          "-Xmx128m",
                          "-XX:+UseSerialGC",
                          "-XX:TieredStopAtLevel=1",
                          "-Dzookeeper.jmx.log4j.disable=true",
                          "-Dzookeeper.forceSync=no",
                          "-cp",
                          ".:" JAR ":" LOG_JAR,
                          "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                          "zoo.cfg",
                          NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(s->directory) != 0)
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

/* A server that says "imok" may not serve yet. One that tells its mode does. */
static bool is_serving(const struct zookeeper_server *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(s->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 1};
    char answer[2048] = "";
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool asked = connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && write(fd, "srvr", 4) == 4;
    size_t got = 0;
    for (ssize_t part = 1; asked && part > 0 && got < sizeof answer - 1; got += (size_t)part) {
        part = read(fd, answer + got, sizeof answer - 1 - got);
        part = part > 0 ? part : 0;
    }
    close(fd);
    return strstr(answer, "Mode:");
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Starts it, and waits until it serves. Returns false if it ended instead: another process may have
 * taken its port. */
static bool launch(struct zookeeper_server *s)
{
    pid_t parent = getpid();
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        become(s, parent);
    for (int waited = 0; !is_serving(s); waited += 20) {
        if (waited > PATIENCE_MS)
            fail_msg("ZooKeeper on port %u does not serve: see %s/log", s->port, s->directory);
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
            return false;
        nap_ms(20);
    }
    return true;
}

struct zookeeper_server *zookeeper_start(const char *config)
{
    struct zookeeper_server *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->config = config;
    s->next = servers;
    servers = s;
    for (int i = 0; i < STARTS_MAX; i++) {
        snprintf(s->directory, sizeof s->directory, "/tmp/holdfast-zookeeper.XXXXXX");
        assert_non_null(mkdtemp(s->directory));
        s->port = free_port();
        write_config(s);
        if (launch(s))
            return s;
        s->pid = 0;
        remove_tree(s->directory);
    }
    fail_msg("ZooKeeper ended %d times instead of serving", STARTS_MAX);
    return NULL;
}

/* ---- Ending ---- */

void zookeeper_kill9(struct zookeeper_server *s)
{
    assert_true(s->pid > 0);
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

void zookeeper_restart(struct zookeeper_server *s)
{
    if (s->pid)
        zookeeper_kill9(s);
    assert_true(launch(s));
}

void zookeeper_servers_end(void)
{
    while (servers) {
        struct zookeeper_server *s = servers;
        servers = s->next;
        if (s->pid)
            zookeeper_kill9(s);
        remove_tree(s->directory);
        free(s);
    }
}

void zookeeper_pause(struct zookeeper_server *s)
{
    assert_int_equal(kill(s->pid, SIGSTOP), 0);
}

void zookeeper_continue(struct zookeeper_server *s)
{
    assert_int_equal(kill(s->pid, SIGCONT), 0);
}

/* ---- Where it is ---- */

uint16_t zookeeper_port(const struct zookeeper_server *s)
{
    return s->port;
}

pid_t zookeeper_pid(const struct zookeeper_server *s)
{
    return s->pid;
}
