/* etcd_server.c - real etcd servers for tests. */
#include "etcd_server.h"

#include "actors.h"
#include "server_process.h"
#include "servers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PATIENCE_MS = 15000, ARGS_MAX = 40, STARTS_MAX = 5 };

struct etcd_server {
    struct etcd_server *next;
    struct server_process process;
    uint16_t port, peer_port;
    char name[8];
    char cluster[160];        /* its members, as --initial-cluster wants them */
    const char *heartbeat_ms; /* the election takes ten of them */
    const char *election_ms;
    const char *const *args;
    const char *group; /* number of the group that it runs as; NULL: the test's */
    bool is_paused;
};

static struct etcd_server *servers;

static bool is_installed(const char *path)
{
    return access(path, X_OK) == 0;
}

/* Another one than that of this Debian release, or that. */
static const char *program(void)
{
    const char *other = getenv("HF_ETCD");
    return other ? other : "/usr/bin/etcd";
}

const char *etcd_missing(void)
{
    if (!is_installed(program()))
        return "etcd is not installed (Debian: etcd-server)";
    return is_installed("/usr/bin/etcdctl") ? NULL
                                            : "etcdctl is not installed (Debian: etcd-client)";
}

void etcd_needed(void)
{
    if (!etcd_missing())
        return;
    print_message("# skipped: %s\n", etcd_missing());
    skip();
}

/* ---- Starting ---- */

static void spawn(struct etcd_server *s)
{
    char urls[2][64];
    const char *argv[ARGS_MAX] = {
        "/usr/bin/setpriv", "--regid", s->group,     "--keep-groups", program(),
        "--name",           s->name,   "--data-dir", "data"};
    const size_t as_group = 4; /* words that run it as that group */
    size_t count = 9;
    snprintf(urls[0], sizeof urls[0], "http://127.0.0.1:%u", s->port);
    snprintf(urls[1], sizeof urls[1], "http://127.0.0.1:%u", s->peer_port);
    const char *options[] = {
        "--listen-client-urls", urls[0],        "--advertise-client-urls",       urls[0],
        "--listen-peer-urls",   urls[1],        "--initial-advertise-peer-urls", urls[1],
        "--initial-cluster",    s->cluster,     "--heartbeat-interval",          s->heartbeat_ms,
        "--election-timeout",   s->election_ms, "--enable-pprof=false"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        argv[count++] = options[i];
    for (const char *const *arg = s->args; arg && *arg && count + 1 < ARGS_MAX; arg++)
        argv[count++] = *arg;

    s->is_paused = false;
    server_process_start(&s->process, argv + (s->group ? 0 : as_group));
}

/* Asks for /health over a connection of its own. */
static bool is_healthy(const void *server)
{
    const struct etcd_server *s = server;
    static const char question[] = "GET /health HTTP/1.0\r\n\r\n";
    char answer[512];
    ask_port(s->port, question, sizeof question - 1, answer, sizeof answer, 1);
    return strstr(answer, "\"health\":\"true\"");
}

static bool becomes_healthy(struct etcd_server *s)
{
    return server_process_await(&s->process, is_healthy, s, PATIENCE_MS);
}

static bool launch(struct etcd_server *s)
{
    spawn(s);
    return becomes_healthy(s);
}

static struct etcd_server *add_server(int number)
{
    struct etcd_server *s = calloc(1, sizeof *s);
    assert_non_null(s);
    snprintf(s->name, sizeof s->name, "s%d", number);
    s->next = servers;
    servers = s;
    return s;
}

/* etcd syncs every write: a busy disk would be the test. It begins with a file of 64 MB. */
static bool has_memory(void)
{
    struct statvfs room;
    return access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &room) == 0 &&
           (uint64_t)room.f_bavail * room.f_frsize > UINT64_C(1) << 30;
}

static void find_place(struct etcd_server *s)
{
    server_process_place(&s->process, has_memory() ? "/dev/shm" : "/tmp", "etcd");
    s->port = free_port();
    s->peer_port = free_port();
}

static void add_member(char cluster[160], const struct etcd_server *s)
{
    size_t len = strlen(cluster);
    snprintf(cluster + len, 160 - len, "%s%s=http://127.0.0.1:%u", len ? "," : "", s->name,
             s->peer_port);
}

struct etcd_server *etcd_start(const char *const *args)
{
    struct etcd_server *s = add_server(1);
    s->args = args;
    s->heartbeat_ms = "10";
    s->election_ms = "100";
    for (int i = 0; i < STARTS_MAX; i++) {
        find_place(s);
        s->cluster[0] = '\0';
        add_member(s->cluster, s);
        if (launch(s))
            return s;
        server_process_remove(&s->process);
    }
    fail_msg("etcd ended %d times instead of answering", STARTS_MAX);
    return NULL;
}

/* A cluster of which a node ended at once, because its port was taken, fails the test. */
void etcd_cluster_start(struct etcd_server *node[ETCD_NODES])
{
    char cluster[160] = "";
    for (int i = 0; i < ETCD_NODES; i++) {
        node[i] = add_server(i + 1);
        node[i]->heartbeat_ms = "50";
        node[i]->election_ms = "500";
        find_place(node[i]);
        add_member(cluster, node[i]);
    }
    for (int i = 0; i < ETCD_NODES; i++) {
        memcpy(node[i]->cluster, cluster, sizeof cluster);
        spawn(node[i]);
    }
    for (int i = 0; i < ETCD_NODES; i++)
        assert_true(becomes_healthy(node[i]));
}

int etcd_leader(struct etcd_server *const node[ETCD_NODES])
{
    for (int waited = 0; waited < PATIENCE_MS; waited += 100) {
        for (int i = 0; i < ETCD_NODES; i++) {
            bool runs = node[i]->process.pid && !node[i]->is_paused;
            if (runs && is_healthy(node[i]) &&
                strstr(etcdctl(node[i], "endpoint status"), "B, true,"))
                return i;
        }
        nap_us(100000);
    }
    fail_msg("no node leads after %d ms", PATIENCE_MS);
    return -1;
}

/* ---- Ending ---- */

void etcd_stop(struct etcd_server *s)
{
    server_process_end(&s->process, SIGTERM);
}

void etcd_kill9(struct etcd_server *s)
{
    server_process_end(&s->process, SIGKILL);
}

void etcd_restart(struct etcd_server *s, bool keep_data)
{
    char data[80];
    if (s->process.pid)
        etcd_kill9(s);
    snprintf(data, sizeof data, "%s/data", s->process.directory);
    if (!keep_data)
        remove_tree(data);
    assert_true(launch(s));
}

void etcd_use_group(struct etcd_server *s, const char *group)
{
    s->group = group;
    etcd_restart(s, true);
}

void etcd_servers_end(void)
{
    while (servers) {
        struct etcd_server *s = servers;
        servers = s->next;
        server_process_remove(&s->process);
        free(s);
    }
}

void etcd_pause(struct etcd_server *s)
{
    server_process_pause(&s->process);
    s->is_paused = true;
}

void etcd_continue(struct etcd_server *s)
{
    server_process_continue(&s->process);
    s->is_paused = false;
}

/* ---- Where it is ---- */

uint16_t etcd_peer_port(const struct etcd_server *s)
{
    return s->peer_port;
}

uint16_t etcd_port(const struct etcd_server *s)
{
    return s->port;
}

pid_t etcd_pid(const struct etcd_server *s)
{
    return s->process.pid;
}

const char *etcd_directory(const struct etcd_server *s)
{
    return s->process.directory;
}

const char *etcdctl(const struct etcd_server *s, const char *words)
{
    static char out[65536];
    char command[1024];
    snprintf(command, sizeof command, "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%u %s", s->port,
             words);
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    size_t len = fread(out, 1, sizeof out - 1, pipe);
    out[len] = '\0';
    if (pclose(pipe) != 0)
        fail_msg("%s: %s", command, out);
    return out;
}
