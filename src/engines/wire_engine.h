/* wire_engine.h - the door inside an engine that talks to servers: bytes and time go in, bytes and
 * replies come out.
 *
 * The engine behind it does no I/O, starts no thread, reads no clock and never blocks. So the same
 * code runs on sockets (engines/io/), on a transcript and in the simulator. No two threads are in
 * these functions at once.
 *
 * A connection has a number, which stays the same when it is dialled again. An engine with one
 * server numbers its connections from 0. One with any number of servers hands numbers out when it
 * first needs a connection (kit/connection_numbers.h), and there is no highest number.
 *
 * The engine answers each submit() with exactly one reply, inside the call or later. After QUEUED,
 * a GRANTED or NOTIFY may follow by itself. Nothing reaches a hold by itself: recheck() makes the
 * client check all its holds. */
#pragma once
#include "admin.h"
#include "base/endpoint.h"
#include "base/settings.h"

struct url;

/* Settings that all these engines have. */
enum wire_setting_id {
#define SETTING SETTING_INDEX
#define SETTING_TEXT SETTING_INDEX
#include "wire_settings.def"
#undef SETTING
#undef SETTING_TEXT
};
extern const struct setting_rows wire_settings;

/* ---- Sets of connections (connection_set in core/engine_protocol.h says what they are) ---- */

enum { CONNECTION_GROUPS = 64 };

static inline connection_set connection_set_of(unsigned connection)
{
    return UINT64_C(1) << connection % CONNECTION_GROUPS;
}

/* Converts a set of connections when `by` is added to all their numbers: an engine around another
 * one uses higher numbers for the inner one's connections. */
static inline connection_set connection_set_raised(connection_set set, unsigned by)
{
    return set << by % CONNECTION_GROUPS | set >> -by % CONNECTION_GROUPS;
}

/* Events on a descriptor that a library owns: bits. */
enum wire_events { WIRE_READABLE = 1, WIRE_WRITABLE = 2 };

/* All that such an engine may use of its host. None of these functions calls the engine. */
struct wire_engine_host {
    void *ctx;
    /* Makes room for connections with numbers below `count`, so that they can be dialled. Returns
     * false if there is no memory. NULL: there is always room. There always is for the numbers
     * below CONNECTION_GROUPS. */
    bool (*reserve)(void *ctx, unsigned count);
    /* Opens a connection that is down. connection_up() or connection_down() follows later. A host
     * name is resolved at every dial; to->skip makes the next dial try another of its addresses. */
    void (*dial)(void *ctx, unsigned connection, const struct endpoint *to);
    /* Puts all bytes into the connection's buffer. Returns false if there is no memory: then no
     * byte was taken, and the engine must treat the connection as down. */
    bool (*send)(void *ctx, unsigned connection, const void *bytes, size_t len);
    /* Begins TLS on a connection that is up and was dialled without it, as the endpoint of that
     * dial says. Only inside connection_bytes() of the connection, when the server has agreed and
     * nothing is left to send. connection_up() or connection_down() follows again. If bytes follow
     * the server's consent, they were sent in plain text, perhaps by an attacker: the engine must
     * hang up. */
    void (*start_tls)(void *ctx, unsigned connection);
    /* Closes a connection; unsent bytes are lost. No connection_down() follows. */
    void (*hang_up)(void *ctx, unsigned connection);
    /* For a library that owns its socket. The host polls `fd` as this connection, which must be
     * down or adopted, for `interest` (enum wire_events); connection_ready() follows whenever one
     * of these events happens. To change descriptor or interest, adopt again. To end it, hang up;
     * after that the library may close `fd`. The host never reads, writes or closes it. */
    void (*adopt)(void *ctx, unsigned connection, int fd, unsigned interest);
    void (*on_reply)(void *ctx, struct engine_op *op, const struct engine_reply *reply);
    /* ADMIN_LIST: one row; valid during the call. */
    void (*row)(void *ctx, struct engine_op *op, const struct hf_row *row);
    /* ADMIN_LIST with LIST_SERVERS: one server. */
    void (*server_state)(void *ctx, struct engine_op *op,
                         const struct hf_server_state *server_state);
    /* ADMIN_DIAGNOSE: one finding. */
    void (*find)(void *ctx, struct engine_op *op, const struct hf_finding *finding);
    /* op->connections changed, although no reply came: the op awaits its reply elsewhere. NULL: the
     * host does not use it. */
    void (*rerouted)(void *ctx, struct engine_op *op);
    /* Holds may have been lost without a message: the client checks each. */
    void (*recheck)(void *ctx);
    uint32_t (*random)(void *ctx);
    /* Reports how long requests take now. NULL: the host does not use it. */
    void (*takes)(void *ctx, nanos length);
};

struct wire_engine_type {
    /* Reads URL and settings; does not connect. On failure *self is NULL and error_text() says why.
     */
    hf_status (*open)(void **self, const struct url *url, const struct settings *settings,
                      const struct wire_engine_host *host);
    /* Does what op->verb says; keeps the pointer until forget(). op->connections are those by which
     * its replies may come now: up to date after every submit() and on_reply(). */
    void (*submit)(void *self, struct engine_op *op, nanos now);
    void (*forget)(void *self, struct engine_op *op);
    void (*connection_up)(void *self, unsigned connection, nanos now);
    /* The engine takes all bytes. It hangs up if they make no sense. */
    void (*connection_bytes)(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now);
    /* The connection could not be opened, or was closed. `status`: HF_UNAVAILABLE, or HF_CONFIG if
     * no retry can help. */
    void (*connection_down)(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now);
    /* An adopted descriptor is ready for `events` (enum wire_events). Errors and the end of the
     * stream are reported as readable. The call may be spurious, so the library must not block.
     * NULL: the engine adopts no descriptor. */
    void (*connection_ready)(void *self, unsigned connection, unsigned events, nanos now);
    /* Returns the connections on which replies are due that belong to no op, for example to a
     * release that nobody waits for. The background thread reads them soon, and closing waits for
     * them. */
    connection_set (*connections)(void *self);
    /* Returns the connections on which the server may send at any time: a subscription, a watch,
     * a session. The background thread reads them at once, and closing does not wait for them.
     * NULL: none. */
    connection_set (*listening_connections)(void *self);
    /* Returns the connections to servers that have nothing of this client: closing does not wait
     * for them. NULL: none. */
    connection_set (*unused_connections)(void *self);
    /* Returns the connections to servers that have stopped answering: closing gives them a moment
     * only. NULL: none. */
    connection_set (*silent_connections)(void *self, nanos now);
    /* Does what is due. Returns when it wants to be called next; TIME_NEVER: nothing is planned. It
     * may be called early. submit() and the connection functions may bring that time forward: call
     * tick() again after them. */
    nanos (*tick)(void *self, nanos now);
    /* The client closes: ends the engine's sessions, each once nothing needs it any more. Called
     * until no reply is due; connections() says where such replies are due. `hurries`: no time is
     * left, so release everything now. NULL: nothing to do. */
    void (*farewell)(void *self, bool hurries, nanos now);
    void (*close)(void *self); /* Hangs up and forgets every op. */
};
