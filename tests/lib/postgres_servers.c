/* postgres_servers.c - real PostgreSQL servers for tests. */
#include "postgres_servers.h"

#include "actors.h"
#include "servers.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000, PATH_SIZE = 200, ARGS_MAX = 64, COMMAND_SIZE = 2000 };

struct postgres_server {
    struct postgres_server *next;
    const char *const *settings;
    pid_t pid; /* 0: down */
    uint16_t port;
    pid_t pooler_pid; /* 0: it has none */
    uint16_t pooler_port;
    char directory[PATH_SIZE];
};

static struct postgres_server *servers;

/* ---- Programs ---- */

/* Returns the folder of the programs of the newest version; "": there is none. */
static const char *programs(void)
{
    static char folder[PATH_SIZE];
    glob_t found;
    if (folder[0] || glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) != 0)
        return folder;

    const char *last = found.gl_pathv[found.gl_pathc - 1];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(last, '/') - last), last);
    globfree(&found);
    return folder;
}

static const struct passwd *other_user(void)
{
    if (geteuid() != 0)
        return NULL;
    const struct passwd *user = getpwnam("postgres");
    return user ? user : getpwnam("nobody");
}

const char *postgres_missing(void)
{
    return programs()[0] ? NULL : "PostgreSQL is not installed";
}

void postgres_needed(void)
{
    if (!postgres_missing())
        return;
    print_message("# skipped: %s\n", postgres_missing());
    skip();
}

uint16_t postgres_port(const struct postgres_server *s)
{
    return s->port;
}

pid_t postgres_pid(const struct postgres_server *s)
{
    return s->pid;
}

const char *postgres_directory(const struct postgres_server *s)
{
    return s->directory;
}

/* "setpriv ..." in front of commands that must not run as root. */
static void put_user(char *text, size_t size)
{
    const struct passwd *user = other_user();
    text[0] = 0;
    if (user)
        snprintf(text, size, "setpriv --reuid=%u --regid=%u --clear-groups ", user->pw_uid,
                 user->pw_gid);
}

__attribute__((format(printf, 1, 2))) static int run(const char *format, ...)
{
    char command[COMMAND_SIZE];
    va_list args;
    va_start(args, format);
    assert_true(vsnprintf(command, sizeof command, format, args) < (int)sizeof command);
    va_end(args);
    return system(command);
}

/* ---- The data directory ---- */

/* initdb takes a second. So its result is kept in the build tree, and copied. */
static void make_data(const struct postgres_server *s)
{
    char user[100];
    const struct passwd *other = other_user();
    const char *template = HF_POSTGRES_TEMPLATE;
    put_user(user, sizeof user);
    if (access(template, R_OK) != 0 &&
        (run("%senv HOME=%s %s/initdb -D %s/data -U postgres -A trust -E UTF8 --no-locale "
             "--no-sync "
             "--wal-segsize=1 >%s/initdb.log 2>&1",
             user, s->directory, programs(), s->directory, s->directory) != 0 ||
         run("cp -a %s/data %s.%d && { mv -T %s.%d %s 2>/dev/null || rm -rf %s.%d; }", s->directory,
             template, getpid(), template, getpid(), template, template, getpid()) != 0))
        fail_msg("initdb failed: see %s/initdb.log", s->directory);
    else if (run("test -e %s/data || cp -a %s %s/data", s->directory, template, s->directory) != 0)
        fail_msg("%s: cannot be copied", template);
    if (other && run("chown -R %u:%u %s", other->pw_uid, other->pw_gid, s->directory) != 0)
        fail_msg("%s: cannot be given to %s", s->directory, other->pw_name);
}

static void make_home(struct postgres_server *s)
{
    const struct passwd *other = other_user();
    snprintf(s->directory, sizeof s->directory, "/tmp/holdfast-postgres.XXXXXX");
    if (!mkdtemp(s->directory))
        fail_msg("%s: %s", s->directory, strerror(errno));
    if (other)
        assert_int_equal(chown(s->directory, other->pw_uid, other->pw_gid), 0);
}

/* ---- Starting ---- */

static void add(const char **word, int *count, const char *text)
{
    assert_true(*count + 1 < ARGS_MAX);
    word[(*count)++] = text;
    word[*count] = NULL;
}

static void add_setting(const char **word, int *count, const char *setting)
{
    add(word, count, "-c");
    add(word, count, setting);
}

_Noreturn static void become(const struct postgres_server *s, const char *const *word, pid_t parent)
{
    const struct passwd *other = other_user();
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (other && (setgid(other->pw_gid) != 0 || setuid(other->pw_uid) != 0))
        _exit(70);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGQUIT); /* after setuid(), which would clear it */
    if (getppid() != parent || chdir(s->directory) != 0)
        _exit(70);

    int quiet = open("/dev/null", O_RDONLY), log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(quiet, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(70);
    close_range(3, ~0U, 0);
    char *environment[] = {"LC_ALL=C", NULL};
    execve(word[0], (char *const *)(uintptr_t)word, environment);
    _exit(71);
}

static void launch(struct postgres_server *s)
{
    const char *word[ARGS_MAX];
    char program[PATH_SIZE + 16], data[PATH_SIZE + 16], port[8];
    int count = 0;
    snprintf(program, sizeof program, "%s/postgres", programs());
    snprintf(data, sizeof data, "%s/data", s->directory);
    snprintf(port, sizeof port, "%u", s->port);
    add(word, &count, program);
    add(word, &count, "-D");
    add(word, &count, data);
    add(word, &count, "-p");
    add(word, &count, port);
    add_setting(word, &count, "listen_addresses=127.0.0.1");
    add_setting(word, &count, "unix_socket_directories=");
    add_setting(word, &count, "shared_buffers=16MB");
    add_setting(word, &count, "max_connections=200");
    add_setting(word, &count, "fsync=off");
    add_setting(word, &count, "dynamic_shared_memory_type=mmap");
    for (const char *const *setting = s->settings; setting && *setting; setting++)
        add_setting(word, &count, *setting);

    pid_t parent = getpid();
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        become(s, word, parent);
}

static bool answers(const struct postgres_server *s)
{
    return run("%s/pg_isready -q -h 127.0.0.1 -p %u -U postgres", programs(), s->port) == 0;
}

static bool has_ended(struct postgres_server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != s->pid)
        return false;
    s->pid = 0;
    return true;
}

static void show_log(const struct postgres_server *s)
{
    print_error("# the end of %s/log:\n", s->directory);
    run("tail -n 20 %s/log | sed 's/^/#   /' >&2", s->directory);
}

/* Returns false if the server ended instead. */
static bool await_answer(struct postgres_server *s)
{
    int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (!answers(s)) {
        if (has_ended(s))
            return false;
        if (now_ns() > end) {
            show_log(s);
            fail_msg("PostgreSQL does not answer after %d ms", PATIENCE_MS);
        }
        nap_us(10000);
    }
    return true;
}

static struct postgres_server *new_server(const char *const *settings)
{
    struct postgres_server *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->settings = settings;
    s->next = servers;
    servers = s;
    make_home(s);
    return s;
}

static struct postgres_server *start(struct postgres_server *s)
{
    for (int i = 0; i < 20; i++) {
        s->port = free_port();
        launch(s);
        if (await_answer(s))
            return s;
    }
    show_log(s);
    fail_msg("PostgreSQL does not start");
    return NULL;
}

struct postgres_server *postgres_start(const char *const *settings)
{
    struct postgres_server *s = new_server(settings);
    make_data(s);
    return start(s);
}

struct postgres_server *postgres_start_standby(struct postgres_server *primary,
                                               const char *const *settings)
{
    struct postgres_server *s = new_server(settings);
    char user[100];
    put_user(user, sizeof user);
    if (run("%s%s/pg_basebackup -h 127.0.0.1 -p %u -U postgres -D %s/data -R -X stream "
            "--checkpoint=fast --no-sync",
            user, programs(), primary->port, s->directory) != 0)
        fail_msg("pg_basebackup failed");
    return start(s);
}

/* ---- A pooler in front of it ---- */

#define POOLER "/usr/sbin/pgbouncer"

const char *postgres_pooler_missing(void)
{
    if (postgres_missing())
        return postgres_missing();
    return access(POOLER, X_OK) == 0 ? NULL : "PgBouncer is not installed";
}

static void write_pooler_file(const struct postgres_server *s, const char *path, unsigned sessions)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "[databases]\npostgres = host=127.0.0.1 port=%u user=postgres\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %u\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = %u\n"
            "max_client_conn = 1000\n",
            s->port, s->pooler_port, sessions);
    assert_int_equal(fclose(file), 0);
}

static void await_pooler(const struct postgres_server *s)
{
    int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (run("%s/pg_isready -q -h 127.0.0.1 -p %u", programs(), s->pooler_port) != 0) {
        if (now_ns() > end) {
            show_log(s);
            fail_msg("PgBouncer does not answer");
        }
        nap_us(10000);
    }
}

uint16_t postgres_pooler(struct postgres_server *s, unsigned sessions)
{
    char path[PATH_SIZE + 16];
    const char *word[] = {POOLER, path, NULL};
    if (s->pooler_pid)
        return s->pooler_port;

    s->pooler_port = free_port();
    snprintf(path, sizeof path, "%s/pooler.ini", s->directory);
    write_pooler_file(s, path, sessions);
    pid_t parent = getpid();
    s->pooler_pid = fork();
    assert_true(s->pooler_pid >= 0);
    if (s->pooler_pid == 0)
        become(s, word, parent);
    await_pooler(s);
    return s->pooler_port;
}

/* ---- What happens to it ---- */

static void await_end(struct postgres_server *s)
{
    int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (!has_ended(s)) {
        if (now_ns() > end)
            fail_msg("PostgreSQL does not end");
        nap_us(1000);
    }
}

/* Kills the first process. The other processes have process groups of their own, and notice that it
 * has gone. */
void postgres_crash(struct postgres_server *s)
{
    assert_true(s->pid > 0);
    run("kill -9 %d $(ps -o pid= --ppid %d)", s->pid, s->pid);
    await_end(s);
}

void postgres_stop(struct postgres_server *s)
{
    assert_true(s->pid > 0);
    assert_int_equal(kill(s->pid, SIGINT), 0);
    await_end(s);
}

void postgres_restart(struct postgres_server *s)
{
    if (s->pid)
        postgres_stop(s);
    run("rm -f %s/data/postmaster.pid", s->directory);
    launch(s);
    if (!await_answer(s)) {
        show_log(s);
        fail_msg("PostgreSQL does not start again");
    }
}

void postgres_promote(struct postgres_server *s)
{
    char user[100];
    put_user(user, sizeof user);
    if (run("%s%s/pg_ctl promote -w -s -D %s/data", user, programs(), s->directory) != 0)
        fail_msg("the standby cannot be promoted");
}

void postgres_end(struct postgres_server *s)
{
    struct postgres_server **at = &servers;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->pooler_pid) {
        kill(s->pooler_pid, SIGKILL);
        waitpid(s->pooler_pid, NULL, 0);
    }
    if (s->pid) {
        kill(s->pid, SIGQUIT);
        waitpid(s->pid, NULL, 0);
    }
    run("rm -rf %s", s->directory);
    free(s);
}

void postgres_servers_end(void)
{
    while (servers)
        postgres_end(servers);
}

/* ---- Questions ---- */

int postgres_sql(const struct postgres_server *s, const char *sql, char *out, size_t size)
{
    char command[PATH_SIZE + 200];
    char path[] = "/tmp/holdfast-sql.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, sql, strlen(sql)) == (ssize_t)strlen(sql));
    close(fd);
    snprintf(
        command, sizeof command,
        "%s/psql -X -q -At -v ON_ERROR_STOP=1 -h 127.0.0.1 -p %u -U postgres -d postgres <%s 2>&1",
        programs(), s->port, path);

    FILE *from = popen(command, "r");
    assert_non_null(from);
    size_t len = fread(out, 1, size - 1, from);
    out[len] = 0;
    out[strcspn(out, "\n") == len - 1 && len ? len - 1 : len] = 0;
    int status = pclose(from);
    unlink(path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int64_t postgres_number(const struct postgres_server *s, const char *format, ...)
{
    char sql[COMMAND_SIZE], out[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    if (postgres_sql(s, sql, out, sizeof out) != 0)
        fail_msg("%s: %s", sql, out);
    return atoll(out);
}
