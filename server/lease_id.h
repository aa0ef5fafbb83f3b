/* lease_id.h - the id of a lease in HTTP: the time of its grant and the library's exported text,
 * in characters that a URL can carry. Every instance can read it. It is a secret: anybody who
 * has it can release the lease. */
#pragma once
#include "holdfast.h"

enum { LEASE_ID_MAX = 1536, LEASE_HEX = 32 };

/* The fields of the library's exported text. */
struct lease_facts {
    char attempt[LEASE_HEX + 1], owner[LEASE_HEX + 1];
    unsigned kind, units, capacity;
    int64_t ttl_ms;
    uint64_t token;
    const char *name; /* points into the text */
};

/* Reads an exported text. Returns false if `exported` is none. */
bool lease_text_read(const char *exported, struct lease_facts *facts);

/* Makes the id of a lease. granted_ms: milliseconds since 1970, or 0 if unknown. */
bool lease_id_print(const char *exported, int64_t granted_ms, char id[LEASE_ID_MAX]);

/* Reads an id. Returns false if it is not the id of a lease. */
bool lease_id_read(const char *id, size_t len, char exported[HF_EXPORT_MAX], int64_t *granted_ms);

/* Bytes as base64url, ended by a NUL. Both return false if the buffer is too small or the text
 * is not base64url. */
bool base64url_print(const void *data, size_t len, char *text, size_t size);
bool base64url_read(const char *text, size_t len, unsigned char *data, size_t size, size_t *read);
