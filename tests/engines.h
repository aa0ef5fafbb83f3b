/* engines.h - the engines that the conformance suite judges, and what its rows are made of. A row is a sentence that
 * must hold on every engine that is built; one that an engine does not offer must be refused with HF_UNSUPPORTED. */
#pragma once
#include "actors.h"

#include <stdatomic.h>

/* One engine. A new one is one line in engines.c. */
struct engine {
    const char *name;    /* as in hf_engines() */
    const char *variant; /* what sets this line apart from another one of the same engine; NULL: nothing */
    /* Why it cannot be judged on this machine: its rows are skipped; NULL: it can. */
    const char *(*missing)(void);
    /* The URL of a place where nobody ever held anything; false: there is none. Called with the stage set up. */
    bool (*fresh)(char *url, size_t size);
    bool first_come;      /* there is a queue: waiters are seen, and granted in the order in which they came */
    bool notices_death;   /* what a dead process held is free long before its ttl is over */
    bool lasting_waiters; /* ten thousand waits in one process are no load */
    bool looks;           /* a waiter is not told of its turn: it looks now and then */
};

/* ---- Rows ---- */

#define ROW(text, function)                                                                                            \
    {                                                                                                                  \
        .name = text, .test_func = function                                                                            \
    }
/* Runs all rows on each engine that is built; what main() returns. HF_TEST_ENGINES narrows it to some, by variant or
 * else name: "local", "redis valkey". */
#define JUDGE(rows) judge(rows, sizeof(rows) / sizeof *(rows))
int judge(const struct CMUnitTest *rows, size_t count);

const struct engine *engine(void); /* the one that is judged now */
const char *engine_url(void);
/* The same with more settings: "history=3"; NULL: none. */
void engine_url_with(char *url, size_t size, const char *settings);
/* How often a row that waits for its turn each time repeats that: fewer times where a turn is noticed late. */
int rounds(int usual);
/* The ttl for such a row: with a shorter one waiters look more often. 0: that of the engine's URL. */
int64_t turn_ttl_ms(void);
/* A ttl that is soon over: the shortest that the engine takes, and not below 50. */
int64_t brief_ttl_ms(void);
void engine_afresh(void); /* begins again where nobody ever held anything; the row's client and processes are gone */

/* What a row needs beyond exclusive locks. The engine itself is asked, by a call that is made for nothing else. */
enum need {
    NEED_SEMAPHORE,
    NEED_READ_WRITE,
    NEED_DETACHED,
    NEED_OWNER,
    NEED_CONVERT,
    NEED_RESIZE,
    NEED_BREAK,
    NEED_HISTORY
};
/* False: it was refused with HF_UNSUPPORTED and words, and the row is over. Any other answer fails the row. */
bool offers(enum need need);

/* ---- Clients and leases, in the test's own process ---- */

/* Closed with the row. No process may be started after the first call under TSan. */
hf_client *row_client(void);
/* Another one; `query` is added to the URL ("history=3"; NULL: nothing). */
hf_client *open_client(const char *query, const struct hf_client_options *options);
void close_client(hf_client *client); /* must be HF_OK */

#define ASK(...)                                                                                                       \
    &(struct hf_request)                                                                                               \
    {                                                                                                                  \
        .size = sizeof(struct hf_request), __VA_ARGS__                                                                 \
    }

hf_lease *take(hf_client *client, const struct hf_request *request); /* must be granted */
/* Must answer that, with words that contain `words`. */
void refuse(hf_client *client, const struct hf_request *request, hf_status status, const char *words);
void give(hf_lease *lease); /* must be released with HF_OK; freed */
/* The last status was this one, and hf_error_text() contains these words. */
#define assert_refused(status, expected, words) check_refused(status, expected, words, __FILE__, __LINE__)
void check_refused(hf_status status, hf_status expected, const char *words, const char *file, int line);

/* An outcome that a callback brings. */
struct outcome {
    _Atomic int calls;
    _Atomic int status; /* -1: none yet */
    _Atomic uint64_t token;
    hf_lease *lease;
};
void note_outcome(hf_lease *lease, hf_status status, void *outcome); /* a hf_done_fn and a hf_lost_fn */
void start_ask(hf_client *client, const struct hf_request *request, struct outcome *outcome);
hf_status await_outcome(struct outcome *outcome);
/* Waits until `*word` is at least that. */
void await_count(_Atomic int *word, int at_least);

/* ---- Processes ---- */

/* A process that follows orders on the judged engine. */
struct actor *actor_here(void);
/* One that acquires that, says ORDER_ACQUIRE with what came of it, awaits ORDER_GO, releases, says ORDER_RELEASE, and
 * so on until it is killed. */
struct actor *actor_asking(const struct hf_request *request);

/* Zeroed memory that this process shares with those it starts from now on. Gone with the row. */
void *shared_page(size_t size);

/* ---- Seeing ---- */

/* All that hf_show says. */
struct view {
    uint32_t holders, waiters;
    struct {
        hf_role role;
        hf_kind kind;
        uint32_t units, count, place, used, capacity;
        uint64_t token, ticket;
        int64_t left_ms, ttl_ms, since_ms, pid;
        bool detached;
        char host[64], label[HF_LABEL_MAX + 1];
    } row[32]; /* the first ones */
};
struct view look_at(hf_client *client, const char *name);
uint32_t depth_of(hf_client *client, const char *name); /* the count of the first holder; 0: none */
