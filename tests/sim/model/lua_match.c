/* lua_match.c - string.match() for the patterns that scripts have: texts between spaces, each as
 * long as can be.
 *
 * Where every piece takes as much as it can and all the rest fits behind it, that is what Lua
 * finds, which tries the longest first. Where it does not fit so, and for all that is not known
 * here, Lua itself is asked. */
#include "model_internal.h"

#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

enum { CAPTURES = 16 };

struct matching {
    const char *at, *end; /* of the text */
    const char *pattern;
    struct slice capture[CAPTURES];
    int captures;
    bool open; /* the last one has not ended */
};

/* What a character is, as bits; a class is one of them. */
enum { DIGIT = 1, LETTER = 2, SPACE = 4, NO_SPACE = 8, ANY = 16 };

static uint8_t kinds[256];

static void fill_kinds(void)
{
    for (int c = 0; c < 256; c++)
        kinds[c] = (uint8_t)(ANY | (isdigit(c) ? DIGIT : 0) | (isalpha(c) ? LETTER : 0) |
                             (isspace(c) ? SPACE : NO_SPACE));
}

static uint8_t class_of(char letter)
{
    return letter == 'd'   ? DIGIT
           : letter == 'a' ? LETTER
           : letter == 's' ? SPACE
           : letter == 'S' ? NO_SPACE
                           : 0;
}

/* How many of the characters before `end`, or of the first one alone, are of that class. */
static size_t count_of(uint8_t class, const char *at, const char *end, bool most)
{
    const char *from = at;
    if (!most)
        return at < end && kinds[(unsigned char)*at] & class;
    while (at < end && kinds[(unsigned char)*at] & class)
        at++;
    return (size_t)(at - from);
}

static size_t count_self(char self, const char *at, const char *end, bool most)
{
    const char *from = at;
    while (at < end && *at == self && (most || at == from))
        at++;
    return (size_t)(at - from);
}

/* False: it does not fit, or Lua knows what it is. */
static bool take_piece(struct matching *m)
{
    char c = *m->pattern++;
    uint8_t class = c == '%' ? class_of(*m->pattern) : c == '.' ? ANY : 0;
    bool known = class || c == ' ' || c == '~' || isalnum((unsigned char)c);
    m->pattern += c == '%' && class;
    if (!known || *m->pattern == '-')
        return false;
    bool most = *m->pattern == '+' || *m->pattern == '*',
         none = *m->pattern == '?' || *m->pattern == '*';
    m->pattern += most || none;
    size_t count =
        class ? count_of(class, m->at, m->end, most) : count_self(c, m->at, m->end, most);
    m->at += count;
    return count || none;
}

static bool take_bracket(struct matching *m)
{
    if (*m->pattern++ == ')') {
        if (!m->open)
            return false;
        struct slice *last = &m->capture[m->captures - 1];
        last->len = (size_t)(m->at - last->bytes);
        m->open = false;
        return true;
    }
    if (m->open || *m->pattern == ')' || m->captures == CAPTURES)
        return false;
    m->capture[m->captures++] = (struct slice){m->at, 0};
    return m->open = true;
}

static bool match(struct matching *m)
{
    bool fine = true;
    while (fine && *m->pattern) {
        if (*m->pattern == '(' || *m->pattern == ')')
            fine = take_bracket(m);
        else if (m->pattern[0] == '$' && !m->pattern[1])
            fine = m->at == m->end && *m->pattern++;
        else
            fine = take_piece(m);
    }
    return fine && !m->open;
}

static int match_simply(lua_State *lua)
{
    struct matching m = {.captures = 0};
    size_t len, pattern_len;
    if (lua_gettop(lua) == 2 && lua_type(lua, 1) == LUA_TSTRING &&
        lua_type(lua, 2) == LUA_TSTRING) {
        const char *text = m.at = lua_tolstring(lua, 1, &len);
        m.end = text + len;
        m.pattern = lua_tolstring(lua, 2, &pattern_len);
        bool whole = strlen(m.pattern) == pattern_len;
        m.pattern += *m.pattern == '^';
        if (whole && match(&m)) {
            if (!m.captures)
                m.capture[m.captures++] = (struct slice){text, (size_t)(m.at - text)};
            luaL_checkstack(lua, m.captures, "too many captures");
            for (int i = 0; i < m.captures; i++)
                lua_pushlstring(lua, m.capture[i].bytes, m.capture[i].len);
            return m.captures;
        }
    }
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_call(lua, lua_gettop(lua) - 1, LUA_MULTRET);
    return lua_gettop(lua);
}

void lua_hasten_match(lua_State *lua)
{
    fill_kinds();
    lua_getglobal(lua, "string");
    lua_getfield(lua, -1, "match");
    lua_pushcclosure(lua, match_simply, 1);
    lua_setfield(lua, -2, "match");
    lua_pop(lua, 1);
}
