/* lease_id.c - base64url. */
#include "lease_id.h"
#include <openssl/evp.h>
#include <string.h>

bool lease_id_print(const char *exported, char id[LEASE_ID_MAX])
{
    size_t len = strlen(exported);
    if (len * 4 / 3 + 8 > LEASE_ID_MAX)
        return false;
    int printed = EVP_EncodeBlock((unsigned char *)id, (const unsigned char *)exported, (int)len);
    while (printed > 0 && id[printed - 1] == '=')
        id[--printed] = 0;
    for (char *c = id; *c; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    return true;
}

/* OpenSSL wants whole groups of four, in the other alphabet. */
static size_t to_base64(const char *id, size_t len, char text[LEASE_ID_MAX + 4])
{
    for (size_t i = 0; i < len; i++) {
        char c = id[i];
        bool fits = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
        if (!fits)
            return 0;
        text[i] = c == '-' ? '+' : c == '_' ? '/' : c;
    }
    while (len % 4 != 0)
        text[len++] = '=';
    return len;
}

bool lease_id_read(const char *id, size_t len, char exported[HF_EXPORT_MAX])
{
    char text[LEASE_ID_MAX + 4];
    unsigned char plain[LEASE_ID_MAX + 4];
    if (len < 8 || len >= LEASE_ID_MAX || len % 4 == 1)
        return false;
    size_t padded = to_base64(id, len, text);
    int decoded = padded > 0 ? EVP_DecodeBlock(plain, (unsigned char *)text, (int)padded) : -1;
    if (decoded < (int)(padded - len))
        return false;
    size_t size = (size_t)decoded - (padded - len);
    if (size >= HF_EXPORT_MAX || memchr(plain, 0, size))
        return false;
    memcpy(exported, plain, size);
    exported[size] = 0;
    explicit_bzero(plain, sizeof plain);
    return true;
}
