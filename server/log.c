/* log.c - writes lines of the log, each in one write. */
#include "log.h"
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void write_line(const char *line, size_t len)
{
    if (write(STDERR_FILENO, line, len) < 0) {
        /* There is nowhere left to say so. */
    }
}

/* Control characters, which could end a line or move a cursor, become \xNN; so does what `also` names. */
static void put_escaped(FILE *out, const char *text, const char *also)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f || strchr(also, c) || (c == 0xc2 && (unsigned char)text[1] < 0xa0))
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

void log_complain(const char *format, ...)
{
    char text[1024], *line = NULL;
    size_t len = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    FILE *out = open_memstream(&line, &len);
    if (!out)
        return;
    fputs("holdfast: ", out);
    put_escaped(out, text, "");
    fputc('\n', out);
    if (fclose(out) == 0)
        write_line(line, len);
    free(line);
}

static void print_time(FILE *out)
{
    struct timespec now;
    struct tm parts;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(out, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

static void print_text(FILE *out, const char *event, const struct log_field *fields, size_t count)
{
    fputs("time=", out);
    print_time(out);
    fprintf(out, " event=%s", event);
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].text)
            fprintf(out, " %s=%lld", fields[i].key, (long long)fields[i].number);
        else if (*fields[i].text) {
            fprintf(out, " %s=\"", fields[i].key);
            put_escaped(out, fields[i].text, "\"\\");
            fputc('"', out);
        }
    }
}

static void print_json_text(FILE *out, const char *text)
{
    json_t *value = json_string(text);
    if (value)
        json_dumpf(value, out, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    else
        fputs("null", out);
    json_decref(value);
}

static void print_json(FILE *out, const char *event, const struct log_field *fields, size_t count)
{
    fputs("{\"time\":\"", out);
    print_time(out);
    fprintf(out, "\",\"event\":\"%s\"", event);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].text && !*fields[i].text)
            continue;
        fprintf(out, ",\"%s\":", fields[i].key);
        if (fields[i].text)
            print_json_text(out, fields[i].text);
        else
            fprintf(out, "%lld", (long long)fields[i].number);
    }
    fputc('}', out);
}

void log_event(enum log_form form, const char *event, const struct log_field *fields, size_t count)
{
    char *line = NULL;
    size_t len = 0;
    FILE *out = form == LOG_NONE ? NULL : open_memstream(&line, &len);
    if (!out)
        return;
    if (form == LOG_JSON)
        print_json(out, event, fields, count);
    else
        print_text(out, event, fields, count);
    fputc('\n', out);
    if (fclose(out) == 0)
        write_line(line, len);
    free(line);
}
