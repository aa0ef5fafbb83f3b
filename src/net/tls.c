/* tls.c - one side of a TLS session that does no I/O. */
#include "tls.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tls {
    SSL *ssl;
    BIO *in, *out;        /* both belong to `ssl` */
    bool has_certificate; /* we have a certificate of our own */
    bool asked_for_one;   /* the server asked for our certificate */
    bool has_received;    /* the first byte has arrived */
    bool is_not_tls;      /* the server speaks another protocol */
    char alpn[16];        /* protocol that the server must choose; "": any */
};

/* ---- Making a session ---- */

/* Sets the error to what is wrong with a file that OpenSSL could not use. */
static hf_status bad_file(const char *path, const char *lacks)
{
    if (access(path, R_OK) != 0)
        return error_set(HF_CONFIG, "%s: %s", path, strerror(errno));
    return error_set(HF_CONFIG, "%s: %s", path, lacks);
}

static hf_status load_authorities(SSL_CTX *context, const char *file)
{
    if (!*file)
        return SSL_CTX_set_default_verify_paths(context) == 1
                   ? HF_OK
                   : error_set(HF_CONFIG, "the system's certificates cannot be read");

    return SSL_CTX_load_verify_locations(context, file, NULL) == 1
               ? HF_OK
               : bad_file(file, "has no PEM certificate");
}

/* Replaces OpenSSL's own callback, which would ask on the terminal. */
static int no_passphrase(char *buffer, int size, int writing, void *arg)
{
    (void)buffer, (void)size, (void)writing, (void)arg;
    return 0;
}

static hf_status load_certificate(SSL_CTX *context, const struct endpoint *to)
{
    const char *key = *to->key ? to->key : to->cert;
    if (!*to->cert)
        return *to->key ? error_set(HF_CONFIG, "%s: a key needs a certificate (cert)", to->key)
                        : HF_OK;

    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(context, to->cert) != 1)
        return bad_file(to->cert, "has no PEM certificate");
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1)
        return HF_OK;
    if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
        return error_set(HF_CONFIG, "%s: is not the key of %s", key, to->cert);
    return bad_file(key, "has no PEM key without a passphrase");
}

static int note_request(SSL *ssl, void *arg)
{
    struct tls *tls = arg;
    (void)ssl;
    tls->asked_for_one = true;
    return 1;
}

static bool is_number(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool expect_host(SSL *ssl, const char *host)
{
    if (is_number(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* Returns the name that the certificate must have. */
static const char *expected_name(const struct endpoint *to)
{
    return *to->server_name ? to->server_name : to->host;
}

/* Offers an ALPN protocol. In wire format it is a length and a name. SSL_set_alpn_protos()
 * returns 0 on success. */
static bool offer_protocol(SSL *ssl, const char *protocol)
{
    unsigned char wire[32];
    size_t len = strlen(protocol);
    assert(len < sizeof wire);
    if (!len)
        return true;

    wire[0] = (unsigned char)len;
    memcpy(wire + 1, protocol, len);
    return SSL_set_alpn_protos(ssl, wire, (unsigned)len + 1) == 0;
}

static bool connect_bios(struct tls *tls)
{
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->in && tls->out) {
        SSL_set_bio(tls->ssl, tls->in, tls->out);
        return true;
    }

    BIO_free(tls->in);
    BIO_free(tls->out);
    return false;
}

static hf_status make_session(struct tls *tls, SSL_CTX *context, const struct endpoint *to)
{
    hf_status status = load_authorities(context, to->ca);
    if (status == HF_OK)
        status = load_certificate(context, to);
    if (status != HF_OK)
        return status;

    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_cert_cb(context, note_request, tls);
    tls->has_certificate = *to->cert;
    snprintf(tls->alpn, sizeof tls->alpn, "%s", to->alpn);
    tls->ssl = SSL_new(context);
    bool is_ready = tls->ssl && connect_bios(tls) && expect_host(tls->ssl, expected_name(to)) &&
                    offer_protocol(tls->ssl, to->alpn);
    if (!is_ready)
        return error_set(HF_UNAVAILABLE, "no memory for TLS");

    SSL_set_connect_state(tls->ssl);
    return HF_OK;
}

hf_status tls_new(struct tls **out, const struct endpoint *to)
{
    *out = NULL;
    if (!*expected_name(to))
        return error_set(HF_CONFIG, "TLS needs a host whose name can be verified");

    /* OpenSSL must not clean up at exit: the background thread may still use it while the
     * process ends. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    ERR_clear_error();
    struct tls *tls = calloc(1, sizeof *tls);
    SSL_CTX *context = tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    hf_status status =
        context ? make_session(tls, context, to) : error_set(HF_UNAVAILABLE, "no memory for TLS");

    SSL_CTX_free(context); /* the session has a reference of its own */
    ERR_clear_error();
    if (status == HF_OK)
        *out = tls;
    else
        tls_free(tls);

    return status;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

/* ---- Errors ---- */

static hf_status refused_certificate(long flaw)
{
    switch (flaw) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return error_set(HF_CONFIG, "the server's certificate has expired");
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return error_set(HF_CONFIG, "the server's certificate is not valid yet");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return error_set(HF_CONFIG, "the server's certificate is for another host");
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return error_set(HF_CONFIG, "the server's certificate is from an unknown authority");
    default:
        return error_set(HF_CONFIG, "the server's certificate: %s",
                         X509_verify_cert_error_string(flaw));
    }
}

/* Sets the error to the alert with which the server ended the session. */
static hf_status alerted(const struct tls *tls, int alert, const char *reason)
{
    if (tls->asked_for_one && !tls->has_certificate)
        return error_set(HF_CONFIG, "the server asks for a certificate");

    switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return error_set(HF_CONFIG, "the server refuses our certificate: %s", reason);
    case SSL_AD_PROTOCOL_VERSION:
    case SSL_AD_INSUFFICIENT_SECURITY:
    case SSL_AD_HANDSHAKE_FAILURE:
        return error_set(HF_CONFIG, "no common version or cipher of TLS: %s", reason);
    default:
        return error_set(HF_UNAVAILABLE, "the server ended the TLS session: %s", reason);
    }
}

static hf_status explain(const struct tls *tls)
{
    unsigned long error = ERR_peek_last_error();
    int reason = ERR_GET_REASON(error);
    const char *text = ERR_reason_error_string(error);
    long flaw = SSL_get_verify_result(tls->ssl);

    if (tls->is_not_tls)
        return error_set(HF_CONFIG, "not TLS: is this a plain port?");
    if (flaw != X509_V_OK)
        return refused_certificate(flaw);
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET)
        return alerted(tls, reason - SSL_AD_REASON_OFFSET, text ? text : "");
    return error_set(HF_UNAVAILABLE, "TLS: %s", text ? text : "broken off");
}

/* Judges the result of a call of OpenSSL. Wanting more bytes is HF_OK; otherwise the session is
 * over. */
static hf_status judge(struct tls *tls, int result)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_NONE:
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return HF_OK;
    case SSL_ERROR_ZERO_RETURN:
        return error_set(HF_UNAVAILABLE, "the server closed the connection");
    default:
        return explain(tls);
    }
}

/* ---- Bytes in and out ---- */

static int within_int(size_t len)
{
    return len < INT_MAX ? (int)len : INT_MAX;
}

hf_status tls_take_in(struct tls *tls, const char *bytes, size_t len)
{
    if (!tls->has_received && len) {
        tls->has_received = true; /* a TLS record begins with its type, 20 to 23 */
        tls->is_not_tls =
            bytes[0] < SSL3_RT_CHANGE_CIPHER_SPEC || bytes[0] > SSL3_RT_APPLICATION_DATA;
    }
    if (len && BIO_write(tls->in, bytes, within_int(len)) != within_int(len))
        return error_set(HF_UNAVAILABLE, "no memory for TLS");
    return HF_OK;
}

static hf_status check_protocol(const struct tls *tls)
{
    const unsigned char *chosen;
    unsigned len;
    if (!*tls->alpn)
        return HF_OK;

    SSL_get0_alpn_selected(tls->ssl, &chosen, &len);
    bool is_ours = len == strlen(tls->alpn) && memcmp(chosen, tls->alpn, len) == 0;
    return is_ours ? HF_OK : error_set(HF_CONFIG, "the server does not speak %s (ALPN)", tls->alpn);
}

hf_status tls_handshake(struct tls *tls, bool *done)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    *done = result == 1;
    return *done ? check_protocol(tls) : judge(tls, result);
}

hf_status tls_read(struct tls *tls, char *bytes, size_t size, size_t *got)
{
    *got = 0;
    ERR_clear_error();
    int result = SSL_read_ex(tls->ssl, bytes, size, got);
    return judge(tls, result);
}

bool tls_more(const struct tls *tls)
{
    return SSL_pending(tls->ssl) > 0 || BIO_pending(tls->in) > 0;
}

hf_status tls_write(struct tls *tls, const char *bytes, size_t len)
{
    size_t written;
    ERR_clear_error();
    int result = SSL_write_ex(tls->ssl, bytes, len, &written);
    if (result == 1)
        return HF_OK;

    /* A write never waits: it goes into memory, and a session is never renegotiated. So this is a
     * failure. */
    hf_status status = judge(tls, result);
    return status != HF_OK ? status : error_set(HF_UNAVAILABLE, "TLS: a write that cannot go on");
}

void tls_shutdown(struct tls *tls)
{
    ERR_clear_error();
    SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

bool tls_take_out(struct tls *tls, struct buffer *out)
{
    for (size_t waiting; (waiting = BIO_ctrl_pending(tls->out)) > 0;) {
        char *room = buffer_reserve(out, waiting);
        int moved = room ? BIO_read(tls->out, room, within_int(waiting)) : 0;
        if (moved <= 0)
            return false;
        out->to += (size_t)moved;
    }
    return true;
}
