/* net_link.c - tests of one connection, against sockets of the test's own: TCP, unix sockets, TLS. The calls of the
 * library that receive and that look up names go through the test, which counts and answers them. */
#include "tls_server.h"

#include "base/address.h"
#include "net/buffer.h"
#include "net/link.h"
#include "sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>

#define PATIENCE_MS 10000

static char folder[64];

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
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
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

static struct hf_address at(const char *host, const char *port)
{
    struct hf_address address = {0};
    snprintf(address.host, sizeof address.host, "%s", host);
    snprintf(address.port, sizeof address.port, "%s", port);
    return address;
}

static struct hf_link *dial(const struct hf_address *to)
{
    struct hf_link *link = hf_link_dial(to, 0);
    assert_non_null(link);
    return link;
}

/* Waits until the link has something to do. */
static void wait_for(const struct hf_link *link)
{
    struct pollfd ready = {.fd = hf_link_fd(link), .events = hf_link_events(link)};
    if (!hf_link_ready(link) && poll(&ready, 1, PATIENCE_MS) != 1)
        fail_msg("nothing happened on the link");
}

static enum hf_link_state open_link(struct hf_link *link)
{
    while (hf_link_state(link) == HF_LINK_OPENING) {
        wait_for(link);
        hf_link_go_on(link);
    }
    return hf_link_state(link);
}

static void assert_up(struct hf_link *link)
{
    if (open_link(link) != HF_LINK_UP)
        fail_msg("%s", hf_link_why(link));
}

static void assert_failed(struct hf_link *link, hf_status status, const char *why)
{
    assert_int_equal(open_link(link), HF_LINK_FAILED);
    assert_string_equal(hf_link_why(link), why);
    assert_int_equal(hf_link_status(link), status);
    hf_link_free(link);
}

/* Why the link fails, once all was read. */
static void assert_ends(struct hf_link *link, hf_status status, const char *why)
{
    char bytes[1000];
    size_t got;
    bool more;
    do
        wait_for(link);
    while (hf_link_read(link, bytes, sizeof bytes, &got, &more));
    assert_failed(link, status, why);
}

static void read_exactly(struct hf_link *link, char *bytes, size_t size)
{
    for (size_t had = 0, got; had < size; had += got) {
        bool more;
        wait_for(link);
        hf_link_flush(link);
        if (!hf_link_read(link, bytes + had, size - had, &got, &more))
            fail_msg("%s", hf_link_why(link));
    }
}

static void assert_hears(struct hf_link *link, const char *text)
{
    char bytes[100] = "";
    assert_true(strlen(text) < sizeof bytes);
    read_exactly(link, bytes, strlen(text));
    assert_string_equal(bytes, text);
}

static void say(struct hf_link *link, const char *text)
{
    assert_true(hf_link_send(link, text, strlen(text)));
    hf_link_flush(link);
}

static void assert_peer_hears(int peer, const char *text)
{
    char bytes[100] = "";
    assert_int_equal(__real_recv(peer, bytes, strlen(text), MSG_WAITALL), strlen(text));
    assert_string_equal(bytes, text);
}

static int accept_one(int listener)
{
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void converse(struct hf_link *link, int peer)
{
    say(link, "ping");
    assert_peer_hears(peer, "ping");
    assert_int_equal(send(peer, "pong", 4, MSG_NOSIGNAL), 4);
    assert_hears(link, "pong");
}

/* A link that is up, and its other end. */
static struct hf_link *pair(int *peer)
{
    char port[8];
    int listener = listen_anywhere(port);
    struct hf_address address = at("127.0.0.1", port);
    struct hf_link *link = dial(&address);
    *peer = accept_one(listener);
    assert_up(link);
    close(listener);
    return link;
}

static char *many_bytes(size_t size)
{
    char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    return bytes;
}

/* ---- Connecting ---- */

static void test_tcp(void **state)
{
    (void)state;
    int peer, on = 0;
    socklen_t size = sizeof on;
    struct hf_link *link = pair(&peer);
    converse(link, peer);
    assert_true(fcntl(hf_link_fd(link), F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(hf_link_fd(link), F_GETFL) & O_NONBLOCK);
    assert_int_equal(getsockopt(hf_link_fd(link), IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    assert_true(on);
    hf_link_free(link);
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
    struct hf_address to = at("::1", port);
    struct hf_link *link = dial(&to);
    int peer = accept_one(listener);
    assert_up(link);
    converse(link, peer);
    hf_link_free(link);
    close(peer);
    close(listener);
    snprintf(why, sizeof why, "[::1]:%s: connection refused", port);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
}

static void test_unix(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct hf_address to = {0};
    char why[200];
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
    snprintf(to.path, sizeof to.path, "%s", address.sun_path);
    snprintf(why, sizeof why, "%s: no such file or directory", to.path);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    struct hf_link *link = dial(&to);
    int peer = accept_one(listener);
    assert_up(link);
    converse(link, peer);
    close(peer);
    say(link, "anybody there?"); /* SIGPIPE would end this program */
    snprintf(why, sizeof why, "%s: broken pipe", to.path);
    assert_ends(link, HF_UNAVAILABLE, why);
    close(listener);
}

static void test_refused(void **state)
{
    (void)state;
    char port[8], why[64];
    close(listen_anywhere(port));
    struct hf_address to = at("127.0.0.1", port);
    snprintf(why, sizeof why, "127.0.0.1:%s: connection refused", port);
    assert_failed(dial(&to), HF_UNAVAILABLE, why);
}

static void test_unknown_host(void **state)
{
    (void)state;
    struct hf_address to = at("nowhere.test", "6379");
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
    struct hf_address to = at("two.test", port);
    struct hf_link *link = dial(&to); /* 127.0.0.2 refuses */
    assert_up(link);
    int peer = accept_one(first);
    converse(link, peer);
    hf_link_free(link);
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
    struct hf_address to = at("two.test", port);
    const int where[] = {second, first, second, first};
    for (unsigned skip = 0; skip < 4; skip++) {
        struct hf_link *link = hf_link_dial(&to, skip);
        assert_up(link);
        int peer = accept_one(where[skip]);
        converse(link, peer);
        hf_link_free(link);
        close(peer);
    }
    close(second);
    for (unsigned skip = 0; skip < 2; skip++) { /* the one that is left is found, around the end of the list too */
        struct hf_link *link = hf_link_dial(&to, skip);
        assert_up(link);
        hf_link_free(link);
    }
    close(first);
}

static void test_freed_while_opening(void **state)
{
    (void)state;
    char port[8];
    int listener = listen_anywhere(port);
    struct hf_address name = at("two.test", port), number = at("127.0.0.1", port);
    hf_link_free(dial(&name));
    hf_link_free(dial(&number));
    struct hf_link *link = dial(&number);
    assert_true(hf_link_send(link, "early", 5)); /* waits until it is up */
    hf_link_flush(link);
    close(accept_one(listener));
    int peer = accept_one(listener);
    assert_up(link);
    assert_true(hf_link_events(link) & POLLOUT);
    hf_link_flush(link);
    assert_peer_hears(peer, "early");
    hf_link_free(link);
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
    struct hf_link *link = pair(&peer);
    assert_int_equal(send(peer, "0123456789abcdefXYZ", 19, MSG_NOSIGNAL), 19);
    wait_for(link);
    int before = atomic_load(&receives);
    assert_true(hf_link_read(link, bytes, sizeof bytes, &got, &more));
    assert_int_equal(got, 16);
    assert_true(more);
    assert_true(hf_link_read(link, bytes, sizeof bytes, &got, &more));
    assert_int_equal(got, 3);
    assert_false(more);
    assert_int_equal(atomic_load(&receives) - before, 2);
    assert_true(hf_link_read(link, bytes, sizeof bytes, &got, &more)); /* nothing is there, and that is no error */
    assert_int_equal(got, 0);
    assert_false(more);
    hf_link_free(link);
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
    struct hf_link *link = pair(&peer);
    for (size_t sent = 0; sent < SIZE; sent += PIECE) {
        assert_true(hf_link_send(link, bytes + sent, SIZE - sent < PIECE ? SIZE - sent : PIECE));
        hf_link_flush(link);
    }
    assert_true(hf_link_events(link) & POLLOUT);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_all, &peer), 0);
    while (hf_link_events(link) & POLLOUT) {
        wait_for(link);
        hf_link_flush(link);
    }
    hf_link_free(link);
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
    struct hf_link *link = pair(&peer);
    struct sockaddr_in there;
    socklen_t size = sizeof there;
    assert_int_equal(getpeername(hf_link_fd(link), (struct sockaddr *)&there, &size), 0);
    snprintf(why, sizeof why, "127.0.0.1:%u: no memory to send, or the server takes nothing", ntohs(there.sin_port));
    assert_int_equal(send(peer, "last words", 10, MSG_NOSIGNAL), 10);
    while (hf_link_send(link, bytes, PIECE) && pieces < 1000)
        pieces++;
    assert_int_equal(pieces, HF_BUFFER_MAX / PIECE);
    assert_hears(link, "last words");
    assert_false(hf_link_send(link, "x", 1));
    assert_ends(link, HF_UNAVAILABLE, why);
    free(bytes);
    close(peer);
}

static void test_last_words(void **state)
{
    (void)state;
    int peer;
    struct hf_link *link = pair(&peer);
    struct linger at_once = {.l_onoff = 1};
    assert_int_equal(send(peer, "not today", 9, MSG_NOSIGNAL), 9);
    wait_for(link);
    assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(peer); /* a reset */
    for (int i = 0; i < 3; i++)
        if (hf_link_send(link, "anybody there?", 14))
            hf_link_flush(link);
    assert_hears(link, "not today");
    char bytes[10];
    size_t got;
    bool more;
    wait_for(link);
    assert_false(hf_link_read(link, bytes, sizeof bytes, &got, &more));
    assert_non_null(strstr(hf_link_why(link), ": connection reset by peer"));
    assert_int_equal(hf_link_status(link), HF_UNAVAILABLE);
    hf_link_free(link);
}

static void test_closed(void **state)
{
    (void)state;
    int peer;
    char why[128];
    struct sockaddr_in there;
    socklen_t size = sizeof there;
    struct hf_link *link = pair(&peer);
    assert_int_equal(getpeername(hf_link_fd(link), (struct sockaddr *)&there, &size), 0);
    snprintf(why, sizeof why, "127.0.0.1:%u: the server closed the connection", ntohs(there.sin_port));
    close(peer);
    assert_ends(link, HF_UNAVAILABLE, why);
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
    struct hf_link *link = pair(&peer);
    int fd = hf_link_fd(link);
    pthread_t poller;
    void *result;
    char byte;
    assert_int_equal(pthread_create(&poller, NULL, poll_it, &fd), 0);
    usleep(10000);
    hf_link_shut(link);
    assert_int_equal(pthread_join(poller, &result), 0);
    assert_int_equal((intptr_t)result, 1);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(__real_recv(peer, &byte, 1, 0), 0);
    hf_link_free(link);
    assert_true(fcntl(fd, F_GETFD) < 0);
    close(peer);
}

/* ---- TLS ---- */

static struct {
    struct identity authority, server, elsewhere, expired, client, stranger, stranger_authority;
    char ca[128], cert[128], key[128], stranger_cert[128], stranger_key[128];
} papers;

static int make_papers(void **state)
{
    (void)state;
    const char *here = "DNS:localhost,IP:127.0.0.1";
    papers.authority = make_identity(&(struct identity_wish){"authority", NULL, -10, 10, NULL});
    papers.stranger_authority = make_identity(&(struct identity_wish){"another authority", NULL, -10, 10, NULL});
    papers.server = make_identity(&(struct identity_wish){"server", here, -1, 1, &papers.authority});
    papers.elsewhere =
        make_identity(&(struct identity_wish){"elsewhere", "DNS:else.test,IP:127.0.0.3", -1, 1, &papers.authority});
    papers.expired = make_identity(&(struct identity_wish){"server", here, -5, -1, &papers.authority});
    papers.client = make_identity(&(struct identity_wish){"client", NULL, -1, 1, &papers.authority});
    papers.stranger = make_identity(&(struct identity_wish){"stranger", here, -1, 1, &papers.stranger_authority});
    snprintf(papers.ca, sizeof papers.ca, "%s/ca.crt", folder);
    snprintf(papers.cert, sizeof papers.cert, "%s/client.crt", folder);
    snprintf(papers.key, sizeof papers.key, "%s/client.key", folder);
    snprintf(papers.stranger_cert, sizeof papers.stranger_cert, "%s/stranger.crt", folder);
    snprintf(papers.stranger_key, sizeof papers.stranger_key, "%s/stranger.key", folder);
    write_certificate(&papers.authority, papers.ca);
    write_certificate(&papers.client, papers.cert);
    write_key(&papers.client, papers.key);
    write_certificate(&papers.stranger, papers.stranger_cert);
    write_key(&papers.stranger, papers.stranger_key);
    return 0;
}

static struct hf_address securely_at(const char *host, const char *port)
{
    struct hf_address to = at(host, port);
    to.tls = true;
    snprintf(to.ca, sizeof to.ca, "%s", papers.ca);
    return to;
}

static void with_certificate(struct hf_address *to, const char *cert, const char *key)
{
    snprintf(to->cert, sizeof to->cert, "%s", cert);
    snprintf(to->key, sizeof to->key, "%s", key);
}

static void assert_echoes(struct hf_link *link, size_t size)
{
    char *sent = many_bytes(size), *back = malloc(size);
    assert_true(hf_link_send(link, sent, size));
    hf_link_flush(link);
    read_exactly(link, back, size);
    assert_memory_equal(sent, back, size);
    free(sent);
    free(back);
}

/* TLS 1.2 and 1.3; a host that is a name, which the server is told, and one that is a number. */
static void test_tls(void **state)
{
    (void)state;
    const struct {
        int version;
        const char *host, *told, *spoken;
    } rows[] = {
        {TLS1_2_VERSION, "localhost", "localhost", "TLSv1.2"},
        {TLS1_3_VERSION, "localhost", "localhost", "TLSv1.3"},
        {TLS1_3_VERSION, "127.0.0.1", "", "TLSv1.3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tls_server server;
        start_tls_server(&server, &papers.server, NULL, rows[i].version);
        struct hf_address to = securely_at(rows[i].host, server.port);
        struct hf_link *link = dial(&to);
        assert_up(link);
        assert_echoes(link, 5);
        assert_echoes(link, 3 << 20);
        hf_link_free(link);
        stop_tls_server(&server);
        assert_string_equal(server.asked_for, rows[i].told);
        assert_string_equal(server.version, rows[i].spoken);
    }
}

/* Fails the same way whether the refusal comes inside the handshake or right behind it (TLS 1.3). */
static void assert_refused(struct tls_server *server, const struct hf_address *to, hf_status status, const char *cause)
{
    char why[300];
    snprintf(why, sizeof why, "%s:%s: %s", to->host, to->port, cause);
    struct hf_link *link = dial(to);
    if (open_link(link) == HF_LINK_UP)
        say(link, "hello");
    assert_ends(link, status, why);
    stop_tls_server(server);
}

static void test_refused_certificates(void **state)
{
    (void)state;
    const struct {
        const struct identity *identity;
        const char *host, *cause;
    } rows[] = {
        {&papers.expired, "localhost", "the server's certificate has expired"},
        {&papers.elsewhere, "localhost", "the server's certificate is for another host"},
        {&papers.elsewhere, "127.0.0.1", "the server's certificate is for another host"},
        {&papers.stranger, "localhost", "the server's certificate is from an unknown authority"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tls_server server;
        start_tls_server(&server, rows[i].identity, NULL, 0);
        struct hf_address to = securely_at(rows[i].host, server.port);
        assert_refused(&server, &to, HF_CONFIG, rows[i].cause);
        assert_int_equal(atomic_load(&server.greeted), 0);
    }
}

static void test_system_authorities(void **state)
{
    (void)state;
    struct tls_server server;
    start_tls_server(&server, &papers.server, NULL, 0);
    struct hf_address to = securely_at("localhost", server.port);
    to.ca[0] = 0;
    assert_refused(&server, &to, HF_CONFIG, "the server's certificate is from an unknown authority");
}

static void test_client_certificates(void **state)
{
    (void)state;
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int i = 0; i < 2; i++) {
        struct tls_server server;
        start_tls_server(&server, &papers.server, &papers.authority, versions[i]);
        struct hf_address to = securely_at("localhost", server.port);
        assert_refused(&server, &to, HF_CONFIG, "the server asks for a certificate");
        start_tls_server(&server, &papers.server, &papers.authority, versions[i]);
        to = securely_at("localhost", server.port);
        with_certificate(&to, papers.cert, papers.key);
        struct hf_link *link = dial(&to);
        assert_up(link);
        assert_echoes(link, 1000);
        hf_link_free(link);
        stop_tls_server(&server);
        start_tls_server(&server, &papers.server, &papers.authority, versions[i]);
        to = securely_at("localhost", server.port);
        with_certificate(&to, papers.stranger_cert, papers.stranger_key);
        assert_refused(&server, &to, HF_CONFIG, "the server refuses our certificate: tlsv1 alert unknown ca");
    }
}

static void assert_files_refused(const char *ca, const char *cert, const char *key, const char *cause)
{
    char why[600];
    struct hf_address to = securely_at("127.0.0.1", "1");
    snprintf(to.ca, sizeof to.ca, "%s", ca);
    with_certificate(&to, cert, key);
    snprintf(why, sizeof why, "127.0.0.1:1: %s", cause);
    assert_failed(dial(&to), HF_CONFIG, why);
}

static void test_files(void **state)
{
    (void)state;
    char missing[128], empty[128], cause[400];
    snprintf(missing, sizeof missing, "%s/missing", folder);
    snprintf(empty, sizeof empty, "%s/empty", folder);
    fclose(fopen(empty, "w"));
    snprintf(cause, sizeof cause, "%s: No such file or directory", missing);
    assert_files_refused(missing, "", "", cause);
    assert_files_refused(papers.ca, missing, papers.key, cause);
    assert_files_refused(papers.ca, papers.cert, missing, cause);
    snprintf(cause, sizeof cause, "%s: has no PEM certificate", empty);
    assert_files_refused(empty, "", "", cause);
    assert_files_refused(papers.ca, empty, papers.key, cause);
    snprintf(cause, sizeof cause, "%s: has no PEM key that needs no passphrase", papers.cert);
    assert_files_refused(papers.ca, papers.cert, "", cause);
    snprintf(cause, sizeof cause, "%s: is not the key of %s", papers.stranger_key, papers.cert);
    assert_files_refused(papers.ca, papers.cert, papers.stranger_key, cause);
    snprintf(cause, sizeof cause, "%s: a key without a certificate", papers.key);
    assert_files_refused(papers.ca, "", papers.key, cause);
}

static void test_replaced_files(void **state)
{
    (void)state;
    char ca[128], why[200];
    struct tls_server server;
    start_tls_server(&server, &papers.server, NULL, 0);
    struct hf_address to = securely_at("localhost", server.port);
    snprintf(ca, sizeof ca, "%s/replaced.crt", folder);
    snprintf(to.ca, sizeof to.ca, "%s", ca);
    write_certificate(&papers.stranger_authority, ca);
    snprintf(why, sizeof why, "localhost:%s: the server's certificate is from an unknown authority", server.port);
    assert_failed(dial(&to), HF_CONFIG, why);
    write_certificate(&papers.authority, ca);
    struct hf_link *link = dial(&to);
    assert_up(link);
    assert_echoes(link, 10);
    hf_link_free(link);
    stop_tls_server(&server);
}

static void test_not_tls(void **state)
{
    (void)state;
    char port[8], why[100];
    int listener = listen_anywhere(port);
    struct hf_address to = securely_at("127.0.0.1", port);
    struct hf_link *link = dial(&to);
    int peer = accept_one(listener);
    assert_int_equal(send(peer, "-ERR unknown command\r\n", 22, MSG_NOSIGNAL), 22);
    snprintf(why, sizeof why, "127.0.0.1:%s: not TLS: is this a plain port?", port);
    assert_failed(link, HF_CONFIG, why);
    close(peer);
    link = dial(&to);
    close(accept_one(listener));
    open_link(link);
    assert_int_equal(hf_link_status(link), HF_UNAVAILABLE); /* closed, or reset: it may be about to restart */
    hf_link_free(link);
    close(listener);
}

static void test_tls_on_a_path(void **state)
{
    (void)state;
    struct hf_address to = {.tls = true, .path = "/run/nothing"};
    assert_failed(dial(&to), HF_CONFIG, "/run/nothing: TLS needs a host whose name can be verified");
}

static int remove_papers(void **state)
{
    (void)state;
    struct identity *all[] = {&papers.authority, &papers.server,   &papers.elsewhere,         &papers.expired,
                              &papers.client,    &papers.stranger, &papers.stranger_authority};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free_identity(all[i]);
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("over TCP bytes go both ways, at once and in no child of ours", test_tcp),
        SENTENCE("over IPv6 too, and messages write its address in brackets", test_ipv6),
        SENTENCE("over a unix socket too, and no signal comes when its other end is closed", test_unix),
        SENTENCE("a refused connection names server and cause", test_refused),
        SENTENCE("a host that nobody knows is unavailable: it may yet be made known", test_unknown_host),
        SENTENCE("every address of a name is tried", test_every_address),
        SENTENCE("an address that kept an earlier dial waiting is tried last", test_skip),
        SENTENCE("a link may be freed at any stage, and what was sent early waits", test_freed_while_opening),
        SENTENCE("a read is one recv, and says whether another one is worth it", test_reads_once),
        SENTENCE("what the socket does not take waits, and arrives whole", test_back_pressure),
        SENTENCE("a server that reads nothing does not take our memory", test_bound),
        SENTENCE("after a send that failed the server's last words are still heard", test_last_words),
        SENTENCE("a server that closes is unavailable", test_closed),
        SENTENCE("a link that is shut wakes its poller and keeps the descriptor", test_shut),
        SENTENCE("TLS 1.2 and 1.3 carry bytes both ways and name the host", test_tls),
        SENTENCE("expired, foreign and unknown certificates are refused", test_refused_certificates),
        SENTENCE("without a file the system's authorities count", test_system_authorities),
        SENTENCE("a certificate of our own is shown when asked for, and missed when it is not there",
                 test_client_certificates),
        SENTENCE("files that cannot be used are named", test_files),
        SENTENCE("files are read anew at each dial", test_replaced_files),
        SENTENCE("a port that does not speak TLS is told apart", test_not_tls),
        SENTENCE("TLS needs a host to verify", test_tls_on_a_path),
    };
    strcpy(folder, "/tmp/net-link-XXXXXX");
    if (!mkdtemp(folder))
        return 70;
    return cmocka_run_group_tests_name("one connection", tests, make_papers, remove_papers);
}
