/* closing.c - callers that block, and closing with callers and waits under way. Starts no process,
 * so that it can run under TSan. */
#include "lib/engines.h"

#include <pthread.h>
#include <stdio.h>

enum { CLOSE_WAITS = 200, CLOSE_MS = 3000 };

#define PATIENT(...) ASK(.wait_ms = HF_FOREVER, __VA_ARGS__)

struct blocked {
    hf_client *client;
    hf_status status;
    char words[128];
};

static void *block(void *arg)
{
    struct blocked *b = arg;
    hf_lease *lease;
    b->status = hf_acquire(b->client, PATIENT(.name = "a"), &lease);
    snprintf(b->words, sizeof b->words, "%s", b->status ? hf_error_text() : "");
    if (lease)
        b->status = hf_release(lease);
    hf_lease_free(lease);
    return NULL;
}

static void test_blocked_is_woken(void **state)
{
    (void)state;
    struct blocked b = {.client = row_client()};
    hf_lease *held = take(b.client, ASK(.name = "a"));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, block, &b), 0);
    await_sight(b.client, "a", 1, 1);
    give(held);
    pthread_join(thread, NULL);
    assert_int_equal(b.status, HF_OK);
}

static void test_close_with_waits(void **state)
{
    (void)state;
    static struct outcome waiter[CLOSE_WAITS];
    hf_client *client = open_client(NULL, NULL);
    hf_lease *held = take(row_client(), ASK(.name = "a", .ttl_ms = 60000));
    take(client, ASK(.name = "b", .ttl_ms = 60000));
    take(client, ASK(.name = "c", .ttl_ms = 60000, .flags = HF_AUTO_RENEW));
    for (int i = 0; i < CLOSE_WAITS; i++)
        start_ask(client, PATIENT(.name = "a"), &waiter[i]);
    struct blocked b = {.client = client};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, block, &b), 0);
    await_sight(row_client(), "a", 1, CLOSE_WAITS + 1);
    int64_t before = now_ns();
    assert_int_equal(hf_close(client, CLOSE_MS), HF_OK);
    assert_true(now_ns() - before < (int64_t)CLOSE_MS * 1000000 + 1000000000);
    pthread_join(thread, NULL);
    assert_int_equal(b.status, HF_CLOSED);
    for (int i = 0; i < CLOSE_WAITS; i++) {
        assert_int_equal(atomic_load(&waiter[i].calls), 1);
        assert_int_equal(atomic_load(&waiter[i].status), HF_CLOSED);
    }
    assert_int_equal(look_at(row_client(), "a").waiters, 0);
    assert_int_equal(look_at(row_client(), "b").holders + look_at(row_client(), "c").holders, 0);
    give(held);
    assert_int_equal(hf_close(NULL, 0), HF_OK);
}

/* Without any time: what is held and what waits is given back all the same, although nobody waits
 * for the answer. */
static void test_close_at_once(void **state)
{
    (void)state;
    static struct outcome waiter[CLOSE_WAITS];
    hf_client *client = open_client(NULL, NULL);
    hf_lease *held = take(row_client(), ASK(.name = "a", .ttl_ms = 60000));
    take(client, ASK(.name = "b", .ttl_ms = 60000));
    for (int i = 0; i < CLOSE_WAITS; i++)
        start_ask(client, PATIENT(.name = "a", .ttl_ms = 60000), &waiter[i]);
    await_sight(row_client(), "a", 1, CLOSE_WAITS);
    hf_status status = hf_close(client, 0);
    assert_true(status == HF_OK ||
                status == HF_IN_DOUBT); /* said of answers that nobody waited for */
    for (int i = 0; i < CLOSE_WAITS; i++) {
        assert_int_equal(atomic_load(&waiter[i].calls), 1);
        assert_int_equal(atomic_load(&waiter[i].status), HF_CLOSED);
    }
    int64_t closed = now_ns();
    await_sight(row_client(), "a", 1, 0);
    await_sight(row_client(), "b", 0, 0);
    give(held);
    give(take(row_client(), PATIENT(.name = "a")));
    assert_in_range((now_ns() - closed) / 1000000, 0, 5000);
}

struct lingering {
    hf_client *client;
    _Atomic int inside, go;
};

static void linger(void *arg, const struct hf_row *row)
{
    struct lingering *l = arg;
    (void)row;
    atomic_store(&l->inside, 1);
    while (!atomic_load(&l->go))
        nap_us(100);
}

static void *call_and_linger(void *arg)
{
    struct lingering *l = arg;
    return hf_show(l->client, "a", linger, l) == HF_OK ? arg : NULL;
}

static void test_close_while_inside(void **state)
{
    (void)state;
    struct lingering l = {.client = open_client(NULL, NULL)};
    hf_lease *held = take(row_client(), ASK(.name = "a"));
    pthread_t thread;
    void *done;
    assert_int_equal(pthread_create(&thread, NULL, call_and_linger, &l), 0);
    await_count(&l.inside, 1);
    int64_t before = now_ns();
    assert_refused(hf_close(l.client, 100), HF_TIMEOUT, "another thread");
    assert_true(now_ns() - before >= 100000000 && now_ns() - before < 5000000000);
    hf_lease *none;
    assert_int_equal(hf_acquire(l.client, ASK(.name = "b"), &none), HF_CLOSED);
    atomic_store(&l.go, 1);
    pthread_join(thread, &done);
    assert_ptr_equal(done, &l);
    close_client(l.client);
    give(held);
}

/* ---- Handles that outlive hf_close ---- */

enum { KEPT = 64 };

static hf_client *open_keeping(void)
{
    return open_client(NULL, &(struct hf_client_options){.size = sizeof(struct hf_client_options),
                                                         .keep_handles = true});
}

static void assert_closed(hf_lease *lease, const char *name)
{
    assert_false(hf_lease_ok(lease));
    assert_int_equal(hf_lease_left_ms(lease), 0);
    assert_string_equal(hf_lease_name(lease), name);
    assert_refused(hf_release(lease), HF_CLOSED, "closed");
    assert_refused(hf_extend(lease, 0), HF_CLOSED, "closed");
    assert_refused(hf_cancel(lease), HF_CLOSED, "closed");
    assert_int_equal(hf_lease_fd(lease), -1);
}

static void test_handles_outlive(void **state)
{
    (void)state;
    hf_client *client = open_keeping();
    hf_lease *held = take(client, ASK(.name = "a", .ttl_ms = 60000));
    hf_lease *freed = take(client, ASK(.name = "b", .ttl_ms = 60000));
    hf_lease *released = take(client, ASK(.name = "c", .ttl_ms = 60000));
    struct outcome waiter;
    start_ask(client, PATIENT(.name = "a"), &waiter);
    assert_int_equal(hf_release(released), HF_OK);
    hf_lease_free(freed);
    close_client(client);

    assert_int_equal(look_at(row_client(), "a").holders + look_at(row_client(), "b").holders, 0);
    assert_int_equal(atomic_load(&waiter.calls), 1);
    assert_closed(held, "a");
    assert_closed(released, "c");
    assert_closed(waiter.lease, "a");
    assert_true(hf_lease_token(held) > 0);
    hf_lease_free(held);
    assert_closed(released, "c");
    hf_lease_free(released);
    hf_lease_free(waiter.lease);
}

struct kept {
    hf_lease *lease[KEPT];
    pthread_barrier_t start;
};

static void *free_all(void *arg)
{
    struct kept *kept = arg;
    pthread_barrier_wait(&kept->start);
    for (int i = 0; i < KEPT; i++)
        hf_lease_free(kept->lease[i]);
    return NULL;
}

/* The last of the two frees the memory, whichever that is. */
static void test_free_beside_close(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct kept kept;
        hf_client *client = open_keeping();
        assert_int_equal(pthread_barrier_init(&kept.start, NULL, 2), 0);
        for (int i = 0; i < KEPT; i++) {
            char name[16];
            snprintf(name, sizeof name, "n%d", i);
            kept.lease[i] = take(client, ASK(.name = name, .wait_ms = 5000));
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_all, &kept), 0);
        pthread_barrier_wait(&kept.start);
        close_client(client);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&kept.start);
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("a blocked caller is woken by a release in its own process", test_blocked_is_woken),
        ROW("closing is bounded, tells 200 waits and a blocked caller, and frees what was held",
            test_close_with_waits),
        ROW("closing without time tells 200 waits, and leaves neither them nor what was held "
            "behind",
            test_close_at_once),
        ROW("closing while another thread is inside a call says so, frees nothing, and can be "
            "repeated",
            test_close_while_inside),
        ROW("with keep_handles handles outlive the client, and answer that it is closed",
            test_handles_outlive),
        ROW("with keep_handles a thread may free handles while another closes",
            test_free_beside_close),
    };
    return JUDGE(rows);
}
