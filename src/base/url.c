/* url.c - splits engine URLs and decodes percent-encoding. */
#include "url.h"

#include <assert.h>
#include <string.h>

#include "error.h"
#include "name.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool may_be_in_scheme(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

/* Returns the length of the scheme at the start of text; 0: none. */
static size_t measure_scheme(const char *text)
{
    size_t len = 0;
    if (!is_letter(text[0]))
        return 0;
    while (may_be_in_scheme(text[len]))
        len++;
    return text[len] == ':' ? len : 0;
}

static hf_status check_characters(const char *text, size_t len)
{
    size_t place;
    const char *flaw = name_flaw(text, len, &place);
    if (flaw)
        return error_set(HF_CONFIG, "the URL: byte %zu (0x%02x) is %s; write it percent-encoded",
                         place + 1, (unsigned)(uint8_t)text[place], flaw);

    place = strcspn(text, " #");
    if (place < len)
        return error_set(HF_CONFIG, "the URL: byte %zu is '%c'; write it %%%02X", place + 1,
                         text[place], (unsigned)text[place]);
    return HF_OK;
}

static hf_status refuse_without_scheme(const char *text)
{
    /* If there is an @, the text in front of it may be a password, so nothing is shown. */
    if (strchr(text, '@'))
        return error_set(HF_CONFIG,
                         "the URL does not begin with a scheme, such as local: or redis://");

    return error_set(HF_CONFIG,
                     "the URL \"%.80s\" does not begin with a scheme, such as local: or redis://",
                     text);
}

hf_status url_parse(struct url *url, const char *text)
{
    size_t len = strlen(text);
    if (len >= URL_MAX)
        return error_set(HF_CONFIG, "the URL has %zu bytes, but at most %d are allowed", len,
                         URL_MAX - 1);

    hf_status status = check_characters(text, len);
    if (status != HF_OK)
        return status;

    size_t scheme_len = measure_scheme(text);
    if (scheme_len == 0)
        return refuse_without_scheme(text);

    /* Shows only the part in front of the colon: the rest may be a password (user:password@host).
     */
    if (scheme_len >= sizeof url->scheme)
        return error_set(HF_CONFIG, "the URL: \"%.*s\" is too long for a scheme",
                         (int)(scheme_len < 80 ? scheme_len : 80), text);

    for (size_t i = 0; i < scheme_len; i++)
        url->scheme[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
    url->scheme[scheme_len] = '\0';
    const char *body = text + scheme_len + 1;
    size_t body_len = strcspn(body, "?");
    memcpy(url->body, body, body_len);
    url->body[body_len] = '\0';
    const char *query = body[body_len] == '?' ? body + body_len + 1 : "";
    memcpy(url->query, query, strlen(query) + 1);
    return HF_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Returns the byte of a percent escape; -1 if no two hexadecimal digits follow. */
static int read_escape(const char *text, size_t left)
{
    int high = left > 2 ? hex_digit(text[1]) : -1;
    int low = high >= 0 ? hex_digit(text[2]) : -1;
    return low < 0 ? -1 : high * 16 + low;
}

static hf_status decode(const char *text, size_t len, char *out, size_t size)
{
    size_t used = 0, step;
    for (size_t at = 0; at < len; at += step) {
        int byte = (uint8_t)text[at];
        step = 1;
        if (byte == '%') {
            byte = read_escape(text + at, len - at);
            step = 3;
        }
        if (byte < 0)
            return error_set(HF_CONFIG, "byte %zu is a %% without two hexadecimal digits", at + 1);
        if (byte == 0)
            return error_set(HF_CONFIG, "byte %zu is an escaped NUL", at + 1);
        if (used + 1 >= size)
            return error_set(HF_CONFIG, "longer than %zu bytes", size - 1);
        out[used++] = (char)byte;
    }

    out[used] = '\0';
    return HF_OK;
}

hf_status url_decode(const char *text, size_t len, char *out, size_t size)
{
    assert(size > 0);
    hf_status status = decode(text, len, out, size);
    if (status != HF_OK)
        out[0] = '\0';
    return status;
}
