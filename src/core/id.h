/* id.h - ids made from texts that callers give: an owner's name, an attempt's key. */
#pragma once
#include "message.h"

/* The same text with the same salt gives the same id, on every machine. Not a secret unless the text is one. */
void hf_id_of_text(struct hf_id *id, char salt, const char *text, size_t len);
