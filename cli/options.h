/* options.h - the options of every verb as data: one table per verb yields parsing, help, completion and what the man
 * pages are checked against. */
#pragma once
#include "holdfast.h"

#define OPTION_VALUES_MAX 64

/* Options that another table knows how to read: name and argument of each, in their order. */
struct option_values {
    const char *names[OPTION_VALUES_MAX], *texts[OPTION_VALUES_MAX];
    size_t count;
};

/* Everything that options can say, for all verbs together; a verb's table names the fields that it offers. */
struct cli_options {
    const char *url;                       /* NULL: $HOLDFAST_URL, else local: */
    int64_t wait_ms;                       /* HF_WAIT_DEFAULT: not given */
    int64_t busy_code;                     /* exit code for busy; -1: not given */
    int64_t kind;                          /* enum hf_kind; -1: not given */
    int64_t units, capacity;               /* 0: not given */
    int64_t ttl_ms, grace_ms, max_hold_ms; /* ttl, max_hold 0 and grace -1: not given */
    const char *label;
    const char *script;  /* -c: one string for sh */
    const char *on_lost; /* NULL: stop */
    const char *log;     /* a file */
    const char *correlation_id;
    int64_t status_fd;  /* -1: none */
    const char *lease;  /* a file; NULL: stdin or stdout */
    int64_t token;      /* 0: not given */
    const char *reason; /* of a break */
    int64_t dialect;    /* place among the words of its option */
    const char *table, *key_column, *token_column;
    int64_t duration_ms;
    int64_t workers;                         /* of bench; 0: not given */
    int64_t story;                           /* bits of enum story_trait, for advise */
    int64_t ask;                             /* of advise */
    const char *from_history, *from_metrics; /* a name; a file or an address */
    int64_t json, lines, help, version;
    const char *config;   /* a file */
    int64_t print_config; /* of serve */
    struct option_values given;
};

extern const struct cli_options CLI_OPTIONS_NONE; /* nothing given */

enum option_store {
    STORE_CONSTANT, /* no argument: `low` is stored */
    STORE_BIT,      /* no argument: `low` is added to what is there */
    STORE_TEXT,     /* the argument itself, as const char * */
    STORE_VALUE,    /* name and argument are added to a struct option_values */
    STORE_NUMBER,   /* a whole number between low and high, as int64_t */
    STORE_DURATION, /* milliseconds between low and high (HF_FOREVER where low allows it), as int64_t */
    STORE_CHOICE,   /* one of the words of `argument`; its place among them, as int64_t */
};

struct option_spec {
    const char *name;     /* without the dashes */
    char letter;          /* 0: none */
    const char *argument; /* how help shows it; NULL: takes none. Small words with | between them are what it may be;
                             FILE: a file; DUR: a duration */
    enum option_store store;
    size_t field; /* offset into struct cli_options */
    int64_t low, high;
    const char *help;
};

struct verb {
    const char *name;
    const char *operands; /* as in the synopsis; "[" begins what may be left out, "..." ends what may be repeated */
    const char *summary;  /* one line */
    const char *details;  /* more for --help */
    const struct option_spec *options;
    size_t option_count;
    bool stops_at_operand; /* what follows the first operand is not ours to read */
    bool hidden;           /* not in help and completion */
    int (*run)(const struct cli_options *options, int argc, char **argv); /* argv: the operands */
};

#define LONGEST_MS (INT64_C(366) * 24 * 3600 * 1000)

#define OPTION_FIELD(member) offsetof(struct cli_options, member)
#define OPTION_URL                                                                                                     \
    {                                                                                                                  \
        "url", 'u', "URL", STORE_TEXT, OPTION_FIELD(url), 0, 0, "the engine; else $HOLDFAST_URL, else local:"          \
    }
#define OPTION_HELP                                                                                                    \
    {                                                                                                                  \
        "help", 'h', NULL, STORE_CONSTANT, OPTION_FIELD(help), 1, 1, "show this text"                                  \
    }
#define OPTION_JSON                                                                                                    \
    {                                                                                                                  \
        "json", 0, NULL, STORE_CONSTANT, OPTION_FIELD(json), 1, 1, "print JSON"                                        \
    }

/* What asking for a lock needs, for run and acquire. */
#define OPTIONS_ASKING                                                                                                 \
    {"nonblock", 'n', NULL, STORE_CONSTANT, OPTION_FIELD(wait_ms), 0, 0, "do not wait: busy is exit code 75"},         \
        {"wait",                                                                                                       \
         'w',                                                                                                          \
         "DUR",                                                                                                        \
         STORE_DURATION,                                                                                               \
         OPTION_FIELD(wait_ms),                                                                                        \
         HF_FOREVER,                                                                                                   \
         LONGEST_MS,                                                                                                   \
         "wait at most DUR; default: for ever"},                                                                       \
        {"conflict-exit-code",    'E', "CODE", STORE_NUMBER,                                                           \
         OPTION_FIELD(busy_code), 0,   255,    "exit with CODE instead of 75 when busy or the wait is over"},          \
        {"shared",           's',     NULL,    STORE_CONSTANT,                                                         \
         OPTION_FIELD(kind), HF_READ, HF_READ, "a read lock: many readers at once, no writer"},                        \
        {"exclusive",        'x',      NULL,     STORE_CONSTANT,                                                       \
         OPTION_FIELD(kind), HF_WRITE, HF_WRITE, "a write lock: the only holder, also among readers"},                 \
        {"units",                                                                                                      \
         0,                                                                                                            \
         "K",                                                                                                          \
         STORE_NUMBER,                                                                                                 \
         OPTION_FIELD(units),                                                                                          \
         1,                                                                                                            \
         HF_CAPACITY_MAX,                                                                                              \
         "take K units of a semaphore; default: 1"},                                                                   \
        {"capacity", 0, "N", STORE_NUMBER, OPTION_FIELD(capacity), 1, HF_CAPACITY_MAX, "a semaphore of N units"},      \
        {"ttl",                                                                                                        \
         0,                                                                                                            \
         "DUR",                                                                                                        \
         STORE_DURATION,                                                                                               \
         OPTION_FIELD(ttl_ms),                                                                                         \
         1,                                                                                                            \
         LONGEST_MS,                                                                                                   \
         "how long the lease lasts without renewal; default: 30s"},                                                    \
    {                                                                                                                  \
        "label", 0, "TEXT", STORE_TEXT, OPTION_FIELD(label), 0, 0, "shown to others who look or wait"                  \
    }

/* The words of a command line that are still to be read. */
struct arguments {
    int count;
    char **all;
};

/* Reads options by their table and leaves the operands in `arguments`. Either only those in front of the first operand
 * are read, or all up to a `--`, which is dropped. Two options of one field contradict each other. 0, or -1 after a
 * message on stderr that names what was wrong. A table has at most 64 options. */
int options_parse(const struct option_spec *specs, size_t count, bool stops_at_operand, struct arguments *arguments,
                  struct cli_options *options);

/* Does an argument or operand stand for words of which one is meant? They are in small letters. */
bool is_choice(const char *argument);

/* Calls fn for each word of an argument such as "stop|kill|signal:NAME|warn"; for none when it is not a choice. A tail
 * in capitals is left out: it stands for something that the user knows. */
void choices_each(const char *argument, void (*fn)(void *arg, const char *word, size_t len), void *arg);

/* Prints the options of a table, aligned, to stdout. */
void options_print(const struct option_spec *specs, size_t count);

/* How many single-byte edits lie between two words: for "did you mean". */
size_t words_distance(const char *left, const char *right);
