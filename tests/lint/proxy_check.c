/* proxy_check.c - what tests/lib/proxy.c promises: it passes everything on but for the faults it is
 * told of, spoils exactly the byte that was meant, and tells of it. The client here is a bare
 * socket, so that every byte can be counted. */
#include "lib/proxy.h"

#include "lib/actors.h"
#include "lib/servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char request[] = "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";
enum { REQUEST = sizeof request - 1, REPLY = 4 /* ":1\r\n" */, QUIET_MS = 50 };

static struct server *server;
static struct proxy *proxy;

static int set_up(void **state)
{
    (void)state;
    if (server_missing(SERVER_REDIS))
        return 0;
    server = server_start(NULL);
    proxy = proxy_start(server_port(server));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (proxy)
        proxy_end(proxy);
    proxy = NULL;
    servers_end();
    return 0;
}

/* ---- A bare client ---- */

static int try_connect(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(proxy_port(proxy)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

static int client(void)
{
    int fd = try_connect();
    assert_true(fd >= 0);
    return fd;
}

static void say(int fd)
{
    assert_int_equal(send(fd, request, REQUEST, MSG_NOSIGNAL), REQUEST);
}

static bool is_quiet(int fd)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, QUIET_MS) == 0;
}

/* Reads until `want` bytes came or the stream ended; -1: it was reset. */
static int hear(int fd, int want)
{
    char bytes[256];
    int heard = 0;
    while (heard < want) {
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ACTOR_PATIENCE_MS),
                         1);
        ssize_t got = recv(fd, bytes, (size_t)(want - heard), 0);
        if (got < 0)
            assert_int_equal(errno, ECONNRESET);
        if (got <= 0)
            return got < 0 ? -1 : heard;
        heard += (int)got;
    }
    return heard;
}

static void assert_works(int fd)
{
    say(fd);
    assert_int_equal(hear(fd, REPLY), REPLY);
}

static int64_t done_so_far(void)
{
    return server_calls(server, "incr");
}

/* ---- Passing on ---- */

static void test_passes_on(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    enum { LARGE = 3000000 };
    char *sent = malloc(LARGE);
    assert_non_null(sent);
    for (int i = 0; i < LARGE; i++)
        sent[i] = (char)(i % 251);
    redisContext *to = redisConnect("127.0.0.1", proxy_port(proxy));
    assert_int_equal(to->err, 0);
    freeReplyObject(redisCommand(to, "SET k %b", sent, (size_t)LARGE));
    redisReply *reply = redisCommand(to, "GET k");
    assert_non_null(reply);
    assert_int_equal(reply->len, LARGE);
    assert_memory_equal(reply->str, sent, LARGE);
    freeReplyObject(reply);
    redisFree(to);
    free(sent);
    assert_true(proxy_bytes(proxy, 1, PROXY_REQUESTS) > LARGE);
    assert_true(proxy_bytes(proxy, 0, PROXY_REPLIES) > LARGE);
}

static void test_counts(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int a = client(), b = client();
    assert_works(b);
    assert_works(a);
    assert_works(a);
    assert_int_equal(proxy_connections(proxy), 2);
    assert_int_equal(proxy_open(proxy), 2);
    assert_int_equal(proxy_bytes(proxy, 1, PROXY_REQUESTS), 2 * REQUEST);
    assert_int_equal(proxy_bytes(proxy, 2, PROXY_REPLIES), REPLY);
    assert_int_equal(proxy_bytes(proxy, 0, PROXY_REQUESTS), 3 * REQUEST);
    close(a);
    for (int i = 0; proxy_open(proxy) == 2 && i < ACTOR_PATIENCE_MS; i++)
        nap_us(1000);
    assert_int_equal(proxy_open(proxy), 1);
    assert_works(b);
    close(b);
}

/* ---- Faults at a byte ---- */

static void test_cut_requests(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    for (uint32_t k = 0; k <= REQUEST; k++) {
        int fault = proxy_plant(proxy, &(struct proxy_fault){PROXY_CUT, PROXY_REQUESTS, k + 1, k});
        int fd = client();
        say(fd);
        assert_int_equal(hear(fd, REPLY), k < REQUEST ? 0 : REPLY);
        assert_int_equal(proxy_happened(proxy, fault),
                         k < REQUEST); /* there is no byte behind the last one */
        close(fd);
    }
    assert_int_equal(done_so_far(), 1);
}

static void test_cut_replies(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    for (uint32_t k = 0; k < REPLY; k++) {
        int fault = proxy_plant(proxy, &(struct proxy_fault){PROXY_CUT, PROXY_REPLIES, 0, k});
        int fd = client();
        say(fd);
        assert_int_equal(hear(fd, REPLY), k);
        assert_true(proxy_happened(proxy, fault));
        assert_int_equal(done_so_far(), k + 1);
        close(fd);
    }
    int fd = client();
    assert_works(fd); /* each happens once */
    close(fd);
}

static void test_later_bytes(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client(), other = client();
    assert_works(fd);
    uint64_t so_far = proxy_bytes(proxy, 1, PROXY_REQUESTS);
    int fault =
        proxy_plant(proxy, &(struct proxy_fault){PROXY_CUT, PROXY_REQUESTS, 1, so_far + REQUEST});
    assert_works(fd);
    assert_works(other);
    assert_works(other);
    assert_false(proxy_happened(proxy, fault));
    say(fd);
    assert_int_equal(hear(fd, REPLY), 0);
    proxy_await(proxy, fault);
    assert_works(other);
    close(fd);
    close(other);
}

static void test_reset(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fault = proxy_plant(proxy, &(struct proxy_fault){PROXY_RESET, PROXY_REPLIES, 1, 0});
    int fd = client();
    say(fd);
    assert_int_equal(hear(fd, REPLY), -1);
    assert_true(proxy_happened(proxy, fault));
    assert_int_equal(done_so_far(), 1);
    close(fd);
}

static void test_drop(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int replies = proxy_plant(proxy, &(struct proxy_fault){PROXY_DROP, PROXY_REPLIES, 1, 1});
    int requests =
        proxy_plant(proxy, &(struct proxy_fault){PROXY_DROP, PROXY_REQUESTS, 2, REQUEST});
    int fd = client(), other = client();
    say(fd);
    assert_int_equal(hear(fd, 1), 1);
    say(fd);
    proxy_await(proxy, replies);
    assert_true(is_quiet(fd));
    assert_int_equal(done_so_far(), 2);
    assert_works(other);
    say(other);
    proxy_await(proxy, requests);
    assert_true(is_quiet(other));
    assert_int_equal(done_so_far(), 3);
    assert_int_equal(proxy_open(proxy), 2);
    close(fd);
    close(other);
}

/* The client of the first one hears that nothing more comes, and its requests still do; the server
 * of the second one hears it, and ends that connection. */
static void test_half(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int replies = proxy_plant(proxy, &(struct proxy_fault){PROXY_HALF, PROXY_REPLIES, 1, 1});
    int requests =
        proxy_plant(proxy, &(struct proxy_fault){PROXY_HALF, PROXY_REQUESTS, 2, REQUEST});
    int fd = client(), other = client();
    say(fd);
    assert_int_equal(hear(fd, 1), 1);
    proxy_await(proxy, replies);
    assert_int_equal(hear(fd, 1), 0);
    say(fd);
    assert_works(other);
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; done_so_far() < 3; nap_us(1000))
        assert_true(now_ns() < end);
    say(other);
    proxy_await(proxy, requests);
    assert_int_equal(hear(other, 1), 0);
    assert_int_equal(done_so_far(), 3);
    close(fd);
    close(other);
}

static void test_stall(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fault = proxy_plant(proxy, &(struct proxy_fault){PROXY_STALL, PROXY_REQUESTS, 1, REQUEST});
    int fd = client();
    assert_works(fd);
    say(fd);
    proxy_await(proxy, fault);
    say(fd);
    assert_true(is_quiet(fd));
    assert_int_equal(done_so_far(), 1);
    assert_int_equal(proxy_open(proxy), 1);
    close(fd);
    assert_int_equal(proxy_deliver(proxy, fault), 2 * REQUEST);
    assert_int_equal(done_so_far(), 3);
    assert_int_equal(proxy_open(proxy), 0);
}

static void test_late(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fault = proxy_plant(proxy, &(struct proxy_fault){PROXY_LATE, PROXY_REQUESTS, 1, 5});
    int fd = client(), other = client();
    say(fd);
    assert_int_equal(hear(fd, REPLY), 0);
    close(fd);
    assert_true(proxy_happened(proxy, fault));
    assert_works(other);
    assert_int_equal(done_so_far(), 1);
    assert_int_equal(proxy_deliver(proxy, fault), REQUEST - 5);
    assert_int_equal(done_so_far(), 2);
    close(other);
}

/* ---- Connections that change places ---- */

/* Two clients append a letter each: the order in which they arrived stands in the server. */
static void append(int fd, char letter)
{
    char bytes[64];
    int len =
        snprintf(bytes, sizeof bytes, "*3\r\n$6\r\nAPPEND\r\n$1\r\no\r\n$1\r\n%c\r\n", letter);
    assert_int_equal(send(fd, bytes, (size_t)len, MSG_NOSIGNAL), len);
}

static void assert_order(const char *letters)
{
    redisReply *reply = server_cli(server, "GET o");
    assert_string_equal(reply->str, letters);
    freeReplyObject(reply);
}

static void test_behind(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client(), other = client();
    assert_works(fd);
    assert_works(other);
    int fault = proxy_plant_behind(proxy, 1, REQUEST, 1);
    append(fd, 'a');
    proxy_await(proxy, fault);
    append(fd, 'b'); /* what is behind it stays behind it */
    assert_true(is_quiet(fd));
    assert_int_equal(proxy_overtaken(proxy, fault), 0);
    append(other, 'x');
    assert_int_equal(hear(other, REPLY), REPLY);
    assert_int_equal(hear(fd, 2 * REPLY), 2 * REPLY);
    assert_true(proxy_went_on(proxy, fault) && proxy_overtaken(proxy, fault) > 0);
    assert_order("xab");
    append(fd, 'c');
    assert_int_equal(hear(fd, REPLY), REPLY);
    append(other, 'y');
    assert_int_equal(hear(other, REPLY), REPLY);
    assert_order("xabcy"); /* once */
    close(fd);
    close(other);
}

/* The first half of a request waits for its second half in the server, the answer to an older one
 * comes through. */
static void test_behind_until_told(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fault =
        proxy_plant(proxy, &(struct proxy_fault){PROXY_BEHIND, PROXY_REQUESTS, 1, REQUEST + 5});
    int fd = client(), other = client();
    say(fd);
    append(fd, 'a');
    assert_int_equal(hear(fd, REPLY), REPLY);
    proxy_await(proxy, fault);
    for (char letter = 'x'; letter <= 'z'; letter++) {
        append(other, letter);
        assert_int_equal(hear(other, REPLY), REPLY);
    }
    assert_true(is_quiet(fd) && !proxy_went_on(proxy, fault));
    assert_true(proxy_go_on(proxy, fault) > 0);
    assert_int_equal(hear(fd, REPLY), REPLY);
    assert_order("xyza");
    close(fd);
    close(other);
}

static void test_behind_and_gone(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fault = proxy_plant(proxy, &(struct proxy_fault){PROXY_BEHIND, PROXY_REQUESTS, 1, 0});
    int fd = client(), other = client();
    append(fd, 'a');
    proxy_await(proxy, fault);
    close(fd);
    append(other, 'x');
    assert_int_equal(hear(other, REPLY), REPLY);
    assert_true(proxy_go_on(proxy, fault) > 0);
    assert_order("xa");
    assert_int_equal(proxy_open(proxy), 1);
    close(other);
}

/* ---- Faults of the whole line ---- */

static void test_delay(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client();
    proxy_delay(proxy, PROXY_REQUESTS, 60);
    proxy_delay(proxy, PROXY_REPLIES, 40);
    int64_t from = now_ns();
    assert_works(fd);
    assert_true(now_ns() - from >= 100 * 1000000);
    assert_int_equal(proxy_delayed(proxy), 2);
    proxy_delay(proxy, PROXY_REQUESTS, 0);
    proxy_delay(proxy, PROXY_REPLIES, 0);
    assert_works(fd);
    assert_int_equal(proxy_delayed(proxy), 2);
    close(fd);
}

/* Two requests in a row travel at the same time. */
static void test_delay_is_no_queue(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client();
    proxy_delay(proxy, PROXY_REQUESTS, 300);
    int64_t from = now_ns();
    say(fd);
    while (proxy_delayed(proxy) < 1)
        nap_us(100);
    say(fd);
    assert_int_equal(hear(fd, 2 * REPLY), 2 * REPLY);
    assert_true(now_ns() - from >= 300 * 1000000LL && now_ns() - from < 600 * 1000000LL);
    assert_int_equal(proxy_delayed(proxy), 2);
    close(fd);
}

static void test_dribble(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client();
    proxy_dribble(proxy, PROXY_REQUESTS, true);
    assert_works(fd);
    assert_int_equal(proxy_dribbled(proxy), REQUEST);
    proxy_dribble(proxy, PROXY_REPLIES, true);
    assert_works(fd);
    assert_int_equal(proxy_dribbled(proxy), 2 * REQUEST + REPLY);
    close(fd);
}

static void test_refuse(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client();
    assert_works(fd);
    proxy_refuse(proxy, true);
    assert_int_equal(try_connect(), -1);
    assert_int_equal(errno, ECONNREFUSED);
    assert_works(fd);
    proxy_refuse(proxy, false);
    int other = client();
    assert_works(other);
    assert_int_equal(proxy_connections(proxy), 2);
    close(fd);
    close(other);
}

static void test_freeze(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client();
    assert_works(fd);
    proxy_freeze(proxy, true);
    assert_int_equal(proxy_frozen(proxy), 0);
    say(fd);
    int other = client(); /* nobody tells it */
    say(other);
    while (proxy_frozen(proxy) < REQUEST + 1)
        nap_us(100);
    assert_true(is_quiet(fd) && is_quiet(other));
    assert_int_equal(done_so_far(), 1);
    proxy_freeze(proxy, false);
    assert_int_equal(hear(fd, REPLY), REPLY);
    assert_int_equal(hear(other, REPLY), REPLY);
    close(fd);
    close(other);
}

static void test_cut_all(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd[3];
    for (int i = 0; i < 3; i++) {
        fd[i] = client();
        assert_works(fd[i]);
    }
    assert_int_equal(proxy_cut_all(proxy), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hear(fd[i], 1), 0);
        close(fd[i]);
    }
    assert_int_equal(proxy_cut_all(proxy), 0);
    int again = client();
    assert_works(again);
    close(again);
}

static void test_server_is_gone(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    int fd = client();
    assert_works(fd);
    server_kill9(server);
    assert_int_equal(hear(fd, 1), 0);
    close(fd);
    fd = client();
    assert_int_equal(hear(fd, 1), 0);
    close(fd);
    server_restart(server, false);
    fd = client();
    assert_works(fd);
    close(fd);
}

#define PROXIED(text, function)                                                                    \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = set_up, .teardown_func = tear_down      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROXIED("megabytes pass unchanged", test_passes_on),
        PROXIED("connections and bytes are counted", test_counts),
        PROXIED("a cut of the requests at each byte: the server does not do it", test_cut_requests),
        PROXIED("a cut of the replies at each byte: the client hears just those before",
                test_cut_replies),
        PROXIED("a fault waits for its byte of its connection", test_later_bytes),
        PROXIED("a reset is a reset", test_reset),
        PROXIED("what is dropped one way leaves the other way open", test_drop),
        PROXIED("what is half closed ends one way and leaves the other way open", test_half),
        PROXIED("a stalled connection tells nobody, and what it kept may be delivered", test_stall),
        PROXIED("what a cut connection said may reach the server later", test_late),
        PROXIED("what a connection says arrives behind what another one says later", test_behind),
        PROXIED("it goes on when it is told to", test_behind_until_told),
        PROXIED("it outlives its client", test_behind_and_gone),
        PROXIED("bytes are delayed in each direction", test_delay),
        PROXIED("what is delayed travels side by side", test_delay_is_no_queue),
        PROXIED("bytes dribble one by one", test_dribble),
        PROXIED("new connections are refused and old ones go on", test_refuse),
        PROXIED("in the freeze nothing passes, and afterwards everything does", test_freeze),
        PROXIED("all connections are cut at once", test_cut_all),
        PROXIED("a server that is gone shows through", test_server_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
