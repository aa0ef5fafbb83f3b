/* lua_match.c - string.match() for the patterns that scripts have: texts between spaces, each as long as can be.
 *
 * Where every piece takes as much as it can and all the rest fits behind it, that is what Lua finds, which tries the
 * longest first. Where it does not fit so, and for all that is not known here, Lua itself is asked. */
#include "inside.h"

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

/* One character's class: a letter behind %, a dot, or the character itself. */
struct class
{
    char letter; /* 0: the character */
    char self;
};

static bool fits(struct class class, char c)
{
    unsigned char u = (unsigned char)c;
    switch (class.letter) {
    case 0:
        return c == class.self;
    case 'd':
        return u - (unsigned)'0' <= 9;
    case 'a':
        return isalpha(u);
    case 's':
        return isspace(u);
    case 'S':
        return !isspace(u);
    default: /* the dot */
        return true;
    }
}

/* False: Lua knows what it is. */
static bool read_class(struct matching *m, struct class *class)
{
    char c = *m->pattern++;
    *class = (struct class){.self = c};
    if (c == '%') {
        class->letter = *m->pattern ? *m->pattern++ : 0;
        return class->letter == 'd' || class->letter == 'a' || class->letter == 's' || class->letter == 'S';
    }
    class->letter = c == '.' ? '.' : 0;
    return c == ' ' || c == '~' || c == '.' || isalnum((unsigned char)c);
}

static bool take_piece(struct matching *m)
{
    struct class class;
    if (!read_class(m, &class) || *m->pattern == '-')
        return false;
    bool some = *m->pattern == '+' || *m->pattern == '*', none = *m->pattern == '?' || *m->pattern == '*';
    m->pattern += some || none;
    const char *from = m->at;
    while (m->at < m->end && (some || m->at == from) && fits(class, *m->at))
        m->at++;
    return m->at > from || none;
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
    if (lua_gettop(lua) == 2 && lua_type(lua, 1) == LUA_TSTRING && lua_type(lua, 2) == LUA_TSTRING) {
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
    lua_getglobal(lua, "string");
    lua_getfield(lua, -1, "match");
    lua_pushcclosure(lua, match_simply, 1);
    lua_setfield(lua, -2, "match");
    lua_pop(lua, 1);
}
