/* error.c - this thread's last status that was not HF_OK: its text, and who held the lock. */
#include "error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "name.h"
#include "status.h"

/* The library's share of every thread's static storage must stay small, or programs that load the
 * library late cannot load it at all. So the holder is on the heap. */
static _Thread_local char last_text[ERROR_TEXT_MAX];
static _Thread_local hf_status last_status;
/* NULL: this thread has not needed one */
static _Thread_local struct error_holder *last_holder;
static pthread_once_t holder_once = PTHREAD_ONCE_INIT;
static pthread_key_t holder_key;

static void make_printable(char *text)
{
    size_t len = strlen(text), start = 0, place;
    while (name_flaw(text + start, len - start, &place)) {
        start += place;
        text[start] = '?';
    }
}

hf_status error_set(hf_status status, const char *format, ...)
{
    /* Formatted into another buffer: the old text may be among the arguments. */
    char fresh[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);

    int len = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    if (len <= 0)
        snprintf(fresh, sizeof fresh, "%s", status_row((int)status)->text);
    make_printable(fresh);
    memcpy(last_text, fresh, strlen(fresh) + 1);
    last_status = status;
    if (last_holder)
        last_holder->is_set = false;
    return status;
}

hf_status error_status(void)
{
    return last_status;
}

const char *error_text(void)
{
    return last_text;
}

static void make_key(void)
{
    pthread_key_create(&holder_key, free); /* the thread's end frees it */
}

/* Returns NULL without memory. */
static struct error_holder *need_holder(void)
{
    pthread_once(&holder_once, make_key);
    if (!last_holder)
        last_holder = calloc(1, sizeof *last_holder);
    if (last_holder)
        pthread_setspecific(holder_key, last_holder);
    return last_holder;
}

void error_set_holder(const struct hf_row *row)
{
    struct error_holder *holder = need_holder();
    if (!holder)
        return;

    holder->is_set = true;
    holder->row = *row;
    snprintf(holder->name, sizeof holder->name, "%s", row->name);
    snprintf(holder->host, sizeof holder->host, "%s", row->host);
    snprintf(holder->label, sizeof holder->label, "%s", row->label);
}

bool error_holder(struct hf_row *to)
{
    size_t size = to->size;
    if (!last_holder || !last_holder->is_set)
        return false;

    struct hf_row row = last_holder->row;
    row.size = size;
    row.name = last_holder->name;
    row.host = last_holder->host;
    row.label = last_holder->label;
    memcpy(to, &row, size < sizeof row ? size : sizeof row);
    return true;
}

void error_save(struct error_state *state)
{
    *state = (struct error_state){.status = last_status};
    memcpy(state->text, last_text, sizeof state->text);
    if (last_holder)
        state->holder = *last_holder;
}

void error_restore(const struct error_state *state)
{
    last_status = state->status;
    memcpy(last_text, state->text, sizeof last_text);
    struct error_holder *holder = state->holder.is_set ? need_holder() : last_holder;
    if (holder)
        *holder = state->holder;
}
