/* engines.h - the engines that the conformance suite judges, and what its rows are made of. A row
 * is a sentence that must hold on every engine that is built; one that an engine does not offer
 * must be refused with HF_UNSUPPORTED. */
#pragma once
#include "actors.h"
#include "servers.h"

#include <stdatomic.h>

/* One line of conformance/matrix.def. */
struct engine {
    const char *word; /* name of the line */
    const char *name; /* as in hf_engines() */
    /* Returns why the engine cannot be judged on this machine, and its rows are skipped; NULL if it
     * can be judged. */
    const char *(*missing)(const struct engine *one);
    /* Writes a URL of a place where nothing was ever held; returns false if there is none. Called
     * with the stage set up. */
    bool (*fresh)(const struct engine *one, char *url, size_t size);
    enum server_kind kind; /* kind of its servers; for one server also user and settings */
    const char *user, *settings;
    const char *program;     /* below tests/engines: prints the URL of the server that it is */
    int64_t shortest_ttl_ms; /* shortest ttl that this URL allows; 0: as the engine's limits say */
    bool first_come;         /* waiters are shown, and granted in the order in which they came */
    bool is_quorum;     /* the clients keep the queue: 10,000 waits are too many, none is counted as
                           queued */
    bool notices_death; /* a dead process's holds are free long before their ttl is over */
    bool lasting_waiters; /* 10,000 waits in one process are no load */
    bool hides_left;      /* lists do not tell how long another client's hold still lasts */
    bool polls;           /* a waiter is not notified of its grant: it polls */
};

/* ---- Rows ---- */

#define ROW(text, function)                                                                        \
    {                                                                                              \
        .name = text, .test_func = function                                                        \
    }
/* Runs all rows on each engine that is built. Returns what main() returns. HF_TEST_ENGINES narrows
 * the engines to some, by their words: "local", "redis valkey". */
#define JUDGE(rows) judge(rows, sizeof(rows) / sizeof *(rows))
int judge(const struct CMUnitTest *rows, size_t count);

const struct engine *engine(void); /* the engine that is judged now */
const char *engine_url(void);
/* Writes the URL with more settings: "history=3"; NULL: none. */
void engine_url_with(char *url, size_t size, const char *settings);
/* Returns how many rounds a row makes that waits for its turn each time: fewer on engines where a
 * waiter notices its turn late. */
int rounds(int usual);
/* Returns the ttl for such a row: with a shorter ttl waiters poll more often. 0: that of the
 * engine's URL. */
int64_t turn_ttl_ms(void);
/* Returns a ttl that ends soon: the shortest that the engine takes, and not below 50. */
int64_t brief_ttl_ms(void);
/* Returns the usual ttl of a row, or the shortest that the engine takes if that is longer. On a
 * machine that is busy as the row begins it is up to three times the usual one. */
int64_t ttl(int64_t usual_ms);
/* begins again in a place where nothing was ever held; the row's client and processes are gone */
void engine_afresh(void);

/* What a row needs beyond exclusive locks. The engine itself is asked, by a call that is made for
 * nothing else. */
enum need {
    NEED_SEMAPHORE,
    NEED_READ_WRITE,
    NEED_DETACHED,
    NEED_OWNER,
    NEED_CONVERT,
    NEED_RESIZE,
    NEED_BREAK,
    NEED_HISTORY,
    NEED_BARGING
};
/* Returns false if it was refused with HF_UNSUPPORTED and a text; then the row is over. Any other
 * answer fails the row. */
bool offers(enum need need);

/* ---- Clients and leases, in the test's own process ---- */

/* Returns the row's client, which is closed with the row. No process may be started after the first
 * call under TSan. */
hf_client *row_client(void);
/* Opens another client; `query` is added to the URL ("history=3"; NULL: nothing). */
hf_client *open_client(const char *query, const struct hf_client_options *options);
void close_client(hf_client *client); /* the status must be HF_OK */

#define ASK(...)                                                                                   \
    &(struct hf_request)                                                                           \
    {                                                                                              \
        .size = sizeof(struct hf_request), __VA_ARGS__                                             \
    }

/* Makes a first request. A wait of a millisecond that begins on a client without a connection is
 * too short for one, and ends with HF_UNAVAILABLE. */
hf_status engine_connect(hf_client *client);
/* the request must be granted */
hf_lease *take(hf_client *client, const struct hf_request *request);
/* The request must end with that status, and a text that contains `words`. */
void refuse(hf_client *client, const struct hf_request *request, hf_status status,
            const char *words);
void give(hf_lease *lease); /* the status must be HF_OK; frees the handle */
/* Checks that the last status was `expected`, and that hf_error_text() contains these words. */
#define assert_refused(status, expected, words)                                                    \
    check_refused(status, expected, words, __FILE__, __LINE__)
void check_refused(hf_status status, hf_status expected, const char *words, const char *file,
                   int line);

/* An outcome that a callback brings. */
struct outcome {
    _Atomic int calls;
    _Atomic int status; /* -1: none yet */
    _Atomic uint64_t token;
    hf_lease *lease;
};
void note_outcome(hf_lease *lease, hf_status status,
                  void *outcome); /* a hf_done_fn and a hf_lost_fn */
void start_ask(hf_client *client, const struct hf_request *request, struct outcome *outcome);
hf_status await_outcome(struct outcome *outcome);
/* Waits until `*word` is at least that. */
void await_count(_Atomic int *word, int at_least);

/* ---- Processes ---- */

/* Starts a process that follows orders on the judged engine. */
struct actor *actor_here(void);
/* Starts a process that acquires, answers ORDER_ACQUIRE with the outcome, awaits ORDER_GO,
 * releases, answers ORDER_RELEASE, and so on until it is killed. */
struct actor *actor_asking(const struct hf_request *request);

/* Returns zeroed memory that this process shares with those it starts from now on. It is freed with
 * the row. */
void *shared_page(size_t size);

/* ---- Seeing ---- */

/* Everything that hf_show reports. */
struct view {
    uint32_t holders, waiters;
    struct {
        hf_role role;
        hf_kind kind;
        uint32_t units, depth, place, used, capacity;
        uint64_t token, ticket;
        int64_t left_ms, ttl_ms, since_ms, pid;
        bool detached;
        char host[64], label[HF_LABEL_MAX + 1];
    } row[32]; /* the first ones */
};
struct view look_at(hf_client *client, const char *name);
uint32_t depth_of(hf_client *client, const char *name); /* the count of the first holder; 0: none */
