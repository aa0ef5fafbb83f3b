/* redis_fixture.h - the scene of a test on a real server: one of its own for each test, of each
 * kind that is installed. Actors and the test's own client meet there; the test looks into the
 * server behind their backs. */
#pragma once
#include "lib/actors.h"
#include "lib/servers.h"

#include "core/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct scene {
    enum server_kind kind;
    struct server *server;
    hf_client *client;
    char url[128];
    void *page;
    size_t page_size;
};
extern struct scene scene;

enum { SCENE_TESTS = 16 };

/* ---- Judging ---- */

int scene_setup(void **state);
int scene_teardown(void **state);
int scene_judge_kind(enum server_kind kind, const char *label, const struct CMUnitTest *rows,
                     size_t count);

/* Runs all rows on each kind of server; what main() returns. */
#define SCENE_JUDGE(rows) scene_judge(rows, sizeof(rows) / sizeof *(rows))
int scene_judge(const struct CMUnitTest *rows, size_t count);

/* ---- Company ---- */

/* The test's own client; closed with the scene. */
hf_client *scene_client(void);

/* Inside a part. */
hf_client *scene_part_client(void);

/* A process that follows orders, with a client on the server. */
struct actor *scene_actor(void);

/* Zeroed memory that the test shares with those it starts from now on. Gone with the scene. */
void *scene_page(size_t size);

/* ---- Looking into the server ---- */

/* Waits until that many stand in the queue of a name, dead ones included. */
void scene_await_queue(const char *name, int64_t waiters);

/* The end of a hold as the server knows it, on the clock of now_ns(). */
int64_t scene_end_of_hold(const char *name);

/* What is in the server when nobody holds or waits. */
struct leftovers {
    int64_t counters; /* {lock:NAME}:t */
    int64_t inboxes;  /* messages that nobody fetched */
    int64_t buried;   /* tombstones, */
    int64_t buried_names,
        bytes_buried; /* in so many {lock:NAME}:w, in which nothing else is left */
    int64_t bytes;    /* of memory, of all keys */
    int64_t longest;  /* ttl in ms */
};

int64_t scene_number(redisContext *to, const char *format, const char *key);

/* Only tombstones may be left of those who waited. */
int64_t scene_count_tombs(redisContext *to, const char *key);
void scene_each_key(void (*visit)(redisContext *to, const char *key, void *arg), void *arg);

/* Every key that there is has a ttl and is one of those that may stay; the test fails for any
 * other. */
struct leftovers scene_leftovers(void);

/* How many connections of a process the server has, by their name; 0: of all processes. */
int scene_connections(pid_t pid);
