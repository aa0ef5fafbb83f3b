/* lua.c - runs scripts: redis.call() and its relatives, and values that cross the border. */
#include "model_internal.h"

#include <assert.h>
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- From an answer to a Lua value ---- */

/* Pushes {name = text} with the text on top of the stack. */
static void wrap_as(lua_State *lua, const char *name)
{
    lua_createtable(lua, 0, 2);
    lua_insert(lua, -2);
    lua_setfield(lua, -2, name);
}

static void push_error(lua_State *lua, const char *text, size_t len)
{
    lua_pushlstring(lua, text, len);
    wrap_as(lua, "err");
    lua_pushboolean(lua, true); /* scripts can see this one, too */
    lua_setfield(lua, -2, "ignore_error_stats_update");
}

static int64_t read_number(const char *line, const char **end)
{
    uint64_t number = 0;
    const char *at = line + (*line == '-');
    for (; *at != '\r'; at++)
        number = 10 * number + (uint64_t)(*at - '0');
    *end = at;
    return *line == '-' ? (int64_t)(0 - number) : (int64_t)number;
}

/* Pushes the first value of an answer; returns where the next one begins. The answer is our own:
 * complete and right. */
static const char *push_value(lua_State *lua, const char *at)
{
    const char *line = at + 1, *end;
    int64_t number = 0;
    if (*at == '+' || *at == '-')
        end = strchr(line, '\r');
    else
        number = read_number(line, &end);
    const char *next = end + 2;
    switch (*at) {
    case ':':
        lua_pushnumber(lua, (lua_Number)number);
        return next;
    case '+':
        lua_pushlstring(lua, line, (size_t)(end - line));
        wrap_as(lua, "ok");
        return next;
    case '-':
        push_error(lua, line, (size_t)(end - line));
        return next;
    }
    if (number < 0) {
        lua_pushboolean(lua, false);
        return next;
    }
    if (*at == '$') {
        lua_pushlstring(lua, next, (size_t)number);
        return next + number + 2;
    }
    luaL_checkstack(lua, 4, "the answer is too deep");
    lua_createtable(lua, (int)number, 0);
    for (int i = 1; i <= number; i++) {
        next = push_value(lua, next);
        lua_rawseti(lua, -2, i);
    }
    return next;
}

/* ---- redis.call() ---- */

static struct redis_model *model_of(lua_State *lua)
{
    return lua_touserdata(lua, lua_upvalueindex(1));
}

static void room_for_words(struct redis_model *model, unsigned count)
{
    if (count <= model->lua_word_room)
        return;
    model->lua_word_room = 2 * count;
    model->lua_words = realloc(model->lua_words, 2 * count * sizeof *model->lua_words);
    model->lua_numbers = realloc(model->lua_numbers, 2 * count * sizeof *model->lua_numbers);
    assert(model->lua_words && model->lua_numbers);
}

/* NULL, or what is wrong with the arguments on the stack. */
static const char *words_of_stack(lua_State *lua, struct redis_model *model, unsigned count)
{
    if (!count)
        return "ERR Please specify at least one argument for this redis lib call";
    room_for_words(model, count);
    for (unsigned i = 0; i < count; i++) {
        struct slice *word = &model->lua_words[i];
        int type = lua_type(lua, (int)i + 1);
        if (type == LUA_TSTRING)
            word->bytes = lua_tolstring(lua, (int)i + 1, &word->len);
        else if (type == LUA_TNUMBER)
            *word =
                (struct slice){model->lua_numbers[i],
                               double_print(model->lua_numbers[i], lua_tonumber(lua, (int)i + 1))};
        else
            return "ERR Lua redis lib command arguments must be strings or integers";
    }
    return NULL;
}

/* NULL, or why this script may not do that now. */
static const char *forbidden(const struct redis_model *model, const struct command *command,
                             unsigned count)
{
    const struct run *run = model->run;
    if (!command)
        return "ERR Unknown Redis command called from script";
    if (!command_words_fit(command, count))
        return "ERR Wrong number of args calling Redis command from script";
    if (command->flags & N)
        return "ERR This Redis command is not allowed from script";
    if (command->flags & W && run->script->no_writes)
        return "ERR Write commands are not allowed from read-only scripts.";
    if (command->flags & M && model->full && !run->script->allow_oom && !run->wrote)
        return "OOM command not allowed when used memory > 'maxmemory'.";
    return NULL;
}

/* Notes what is called; true if that was called just before. */
static bool is_repeated(struct redis_model *model, const struct command *command, unsigned count)
{
    struct run *run = model->run;
    char key[sizeof run->last_key] = "";
    const struct slice *word = &model->lua_words[1];
    if (count > 1)
        memcpy(key, word->bytes, word->len < sizeof key ? word->len : sizeof key);
    bool repeated = command && run->last == command && memcmp(key, run->last_key, sizeof key) == 0;
    run->last = command;
    memcpy(run->last_key, key, sizeof key);
    return repeated;
}

static unsigned current_line(lua_State *lua)
{
    lua_Debug place = {0};
    bool known = lua_getstack(lua, 1, &place) && lua_getinfo(lua, "l", &place);
    return known && place.currentline > 0 ? (unsigned)place.currentline : 0;
}

static void note_call(lua_State *lua, struct redis_model *model, bool repeated)
{
    unsigned line = current_line(lua);
    if (line >= model->lines)
        return;
    model->line[line].is_called = true;
    if (!model->line[line].first && !repeated)
        model->line[line].first = model->counts.calls;
}

/* NULL, or the error with which a test, or a right that is missing, refuses this call. */
static const char *refused(lua_State *lua, struct redis_model *model, const struct command *command,
                           unsigned count)
{
    struct model_counts *counts = &model->counts;
    bool fails = ++counts->calls == model->fail_at;
    bool matters = model->fail_at || model->line;
    bool repeated = matters && is_repeated(model, command, count);
    if (fails && repeated) {
        model->fail_at++;
        fails = false;
    }
    if (model->line)
        note_call(lua, model, repeated);
    if (!fails && (!command || !command_is_forbidden(model, command)))
        return NULL;
    counts->refused++;
    model->run->last = NULL;
    memcpy(counts->refused_in, model->run->script->sha, sizeof counts->refused_in);
    counts->refused_line = (int)current_line(lua);
    return fails ? model->fail_error
                 : "ERR The user executing the script can't run this command or subcommand";
}

static const char *execute(lua_State *lua, struct redis_model *model, unsigned count)
{
    const struct command *command = command_find(model->lua_words, count);
    const char *wrong = refused(lua, model, command, count);
    wrong = wrong ? wrong : forbidden(model, command, count);
    if (wrong)
        return wrong;
    struct call call = *model->running;
    call.out = &model->scratch;
    call.words = model->lua_words;
    call.count = count;
    wrong = cluster_refuses_in_script(&call, command);
    if (wrong)
        return wrong;
    model->run->wrote |= command->flags & W;
    model->scratch.len = 0;
    command->execute(&call);
    buffer_add(&model->scratch, "", 1); /* push_value() looks for ends of lines */
    return NULL;
}

/* Pushes the answer; true if it is an error. */
static bool call_from_lua(lua_State *lua)
{
    struct redis_model *model = model_of(lua);
    unsigned count = (unsigned)lua_gettop(lua);
    const char *wrong = words_of_stack(lua, model, count);
    if (!wrong)
        wrong = execute(lua, model, count);
    if (wrong)
        push_error(lua, wrong, strlen(wrong));
    else
        push_value(lua, model->scratch.bytes);
    return wrong || model->scratch.bytes[0] == '-';
}

static int redis_call(lua_State *lua)
{
    return call_from_lua(lua) ? lua_error(lua) : 1;
}

static int redis_pcall(lua_State *lua)
{
    call_from_lua(lua);
    return 1;
}

/* True if the user may call that: the command, whatever its arguments are. */
static int redis_acl_check_cmd(lua_State *lua)
{
    struct redis_model *model = model_of(lua);
    unsigned count = (unsigned)lua_gettop(lua);
    const char *wrong = words_of_stack(lua, model, count);
    const struct command *command = wrong ? NULL : command_find(model->lua_words, count);
    if (!wrong && !command)
        wrong = "ERR Invalid command passed to redis.acl_check_cmd()";
    if (wrong) {
        push_error(lua, wrong, strlen(wrong));
        return lua_error(lua);
    }
    lua_pushboolean(lua, !command_is_forbidden(model, command));
    return 1;
}

/* ---- The other functions of `redis` ---- */

static bool has_one_string(lua_State *lua)
{
    if (lua_gettop(lua) == 1 && lua_type(lua, 1) == LUA_TSTRING)
        return true;
    static const char wrong[] = "ERR wrong number or type of arguments";
    push_error(lua, wrong, strlen(wrong));
    return false;
}

static int redis_status_reply(lua_State *lua)
{
    if (has_one_string(lua))
        wrap_as(lua, "ok");
    return 1;
}

/* The first word is the error's code; a single word has the code ERR. */
static int redis_error_reply(lua_State *lua)
{
    if (!has_one_string(lua))
        return 1;
    const char *text = lua_tostring(lua, 1);
    text += *text == '-';
    if (!strchr(text, ' '))
        lua_pushfstring(lua, "ERR %s", text);
    else
        lua_pushstring(lua, text);
    size_t len;
    text = lua_tolstring(lua, -1, &len);
    push_error(lua, text, len);
    return 1;
}

/* pcall(): what redis.call() throws is a table, what is caught is its text. */
static int global_pcall(lua_State *lua)
{
    luaL_checkany(lua, 1);
    bool fine = lua_pcall(lua, lua_gettop(lua) - 1, LUA_MULTRET, 0) == 0;
    if (!fine && lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        if (lua_isstring(lua, -1))
            lua_replace(lua, -2);
        else
            lua_pop(lua, 1);
    }
    lua_pushboolean(lua, fine);
    lua_insert(lua, 1);
    return lua_gettop(lua);
}

/* ---- From a Lua value to an answer ---- */

static void reply_value(struct call *call, lua_State *lua);

/* True if the table on top has this field as a string, which is then on top of it. */
static bool has_field(lua_State *lua, const char *name)
{
    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    if (lua_type(lua, -1) == LUA_TSTRING)
        return true;
    lua_pop(lua, 1);
    return false;
}

/* Up to the first nil. */
static void reply_elements(struct call *call, lua_State *lua)
{
    int count = 0;
    for (bool there = true; there; count += there) {
        lua_rawgeti(lua, -1, count + 1);
        there = !lua_isnil(lua, -1);
        lua_pop(lua, 1);
    }
    reply_array(call, (size_t)count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(lua, -1, i);
        reply_value(call, lua);
    }
}

static void reply_table(struct call *call, lua_State *lua)
{
    if (has_field(lua, "err")) {
        reply_error(call, lua_tostring(lua, -1));
        lua_pop(lua, 1);
    } else if (has_field(lua, "ok")) {
        reply_status(call, lua_tostring(lua, -1));
        lua_pop(lua, 1);
    } else {
        reply_elements(call, lua);
    }
}

static int64_t cut_off(const struct call *call, double number)
{
    if (call->model->plant == MODEL_ROUNDS)
        number = round(number);
    return number >= -0x1p63 && number < 0x1p63 ? (int64_t)number : INT64_MIN;
}

/* Pops it. */
static void reply_value(struct call *call, lua_State *lua)
{
    struct slice text;
    luaL_checkstack(lua, 4, "the answer is too deep");
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        text.bytes = lua_tolstring(lua, -1, &text.len);
        reply_bulk(call, text);
        break;
    case LUA_TNUMBER:
        reply_integer(call, cut_off(call, lua_tonumber(lua, -1)));
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1))
            reply_integer(call, 1);
        else
            reply_null(call);
        break;
    case LUA_TTABLE:
        reply_table(call, lua);
        break;
    default:
        reply_null(call);
    }
    lua_pop(lua, 1);
}

/* ---- A run ---- */

/* Makes {err, source, line} of whatever was thrown. The place is that of the innermost function
 * that is not C. */
static int note_place(lua_State *lua)
{
    lua_Debug place;
    if (lua_type(lua, 1) != LUA_TTABLE) {
        const char *text = lua_tostring(lua, 1);
        lua_pushfstring(lua, "ERR %s", text ? text : "nil");
        lua_createtable(lua, 0, 3);
        lua_insert(lua, -2);
        lua_setfield(lua, -2, "err");
        lua_replace(lua, 1);
    }
    bool known = lua_getstack(lua, 1, &place) && lua_getinfo(lua, "nSl", &place);
    if (known && strcmp(place.what, "C") == 0)
        known = lua_getstack(lua, 2, &place) && lua_getinfo(lua, "nSl", &place);
    if (known) {
        lua_pushstring(lua, place.source);
        lua_setfield(lua, 1, "source");
        lua_pushinteger(lua, place.currentline);
        lua_setfield(lua, 1, "line");
    }
    lua_settop(lua, 1);
    return 1;
}

/* The thrown table is on top. */
static void reply_thrown(struct call *call, const struct script *script, lua_State *lua)
{
    lua_getfield(lua, -1, "err");
    lua_getfield(lua, -2, "source");
    lua_getfield(lua, -3, "line");
    const char *text = lua_tostring(lua, -3), *source = lua_tostring(lua, -2),
               *line = lua_tostring(lua, -1);
    if (source && line)
        reply_errorf(call, "%s script: %s, on %s:%s.", text ? text : "ERR unknown error",
                     script->sha, source, line);
    else
        reply_error(call, text ? text : "ERR unknown error");
    call->model->counts.script_errors++;
}

static void push_words(lua_State *lua, const struct slice *words, unsigned count)
{
    lua_createtable(lua, (int)count, 0);
    for (unsigned i = 0; i < count; i++) {
        lua_pushlstring(lua, words[i].bytes, words[i].len);
        lua_rawseti(lua, -2, (int)i + 1);
    }
}

static void set_words(lua_State *lua, const char *name, const struct slice *words, unsigned count)
{
    lua_pushstring(lua, name);
    push_words(lua, words, count);
    lua_rawset(lua, LUA_GLOBALSINDEX);
}

/* A script finds its words in globals, a function in its arguments. Returns how many it has. */
static int push_script(struct call *call, const struct script *script, unsigned key_count)
{
    lua_State *lua = call->model->lua;
    const struct slice *keys = call->words + 3, *args = keys + key_count;
    unsigned arg_count = call->count - 3 - key_count;
    if (!script->is_function) {
        set_words(lua, "KEYS", keys, key_count);
        set_words(lua, "ARGV", args, arg_count);
    }
    lua_pushcfunction(lua, note_place);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->function);
    if (!script->is_function)
        return 0;
    push_words(lua, keys, key_count);
    push_words(lua, args, arg_count);
    return 2;
}

void lua_run(struct call *call, const struct script *script, unsigned key_count)
{
    struct redis_model *model = call->model;
    lua_State *lua = model->lua;
    struct run run = {.script = script};
    unsigned db = *call->db; /* SELECT in a script ends with it */
    struct call running = *call;
    running.run = model->run = &run;
    running.db = &db;
    model->running = &running;
    int count = push_script(call, script, key_count);
    if (lua_pcall(lua, count, 1, -count - 2) == 0)
        reply_value(call, lua);
    else
        reply_thrown(call, script, lua);
    lua_settop(lua, 0);
    if (lua_memory_has_garbage(model->lua_memory))
        lua_memory_go_back(model->lua_memory);
}

bool lua_compile(struct call *call, struct script *script, struct slice body)
{
    lua_State *lua = call->model->lua;
    lua_memory_go_back(call->model->lua_memory);
    if (luaL_loadbuffer(lua, body.bytes, body.len, "@user_script") != 0) {
        reply_errorf(call, "ERR Error compiling script (new function): %s", lua_tostring(lua, -1));
        lua_settop(lua, 0);
        return false;
    }
    script->function = luaL_ref(lua, LUA_REGISTRYINDEX);
    lua_memory_keep(call->model->lua_memory);
    return true;
}

/* ---- Libraries ---- */

static bool has_flag(lua_State *lua, const char *flag)
{
    bool found = false;
    lua_getfield(lua, 1, "flags");
    for (int i = 1; lua_istable(lua, -1) && !found; i++) {
        lua_rawgeti(lua, -1, i);
        const char *text = lua_tostring(lua, -1);
        bool is_end = !text;
        found = text && strcmp(text, flag) == 0;
        lua_pop(lua, 1);
        if (is_end)
            break;
    }
    lua_pop(lua, 1);
    return found;
}

/* redis.register_function{function_name=, callback=, flags=} */
static int redis_register_function(lua_State *lua)
{
    struct library *library = model_of(lua)->loading;
    luaL_checktype(lua, 1, LUA_TTABLE);
    if (!library)
        return luaL_error(lua, "redis.register_function can only be called on FUNCTION LOAD");
    struct script function = {.has_line = true, .loaded = true, .is_function = true};
    function.no_writes = has_flag(lua, "no-writes");
    function.allow_oom = function.no_writes || has_flag(lua, "allow-oom");
    lua_getfield(lua, 1, "function_name");
    snprintf(function.sha, sizeof function.sha, "%s", luaL_checkstring(lua, -1));
    lua_getfield(lua, 1, "callback");
    luaL_checktype(lua, -1, LUA_TFUNCTION);
    function.function = luaL_ref(lua, LUA_REGISTRYINDEX);
    library->functions =
        realloc(library->functions, (library->function_count + 1) * sizeof function);
    assert(library->functions);
    library->functions[library->function_count++] = function;
    return 0;
}

bool lua_load_library(struct call *call, struct library *library, struct slice body)
{
    struct redis_model *model = call->model;
    lua_State *lua = model->lua;
    lua_memory_go_back(model->lua_memory);
    bool fine = luaL_loadbuffer(lua, body.bytes, body.len, "@user_function") == 0;
    if (!fine)
        reply_errorf(call, "ERR Error compiling function: %s", lua_tostring(lua, -1));
    model->loading = library;
    if (fine && lua_pcall(lua, 0, 0, 0) != 0) {
        reply_errorf(call, "ERR Error registering functions: %s", lua_tostring(lua, -1));
        fine = false;
    }
    model->loading = NULL;
    lua_settop(lua, 0);
    if (fine)
        lua_memory_keep(model->lua_memory);
    return fine;
}

/* ---- Opening ---- */

static void add_function(struct redis_model *model, const char *name, lua_CFunction function)
{
    lua_pushlightuserdata(model->lua, model);
    lua_pushcclosure(model->lua, function, 1);
    lua_setfield(model->lua, -2, name);
}

void lua_open_redis(struct redis_model *model)
{
    lua_State *lua = model->lua;
    lua_pushcfunction(lua, global_pcall);
    lua_setglobal(lua, "pcall");
    lua_createtable(lua, 0, 6);
    add_function(model, "register_function", redis_register_function);
    add_function(model, "call", redis_call);
    add_function(model, "pcall", redis_pcall);
    add_function(model, "acl_check_cmd", redis_acl_check_cmd);
    add_function(model, "error_reply", redis_error_reply);
    add_function(model, "status_reply", redis_status_reply);
    lua_setglobal(lua, "redis");
}
