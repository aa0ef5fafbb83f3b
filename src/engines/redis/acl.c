/* acl.c - finds which rights a user lacks, and writes them as ACL SETUSER takes them.
 *
 * The rights that are needed are tried before the first lock (the verb rights), and a refusal later
 * on is named in the message. A server names the command that a client may not send. It names
 * neither keys nor channels, and Redis does not name a command that a function may not call: then
 * its error has the line of the library, and the command is read from that line. */
#include "redis.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns line `number` of the library's text, where line 1 is the first line of its head; NULL if
 * the text has fewer lines. */
static const char *code_at(long number)
{
    const char *at = redis_script_body;
    for (number -= 2; --number > 0 && at;)
        at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    return at;
}

static bool has_call(const char *code)
{
    const char *call = strstr(code, "call('");
    return call && call < code + strcspn(code, "\n");
}

/* Returns true if the error names our library or script: functions of other programs fail, too. */
static bool is_our_text(const char *name)
{
    if (strncmp(name, redis_library_name, strlen(redis_library_name)) == 0)
        return true;

    for (int i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS; i++)
        if (strncmp(name, redis_script_texts[i].sha, 40) == 0)
            return true;
    return false;
}

/* Returns the code of the failed call. The error ends with "... script: FUNCTION, on
 * @user_function:LINE." or "... script: SHA, on @user_script:LINE." If the script looked at the
 * error before it raised it again, the call stands above that line. */
static const char *find_code(const char *error)
{
    const char *name = strstr(error, "script: "), *place = strstr(error, "@user_"), *code = NULL;
    if (!name || !place || !is_our_text(name + strlen("script: ")))
        return NULL;

    const char *number = place + strcspn(place, ":");
    for (long n = *number ? atol(number + 1) : 0; n > 2 && (!code || !has_call(code)); n--)
        code = code_at(n);
    return code;
}

/* Names all commands that the line calls, because the server does not say which of them it
 * refused. */
static void add_calls(const char *code, char *text, size_t size)
{
    size_t used = strlen(text), end = strcspn(code, "\n");
    for (const char *at = code; (at = strstr(at, "call('")) && at < code + end;) {
        used += (size_t)snprintf(text + used, size - used, "%s+", used ? " or " : "");
        for (at += strlen("call('"); isupper((unsigned char)*at) && used + 2 < size; at++)
            text[used++] = (char)tolower((unsigned char)*at);
        text[used] = 0;
    }
}

void redis_acl_missing(const struct redis *r, const char *error, char text[REDIS_ACL_MAX])
{
    assert(error);
    const char *code = find_code(error), *name = strstr(error, "run the '");

    text[0] = 0;
    if (strstr(error, "channel"))
        snprintf(text, REDIS_ACL_MAX, "&{%s*", r->prefix);
    else if (strstr(error, " key"))
        snprintf(text, REDIS_ACL_MAX, "~%s* ~{%s* ~~?:%s*", r->prefix, r->prefix, r->prefix);
    else if (name)
        snprintf(text, REDIS_ACL_MAX, "+%.*s", (int)strcspn(name + 9, "'"), name + 9);
    else if (code)
        add_calls(code, text, REDIS_ACL_MAX);
}

/* ---- Trying rights ---- */

/* Tries names without a hash tag first, because names with one need rights to more channels. */
void redis_acl_name_in_slot(const struct redis *r, unsigned slot, char *name, size_t size)
{
    enum { TRIES = 1 << 18 }; /* one name in 16,384 is in the slot */
    char tag[SLOT_TAG_MAX];
    for (unsigned i = 0; i < TRIES; i++) {
        int len = snprintf(name, size, "?%x", i);
        if (redis_cluster_slot(r->prefix, name, (size_t)len) == slot)
            return;
    }

    redis_slot_tag(slot, tag); /* every name so far had the hash tag of the prefix */
    snprintf(name, size, "?{%s}", tag);
}

bool redis_acl_write(struct redis *r)
{
    assert(r->box[0]);
    static _Thread_local char nobody[SLOT_TAG_MAX + 8];
    const struct cached_keys *cached;
    char letters[8];
    strcpy(nobody, "?");
    if (r->cluster.is_on)
        redis_acl_name_in_slot(r, r->cluster.probe_slot, nobody, sizeof nobody);

    if (redis_key_cache_find(r, nobody, strlen(nobody), &cached) != HF_OK)
        return false;

    snprintf(letters, sizeof letters, "%c%s%s%s%s", r->box[0], r->history ? "h" : "",
             r->replicas ? "w" : "", r->synced ? "a" : "", r->is_quorum_member ? "q" : "");
    redis_script_begin_two_keys(r, SCRIPT_RIGHTS, cached, 1);
    resp_command_text(&r->command, letters);
    return true;
}

/* Returns true if the text looks like the name of a command: the reply may be anything. */
static bool is_command(const char *text)
{
    return *text && strlen(text) < 24 && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz")];
}

static void add_right(struct redis *r, const char *command)
{
    assert(strlen(r->lacking) < sizeof r->lacking);
    size_t used = strlen(r->lacking);
    bool is_about_channels = strcmp(command, "publish") == 0 || strcmp(command, "subscribe") == 0;
    const char *blank = used ? " " : "";

    /* The server does not say whether the user lacks the command or the channel, so name both. */
    if (is_about_channels && !strchr(r->lacking, '&'))
        snprintf(r->lacking + used, sizeof r->lacking - used, "%s&{%s* or +%s", blank, r->prefix,
                 command);
    else
        snprintf(r->lacking + used, sizeof r->lacking - used, "%s+%s", blank, command);
}

void redis_acl_read(struct redis *r, const struct resp_reply *resp)
{
    if (resp->type == RESP_ERROR && strstr(resp->text, "'evalsha'"))
        strcpy(r->lacking, "+fcall");
    /* If the reply is no list, the call itself was refused, for example because the user may not
     * use these keys. Then the server refuses every op for the same reason, before it does
     * anything. */
    if (resp->type != RESP_LIST)
        return;

    r->lacking[0] = 0;
    for (const struct resp_reply *command = resp->first; command; command = command->next)
        if (command->type == RESP_TEXT && is_command(command->text))
            add_right(r, command->text);
}
