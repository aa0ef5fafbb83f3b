/* unheard.h - the reply to a LEAVE behind an ACQUIRE that no server answered.
 *
 * Without its status the wait would be reported as timed out, which says that others hold the
 * lock. */
#pragma once
#include "core/engine_protocol.h"

#define UNHEARD_TEXT_MAX 200

/* Returns RELEASED with the reason why nothing is held. `where`: the server; `since`: when the
 * ACQUIRE was submitted. The reply points to `text`. */
struct engine_reply unheard_reply(char text[UNHEARD_TEXT_MAX], const char *where, nanos since,
                                  nanos now);
