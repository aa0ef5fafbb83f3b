/* output.c - makes foreign text safe to print, and writes messages, durations and JSON texts. */
#include "output.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOT_UTF8 UINT32_MAX

/* Returns the number of bytes of the character that this byte begins, or 0 if none begins so. */
static size_t sequence_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first >= 0xf5)
        return 0;
    if (first < 0xe0)
        return 2;
    return first < 0xf0 ? 3 : 4;
}

static bool is_surrogate(uint32_t code)
{
    return code >= 0xd800 && code <= 0xdfff;
}

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

/* Decodes one character of a text that ends with NUL or after `len` bytes; *used is at least 1. */
static uint32_t decode(const unsigned char *at, size_t len, size_t *used)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t need = sequence_length(at[0]);

    *used = 1;
    if (need == 1)
        return at[0];
    if (need == 0 || need > len)
        return NOT_UTF8;

    uint32_t code = at[0] & (0xffu >> (need + 1));
    for (size_t i = 1; i < need; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return NOT_UTF8;
        code = code << 6 | (at[i] & 0x3fu);
    }

    bool in_range = code >= smallest[need] && code <= 0x10ffff;
    if (!in_range || is_surrogate(code))
        return NOT_UTF8;

    *used = need;
    return code;
}

/* Returns true for a character that can move the cursor, hide text or reorder the line. */
static bool is_tricky(uint32_t code)
{
    return is_control(code) || code == NOT_UTF8 || code == '\\' ||
           (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

struct shown text_shown_bytes(const char *text, size_t len)
{
    struct shown shown;
    size_t full = 0;
    const unsigned char *at = (const unsigned char *)text;

    while (len > 0) {
        size_t used;
        bool tricky = is_tricky(decode(at, len, &used));
        if (full + used * 4 + sizeof "..." > sizeof shown.text) {
            memcpy(shown.text + full, "...", 3);
            full += 3;
            break;
        }
        for (size_t i = 0; i < used; i++) {
            if (tricky)
                full += (size_t)sprintf(shown.text + full, "\\x%02x", at[i]);
            else
                shown.text[full++] = (char)at[i];
        }
        at += used;
        len -= used;
    }

    shown.text[full] = 0;
    return shown;
}

struct shown output_shown(const char *text)
{
    return text_shown_bytes(text ? text : "", text ? strlen(text) : 0);
}

size_t text_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

struct shown text_duration(int64_t ms)
{
    struct shown shown;
    long long s = (long long)ms / 1000;

    if (ms < 10000)
        snprintf(shown.text, sizeof shown.text, "%lld.%lld s", s, (long long)ms % 1000 / 100);
    else if (s < 120)
        snprintf(shown.text, sizeof shown.text, "%lld s", s);
    else if (s < 7200)
        snprintf(shown.text, sizeof shown.text, "%lld min %lld s", s / 60, s % 60);
    else
        snprintf(shown.text, sizeof shown.text, "%lld h %lld min", s / 3600, s / 60 % 60);
    return shown;
}

struct shown text_time(int64_t wall_ms)
{
    struct shown shown;
    struct tm parts;
    char seconds[32];
    time_t whole = (time_t)(wall_ms / 1000);

    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", gmtime_r(&whole, &parts));
    snprintf(shown.text, sizeof shown.text, "%s.%03dZ", seconds, (int)(wall_ms % 1000));
    return shown;
}

void complain(const char *format, ...)
{
    char line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    /* One write for each line, so that lines of processes that share stderr do not mix. */
    dprintf(STDERR_FILENO, "holdfast: %s\n", line);
}

void json_print_text(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)(text ? text : "");
    size_t len = strlen((const char *)at);

    putc('"', out);
    while (len > 0) {
        size_t used;
        uint32_t code = decode(at, len, &used);
        if (code == NOT_UTF8)
            fputs("\\ufffd", out);
        else if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (char)code);
        else if (is_control(code))
            fprintf(out, "\\u%04x", (unsigned)code);
        else
            fwrite(at, 1, used, out);
        at += used;
        len -= used;
    }

    putc('"', out);
}

void json_print_token(FILE *out, uint64_t token)
{
    if (token)
        fprintf(out, "\"%" PRIu64 "\"", token);
    else
        fputs("null", out);
}

/* Redirects stdout, which is a variable that glibc lets a program set. */
char *text_printed(void (*print)(const void *arg), const void *arg)
{
    char *text = NULL;
    size_t len;
    FILE *screen = stdout, *memory = open_memstream(&text, &len);
    bool whole = false;

    if (memory) {
        stdout = memory;
        print(arg);
        stdout = screen;
        whole = !ferror(memory);
        whole = fclose(memory) == 0 && whole;
    }
    if (whole)
        return text;

    complain("no memory for what is to be printed");
    free(text);

    return NULL;
}

bool text_may_colour(int fd)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    return isatty(fd) && !(no_colour && *no_colour) && !(terminal && strcmp(terminal, "dumb") == 0);
}

int finish_stdout(void)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed)
        return 0;
    complain("cannot write to standard output: %s", strerror(errno));
    return EXIT_INTERNAL;
}
