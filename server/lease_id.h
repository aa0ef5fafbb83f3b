/* lease_id.h - what stands for a lease in HTTP: the library's own text of a detached hold, in letters that a URL can
 * carry, so that every instance can read it. It is a secret: who has it can release. */
#pragma once
#include "holdfast.h"

enum { LEASE_ID_MAX = 1536 };

bool lease_id_print(const char *exported, char id[LEASE_ID_MAX]);

/* False: it is no such id. */
bool lease_id_read(const char *id, size_t len, char exported[HF_EXPORT_MAX]);
