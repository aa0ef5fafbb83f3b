/* tls_server.h - a TLS server in a thread of the test, with certificates that the test makes. It
 * echoes what it reads, over one connection at a time. */
#pragma once
#include "listen_socket.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Certificates ---- */

struct identity {
    EVP_PKEY *key;
    X509 *certificate;
};

struct identity_wish {
    const char *name;
    const char *alternatives;      /* "DNS:localhost,IP:127.0.0.1"; NULL: none */
    long days_from, days_to;       /* validity, counted from today */
    const struct identity *issuer; /* NULL: itself, as an authority */
};

static inline void extend(X509 *certificate, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static inline struct identity make_identity(const struct identity_wish *wish)
{
    static long serial;
    struct identity made = {.key = EVP_EC_gen("P-256"), .certificate = X509_new()};
    const struct identity *issuer = wish->issuer ? wish->issuer : &made;
    X509_NAME *name = X509_get_subject_name(made.certificate);
    assert_non_null(made.key);
    X509_set_version(made.certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made.certificate), wish->days_from * 86400);
    X509_gmtime_adj(X509_getm_notAfter(made.certificate), wish->days_to * 86400);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)wish->name, -1, -1,
                               0);
    X509_set_issuer_name(made.certificate, X509_get_subject_name(issuer->certificate));
    X509_set_pubkey(made.certificate, made.key);
    extend(made.certificate, NID_basic_constraints, wish->issuer ? "CA:FALSE" : "critical,CA:TRUE");
    if (wish->alternatives)
        extend(made.certificate, NID_subject_alt_name, wish->alternatives);
    assert_true(X509_sign(made.certificate, issuer->key, EVP_sha256()) > 0);
    return made;
}

static inline void free_identity(struct identity *identity)
{
    EVP_PKEY_free(identity->key);
    X509_free(identity->certificate);
}

static inline void write_certificate(const struct identity *identity, const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, identity->certificate), 1);
    fclose(file);
}

static inline void write_key(const struct identity *identity, const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, identity->key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

/* ---- The server ---- */

struct tls_server {
    int listener;
    char port[8];
    SSL_CTX *context;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic bool starts_late; /* TLS begins behind a line in plain text, and its answer "go\n" */
    _Atomic int greeted;      /* handshakes that succeeded */
    char asked_for[64];       /* the host name that the last client named; "" = none */
    char version[16];         /* of TLS, as spoken last */
};

static inline void echo_tls(struct tls_server *server, SSL *ssl)
{
    char bytes[5000];
    if (SSL_accept(ssl) != 1)
        return;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    snprintf(server->asked_for, sizeof server->asked_for, "%s", name ? name : "");
    snprintf(server->version, sizeof server->version, "%s", SSL_get_version(ssl));
    atomic_fetch_add(&server->greeted, 1);
    for (int got; (got = SSL_read(ssl, bytes, sizeof bytes)) > 0;)
        if (SSL_write(ssl, bytes, got) != got)
            return;
    SSL_shutdown(ssl);
}

/* Reads a line in plain text byte by byte, since TLS may follow at once, and agrees. */
static inline void agree_on_tls(int fd)
{
    char byte = 0;
    while (byte != '\n' && read(fd, &byte, 1) == 1)
        ;
    if (write(fd, "go\n", 3) != 3)
        return; /* the client is gone */
}

/* Chooses the one protocol that this server speaks besides none. */
static inline int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                            const unsigned char *offered, unsigned len, void *arg)
{
    static const unsigned char ours[] = {2, 'h', '2'};
    (void)ssl, (void)arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours, offered, len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static inline void *serve_tls(void *arg)
{
    struct tls_server *server = arg;
    sigset_t pipe; /* a client may leave at any time; the library itself must not need this */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    for (int fd; (fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 &&
                 !atomic_load(&server->stop);) {
        SSL *ssl = SSL_new(server->context);
        SSL_set_fd(ssl, fd);
        if (atomic_load(&server->starts_late))
            agree_on_tls(fd);
        echo_tls(server, ssl);
        SSL_free(ssl);
        ERR_clear_error();
        close(fd);
    }
    return NULL;
}

/* `clients`: the authority whose certificates clients must have; NULL: none is asked for.
 * `version`: 0, or the one. */
static inline void start_tls_server(struct tls_server *server, const struct identity *identity,
                                    const struct identity *clients, int version)
{
    memset(server, 0, sizeof *server);
    server->listener = listen_anywhere(server->port);
    server->context = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(server->context, identity->certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(server->context, identity->key), 1);
    SSL_CTX_set_min_proto_version(server->context, version);
    SSL_CTX_set_max_proto_version(server->context, version);
    SSL_CTX_set_alpn_select_cb(server->context, choose_h2, NULL);
    if (clients) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(server->context), clients->certificate);
        SSL_CTX_set_verify(server->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                           NULL);
    }
    assert_int_equal(pthread_create(&server->thread, NULL, serve_tls, server), 0);
}

static inline void stop_tls_server(struct tls_server *server)
{
    atomic_store(&server->stop, true);
    shutdown(server->listener, SHUT_RDWR);
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    close(server->listener);
    SSL_CTX_free(server->context);
}
