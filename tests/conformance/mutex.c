/* mutex.c - the exclusive lock, which every engine has: one holder, tokens that rise, ends by
 * release, time and death.
 */
#include "lib/engines.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 300, CYCLES = 200, RACERS = 8, ROUNDS = 60 };

static void test_one_holder(void **state)
{
    (void)state;
    hf_client *a = row_client(), *b = open_client(NULL, NULL);
    hf_lease *held = take(a, ASK(.name = "m"));
    assert_string_equal(hf_lease_name(held), "m");
    refuse(b, ASK(.name = "m"), HF_BUSY, "m");
    refuse(a, ASK(.name = "m"), HF_BUSY,
           "m"); /* another request of the same client is another owner */
    give(held);
    give(take(b, ASK(.name = "m")));
    close_client(b);
}

/* G10 */
static void test_tokens_rise(void **state)
{
    (void)state;
    hf_client *clients[2] = {row_client(), open_client(NULL, NULL)};
    uint64_t last = 0;
    for (int i = 0; i < CYCLES; i++) {
        hf_lease *lease = take(clients[i % 2], ASK(.name = "m"));
        assert_true(hf_lease_token(lease) > last);
        last = hf_lease_token(lease);
        give(lease);
    }
    close_client(clients[1]);
}

/* Whichever token it has, a store that has seen another one does not take it for a newer one. */
static void test_tokenless(void **state)
{
    (void)state;
    hf_client *a = row_client(), *b = open_client(NULL, NULL);
    hf_lease *held = take(a, ASK(.name = "m", .flags = HF_TOKENLESS));
    uint64_t token = hf_lease_token(held);
    assert_true(token > 0);
    refuse(b, ASK(.name = "m"), HF_BUSY, "m");
    refuse(b, ASK(.name = "m", .flags = HF_TOKENLESS), HF_BUSY, "m");
    assert_int_equal(hf_extend(held, 0), HF_OK);
    assert_int_equal(look_at(a, "m").row[0].token, token);
    give(held);
    held = take(b, ASK(.name = "m"));
    assert_true(hf_lease_token(held) > token);
    refuse(a, ASK(.name = "m", .flags = HF_TOKENLESS), HF_BUSY, "m");
    token = hf_lease_token(held);
    give(held);
    held = take(a, ASK(.name = "m", .flags = HF_TOKENLESS, .wait_ms = HF_FOREVER));
    assert_true(hf_lease_token(held) > token || hf_lease_token(held) == 1);
    give(held);
    close_client(b);
}

/* G16 */
static void test_release_twice(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "m"));
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease *next = take(client, ASK(.name = "m"));
    assert_refused(hf_release(lease), HF_NOT_HELD, "m");
    assert_refused(hf_extend(lease, 0), HF_NOT_HELD, "m");
    assert_true(hf_lease_ok(next));
    assert_int_equal(look_at(client, "m").row[0].token, hf_lease_token(next));
    hf_lease_free(lease);
    give(next);
}

/* G16 */
static void test_ends_by_time(void **state)
{
    (void)state;
    hf_client *other = open_client(NULL, NULL);
    hf_lease *lease = take(row_client(), ASK(.name = "m", .ttl_ms = ttl(200)));
    uint64_t token = hf_lease_token(lease);
    hf_lease *next = take(other, ASK(.name = "m", .wait_ms = HF_FOREVER));
    assert_int_equal(hf_lease_left_ms(lease), 0);
    assert_true(hf_lease_token(next) > token);
    assert_refused(hf_extend(lease, 0), HF_LOST, "m");
    assert_refused(hf_release(lease), HF_NOT_HELD, "m");
    assert_true(hf_lease_ok(next));
    hf_lease_free(lease);
    give(next);
    close_client(other);
}

/* G12 */
static void test_never_optimistic(void **state)
{
    (void)state;
    hf_client *client = row_client();
    assert_int_equal(engine_connect(client), HF_OK); /* the ttl counts from the request on */
    int64_t before = now_ns();
    hf_lease *lease = take(client, ASK(.name = "m", .ttl_ms = 5000));
    /* Until a third of the ttl is over, when the lease is renewed. */
    for (int i = 0; i < CYCLES && now_ns() - before < INT64_C(1500) * 1000000; i++) {
        int64_t left = hf_lease_left_ms(lease), passed = (now_ns() - before) / 1000000;
        int64_t shown = look_at(client, "m").row[0].left_ms;
        assert_true(left <= 5000 && left + passed <= 5000 + 1);
        assert_true(left >= shown - 100 - 5000 / 50); /* nor is it needlessly dark */
    }
    give(lease);
}

/* G14 */
static void test_extend(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "m", .ttl_ms = 1000));
    uint64_t token = hf_lease_token(lease);
    assert_int_equal(hf_extend(lease, 60000), HF_OK);
    assert_true(hf_lease_left_ms(lease) > 50000);
    assert_int_equal(hf_extend(lease, ttl(100)), HF_OK); /* never shortens */
    assert_int_equal(hf_extend(lease, 0), HF_OK);
    assert_true(hf_lease_left_ms(lease) > 50000 && look_at(client, "m").row[0].left_ms > 50000);
    assert_int_equal(hf_lease_token(lease), token);
    give(lease);
}

/* G4 */
static void test_timeout(void **state)
{
    (void)state;
    hf_lease *held = take(row_client(), ASK(.name = "m"));
    hf_client *other = open_client(NULL, NULL);
    int64_t before = now_ns();
    refuse(other, ASK(.name = "m", .wait_ms = 150), HF_TIMEOUT, "150 ms");
    assert_true(now_ns() - before >= 150000000);
    assert_int_equal(look_at(other, "m").waiters, 0);
    give(held);
    give(take(other, ASK(.name = "m")));
    close_client(other);
}

/* G17 */
static void test_death(void **state)
{
    (void)state;
    int64_t ttl = engine()->notices_death ? 60000 : 1000;
    struct actor *holder = actor_here();
    struct answer held = actor_holds(holder, 0, &(struct want){.name = "m", .ttl_ms = ttl});
    actor_kill(holder);
    hf_lease *next = take(row_client(), ASK(.name = "m", .wait_ms = ACTOR_PATIENCE_MS));
    assert_true(hf_lease_token(next) > held.token);
    give(next);
}

static void test_close_frees(void **state)
{
    (void)state;
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "m", .ttl_ms = 60000});
    assert_int_equal(actor_does(holder, ORDER_CLOSE, 0).status, HF_OK);
    give(take(row_client(), ASK(.name = "m")));
}

/* A counter that is only right if nobody else is inside. */
struct shared {
    _Atomic int inside, most;
    int64_t sum; /* not atomic on purpose: the lock guards it */
};

static void add_once(hf_client *client, struct shared *shared, uint64_t *last)
{
    hf_lease *lease = NULL;
    part_must(hf_acquire(client, ASK(.name = "m", .ttl_ms = turn_ttl_ms(), .wait_ms = HF_FOREVER),
                         &lease) == HF_OK);
    int inside = atomic_fetch_add(&shared->inside, 1) + 1;
    if (inside > atomic_load(&shared->most))
        atomic_store(&shared->most, inside);
    part_must(hf_lease_token(lease) > *last);
    *last = hf_lease_token(lease);
    shared->sum++;
    atomic_fetch_sub(&shared->inside, 1);
    part_must(hf_release(lease) == HF_OK);
    hf_lease_free(lease);
}

static void race(struct actor *me, void *arg)
{
    hf_client *client;
    uint64_t last = 0;
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    for (int i = 0; i < rounds(ROUNDS); i++)
        add_once(client, arg, &last);
    part_says(me, &(struct answer){.what = ORDER_GO, .status = hf_close(client, 5000)});
}

/* G1 */
static void test_race(void **state)
{
    (void)state;
    struct shared *shared = shared_page(sizeof *shared);
    struct actor *racer[RACERS];
    for (int i = 0; i < RACERS; i++)
        racer[i] = actor_start_part(race, shared);
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(actor_answer(racer[i], ORDER_GO, 0).status, HF_OK);
    assert_int_equal(atomic_load(&shared->most), 1);
    assert_int_equal(shared->sum, RACERS * rounds(ROUNDS));
    assert_int_equal(look_at(row_client(), "m").holders, 0);
}

/* Lengths at which an engine may begin to cut: names that agree up to there and differ after. */
/* G9 */
static void test_names_are_apart(void **state)
{
    (void)state;
    static const size_t shared_lengths[] = {1,   16,  64,  96,  127, 128, 129,
                                            255, 256, 351, 352, 353, 500, 511};
    hf_client *client = row_client();
    char name[HF_NAME_MAX + 1];
    for (size_t i = 0; i < sizeof shared_lengths / sizeof *shared_lengths; i++) {
        size_t len = shared_lengths[i];
        hf_lease *lease[4];
        memset(name, 'x', sizeof name);
        lease[0] = take(client, ASK(.name = name, .name_len = len));
        for (int last = 0; last < 3; last++) {
            name[len] = "abx"[last];
            lease[1 + last] = take(client, ASK(.name = name, .name_len = len + 1));
            refuse(client, ASK(.name = name, .name_len = len + 1), HF_BUSY, "");
        }
        for (int j = 0; j < 4; j++)
            give(lease[j]);
    }
}

static void make_name(char name[32], unsigned number)
{
    static const char letters[] = "{}:*?[]%\\ /.-_aA0\"'";
    uint32_t mixed = number * 2654435761u + 1;
    for (int i = 0; i < 12; i++, mixed = mixed * 1664525u + 1013904223u)
        name[i] = letters[mixed >> 24 & 15];
    snprintf(name + 12, 20, "%u", number);
}

static void test_random_names_are_apart(void **state)
{
    (void)state;
    hf_client *client = row_client();
    static hf_lease *lease[NAMES];
    char name[32];
    for (unsigned i = 0; i < NAMES; i++) {
        make_name(name, i);
        lease[i] = take(client, ASK(.name = name));
    }
    for (unsigned i = 0; i < NAMES; i++) {
        make_name(name, i);
        struct view seen = look_at(client, name);
        assert_int_equal(seen.holders, 1);
        assert_int_equal(seen.row[0].token, hf_lease_token(lease[i]));
        give(lease[i]);
        assert_int_equal(look_at(client, name).holders, 0);
    }
}

/* G9 */
static void test_mismatch(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !offers(NEED_READ_WRITE))
        return;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "m"));
    refuse(client, ASK(.name = "m", .kind = HF_SEMAPHORE, .capacity = 2), HF_MISMATCH, "m");
    refuse(client, ASK(.name = "m", .kind = HF_READ), HF_MISMATCH, "m");
    refuse(client, ASK(.name = "m", .kind = HF_WRITE, .wait_ms = HF_FOREVER), HF_MISMATCH, "m");
    give(lease);
    give(take(client, ASK(.name = "m", .kind = HF_READ)));
    lease = take(client, ASK(.name = "m", .kind = HF_SEMAPHORE, .capacity = 2));
    refuse(client, ASK(.name = "m", .kind = HF_SEMAPHORE, .capacity = 3), HF_MISMATCH,
           "m: is in use with capacity 2, not 3");
    assert_int_equal(strncmp(hf_error_text(), "m: is in use", 12), 0); /* it names the lock once */
    refuse(client, ASK(.name = "m"), HF_MISMATCH, "m: is in use as");
    assert_int_equal(strncmp(hf_error_text(), "m: is in use", 12), 0);
    give(lease);
}

/* G11 */
static void test_fence(void **state)
{
    (void)state;
    struct hf_fence fence = {0};
    hf_client *client = row_client();
    hf_lease *old = take(client, ASK(.name = "m", .ttl_ms = ttl(100)));
    uint64_t token = hf_lease_token(old);
    assert_int_equal(hf_fence_admit(&fence, token), HF_OK);
    hf_lease *new = take(client, ASK(.name = "m", .wait_ms = HF_FOREVER));
    assert_int_equal(hf_fence_admit(&fence, hf_lease_token(new)), HF_OK);
    assert_int_equal(hf_fence_admit(&fence, hf_lease_token(new)), HF_OK);
    assert_refused(hf_fence_admit(&fence, token), HF_LOST, "older");
    hf_lease_free(old);
    give(new);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("a second request is refused as busy, by another client and by the same one",
            test_one_holder),
        ROW("tokens rise strictly with every grant, whoever asks", test_tokens_rise),
        ROW("what is asked for without a token excludes as any other does", test_tokenless),
        ROW("the second release is not held and does not touch the next holder",
            test_release_twice),
        ROW("a hold ends by its ttl, and its late release and extend change nothing",
            test_ends_by_time),
        ROW("the time left is never optimistic", test_never_optimistic),
        ROW("an extend lengthens, never shortens, and keeps the token", test_extend),
        ROW("a wait that is over leaves no place in the queue", test_timeout),
        ROW("what a killed process held is free again, with a higher token", test_death),
        ROW("closing frees what was held", test_close_frees),
        ROW("8 processes count to 480 (by looking: to 88) under the lock, one at a time",
            test_race),
        ROW("names that agree in their first 1 to 511 bytes share no state", test_names_are_apart),
        ROW("300 names of odd letters share no state", test_random_names_are_apart),
        ROW("another kind or capacity is a mismatch while a name is in use, and none after",
            test_mismatch),
        ROW("a fence admits the newer token, and the older one no more", test_fence),
    };
    return JUDGE(rows);
}
