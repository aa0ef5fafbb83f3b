/* json_read.c - a JSON reader that keeps one text and skips the rest. Every function advances
 * the reader and returns whether its part was well formed. The depth is bounded. */
#include "json_read.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 32

struct reader {
    const char *at;
    int depth;
};

/* Receives a text; `bad` is set if the text does not fit or has a NUL. */
struct sink {
    char *text;
    size_t size, len;
    bool bad;
};

static bool skip_value(struct reader *r);

static void skip_blanks(struct reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

static bool take(struct reader *r, char wanted)
{
    skip_blanks(r);
    if (*r->at != wanted)
        return false;
    r->at++;
    return true;
}

static void put(struct sink *sink, char c)
{
    if (!sink)
        return;
    if (c == 0 || sink->len + 1 >= sink->size)
        sink->bad = true;
    else
        sink->text[sink->len++] = c;
}

static void put_code(struct sink *sink, uint32_t code)
{
    if (code < 0x80) {
        put(sink, (char)code);
    } else if (code < 0x800) {
        put(sink, (char)(0xc0 | code >> 6));
        put(sink, (char)(0x80 | (code & 0x3f)));
    } else {
        if (code < 0x10000) {
            put(sink, (char)(0xe0 | code >> 12));
        } else {
            put(sink, (char)(0xf0 | code >> 18));
            put(sink, (char)(0x80 | (code >> 12 & 0x3f)));
        }
        put(sink, (char)(0x80 | (code >> 6 & 0x3f)));
        put(sink, (char)(0x80 | (code & 0x3f)));
    }
}

static bool read_four_digits(struct reader *r, uint32_t *code)
{
    char digits[5] = {0};

    if (strspn(r->at, "0123456789abcdefABCDEF") < 4)
        return false;
    memcpy(digits, r->at, 4);
    *code = (uint32_t)strtoul(digits, NULL, 16);
    r->at += 4;
    return true;
}

static bool is_low_surrogate(uint32_t code)
{
    return code >= 0xdc00 && code <= 0xdfff;
}

/* Reads the digits after \u. A character beyond the first plane is a pair of surrogates. */
static bool read_code(struct reader *r, struct sink *sink)
{
    uint32_t code, low;

    if (!read_four_digits(r, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->at[0] != '\\' || r->at[1] != 'u')
            return false;
        r->at += 2;
        bool has_digits = read_four_digits(r, &low);
        if (!has_digits || !is_low_surrogate(low))
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (is_low_surrogate(code)) {
        return false;
    }

    put_code(sink, code);
    return true;
}

static bool read_escape(struct reader *r, struct sink *sink)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char letter = *r->at;

    if (letter == 0)
        return false;
    r->at++;
    if (letter == 'u')
        return read_code(r, sink);
    const char *found = strchr(letters, letter);
    if (found)
        put(sink, meanings[found - letters]);
    return found != NULL;
}

/* Reads a text with its quotes; `sink` may be NULL. */
static bool read_text(struct reader *r, struct sink *sink)
{
    if (!take(r, '"'))
        return false;
    while (*r->at != '"') {
        char c = *r->at;
        if ((unsigned char)c < 0x20)
            return false;
        r->at++;
        if (c != '\\')
            put(sink, c);
        else if (!read_escape(r, sink))
            return false;
    }

    r->at++;
    return true;
}

static bool skip_word(struct reader *r)
{
    size_t len = strspn(r->at, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
    r->at += len;
    return len > 0;
}

/* Skips the inside of an array or object up to its closing bracket. */
static bool skip_members(struct reader *r, char closing)
{
    if (take(r, closing))
        return true;
    do {
        bool has_key = closing != '}' || (read_text(r, NULL) && take(r, ':'));
        if (!has_key || !skip_value(r))
            return false;
    } while (take(r, ','));
    return take(r, closing);
}

static bool skip_value(struct reader *r)
{
    skip_blanks(r);
    if (*r->at == '"')
        return read_text(r, NULL);
    if (*r->at != '{' && *r->at != '[')
        return skip_word(r);
    if (++r->depth > DEEPEST)
        return false;
    char closing = *r->at++ == '{' ? '}' : ']';
    bool fine = skip_members(r, closing);
    r->depth--;
    return fine;
}

bool json_find_text(const char *json, const char *key, char *value, size_t size)
{
    struct reader r = {.at = json};
    bool found = false;

    if (!take(&r, '{'))
        return false;
    do {
        char name[32];
        struct sink name_sink = {.text = name, .size = sizeof name};
        struct sink sink = {.text = value, .size = size};
        if (!read_text(&r, &name_sink) || !take(&r, ':'))
            return false;
        name[name_sink.len] = 0;
        skip_blanks(&r);
        bool ours = !name_sink.bad && strcmp(name, key) == 0, is_text = *r.at == '"';
        if (!(ours && is_text ? read_text(&r, &sink) : skip_value(&r)))
            return false;
        if (ours && is_text)
            value[sink.len] = 0;
        if (ours)
            found = is_text && !sink.bad;
    } while (take(&r, ','));

    if (!take(&r, '}'))
        return false;

    skip_blanks(&r);
    return found && *r.at == 0;
}
