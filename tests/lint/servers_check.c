/* servers_check.c - what tests/lib/servers.c promises of the servers that tests are run on. */
#include "lib/servers.h"

#include "lib/actors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int end_all(void **state)
{
    (void)state;
    servers_end();
    return 0;
}

static void assert_value(const struct server *s, const char *key, const char *wanted)
{
    redisReply *reply = server_cli(s, "GET %s", key);
    if (wanted) {
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        assert_string_equal(reply->str, wanted);
    } else {
        assert_int_equal(reply->type, REDIS_REPLY_NIL);
    }
    freeReplyObject(reply);
}

static bool is_alive(pid_t pid)
{
    char path[64], stat[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    size_t length = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    const char *name_end = length ? strrchr(stat, ')') : NULL;
    return name_end && name_end[2] != 'Z' && name_end[2] != 'X';
}

static void await_death(pid_t pid)
{
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; is_alive(pid);) {
        if (now_ns() > end)
            fail_msg("process %d lives on", (int)pid);
        nap_us(1000);
    }
}

/* ---- Life ---- */

static void check_life(enum server_kind kind)
{
    server_needed(kind);
    struct server *s = server_start(&(struct server_options){.kind = kind});
    server_does(s, "SET word %b", "a b", (size_t)3);
    assert_value(s, "word", "a b");
    redisContext *by_port = redisConnect("127.0.0.1", server_port(s));
    assert_int_equal(by_port->err, 0);
    redisFree(by_port);
    char directory[256];
    strcpy(directory, server_directory(s));
    pid_t pid = server_pid(s);
    server_end(s);
    assert_false(is_alive(pid));
    assert_int_equal(access(directory, F_OK), -1);
}

static void test_redis_lives(void **state)
{
    (void)state;
    check_life(SERVER_REDIS);
}

static void test_valkey_lives(void **state)
{
    (void)state;
    check_life(SERVER_VALKEY);
}

static void test_kinds_differ(void **state)
{
    (void)state;
    server_needed(SERVER_VALKEY);
    struct server *s = server_start(&(struct server_options){.kind = SERVER_VALKEY});
    redisReply *info = server_cli(s, "INFO server");
    assert_non_null(strstr(info->str, "valkey_version:"));
    freeReplyObject(info);
}

static void test_restart(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    struct server *s = server_start(&(struct server_options){.appendonly = true});
    uint16_t port = server_port(s);
    server_does(s, "SET k v");
    server_kill9(s);
    assert_int_equal(server_pid(s), 0);
    server_restart(s, true);
    assert_int_equal(server_port(s), port);
    assert_value(s, "k", "v");
    server_stop(s);
    server_restart(s, true);
    assert_value(s, "k", "v");
    server_restart(s, false);
    assert_value(s, "k", NULL);
}

static void test_pause(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    struct server *s = server_start(NULL);
    redisContext *to = server_connect(s);
    server_pause(s);
    redisSetTimeout(to, (struct timeval){.tv_usec = 50000});
    assert_null(redisCommand(to, "PING"));
    redisFree(to);
    server_continue(s);
    server_does(s, "PING");
    server_pause(s);
    server_stop(s); /* one that stands still hears it too */
}

/* A process that starts a server, says which it is, and is killed. */
static void test_ends_with_the_test(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    struct {
        pid_t pid;
        char directory[200];
    } said = {0};
    int say[2];
    assert_int_equal(pipe(say), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct server *s = server_start(NULL);
        said.pid = server_pid(s);
        strcpy(said.directory, server_directory(s));
        if (write(say[1], &said, sizeof said) != sizeof said)
            _exit(1);
        pause();
    }
    assert_int_equal(read(say[0], &said, sizeof said), sizeof said);
    close(say[0]);
    close(say[1]);
    assert_true(is_alive(said.pid));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    await_death(said.pid);
    remove_tree(said.directory);
}

/* The words of /proc/PID/environ of a server that was started here with much in the environment. */
static void test_environment_is_bare(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    setenv("HF_SUITE", "mark", 0);
    setenv("A_WORD_OF_THE_TEST", "1", 1);
    struct server *s = server_start(NULL);
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)server_pid(s));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    assert_int_equal(length, strlen(text) + 1);
    assert_memory_equal(text, "HF_SUITE=", 9);
}

/* ---- What it is told ---- */

static void test_password(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    struct server *s = server_start(&(struct server_options){.password = "open sesame"});
    server_does(s, "SET k v");
    redisContext *stranger = redisConnect("127.0.0.1", server_port(s));
    redisReply *reply = redisCommand(stranger, "GET k");
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_memory_equal(reply->str, "NOAUTH", 6);
    freeReplyObject(reply);
    redisFree(stranger);
}

static void test_arguments(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    static const char *const args[] = {"--maxclients", "77", NULL};
    struct server *s = server_start(&(struct server_options){.args = args});
    assert_int_equal(server_info_number(s, "clients", "maxclients"), 77);
}

/* Does `redis-cli --tls` with these options get an answer? */
static bool tls_answers(const struct server *s, const char *options)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s' && redis-cli -p %u --tls %s PING 2>/dev/null | grep -qx PONG",
             server_directory(s), server_port(s), options);
    return system(command) == 0;
}

static void check_tls(enum server_kind kind)
{
    server_needed(kind);
    struct server *s = server_start(&(struct server_options){.kind = kind, .tls = true});
    assert_true(tls_answers(s, "--cacert ca.crt --cert client.crt --key client.key"));
    assert_false(tls_answers(s, "--cacert ca.crt"));
    assert_false(tls_answers(s, "--cacert stranger-ca.crt --cert client.crt --key client.key"));
    assert_false(tls_answers(s, "--cacert ca.crt --cert stranger.crt --key stranger.key"));
    server_does(s, "PING");
    redisContext *plain = redisConnect("127.0.0.1", server_port(s));
    assert_null(redisCommand(plain, "PING"));
    redisFree(plain);
    assert_int_equal(access(server_file(s, "client.key"), R_OK), 0);
}

static void test_tls_of_redis(void **state)
{
    (void)state;
    check_tls(SERVER_REDIS);
}

static void test_tls_of_valkey(void **state)
{
    (void)state;
    check_tls(SERVER_VALKEY);
}

static void check_replica(enum server_kind kind)
{
    server_needed(kind);
    struct server *primary = server_start(&(struct server_options){.kind = kind, .password = "p"});
    struct server *replica = server_start(&(struct server_options){.kind = kind});
    server_replica_of(replica, primary);
    redisContext *to = server_connect(primary);
    freeReplyObject(redisCommand(to, "SET k v"));
    redisReply *reply = redisCommand(to, "WAIT 1 1000");
    assert_int_equal(reply->integer, 1);
    freeReplyObject(reply);
    redisFree(to);
    assert_value(replica, "k", "v");
    server_kill9(primary);
    server_replica_of(replica, NULL);
    server_does(replica, "SET k w");
}

static void test_replica_of_redis(void **state)
{
    (void)state;
    check_replica(SERVER_REDIS);
}

static void test_replica_of_valkey(void **state)
{
    (void)state;
    check_replica(SERVER_VALKEY);
}

/* ---- Questions ---- */

static void test_numbers(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    struct server *s = server_start(NULL);
    assert_int_equal(server_calls(s, "incr"), 0);
    int64_t before = server_info_number(s, "stats", "total_commands_processed");
    for (int i = 1; i <= 5; i++)
        assert_int_equal(server_count(s, "INCR n"), i);
    assert_int_equal(server_calls(s, "incr"), 5);
    /* The question itself is counted after its answer: the one before, the five, the one about the
     * calls. */
    assert_int_equal(server_info_number(s, "stats", "total_commands_processed"), before + 7);
    redisReply *reply = server_cli(s, "NO SUCH COMMAND");
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

/* ---- What goes wrong fails the test ---- */

static void wrong_argument(void **state)
{
    (void)state;
    static const char *const args[] = {"--no-such-option", "1", NULL};
    server_start(&(struct server_options){.args = args});
}

static void wrong_end(void **state)
{
    (void)state;
    struct server *s = server_start(NULL);
    assert_int_equal(kill(server_pid(s), SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)server_pid(s), &info, WEXITED | WNOWAIT), 0);
    server_end(s);
}

static void wrong_command(void **state)
{
    (void)state;
    server_does(server_start(NULL), "NONSENSE");
}

static const struct {
    const char *name;
    void (*test)(void **state);
    const char *words;
} wrongs[] = {
    {"argument", wrong_argument, "no-such-option"}, /* out of the server's log */
    {"end", wrong_end, "redis-server ended by itself"},
    {"command", wrong_command, "unknown command"},
};
enum { WRONGS = sizeof wrongs / sizeof *wrongs };

/* This program as a test that does one wrong thing. */
static int be_wrong(const char *name)
{
    size_t i = 0;
    while (i < WRONGS && strcmp(wrongs[i].name, name) != 0)
        i++;
    assert_true(i < WRONGS);
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(wrongs[i].test, end_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static void test_wrong_is_red(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    for (size_t i = 0; i < WRONGS; i++) {
        char self[512] = "", command[640], said[16384];
        assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
        snprintf(command, sizeof command, "CMOCKA_MESSAGE_OUTPUT=STDOUT '%s' %s 2>&1", self,
                 wrongs[i].name);
        FILE *run = popen(command, "r");
        assert_non_null(run);
        said[fread(said, 1, sizeof said - 1, run)] = '\0';
        int status = pclose(run);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(said, wrongs[i].words))
            fail_msg("wrong %s: status %d, and it said: %s", wrongs[i].name, status, said);
    }
}

#define SERVED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = end_all                              \
    }

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_wrong(argv[1]);
    const struct CMUnitTest tests[] = {
        SERVED("a redis starts, answers on socket and port, and leaves nothing behind",
               test_redis_lives),
        SERVED("a valkey starts, answers on socket and port, and leaves nothing behind",
               test_valkey_lives),
        SERVED("a valkey is no redis", test_kinds_differ),
        SERVED("a restarted server has its port again, and its data if they are to be kept",
               test_restart),
        SERVED("a paused server says nothing until it goes on, and can be stopped", test_pause),
        SERVED("a server does not outlive a test that is killed", test_ends_with_the_test),
        SERVED("a server has nothing of the test's environment but the runner's mark",
               test_environment_is_bare),
        SERVED("a password is asked of others", test_password),
        SERVED("further arguments reach the server", test_arguments),
        SERVED("a redis with TLS takes its own authority's certificates only", test_tls_of_redis),
        SERVED("a valkey with TLS takes its own authority's certificates only", test_tls_of_valkey),
        SERVED("a replica of redis has what its primary is told, and can be promoted",
               test_replica_of_redis),
        SERVED("a replica of valkey has what its primary is told, and can be promoted",
               test_replica_of_valkey),
        SERVED("numbers of INFO and calls of a command are counted", test_numbers),
        SERVED(
            "a server that does not start, ends by itself or refuses fails the test with its words",
            test_wrong_is_red),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
