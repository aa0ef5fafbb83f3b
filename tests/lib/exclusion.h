/* exclusion.h - worker processes that take turns under one lock, "e", until they are stopped.
 *
 * Each worker writes its pid into shared memory while it holds the lock, waits, and reads it back.
 * If its lease is still good and the pid is another one, two held at once. */
#pragma once
#include "engines.h"
#include "nap.h"

enum { WORKERS = 4, WORKER_TTL_MS = 2000 };

struct board {
    _Atomic int inside;          /* pid of the holder */
    _Atomic int turns;           /* number of turns so far */
    _Atomic int overlaps;        /* number of turns in which another process held, too */
    _Atomic int token_went_back; /* number of turns whose token was not above the one before */
    _Atomic int stop;
    _Atomic uint64_t token;
};

/* In memory that the workers share. */
extern struct board *board;

/* Workers and connect_here() use that URL. Returns what a group's setup returns. */
int exclusion_setup(const char *url);
void exclusion_teardown(void);

/* A new client of the URL, with more settings, "&lock_delay=3s" or "". */
hf_client *connect_with(const char *settings);
hf_client *connect_here(void);

/* Returns when the first five turns are over. */
void start_workers(pid_t pid[WORKERS]);
/* SIGKILL, and another worker in its place. */
void replace_worker(pid_t *pid);
/* Ends the workers. No two of them may have held at once, and no token may have gone back. */
void stop_workers(const pid_t pid[WORKERS]);

/* Waits until so many turns were made. Fails the test after 30 s. */
void await_turns(int at_least);
