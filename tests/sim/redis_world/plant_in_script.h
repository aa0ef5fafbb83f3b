/* plant_in_script.h - planting: the server reads a script in whose text something is wrong. */
#pragma once
#include "redis_world.h"

static enum plant planted;

/* A bug that is in the text of a script has a place there: else the script has changed, and nothing
 * is planted. */
static bool has_place(enum plant which)
{
    const struct spoiling *s = &spoilings[which];
    return !s->from || memmem(redis_script_body, redis_script_body_len, s->from, strlen(s->from));
}

/* As a line of TAP. */
static bool all_have_places(unsigned number)
{
    bool ok = true;
    for (unsigned i = 1; i < PLANT_COUNT; i++) {
        if (!has_place((enum plant)i))
            printf("# %s: the text of the script has changed\n", plants[i].name);
        ok &= has_place((enum plant)i);
    }
    printf("%s %u - every bug in a script is planted where the script says something else\n",
           ok ? "ok" : "not ok", number);
    return ok;
}

static const char *find_once(const char *text, size_t len, const char *what)
{
    const char *first = memmem(text, len, what, strlen(what));
    if (first && memmem(first + 1, len - (size_t)(first + 1 - text), what, strlen(what))) {
        fprintf(stderr, "the text to be spoilt is there twice: %s\n", what);
        exit(70);
    }
    return first;
}

/* Is this the library, whatever stands before it? */
static bool is_library(const char *text, size_t len)
{
    return len >= redis_script_body_len && memcmp(text + len - redis_script_body_len,
                                                  redis_script_body, redis_script_body_len) == 0;
}

static const char *spoil_script(const char *text, size_t len, size_t *spoilt_len)
{
    static char out[1 << 18];
    const struct spoiling *row = &spoilings[planted];
    *spoilt_len = len;
    const char *at = row->from && is_library(text, len) ? find_once(text, len, row->from) : NULL;
    if (!at)
        return text;
    size_t before_it = (size_t)(at - text), from = strlen(row->from), to = strlen(row->to);
    if (len + to > sizeof out)
        abort();
    memcpy(out, text, before_it);
    memcpy(out + before_it, row->to, to);
    memcpy(out + before_it + to, at + from, len - before_it - from);
    *spoilt_len = len - from + to;
    return out;
}

/* All of them now, so that no schedule depends on those before it. */
static void compile_scripts(void)
{
    unsigned connection = model_connect(model);
    for (int i = 0; i < SCRIPT_TEXTS; i++) {
        const char *head = redis_script_texts[i].head,
                   *command = i == SCRIPT_LIBRARY ? "$8\r\nFUNCTION" : "$6\r\nSCRIPT";
        char begin[80];
        int len = snprintf(begin, sizeof begin, "*3\r\n%s\r\n$4\r\nLOAD\r\n$%zu\r\n", command,
                           strlen(head) + redis_script_body_len);
        model_feed(model, connection, begin, (size_t)len);
        model_feed(model, connection, head, strlen(head));
        model_feed(model, connection, redis_script_body, redis_script_body_len);
        model_feed(model, connection, "\r\n", 2);
    }
}

/* A server whose scripts have that bug. */
static void plant(enum plant which)
{
    if (model)
        model_close(model);
    model = model_open(1);
    planted = which;
    model_spoil(model, spoil_script);
    compile_scripts();
}
