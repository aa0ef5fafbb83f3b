/* rights.c - which right a user lacks, as one writes it to give it. Servers name commands that a client may not send.
 * They do not name keys and channels, nor, in Redis, commands that a script may not call: of those they tell the line
 * of the script, and there it stands. */
#include "redis.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lines of a script are counted from 1. NULL: it has fewer. */
static const char *line_of(const struct hf_script_text *script, long number)
{
    const char *at = script->text;
    while (--number > 0 && at)
        at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    return at;
}

/* "... script: SHA, on @user_script:LINE." */
static const char *find_line(const char *error)
{
    const char *sha = strstr(error, "script: "), *line = strstr(error, "@user_script:");
    for (int i = 0; sha && line && i < HF_SCRIPTS; i++)
        if (strncmp(sha + 8, hf_scripts[i].sha, 40) == 0)
            return line_of(&hf_scripts[i], atol(line + strlen("@user_script:")));
    return NULL;
}

/* All that the line calls: which of them it was is not said. */
static void add_calls(const char *line, char *text, size_t size)
{
    size_t used = strlen(text), end = strcspn(line, "\n");
    for (const char *at = line; (at = strstr(at, "call('")) && at < line + end;) {
        used += (size_t)snprintf(text + used, size - used, "%s+", used ? " or " : "");
        for (at += strlen("call('"); isupper((unsigned char)*at) && used + 2 < size; at++)
            text[used++] = (char)tolower((unsigned char)*at);
        text[used] = 0;
    }
}

void hf_right_lacking(const struct hf_redis *r, const char *error, char text[HF_RIGHT_MAX])
{
    const char *line = find_line(error), *name = strstr(error, "run the '");
    text[0] = 0;
    if (strstr(error, "channel"))
        snprintf(text, HF_RIGHT_MAX, "&{%s*", r->prefix);
    else if (strstr(error, " key"))
        snprintf(text, HF_RIGHT_MAX, "~%s* ~{%s* ~~?:%s*", r->prefix, r->prefix, r->prefix);
    else if (name)
        snprintf(text, HF_RIGHT_MAX, "+%.*s", (int)strcspn(name + 9, "'"), name + 9);
    else if (line)
        add_calls(line, text, HF_RIGHT_MAX);
}
