/* tls.h - the client side of a TLS session without I/O: encrypted bytes go in, encrypted bytes come
 * out. So conn.c makes every system call, and OpenSSL cannot raise SIGPIPE.
 *
 * Certificate and host name are always verified. Functions that fail return a status with the cause
 * in error_text(), without the server's name: HF_CONFIG if a retry cannot help, else
 * HF_UNAVAILABLE. */
#pragma once
#include "buffer.h"

#include "base/endpoint.h"
#include "holdfast.h"

struct tls;

/* Reads the files of the endpoint each time, so that replaced files count from the next connection
 * on. On failure *tls is NULL. */
hf_status tls_new(struct tls **tls, const struct endpoint *to);
void tls_free(struct tls *tls); /* Frees the session; NULL is allowed. */

/* Passes received bytes to the session. */
hf_status tls_take_in(struct tls *tls, const char *bytes, size_t len);
hf_status tls_handshake(struct tls *tls, bool *done); /* Continues the handshake. */
hf_status tls_read(struct tls *tls, char *bytes, size_t size, size_t *got);
bool tls_more(const struct tls *tls); /* Returns true if received bytes can be read. */
hf_status tls_write(struct tls *tls, const char *bytes, size_t len);
void tls_shutdown(struct tls *tls); /* Tells the server that no further bytes follow. */

/* Moves the encrypted bytes to send into `out`; to be called after each of the calls above. Returns
 * false if there is no memory. */
bool tls_take_out(struct tls *tls, struct buffer *out);
