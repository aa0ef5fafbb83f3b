/* session_list.c - the sessions of a client. */
#include "session_list.h"

#include <assert.h>
#include <stdlib.h>

static bool is_for(const struct session *session, int64_t ttl, const struct id *attempt)
{
    bool is_private = attempt != NULL;
    return session->ttl == ttl && session->is_private == is_private &&
           (!attempt || id_same(&session->attempt, attempt));
}

void *session_list_find_or_make(struct session **list, int64_t ttl, const struct id *attempt,
                                size_t size)
{
    assert(ttl > 0 && size >= sizeof(struct session));
    for (struct session *s = *list; s; s = s->next)
        if (is_for(s, ttl, attempt))
            return s;

    struct session *s = calloc(1, size);
    if (!s)
        return NULL;

    s->ttl = ttl;
    s->is_private = attempt;
    if (attempt)
        s->attempt = *attempt;
    s->next = *list;
    *list = s;
    return s;
}

void session_list_drop_unused(struct session **list,
                              bool (*is_in_flight)(void *ctx, const struct session *session),
                              void *ctx)
{
    for (struct session **at = list; *at;) {
        struct session *s = *at;
        bool is_unused = s->is_private && !s->count && !is_in_flight(ctx, s);
        if (is_unused) {
            *at = s->next;
            free(s);
        } else {
            at = &s->next;
        }
    }
}

nanos session_list_renew(struct session *list, nanos now,
                         void (*renew)(void *ctx, struct session *session, nanos now), void *ctx)
{
    nanos next = TIME_NEVER;
    for (struct session *s = list; s; s = s->next) {
        nanos due = session_renewal_due(s);
        if (due == TIME_NEVER)
            continue;
        nanos again = now >= due ? now + s->length / 3 : due;
        if (now >= due)
            renew(ctx, s, now);
        next = again < next ? again : next;
    }
    return next;
}

void session_list_free(struct session **list)
{
    while (*list) {
        struct session *s = *list;
        assert(!s->count);
        *list = s->next;
        free(s);
    }
}
