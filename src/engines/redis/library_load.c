/* library_load.c - loads the Lua text of scripts/ into a server that lacks it.
 *
 * Most servers take the text as a library of functions. They persist and replicate it, so it is
 * nearly always there, and the greeting only calls one of its functions. If the server has no
 * functions, or the user may not use or load them, the same text is loaded as scripts. Every
 * greeting decides that anew. */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* number of loads in a row after each of which the library was missing again */
enum { LOADS_IN_VAIN_MOST = 3 };

bool redis_load_has_no_functions(const char *error)
{
    bool is_unknown = strncmp(error, "ERR unknown command", 19) == 0;
    bool is_denied = strncmp(error, "NOPERM", 6) == 0;
    return (is_unknown || is_denied) && strcasestr(error, "'fcall'");
}

bool redis_load_is_needed(const struct resp_reply *resp)
{
    static const char no_function[] = "ERR Function not found", no_script[] = "NOSCRIPT";
    return resp->type == RESP_ERROR &&
           (strncmp(resp->text, no_function, sizeof no_function - 1) == 0 ||
            strncmp(resp->text, no_script, sizeof no_script - 1) == 0 ||
            redis_load_has_no_functions(resp->text));
}

static void add_text(struct redis *r, enum script_text_id id)
{
    const char *head = redis_script_texts[id].head;
    resp_command_joined(&r->command, head, strlen(head), redis_script_body, redis_script_body_len);
}

void redis_load_write(struct redis *r, bool replaces)
{
    resp_command_begin(&r->command, replaces ? 4 : 3);
    resp_command_text(&r->command, "FUNCTION");
    resp_command_text(&r->command, "LOAD");
    if (replaces)
        resp_command_text(&r->command, "REPLACE");
    add_text(r, SCRIPT_LIBRARY);
}

/* Loads the library, first without REPLACE: if many clients meet a new server, it compiles the
 * text once. If functions are missing although the library is there, somebody changed it: equal
 * names mean equal texts. */
static void load_library(struct redis *r, struct redis_connection *connection, nanos now)
{
    redis_load_write(r, connection->in_vain > 1);
    redis_connection_send(
        r, connection, (struct request){.kind = REQ_LIBRARY, .patience = r->connect_timeout}, now);
}

static void load_script(struct redis *r, struct redis_connection *connection,
                        enum script_text_id id, nanos now)
{
    resp_command_begin(&r->command, 3);
    resp_command_text(&r->command, "SCRIPT");
    resp_command_text(&r->command, "LOAD");
    add_text(r, id);
    redis_connection_send(r, connection,
                          (struct request){.kind = REQ_LOAD, .patience = r->connect_timeout}, now);
}

/* Asks which scripts are missing, because they are long and usually loaded already. */
static void request_scripts(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (connection->state == CONNECTION_DOWN)
        return;

    resp_command_begin(&r->command, 2 + SCRIPT_TEXTS - SCRIPT_CLAIMING);
    resp_command_text(&r->command, "SCRIPT");
    resp_command_text(&r->command, "EXISTS");
    for (int i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS; i++)
        resp_command_text(&r->command, redis_script_texts[i].sha);

    redis_connection_send(r, connection,
                          (struct request){.kind = REQ_KNOWN, .patience = r->connect_timeout}, now);
}

static bool is_known(const struct resp_reply *known, size_t script)
{
    const struct resp_reply *answer =
        known && known->type == RESP_LIST ? resp_item(known, script) : NULL;
    return answer && answer->type == RESP_NUMBER && answer->number == 1;
}

/* Loads the scripts that the server lacks. `known` is the reply to SCRIPT EXISTS, valid until the
 * connection is down. If it is an error (the user lacks the right, or a proxy does not know the
 * command), all scripts are loaded. */
void redis_load_missing(struct redis *r, struct redis_connection *connection,
                        const struct resp_reply *known, nanos now)
{
    for (int i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS && connection->state != CONNECTION_DOWN; i++)
        if (!is_known(known, (size_t)(i - SCRIPT_CLAIMING)))
            load_script(r, connection, (enum script_text_id)i, now);
}

/* Calls verbs by EVALSHA from now on. */
static void use_scripts(struct redis *r, const char *why)
{
    r->by_scripts = true;
    snprintf(r->no_functions, sizeof r->no_functions, "%s", why);
}

void redis_load(struct redis *r, struct redis_connection *connection,
                const struct resp_reply *error, nanos now)
{
    assert(redis_load_is_needed(error));
    if (!r->by_scripts && redis_load_has_no_functions(error->text))
        use_scripts(r, error->text);

    if (connection->loads || connection->state == CONNECTION_DOWN)
        return; /* a load is in flight: another request met the same error first */

    bool is_in_vain = ++connection->in_vain > LOADS_IN_VAIN_MOST;
    if (is_in_vain && r->by_scripts) {
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now,
                              "the server forgets our scripts as soon as they are loaded");
        return;
    }
    if (is_in_vain) {
        connection->in_vain = 0;
        use_scripts(r, "it forgets functions as soon as they are loaded");
    }

    if (r->by_scripts)
        redis_load_missing(r, connection, NULL, now);
    else
        load_library(r, connection, now);
}

bool redis_load_is_done(const struct resp_reply *error)
{
    assert(error->type == RESP_ERROR);
    return strncmp(error->text, "ERR Library ", 12) == 0 && strstr(error->text, "already exists");
}

void redis_load_refused(struct redis *r, struct redis_connection *connection,
                        const struct resp_reply *error, nanos now)
{
    assert(error->type == RESP_ERROR);
    use_scripts(r, error->text);

    if (connection->state == CONNECTION_GREETING)
        request_scripts(r, connection, now);
    else
        redis_load_missing(r, connection, NULL, now);
}

/* If the user may not load the library, reports that error: it names the right that the
 * documentation asks for. */
const struct resp_reply *redis_load_why_not(const struct redis *r, const struct resp_reply *resp)
{
    static _Thread_local struct resp_reply first;
    bool was_denied = strncmp(r->no_functions, "NOPERM", 6) == 0;

    first = (struct resp_reply){
        .type = RESP_ERROR, .text = r->no_functions, .len = strlen(r->no_functions)};
    return was_denied ? &first : resp;
}
