/* session.h - liveness that many holds share: servers have leases or sessions for it. Pure: time is
 * an argument, and nobody is called.
 *
 * A server ends a session when its length has passed since the last renewal. The server that
 * answers a renewal may have been deposed, so an answered renewal is only *kept*. It is *proven*
 * when a later reply shows that the server spoke for its cluster; the engine knows which replies
 * show that. Only a proven renewal extends the session, counted from when it was sent.
 *
 * Holds and waiters are members. One renewal serves all of them. The claim of a hold causes a
 * renewal by its extend; for waiters the session renews itself. A session that is lost takes all
 * its members with it at once, and no member of another session. */
#pragma once
#include "engine_protocol.h"
#include "id.h"

enum session_state { SESSION_NONE, SESSION_ASKED_FOR, SESSION_ALIVE };

struct session {
    struct session *next; /* next session of the client: kit/session_list.h */
    int64_t ttl;          /* ttl to ask the server for, in the unit of its protocol */
    bool is_private;      /* for one attempt: its hold may go on without this client */
    struct id attempt;    /* is_private: id of that attempt */

    enum session_state state;
    nanos length;               /* ttl that the server granted with the proven renewal */
    nanos proven_at;            /* send time of the newest proven renewal; 0: none */
    nanos kept_at, kept_length; /* send time and ttl of the newest kept renewal; kept_at 0: none */

    struct session_member *members;
    uint32_t count, waiters; /* number of members, and of waiters among them */
};

/* A hold or a waiter, as part of an engine's struct. Zero: of no session. */
struct session_member {
    struct session *session;
    /* link: address of the pointer that points to this member */
    struct session_member *next, **link;
    bool waits;
};

/* ---- Time ---- */

/* session_begin: the server has made the session, by a request sent at `asked_at`. With asked_at =
 * 0 another client had it made, and it counts only after a renewal. session_keep: the server has
 * answered a renewal that was sent at `asked_at`. */
void session_begin(struct session *session, nanos asked_at, nanos length);
void session_keep(struct session *session, nanos asked_at, nanos length);
/* Makes the kept renewal, if there is one, the newest proven one. */
void session_prove(struct session *session);
/* Drops the kept renewal: the server that answered it may have been deposed, so another renewal is
 * needed. */
void session_drop_kept(struct session *session);

/* Returns until when the server does not end the session; 0: no renewal was proven. */
static inline nanos session_end(const struct session *session)
{
    return session->proven_at ? session->proven_at + session->length : 0;
}
/* Returns true if the session will outlive a request that is sent now. If it will not, renew it
 * first. */
bool session_is_fresh(const struct session *session, nanos now);
/* Returns true if a renewal sent at `since` or later is kept or proven. */
bool session_is_kept_since(const struct session *session, nanos since);
/* Returns when to renew a session with waiters. TIME_NEVER: nobody waits. */
nanos session_renewal_due(const struct session *session);

/* ---- Members ---- */

/* Makes the member one of that session and of no other. NULL: of none. */
void session_attach(struct session_member *member, struct session *session);
/* Notes that the member begins or stops waiting. Changes nothing for a member without a session. */
void session_set_waits(struct session_member *member, bool waits);

/* Called when the server has ended the session: the times of its renewals mean nothing any more.
 * The members are still attached; the engine detaches each when it tells the client. A session that
 * is being made stays in that state. */
void session_end_all(struct session *session);
