/* service_log.c - writes lines of the log, each in one write. */
#include "service_log.h"
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
        /* stderr is gone: nothing can be reported */
    }
}

/* Writes text; control characters, which could end a line or move a cursor, become \xNN, and so
 * do the characters of `also`. */
static void put_escaped(FILE *out, const char *text, const char *also)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_c1 = c == 0xc2 && (unsigned char)text[1] < 0xa0;
        bool is_control = c < 0x20 || c == 0x7f || is_c1;
        if (is_control || strchr(also, c))
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

static const char *level_name(enum hf_log_level level)
{
    static const char *const names[] = {[HF_LOG_ERROR] = "error",
                                        [HF_LOG_WARN] = "warn",
                                        [HF_LOG_INFO] = "info",
                                        [HF_LOG_DEBUG] = "debug"};
    return names[level];
}

/* Returns true for a token, which is written as text of digits in JSON, and left out if there was
 * no grant. */
static bool is_token(const struct log_field *field)
{
    return strcmp(field->key, "token") == 0;
}

static bool is_known(const struct log_field *field)
{
    if (field->text)
        return *field->text != 0;
    return field->number >= is_token(field);
}

static void print_text(FILE *out, enum hf_log_level level, const char *event,
                       const struct log_field *fields, size_t count)
{
    fputs("time=", out);
    print_time(out);
    fprintf(out, " level=%s event=%s", level_name(level), event);

    for (size_t i = 0; i < count; i++) {
        if (!is_known(&fields[i]))
            continue;
        if (!fields[i].text)
            fprintf(out, " %s=%lld", fields[i].key, (long long)fields[i].number);
        else {
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

static void print_json(FILE *out, enum hf_log_level level, const char *event,
                       const struct log_field *fields, size_t count)
{
    fputs("{\"time\":\"", out);
    print_time(out);
    fprintf(out, "\",\"level\":\"%s\",\"event\":\"%s\"", level_name(level), event);

    for (size_t i = 0; i < count; i++) {
        if (!is_known(&fields[i]))
            continue;
        fprintf(out, ",\"%s\":", fields[i].key);
        if (fields[i].text)
            print_json_text(out, fields[i].text);
        else
            fprintf(out, is_token(&fields[i]) ? "\"%lld\"" : "%lld", (long long)fields[i].number);
    }

    fputc('}', out);
}

void log_event(enum log_form form, enum hf_log_level level, const char *event,
               const struct log_field *fields, size_t count)
{
    char *line = NULL;
    size_t len = 0;
    FILE *out = form == LOG_NONE ? NULL : open_memstream(&line, &len);

    if (!out)
        return;
    if (form == LOG_JSON)
        print_json(out, level, event, fields, count);
    else
        print_text(out, level, event, fields, count);

    fputc('\n', out);
    if (fclose(out) == 0)
        write_line(line, len);
    free(line);
}
