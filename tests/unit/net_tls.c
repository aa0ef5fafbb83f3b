/* net_tls.c - tests of one connection with TLS, against a server of the test's own: certificates
 * that count and those that do not, files that are missing or replaced, and a port that does not
 * speak it. */
#include "net_fixture.h"
#include "tls_server.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct {
    struct identity authority, server, elsewhere, expired, client, stranger, stranger_authority;
    char ca[128], cert[128], key[128], stranger_cert[128], stranger_key[128];
} papers;

static int make_papers(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    const char *here = "DNS:localhost,IP:127.0.0.1";
    papers.authority = make_identity(&(struct identity_wish){"authority", NULL, -10, 10, NULL});
    papers.stranger_authority =
        make_identity(&(struct identity_wish){"another authority", NULL, -10, 10, NULL});
    papers.server =
        make_identity(&(struct identity_wish){"server", here, -1, 1, &papers.authority});
    papers.elsewhere = make_identity(&(struct identity_wish){
        "elsewhere", "DNS:else.test,IP:127.0.0.3", -1, 1, &papers.authority});
    papers.expired =
        make_identity(&(struct identity_wish){"server", here, -5, -1, &papers.authority});
    papers.client =
        make_identity(&(struct identity_wish){"client", NULL, -1, 1, &papers.authority});
    papers.stranger =
        make_identity(&(struct identity_wish){"stranger", here, -1, 1, &papers.stranger_authority});
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

static int remove_papers(void **state)
{
    struct identity *all[] = {&papers.authority,         &papers.server, &papers.elsewhere,
                              &papers.expired,           &papers.client, &papers.stranger,
                              &papers.stranger_authority};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free_identity(all[i]);
    return remove_folder(state);
}

static struct endpoint securely_at(const char *host, const char *port)
{
    struct endpoint to = at(host, port);
    to.tls = true;
    snprintf(to.ca, sizeof to.ca, "%s", papers.ca);
    return to;
}

static void with_certificate(struct endpoint *to, const char *cert, const char *key)
{
    snprintf(to->cert, sizeof to->cert, "%s", cert);
    snprintf(to->key, sizeof to->key, "%s", key);
}

static void assert_echoes(struct conn *conn, size_t size)
{
    char *sent = many_bytes(size), *back = malloc(size);
    assert_true(conn_send(conn, sent, size));
    conn_flush(conn);
    read_exactly(conn, back, size);
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
        struct endpoint to = securely_at(rows[i].host, server.port);
        struct conn *conn = dial(&to);
        assert_up(conn);
        assert_echoes(conn, 5);
        assert_echoes(conn, 3 << 20);
        conn_free(conn);
        stop_tls_server(&server);
        assert_string_equal(server.asked_for, rows[i].told);
        assert_string_equal(server.version, rows[i].spoken);
    }
}

/* Fails the same way whether the refusal comes inside the handshake or right behind it (TLS 1.3).
 */
static void assert_refused(struct tls_server *server, const struct endpoint *to, hf_status status,
                           const char *cause)
{
    char why[300];
    snprintf(why, sizeof why, "%s:%s: %s", to->host, to->port, cause);
    struct conn *conn = dial(to);
    if (open_conn(conn) == CONN_UP)
        say(conn, "hello");
    assert_ends(conn, status, why);
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
        struct endpoint to = securely_at(rows[i].host, server.port);
        assert_refused(&server, &to, HF_CONFIG, rows[i].cause);
        assert_int_equal(atomic_load(&server.greeted), 0);
    }
}

/* A server behind a tunnel or an address of its own is known by the name in its certificate. */
static void test_server_name(void **state)
{
    (void)state;
    struct tls_server server;
    start_tls_server(&server, &papers.elsewhere, NULL, 0);
    struct endpoint to = securely_at("127.0.0.1", server.port);
    strcpy(to.server_name, "else.test");
    struct conn *conn = dial(&to);
    assert_up(conn);
    assert_echoes(conn, 5);
    conn_free(conn);
    stop_tls_server(&server);
    assert_string_equal(server.asked_for, "else.test");

    start_tls_server(&server, &papers.server, NULL, 0);
    to = securely_at("localhost", server.port);
    strcpy(to.server_name, "else.test");
    assert_refused(&server, &to, HF_CONFIG, "the server's certificate is for another host");
}

static void test_protocol(void **state)
{
    (void)state;
    struct tls_server server;
    start_tls_server(&server, &papers.server, NULL, 0);
    struct endpoint to = securely_at("localhost", server.port);
    strcpy(to.alpn, "h2");
    struct conn *conn = dial(&to);
    assert_up(conn);
    assert_echoes(conn, 5);
    conn_free(conn);
    strcpy(to.alpn, "h3");
    assert_refused(&server, &to, HF_CONFIG, "the server does not speak h3 (ALPN)");
}

/* The connection is up, speaks in plain text, and is up again once TLS is agreed on. */
static void test_started_late(void **state)
{
    (void)state;
    struct tls_server server;
    start_tls_server(&server, &papers.server, NULL, 0);
    atomic_store(&server.starts_late, true);
    struct endpoint to = securely_at("localhost", server.port);
    to.tls = false;
    struct conn *conn = dial(&to);
    assert_up(conn);
    say(conn, "TLS, please\n");
    assert_hears(conn, "go\n");
    assert_int_equal(atomic_load(&server.greeted), 0);
    assert_true(conn_start_tls(conn));
    assert_int_equal(conn_state(conn), CONN_OPENING);
    assert_true(conn_send(conn, "early", 5)); /* waits for the handshake */
    assert_up(conn);
    conn_flush(conn);
    assert_hears(conn, "early");
    assert_echoes(conn, 3 << 20);
    conn_free(conn);

    to.ca[0] = 0;
    conn = dial(&to);
    assert_up(conn);
    say(conn, "TLS, please\n");
    assert_hears(conn, "go\n");
    assert_true(conn_start_tls(conn));
    char why[128];
    snprintf(why, sizeof why, "localhost:%s: the server's certificate is from an unknown authority",
             server.port);
    assert_failed(conn, HF_CONFIG, why);
    stop_tls_server(&server);
}

static void test_system_authorities(void **state)
{
    (void)state;
    struct tls_server server;
    start_tls_server(&server, &papers.server, NULL, 0);
    struct endpoint to = securely_at("localhost", server.port);
    to.ca[0] = 0;
    assert_refused(&server, &to, HF_CONFIG,
                   "the server's certificate is from an unknown authority");
}

static void test_client_certificates(void **state)
{
    (void)state;
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int i = 0; i < 2; i++) {
        struct tls_server server;
        start_tls_server(&server, &papers.server, &papers.authority, versions[i]);
        struct endpoint to = securely_at("localhost", server.port);
        assert_refused(&server, &to, HF_CONFIG, "the server asks for a certificate");
        start_tls_server(&server, &papers.server, &papers.authority, versions[i]);
        to = securely_at("localhost", server.port);
        with_certificate(&to, papers.cert, papers.key);
        struct conn *conn = dial(&to);
        assert_up(conn);
        assert_echoes(conn, 1000);
        conn_free(conn);
        stop_tls_server(&server);
        start_tls_server(&server, &papers.server, &papers.authority, versions[i]);
        to = securely_at("localhost", server.port);
        with_certificate(&to, papers.stranger_cert, papers.stranger_key);
        assert_refused(&server, &to, HF_CONFIG,
                       "the server refuses our certificate: tlsv1 alert unknown ca");
    }
}

static void assert_files_refused(const char *ca, const char *cert, const char *key,
                                 const char *cause)
{
    char why[600];
    struct endpoint to = securely_at("127.0.0.1", "1");
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
    snprintf(cause, sizeof cause, "%s: has no PEM key without a passphrase", papers.cert);
    assert_files_refused(papers.ca, papers.cert, "", cause);
    snprintf(cause, sizeof cause, "%s: is not the key of %s", papers.stranger_key, papers.cert);
    assert_files_refused(papers.ca, papers.cert, papers.stranger_key, cause);
    snprintf(cause, sizeof cause, "%s: a key needs a certificate (cert)", papers.key);
    assert_files_refused(papers.ca, "", papers.key, cause);
}

static void test_replaced_files(void **state)
{
    (void)state;
    char ca[128], why[200];
    struct tls_server server;
    start_tls_server(&server, &papers.server, NULL, 0);
    struct endpoint to = securely_at("localhost", server.port);
    snprintf(ca, sizeof ca, "%s/replaced.crt", folder);
    snprintf(to.ca, sizeof to.ca, "%s", ca);
    write_certificate(&papers.stranger_authority, ca);
    snprintf(why, sizeof why, "localhost:%s: the server's certificate is from an unknown authority",
             server.port);
    assert_failed(dial(&to), HF_CONFIG, why);
    write_certificate(&papers.authority, ca);
    struct conn *conn = dial(&to);
    assert_up(conn);
    assert_echoes(conn, 10);
    conn_free(conn);
    stop_tls_server(&server);
}

static void test_not_tls(void **state)
{
    (void)state;
    char port[8], why[100];
    int listener = listen_anywhere(port);
    struct endpoint to = securely_at("127.0.0.1", port);
    struct conn *conn = dial(&to);
    int peer = accept_one(listener);
    assert_int_equal(send(peer, "-ERR unknown command\r\n", 22, MSG_NOSIGNAL), 22);
    snprintf(why, sizeof why, "127.0.0.1:%s: not TLS: is this a plain port?", port);
    assert_failed(conn, HF_CONFIG, why);
    close(peer);
    conn = dial(&to);
    close(accept_one(listener));
    open_conn(conn);
    assert_int_equal(conn_status(conn),
                     HF_UNAVAILABLE); /* closed, or reset: it may be about to restart */
    conn_free(conn);
    close(listener);
}

static void test_tls_on_a_path(void **state)
{
    (void)state;
    struct endpoint to = {.tls = true, .path = "/run/nothing"};
    assert_failed(dial(&to), HF_CONFIG,
                  "/run/nothing: TLS needs a host whose name can be verified");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("TLS 1.2 and 1.3 carry bytes both ways and name the host", test_tls),
        SENTENCE("expired, foreign and unknown certificates are refused",
                 test_refused_certificates),
        SENTENCE("a certificate may be for another name than the host's", test_server_name),
        SENTENCE("a server must choose the protocol that is asked for", test_protocol),
        SENTENCE("TLS may begin behind bytes in plain text", test_started_late),
        SENTENCE("without a file the system's authorities count", test_system_authorities),
        SENTENCE(
            "a certificate of our own is shown when asked for, and missed when it is not there",
            test_client_certificates),
        SENTENCE("files that cannot be used are named", test_files),
        SENTENCE("files are read anew at each dial", test_replaced_files),
        SENTENCE("a port that does not speak TLS is told apart", test_not_tls),
        SENTENCE("TLS needs a host to verify", test_tls_on_a_path),
    };
    return cmocka_run_group_tests_name("one connection with TLS", tests, make_papers,
                                       remove_papers);
}
