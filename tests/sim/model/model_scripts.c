/* model_scripts.c - which scripts and libraries the server knows, and their first line.
 *
 * They stay compiled when the server forgets them, so that a new schedule costs nothing. */
#include "model_internal.h"

#include <assert.h>
#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_loaded(struct redis_model *model, bool loaded)
{
    for (unsigned i = 0; i < model->script_count; i++)
        model->scripts[i].loaded = loaded;
}

void model_script_flush(struct redis_model *model)
{
    set_loaded(model, false);
}

void model_function_flush(struct redis_model *model)
{
    for (unsigned i = 0; i < model->library_count; i++)
        model->libraries[i].loaded = false;
}

void model_script_recall(struct redis_model *model)
{
    set_loaded(model, true);
    for (unsigned i = 0; i < model->library_count; i++)
        model->libraries[i].loaded = true;
}

void model_offer_functions(struct redis_model *model, enum model_functions functions)
{
    model->functions = functions;
}

void model_spoil(struct redis_model *model, model_spoil_fn *spoil)
{
    model->spoil = spoil;
}

static void hash_text(struct slice text, char sha[41])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1((const unsigned char *)text.bytes, text.len, digest);
    for (unsigned i = 0; i < SHA_DIGEST_LENGTH; i++) {
        sha[2 * i] = hex[digest[i] >> 4];
        sha[2 * i + 1] = hex[digest[i] & 15];
    }
    sha[40] = 0;
}

/* ---- The first line ---- */

/* The next word up to one of `ends`; moves *text behind it. */
static struct slice next_word(struct slice *text, const char *ends)
{
    while (text->len && strchr(ends, *text->bytes))
        *text = (struct slice){text->bytes + 1, text->len - 1};
    size_t len = 0;
    while (len < text->len && !strchr(ends, text->bytes[len]))
        len++;
    struct slice word = {text->bytes, len};
    *text = (struct slice){text->bytes + len, text->len - len};
    return word;
}

enum { WRONG = 160 };

__attribute__((format(printf, 2, 3))) static bool is_wrong(char wrong[WRONG], const char *format,
                                                           ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(wrong, WRONG, format, args);
    va_end(args);
    return false;
}

static bool read_flags(struct script *script, struct slice flags, char wrong[WRONG])
{
    for (struct slice flag = next_word(&flags, ","); flag.len; flag = next_word(&flags, ",")) {
        if (slice_is(flag, "allow-oom"))
            script->allow_oom = true;
        else if (slice_is(flag, "no-writes"))
            script->no_writes = script->allow_oom = true;
        else if (!slice_is(flag, "allow-stale") && !slice_is(flag, "no-cluster") &&
                 !slice_is(flag, "allow-cross-slot-keys"))
            return is_wrong(wrong, "ERR Unexpected flag in script shebang: %.*s", (int)flag.len,
                            flag.bytes);
    }
    return true;
}

/* Reads "#!lua flags=a,b" and leaves in *body what is to be compiled: the line's end stays, so that
 * lines keep their numbers. */
static bool read_first_line(struct script *script, struct slice *body, char wrong[WRONG])
{
    static const char mark[] = "flags=";
    const char *end = memchr(body->bytes, '\n', body->len);
    if (body->len < 2 || memcmp(body->bytes, "#!", 2) != 0)
        return true;
    if (!end)
        return is_wrong(wrong, "ERR Invalid script shebang");
    struct slice line = {body->bytes, (size_t)(end - body->bytes)};
    *body = (struct slice){end, body->len - line.len};
    struct slice word = next_word(&line, " ");
    if (!slice_is(word, "#!lua"))
        return is_wrong(wrong, "ERR Unexpected engine in script shebang: %.*s", (int)word.len,
                        word.bytes);
    for (word = next_word(&line, " "); word.len; word = next_word(&line, " ")) {
        if (word.len < strlen(mark) || memcmp(word.bytes, mark, strlen(mark)) != 0)
            return is_wrong(wrong, "ERR Unknown lua shebang option: %.*s", (int)word.len,
                            word.bytes);
        if (!read_flags(script, (struct slice){word.bytes + strlen(mark), word.len - strlen(mark)},
                        wrong))
            return false;
    }
    script->has_line = true;
    return true;
}

/* ---- Loading ---- */

static struct script *find_text(struct redis_model *model, struct slice text)
{
    for (unsigned i = 0; i < model->script_count; i++) {
        struct script *script = &model->scripts[i];
        if (slice_equal((struct slice){script->text, script->len}, text))
            return script;
    }
    return NULL;
}

static struct script *compile(struct call *call, struct slice text)
{
    struct redis_model *model = call->model;
    struct script script = {.len = text.len, .loaded = true};
    struct slice body = text;
    char wrong[WRONG];
    hash_text(text, script.sha);
    if (!read_first_line(&script, &body, wrong)) {
        reply_error(call, wrong);
        return NULL;
    }
    if (model->spoil)
        body.bytes = model->spoil(body.bytes, body.len, &body.len);
    if (!lua_compile(call, &script, body))
        return NULL;
    script.text = malloc(text.len + 1);
    model->scripts = realloc(model->scripts, (model->script_count + 1) * sizeof script);
    assert(script.text && model->scripts);
    memcpy(script.text, text.bytes, text.len);
    model->scripts[model->script_count] = script;
    return &model->scripts[model->script_count++];
}

static struct script *load(struct call *call, struct slice text)
{
    struct script *script = find_text(call->model, text);
    if (!script)
        return compile(call, text);
    script->loaded = true;
    return script;
}

void cmd_script_load(struct call *call)
{
    const struct script *script = load(call, call->words[2]);
    if (script)
        reply_word(call, script->sha);
}

static const struct script *find_sha(const struct redis_model *model, struct slice sha)
{
    for (unsigned i = 0; i < model->script_count; i++)
        if (model->scripts[i].loaded && slice_is(sha, model->scripts[i].sha))
            return &model->scripts[i];
    return NULL;
}

void cmd_script_exists(struct call *call)
{
    reply_array(call, call->count - 2);
    for (unsigned i = 2; i < call->count; i++)
        reply_integer(call, find_sha(call->model, call->words[i]) != NULL);
}

void cmd_script_flush(struct call *call)
{
    if (call->count > 3 || (call->count == 3 && !slice_is(call->words[2], "sync") &&
                            !slice_is(call->words[2], "async"))) {
        reply_error(call, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    model_script_flush(call->model);
    reply_status(call, "OK");
}

/* ---- Running ---- */

static bool read_key_count(struct call *call, unsigned *key_count)
{
    int64_t keys;
    bool is_function = slice_is(call->words[0], "fcall");
    if (is_function && !slice_integer(call->words[2], &keys)) {
        reply_error(call, "ERR Bad number of keys provided");
        return false;
    }
    if (!is_function && !word_integer(call, 2, &keys))
        return false;
    if (keys > (int64_t)call->count - 3)
        reply_error(call, "ERR Number of keys can't be greater than number of args");
    else if (keys < 0)
        reply_error(call, "ERR Number of keys can't be negative");
    else {
        *key_count = (unsigned)keys;
        return true;
    }
    return false;
}

/* A script with a first line that does not allow for it is refused before anything else about the
 * request is read. */
static bool is_too_full(struct call *call, const struct script *script)
{
    if (!call->model->full || !script->has_line || script->allow_oom ||
        call->model->plant == MODEL_FULL_RUNS)
        return false;
    reply_error(call, "OOM command not allowed when used memory > 'maxmemory'.");
    return true;
}

static void run(struct call *call, const struct script *script, unsigned key_count)
{
    call->model->counts.scripts++;
    call->model->counts.by = (unsigned)(call->connection - call->model->connections);
    lua_run(call, script, key_count);
}

void cmd_eval(struct call *call)
{
    struct script first_line = {0};
    struct slice body = call->words[1];
    char wrong[WRONG];
    unsigned key_count;
    if (read_first_line(&first_line, &body, wrong) && is_too_full(call, &first_line))
        return;
    if (!read_key_count(call, &key_count))
        return;
    const struct script *script = load(call, call->words[1]);
    if (script)
        run(call, script, key_count);
}

void cmd_evalsha(struct call *call)
{
    const struct script *script =
        call->words[1].len == 40 ? find_sha(call->model, call->words[1]) : NULL;
    unsigned key_count = 0;
    if (script && is_too_full(call, script))
        return;
    if (call->words[1].len == 40 && !read_key_count(call, &key_count))
        return;
    if (script)
        run(call, script, key_count);
    else
        reply_error(call, "NOSCRIPT No matching script. Please use EVAL.");
}

/* ---- Libraries ---- */

static bool has_no_functions(struct call *call, bool loads)
{
    enum model_functions functions = call->model->functions;
    if (functions == MODEL_NO_FUNCTIONS)
        reply_error(call, loads ? "ERR unknown command 'FUNCTION', with args beginning with: "
                                : "ERR unknown command 'FCALL', with args beginning with: ");
    else if (functions == MODEL_FUNCTION_DENIED && loads)
        reply_error(call, "NOPERM this user has no permissions to run the 'function|load' command");
    else
        return false;
    return true;
}

static struct library *find_library(struct redis_model *model, const char *name)
{
    for (unsigned i = 0; i < model->library_count; i++)
        if (strcmp(model->libraries[i].name, name) == 0)
            return &model->libraries[i];
    return NULL;
}

/* "#!lua name=NAME" */
static bool read_library_name(struct slice *body, char name[64], char wrong[WRONG])
{
    static const char mark[] = "name=";
    const char *end = memchr(body->bytes, '\n', body->len);
    if (body->len < 2 || memcmp(body->bytes, "#!", 2) != 0)
        return is_wrong(wrong, "ERR Missing library metadata");
    if (!end)
        return is_wrong(wrong, "ERR Invalid library metadata");
    struct slice line = {body->bytes, (size_t)(end - body->bytes)};
    *body = (struct slice){end, body->len - line.len};
    next_word(&line, " ");
    struct slice word = next_word(&line, " ");
    if (word.len < strlen(mark) || memcmp(word.bytes, mark, strlen(mark)) != 0)
        return is_wrong(wrong, "ERR Library name was not given");
    snprintf(name, 64, "%.*s", (int)(word.len - strlen(mark)), word.bytes + strlen(mark));
    return true;
}

static struct library *make_library(struct call *call, const char *name, struct slice text,
                                    struct slice body)
{
    struct redis_model *model = call->model;
    struct library library = {.len = text.len};
    strcpy(library.name, name);
    if (model->spoil)
        body.bytes = model->spoil(body.bytes, body.len, &body.len);
    if (!lua_load_library(call, &library, body)) {
        free(library.functions);
        return NULL;
    }
    library.text = malloc(text.len);
    model->libraries =
        realloc(model->libraries, (model->library_count + 1) * sizeof *model->libraries);
    assert(library.text && model->libraries);
    memcpy(library.text, text.bytes, text.len);
    model->libraries[model->library_count] = library;
    return &model->libraries[model->library_count++];
}

/* A library of another text under the same name is compiled, too, and takes the name. */
void cmd_function_load(struct call *call)
{
    bool replaces = call->count == 4 && slice_is(call->words[2], "replace");
    struct slice text = call->words[call->count - 1], body = text;
    char name[64], wrong[WRONG];
    if (has_no_functions(call, true))
        return;
    if (call->count > 4 || (call->count == 4 && !replaces)) {
        reply_errorf(call, "ERR Unknown option given: %.*s", (int)call->words[2].len,
                     call->words[2].bytes);
        return;
    }
    if (!read_library_name(&body, name, wrong)) {
        reply_error(call, wrong);
        return;
    }
    struct library *library = find_library(call->model, name);
    if (library && library->loaded && !replaces) {
        reply_errorf(call, "ERR Library '%s' already exists", name);
        return;
    }
    if (library && !slice_equal((struct slice){library->text, library->len}, text)) {
        library->name[0] = 0;
        library->loaded = library->in_copy = false;
        library = NULL;
    }
    library = library ? library : make_library(call, name, text, body);
    if (!library)
        return;
    library->loaded = true;
    reply_word(call, name);
}

void cmd_function_flush(struct call *call)
{
    if (call->count > 3 || (call->count == 3 && !slice_is(call->words[2], "sync") &&
                            !slice_is(call->words[2], "async"))) {
        reply_error(call, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
        return;
    }
    model_function_flush(call->model);
    reply_status(call, "OK");
}

static const struct script *find_function(const struct redis_model *model, struct slice name)
{
    for (unsigned i = 0; i < model->library_count; i++) {
        const struct library *library = &model->libraries[i];
        for (unsigned j = 0; library->loaded && j < library->function_count; j++)
            if (slice_is(name, library->functions[j].sha))
                return &library->functions[j];
    }
    return NULL;
}

void cmd_fcall(struct call *call)
{
    unsigned key_count = 0;
    if (has_no_functions(call, false))
        return;
    const struct script *function = find_function(call->model, call->words[1]);
    if (!function)
        reply_error(call, "ERR Function not found");
    else if (!is_too_full(call, function) && read_key_count(call, &key_count))
        run(call, function, key_count);
}
