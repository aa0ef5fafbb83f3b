/* several_names.c - several names at once: all or nothing, without deadlock, lost together. Usage:
 * many [SECONDS]. */
#include "lib/engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 3, CROWD = 8 };

static int crowd_seconds = 5;

/* Takes exclusive locks of these names, in this order of the requests. */
static hf_status take_many(hf_client *client, const char *const names[], size_t count,
                           int64_t ttl_ms, int64_t wait_ms, hf_lease **leases)
{
    struct hf_request request[8];
    const struct hf_request *pointer[8];
    for (size_t i = 0; i < count; i++) {
        request[i] = *ASK(.name = names[i], .ttl_ms = ttl_ms, .wait_ms = HF_FOREVER);
        pointer[i] = &request[i];
    }
    return hf_acquire_many(client, pointer, count, wait_ms, leases);
}

static void must_take(hf_client *client, const char *const names[], size_t count, int64_t ttl_ms,
                      int64_t wait_ms, hf_lease **leases)
{
    if (take_many(client, names, count, ttl_ms, wait_ms, leases) != HF_OK)
        fail_msg("%s", hf_error_text());
}

static void count_row(void *arg, const struct hf_row *row)
{
    (void)row;
    ++*(int *)arg;
}

static void assert_nothing_left(hf_client *client)
{
    int rows = 0;
    if (hf_list(client, NULL, count_row, &rows) != HF_OK)
        fail_msg("%s", hf_error_text());
    assert_int_equal(rows, 0);
}

static const char *const abc[] = {"a", "b", "c"}, *const cab[] = {"c", "a", "b"};

static void test_all(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease[NAMES];
    must_take(client, cab, NAMES, 60000, 0, lease);
    struct hf_counters counters = {.size = sizeof counters};
    assert_int_equal(hf_client_counters(client, &counters), HF_OK);
    assert_int_equal(counters.extended, 0); /* nobody was waited for: no second request a name */
    for (int i = 0; i < NAMES; i++) {
        assert_string_equal(hf_lease_name(lease[i]), cab[i]);
        assert_true(hf_lease_ok(lease[i]) && hf_lease_left_ms(lease[i]) > 50000);
        assert_int_equal(look_at(client, cab[i]).row[0].token, hf_lease_token(lease[i]));
    }
    give(lease[1]); /* given back is not lost: the others stay */
    assert_true(hf_lease_ok(lease[0]) && hf_lease_ok(lease[2]));
    give(lease[0]);
    give(lease[2]);
    assert_nothing_left(client);
}

/* G8 */
static void test_nothing(void **state)
{
    (void)state;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    for (int held = 0; held < NAMES; held++) {
        hf_lease *one = take(other, ASK(.name = abc[held])), *lease[NAMES] = {one, one, one};
        assert_refused(take_many(client, cab, NAMES, 0, 0, lease), HF_BUSY, abc[held]);
        for (int i = 0; i < NAMES; i++) {
            assert_null(lease[i]);
            assert_int_equal(look_at(client, abc[i]).holders, i == held);
        }
        assert_refused(take_many(client, cab, NAMES, 0, 100, lease), HF_TIMEOUT, abc[held]);
        for (int i = 0; i < NAMES; i++) {
            struct view seen = look_at(client, abc[i]);
            assert_int_equal(seen.holders, i == held);
            assert_int_equal(seen.waiters, 0);
        }
        give(one);
    }
    assert_nothing_left(client);
    close_client(other);
}

/* One process that takes a, b and c at once and says how it went. */
struct plan {
    int64_t ttl_ms, wait_ms;
};

static void take_abc(struct actor *me, void *arg)
{
    const struct plan *plan = arg;
    hf_client *client;
    hf_lease *lease[NAMES];
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    struct answer said = {.what = ORDER_ACQUIRE};
    said.status = take_many(client, cab, NAMES, plan->ttl_ms, plan->wait_ms, lease);
    part_says(me, &said);
    part_awaits_go(me);
    for (int i = 0; i < NAMES; i++) {
        part_must(hf_lease_ok(lease[i]));
        part_must(hf_release(lease[i]) == HF_OK);
        hf_lease_free(lease[i]);
    }
    part_says(me, &(struct answer){.what = ORDER_RELEASE, .status = hf_close(client, 5000)});
}

static void test_byte_order(void **state)
{
    (void)state;
    struct plan plan = {.ttl_ms = 60000, .wait_ms = HF_FOREVER};
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "a"});
    struct actor *actor = actor_start_part(take_abc, &plan);
    hf_client *client = row_client();
    await_sight(client, "a", 1, 1);
    assert_int_equal(look_at(client, "b").holders + look_at(client, "c").holders, 0);
    hf_lease *b = take(client, ASK(.name = "b"));
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    await_sight(client, "b", 1, 1);
    assert_int_equal(look_at(client, "a").holders, 1);
    assert_int_equal(look_at(client, "c").holders, 0);
    give(b);
    assert_int_equal(actor_answer(actor, ORDER_ACQUIRE, 0).status, HF_OK);
    actor_order(actor, ORDER_GO, 0);
    assert_int_equal(actor_answer(actor, ORDER_RELEASE, 0).status, HF_OK);
    assert_nothing_left(client);
}

static void test_renewed_while_waiting(void **state)
{
    (void)state;
    struct plan plan = {.ttl_ms = ttl(400), .wait_ms = HF_FOREVER};
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "c", .ttl_ms = 60000});
    struct actor *actor = actor_start_part(take_abc, &plan);
    hf_client *client = row_client();
    await_sight(client, "c", 1, 1);
    uint64_t token = await_sight(client, "a", 1, 0).token;
    while (see(client, "a").since_ms <
           3 * plan.ttl_ms) /* three times as long as it would live unrenewed */
        nap_us(10000);
    assert_int_equal(see(client, "a").token, token);
    assert_int_equal(see(client, "b").holders, 1);
    actor_order(holder, ORDER_RELEASE, 0);
    assert_int_equal(actor_answer(actor, ORDER_ACQUIRE, 0).status, HF_OK);
    actor_order(actor, ORDER_GO, 0);
    assert_int_equal(actor_answer(actor, ORDER_RELEASE, 0).status, HF_OK);
}

static void test_killed_in_the_midst(void **state)
{
    (void)state;
    struct plan plan = {.ttl_ms = engine()->notices_death ? 60000 : 1000, .wait_ms = HF_FOREVER};
    struct actor *holder = actor_here();
    actor_holds(holder, 0, &(struct want){.name = "c", .ttl_ms = 60000});
    struct actor *actor = actor_start_part(take_abc, &plan);
    hf_client *client = row_client();
    await_sight(client, "c", 1, 1);
    assert_int_equal(look_at(client, "a").holders, 1);
    actor_kill(actor);
    await_sight(client, "a", 0, 0);
    await_sight(client, "b", 0, 0);
    await_sight(client, "c", 1, 0);
}

/* ---- Lost together ---- */

/* G8 */
static void test_one_lost_is_all_lost(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct outcome lost[NAMES] = {0};
    hf_lease *lease[NAMES];
    struct hf_request request[NAMES];
    const struct hf_request *pointer[NAMES];
    /* A server on a busy machine needs its time to answer, which follows the ttl. */
    int64_t short_ms = ttl(engine()->notices_death ? 200 : 2000);
    for (int i = 0; i < NAMES; i++) {
        request[i] = *ASK(.name = abc[i], .ttl_ms = i == 1 ? short_ms : 60000,
                          .flags = i == 1 ? 0 : HF_AUTO_RENEW, .on_lost = note_outcome,
                          .lost_arg = &lost[i]);
        pointer[i] = &request[i];
    }
    assert_int_equal(hf_acquire_many(client, pointer, NAMES, 0, lease), HF_OK);
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(await_outcome(&lost[i]), HF_LOST);
        assert_false(hf_lease_ok(lease[i]));
        assert_refused(hf_release(lease[i]), HF_NOT_HELD, abc[i]);
    }
    for (int i = 0; i < NAMES; i++)
        await_sight(client, abc[i], 0, 0);
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(atomic_load(&lost[i].calls), 1);
        hf_lease_free(lease[i]);
    }
}

static void test_mixed_kinds(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !offers(NEED_READ_WRITE))
        return;
    hf_client *client = row_client();
    const struct hf_request *mixed[] = {
        ASK(.name = "pool", .kind = HF_SEMAPHORE, .capacity = 3, .units = 2),
        ASK(.name = "book", .kind = HF_READ),
        ASK(.name = "pen"),
    };
    hf_lease *lease[NAMES], *reader = take(client, ASK(.name = "book", .kind = HF_READ));
    assert_int_equal(hf_acquire_many(client, mixed, NAMES, 0, lease), HF_OK);
    refuse(client, ASK(.name = "book", .kind = HF_WRITE), HF_BUSY, "book");
    refuse(client, ASK(.name = "pool", .kind = HF_SEMAPHORE, .capacity = 3, .units = 2), HF_BUSY,
           "pool");
    for (int i = 0; i < NAMES; i++)
        give(lease[i]);
    give(reader);
}

/* G34 */
static void test_bad_lists(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease[NAMES];
    const char *const twice[] = {"a", "b", "a"}, *const bad[] = {"a", "", "c"};
    assert_refused(take_many(client, twice, NAMES, 0, 0, lease), HF_INVALID,
                   "a is asked for twice");
    assert_refused(take_many(client, bad, NAMES, 0, 0, lease), HF_INVALID, "requests[1].name");
    assert_refused(take_many(client, abc, 0, 0, 0, lease), HF_INVALID, "count: 0");
    assert_refused(take_many(client, abc, NAMES, 0, -7, lease), HF_INVALID, "wait_ms: -7");
    assert_refused(take_many(client, abc, NAMES, -1, 0, lease), HF_INVALID,
                   "requests[0].ttl_ms: -1");
    assert_nothing_left(client);
}

/* ---- A crowd ---- */

struct crowd {
    int64_t until_ns;
    _Atomic int inside[NAMES];
    _Atomic int rounds[CROWD], refused, seats;
};

static void shuffle(const char *names[NAMES], unsigned *seed)
{
    for (int i = NAMES - 1; i > 0; i--) {
        int j = rand_r(seed) % (i + 1);
        const char *swap = names[i];
        names[i] = names[j], names[j] = swap;
    }
}

static void use_all(struct crowd *crowd, hf_lease **lease)
{
    for (int i = 0; i < NAMES; i++)
        part_must(atomic_fetch_add(&crowd->inside[i], 1) == 0);
    for (int i = 0; i < NAMES; i++)
        part_must(atomic_fetch_sub(&crowd->inside[i], 1) == 1);
    for (int i = 0; i < NAMES; i++) {
        part_must(hf_release(lease[i]) == HF_OK);
        hf_lease_free(lease[i]);
    }
}

static void join_crowd(struct actor *me, void *arg)
{
    struct crowd *crowd = arg;
    hf_client *client;
    int seat = atomic_fetch_add(&crowd->seats, 1);
    unsigned seed = (unsigned)seat + 1;
    const char *names[NAMES] = {"a", "b", "c"};
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    part_must(engine_connect(client) == HF_OK);
    while (now_ns() < crowd->until_ns) {
        static const int64_t waits[] = {0, 1, 20, HF_FOREVER};
        hf_lease *lease[NAMES];
        shuffle(names, &seed);
        hf_status status = take_many(client, names, NAMES, 0, waits[rand_r(&seed) % 4], lease);
        /* A lock may be on a server of its own, and a short wait be over before it is connected. */
        bool is_refused = status == HF_BUSY || status == HF_TIMEOUT || status == HF_UNAVAILABLE;
        part_must(status == HF_OK || is_refused);
        if (status == HF_OK)
            use_all(crowd, lease);
        atomic_fetch_add(status == HF_OK ? &crowd->rounds[seat] : &crowd->refused, 1);
    }
    part_says(me, &(struct answer){.what = ORDER_GO, .status = hf_close(client, 5000)});
}

/* G8 */
static void test_crowd(void **state)
{
    (void)state;
    struct crowd *crowd = shared_page(sizeof *crowd);
    struct actor *actor[CROWD];
    crowd->until_ns = now_ns() + (int64_t)crowd_seconds * 1000000000;
    for (int i = 0; i < CROWD; i++)
        actor[i] = actor_start_part(join_crowd, crowd);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(actor_answer(actor[i], ORDER_GO, 0).status, HF_OK);
    for (int i = 0; i < CROWD; i++)
        assert_true(atomic_load(&crowd->rounds[i]) > 0);
    assert_nothing_left(row_client());
}

int main(int argc, char **argv)
{
    if (argc > 1)
        crowd_seconds = atoi(argv[1]);
    const struct CMUnitTest rows[] = {
        ROW("all names are held, each with its own token, in the order of the requests", test_all),
        ROW("if one cannot be had, none is held", test_nothing),
        ROW("names are taken in their byte order, whatever the order of the requests",
            test_byte_order),
        ROW("while one is waited for, the earlier ones are renewed", test_renewed_while_waiting),
        ROW("a process that is killed while it waits for one leaves none of them behind",
            test_killed_in_the_midst),
        ROW("one lost is all lost, and each is told once", test_one_lost_is_all_lost),
        ROW("kinds may be mixed", test_mixed_kinds),
        ROW("a bad list is refused, and the words name the request", test_bad_lists),
        ROW("8 processes take 3 names in random order: no deadlock, no partial hold left",
            test_crowd),
    };
    return JUDGE(rows);
}
