/* local_deaths.c - processes are killed while they hold and wait: what was theirs is free, what is
 * others' stays, and whoever waits goes on. Holds end with their process and not with a thread. How
 * fast is in handoff_delay.c. */
#include "lib/actors.h"

#include "engines/local/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A ttl that no test waits for: whatever comes free here does so by a death. */
enum { LONG_MS = 600000 };
static const struct want now_or_never = {.name = "l", .ttl_ms = LONG_MS};
static const struct want patient = {.name = "l", .ttl_ms = LONG_MS, .wait_ms = HF_FOREVER};

static void test_waiters_killed(void **state)
{
    (void)state;
    enum { QUEUE = 10 };
    static const bool killed[QUEUE] = {[0] = true, [4] = true, [5] = true, [9] = true};
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *waiter[QUEUE];
    struct answer held = actor_holds(holder, 0, &patient);
    for (int i = 0; i < QUEUE; i++) {
        waiter[i] = actor_start();
        actor_acquire(waiter[i], 0, i % 2 ? ORDER_START : ORDER_ACQUIRE, &patient);
        await_sight(client, "l", 1, i + 1);
    }
    for (int i = 0; i < QUEUE; i++)
        if (killed[i])
            actor_kill(waiter[i]);
    assert_int_equal(await_sight(client, "l", 1, 6).token, held.token);
    uint64_t token = held.token;
    actor_does(holder, ORDER_RELEASE, 0);
    for (int i = 0; i < QUEUE; i++) {
        if (killed[i])
            continue;
        struct answer granted = actor_answer(waiter[i], i % 2 ? ORDER_START : ORDER_ACQUIRE, 0);
        assert_int_equal(granted.status, HF_OK);
        assert_true(granted.token > token);
        token = granted.token;
        assert_int_equal(actor_does(waiter[i], ORDER_RELEASE, 0).status, HF_OK);
    }
    assert_int_equal(see(client, "l").waiters, 0);
}

static void test_holder_and_head_killed(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *actor[4];
    for (int i = 0; i < 4; i++) {
        actor[i] = actor_start();
        actor_acquire(actor[i], 0, ORDER_ACQUIRE, &patient);
        await_sight(client, "l", 1, i);
    }
    actor_stop(actor[1]); /* so that it is surely dead before it could use what it was given */
    actor_kill(actor[0]);
    actor_kill(actor[1]);
    assert_int_equal(actor_answer(actor[2], ORDER_ACQUIRE, 0).status, HF_OK);
    assert_int_equal(see(client, "l").pid, actor_pid(actor[2]));
    assert_int_equal(see(client, "l").waiters, 1);
}

/* Client i holds own-i and waits for own-(i+1) and own-(i+7); the last four live on. */
enum { CLIENTS = 24, VICTIMS = 20 };

static const char *own_name(int i)
{
    static char name[16];
    snprintf(name, sizeof name, "own-%d", i % CLIENTS);
    return name;
}

static void test_twenty_of_twenty_four(void **state)
{
    (void)state;
    static const int steps[] = {1, 7};
    hf_client *client = stage_client();
    struct actor *actor[CLIENTS];
    uint64_t token[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        actor[i] = actor_start();
        token[i] =
            actor_holds(actor[i], 0, &(struct want){.name = own_name(i), .ttl_ms = LONG_MS}).token;
    }
    for (uint32_t s = 0; s < 2; s++)
        for (int i = 0; i < CLIENTS; i++) {
            struct want want = {
                .name = own_name(i + steps[s]), .ttl_ms = LONG_MS, .wait_ms = HF_FOREVER};
            actor_acquire(actor[i], 1 + s, s ? ORDER_START : ORDER_ACQUIRE, &want);
            await_sight(client, want.name, 1, (int)s + 1);
        }
    for (int i = 0; i < VICTIMS; i++)
        actor_kill(actor[i]);
    /* A survivor that waited for a victim's lock holds it now; one that waited for a survivor's
     * waits on. */
    for (uint32_t s = 0; s < 2; s++)
        for (int i = VICTIMS; i < CLIENTS; i++)
            if ((i + steps[s]) % CLIENTS < VICTIMS) {
                struct answer got = actor_answer(actor[i], s ? ORDER_START : ORDER_ACQUIRE, 1 + s);
                assert_int_equal(got.status, HF_OK);
                assert_true(got.token > token[(i + steps[s]) % CLIENTS]);
            }
    for (int i = 0; i < CLIENTS; i++) {
        bool wanted = false;
        for (int s = 0; s < 2; s++)
            wanted = wanted || (i + CLIENTS - steps[s]) % CLIENTS >= VICTIMS;
        if (i < VICTIMS)
            await_sight(client, own_name(i), wanted ? 1 : 0, 0);
        else
            assert_int_equal(await_sight(client, own_name(i), 1, i == VICTIMS ? 0 : 1).token,
                             token[i]);
    }
    for (int i = VICTIMS; i < CLIENTS; i++)
        assert_int_equal(actor_does(actor[i], ORDER_LOOK, 0).status, HF_OK);
    actor_does(actor[VICTIMS + 1], ORDER_RELEASE, 0);
    assert_int_equal(actor_answer(actor[VICTIMS], ORDER_ACQUIRE, 1).status, HF_OK);
}

enum { MANY = 5000, MANY_FREE_MS = 2000 };

static void hold_many(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = part_client();
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%d", i);
        struct hf_request request = request_of(&(struct want){.name = name, .ttl_ms = LONG_MS});
        hf_lease *lease;
        part_must(hf_acquire(client, &request, &lease) == HF_OK);
    }
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_awaits_go(me);
}

static void count_row(void *arg, const struct hf_row *row)
{
    (void)row;
    ++*(unsigned *)arg;
}

/* G17 */
static void test_five_thousand_holds(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *rich = actor_start_part(hold_many, NULL);
    actor_answer(rich, ORDER_GO, 0);
    unsigned held = 0;
    assert_int_equal(hf_list(client, "many-", count_row, &held), HF_OK);
    assert_int_equal(held, MANY);
    int64_t killed_at = now_ns();
    actor_kill(rich);
    do {
        held = 0;
        assert_int_equal(hf_list(client, "many-", count_row, &held), HF_OK);
        assert_true(now_ns() - killed_at < MANY_FREE_MS * 1000000LL);
    } while (held);
    printf("# %d holds of a killed process were free after %.1f ms\n", MANY,
           (double)(now_ns() - killed_at) / 1e6);
}

static void test_thread_ends(void **state)
{
    (void)state;
    enum { TTL_MS = 200 };
    hf_client *client = stage_client();
    struct actor *a = actor_start(), *b = actor_start();
    struct want kept = {.name = "l", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};
    uint64_t token = actor_holds(a, 0, &kept).token; /* on a thread that ends with the call */
    struct sight seen;
    do {
        nap_us(10000);
        seen = see(client, "l");
        assert_int_equal(seen.token, token);
    } while (seen.since_ms < 4 * TTL_MS);
    actor_acquire(b, 0, ORDER_ACQUIRE, &now_or_never);
    assert_int_equal(actor_answer(b, ORDER_ACQUIRE, 0).status, HF_BUSY);
    assert_int_equal(actor_does(a, ORDER_LOOK, 0).status, HF_OK);
    assert_int_equal(actor_does(a, ORDER_RELEASE, 0).status, HF_OK);
}

static void hold_and_exec(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = part_client();
    struct hf_request request = request_of(&now_or_never);
    hf_lease *lease;
    part_must(hf_acquire(client, &request, &lease) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO, .token = hf_lease_token(lease)});
    part_awaits_go(me);
    execl("/bin/sleep", "sleep", "60", (char *)NULL);
    part_must(false);
}

/* G17 */
static void test_exec(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start_part(hold_and_exec, NULL), *waiter = actor_start();
    uint64_t token = actor_answer(holder, ORDER_GO, 0).token;
    actor_acquire(waiter, 0, ORDER_ACQUIRE, &patient);
    await_sight(client, "l", 1, 1);
    actor_order(holder, ORDER_GO, 0);
    struct answer granted = actor_answer(waiter, ORDER_ACQUIRE, 0);
    assert_int_equal(granted.status, HF_OK);
    assert_true(granted.token > token);
    assert_int_equal(waitpid(actor_pid(holder), NULL, WNOHANG), 0); /* the process itself lives */
}

/* In the ring each client watches the one that joined after it. */
static void test_watcher_stopped(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *watcher = actor_start(), *victim = actor_start(), *newcomer = actor_start();
    uint64_t token = actor_holds(victim, 0, &now_or_never).token;
    struct want other = {.name = "other", .ttl_ms = LONG_MS};
    actor_holds(victim, 1, &other);
    actor_stop(watcher);
    actor_kill(victim);
    actor_await_end(victim);
    assert_int_equal(see(client, "other").holders, 1); /* nobody has buried it */
    struct answer taken = actor_holds(newcomer, 0, &now_or_never);
    assert_true(taken.token > token);
    actor_go_on(watcher);
    await_sight(client, "other", 0, 0);
    assert_int_equal(see(client, "l").token, taken.token);
}

/* Sleeps on the life word of the table's only client, as a thread of a watcher does that has not
 * yet seen that the ring changed, and then ends without looking. */
static void *steal_one_wake(void *arg)
{
    union cell *cell = arg;
    futex_word *life = &cell->client.life.word;
    uint32_t value = atomic_fetch_or(life, FUTEX_WAITERS) | FUTEX_WAITERS;
    futex_wait(life, value, INT64_MAX);
    return NULL;
}

static union cell *only_client(const char *cells)
{
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK; i++) {
        union cell *cell = (union cell *)(uintptr_t)(cells + (size_t)i * LOCAL_CELL);
        if (cell->head.state == CELL_CLIENT)
            return cell;
    }
    return NULL;
}

static void test_wake_stolen(void **state)
{
    (void)state;
    struct actor *holder = actor_start();
    actor_holds(holder, 0, &now_or_never);
    int fd = open(stage_path(), O_RDWR | O_CLOEXEC);
    char *cells = mmap(NULL, LOCAL_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, LOCAL_CELLS_AT);
    assert_ptr_not_equal(cells, MAP_FAILED);
    close(fd);
    pthread_t thief;
    union cell *victim = only_client(cells);
    assert_non_null(victim);
    assert_int_equal(pthread_create(&thief, NULL, steal_one_wake, victim), 0);
    nap_us(50000); /* until it sleeps: nothing else would tell */
    struct actor *waiter = actor_start();
    actor_acquire(waiter, 0, ORDER_ACQUIRE, &patient);
    await_sight(stage_client(), "l", 1, 1);
    actor_kill(holder);
    assert_int_equal(actor_answer(waiter, ORDER_ACQUIRE, 0).status, HF_OK);
    assert_int_equal(pthread_join(thief, NULL), 0);
    munmap(cells, LOCAL_CHUNK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        STAGED("killed waiters leave the queue and the others keep their order",
               test_waiters_killed),
        STAGED("when holder and head of the queue die together the third one holds",
               test_holder_and_head_killed),
        STAGED("20 of 24 clients killed at once: theirs is free, the others keep theirs",
               test_twenty_of_twenty_four),
        STAGED("5,000 holds of one process are free after its death", test_five_thousand_holds),
        STAGED("a hold outlives the thread that acquired it and is renewed", test_thread_ends),
        STAGED("exec in the holder ends its holds", test_exec),
        STAGED("while the watcher of a dead holder is stopped a newcomer gets the lock at once",
               test_watcher_stopped),
        STAGED("a holder's death is seen although the one wake of it went to another thread",
               test_wake_stolen),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
