/* lua.c - runs scripts: redis.call() and its relatives, and values that cross the border. */
#include "inside.h"

#include <assert.h>
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- From an answer to a Lua value ------------------------------------------------------------------------------ */

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

/* Pushes the first value of an answer; returns where the next one begins. The answer is our own: complete and right. */
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

/* ---- redis.call() ----------------------------------------------------------------------------------------------- */

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
            *word = (struct slice){model->lua_numbers[i],
                                   double_print(model->lua_numbers[i], lua_tonumber(lua, (int)i + 1))};
        else
            return "ERR Lua redis lib command arguments must be strings or integers";
    }
    return NULL;
}

/* NULL, or why this script may not do that now. */
static const char *forbidden(const struct redis_model *model, const struct command *command, unsigned count)
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

static const char *execute(struct redis_model *model, unsigned count)
{
    const struct command *command = command_find(model->lua_words, count);
    const char *wrong = forbidden(model, command, count);
    if (wrong)
        return wrong;
    model->run->wrote |= command->flags & W;
    model->scratch.len = 0;
    struct call call = *model->running;
    call.out = &model->scratch;
    call.words = model->lua_words;
    call.count = count;
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
        wrong = execute(model, count);
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

/* ---- The other functions of `redis` ----------------------------------------------------------------------------- */

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

/* ---- From a Lua value to an answer ------------------------------------------------------------------------------ */

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

/* ---- A run ------------------------------------------------------------------------------------------------------ */

/* Makes {err, source, line} of whatever was thrown. The place is that of the innermost function that is not C. */
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
    const char *text = lua_tostring(lua, -3), *source = lua_tostring(lua, -2), *line = lua_tostring(lua, -1);
    if (source && line)
        reply_errorf(call, "%s script: %s, on %s:%s.", text ? text : "ERR unknown error", script->sha, source, line);
    else
        reply_error(call, text ? text : "ERR unknown error");
    call->model->counts.script_errors++;
}

static void set_words(lua_State *lua, const char *name, const struct slice *words, unsigned count)
{
    lua_pushstring(lua, name);
    lua_createtable(lua, (int)count, 0);
    for (unsigned i = 0; i < count; i++) {
        lua_pushlstring(lua, words[i].bytes, words[i].len);
        lua_rawseti(lua, -2, (int)i + 1);
    }
    lua_rawset(lua, LUA_GLOBALSINDEX);
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
    set_words(lua, "KEYS", call->words + 3, key_count);
    set_words(lua, "ARGV", call->words + 3 + key_count, call->count - 3 - key_count);
    lua_pushcfunction(lua, note_place);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->function);
    if (lua_pcall(lua, 0, 1, -2) == 0)
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

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

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
    lua_createtable(lua, 0, 4);
    add_function(model, "call", redis_call);
    add_function(model, "pcall", redis_pcall);
    add_function(model, "error_reply", redis_error_reply);
    add_function(model, "status_reply", redis_status_reply);
    lua_setglobal(lua, "redis");
}
