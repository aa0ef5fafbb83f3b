/* redis_data_loss.c - a server that starts again with its data, without them or with a part of
 * them, that is flushed, and that throws keys away: who holds hears soon of what is gone and keeps
 * the rest, and who waits has it (G13). */
#include "redis_reconnect_fixture.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The server starts again ---- */

static void test_restart_with_data(void **state)
{
    (void)state;
    struct loss loss = {0};
    static struct waiter w;
    hf_lease *held = hold_before(&w, TTL_MS, &loss);
    uint64_t token = hf_lease_token(held);
    server_restart(scene.server, true);
    nap_us(TTL_MS * 1000 * 3 / 2); /* it is renewed meanwhile, or it would be over */
    assert_int_equal(atomic_load(&loss.times), 0);
    assert_true(hf_lease_ok(held) && hf_lease_left_ms(held) > 0);
    assert_int_equal(hf_lease_token(held), token);
    assert_false(atomic_load(&w.over));
    give(held);
    end_wait(&w);
    assert_true(hf_lease_token(w.lease) > token);
    give(w.lease);
    close_in_time(w.client);
}

/* The holder hears of it at its next renewal, long before its time is over; who waits has it at
 * once. */
static void test_restart_without_data(void **state)
{
    (void)state;
    struct loss loss = {0};
    static struct waiter w;
    hf_lease *held = hold_before(&w, 3 * TTL_MS, &loss);
    int64_t from = now_ns();
    server_restart(scene.server, false);
    end_wait(&w);
    int64_t lost_ms = await_loss(&loss, from);
    print_message("# granted after %lld ms, lost after %lld ms of %d\n",
                  (long long)w.took_us / 1000, (long long)lost_ms, 3 * TTL_MS);
    assert_in_range(lost_ms, 0, TTL_MS + SOON_MS);
    assert_false(hf_lease_ok(held));
    assert_int_equal(hf_release(held), HF_NOT_HELD);
    hf_lease_free(held);
    assert_true(hf_lease_ok(w.lease));
    give(w.lease);
    close_in_time(w.client);
}

/* It is gone from the server: the holder hears of it at its next look, and who waits has it. */
static void check_lost(void (*lose)(void))
{
    struct loss loss = {0};
    static struct waiter w;
    hf_lease *held = hold_before(&w, TTL_MS, &loss);
    int64_t from = now_ns();
    lose();
    int64_t lost_ms = await_loss(&loss, from);
    end_wait(&w);
    print_message("# lost after %lld ms, granted after %lld ms of %d\n", (long long)lost_ms,
                  (long long)(now_ns() - from) / 1000000, TTL_MS);
    assert_in_range(lost_ms, 0, TTL_MS / 3 + SOON_MS);
    hf_lease_free(held);
    assert_true(hf_lease_ok(w.lease));
    give(w.lease);
    close_in_time(w.client);
}

static void flush_all(void)
{
    server_does(scene.server, "FLUSHALL");
}

static void test_flushed(void **state)
{
    (void)state;
    check_lost(flush_all);
}

/* The queue is lost with the data: nobody tells the second and the third that the lock is free, so
 * all of them must ask. They share a client, of which only the first asks by itself. */
static void test_flushed_with_waiters(void **state)
{
    (void)state;
    enum { WAITERS = 3, LONG_MS = 30000, SOON_FREE_MS = 700 };
    static struct waiter w[WAITERS];
    hf_lease *held = hold(scene_client(), "turn", LONG_MS, NULL);
    hf_client *client = open_at(server_port(scene.server));
    for (int i = 0; i < WAITERS; i++) {
        w[i] = (struct waiter){.client = client, .name = "turn", .wait_ms = WAIT_MS};
        begin_wait(&w[i], i + 1);
    }
    nap_us(2000000); /* they have stopped to ask often */

    int64_t from = now_ns();
    flush_all();
    for (int left = WAITERS; left; nap_us(500))
        for (int i = 0; i < WAITERS; i++)
            if (w[i].client && atomic_load(&w[i].over)) {
                end_wait(&w[i]);
                give(w[i].lease);
                w[i].client = NULL;
                left--;
            }
    int64_t took_ms = (now_ns() - from) / 1000000;
    print_message("# three waiters in turn within %lld ms\n", (long long)took_ms);
    assert_in_range(took_ms, 0, SOON_FREE_MS);
    hf_lease_free(held);
    close_in_time(client);
}

/* Under this policy whatever has an end goes when memory is short: locks, queues, counters. */
static void evict(void)
{
    server_does(scene.server, "CONFIG SET maxmemory-policy volatile-lru maxmemory 1");
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
         server_count(scene.server, "EXISTS lock:turn"); nap_us(500))
        if (now_ns() > end)
            fail_msg("nothing is evicted");
    server_does(scene.server, "CONFIG SET maxmemory 0");
    assert_true(server_info_number(scene.server, "stats", "evicted_keys") > 0);
}

static void test_evicted(void **state)
{
    (void)state;
    check_lost(evict);
}

/* ---- A part of its data ---- */

/* The file to which the server appends; the caller frees it. */
static char *appended_file(void)
{
    glob_t found;
    assert_int_equal(glob(server_file(scene.server, "appendonlydir/*.incr.aof"), 0, NULL, &found),
                     0);
    char *path = strdup(found.gl_pathv[found.gl_pathc - 1]);
    assert_non_null(path);
    globfree(&found);
    return path;
}

static off_t size_of(const char *path)
{
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    return file.st_size;
}

/* What was written after the first hold is cut off in the middle of a command. */
static void test_truncated(void **state)
{
    (void)state;
    struct loss loss[2] = {0};
    hf_client *client = scene_client();
    hf_lease *kept = hold(client, "kept", LONG_TTL_MS, &loss[0]);
    char *path = appended_file();
    off_t whole = size_of(path);
    hf_lease *gone = hold(client, "gone", LONG_TTL_MS, &loss[1]);
    uint64_t token = hf_lease_token(gone);
    assert_true(size_of(path) > whole + 3);
    server_kill9(scene.server);
    assert_int_equal(truncate(path, whole + 3), 0);
    free(path);
    server_restart(scene.server, true);
    assert_int_equal(server_count(scene.server, "EXISTS lock:kept"), 1);
    assert_int_equal(server_count(scene.server, "EXISTS lock:gone"), 0);
    int64_t from = now_ns();
    hf_lease *next =
        must_acquire(client, &(struct want){.name = "gone", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS});
    assert_true(hf_lease_token(next) > token);
    assert_in_range(await_loss(&loss[1], from), 0, LONG_TTL_MS / 3 + SOON_MS);
    assert_int_equal(atomic_load(&loss[0].times), 0);
    assert_true(hf_lease_ok(kept) && !hf_lease_ok(gone));
    must_release(next);
    hf_lease_free(kept);
    hf_lease_free(gone);
}

/* Another run of the server, with the data or without them. */
static void check_another_run(bool keep_data)
{
    struct loss loss[2] = {0};
    hf_client *client = scene_client();
    hf_lease *held[2] = {hold(client, "one", LONG_TTL_MS, &loss[0]),
                         hold(client, "two", LONG_TTL_MS, &loss[1])};
    server_restart(scene.server, keep_data);
    int64_t before = server_calls(scene.server, "fcall"), from = now_ns();
    struct waiter other = {.client = client, .name = "another", .wait_ms = WAIT_MS};
    wait_there(&other);
    assert_int_equal(other.status, HF_OK);
    for (int i = 0; i < 2 && !keep_data; i++)
        assert_in_range(await_loss(&loss[i], from), 0, SOON_MS);
    while (server_calls(scene.server, "fcall") < before + 3) { /* an ask, and a look at each */
        if (now_ns() - from > SOON_MS * 1000000LL)
            fail_msg("they are not looked at");
        nap_us(1000);
    }
    nap_us(50000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&loss[i].times), keep_data ? 0 : 1);
        assert_int_equal(hf_lease_ok(held[i]), keep_data);
        hf_lease_free(held[i]);
    }
    hf_lease_free(other.lease);
}

static void test_same_data(void **state)
{
    (void)state;
    check_another_run(true);
}

static void test_no_data(void **state)
{
    (void)state;
    check_another_run(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LASTING("a server that starts again with its data has all as it was",
                test_restart_with_data),
        LASTING("of a server that starts again without them the holder hears soon",
                test_restart_without_data),
        LASTING("of what a truncated file lost the holder hears, and the rest goes on",
                test_truncated),
        PLAYED("all is flushed: the holder hears soon, and who waits has it", test_flushed),
        PLAYED("all is flushed: three who wait have it in turn, soon", test_flushed_with_waiters),
        PLAYED("a full server throws a lock away: the holder hears soon, and who waits has it",
               test_evicted),
        LASTING("in another run of the server with its data every hold goes on", test_same_data),
        LASTING("in another run of the server without its data every hold is lost at once",
                test_no_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
