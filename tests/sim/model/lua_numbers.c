/* lua_numbers.c - texts of numbers and numbers of texts inside the interpreter. Nearly all numbers
 * here are whole: those are written and read without the cost of printf() and strtod(), to which
 * all others go.
 *
 * What Lua calls itself (a number joined to a text, a text in a sum) is caught by the linker
 * (tests/CMakeLists.txt). */
#include "model_internal.h"

#include <lauxlib.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Called by scripts ---- */

/* string.format(): the format is text and %.0f, as often as there are numbers. */
static int format_whole(lua_State *lua)
{
    char out[256];
    size_t len, at = 0;
    int next = 2;
    const char *format = lua_tolstring(lua, 1, &len);
    bool simple = lua_type(lua, 1) == LUA_TSTRING;
    for (size_t i = 0; simple && i < len; i++) {
        bool number = len - i >= 4 && memcmp(format + i, "%.0f", 4) == 0;
        simple = at < sizeof out - DOUBLE_TEXT &&
                 (number ? is_whole(lua_tonumber(lua, next)) : format[i] != '%') &&
                 (!number || lua_type(lua, next) == LUA_TNUMBER);
        if (simple && number) {
            at += integer_print(out + at, (int64_t)lua_tonumber(lua, next++));
            i += 3;
        } else if (simple) {
            out[at++] = format[i];
        }
    }
    if (simple) {
        lua_pushlstring(lua, out, at);
        return 1;
    }
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_call(lua, lua_gettop(lua) - 1, 1);
    return 1;
}

/* Digits alone, fewer than a double can miss one of; where they end. NULL: it is no such text. */
static const char *read_digits(const char *text, lua_Number *value)
{
    enum { MOST = 16 };
    int64_t sum = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && at - text < MOST; at++)
        sum = 10 * sum + (*at - '0');
    *value = (lua_Number)sum;
    return *at || at == text || sum >= INT64_C(1) << 53 ? NULL : at;
}

static int number_of_digits(lua_State *lua)
{
    size_t len = 0;
    const char *text =
        lua_gettop(lua) == 1 && lua_type(lua, 1) == LUA_TSTRING ? lua_tolstring(lua, 1, &len) : "";
    lua_Number value;
    const char *end = read_digits(text, &value);
    if (end && end == text + len) {
        lua_pushnumber(lua, value);
        return 1;
    }
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_call(lua, lua_gettop(lua) - 1, 1);
    return 1;
}

/* The function of that name of the table on top, with the original one behind it. */
static void put_before(lua_State *lua, const char *name, lua_CFunction function)
{
    lua_getfield(lua, -1, name);
    lua_pushcclosure(lua, function, 1);
    lua_setfield(lua, -2, name);
}

void lua_hasten_numbers(lua_State *lua)
{
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    put_before(lua, "tonumber", number_of_digits);
    lua_getfield(lua, -1, "string");
    put_before(lua, "format", format_whole);
    lua_pop(lua, 2);
}

/* ---- Called by Lua ---- */

double __real_strtod(const char *text, char **end);
double __wrap_strtod(const char *text, char **end);
int __wrap___sprintf_chk(char *to, int flag, size_t size, const char *format, ...);

double __wrap_strtod(const char *text, char **end)
{
    lua_Number value;
    const char *behind = read_digits(text, &value);
    if (!behind)
        return __real_strtod(text, end);
    if (end)
        *end = (char *)behind;
    return value;
}

/* "%.14g" writes whole numbers of up to 14 digits as such. */
int __wrap___sprintf_chk(char *to, int flag, size_t size, const char *format, ...)
{
    va_list args;
    (void)flag, (void)size;
    va_start(args, format);
    double number = strcmp(format, LUA_NUMBER_FMT) == 0 ? va_arg(args, double) : NAN;
    va_end(args);
    if (is_whole(number) && fabs(number) < 1e14) {
        size_t len = integer_print(to, (int64_t)number);
        to[len] = 0;
        return (int)len;
    }
    va_start(args, format);
    int len = vsprintf(to, format, args);
    va_end(args);
    return len;
}
