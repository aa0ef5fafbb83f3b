/* zookeeper_server.c - real ZooKeeper servers for tests. */
#include "zookeeper_server.h"

#include "server_process.h"
#include "servers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000, STARTS_MAX = 5 };

#define JAVA "/usr/bin/java"
#define JAR "/usr/share/java/zookeeper.jar"
#define LOG_JAR "/usr/share/java/slf4j-simple.jar"

struct zookeeper_server {
    struct zookeeper_server *next;
    struct server_process process;
    uint16_t port;
    const char *config, *option;
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
    snprintf(path, sizeof path, "%s/zoo.cfg", s->process.directory);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file,
            "tickTime=150\ninitLimit=20\nsyncLimit=10\ndataDir=%s/data\nclientPort=%u\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            "maxSessionTimeout=200000000\nmaxClientCnxns=0\n%s",
            s->process.directory, s->port, s->config ? s->config : "");
    assert_int_equal(fclose(file), 0);
}

/* Returns true if the server serves. One that says "imok" may not serve yet; one that tells its
 * mode does. */
static bool is_serving(const void *server)
{
    const struct zookeeper_server *s = server;
    char answer[2048];
    ask_port(s->port, "srvr", 4, answer, sizeof answer, 1);
    return strstr(answer, "Mode:");
}

static bool launch(struct zookeeper_server *s)
{
    const char *const argv[] = {JAVA,
                                "-Xmx128m",
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-Dzookeeper.jmx.log4j.disable=true",
                                "-Dzookeeper.forceSync=no",
                                s->option,
                                "-cp",
                                ".:" JAR ":" LOG_JAR,
                                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                                "zoo.cfg",
                                NULL};
    server_process_start(&s->process, argv);
    return server_process_await(&s->process, is_serving, s, PATIENCE_MS);
}

struct zookeeper_server *zookeeper_start(const char *config)
{
    return zookeeper_start_with(config, "-Dzookeeper.snapCount=100000");
}

struct zookeeper_server *zookeeper_start_with(const char *config, const char *option)
{
    struct zookeeper_server *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->config = config;
    s->option = option;
    s->next = servers;
    servers = s;
    for (int i = 0; i < STARTS_MAX; i++) {
        server_process_place(&s->process, "/tmp", "zookeeper");
        s->port = free_port();
        write_config(s);
        if (launch(s))
            return s;
        server_process_remove(&s->process);
    }
    fail_msg("ZooKeeper ended %d times instead of serving", STARTS_MAX);
    return NULL;
}

/* ---- Ending ---- */

void zookeeper_kill9(struct zookeeper_server *s)
{
    server_process_end(&s->process, SIGKILL);
}

void zookeeper_restart(struct zookeeper_server *s)
{
    if (s->process.pid)
        zookeeper_kill9(s);
    assert_true(launch(s));
}

void zookeeper_servers_end(void)
{
    while (servers) {
        struct zookeeper_server *s = servers;
        servers = s->next;
        server_process_remove(&s->process);
        free(s);
    }
}

void zookeeper_pause(struct zookeeper_server *s)
{
    server_process_pause(&s->process);
}

void zookeeper_continue(struct zookeeper_server *s)
{
    server_process_continue(&s->process);
}

/* ---- What it counts ---- */

int64_t zookeeper_count(const struct zookeeper_server *s, const char *name)
{
    static char answer[1 << 17];
    char line[96];
    snprintf(line, sizeof line, "\nzk_%s\t", name);
    ask_port(s->port, "mntr", 4, answer, sizeof answer, 5);
    const char *at = strstr(answer, line);
    if (!at)
        fail_msg("the server does not count %s", name);
    return strtoll(at + strlen(line), NULL, 10);
}

/* ---- Where it is ---- */

uint16_t zookeeper_port(const struct zookeeper_server *s)
{
    return s->port;
}

pid_t zookeeper_pid(const struct zookeeper_server *s)
{
    return s->process.pid;
}
