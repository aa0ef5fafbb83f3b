/* chaos_server.h - what happens to the server, to its data and to its clocks; each fault returns
 * how often it happened.
 */
#pragma once
#include "chaos_world.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

/* ---- The server and its data ---- */

static inline unsigned pause_server(void)
{
    server_pause(scene.server);
    nap_us(draw(700) * 1000);
    server_continue(scene.server);
    return 1;
}

static inline unsigned kill_server(void)
{
    server_kill9(scene.server);
    nap_us(draw(200) * 1000);
    server_restart(scene.server, true);
    world.kills++;
    return 1;
}

static inline unsigned empty_server(void)
{
    int64_t from = now_ns();
    server_kill9(scene.server);
    server_restart(scene.server, false);
    tell_fault(H_FORGOT, H_ALL, from, 0);
    world.kills++;
    return 1;
}

static inline void cut_file(void)
{
    glob_t found;
    struct stat file;
    assert_int_equal(glob(server_file(scene.server, "appendonlydir/*.incr.aof"), 0, NULL, &found),
                     0);
    const char *path = found.gl_pathv[found.gl_pathc - 1];
    assert_int_equal(stat(path, &file), 0);
    off_t lost = 1 + (off_t)draw(3000);
    assert_int_equal(truncate(path, file.st_size > lost ? file.st_size - lost : 0), 0);
    globfree(&found);
}

static inline unsigned truncate_file(void)
{
    int64_t from = now_ns();
    server_kill9(scene.server);
    cut_file();
    server_restart(scene.server, true);
    tell_fault(H_FORGOT, H_ALL, from, 0);
    world.kills++;
    return 1;
}

static inline unsigned flush_all(void)
{
    int64_t from = now_ns();
    server_does(scene.server, "FLUSHALL");
    tell_fault(H_FORGOT, H_ALL, from, 0);
    return 1;
}

static inline unsigned kill_connections(void)
{
    return (unsigned)(server_count(scene.server, "CLIENT KILL TYPE normal") +
                      server_count(scene.server, "CLIENT KILL TYPE pubsub"));
}

/* Waits for its end: the server counts by its own clock, and a step back would make it long. */
static inline unsigned pause_connections(void)
{
    int ms = 50 + (int)draw(300);
    server_does(scene.server, "CLIENT PAUSE %d %s", ms, draw(2) ? "ALL" : "WRITE");
    nap_us(ms * 1000);
    return 1;
}

/* ---- What it refuses ---- */

/* How often it refused with that word. */
static inline int64_t refused_with(const char *word)
{
    char line[40];
    snprintf(line, sizeof line, "errorstat_%s:count=", word);
    redisReply *info = server_cli(scene.server, "INFO errorstats");
    assert_int_equal(info->type, REDIS_REPLY_STRING);
    const char *found = strstr(info->str, line);
    int64_t count = found ? atoll(strchr(found, '=') + 1) : 0;
    freeReplyObject(info);
    return count;
}

/* How often the library was loaded again. */
static inline unsigned flush_library(void)
{
    int64_t before = server_calls(scene.server, "function|load");
    server_does(scene.server, "FUNCTION FLUSH SYNC");
    nap_us(100000);
    return (unsigned)(server_calls(scene.server, "function|load") - before);
}

static inline void set_memory(const char *policy, int most)
{
    server_does(scene.server, "CONFIG SET maxmemory-policy %s maxmemory %d", policy, most);
}

static inline unsigned fill_memory(void)
{
    int64_t before = refused_with("OOM");
    set_memory("noeviction", 1);
    nap_us((100 + draw(400)) * 1000);
    set_memory("noeviction", 0);
    return (unsigned)(refused_with("OOM") - before);
}

static inline unsigned evict(void)
{
    int64_t from = now_ns(), before = server_info_number(scene.server, "stats", "evicted_keys");
    set_memory("volatile-lru", 1);
    nap_us(draw(100) * 1000);
    set_memory("noeviction", 0);
    tell_fault(H_FORGOT, H_ALL, from, 0);
    return (unsigned)(server_info_number(scene.server, "stats", "evicted_keys") - before);
}

/* Of nobody that there is: it keeps its data and takes no writes. */
static inline unsigned make_replica(void)
{
    int64_t before = refused_with("READONLY");
    server_does(scene.server, "REPLICAOF 127.0.0.1 1");
    nap_us((50 + draw(500)) * 1000);
    server_replica_of(scene.server, NULL);
    return (unsigned)(refused_with("READONLY") - before);
}

/* ---- Its clocks ---- */

static inline int64_t some_seconds(void)
{
    static const int64_t steps[] = {1, 3, 20, 3600};
    return steps[draw(4)];
}

static inline unsigned step_forward(void)
{
    int64_t from = now_ns(), by = some_seconds();
    quorum_step_clock(&world.clock, 0, by);
    tell_fault(H_AHEAD, H_ALL, from, by);
    return 1;
}

static inline unsigned step_back(void)
{
    int64_t from = now_ns(), by = some_seconds();
    quorum_step_clock(&world.clock, 0, -by);
    tell_fault(H_BACK, H_ALL, from, -by);
    return 1;
}

static inline int64_t clock_number(int which, const int64_t *set)
{
    int64_t value = 0;
    int fd = open(server_file(scene.server, "clock"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (set)
        assert_int_equal(pwrite(fd, set, sizeof *set, which * (off_t)sizeof *set), sizeof *set);
    assert_int_equal(pread(fd, &value, sizeof value, which * (off_t)sizeof value), sizeof value);
    close(fd);
    return value;
}

/* The clock on which the server's own timers run; see wrong_clock.c. */
static inline unsigned step_monotonic(void)
{
    enum { WRONG_MONOTONIC = 2, TOLD = 4 };
    int64_t ahead_us = clock_number(WRONG_MONOTONIC, NULL) + some_seconds() * 1000000;
    clock_number(WRONG_MONOTONIC, &ahead_us);
    int64_t before = clock_number(TOLD, NULL);
    server_does(scene.server, "PING");
    return clock_number(TOLD, NULL) > before;
}
