/* actors.h - processes that take part in a test of faults. Each has a client of its own on one
 * private table, does what the test orders and reports the outcome. The test kills, stops and
 * counts them. */
#pragma once
#include "holdfast.h"
#include "nap.h"
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    ACTOR_LEASES = 512,        /* ids of leases in one actor */
    ACTOR_PATIENCE_MS = 10000, /* longest wait for anything that an actor does */
    ACTOR_TEXT = 256,
};

/* ---- The stage: a directory with a table, which is removed with everything that was started on it
 * ---- */

/* One line of a group whose test has a stage of its own. */
#define STAGED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = stage_setup,                            \
        .teardown_func = stage_teardown                                                            \
    }

int stage_setup(void **state);
int stage_teardown(void **state);
const char *stage_directory(void);
const char *stage_path(void); /* path of the stage's table */
const char *stage_url(void);
/* the test's own client; opened at the first call, closed with the stage */
hf_client *stage_client(void);
hf_client *stage_other_client(void); /* another client of the test, which the caller closes */

void remove_tree(const char *path); /* removes a folder with all that is in it */

/* ---- Orders and answers ---- */

enum order_kind {
    ORDER_ACQUIRE, /* hf_acquire, on a thread of its own that ends with the call */
    ORDER_START,   /* hf_acquire_start; the answer comes from the callback */
    ORDER_RELEASE, /* hf_release, and frees the handle */
    ORDER_EXTEND,
    ORDER_CANCEL,
    ORDER_LOOK,  /* answers with status HF_OK: hf_lease_ok(); token; number: hf_lease_left_ms() */
    ORDER_CLOSE, /* hf_close(client, 5000), the answer, and the end of the process */
    ORDER_GO,    /* for actors with a part of their own */
};

/* What an actor asks for. Zero is an exclusive lock with the default ttl, without waiting. */
struct want {
    const char *name;
    hf_kind kind;
    uint32_t units, capacity;
    int64_t ttl_ms, wait_ms;
    uint32_t flags;
};

struct answer {
    enum order_kind what;
    uint32_t id;
    hf_status status;
    uint64_t token;
    int64_t number;
    int64_t at_ns; /* when it happened */
    char text[ACTOR_TEXT];
};

/* ---- Actors ---- */

struct actor; /* freed with the stage, after its process was reaped */

/* Starts an actor that follows orders. It has joined the table when this returns. */
struct actor *actor_start(void);
/* Starts an actor with a part of its own. The part runs in the new process before any client is
 * opened, and the process ends with it. */
typedef void actor_part(struct actor *me, void *arg);
struct actor *actor_start_part(actor_part *part, void *arg);
pid_t actor_pid(const struct actor *a);

/* Gives an order; the answer is waited for with actor_answer. */
void actor_acquire(struct actor *a, uint32_t id, enum order_kind how, const struct want *want);
void actor_order(struct actor *a, enum order_kind what, uint32_t id);
/* Returns the answer to that order; the test fails if it does not come. */
struct answer actor_answer(struct actor *a, enum order_kind what, uint32_t id);
/* gives the order and returns its answer */
struct answer actor_does(struct actor *a, enum order_kind what, uint32_t id);
/* Acquires a lock, and fails the test if the lock is not granted. */
struct answer actor_holds(struct actor *a, uint32_t id, const struct want *want);
/* Returns true if there is no answer so far. */
bool actor_is_silent(struct actor *a);

void actor_kill(struct actor *a);  /* SIGKILL, without waiting for the end */
void actor_stop(struct actor *a);  /* SIGSTOP, and waits until it stands still */
void actor_go_on(struct actor *a); /* SIGCONT */
void actor_await_stop(struct actor *a);
int actor_await_end(struct actor *a); /* returns the wait status */

/* For use inside a part. A failure there ends the process, which the test notices by the missing
 * answer. */
#define part_must(condition) ((condition) ? (void)0 : part_fails(__FILE__, __LINE__, #condition))
_Noreturn void part_fails(const char *file, int line, const char *condition);
hf_client *part_client(void);                                  /* opens the client of a part */
void part_says(struct actor *me, const struct answer *answer); /* at_ns is filled in */
void part_awaits_go(struct actor *me);
void part_follows_orders(struct actor *me, hf_client *client);

/* ---- Seeing ---- */

struct hf_request request_of(const struct want *want);
/* Acquires a lease, and fails the test if it is not granted. */
hf_lease *must_acquire(hf_client *client, const struct want *want);
void must_release(hf_lease *lease); /* releases the lease and frees the handle */

/* What hf_show says of a name. */
struct sight {
    uint32_t holders, waiters, used, capacity;
    uint64_t token; /* of the first holder */
    int64_t pid;    /* of the first holder */
    int64_t left_ms, since_ms;
};
struct sight see(hf_client *client, const char *name);
/* Waits until `waiters` wait for the name and `holders` hold it; -1: any number. The test fails if
 * that does not happen. */
struct sight await_sight(hf_client *client, const char *name, int holders, int waiters);
/* For an engine without a queue, which shows no waiters: waits for as long as the waiters need to
 * ask, instead of counting them. */
void sight_hides_waiters(bool hidden);
