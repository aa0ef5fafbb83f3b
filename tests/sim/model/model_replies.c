/* model_replies.c - answers as RESP2, and the reading of words. */
#include "model_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bytes ---- */

/* Room for that much more behind what is there. */
static char *buffer_more(struct buffer *buffer, size_t len)
{
    if (buffer->room - buffer->len < len) {
        buffer->room = 2 * (buffer->len + len) + 256;
        buffer->bytes = realloc(buffer->bytes, buffer->room);
        if (!buffer->bytes)
            abort();
    }
    return buffer->bytes + buffer->len;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t len)
{
    char *to = buffer_more(buffer, len);
    if (len)
        memcpy(to, bytes, len);
    buffer->len += len;
}

void buffer_cut(struct buffer *buffer, size_t len)
{
    buffer->len -= len;
    if (buffer->len)
        memmove(buffer->bytes, buffer->bytes + len, buffer->len);
}

bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.bytes, b.bytes, a.len) == 0);
}

bool slice_is(struct slice a, const char *word)
{
    for (size_t i = 0; i < a.len; i++)
        if (tolower((unsigned char)a.bytes[i]) != word[i])
            return false;
    return word[a.len] == 0;
}

/* As strictly as the server: no sign of plus, no zero in front, no space. */
bool slice_integer(struct slice text, int64_t *value)
{
    bool negative = text.len && text.bytes[0] == '-';
    size_t i = negative;
    if (i == text.len || text.len > 20 || (text.bytes[i] == '0' && text.len > 1))
        return false;
    uint64_t sum = 0;
    for (; i < text.len; i++) {
        unsigned digit = (unsigned char)text.bytes[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, digit, &sum))
            return false;
    }
    if (sum > (uint64_t)INT64_MAX + negative)
        return false;
    *value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return true;
}

bool slice_double(struct slice text, double *value)
{
    char copy[128];
    if (!text.len || text.len >= sizeof copy || isspace((unsigned char)text.bytes[0]))
        return false;
    memcpy(copy, text.bytes, text.len);
    copy[text.len] = 0;
    char *end;
    errno = 0;
    *value = strtod(copy, &end);
    return end == copy + text.len && !isnan(*value) && !(errno == ERANGE && isinf(*value));
}

bool word_integer(struct call *call, unsigned word, int64_t *value)
{
    if (slice_integer(call->words[word], value))
        return true;
    reply_error(call, NOT_AN_INTEGER);
    return false;
}

/* ---- Answers ---- */

static void add(struct call *call, const char *text)
{
    buffer_add(call->out, text, strlen(text));
}

size_t integer_print(char *into, int64_t value)
{
    enum { MOST = 20 };
    char digits[2 * MOST] = {0}, *first = digits + MOST;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        *--first = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        *into++ = '-';
    memcpy(into, first, MOST); /* that many are moved faster than as many as there are */
    return (size_t)(digits + MOST - first) + (value < 0);
}

static void add_number(struct call *call, char mark, int64_t value)
{
    char *line = buffer_more(call->out, 24);
    line[0] = mark;
    size_t len = 1 + integer_print(line + 1, value);
    line[len++] = '\r';
    line[len++] = '\n';
    call->out->len += len;
}

void reply_status(struct call *call, const char *text)
{
    add(call, "+");
    add(call, text);
    add(call, "\r\n");
}

/* A line is a line: breaks within the text become spaces. */
void reply_error(struct call *call, const char *text)
{
    add(call, "-");
    size_t from = call->out->len;
    add(call, text);
    for (char *c = call->out->bytes + from; c < call->out->bytes + call->out->len; c++)
        if (*c == '\r' || *c == '\n')
            *c = ' ';
    add(call, "\r\n");
}

void reply_errorf(struct call *call, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    reply_error(call, text);
}

void reply_integer(struct call *call, int64_t value)
{
    add_number(call, ':', value);
}

void reply_bulk(struct call *call, struct slice bytes)
{
    add_number(call, '$', (int64_t)bytes.len);
    char *to = buffer_more(call->out, bytes.len + 2);
    if (bytes.len)
        memcpy(to, bytes.bytes, bytes.len);
    memcpy(to + bytes.len, "\r\n", 2);
    call->out->len += bytes.len + 2;
}

void reply_text(struct call *call, struct text text)
{
    reply_bulk(call, store_text(&call->model->store, text));
}

void reply_word(struct call *call, const char *word)
{
    reply_bulk(call, (struct slice){word, strlen(word)});
}

bool is_whole(double value)
{
    return fabs(value) < 0x1p53 && value == (double)(int64_t)value &&
           !(value == 0 && signbit(value));
}

/* As printf("%.17g") does it; whole numbers, which nearly all are, without its cost. */
size_t double_print(char *into, double value)
{
    return is_whole(value) ? integer_print(into, (int64_t)value)
                           : (size_t)sprintf(into, "%.17g", value);
}

void reply_double(struct call *call, double value)
{
    char text[DOUBLE_TEXT];
    reply_bulk(call, (struct slice){text, double_print(text, value)});
}

void reply_null(struct call *call)
{
    add(call, "$-1\r\n");
}

void reply_null_array(struct call *call)
{
    add(call, "*-1\r\n");
}

void reply_array(struct call *call, size_t count)
{
    add_number(call, '*', (int64_t)count);
}
