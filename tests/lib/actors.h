/* actors.h - processes that take part in a test of faults. Each has a client of its own on one
 * private table, does what it is told and says what came of it; the test kills, stops and counts
 * them. */
#pragma once
#include "holdfast.h"
#include "nap.h"
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    ACTOR_LEASES = 512,        /* ids of leases in one actor */
    ACTOR_PATIENCE_MS = 10000, /* what has not happened by then never will */
    ACTOR_TEXT = 256,
};

/* ---- The stage: a directory with a table, which goes away with everything that was started on it
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
const char *stage_path(void); /* of the table */
const char *stage_url(void);
hf_client *stage_client(void); /* the test's own; opened at the first call, closed with the stage */
hf_client *stage_other_client(void); /* one more, the caller's to close */

void remove_tree(const char *path); /* with all that is in it */

/* ---- Orders and answers ---- */

enum order_kind {
    ORDER_ACQUIRE, /* hf_acquire, on a thread of its own that ends with the call */
    ORDER_START,   /* hf_acquire_start; the answer comes from the callback */
    ORDER_RELEASE, /* and free */
    ORDER_EXTEND,
    ORDER_CANCEL,
    ORDER_LOOK,  /* status HF_OK: hf_lease_ok(); token; number: hf_lease_left_ms() */
    ORDER_CLOSE, /* hf_close(client, 5000), the answer, and the end of the process */
    ORDER_GO,    /* for actors with a part of their own */
};

/* What is asked for; zero is an exclusive lock with the default ttl that is not waited for. */
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

struct actor; /* reaped and freed with the stage */

/* An actor that follows orders. It has joined the table when this returns. */
struct actor *actor_start(void);
/* One with a part of its own, run in the new process before any client is opened; the process ends
 * with it. */
typedef void actor_part(struct actor *me, void *arg);
struct actor *actor_start_part(actor_part *part, void *arg);
pid_t actor_pid(const struct actor *a);

/* Gives an order; the answer is waited for with actor_answer. */
void actor_acquire(struct actor *a, uint32_t id, enum order_kind how, const struct want *want);
void actor_order(struct actor *a, enum order_kind what, uint32_t id);
/* The answer to that order; the test fails when it does not come. */
struct answer actor_answer(struct actor *a, enum order_kind what, uint32_t id);
struct answer actor_does(struct actor *a, enum order_kind what, uint32_t id); /* both */
/* Acquires and must get it. */
struct answer actor_holds(struct actor *a, uint32_t id, const struct want *want);
/* Is there no answer so far? */
bool actor_is_silent(struct actor *a);

void actor_kill(struct actor *a);  /* SIGKILL, without waiting for the end */
void actor_stop(struct actor *a);  /* SIGSTOP, and waits until it stands still */
void actor_go_on(struct actor *a); /* SIGCONT */
void actor_await_stop(struct actor *a);
int actor_await_end(struct actor *a); /* its wait status */

/* Inside a part. A failure there ends the process, which the test hears of as a missing answer. */
#define part_must(condition) ((condition) ? (void)0 : part_fails(__FILE__, __LINE__, #condition))
_Noreturn void part_fails(const char *file, int line, const char *condition);
hf_client *part_client(void);                                  /* opens one */
void part_says(struct actor *me, const struct answer *answer); /* at_ns is filled in */
void part_awaits_go(struct actor *me);
void part_follows_orders(struct actor *me, hf_client *client);

/* ---- Seeing ---- */

struct hf_request request_of(const struct want *want);
/* The lease that is wanted, or the test fails. */
hf_lease *must_acquire(hf_client *client, const struct want *want);
void must_release(hf_lease *lease); /* and freed */

/* What hf_show says of a name. */
struct sight {
    uint32_t holders, waiters, used, capacity;
    uint64_t token; /* of the first holder */
    int64_t pid;    /* of the first holder */
    int64_t left_ms, since_ms;
};
struct sight see(hf_client *client, const char *name);
/* Waits until that many wait (and hold) there; -1: any number. The test fails when it does not
 * happen. */
struct sight await_sight(hf_client *client, const char *name, int holders, int waiters);
/* On an engine without a queue nobody is seen waiting: who should be is given the time to ask
 * instead. */
void sight_hides_waiters(bool hidden);
