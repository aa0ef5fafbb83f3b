/* model_requests.c - from a connection's bytes to a command, and the requests that wait. */
#include "model_internal.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Which command ---- */

static const struct command commands[] = {
#define COMMAND(name, words, flags, function) {name, words, flags, function},
#include "commands.def"
#undef COMMAND
};

#define COMMANDS (sizeof commands / sizeof *commands)
#define PLACES 256 /* of the table by hash: more than twice the commands */

static struct place {
    const struct command *command;
    size_t len;
    char shouted[COMMAND_NAME]; /* as scripts and clients write it */
} places[PLACES];

/* In whatever case. Names differ in how they begin and end. */
static unsigned place_of(const char *name, size_t len)
{
    enum { LETTER = 31 };
    unsigned first = name[0] & LETTER, middle = name[len / 2] & LETTER,
             last = name[len - 1] & LETTER;
    return ((first * 31 + middle) * 31 + last * 7 + (unsigned)len) % PLACES;
}

static void fill_places(void)
{
    for (unsigned i = 0; i < COMMANDS; i++) {
        size_t len = strlen(commands[i].name);
        unsigned at = place_of(commands[i].name, len);
        while (places[at].command)
            at = (at + 1) % PLACES;
        places[at] = (struct place){.command = &commands[i], .len = len};
        for (size_t j = 0; j < len; j++)
            places[at].shouted[j] = (char)toupper(commands[i].name[j]);
    }
}

static bool is_name(const struct place *place, const char *name, size_t len)
{
    return place->len == len && (memcmp(place->shouted, name, len) == 0 ||
                                 strncasecmp(place->command->name, name, len) == 0);
}

static const struct command *look_up(const char *name, size_t len)
{
    for (unsigned at = place_of(name, len); places[at].command; at = (at + 1) % PLACES)
        if (is_name(&places[at], name, len))
            return places[at].command;
    return NULL;
}

static const struct command *look_up_two(const struct slice *words)
{
    char name[COMMAND_NAME];
    size_t len = words[0].len + 1 + words[1].len;
    if (len >= sizeof name)
        return NULL;
    memcpy(name, words[0].bytes, words[0].len);
    name[words[0].len] = '|';
    memcpy(name + words[0].len + 1, words[1].bytes, words[1].len);
    return look_up(name, len);
}

/* Of a command of two words whose second one is unknown, the row of the first: it says so. */
const struct command *command_find(const struct slice *words, unsigned count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_places);
    const struct command *command = words[0].len ? look_up(words[0].bytes, words[0].len) : NULL;
    if (!command || !(command->flags & T) || count < 2)
        return command;
    const struct command *second = look_up_two(words);
    return second ? second : command;
}

bool command_words_fit(const struct command *command, unsigned count)
{
    return command->words < 0 ? count >= (unsigned)-command->words
                              : count == (unsigned)command->words;
}

bool command_is_forbidden(const struct redis_model *model, const struct command *command)
{
    return model->forbidden && strcmp(command->name, model->forbidden) == 0;
}

/* ---- One request ---- */

static void reply_unknown(struct call *call)
{
    char args[160];
    size_t len = 0;
    args[0] = 0;
    for (unsigned i = 1; i < call->count && len < 128; i++) {
        int shown = (int)(call->words[i].len < 128 - len ? call->words[i].len : 128 - len);
        len +=
            (size_t)snprintf(args + len, sizeof args - len, "'%.*s' ", shown, call->words[i].bytes);
    }
    int shown = call->words[0].len < 128 ? (int)call->words[0].len : 128;
    reply_errorf(call, "ERR unknown command '%.*s', with args beginning with: %s", shown,
                 call->words[0].bytes, args);
}

/* A script may write. */
static bool may_write(const struct command *command)
{
    bool is_call = strcmp(command->name, "fcall") == 0 || strncmp(command->name, "eval", 4) == 0;
    return is_call || command->flags & W;
}

static void execute(struct call *call)
{
    const struct command *command = command_find(call->words, call->count);
    call->model->counts.requests++;
    call->connection->was_asking = call->connection->is_asking;
    call->connection->is_asking = false;
    if (!command)
        reply_unknown(call);
    else if (!command_words_fit(command, call->count))
        reply_errorf(call, "ERR wrong number of arguments for '%s' command", command->name);
    else if (command_is_forbidden(call->model, command))
        reply_errorf(call, "NOPERM this user has no permissions to run the '%s' command",
                     command->name);
    else if (!cluster_admits(call, command))
        return;
    else if (call->model->is_replica && may_write(command))
        reply_error(call, "READONLY You can't write against a read only replica.");
    else if (call->model->full && command->flags & M)
        reply_error(call, "OOM command not allowed when used memory > 'maxmemory'.");
    else if (is_subscribed(call->connection) && !(command->flags & S))
        reply_errorf(call,
                     "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT "
                     "/ RESET are allowed "
                     "in this context",
                     command->name);
    else
        command->execute(call);
}

/* ---- Bytes to words ---- */

#define MOST_BYTES (512u << 20)

struct reader {
    const char *at, *end;
};

enum found { INCOMPLETE, FOUND, BROKEN };

/* A line "*3" or "$12": no sign, no zero in front. */
static enum found read_count(struct reader *reader, char mark, unsigned *count)
{
    const char *at = reader->at, *end = reader->end;
    unsigned value = 0, digit;
    if (at == end)
        return INCOMPLETE;
    if (*at++ != mark)
        return BROKEN;
    const char *first = at;
    for (; at < end && (digit = (unsigned char)*at - (unsigned)'0') <= 9 && value <= MOST_BYTES;
         at++)
        value = 10 * value + digit;
    if (at == end)
        return INCOMPLETE;
    if (*at != '\r' || at == first || (*first == '0' && at > first + 1) || value > MOST_BYTES)
        return BROKEN;
    if (at + 1 == end)
        return INCOMPLETE;
    *count = value;
    reader->at = at + 2;
    return FOUND;
}

static enum found read_words(struct redis_model *model, struct reader *reader, unsigned *count)
{
    enum found found = read_count(reader, '*', count);
    if (found == FOUND && *count > model->word_room) {
        model->word_room = *count;
        model->words = realloc(model->words, *count * sizeof *model->words);
        if (!model->words)
            abort();
    }
    for (unsigned i = 0; found == FOUND && i < *count; i++) {
        unsigned len = 0;
        found = read_count(reader, '$', &len);
        if (found == FOUND && (size_t)(reader->end - reader->at) < (size_t)len + 2)
            found = INCOMPLETE;
        if (found == FOUND) {
            model->words[i] = (struct slice){reader->at, len};
            reader->at += len + 2;
        }
    }
    return found;
}

static void refuse_bytes(struct redis_model *model, struct connection *c)
{
    struct call call = {.model = model, .connection = c, .out = &c->out};
    reply_error(&call,
                "ERR Protocol error: the model takes requests as arrays of bulk strings only");
    c->closing = true;
}

/* Executes the first request of `bytes`, for the key `serve` if it waited for that. *size is that
 * of the request. */
static enum found execute_first(struct redis_model *model, struct connection *c, struct slice bytes,
                                const struct slice *serve, size_t *size)
{
    struct reader reader = {bytes.bytes, bytes.bytes + bytes.len};
    unsigned count = 0;
    enum found found = read_words(model, &reader, &count);
    *size = (size_t)(reader.at - bytes.bytes);
    if (found == FOUND && count)
        execute(&(struct call){.model = model,
                               .connection = c,
                               .db = &c->db,
                               .out = &c->out,
                               .words = model->words,
                               .count = count,
                               .serve = serve});
    return found;
}

/* ---- Waiting ---- */

void command_block(struct call *call, int64_t until_ms)
{
    struct connection *c = call->connection;
    if (c->blocked) /* served in vain: it goes on waiting as before */
        return;
    c->blocked = true;
    c->blocked_until = until_ms;
    c->blocked_since = call->model->blockings++;
    call->model->blocked_count++;
}

struct ready {
    unsigned db;
    size_t len;
};

void list_got_something(struct call *call, struct slice name)
{
    if (!call->model->blocked_count)
        return;
    struct ready ready = {.db = *call->db, .len = name.len};
    buffer_add(&call->model->ready, &ready, sizeof ready);
    buffer_add(&call->model->ready, name.bytes, name.len);
}

/* Who has waited longest of those that began to wait after `since`. */
static struct connection *next_blocked(struct redis_model *model, uint64_t since)
{
    struct connection *next = NULL;
    for (unsigned i = 0; i < model->connection_count; i++) {
        struct connection *c = &model->connections[i];
        if (c->blocked && c->blocked_since >= since &&
            (!next || c->blocked_since < next->blocked_since))
            next = c;
    }
    return next;
}

static void unblock(struct redis_model *model, struct connection *c, size_t request)
{
    c->blocked = false;
    model->blocked_count--;
    buffer_cut(&c->in, request);
}

static void serve_key(struct redis_model *model, unsigned db, struct slice name)
{
    struct connection *c;
    for (uint64_t since = 0; (c = next_blocked(model, since));) {
        since = c->blocked_since + 1;
        size_t before = c->out.len, size;
        if (c->db != db)
            continue;
        execute_first(model, c, slice_of(&c->in), &name, &size);
        if (c->out.len != before)
            unblock(model, c, size);
    }
}

static void serve_ready(struct redis_model *model)
{
    for (size_t at = 0; at < model->ready.len;) {
        struct ready ready;
        memcpy(&ready, model->ready.bytes + at, sizeof ready);
        serve_key(model, ready.db,
                  (struct slice){model->ready.bytes + at + sizeof ready, ready.len});
        at += sizeof ready + ready.len;
    }
    model->ready.len = 0;
}

/* ---- The loop ---- */

/* Executes what came whole where it lies, in the caller's memory; returns what is left for
 * execute_all(). */
static struct slice execute_whole(struct redis_model *model, struct connection *c,
                                  struct slice bytes)
{
    size_t size;
    while (bytes.len && !c->in.len && !c->closing) {
        store_compact(&model->store);
        if (execute_first(model, c, bytes, NULL, &size) != FOUND || c->blocked)
            break;
        bytes = (struct slice){bytes.bytes + size, bytes.len - size};
        serve_ready(model);
    }
    return bytes;
}

static void execute_all(struct redis_model *model, struct connection *c)
{
    enum found found = FOUND;
    while (found == FOUND && c->in.len && !c->blocked && !c->closing) {
        size_t size;
        store_compact(&model->store);
        found = execute_first(model, c, slice_of(&c->in), NULL, &size);
        if (found == BROKEN)
            refuse_bytes(model, c);
        if (found == FOUND && !c->blocked)
            buffer_cut(&c->in, size);
        serve_ready(model);
    }
}

/* Whoever was served goes on with what it had sent behind that; this may serve others. */
static void execute_rest(struct redis_model *model)
{
    for (unsigned i = 0; i < model->connection_count; i++) {
        struct connection *c = &model->connections[i];
        size_t before = c->in.len;
        if (c->connected && !c->blocked && c->in.len)
            execute_all(model, c);
        if (c->in.len != before)
            i = -1u;
    }
}

void model_feed(struct redis_model *model, unsigned connection, const void *bytes, size_t len)
{
    struct connection *c = &model->connections[connection];
    if (!model_connected(model, connection))
        return;
    struct slice rest = execute_whole(model, c, (struct slice){bytes, len});
    buffer_add(&c->in, rest.bytes, rest.len);
    execute_all(model, c);
    execute_rest(model);
}

int64_t model_next_event(const struct redis_model *model)
{
    int64_t next = MODEL_NEVER;
    for (unsigned i = 0; i < model->connection_count && model->blocked_count; i++) {
        const struct connection *c = &model->connections[i];
        int64_t at = c->blocked && c->blocked_until ? (c->blocked_until + 1) * 1000 : MODEL_NEVER;
        next = at < next ? at : next;
    }
    return next;
}

/* The request that waits, in model->words; returns its size. */
static size_t read_blocked(struct redis_model *model, const struct connection *c)
{
    struct reader reader = {c->in.bytes, c->in.bytes + c->in.len};
    unsigned count;
    read_words(model, &reader, &count);
    return (size_t)(reader.at - c->in.bytes);
}

static void run_out(struct redis_model *model, struct connection *c)
{
    struct call call = {.model = model, .connection = c, .out = &c->out};
    size_t size = read_blocked(model, c);
    if (slice_is(model->words[0], "wait"))
        reply_integer(&call, model->replicas);
    else
        reply_null_array(&call);
    unblock(model, c, size);
}

void model_advance(struct redis_model *model)
{
    if (model->now_us < model_next_event(model))
        return;
    for (unsigned i = 0; i < model->connection_count; i++) {
        struct connection *c = &model->connections[i];
        if (c->blocked && c->blocked_until && now_ms(model) > c->blocked_until)
            run_out(model, c);
    }
    execute_rest(model);
}

void model_replicas(struct redis_model *model, unsigned count)
{
    model->replicas = count;
    for (unsigned i = 0; i < model->connection_count; i++) {
        struct connection *c = &model->connections[i];
        size_t size = c->blocked ? read_blocked(model, c) : 0, before = c->out.len;
        if (!c->blocked || !slice_is(model->words[0], "wait"))
            continue;
        execute_first(model, c, slice_of(&c->in), NULL, &size);
        if (c->out.len != before)
            unblock(model, c, size);
    }
    execute_rest(model);
}
