/* holders.c - words for the rows of one name. */
#include "holders.h"
#include <inttypes.h>

struct holders_text holders_describe(const char *name, const struct rows *rows)
{
    struct holders_text words;
    const struct hf_row *first = NULL;
    size_t count = 0, full;
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->all[i].role != HF_HOLDER)
            continue;
        count++;
        if (!first)
            first = &rows->all[i];
    }
    int len = snprintf(words.text, sizeof words.text, "\"%.300s\" is ", text_shown(name).text);
    full = (size_t)len;
    if (!first) {
        snprintf(words.text + full, sizeof words.text - full, "not held");
        return words;
    }
    len = snprintf(words.text + full, sizeof words.text - full,
                   "held by pid %" PRId64 "%s%.100s%s%.300s%s for %s, %s left", first->pid, *first->host ? " on " : "",
                   text_shown(first->host).text, *first->label ? " (" : "", text_shown(first->label).text,
                   *first->label ? ")" : "", text_duration(first->since_ms).text, text_duration(first->left_ms).text);
    full += (size_t)len;
    if (count > 1)
        snprintf(words.text + full, sizeof words.text - full,
                 ", and by %zu more (%" PRIu32 " of %" PRIu32 " units used)", count - 1, first->used, first->capacity);
    return words;
}

uint32_t holders_place(const struct rows *rows, int64_t pid, size_t *waiters)
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
