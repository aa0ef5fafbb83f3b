/* lease_id.c - base64url, and the text that it encodes. */
#include "lease_id.h"
#include "flat_json.h"
#include <openssl/evp.h>
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
    size_t len = digits_print(granted_ms > 0 ? (uint64_t)granted_ms : 0, text);
    size_t rest = strlen(exported);

    if (rest >= HF_EXPORT_MAX)
        return false;

    text[len++] = ' ';
    memcpy(text + len, exported, rest);
    bool fine = base64url_print(text, len + rest, id, LEASE_ID_MAX);
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

/* Copies `len` digits of an id and the blank behind them. Returns the rest of the text, or NULL. */
static const char *read_hex(const char *at, char hex[LEASE_HEX + 1])
{
    size_t len = at ? strspn(at, "0123456789abcdef") : 0;

    if (len != LEASE_HEX || at[len] != ' ')
        return NULL;

    memcpy(hex, at, len);
    hex[len] = 0;
    return at + len + 1;
}

/* Reads a number of up to `most` digits and the blank behind it. */
static const char *read_number(const char *at, size_t most, uint64_t *number)
{
    size_t len = 0;

    *number = 0;
    while (at && at[len] >= '0' && at[len] <= '9' && len < most)
        *number = *number * 10 + (uint64_t)(at[len++] - '0');
    return len > 0 && at[len] == ' ' ? at + len + 1 : NULL;
}

/* Written by hand: sscanf took a twelfth of what a grant and a release cost. */
bool lease_text_read(const char *exported, struct lease_facts *facts)
{
    uint64_t kind, units, capacity, ttl_ms;

    *facts = (struct lease_facts){.name = NULL};
    const char *at = strncmp(exported, "hf1 ", 4) == 0 ? exported + 4 : NULL;
    at = read_hex(at, facts->attempt);
    at = read_hex(at, facts->owner);
    at = read_number(at, 2, &kind);
    at = read_number(at, 9, &units);
    at = read_number(at, 9, &capacity);
    at = read_number(at, 18, &ttl_ms);
    at = read_number(at && *at == '+' ? at + 1 : at, 20, &facts->token);
    if (!at)
        return false;

    facts->kind = (unsigned)kind;
    facts->units = (unsigned)units;
    facts->capacity = (unsigned)capacity;
    facts->ttl_ms = (int64_t)ttl_ms;
    facts->name = at;
    return true;
}
