/* model_internal.h - what the sources of the model share.
 *
 * A request takes this way: model_feed() (model_requests.c) finds its words in the connection's
 * bytes, command_find() its row of commands.def, and the row's function (model_keys.c, strings.c,
 * hashes.c, zsets.c, lists.c, model_server.c,
 * model_cluster.c, model_scripts.c) reads and changes the
 * store (model_store.c) and writes the answer (model_replies.c). redis.call() in a script (lua.c)
 * enters at command_find() and turns the answer into Lua values. To add a command: one row, one
 * function. */
#pragma once
#include "model.h"

#include <lua.h>

/* ---- Bytes ---- */

struct slice { /* somebody else's bytes */
    const char *bytes;
    size_t len;
};

struct buffer { /* grows, keeps its memory when emptied */
    char *bytes;
    size_t len, room;
};

void buffer_add(struct buffer *buffer, const void *bytes, size_t len);
void buffer_cut(struct buffer *buffer, size_t len); /* takes that much off the front */

static inline struct slice slice_of(const struct buffer *buffer)
{
    return (struct slice){buffer->bytes, buffer->len};
}
bool slice_equal(struct slice a, struct slice b);
bool slice_is(struct slice a, const char *word); /* in any case of letters; `word` in lower case */
bool slice_integer(struct slice text, int64_t *value);
bool slice_double(struct slice text, double *value);

/* ---- The store ---- */

/* All data lies in one arena and refers to itself by offsets, so a snapshot is a copy and a reset
 * is one store of zero. The arena never moves during a request: pointers into it are good until the
 * request ends. */

enum kind { NOTHING, STRING, LIST, HASH, ZSET };

struct text {
    uint32_t at, len;
};

/* One of a key's: a list's element or a string (name), a hash's field (name, value), a sorted set's
 * member (name, score).*/
struct item {
    struct text name, value;
    double score;
};

struct key {
    enum kind kind; /* NOTHING: the slot is free */
    unsigned db;
    uint32_t hash;
    struct text name;
    int64_t expires_ms;          /* wall clock; -1: never */
    uint32_t items, count, room; /* an array of struct item in the arena */
};

struct store {
    char *arena, *spare; /* the other one is for compaction */
    uint32_t used, compact_at;
    struct key *keys; /* a key keeps its slot for life: SCAN counts on it */
    unsigned key_count;
};

void store_open(struct store *store);
void store_close(struct store *store);
void store_empty(struct store *store);
void store_compact(
    struct store *store); /* between requests: pointers into the arena are void afterwards */
struct text store_keep(struct store *store, struct slice bytes);
void store_drop(struct key *key);
struct item *store_insert(struct store *store, struct key *key,
                          uint32_t index); /* room for one item there */
void store_cut(struct store *store, struct key *key, uint32_t index, uint32_t n);
void store_remove(struct store *store, struct key *key, uint32_t index,
                  uint32_t n); /* the key goes with its last item */

static inline struct item *store_items(const struct store *store, const struct key *key)
{
    return (struct item *)(void *)(store->arena + key->items);
}
static inline struct slice store_text(const struct store *store, struct text text)
{
    return (struct slice){store->arena + text.at, text.len};
}

/* ---- Requests ---- */

/* A script, or a function of a library. */
struct script {
    char sha[41]; /* of a function: its name */
    char *text;   /* NULL: a function */
    size_t len;
    int function; /* in Lua's registry */
    bool has_line, allow_oom, no_writes;
    bool loaded; /* the server knows it; a flush clears this and keeps the compiled function */
    bool is_function;
};

/* A library of functions; it stays compiled as scripts do. */
struct library {
    char name[64];
    char *text;
    size_t len;
    struct script *functions;
    unsigned function_count;
    bool loaded, in_copy; /* the server knows it; the replica knows it */
};

struct run { /* of a script */
    const struct script *script;
    bool wrote;
    const struct command *last; /* what it called before, NULL if that was refused; */
    char last_key[64];          /* and on which key, as far as it fits */
};

/* One command being executed, from a connection or from a script. */
struct call {
    struct redis_model *model;
    struct connection *connection;
    struct run *run; /* NULL outside of scripts */
    unsigned *db;    /* the selected one */
    struct buffer *out;
    const struct slice *words;
    unsigned count;
    const struct slice
        *serve; /* a blocked request is executed again because this key got something */
};

enum { W = 1, M = 2, N = 4, S = 8, T = 16, K = 32 };

struct command {
    const char *name;
    int words;
    unsigned flags;
    void (*execute)(struct call *);
};

/* What a connection is subscribed to. */
struct channels {
    struct buffer names; /* each with its length before it */
    unsigned count;
};

struct connection {
    bool connected, closing;
    bool blocked;           /* `in` begins with the request that waits */
    int64_t blocked_until;  /* ms; 0: for ever */
    uint64_t blocked_since; /* order of arrival */
    uint64_t id;
    unsigned db;
    struct buffer in, out, taken;
    struct channels channels, shard_channels;
    bool is_asking;  /* ASKING stands before the next request */
    bool was_asking; /* and before the one that is being executed */
};

enum { DOUBLE_TEXT = 32 }; /* see double_print() */

/* Longest first word that is looked at: longer than any command's name. */
#define COMMAND_NAME 32

struct redis_model {
    int64_t now_us, started_us;
    uint64_t random;
    char run_id[41];
    struct store store, copy; /* `copy` is the replica's */
    bool full, is_replica;
    const struct model_cluster *cluster; /* NULL: it is in none */
    struct model_line *line;             /* of model_note_lines() */
    unsigned lines;
    uint64_t fail_at;       /* the call that is refused, as counts.calls counts them; 0: none */
    const char *fail_error; /* with that */
    const char *forbidden;  /* the command that the user may not use; NULL: none */
    unsigned replicas;
    enum model_plant plant;
    struct model_counts counts;

    struct connection *connections;
    unsigned connection_count, connection_room;
    unsigned blocked_count;
    uint64_t ids, blockings;
    struct buffer ready; /* keys that got something while somebody waits: db, length, name */

    lua_State *lua;
    struct lua_memory *lua_memory;
    struct script *scripts;
    model_spoil_fn *spoil;
    unsigned script_count;
    struct library *libraries;
    unsigned library_count;
    struct library *loading; /* its functions are being registered */
    enum model_functions functions;
    struct run *run;
    struct call *running;  /* the EVAL that runs */
    struct buffer scratch; /* answers to redis.call() */
    struct slice *words;   /* of the request, and of redis.call() */
    struct slice *lua_words;
    char (*lua_numbers)[DOUBLE_TEXT]; /* of those words that were numbers */
    unsigned word_room, lua_word_room;
};

static inline int64_t now_ms(const struct redis_model *model)
{
    return model->now_us / 1000;
}
uint64_t model_draw(struct redis_model *model); /* the next number of the seed's sequence */

const struct command *command_find(const struct slice *words, unsigned count);
bool command_words_fit(const struct command *command, unsigned count);
bool command_is_forbidden(const struct redis_model *model,
                          const struct command *command); /* see model_forbid() */
void command_block(struct call *call, int64_t until_ms);  /* wait for a key to get something */
void list_got_something(struct call *call, struct slice name);

/* The key if it is there and has not expired, else NULL. */
struct key *key_find(struct call *call, struct slice name);
struct key *key_make(struct call *call, struct slice name, enum kind kind);
/* The same for a command on one kind: if it is of another one, says so and returns false. *key may
 * be NULL. */
bool key_of_kind(struct call *call, struct slice name, enum kind kind, struct key **key);

struct item *hash_field(struct call *call, const struct key *key, struct slice name);

/* Indexes as LRANGE, ZRANGE and others count them, turned into a part of `count` items. */
struct part {
    uint32_t from, count;
};
bool part_of_words(struct call *call, unsigned first_word, uint32_t count, struct part *part);

/* ---- Clusters ---- */

/* In a cluster: refuses a request whose keys are elsewhere. Returns false if it was refused. */
bool cluster_admits(struct call *call, const struct command *command);
/* The same for a command of a script. Returns the error, or NULL. */
const char *cluster_refuses_in_script(const struct call *call, const struct command *command);

static inline bool is_subscribed(const struct connection *c)
{
    return c->channels.count || c->shard_channels.count;
}
/* Ends the subscriptions of a connection to shard channels of that slot. */
void channels_end_slot(struct redis_model *model, struct connection *c, unsigned slot);

/* ---- Answers ---- */

void reply_status(struct call *call, const char *text);
void reply_error(struct call *call, const char *text);
__attribute__((format(printf, 2, 3))) void reply_errorf(struct call *call, const char *format, ...);
void reply_integer(struct call *call, int64_t value);
void reply_bulk(struct call *call, struct slice bytes);
void reply_text(struct call *call, struct text text); /* of the store */
void reply_word(struct call *call, const char *word); /* as bulk */
void reply_double(struct call *call, double value);
void reply_null(struct call *call);
void reply_null_array(struct call *call);
void reply_array(struct call *call, size_t count);
size_t integer_print(char *into, int64_t value); /* room for 21; no zero at the end */
size_t double_print(char *into, double value);   /* room for DOUBLE_TEXT */
bool is_whole(double value);                     /* and printed as an integer is */

#define SYNTAX_ERROR "ERR syntax error"
#define NOT_AN_INTEGER "ERR value is not an integer or out of range"
/* Reads a word as integer, or says that it is none. */
bool word_integer(struct call *call, unsigned word, int64_t *value);

/* ---- Scripts ---- */

struct lua_memory *lua_memory_open(void);
void lua_memory_close(struct lua_memory *memory);
void *lua_memory_move(void *memory, void *old, size_t old_size, size_t size);
void lua_memory_keep(struct lua_memory *memory);    /* this is what it goes back to */
void lua_memory_go_back(struct lua_memory *memory); /* all that was allocated since is gone */
bool lua_memory_has_garbage(const struct lua_memory *memory);
void lua_memory_scraps(struct lua_memory *memory,
                       bool on); /* while on, nothing is taken that lasts */
void lua_begin(struct redis_model *model);
void lua_open_redis(struct redis_model *model); /* the functions of `redis`, and pcall() */
void lua_hasten_numbers(lua_State *lua);
void lua_hasten_match(lua_State *lua);
void lua_end(struct redis_model *model);
/* Compiles into script->function, or answers with the error and returns false. */
bool lua_compile(struct call *call, struct script *script, struct slice body);
/* Runs the text of a library, which registers its functions in library->functions. */
bool lua_load_library(struct call *call, struct library *library, struct slice body);
void lua_run(struct call *call, const struct script *script, unsigned key_count);

#define COMMAND(name, words, flags, function) void function(struct call *call);
#include "commands.def"
#undef COMMAND
