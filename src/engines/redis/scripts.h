/* scripts.h - the Lua library of scripts/, as the build finished it (scripts.cmake).
 *
 * There is one text with two ways to load it. By FUNCTION LOAD it is a library under a name with
 * its version, and FCALL names a verb's function. By SCRIPT LOAD it is one script per kind of
 * verbs, because the flags stand in a script's first line; the first argument names the verb. */
#pragma once
#include <stddef.h>

enum script_text_id {
    SCRIPT_LIBRARY,  /* the library for FUNCTION LOAD; the others are for SCRIPT LOAD */
    SCRIPT_CLAIMING, /* verbs that the server refuses when its memory is full */
    SCRIPT_KEEPING,  /* verbs that work even then: they release, or keep what is held */
    SCRIPT_READING,  /* verbs that write nothing */
    SCRIPT_TEXTS,
};

struct script_text {
    const char *sha;  /* SHA-1 of head and body: 40 hexadecimal digits */
    const char *head; /* the first two lines; redis_script_body follows */
};

enum script_id {
    SCRIPT_ACQUIRE,
    SCRIPT_ACQUIRE_SEVERAL,
    SCRIPT_EXTEND,
    SCRIPT_RELEASE,
    SCRIPT_CONVERT,
    SCRIPT_BREAK,
    SCRIPT_RESIZE,
    SCRIPT_INSPECT,
    SCRIPT_RIGHTS,
    /* this verb and the next ones replace those of the same name in a quorum */
    SCRIPT_QUORUM_ACQUIRE,
    SCRIPT_QUORUM_RELEASE,
    SCRIPT_QUORUM_INSPECT,
    SCRIPT_NAMES, /* verbs for the index of names */
    SCRIPT_INDEX,
    SCRIPT_VERBS
};

/* Words of a command in wire format. */
struct script_words {
    const char *bytes;
    size_t len;
};
#define SCRIPT_WORDS(text)                                                                         \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

struct script_verb {
    const char *name;
    enum script_text_id text; /* SCRIPT LOAD: which script runs this verb */
    /* the words of the call up to the number of keys; they end with "$1\r\n", because that number
     * has one digit */
    struct script_words fcall, evalsha;
    struct script_words word; /* EVALSHA: the first argument */
};

extern const char redis_script_body[];
extern const size_t redis_script_body_len;
extern const char redis_library_name[];
extern const struct script_text redis_script_texts[SCRIPT_TEXTS];
extern const struct script_verb redis_script_verbs[SCRIPT_VERBS];
