/* conn.h - one non-blocking connection to a server: TCP or a unix socket, with TLS if the endpoint
 * says so.
 *
 * Life: dial, call conn_continue() whenever the descriptor is ready until the connection is up,
 * then send and read; free at any time. The owner polls conn_fd() for conn_events(), both of which
 * may change with every call, and never calls from two threads at once. A connection that failed
 * stays failed: conn_error_text() names the server and the cause in one line. */
#pragma once
#include "base/endpoint.h"
#include "holdfast.h"

#include <sys/types.h>

struct conn;

enum conn_state { CONN_OPENING, CONN_UP, CONN_FAILED };

/* Starts to connect. NULL: no memory; every other failure shows in conn_continue(). A name is
 * resolved anew. If it has several addresses each is tried in turn, the first to->skip of them
 * last. */
struct conn *conn_dial(const struct endpoint *to);
void conn_free(struct conn *conn); /* closes and frees it */

/* Returns true if there is something to read, or a failure to report, without waiting for the
 * descriptor. */
bool conn_ready(const struct conn *conn);
int conn_fd(const struct conn *conn);
short conn_events(const struct conn *conn);
enum conn_state conn_continue(struct conn *conn);
enum conn_state conn_state(const struct conn *conn);

/* Begins TLS on a connection that is up, without TLS, and has nothing left to send: for protocols
 * that agree on TLS in plain text first. The connection is CONN_OPENING again until the handshake
 * is done. Returns false if it failed. */
bool conn_start_tls(struct conn *conn);

/* Returns why it failed: HF_UNAVAILABLE, or HF_CONFIG if a retry cannot help; with the error
 * text. */
hf_status conn_status(const struct conn *conn);
const char *conn_error_text(const struct conn *conn);

/* Appends the bytes to those that wait to be sent. Returns false if there is no memory or too much
 * waits; the next read then reports that the connection failed. */
bool conn_send(struct conn *conn, const void *bytes, size_t len);
/* Sends as much as the socket takes. A failure is reported after everything that the server sent
 * before has been read. */
void conn_flush(struct conn *conn);

/* Makes one recv() at most. Returns false if the connection failed. *more: there may be more to
 * read without waiting. */
bool conn_read(struct conn *conn, char *bytes, size_t size, size_t *got, bool *more);

/* A recv() that sleeps saves its caller a poll, but no other thread can wake it, so it ends after
 * CONN_RECV_WAIT_MS. It uses nothing but the descriptor, so other threads may send meanwhile. Its
 * result is then passed to conn_recv_waited(), as if it had been read. Only for a connection
 * without TLS that has nothing left to send. */
enum { CONN_RECV_WAIT_MS = 20 };
bool conn_can_recv_wait(const struct conn *conn);

/* Returns the number of bytes, 0 at the end of the stream, or -errno. */
ssize_t conn_recv_wait(int fd, char *bytes, size_t size);
/* Like conn_recv_wait(), but does not sleep. */
ssize_t conn_recv_now(int fd, char *bytes, size_t size);

/* Takes the result of conn_recv_wait() or conn_recv_now(); otherwise as conn_read(). */
bool conn_recv_waited(struct conn *conn, ssize_t came, size_t size, size_t *got, bool *more);

/* Ends the connection but keeps its descriptor, which a thread may be polling: that poll returns.
 */
void conn_shut(struct conn *conn);
