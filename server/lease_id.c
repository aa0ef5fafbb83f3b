/* lease_id.c - base64url, and the text that it encodes. */
#include "lease_id.h"
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_TEXT_MAX (HF_EXPORT_MAX + 24)

/* ---- base64url ---- */

/* base64url writes - and _ where base64 writes + and /. */
static char to_url_alphabet(char c)
{
    if (c == '+')
        return '-';
    return c == '/' ? '_' : c;
}

static char from_url_alphabet(char c)
{
    if (c == '-')
        return '+';
    return c == '_' ? '/' : c;
}

bool base64url_print(const void *data, size_t len, char *text, size_t size)
{
    if (len * 4 / 3 + 8 > size)
        return false;

    int printed = EVP_EncodeBlock((unsigned char *)text, data, (int)len);
    while (printed > 0 && text[printed - 1] == '=')
        text[--printed] = 0;
    for (char *c = text; *c; c++)
        *c = to_url_alphabet(*c);

    return true;
}

/* Converts to the alphabet of base64 and pads to groups of four, as OpenSSL expects. */
static size_t to_base64(const char *id, size_t len, char text[LEASE_ID_MAX + 4])
{
    for (size_t i = 0; i < len; i++) {
        char c = id[i];
        bool fits = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_';
        if (!fits)
            return 0;
        text[i] = from_url_alphabet(c);
    }

    while (len % 4 != 0)
        text[len++] = '=';
    return len;
}

bool base64url_read(const char *text, size_t len, unsigned char *data, size_t size, size_t *read)
{
    char padded[LEASE_ID_MAX + 4];
    unsigned char plain[LEASE_ID_MAX + 4];

    if (len >= LEASE_ID_MAX || len % 4 == 1)
        return false;

    size_t all = to_base64(text, len, padded);
    int decoded = all > 0 ? EVP_DecodeBlock(plain, (unsigned char *)padded, (int)all) : -1;
    if (decoded < (int)(all - len) || (size_t)decoded - (all - len) > size)
        return false;

    *read = (size_t)decoded - (all - len);
    memcpy(data, plain, *read);
    explicit_bzero(plain, sizeof plain);

    return true;
}

/* ---- Ids ---- */

bool lease_id_print(const char *exported, int64_t granted_ms, char id[LEASE_ID_MAX])
{
    char text[ID_TEXT_MAX];
    int len = snprintf(text, sizeof text, "%" PRId64 " %s", granted_ms, exported);
    bool fine = len > 0 && (size_t)len < sizeof text &&
                base64url_print(text, (size_t)len, id, LEASE_ID_MAX);

    explicit_bzero(text, sizeof text);
    return fine;
}

bool lease_id_read(const char *id, size_t len, char exported[HF_EXPORT_MAX], int64_t *granted_ms)
{
    char text[ID_TEXT_MAX], *rest;
    size_t size;

    bool is_malformed = len < 8 ||
                        !base64url_read(id, len, (unsigned char *)text, sizeof text - 1, &size) ||
                        memchr(text, 0, size);
    if (is_malformed)
        return false;

    text[size] = 0;
    /* 0 for ids of older versions, which have no time */
    *granted_ms = strtoll(text, &rest, 10);
    *granted_ms = *granted_ms > 0 ? *granted_ms : 0;
    rest += *rest == ' ';
    bool fine = strlen(rest) < HF_EXPORT_MAX;
    if (fine)
        strcpy(exported, rest);
    explicit_bzero(text, sizeof text);

    return fine;
}

bool lease_text_read(const char *exported, struct lease_facts *facts)
{
    int name_at = 0;

    *facts = (struct lease_facts){.name = NULL};
    int fields =
        sscanf(exported, "hf1 %32[0-9a-f] %32[0-9a-f] %2u %9u %9u %18" SCNd64 " %21" SCNu64 "%n",
               facts->attempt, facts->owner, &facts->kind, &facts->units, &facts->capacity,
               &facts->ttl_ms, &facts->token, &name_at);
    facts->name = exported + name_at + (exported[name_at] == ' ');

    return fields == 7 && name_at > 0 && exported[name_at] == ' ' &&
           strlen(facts->attempt) == LEASE_HEX && strlen(facts->owner) == LEASE_HEX;
}
