/* lua_state.c - the interpreter that scripts run in: its libraries, what they may not see of them,
 * and what makes it fast. */
#include "model_internal.h"

#include <assert.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

static void open_library(lua_State *lua, const char *name, lua_CFunction library)
{
    lua_pushcfunction(lua, library);
    lua_pushstring(lua, name);
    lua_call(lua, 1, 0);
}

/* What would read files, print, or depend on more than data. A server's math.random() is the same
 * after every start of a script; here it is missed. */
static void take_away(lua_State *lua)
{
    static const char *const globals[] = {"dofile",   "loadfile", "print",
                                          "newproxy", "module",   "require"};
    for (unsigned i = 0; i < sizeof globals / sizeof *globals; i++) {
        lua_pushnil(lua);
        lua_setglobal(lua, globals[i]);
    }
    lua_getglobal(lua, "math");
    lua_pushnil(lua);
    lua_setfield(lua, -2, "random");
    lua_pushnil(lua);
    lua_setfield(lua, -2, "randomseed");
    lua_pop(lua, 1);
}

static int no_such_global(lua_State *lua)
{
    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      lua_tostring(lua, 2));
}

static int no_new_global(lua_State *lua)
{
    return luaL_error(lua, "Attempt to modify a readonly table");
}

static void guard_globals(lua_State *lua)
{
    lua_createtable(lua, 0, 2);
    lua_pushcfunction(lua, no_such_global);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, no_new_global);
    lua_setfield(lua, -2, "__newindex");
    lua_setmetatable(lua, LUA_GLOBALSINDEX);
}

/* Lets everything grow that grows with use, so that it stays where it is from here on
 * (lua_memory.c): the table of all texts, the registry, the globals, the stacks, and the room for
 * joining texts. */
static void stretch(struct redis_model *model)
{
    static const char deep[] = "local function f(n) return n == 0 and 0 or 1 + f(n - 1) end return "
                               "('x'):rep(4000) .. f(60)";
    enum { TEXTS = 2200, REFS = 64 };
    lua_State *lua = model->lua;
    int refs[REFS];
    lua_memory_scraps(model->lua_memory, true);
    for (int i = 0; i < TEXTS; i++) {
        lua_pushfstring(lua, "%d", i);
        lua_pop(lua, 1);
    }
    lua_memory_scraps(model->lua_memory, false);
    lua_gc(lua, LUA_GCCOLLECT, 0); /* makes that table anew, half as large, and the stacks small */
    lua_gc(lua, LUA_GCSTOP, 0);
    for (int i = 0; i < REFS; i++) {
        lua_pushboolean(lua, true);
        refs[i] = luaL_ref(lua, LUA_REGISTRYINDEX);
    }
    for (int i = REFS; i-- > 0;)
        luaL_unref(lua, LUA_REGISTRYINDEX, refs[i]);
    lua_pushboolean(lua, true);
    lua_setglobal(lua, "KEYS");
    lua_pushboolean(lua, true);
    lua_setglobal(lua, "ARGV");
    bool fine = luaL_dostring(lua, deep) == 0;
    assert(fine);
}

void lua_begin(struct redis_model *model)
{
    model->lua_memory = lua_memory_open();
    lua_State *lua = model->lua = lua_newstate(lua_memory_move, model->lua_memory);
    assert(lua);
    lua_gc(lua, LUA_GCSTOP, 0);
    open_library(lua, "", luaopen_base);
    open_library(lua, LUA_TABLIBNAME, luaopen_table);
    open_library(lua, LUA_STRLIBNAME, luaopen_string);
    open_library(lua, LUA_MATHLIBNAME, luaopen_math);
    take_away(lua);
    lua_open_redis(model);
    lua_hasten_numbers(lua);
    lua_hasten_match(lua);
    stretch(model);
    guard_globals(lua);
    lua_settop(lua, 0);
    lua_memory_keep(model->lua_memory);
}

void lua_end(struct redis_model *model)
{
    for (unsigned i = 0; i < model->script_count; i++)
        free(model->scripts[i].text);
    free(model->scripts);
    for (unsigned i = 0; i < model->library_count; i++) {
        free(model->libraries[i].text);
        free(model->libraries[i].functions);
    }
    free(model->libraries);
    lua_close(model->lua);
    lua_memory_close(model->lua_memory);
}
