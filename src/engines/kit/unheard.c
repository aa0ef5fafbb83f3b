/* unheard.c - the reply to a LEAVE that follows an ACQUIRE without an answer. */
#include "unheard.h"

#include <assert.h>
#include <stdio.h>

struct engine_reply unheard_reply(char text[UNHEARD_TEXT_MAX], const char *where, nanos since,
                                  nanos now)
{
    assert(now >= since);
    snprintf(text, UNHEARD_TEXT_MAX, "%.120s: no answer within %lld ms", where,
             (long long)((now - since) / NANOS_OF_MS(1)));
    return (struct engine_reply){
        .kind = REPLY_RELEASED, .status = HF_UNAVAILABLE, .text = text, .retry_at = TIME_NEVER};
}
