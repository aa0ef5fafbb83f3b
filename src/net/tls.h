/* tls.h - one side of a TLS session that does no I/O: bytes from the wire go in, bytes for the wire come out, so that
 * every system call is made by the link (and no SIGPIPE by OpenSSL).
 *
 * Certificate and host name are verified, always. Functions that fail return a status with the cause in hf_why_text(),
 * without the server's name: HF_CONFIG for what no retry heals, HF_UNAVAILABLE for the rest. */
#pragma once
#include "buffer.h"

#include "base/address.h"
#include "holdfast.h"

struct hf_tls;

/* Reads the files of the address anew, so that replaced ones count from the next connection on. On failure *tls is
 * NULL. */
hf_status hf_tls_new(struct hf_tls **tls, const struct hf_address *to);
void hf_tls_free(struct hf_tls *tls); /* NULL is fine */

hf_status hf_tls_take_in(struct hf_tls *tls, const char *bytes, size_t len); /* came from the wire */
hf_status hf_tls_greet(struct hf_tls *tls, bool *done);                      /* goes on with the handshake */
hf_status hf_tls_read(struct hf_tls *tls, char *bytes, size_t size, size_t *got);
bool hf_tls_more(const struct hf_tls *tls); /* has not yet given out all that came in */
hf_status hf_tls_write(struct hf_tls *tls, const char *bytes, size_t len);
void hf_tls_farewell(struct hf_tls *tls); /* says that nothing follows */

/* What is to go to the wire, moved into `out`. False: no memory. Due after each of the calls above. */
bool hf_tls_take_out(struct hf_tls *tls, struct hf_buffer *out);
