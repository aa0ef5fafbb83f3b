/* session.c - liveness that many holds share. */
#include "session.h"

#include <assert.h>

/* ---- Time ---- */

void session_begin(struct session *session, nanos asked_at, nanos length)
{
    assert(length > 0);
    session->state = SESSION_ALIVE;
    session->length = length;
    session->proven_at = asked_at;
    session->kept_at = 0;
}

void session_keep(struct session *session, nanos asked_at, nanos length)
{
    assert(length > 0);
    session->kept_at = asked_at;
    session->kept_length = length;
}

void session_prove(struct session *session)
{
    if (session->kept_at <= session->proven_at)
        return;
    session->proven_at = session->kept_at;
    session->length = session->kept_length;
}

void session_drop_kept(struct session *session)
{
    session->kept_at = 0;
}

/* Fresh means that more than a third of the length is left: a claim keeps the same share of its ttl
 * as reserve for a renewal that fails (timing.c). */
bool session_is_fresh(const struct session *session, nanos now)
{
    return session->state == SESSION_ALIVE && session_end(session) - now > session->length / 3;
}

bool session_is_kept_since(const struct session *session, nanos since)
{
    bool is_proven = session->proven_at && session->proven_at >= since;
    bool is_kept = session->kept_at && session->kept_at >= since;
    return is_proven || is_kept;
}

nanos session_renewal_due(const struct session *session)
{
    if (session->state != SESSION_ALIVE || !session->waiters)
        return TIME_NEVER;
    nanos last = session->kept_at > session->proven_at ? session->kept_at : session->proven_at;
    return last + session->length / 3;
}

void session_end_all(struct session *session)
{
    if (session->state == SESSION_ALIVE)
        session->state = SESSION_NONE;
    session->proven_at = session->kept_at = 0;
}

/* ---- Members ---- */

static void detach(struct session_member *member)
{
    struct session *session = member->session;
    assert(session->count > 0 && *member->link == member);
    session->count--;
    session->waiters -= member->waits;

    *member->link = member->next;
    if (member->next)
        member->next->link = member->link;
    member->session = NULL;
}

void session_attach(struct session_member *member, struct session *session)
{
    if (member->session == session)
        return;
    bool waits = member->waits;
    if (member->session)
        detach(member);
    member->waits = waits && session;
    if (!session)
        return;

    member->session = session;
    member->link = &session->members;
    member->next = session->members;
    if (member->next)
        member->next->link = &member->next;
    session->members = member;
    session->count++;
    session->waiters += member->waits;
}

void session_set_waits(struct session_member *member, bool waits)
{
    if (!member->session || member->waits == waits)
        return;
    member->waits = waits;
    member->session->waiters += waits ? 1 : UINT32_MAX;
    assert(member->session->waiters <= member->session->count);
}
