/* unheard.h - the reply to a LEAVE that follows an ACQUIRE without an answer.
 *
 * The reply has the status of the failure. Otherwise the wait would be reported as timed out, which
 * means that others hold the lock. */
#pragma once
#include "core/engine_protocol.h"

#define UNHEARD_TEXT_MAX 200

/* Returns RELEASED with the reason why nothing is held. `where`: the server; `since`: when the
 * ACQUIRE was submitted. The reply points to `text`. */
struct engine_reply unheard_reply(char text[UNHEARD_TEXT_MAX], const char *where, nanos since,
                                  nanos now);
