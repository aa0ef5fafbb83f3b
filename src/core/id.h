/* id.h - makes ids from texts that callers give: an owner's name, an attempt's key. */
#pragma once
#include "engine_protocol.h"

/* Makes an id. The same text with the same salt gives the same id on every machine, so the id is
 * secret only if the text is. */
void id_of_text(struct id *id, char salt, const char *text, size_t len);
