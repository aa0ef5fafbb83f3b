/* fuzz_url.c - a URL's parts are those of its text, decoding keeps within its room, and no password
 * is shown. */
#include "fuzz.h"

#include "base/error.h"
#include "base/name.h"
#include "base/url.h"

#define PASSWORD "hunter2-and-more"

const char *const fuzz_seeds[] = {"local:",
                                  "local:/run/locks?mode=0660",
                                  "redis://user:pass@host:6379/0?ttl=10s&wake=poll",
                                  "rediss://h%C3%A4us:1/",
                                  "redis+unix:///tmp/s.sock",
                                  "redlock://a:1,b:2,c:3?max_ttl=60s",
                                  "%41%42%c3%a9",
                                  "a%",
                                  "%0",
                                  "%00",
                                  NULL};
unsigned long fuzz_accepted, fuzz_refused;

static void check_parts(const struct url *url, const char *text)
{
    size_t scheme = strlen(url->scheme), body = strlen(url->body);
    MUST(scheme > 0 && scheme < sizeof url->scheme);
    MUST(strncasecmp(text, url->scheme, scheme) == 0 && text[scheme] == ':');
    MUST(strspn(url->scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == scheme);
    MUST(strncmp(text + scheme + 1, url->body, body) == 0 && !strchr(url->body, '?'));
    const char *rest = text + scheme + 1 + body;
    MUST(*rest == '\0' || *rest == '?');
    MUST(strcmp(*rest ? rest + 1 : "", url->query) == 0);
}

static void check_parse(const char *text)
{
    struct url url;
    size_t place;
    memset(&url, 0xaa, sizeof url);
    if (url_parse(&url, text) == HF_OK) {
        check_parts(&url, text);
        fuzz_accepted++;
        return;
    }
    MUST(strstr(error_text(), "the URL"));
    MUST(!name_flaw(error_text(), strlen(error_text()), &place));
    fuzz_refused++;
}

/* A password between two halves of the input that is not in them must not be in the words either.
 */
static void check_secret(const char *text)
{
    struct url url;
    size_t half = strlen(text) / 2, size = strlen(text) + sizeof ":" PASSWORD "@";
    if (strstr(text, PASSWORD))
        return;
    char *with = malloc(size);
    MUST(with);
    snprintf(with, size, "%.*s:%s@%s", (int)half, text, PASSWORD, text + half);
    if (url_parse(&url, with) != HF_OK)
        MUST(!strstr(error_text(), PASSWORD));
    free(with);
}

/* Decoding by another way: sscanf where an escape stands. SIZE_MAX: not decodable. */
static size_t decode_slowly(const char *text, size_t len, char *out)
{
    size_t used = 0;
    for (size_t at = 0; at < len; at++) {
        unsigned byte = (uint8_t)text[at];
        if (byte == '%') {
            char digits[3] = {at + 1 < len ? text[at + 1] : 0, at + 2 < len ? text[at + 2] : 0, 0};
            if (strspn(digits, "0123456789abcdefABCDEF") != 2 || sscanf(digits, "%2x", &byte) != 1)
                return SIZE_MAX;
            at += 2;
        }
        if (byte == 0)
            return SIZE_MAX;
        out[used++] = (char)byte;
    }
    return used;
}

static void check_room(const char *text, size_t len, const char *expected, size_t expected_len,
                       size_t size)
{
    char *out = malloc(size);
    MUST(out);
    hf_status status = url_decode(text, len, out, size);
    MUST(status == (expected_len < size ? HF_OK : HF_CONFIG));
    MUST(strlen(out) == (status == HF_OK ? expected_len : 0));
    MUST(memcmp(out, expected, strlen(out)) == 0);
    free(out);
}

static void check_decode(const char *text, size_t len)
{
    char *expected = calloc(len + 1, 1);
    MUST(expected);
    size_t expected_len = decode_slowly(text, len, expected);
    /* The sizes around the one that just fits; an undecodable text fits nowhere. */
    size_t fits = expected_len == SIZE_MAX ? len + 1 : expected_len + 1;
    check_room(text, len, expected, expected_len, 1);
    check_room(text, len, expected, expected_len, fits);
    check_room(text, len, expected, expected_len, fits + 1);
    if (fits > 1)
        check_room(text, len, expected, expected_len, fits - 1);
    free(expected);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    check_parse(text);
    check_secret(text);
    check_decode(size ? (const char *)data : "", size);
    free(text);
    return 0;
}
