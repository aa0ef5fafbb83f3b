/* name.c - checks that a text is valid UTF-8 without control characters. */
#include "name.h"

#include "error.h"

/* The bytes that may begin a character, and the second bytes that may follow. Further bytes are
 * 80..BF. The table leaves out overlong forms, surrogates and numbers above U+10FFFF. */
static const struct lead {
    uint8_t first, last;
    uint8_t second_min, second_max;
    uint8_t length;
} leads[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

static const struct lead *find_lead(uint8_t byte)
{
    for (size_t i = 0; i < sizeof leads / sizeof leads[0]; i++)
        if (byte >= leads[i].first && byte <= leads[i].last)
            return &leads[i];
    return NULL;
}

/* Returns the length of the multi-byte character at `s`; 0 if it is not valid. */
static size_t measure(const uint8_t *s, size_t left)
{
    const struct lead *lead = find_lead(s[0]);
    if (!lead || left < lead->length)
        return 0;
    if (s[1] < lead->second_min || s[1] > lead->second_max)
        return 0;

    for (size_t i = 2; i < lead->length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return lead->length;
}

const char *name_flaw(const char *text, size_t len, size_t *place)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t step;
    if (name_plain(text, len))
        return NULL;

    for (size_t at = 0; at < len; at += step) {
        *place = at;
        step = s[at] < 0x80 ? 1 : measure(s + at, len - at);
        if (step == 0)
            return "not valid UTF-8";
        bool c0_or_del = s[at] < 0x20 || s[at] == 0x7f;
        bool c1 = s[at] == 0xc2 && s[at + 1] < 0xa0;
        if (c0_or_del || c1)
            return "a control character";
    }

    return NULL;
}

hf_status name_check(const char *field, const char *text, size_t len, size_t min, size_t max)
{
    if (!text)
        return error_set(HF_INVALID, "%s: missing", field);
    if (len < min || len > max)
        return error_set(HF_INVALID, "%s: %zu bytes, but %zu to %zu are allowed", field, len, min,
                         max);

    size_t place;
    const char *flaw = name_flaw(text, len, &place);
    if (flaw)
        return error_set(HF_INVALID, "%s: byte %zu (0x%02x) is %s", field, place + 1,
                         (unsigned)(uint8_t)text[place], flaw);
    return HF_OK;
}
