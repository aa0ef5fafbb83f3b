/* redis_library.c - the care for the library that runs inside the server: an administrator loads
 * it, and removes those of other releases (`holdfast doctor --install` and `--prune`).
 *
 * A library is removed only if no client on any server can be using it. The name of a client in
 * CLIENT LIST ends with "/" and the name of its library. Clients of older releases do not say that,
 * and neither do clients whose user may not set a name. Such a connection counts as one that may
 * use any library if its name or its last command could be Holdfast's. */
#include "redis.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_PATIENCE NANOS_OF_MS(4000)
#define RIGHTS "use a user with +fcall +function|load +function|list +function|delete +client|list"
enum step { STEP_TEXT, STEP_LOAD, STEP_LIBRARIES, STEP_CLIENTS, STEP_DELETE };
enum { LIBRARY_NAME = sizeof "holdfast_12345678" - 1, LIBRARIES_MAX = 64, USES_MAX = 1024 };

struct library_care {
    uint32_t steps;   /* number of steps in flight */
    bool has_current; /* our own library is there */
    unsigned count;   /* number of libraries of other releases */
    char names[LIBRARIES_MAX][LIBRARY_NAME + 1];
};

/* ---- Steps ---- */

/* Sends the command that was written. `from`: index in care->names, or for STEP_LOAD the lack that
 * it mends. If sending fails, the client gets its reply here. */
static void send_step(struct redis *r, struct redis_op *a, enum step step, size_t from, nanos now)
{
    struct redis_connection *connection = &r->connection[CONNECTION_COMMANDS];
    struct request request = {.kind = REQ_STEP,
                              .verb = (uint8_t)admin_op_of(a->op)->verb,
                              .op = a,
                              .patience = STEP_PATIENCE,
                              .name_index = step,
                              .from = from};
    assert(a->care);

    a->care->steps++;
    a->op->connections = redis_connection_bit(r, CONNECTION_COMMANDS);

    /* The send failed. If earlier steps were in flight, the failed connection has replied for all
     * of them. */
    if (!redis_connection_send(r, connection, request, now) && a->care)
        redis_op_fail_with(r, a, connection, now);
}

static void write_words(struct redis *r, unsigned count, const char *const words[])
{
    resp_command_begin(&r->command, count);
    for (unsigned i = 0; i < count; i++)
        resp_command_text(&r->command, words[i]);
}

static void request_libraries(struct redis *r, struct redis_op *a, bool all, nanos now)
{
    const char *name = all ? "holdfast_*" : redis_library_name;
    const char *const words[] = {"FUNCTION", "LIST", "LIBRARYNAME", name, "WITHCODE"};
    write_words(r, all ? 4 : 5, words);
    send_step(r, a, all ? STEP_LIBRARIES : STEP_TEXT, 0, now);
}

static void request_clients(struct redis *r, struct redis_op *a, nanos now)
{
    write_words(r, 2, (const char *const[]){"CLIENT", "LIST"});
    send_step(r, a, STEP_CLIENTS, 0, now);
}

void redis_library_begin(struct redis *r, struct redis_op *a, nanos now)
{
    assert(a->sent_op.verb == OP_ADMIN && !a->care);
    enum admin_verb verb = admin_op_of(a->op)->verb;
    a->care = calloc(1, sizeof *a->care);

    if (!a->care)
        redis_op_fail(r, a, now, HF_NO_MEMORY, "no memory for a request");
    else if (verb == ADMIN_USES)
        request_clients(r, a, now);
    else
        request_libraries(r, a, verb == ADMIN_PRUNE, now);
}

static void end(struct redis *r, struct redis_op *a, const struct request *request)
{
    redis_admin_free(a);
    redis_op_reply(r, a,
                   &(struct engine_reply){.kind = REPLY_RELEASED,
                                          .asked_at = request->sent_at,
                                          .retry_at = TIME_NEVER});
}

/* ---- Installing ---- */

enum lack { LACK_ALL, LACK_TEXT, LACK_RIGHT }; /* missing; another text; the user may not read it */

static void on_text(struct redis *r, struct redis_op *a, const struct resp_reply *resp, nanos now)
{
    const struct resp_reply *code = redis_value_of(resp_item(resp, 0), "library_code");
    if (code && redis_is_our_library(code)) {
        redis_find(r, a, "library", HF_HEALTH_OK, NULL, "%s %s", redis_library_name,
                   r->has_loaded ? "was loaded" : "was there already");
        return;
    }

    enum lack lack = code ? LACK_TEXT : LACK_ALL;
    if (resp->type == RESP_ERROR)
        lack = LACK_RIGHT;
    redis_load_write(r, true);
    send_step(r, a, STEP_LOAD, lack, now);
}

static bool is_without_functions(const struct resp_reply *error)
{
    return strncmp(error->text, "ERR unknown command", 19) == 0;
}

static void on_load(struct redis *r, struct redis_op *a, const struct request *request,
                    const struct resp_reply *resp)
{
    static const char *const done[] = {
        [LACK_ALL] = "was loaded",
        [LACK_TEXT] = "had been changed by somebody, and was loaded again",
        [LACK_RIGHT] = "was loaded, whether or not it was there: the user may not read it"};
    assert(request->from <= LACK_RIGHT);

    if (resp->type != RESP_ERROR)
        redis_find(r, a, "library", HF_HEALTH_OK, NULL, "%s %s", redis_library_name,
                   done[request->from]);
    else
        redis_find(r, a, "library", HF_HEALTH_BAD,
                   is_without_functions(resp)
                       ? "clients run scripts there instead: give them +evalsha +script|load"
                       : RIGHTS,
                   "%s could not be loaded: %.150s", redis_library_name, resp->text);
}

/* ---- Who uses which library ---- */

struct words {
    const char *at;
    size_t len;
};

/* Returns a field of a line of CLIENT LIST, with the key as in " name=". */
static struct words field_of(struct words client, const char *key)
{
    const char *at = memmem(client.at, client.len, key, strlen(key));
    if (!at)
        return (struct words){"", 0};

    at += strlen(key);
    const char *end = memchr(at, ' ', (size_t)(client.at + client.len - at));
    return (struct words){at, (size_t)((end ? end : client.at + client.len) - at)};
}

static bool is_library(const char *name, size_t len)
{
    static const char begin[] = "holdfast_";
    size_t at = sizeof begin - 1;
    if (len != LIBRARY_NAME || strncmp(name, begin, at) != 0)
        return false;

    while (at < len && isxdigit((unsigned char)name[at]))
        at++;
    return at == len;
}

/* Returns the library that this client says it uses; NULL: it does not say. */
static const char *library_of(struct words client)
{
    struct words name = field_of(client, " name=");
    if (name.len <= LIBRARY_NAME)
        return NULL;
    const char *library = name.at + name.len - LIBRARY_NAME;
    return library[-1] == '/' && is_library(library, LIBRARY_NAME) ? library : NULL;
}

/* Returns true if this client, which does not say what it uses, may be one of ours: the last
 * command of each connection of ours is one of these. */
static bool may_be_ours(struct words client)
{
    static const char *const ours[] = {"fcall", "fcall_ro", "set",  "pexpire",
                                       "scan",  "blmpop",   "wait", "waitaof"};
    struct words name = field_of(client, " name="), command = field_of(client, " cmd=");
    if (name.len >= 9 && strncmp(name.at, "holdfast/", 9) == 0)
        return true;

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strlen(ours[i]) == command.len && strncmp(ours[i], command.at, command.len) == 0)
            return true;
    return false;
}

/* Takes the next line of a reply to CLIENT LIST. Returns false at its end. */
static bool next_client(const char **rest, struct words *client)
{
    if (!**rest)
        return false;
    *client = (struct words){*rest, strcspn(*rest, "\n")};
    *rest += client->len + ((*rest)[client->len] == '\n');
    return true;
}

/* Lists the libraries that the clients use, in the form of admin_op.in_use. */
static void list_uses(const char *clients, char uses[USES_MAX])
{
    struct words client;
    size_t len = 0;
    for (const char *rest = clients; next_client(&rest, &client);) {
        const char *library = library_of(client);
        char word[LIBRARY_NAME + 1] = "";
        if (library || may_be_ours(client))
            snprintf(word, sizeof word, "%s", library ? library : LIBRARY_UNKNOWN);
        bool has_room = len + sizeof word + sizeof LIBRARY_UNKNOWN < USES_MAX;
        if (!has_room)
            strcpy(word, LIBRARY_UNKNOWN);
        if (*word && !strstr(uses, word))
            len += (size_t)snprintf(uses + len, USES_MAX - len, "%s%s", len ? " " : "", word);
    }
}

static void report_uses(struct redis *r, const struct redis_op *a, const struct resp_reply *clients)
{
    char uses[USES_MAX] = "";
    if (clients->type == RESP_TEXT)
        list_uses(clients->text, uses);
    else
        strcpy(uses, LIBRARY_UNKNOWN);

    struct hf_finding finding = {
        .size = sizeof finding, .where = r->where, .what = "uses", .text = uses, .advice = ""};
    r->host->find(r->host->ctx, a->op, &finding);
}

/* ---- Removing ---- */

static void on_libraries(struct redis *r, struct redis_op *a, const struct resp_reply *resp,
                         nanos now)
{
    struct library_care *care = a->care;
    if (resp->type == RESP_ERROR && is_without_functions(resp)) {
        redis_find(r, a, "library", HF_HEALTH_OK, NULL, "the server has no functions");
        return;
    }
    if (resp->type != RESP_LIST) {
        redis_find(r, a, "library", HF_HEALTH_BAD, RIGHTS,
                   "cannot tell which libraries there are: %.150s",
                   resp->type == RESP_ERROR ? resp->text : "no list");
        return;
    }

    for (const struct resp_reply *one = resp->first; one; one = one->next) {
        const struct resp_reply *name = redis_value_of(one, "library_name");
        if (!name || !is_library(name->text, name->len))
            continue;
        if (strcmp(name->text, redis_library_name) == 0)
            care->has_current = true;
        else if (care->count < LIBRARIES_MAX)
            strcpy(care->names[care->count++], name->text);
    }

    if (care->count)
        request_clients(r, a, now);
    else
        redis_find(r, a, "library", HF_HEALTH_OK, NULL, "nothing to remove: %s%s",
                   care->has_current ? redis_library_name : "no library of Holdfast is here",
                   care->has_current ? " is the only library of Holdfast" : "");
}

struct uses {
    /* number of connections that use the library, and of those that do not say what they use */
    unsigned known, unknown;
    struct words example; /* address of a connection that does not say */
};

static struct uses count_uses(const char *clients, const char *library)
{
    struct uses uses = {0};
    struct words client;
    for (const char *rest = clients; next_client(&rest, &client);) {
        const char *used = library_of(client);
        if (used) {
            uses.known += strncmp(used, library, LIBRARY_NAME) == 0;
        } else if (may_be_ours(client)) {
            uses.unknown++;
            uses.example = field_of(client, " addr=");
        }
    }

    return uses;
}

/* Removes a library, or says why it stays. */
static void judge(struct redis *r, struct redis_op *a, size_t index, const char *clients, nanos now)
{
    const char *name = a->care->names[index], *in_use = admin_op_of(a->op)->in_use;
    struct uses uses = count_uses(clients, name);
    bool is_used = strstr(in_use, name), may_be_used = strstr(in_use, LIBRARY_UNKNOWN);

    if (uses.known) {
        redis_find(r, a, "library", HF_HEALTH_NOTE, "prune again when those clients are gone",
                   "kept %s: in use (connections here: %u)", name, uses.known);
    } else if (is_used) {
        redis_find(r, a, "library", HF_HEALTH_NOTE, "prune again when those clients are gone",
                   "kept %s: in use by a client of another server", name);
    } else if (uses.unknown) {
        redis_find(r, a, "library", HF_HEALTH_NOTE,
                   "prune again when they are gone, or FUNCTION DELETE it if none is Holdfast's",
                   "kept %s: older clients may use it (connections that do not say what they use: "
                   "%u, one from %.*s)",
                   name, uses.unknown, (int)uses.example.len, uses.example.at);
    } else if (may_be_used) {
        redis_find(r, a, "library", HF_HEALTH_NOTE, "see the findings about the other servers",
                   "kept %s: a client of another server may use it", name);
    } else {
        write_words(r, 3, (const char *const[]){"FUNCTION", "DELETE", name});
        send_step(r, a, STEP_DELETE, index, now);
    }
}

static void on_clients(struct redis *r, struct redis_op *a, const struct resp_reply *resp,
                       nanos now)
{
    for (size_t i = 0; a->care && i < a->care->count; i++) {
        if (resp->type == RESP_TEXT)
            judge(r, a, i, resp->text, now);
        else
            redis_find(r, a, "library", HF_HEALTH_BAD, RIGHTS,
                       "kept %s: cannot see which clients use it: %.120s", a->care->names[i],
                       resp->type == RESP_ERROR ? resp->text : "no list");
    }
}

static void on_delete(struct redis *r, const struct redis_op *a, const struct request *request,
                      const struct resp_reply *resp)
{
    assert(request->from < a->care->count);
    const char *name = a->care->names[request->from];
    if (resp->type == RESP_ERROR && !strstr(resp->text, "not found"))
        redis_find(r, a, "library", HF_HEALTH_BAD, RIGHTS, "could not remove %s: %.150s", name,
                   resp->text);
    else
        redis_find(r, a, "library", HF_HEALTH_OK, NULL,
                   "removed %s: no client that is connected uses it", name);
}

/* ---- Replies ---- */

void redis_library_answer(struct redis *r, const struct request *request,
                          const struct resp_reply *resp, nanos now)
{
    struct redis_op *a = request->op;
    if (!a->care)
        return; /* an earlier step has failed, and the client has its reply */

    assert(a->care->steps > 0);
    a->care->steps--;
    switch ((enum step)request->name_index) {
    case STEP_TEXT:
        on_text(r, a, resp, now);
        break;
    case STEP_LOAD:
        on_load(r, a, request, resp);
        break;
    case STEP_LIBRARIES:
        on_libraries(r, a, resp, now);
        break;
    case STEP_CLIENTS:
        if (admin_op_of(a->op)->verb == ADMIN_USES)
            report_uses(r, a, resp);
        else
            on_clients(r, a, resp, now);
        break;
    case STEP_DELETE:
        on_delete(r, a, request, resp);
        break;
    }

    if (a->care && !a->care->steps)
        end(r, a, request);
}
