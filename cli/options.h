/* options.h - the options of every verb as data: parsing, help, completion and the check of the
 * man pages all use the one table of a verb. */
#pragma once
#include "holdfast.h"

#define OPTION_VALUES_MAX 64

/* Options that may be given several times, and settings of serve: name and argument of each, in
 * order. */
struct option_values {
    const char *names[OPTION_VALUES_MAX], *texts[OPTION_VALUES_MAX];
    size_t count;
};

/* The values of all options of all verbs. The table of a verb names the fields that it offers. */
struct cli_options {
    const char *url;                       /* NULL: $HOLDFAST_URL, else local: */
    struct option_values locks;            /* names given with -l; empty if NAME is given */
    int64_t wait_ms;                       /* HF_WAIT_DEFAULT: not given */
    int64_t connect_wait_ms;               /* longest wait for an engine that does not answer */
    int64_t busy_code;                     /* exit code for busy; -1: not given */
    int64_t quiet;                         /* print nothing while waiting and when busy */
    int64_t kind;                          /* enum hf_kind; -1: not given */
    int64_t units, capacity;               /* 0: not given */
    int64_t ttl_ms, grace_ms, max_hold_ms; /* not given: 0 for ttl and max_hold, -1 for grace */
    const char *label;
    const char *owner;   /* NULL: a new one */
    const char *script;  /* command line for sh (-c) */
    const char *on_lost; /* NULL: stop */
    const char *log;     /* a file */
    const char *correlation_id;
    int64_t status_fd;  /* -1: none */
    const char *lease;  /* a file; NULL: stdin or stdout */
    int64_t token;      /* 0: not given */
    const char *reason; /* reason of a break */
    int64_t dialect;    /* index among the words of its option */
    const char *table, *key_column, *token_column;
    int64_t duration_ms;
    int64_t workers;                         /* workers of bench; 0 if not given */
    int64_t story;                           /* bits of enum story_trait, for advise */
    int64_t ask;                             /* advise: ask the questions */
    const char *from_history, *from_metrics; /* a name; a file or an address */
    int64_t json, lines, help, version;
    int64_t wide;           /* list: do not cut names */
    int64_t foreign;        /* list: search for locks of other programs */
    int64_t scan;           /* doctor: compare a search with the list */
    int64_t install, prune; /* doctor: care for the library inside servers */
    int64_t sort;           /* enum row_order, for list and top */
    int64_t state;          /* list: index among held and waited; -1 if not given */
    const char *format;     /* list: keys, separated by commas */
    const char *config;     /* a file */
    int64_t print_config;   /* serve: print its settings */
    struct option_values given;
};

extern const struct cli_options CLI_OPTIONS_NONE; /* nothing given */

enum option_store {
    STORE_CONSTANT, /* no argument: `low` is stored */
    STORE_BIT,      /* no argument: the bits of `low` are added */
    STORE_TEXT,     /* the argument itself, as const char * */
    STORE_VALUE,    /* name and argument are added to a struct option_values */
    STORE_NUMBER,   /* a whole number between low and high, as int64_t */
    STORE_DURATION, /* milliseconds between low and high (HF_FOREVER where low allows it), as
                       int64_t */
    STORE_CHOICE,   /* one of the words of `argument`; its place among them, as int64_t */
};

struct option_spec {
    const char *name;     /* without the dashes */
    char letter;          /* 0: none */
    const char *argument; /* as shown in help; NULL if the option takes none. Lower-case words with
                             | between them are its choices; FILE is a file, DUR a duration */
    enum option_store store;
    size_t field; /* offset into struct cli_options */
    int64_t low, high;
    const char *help;
};

struct verb {
    const char *name;
    const char
        *operands; /* as in the synopsis: "[" begins an optional part, "..." ends a repeated one */
    const char *summary; /* one line */
    const char *details; /* more for --help */
    const struct option_spec *options;
    size_t option_count;
    bool stops_at_operand; /* options are read up to the first operand only */
    bool hidden;           /* not in help and completion */
    int (*run)(const struct cli_options *options, int argc, char **argv); /* argv: the operands */
};

#define CONNECT_WAIT_MS 30000
#define LONGEST_MS (INT64_C(366) * 24 * 3600 * 1000)

#define OPTION_FIELD(member) offsetof(struct cli_options, member)

/* clang-format off: one option a line or two, as in the tables of the verbs */
#define OPTION_URL                                                                                 \
    {                                                                                              \
        "url", 'u', "URL", STORE_TEXT, OPTION_FIELD(url), 0, 0,                                    \
            "the engine; default: $HOLDFAST_URL, else local:"                                      \
    }
#define OPTION_HELP                                                                                \
    {                                                                                              \
        "help", 'h', NULL, STORE_CONSTANT, OPTION_FIELD(help), 1, 1, "show this text"              \
    }
#define OPTION_JSON                                                                                \
    {                                                                                              \
        "json", 0, NULL, STORE_CONSTANT, OPTION_FIELD(json), 1, 1, "print JSON"                    \
    }

/* The options of a request, for run and acquire. */
#define OPTION_NONBLOCK                                                                            \
    {                                                                                              \
        "nonblock", 'n', NULL, STORE_CONSTANT, OPTION_FIELD(wait_ms), 0, 0,                        \
            "do not wait: busy is exit code 75"                                                    \
    }
#define OPTION_WAIT                                                                                \
    {                                                                                              \
        "wait", 'w', "DUR", STORE_DURATION, OPTION_FIELD(wait_ms), HF_FOREVER, LONGEST_MS,         \
            "wait at most DUR; default: forever"                                                   \
    }
#define OPTION_CONNECT_WAIT                                                                        \
    {                                                                                              \
        "connect-wait", 0, "DUR", STORE_DURATION, OPTION_FIELD(connect_wait_ms), HF_FOREVER,       \
            LONGEST_MS, "wait at most DUR for a server that does not answer; default: 30s"         \
    }
#define OPTION_BUSY_CODE                                                                           \
    {                                                                                              \
        "conflict-exit-code", 'E', "CODE", STORE_NUMBER, OPTION_FIELD(busy_code), 0, 255,          \
            "exit with CODE instead of 75 when busy or the wait is over"                           \
    }
#define OPTION_QUIET                                                                               \
    {                                                                                              \
        "quiet", 'q', NULL, STORE_CONSTANT, OPTION_FIELD(quiet), 1, 1,                             \
            "print nothing while waiting and when busy; errors are still printed"                  \
    }
#define OPTION_SHARED                                                                              \
    {                                                                                              \
        "shared", 's', NULL, STORE_CONSTANT, OPTION_FIELD(kind), HF_READ, HF_READ,                 \
            "a read lock: many readers at once, no writer"                                         \
    }
#define OPTION_EXCLUSIVE                                                                           \
    {                                                                                              \
        "exclusive", 'x', NULL, STORE_CONSTANT, OPTION_FIELD(kind), HF_WRITE, HF_WRITE,            \
            "a write lock: the only holder, also among readers"                                    \
    }
#define OPTION_UNITS                                                                               \
    {                                                                                              \
        "units", 0, "K", STORE_NUMBER, OPTION_FIELD(units), 1, HF_CAPACITY_MAX,                    \
            "take K units of a semaphore; default: 1"                                              \
    }
#define OPTION_CAPACITY                                                                            \
    {                                                                                              \
        "capacity", 0, "N", STORE_NUMBER, OPTION_FIELD(capacity), 1, HF_CAPACITY_MAX,              \
            "a semaphore of N units"                                                               \
    }
#define OPTION_TTL                                                                                 \
    {                                                                                              \
        "ttl", 0, "DUR", STORE_DURATION, OPTION_FIELD(ttl_ms), 1, LONGEST_MS,                      \
            "how long the lease lasts without renewal; default: 30s"                               \
    }
#define OPTION_OWNER                                                                               \
    {                                                                                              \
        "owner", 0, "ID", STORE_TEXT, OPTION_FIELD(owner), 0, 0,                                   \
            "enter a lock that the same ID already holds; each level is released by itself"        \
    }
#define OPTION_LABEL                                                                               \
    {                                                                                              \
        "label", 0, "TEXT", STORE_TEXT, OPTION_FIELD(label), 0, 0,                                 \
            "shown to others who list or wait"                                                     \
    }
#define OPTIONS_LOCK_REQUEST                                                                       \
    OPTION_NONBLOCK, OPTION_WAIT, OPTION_CONNECT_WAIT, OPTION_BUSY_CODE, OPTION_QUIET,             \
        OPTION_SHARED, OPTION_EXCLUSIVE, OPTION_UNITS, OPTION_CAPACITY, OPTION_TTL, OPTION_OWNER,  \
        OPTION_LABEL

/* The log of what happens to a lease, for run, acquire, extend, release and break. */
#define OPTION_LOG                                                                                 \
    {                                                                                              \
        "log", 0, "FILE", STORE_TEXT, OPTION_FIELD(log), 0, 0,                                     \
            "append each event to FILE, a line of JSON each"                                       \
    }
#define OPTION_CORRELATION                                                                         \
    {                                                                                              \
        "correlation-id", 0, "TEXT", STORE_TEXT, OPTION_FIELD(correlation_id), 0, 0,               \
            "id in each log line; default: $HOLDFAST_CORRELATION_ID, else $TRACEPARENT"            \
    }
#define OPTIONS_LOG OPTION_LOG, OPTION_CORRELATION
/* clang-format on */

/* The words of a command line that are still to be read. */
struct arguments {
    int count;
    char **all;
};

/* Reads options by their table and leaves the operands in `arguments`. It reads either the
 * options before the first operand, or all options up to a `--`, which is dropped. Two options
 * of one field are refused. Returns 0, or -1 after a message on stderr that names the mistake. A
 * table has at most 64 options. */
int options_parse(const struct option_spec *specs, size_t count, bool stops_at_operand,
                  struct arguments *arguments, struct cli_options *options);

/* Returns true if an argument or operand is a list of lower-case words to choose from. */
bool is_choice(const char *argument);

/* Calls fn for each word of an argument such as "stop|kill|signal:NAME|warn". A tail in capitals
 * is left out, because the user fills it in. */
void choices_each(const char *argument, void (*fn)(void *arg, const char *word, size_t len),
                  void *arg);

/* Prints the options of a table, aligned, to stdout. */
void options_print(const struct option_spec *specs, size_t count);

/* Returns the number of single-byte edits between two words, for "did you mean". */
size_t words_distance(const char *left, const char *right);
