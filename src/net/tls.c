/* tls.c - one side of a TLS session that does no I/O. */
#include "tls.h"

#include "base/why.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hf_tls {
    SSL *ssl;
    BIO *in, *out;         /* belong to ssl */
    bool has_certificate;  /* of our own */
    bool asked_for_one;    /* by the server */
    bool heard;            /* bytes came in */
    bool speaks_something; /* other than TLS */
};

/* ---- Making one ---- */

/* What is wrong with a file that OpenSSL could not use. */
static hf_status bad_file(const char *path, const char *lacks)
{
    if (access(path, R_OK) != 0)
        return hf_why(HF_CONFIG, "%s: %s", path, strerror(errno));
    return hf_why(HF_CONFIG, "%s: %s", path, lacks);
}

static hf_status load_authorities(SSL_CTX *context, const char *file)
{
    if (!*file)
        return SSL_CTX_set_default_verify_paths(context) == 1
                   ? HF_OK
                   : hf_why(HF_CONFIG, "the system's certificates cannot be read");
    return SSL_CTX_load_verify_locations(context, file, NULL) == 1 ? HF_OK : bad_file(file, "has no PEM certificate");
}

/* Instead of OpenSSL's own, which would ask on the terminal. */
static int no_passphrase(char *buffer, int size, int writing, void *arg)
{
    (void)buffer, (void)size, (void)writing, (void)arg;
    return 0;
}

static hf_status load_certificate(SSL_CTX *context, const struct hf_address *to)
{
    const char *key = *to->key ? to->key : to->cert;
    if (!*to->cert)
        return *to->key ? hf_why(HF_CONFIG, "%s: a key without a certificate", to->key) : HF_OK;
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(context, to->cert) != 1)
        return bad_file(to->cert, "has no PEM certificate");
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1)
        return HF_OK;
    if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
        return hf_why(HF_CONFIG, "%s: is not the key of %s", key, to->cert);
    return bad_file(key, "has no PEM key that needs no passphrase");
}

static int note_request(SSL *ssl, void *arg)
{
    struct hf_tls *tls = arg;
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

static bool connect_bios(struct hf_tls *tls)
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

static hf_status make_session(struct hf_tls *tls, SSL_CTX *context, const struct hf_address *to)
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
    tls->ssl = SSL_new(context);
    if (!tls->ssl || !connect_bios(tls) || !expect_host(tls->ssl, to->host))
        return hf_why(HF_UNAVAILABLE, "no memory for TLS");
    SSL_set_connect_state(tls->ssl);
    return HF_OK;
}

hf_status hf_tls_new(struct hf_tls **out, const struct hf_address *to)
{
    *out = NULL;
    if (!*to->host)
        return hf_why(HF_CONFIG, "TLS needs a host whose name can be verified");
    /* No clean-up at exit: our background thread may still be at work while the process ends. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    ERR_clear_error();
    struct hf_tls *tls = calloc(1, sizeof *tls);
    SSL_CTX *context = tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    hf_status status = context ? make_session(tls, context, to) : hf_why(HF_UNAVAILABLE, "no memory for TLS");
    SSL_CTX_free(context); /* the session has a reference of its own */
    ERR_clear_error();
    if (status == HF_OK)
        *out = tls;
    else
        hf_tls_free(tls);
    return status;
}

void hf_tls_free(struct hf_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

/* ---- What went wrong ---- */

static hf_status refused_certificate(long flaw)
{
    switch (flaw) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return hf_why(HF_CONFIG, "the server's certificate has expired");
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return hf_why(HF_CONFIG, "the server's certificate is not valid yet");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return hf_why(HF_CONFIG, "the server's certificate is for another host");
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return hf_why(HF_CONFIG, "the server's certificate is from an unknown authority");
    default:
        return hf_why(HF_CONFIG, "the server's certificate: %s", X509_verify_cert_error_string(flaw));
    }
}

/* The server ended the session and said why. */
static hf_status alerted(const struct hf_tls *tls, int alert, const char *words)
{
    if (tls->asked_for_one && !tls->has_certificate)
        return hf_why(HF_CONFIG, "the server asks for a certificate");
    switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return hf_why(HF_CONFIG, "the server refuses our certificate: %s", words);
    case SSL_AD_PROTOCOL_VERSION:
    case SSL_AD_INSUFFICIENT_SECURITY:
    case SSL_AD_HANDSHAKE_FAILURE:
        return hf_why(HF_CONFIG, "no common version or cipher of TLS: %s", words);
    default:
        return hf_why(HF_UNAVAILABLE, "the server ended the TLS session: %s", words);
    }
}

static hf_status explain(const struct hf_tls *tls)
{
    unsigned long error = ERR_peek_last_error();
    int reason = ERR_GET_REASON(error);
    const char *words = ERR_reason_error_string(error);
    long flaw = SSL_get_verify_result(tls->ssl);
    if (tls->speaks_something)
        return hf_why(HF_CONFIG, "not TLS: is this a plain port?");
    if (flaw != X509_V_OK)
        return refused_certificate(flaw);
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET)
        return alerted(tls, reason - SSL_AD_REASON_OFFSET, words ? words : "");
    return hf_why(HF_UNAVAILABLE, "TLS: %s", words ? words : "broken off");
}

/* What a call of OpenSSL returned: it may want more from the wire, or the session is over. */
static hf_status judge(struct hf_tls *tls, int result)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_NONE:
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return HF_OK;
    case SSL_ERROR_ZERO_RETURN:
        return hf_why(HF_UNAVAILABLE, "the server closed the connection");
    default:
        return explain(tls);
    }
}

/* ---- At work ---- */

static int within_int(size_t len)
{
    return len < INT_MAX ? (int)len : INT_MAX;
}

hf_status hf_tls_take_in(struct hf_tls *tls, const char *bytes, size_t len)
{
    if (!tls->heard && len) {
        tls->heard = true; /* a record of TLS begins with its type, 20 to 23 */
        tls->speaks_something = bytes[0] < SSL3_RT_CHANGE_CIPHER_SPEC || bytes[0] > SSL3_RT_APPLICATION_DATA;
    }
    if (len && BIO_write(tls->in, bytes, within_int(len)) != within_int(len))
        return hf_why(HF_UNAVAILABLE, "no memory for TLS");
    return HF_OK;
}

hf_status hf_tls_greet(struct hf_tls *tls, bool *done)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    *done = result == 1;
    return judge(tls, result);
}

hf_status hf_tls_read(struct hf_tls *tls, char *bytes, size_t size, size_t *got)
{
    *got = 0;
    ERR_clear_error();
    int result = SSL_read_ex(tls->ssl, bytes, size, got);
    return judge(tls, result);
}

bool hf_tls_more(const struct hf_tls *tls)
{
    return SSL_pending(tls->ssl) > 0 || BIO_pending(tls->in) > 0;
}

hf_status hf_tls_write(struct hf_tls *tls, const char *bytes, size_t len)
{
    size_t written;
    ERR_clear_error();
    int result = SSL_write_ex(tls->ssl, bytes, len, &written);
    if (result == 1)
        return HF_OK;
    /* It goes into memory, and nothing is renegotiated: there is nothing that it could wait for. */
    hf_status status = judge(tls, result);
    return status != HF_OK ? status : hf_why(HF_UNAVAILABLE, "TLS: a write that cannot go on");
}

void hf_tls_farewell(struct hf_tls *tls)
{
    ERR_clear_error();
    SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

bool hf_tls_take_out(struct hf_tls *tls, struct hf_buffer *out)
{
    for (size_t waiting; (waiting = BIO_ctrl_pending(tls->out)) > 0;) {
        char *room = hf_buffer_reserve(out, waiting);
        int moved = room ? BIO_read(tls->out, room, within_int(waiting)) : 0;
        if (moved <= 0)
            return false;
        out->to += (size_t)moved;
    }
    return true;
}
