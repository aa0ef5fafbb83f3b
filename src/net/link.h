/* link.h - one connection to a server that makes nobody wait: over TCP or a unix socket, with TLS if the address says
 * so.
 *
 * Life: dial, then go_on() whenever the descriptor is ready until it is up, then send and read; free at any time. Its
 * owner polls hf_link_fd() for hf_link_events(), which may both change with every call here, and calls nothing from two
 * threads at once. A link that failed stays so: hf_link_why() names the server and the cause in one line. */
#pragma once
#include "base/address.h"
#include "holdfast.h"

#include <sys/types.h>

struct hf_link;

enum hf_link_state { HF_LINK_OPENING, HF_LINK_UP, HF_LINK_FAILED };

/* Begins to connect. NULL: no memory; every other failure is found by going on. Of several addresses of a name each is
 * tried in turn, the first `skip` of them last: those that kept an earlier dial waiting without an answer. */
struct hf_link *hf_link_dial(const struct hf_address *to, unsigned skip);
void hf_link_free(struct hf_link *link); /* closes */

bool hf_link_ready(const struct hf_link *link); /* there is something to see without waiting for the descriptor */
int hf_link_fd(const struct hf_link *link);
short hf_link_events(const struct hf_link *link);
enum hf_link_state hf_link_go_on(struct hf_link *link);
enum hf_link_state hf_link_state(const struct hf_link *link);
hf_status hf_link_status(const struct hf_link *link); /* why it failed: HF_UNAVAILABLE, HF_CONFIG: no retry heals it */
const char *hf_link_why(const struct hf_link *link);  /* in words */

/* All or nothing waits to be sent. False: no memory or too much of it; reading will tell that the link failed. */
bool hf_link_send(struct hf_link *link, const void *bytes, size_t len);
/* Sends what the socket takes. A failure shows when all that the server sent before has been read. */
void hf_link_flush(struct hf_link *link);

/* One recv() at most. False: it failed. *more: there is, or may be, more to read without waiting. */
bool hf_link_read(struct hf_link *link, char *bytes, size_t size, size_t *got, bool *more);

/* A recv() that sleeps itself saves its caller a poll, but nobody can wake it: it ends after a moment at the latest. It
 * touches nothing but the descriptor, so that others may send meanwhile. What it returned is then given to
 * hf_link_dozed(), as if it had been read. Only a link that can doze may: no TLS, nothing left to send. */
enum { HF_LINK_DOZE_MS = 20 };
bool hf_link_can_doze(const struct hf_link *link);
ssize_t hf_link_doze(int fd, char *bytes, size_t size);   /* how many bytes; 0: the end; below: -errno */
ssize_t hf_link_glance(int fd, char *bytes, size_t size); /* the same without sleeping */
bool hf_link_dozed(struct hf_link *link, ssize_t came, size_t size, size_t *got, bool *more); /* as hf_link_read() */

/* Ends the connection but keeps its descriptor, which somebody polls: that poll returns. */
void hf_link_shut(struct hf_link *link);
