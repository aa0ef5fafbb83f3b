/* holder_text.c - describes the holders and waiters of one name in words. */
#include "holder_text.h"
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

/* Appends to the text, as far as there is room. */
__attribute__((format(printf, 2, 3))) static void add(struct holder_text *words, const char *format,
                                                      ...)
{
    size_t full = strlen(words->text);
    va_list args;
    va_start(args, format);
    vsnprintf(words->text + full, sizeof words->text - full, format, args);
    va_end(args);
}

static void add_holder(struct holder_text *words, const struct hf_row *row)
{
    if (row->foreign)
        add(words, "held by another program, ");
    else
        add(words, "held by pid %" PRId64 "%s%.100s%s%.300s%s for %s, ", row->pid,
            *row->host ? " on " : "", output_shown(row->host).text, *row->label ? " (" : "",
            output_shown(row->label).text, *row->label ? ")" : "",
            text_duration(row->since_ms).text);
    if (row->foreign && row->left_ms < 0)
        add(words, "without an end");
    else
        add(words, "%s left", text_duration(row->left_ms).text);
    if (row->servers_all)
        add(words, ", on %" PRIu32 " of %" PRIu32 " servers", row->servers, row->servers_all);
}

struct holder_text holder_text_describe(const char *name, const struct row_list *rows)
{
    struct holder_text words = {""};
    const struct hf_row *first = NULL;
    size_t count = 0;

    for (size_t i = 0; i < rows->count; i++) {
        if (rows->all[i].role != HF_HOLDER)
            continue;
        count++;
        if (!first)
            first = &rows->all[i];
    }

    add(&words, "\"%.300s\" is ", output_shown(name).text);
    if (first)
        add_holder(&words, first);
    else
        add(&words, "not held");
    if (count > 1 && first->kind == HF_READ)
        add(&words, ", and by %zu more reader%s", count - 1, count > 2 ? "s" : "");
    else if (count > 1)
        add(&words, ", and by %zu more (%" PRIu32 " of %" PRIu32 " units used)", count - 1,
            first->used, first->capacity);

    return words;
}

static bool is_us(const struct hf_row *row)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return row->pid == getpid() && (!*row->host || strcmp(row->host, host) == 0);
}

bool holder_text_include_us(const struct row_list *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->all[i].role == HF_HOLDER && is_us(&rows->all[i]))
            return true;
    return false;
}

uint32_t holder_text_place(const struct row_list *rows, int64_t pid, size_t *waiters)
{
    uint32_t place = 0;

    *waiters = 0;
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->all[i].role != HF_WAITER)
            continue;
        ++*waiters;
        if (rows->all[i].pid == pid && place == 0)
            place = rows->all[i].place;
    }

    return place;
}
