/* net_conn.c - tests of one connection, against sockets of the test's own: TCP and unix sockets.
 * The calls of the library that receive and that look up names go through the test, which counts
 * and answers them. */
#include "net_fixture.h"

#include "net/buffer.h"
#include "sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/un.h>

/* ---- What the library calls ---- */

static _Atomic int receives;

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    atomic_fetch_add(&receives, 1);
    return __real_recv(fd, bytes, size, flags);
}

/* The name "two.test" has two addresses, 127.0.0.2 and 127.0.0.1; "nowhere.test" has none. */
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    if (strcmp(host, "nowhere.test") == 0)
        return hints->ai_flags & AI_NUMERICHOST ? EAI_NONAME : EAI_NODATA;
    if (strcmp(host, "two.test") != 0 || hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, found);
    struct addrinfo *second;
    int error = __real_getaddrinfo("127.0.0.2", port, hints, found);
    if (!error)
        error = __real_getaddrinfo("127.0.0.1", port, hints, &second);
    if (!error)
        (*found)->ai_next = second; /* glibc frees each of the list by itself */
    return error;
}

/* ---- Both ends ---- */

static void assert_peer_hears(int peer, const char *text)
{
    char bytes[100] = "";
    assert_int_equal(__real_recv(peer, bytes, strlen(text), MSG_WAITALL), strlen(text));
    assert_string_equal(bytes, text);
}

static void converse(struct conn *conn, int peer)
{
    say(conn, "ping");
    assert_peer_hears(peer, "ping");
    assert_int_equal(send(peer, "pong", 4, MSG_NOSIGNAL), 4);
    assert_hears(conn, "pong");
}

/* A link that is up, and its other end. */
static struct conn *pair(int *peer)
{
    char port[8];
    int listener = listen_anywhere(port);
    struct endpoint address = at("127.0.0.1", port);
    struct conn *conn = dial(&address);
    *peer = accept_one(listener);
    assert_up(conn);
    close(listener);
    return conn;
}

/* ---- Connecting ---- */

static void test_tcp(void **state)
{
    (void)state;
    int peer, on = 0;
    socklen_t size = sizeof on;
    struct conn *conn = pair(&peer);
    converse(conn, peer);
    assert_true(fcntl(conn_fd(conn), F_GETFD) & FD_CLOEXEC);
    assert_int_equal(getsockopt(conn_fd(conn), IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    assert_true(on);
    conn_free(conn);
    assert_int_equal(__real_recv(peer, &on, sizeof on, 0), 0);
    close(peer);
}

static void test_ipv6(void **state)
{
    (void)state;
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t size = sizeof address;
    char port[8], why[64];
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0)
        skip();
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    snprintf(port, sizeof port, "%u", ntohs(address.sin6_port));
    struct endpoint to = at("::1", port);
    struct conn *conn = dial(&to);
    int peer = accept_one(listener);
    assert_up(conn);
    converse(conn, peer);
    conn_free(conn);
    close(peer);
    close(listener);
    snprintf(why, sizeof why, "[::1]:%s: connection refused", port);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
}

static void test_unix(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct endpoint to = {0};
    char why[200];
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
    snprintf(to.path, sizeof to.path, "%s", address.sun_path);
    snprintf(why, sizeof why, "%s: no such file or directory", to.path);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    struct conn *conn = dial(&to);
    int peer = accept_one(listener);
    assert_up(conn);
    converse(conn, peer);
    close(peer);
    say(conn, "anybody there?"); /* SIGPIPE would end this program */
    snprintf(why, sizeof why, "%s: broken pipe", to.path);
    assert_ends(conn, HF_UNAVAILABLE, why);
    close(listener);
}

static void test_refused(void **state)
{
    (void)state;
    char port[8], why[64];
    close(listen_anywhere(port));
    struct endpoint to = at("127.0.0.1", port);
    snprintf(why, sizeof why, "127.0.0.1:%s: connection refused", port);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
}

static void test_unknown_host(void **state)
{
    (void)state;
    struct endpoint to = at("nowhere.test", "6379");
    assert_failed(dial(&to), HF_UNAVAILABLE, "nowhere.test:6379: no such host");
}

/* A listener on 127.0.0.2 with the port of one on 127.0.0.1. */
static int listen_on_second(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, "127.0.0.2", &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void test_every_address(void **state)
{
    (void)state;
    char port[8], why[64];
    int first = listen_anywhere(port);
    struct endpoint to = at("two.test", port);
    struct conn *conn = dial(&to); /* 127.0.0.2 refuses */
    assert_up(conn);
    int peer = accept_one(first);
    converse(conn, peer);
    conn_free(conn);
    close(peer);
    close(first);
    snprintf(why, sizeof why, "two.test:%s: connection refused", port);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
}

static void test_skip(void **state)
{
    (void)state;
    char port[8];
    int first = listen_anywhere(port), second = listen_on_second(port);
    struct endpoint to = at("two.test", port);
    const int where[] = {second, first, second, first};
    for (unsigned skip = 0; skip < 4; skip++) {
        to.skip = skip;
        struct conn *conn = dial(&to);
        assert_up(conn);
        int peer = accept_one(where[skip]);
        converse(conn, peer);
        conn_free(conn);
        close(peer);
    }
    close(second);
    for (unsigned skip = 0; skip < 2;
         skip++) { /* the one that is left is found, around the end of the list too */
        to.skip = skip;
        struct conn *conn = dial(&to);
        assert_up(conn);
        conn_free(conn);
    }
    close(first);
}

static void test_freed_while_opening(void **state)
{
    (void)state;
    char port[8];
    int listener = listen_anywhere(port);
    struct endpoint name = at("two.test", port), number = at("127.0.0.1", port);
    conn_free(dial(&name));
    conn_free(dial(&number));
    struct conn *conn = dial(&number);
    assert_true(conn_send(conn, "early", 5)); /* waits until it is up */
    conn_flush(conn);
    close(accept_one(listener));
    int peer = accept_one(listener);
    assert_up(conn);
    assert_true(conn_events(conn) & POLLOUT);
    conn_flush(conn);
    assert_peer_hears(peer, "early");
    conn_free(conn);
    close(peer);
    close(listener);
}

/* ---- To and fro ---- */

static void test_reads_once(void **state)
{
    (void)state;
    int peer;
    char bytes[16];
    size_t got;
    bool more;
    struct conn *conn = pair(&peer);
    assert_int_equal(send(peer, "0123456789abcdefXYZ", 19, MSG_NOSIGNAL), 19);
    wait_for(conn);
    int before = atomic_load(&receives);
    assert_true(conn_read(conn, bytes, sizeof bytes, &got, &more));
    assert_int_equal(got, 16);
    assert_true(more);
    assert_true(conn_read(conn, bytes, sizeof bytes, &got, &more));
    assert_int_equal(got, 3);
    assert_false(more);
    assert_int_equal(atomic_load(&receives) - before, 2);
    assert_true(conn_read(conn, bytes, sizeof bytes, &got,
                          &more)); /* nothing is there, and that is no error */
    assert_int_equal(got, 0);
    assert_false(more);
    conn_free(conn);
    close(peer);
}

static void *read_all(void *arg)
{
    int peer = *(int *)arg;
    size_t *sum = calloc(2, sizeof *sum);
    char bytes[65536];
    for (ssize_t got; (got = __real_recv(peer, bytes, sizeof bytes, 0)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            sum[0]++, sum[1] = sum[1] * 31 + (unsigned char)bytes[i];
    return sum;
}

static void test_back_pressure(void **state)
{
    (void)state;
    enum { SIZE = 16 << 20, PIECE = 100000 };
    int peer;
    void *result;
    size_t expected = 0;
    char *bytes = many_bytes(SIZE);
    struct conn *conn = pair(&peer);
    for (size_t sent = 0; sent < SIZE; sent += PIECE) {
        assert_true(conn_send(conn, bytes + sent, SIZE - sent < PIECE ? SIZE - sent : PIECE));
        conn_flush(conn);
    }
    assert_true(conn_events(conn) & POLLOUT);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_all, &peer), 0);
    while (conn_events(conn) & POLLOUT) {
        wait_for(conn);
        conn_flush(conn);
    }
    conn_free(conn);
    assert_int_equal(pthread_join(reader, &result), 0);
    for (size_t i = 0; i < SIZE; i++)
        expected = expected * 31 + (unsigned char)bytes[i];
    assert_int_equal(((size_t *)result)[0], SIZE);
    assert_int_equal(((size_t *)result)[1], expected);
    free(result);
    free(bytes);
    close(peer);
}

static void test_bound(void **state)
{
    (void)state;
    enum { PIECE = 1 << 20 };
    int peer, pieces = 0;
    char *bytes = many_bytes(PIECE), why[128];
    struct conn *conn = pair(&peer);
    struct sockaddr_in there;
    socklen_t size = sizeof there;
    assert_int_equal(getpeername(conn_fd(conn), (struct sockaddr *)&there, &size), 0);
    snprintf(why, sizeof why, "127.0.0.1:%u: no memory to send, or the server does not read",
             ntohs(there.sin_port));
    assert_int_equal(send(peer, "last words", 10, MSG_NOSIGNAL), 10);
    while (conn_send(conn, bytes, PIECE) && pieces < 1000)
        pieces++;
    assert_int_equal(pieces, BUFFER_MAX / PIECE);
    assert_hears(conn, "last words");
    assert_false(conn_send(conn, "x", 1));
    assert_ends(conn, HF_UNAVAILABLE, why);
    free(bytes);
    close(peer);
}

static void test_last_words(void **state)
{
    (void)state;
    int peer;
    struct conn *conn = pair(&peer);
    struct linger at_once = {.l_onoff = 1};
    assert_int_equal(send(peer, "not today", 9, MSG_NOSIGNAL), 9);
    wait_for(conn);
    assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(peer); /* a reset */
    for (int i = 0; i < 3; i++)
        if (conn_send(conn, "anybody there?", 14))
            conn_flush(conn);
    assert_hears(conn, "not today");
    char bytes[10];
    size_t got;
    bool more;
    wait_for(conn);
    assert_false(conn_read(conn, bytes, sizeof bytes, &got, &more));
    assert_non_null(strstr(conn_error_text(conn), ": connection reset by peer"));
    assert_int_equal(conn_status(conn), HF_UNAVAILABLE);
    conn_free(conn);
}

static void test_closed(void **state)
{
    (void)state;
    int peer;
    char why[128];
    struct sockaddr_in there;
    socklen_t size = sizeof there;
    struct conn *conn = pair(&peer);
    assert_int_equal(getpeername(conn_fd(conn), (struct sockaddr *)&there, &size), 0);
    snprintf(why, sizeof why, "127.0.0.1:%u: the server closed the connection",
             ntohs(there.sin_port));
    close(peer);
    assert_ends(conn, HF_UNAVAILABLE, why);
}

static void *poll_it(void *arg)
{
    struct pollfd ready = {.fd = *(int *)arg, .events = POLLIN};
    return (void *)(intptr_t)poll(&ready, 1, PATIENCE_MS);
}

static void test_shut(void **state)
{
    (void)state;
    int peer;
    struct conn *conn = pair(&peer);
    int fd = conn_fd(conn);
    pthread_t poller;
    void *result;
    char byte;
    assert_int_equal(pthread_create(&poller, NULL, poll_it, &fd), 0);
    usleep(10000);
    conn_shut(conn);
    assert_int_equal(pthread_join(poller, &result), 0);
    assert_int_equal((intptr_t)result, 1);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(__real_recv(peer, &byte, 1, 0), 0);
    conn_free(conn);
    assert_true(fcntl(fd, F_GETFD) < 0);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("over TCP bytes go both ways, at once and in no child of ours", test_tcp),
        SENTENCE("over IPv6 too, and messages write its address in brackets", test_ipv6),
        SENTENCE("over a unix socket too, and no signal comes when its other end is closed",
                 test_unix),
        SENTENCE("a refused connection names server and cause", test_refused),
        SENTENCE("a host that nobody knows is unavailable: it may yet be made known",
                 test_unknown_host),
        SENTENCE("every address of a name is tried", test_every_address),
        SENTENCE("an address that kept an earlier dial waiting is tried last", test_skip),
        SENTENCE("a link may be freed at any stage, and what was sent early waits",
                 test_freed_while_opening),
        SENTENCE("a read is one recv, and says whether another one is worth it", test_reads_once),
        SENTENCE("what the socket does not take waits, and arrives whole", test_back_pressure),
        SENTENCE("a server that reads nothing does not take our memory", test_bound),
        SENTENCE("after a send that failed the server's last words are still heard",
                 test_last_words),
        SENTENCE("a server that closes is unavailable", test_closed),
        SENTENCE("a link that is shut wakes its poller and keeps the descriptor", test_shut),
    };
    return cmocka_run_group_tests_name("one connection", tests, make_folder, remove_folder);
}
