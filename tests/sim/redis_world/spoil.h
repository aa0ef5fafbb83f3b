/* spoil.h - planting: the server reads a script in whose text something is wrong. */
#pragma once
#include "schedule.h"

static enum plant planted;

/* A bug that is in the text of a script has a place there: else the script has changed, and nothing is planted. */
static bool has_place(enum plant which)
{
    const struct spoiling *s = &spoilings[which];
    bool found = !s->script;
    for (int i = 0; i < HF_SCRIPTS && !found; i++)
        found = (strcmp(s->script, "*") == 0 || strcmp(s->script, hf_scripts[i].name) == 0) &&
                memmem(hf_scripts[i].text, hf_scripts[i].len, s->from, strlen(s->from));
    return found;
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

static const char *spoil_script(const char *text, size_t len, size_t *spoilt_len)
{
    static char out[1 << 16];
    const struct spoiling *row = &spoilings[planted];
    const char *name = NULL;
    for (int i = 0; i < HF_SCRIPTS; i++)
        if (len <= hf_scripts[i].len && memcmp(text, hf_scripts[i].text + hf_scripts[i].len - len, len) == 0)
            name = hf_scripts[i].name;
    *spoilt_len = len;
    if (!row->script || !name || (strcmp(row->script, "*") != 0 && strcmp(row->script, name) != 0))
        return text;
    const char *at = find_once(text, len, row->from);
    if (!at)
        return text;
    size_t before_it = (size_t)(at - text), from = strlen(row->from), to = strlen(row->to);
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
    for (int i = 0; i < HF_SCRIPTS; i++) {
        char head[60];
        int len = snprintf(head, sizeof head, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n", hf_scripts[i].len);
        model_feed(model, connection, head, (size_t)len);
        model_feed(model, connection, hf_scripts[i].text, hf_scripts[i].len);
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
