/* why.c - this thread's words about the last status that was not HF_OK. */
#include "why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "name.h"
#include "status.h"

static _Thread_local char words[HF_WHY_MAX];
static _Thread_local hf_status last;

static void make_printable(char *text)
{
    size_t len = strlen(text), start = 0, place;
    while (hf_name_flaw(text + start, len - start, &place)) {
        start += place;
        text[start] = '?';
    }
}

hf_status hf_why(hf_status status, const char *format, ...)
{
    /* Formatted aside: the old words may be among the arguments. */
    char fresh[HF_WHY_MAX];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    if (len <= 0)
        snprintf(fresh, sizeof fresh, "%s", hf_status_row((int)status)->text);
    make_printable(fresh);
    memcpy(words, fresh, strlen(fresh) + 1);
    last = status;
    return status;
}

hf_status hf_why_status(void)
{
    return last;
}

const char *hf_why_text(void)
{
    return words;
}
