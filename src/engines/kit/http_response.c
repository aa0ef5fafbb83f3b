/* http_response.c - reads HTTP/1.1 responses, strictly. */
#include "http_response.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void refuse(struct http_response *r, const char *flaw)
{
    r->stage = HTTP_BAD;
    r->flaw = flaw;
}

/* ---- The body ---- */

static bool make_room(struct http_response *r, size_t more)
{
    size_t wanted = r->body_len + more + 1, room = r->body_room ? r->body_room : 512;
    if (wanted <= r->body_room)
        return true;

    while (room < wanted)
        room *= 2;
    char *body = realloc(r->body, room);
    if (!body)
        return false;

    r->body = body;
    r->body_room = room;
    return true;
}

static size_t take_body(struct http_response *r, const char *bytes, size_t len)
{
    size_t part = len < r->left ? len : (size_t)r->left;
    if (!make_room(r, part)) {
        refuse(r, "no memory for the body of a response");
        return 0;
    }

    memcpy(r->body + r->body_len, bytes, part);
    r->body_len += part;
    r->body[r->body_len] = '\0';
    r->left -= part;
    if (r->left == 0)
        r->stage = r->stage == HTTP_BODY ? HTTP_WHOLE : HTTP_CHUNK_END;
    return part;
}

/* ---- Lines ---- */

static void read_status(struct http_response *r)
{
    static const char version[] = "HTTP/1.1 ";
    const char *digit = r->text + sizeof version - 1;
    bool good = r->text_len >= sizeof version + 2 &&
                memcmp(r->text, version, sizeof version - 1) == 0 &&
                isdigit((unsigned char)digit[0]) && isdigit((unsigned char)digit[1]) &&
                isdigit((unsigned char)digit[2]) && (digit[3] == ' ' || digit[3] == '\0');
    r->status =
        good ? (unsigned)((digit[0] - '0') * 100 + (digit[1] - '0') * 10 + digit[2] - '0') : 0;

    if (!good)
        refuse(r, "the status line is not one of HTTP/1.1");
    else if (r->status < 200 || r->status > 599)
        refuse(r, "the status is not one of a final response");
    else
        r->stage = HTTP_FIELD;
}

/* Returns the value of a digit; 16 for any other character. */
static unsigned digit_of(char c)
{
    if (isdigit((unsigned char)c))
        return (unsigned)(c - '0');
    return isxdigit((unsigned char)c) ? (unsigned)(tolower((unsigned char)c) - 'a') + 10 : 16;
}

/* Reads a number of that base up to the end of the text. */
static bool read_number(const char *text, unsigned base, uint64_t *number)
{
    *number = 0;
    for (const char *at = text; *at; at++) {
        unsigned digit = digit_of(*at);
        if (digit >= base || at - text > 15)
            return false;
        *number = *number * base + digit;
    }

    return *text != '\0';
}

static void read_length(struct http_response *r, const char *value)
{
    if (r->has_length || r->is_chunked)
        refuse(r, "the length of a response is given twice");
    else if (!read_number(value, 10, &r->left))
        refuse(r, "Content-Length is not a number");
    else if (r->left > r->body_max)
        refuse(r, "a response is too long");

    r->has_length = true;
}

static void read_encoding(struct http_response *r, const char *value)
{
    if (r->has_length || r->is_chunked)
        refuse(r, "the length of a response is given twice");
    else if (strcasecmp(value, "chunked") != 0)
        refuse(r, "Transfer-Encoding is not chunked");
    r->is_chunked = true;
}

static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("!#$%&'*+-.^_`|~", text[i]))
            return false;
    return len > 0;
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return false;
    return true;
}

/* Splits a line at its colon. Returns NULL if it is not a field. */
static char *split_field(struct http_response *r)
{
    char *colon = strchr(r->text, ':');
    if (!colon || !is_token(r->text, (size_t)(colon - r->text)))
        return NULL;

    char *value = colon + 1, *end = r->text + r->text_len;
    *colon = '\0';
    while (*value == ' ' || *value == '\t')
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    return is_printable(value) ? value : NULL;
}

static void read_field(struct http_response *r)
{
    char *value = ++r->fields <= HTTP_FIELDS_MAX ? split_field(r) : NULL;
    if (!value)
        refuse(r, r->fields > HTTP_FIELDS_MAX ? "a response has too many fields"
                                              : "a field of a response is malformed");
    else if (strcasecmp(r->text, "Content-Length") == 0)
        read_length(r, value);
    else if (strcasecmp(r->text, "Transfer-Encoding") == 0)
        read_encoding(r, value);
    else if (strcasecmp(r->text, "Connection") == 0)
        r->closes |= strcasecmp(value, "close") == 0;

    if (r->stage != HTTP_BAD && r->on_field)
        r->on_field(r->ctx, r->text, value);
}

static void end_head(struct http_response *r)
{
    bool has_no_body = r->status == 204 || r->status == 304;
    if (has_no_body && (r->is_chunked || r->left > 0))
        refuse(r, "a response that has no body says that it has one");
    else if (r->is_chunked)
        r->stage = HTTP_CHUNK_LENGTH;
    else if (!r->has_length && !has_no_body)
        refuse(r, "a response does not say how long it is");
    else
        r->stage = r->left > 0 ? HTTP_BODY : HTTP_WHOLE;
}

static void read_chunk_length(struct http_response *r)
{
    if (!read_number(r->text, 16, &r->left))
        refuse(r, "the length of a chunk is not a number");
    else if (r->left > r->body_max - r->body_len)
        refuse(r, "a response is too long");
    else
        r->stage = r->left > 0 ? HTTP_CHUNK : HTTP_TRAILER;
}

static void read_text(struct http_response *r)
{
    switch (r->stage) {
    case HTTP_STATUS:
        read_status(r);
        break;
    case HTTP_FIELD:
        if (r->text_len)
            read_field(r);
        else
            end_head(r);
        break;
    case HTTP_CHUNK_LENGTH:
        read_chunk_length(r);
        break;
    case HTTP_CHUNK_END:
        if (r->text_len)
            refuse(r, "a chunk is longer than it says");
        else
            r->stage = HTTP_CHUNK_LENGTH;
        break;
    default:
        if (r->text_len)
            refuse(r, "a response has a trailer");
        else
            r->stage = HTTP_WHOLE;
    }
}

/* Appends bytes up to the end of the line, or all bytes if no line ends. A CR stays in the text
 * until its LF has arrived. */
static size_t take_text(struct http_response *r, const char *bytes, size_t len)
{
    size_t taken = 0;
    while (taken < len) {
        char byte = bytes[taken++];
        bool after_cr = r->text_len > 0 && r->text[r->text_len - 1] == '\r';
        bool ends = byte == '\n';
        if (byte == '\0' || ends != after_cr) {
            refuse(r, "a line of a response does not end with CR LF");
            return taken;
        }
        if (ends) {
            r->text[--r->text_len] = '\0';
            read_text(r);
            r->text_len = 0;
            return taken;
        }
        if (r->text_len == sizeof r->text - 1) {
            refuse(r, "a line of a response is too long");
            return taken;
        }
        r->text[r->text_len++] = byte;
    }

    return taken;
}

/* ---- The whole ---- */

size_t http_response_take(struct http_response *r, const char *bytes, size_t len)
{
    assert(bytes || len == 0);
    size_t taken = 0;
    while (taken < len && r->stage != HTTP_WHOLE && r->stage != HTTP_BAD) {
        bool in_body = r->stage == HTTP_BODY || r->stage == HTTP_CHUNK;
        taken += in_body ? take_body(r, bytes + taken, len - taken)
                         : take_text(r, bytes + taken, len - taken);
    }

    return taken;
}

void http_response_next(struct http_response *r)
{
    r->stage = HTTP_STATUS;
    r->status = 0;
    r->closes = r->has_length = r->is_chunked = false;
    r->flaw = NULL;
    r->text_len = r->body_len = 0;
    r->left = 0;
    r->fields = 0;
    if (r->body)
        r->body[0] = '\0';
}

void http_response_free(struct http_response *r)
{
    free(r->body);
    r->body = NULL;
    r->body_len = r->body_room = 0;
}
