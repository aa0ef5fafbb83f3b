/* local_blocked.c - somebody is in the way: a part of the table that cannot be entered, a neighbour
 * that stands still, a filter that refuses a system call, another thread in hf_process. All others
 * go on. */
#include "lib/outcome_notes.h"

#include "engines/local/shard.h"
#include "engines/local/wait_queue.h"
#include "sys/clock.h"
#include "sys/robust_mutex.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

/* An acquire on a thread of its own, and what it heard. */
struct call {
    hf_client *client;
    struct hf_request request;
    hf_lease *lease;
    hf_status status;
    char text[ACTOR_TEXT];
    pthread_t thread;
};

static void *do_call(void *arg)
{
    struct call *call = arg;
    call->status = hf_acquire(call->client, &call->request, &call->lease);
    snprintf(call->text, sizeof call->text, "%s", call->status == HF_OK ? "" : hf_error_text());
    return NULL;
}

static void begin_call(struct call *call)
{
    assert_int_equal(pthread_create(&call->thread, NULL, do_call, call), 0);
}

/* ---- In the table ---- */

/* The test's own way into the table, which shuts out everybody else from the part that a name is
 * in. */
static struct table table;

static uint32_t shard_of(const char *name)
{
    return shard_of_hash(resource_name_hash(name, strlen(name)));
}

static void enter_part_of(const char *name)
{
    assert_int_equal(table_open(&table, stage_path(), 0600), HF_OK);
    assert_int_equal(shard_lock(&table, shard_of(name), clock_boot() + NANOS_OF_MS(1000)), HF_OK);
}

static void leave_part_of(const char *name)
{
    shard_unlock(&table, shard_of(name));
    table_close(&table);
}

/* The cell of the only holder; with its part entered. */
static uint32_t holder_of(const char *name)
{
    uint32_t resource =
        resource_find(&table, resource_name_hash(name, strlen(name)), name, strlen(name));
    assert_int_not_equal(resource, 0);
    return cell_at(&table, resource)->resource.holders.head;
}

/* Who buries a dead client owns its life word from then on. */
static void await_burial(uint32_t client, int64_t dead)
{
    struct robust_mutex *life = &cell_at(&table, client)->client.life;
    int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
    for (int64_t owner = dead; owner == 0 || owner == dead; owner = robust_mutex_owner(life)) {
        assert_true(now_ns() < end);
        nap_us(200);
    }
}

static void test_burial_put_off(void **state)
{
    (void)state;
    enum { PUT_OFF_MS = 60 }; /* several tries, each of which is given up after some milliseconds */
    struct actor *holder = actor_start();
    actor_holds(holder, 0, &(struct want){.name = "x", .ttl_ms = 60000});
    struct call wait = {.client = stage_client(),
                        .request = request_of(&(struct want){.name = "x", .wait_ms = 3000})};
    begin_call(&wait);
    await_sight(wait.client, "x", 1, 1);
    enter_part_of("x");
    uint32_t client = cell_at(&table, holder_of("x"))->entry.client;
    int64_t thread = robust_mutex_owner(&cell_at(&table, client)->client.life);
    actor_kill(holder);
    actor_await_end(holder);
    await_burial(client, thread);
    nap_us(PUT_OFF_MS * 1000);
    hf_client *newcomer =
        stage_other_client(); /* between the dead one and who was about to bury it */
    nap_us(PUT_OFF_MS * 1000);
    leave_part_of("x");
    pthread_join(wait.thread, NULL);
    assert_int_equal(wait.status, HF_OK);
    hf_lease_free(wait.lease);
    assert_int_equal(hf_close(newcomer, 1000), HF_OK);
}

static void test_repair_cut_short(void **state)
{
    (void)state;
    struct actor *holder = actor_start();
    actor_holds(holder, 0, &(struct want){.name = "x", .ttl_ms = 60000});

    enter_part_of("x");
    struct shard *shard = &table.shards[shard_of("x")];
    atomic_fetch_or(&shard->mutex.word, FUTEX_OWNER_DIED);
    shard_unlock(&table, shard_of("x"));

    nanos wait = NANOS_OF_MS(1000);
    cell_walk.began = WALK_OVER; /* the walks in other parts have used up the time of the call */
    assert_int_equal(shard_lock_next(&table, shard_of("x"), &wait), HF_UNAVAILABLE);
    assert_non_null(strstr(hf_error_text(), "was not repaired in time"));
    table_close(&table);

    hf_lease *lease = NULL;
    struct hf_request request = request_of(&(struct want){.name = "x"});
    assert_int_equal(hf_acquire(stage_client(), &request, &lease), HF_BUSY);
}

static void *extend(void *lease)
{
    return (void *)(uintptr_t)(hf_extend(lease, 0) == HF_OK);
}

static bool lives(hf_lease *lease)
{
    return hf_lease_ok(lease) && hf_lease_left_ms(lease) > 0;
}

/* A caller is stuck with one lease, whose renewal comes due meanwhile; another one would not live
 * through that. */
static void test_others_are_renewed(void **state)
{
    (void)state;
    enum { STUCK_TTL_MS = 2000, BEFORE_RENEWAL_MS = 550, OTHER_TTL_MS = 400, STUCK_MS = 1100 };
    hf_client *client = stage_client();
    hf_lease *stuck = must_acquire(
        client, &(struct want){.name = "x", .ttl_ms = STUCK_TTL_MS, .flags = HF_AUTO_RENEW});
    hf_lease *other = must_acquire(
        client, &(struct want){.name = "y1", .ttl_ms = OTHER_TTL_MS, .flags = HF_AUTO_RENEW});
    assert_int_not_equal(shard_of("x"), shard_of("y1"));
    pthread_t caller;
    bool lived = true;
    while (hf_lease_left_ms(stuck) > STUCK_TTL_MS - BEFORE_RENEWAL_MS)
        nap_us(1000);
    enter_part_of("x");
    assert_int_equal(pthread_create(&caller, NULL, extend, stuck), 0);
    for (int64_t until = now_ns() + STUCK_MS * 1000000LL; lived && now_ns() < until; nap_us(1000))
        lived = lives(other);
    leave_part_of("x");
    void *extended;
    pthread_join(caller, &extended);
    assert_true(lived && lives(other));
    assert_non_null(extended);
    hf_lease_free(stuck);
    hf_lease_free(other);
}

static bool await_outcome(struct outcome *outcome, int64_t patience_ms)
{
    int64_t end = now_ns() + patience_ms * 1000000;
    while (!atomic_load(&outcome->times) && now_ns() < end)
        nap_us(200);
    return atomic_load(&outcome->times) == 1;
}

/* Whoever hands on to a detached wait stays inside: its client hears of the grant, and cannot cut
 * the hold loose. */
static void test_detached_while_shut_out(void **state)
{
    (void)state;
    enum { TTL_MS = 5000, ASKING_MS = TTL_MS / 20, SHUT_MS = 1000 };
    static struct outcome outcome;
    hf_client *first = stage_other_client(), *second = stage_other_client();
    hf_lease *held = must_acquire(first, &(struct want){.name = "x"}), *wait, *none;
    struct hf_request detached = request_of(
        &(struct want){.name = "x", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER, .flags = HF_DETACHED});
    assert_int_equal(hf_acquire_start(second, &detached, note_outcome, &outcome, &wait), HF_OK);
    await_sight(first, "x", 1, 1);
    nap_us(ASKING_MS * 2000); /* the time that the ask itself had is over */
    enter_part_of("x");
    entry_drop(&table, holder_of("x"), clock_boot());
    bool told = await_outcome(&outcome, SHUT_MS);
    leave_part_of("x");
    assert_true(told);
    assert_int_equal(atomic_load(&outcome.status), HF_OK);
    uint64_t token = hf_lease_token(wait);
    assert_int_equal(hf_close(second, 1000), HF_OK);
    struct hf_request again = request_of(&(struct want){.name = "x"});
    assert_int_equal(hf_acquire(stage_client(), &again, &none), HF_BUSY);
    assert_int_equal(see(stage_client(), "x").token, token);
    hf_lease_free(held);
    assert_int_equal(hf_close(first, 1000), HF_OK);
}

static void *release(void *lease)
{
    return (void *)(uintptr_t)hf_release(lease);
}

/* Releases that were given up come due again while others are tried: the client never runs out of
 * them, and closes nevertheless. */
static void test_close_while_shut_out(void **state)
{
    (void)state;
    enum { HOLDS = 40, RETRIED_MS = 1000, CLOSE_MS = 200, AT_MOST_MS = 3000 };
    hf_client *client;
    hf_lease *held[HOLDS];
    pthread_t caller[HOLDS];
    char url[512];
    snprintf(url, sizeof url, "%s?op_timeout=300ms", stage_url());
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    for (int i = 0, number = 0; i < HOLDS; number++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", number);
        if (shard_of(name) == shard_of("x"))
            held[i++] = must_acquire(client, &(struct want){.name = name, .ttl_ms = 120000});
    }

    enter_part_of("x");
    for (int i = 0; i < HOLDS; i++)
        assert_int_equal(pthread_create(&caller[i], NULL, release, held[i]), 0);
    for (int i = 0; i < HOLDS; i++)
        pthread_join(caller[i], NULL);
    nap_us(RETRIED_MS * 1000);
    int64_t from = now_ns();
    hf_status status = hf_close(client, CLOSE_MS);
    int64_t took_ms = (now_ns() - from) / 1000000;
    leave_part_of("x");
    assert_int_equal(status, HF_IN_DOUBT);
    assert_in_range(took_ms, 0, AT_MOST_MS);
}

/* ---- In the queue ---- */

static void read_as_somebody(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = part_client();
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_awaits_go(me);
    struct hf_request request =
        request_of(&(struct want){.name = "n", .kind = HF_READ, .wait_ms = HF_FOREVER});
    request.owner = "somebody";
    hf_lease *lease;
    part_must(hf_acquire(client, &request, &lease) == HF_OK);
}

static void await_renewal(hf_client *client, const char *name)
{
    int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL, before,
            left = see(client, name).left_ms;
    do {
        assert_true(now_ns() < end);
        nap_us(5000);
        before = left;
        left = see(client, name).left_ms;
    } while (left <= before);
}

/* The neighbour that would bury the dead holder stands still, first in the queue. The one behind it
 * has the same owner: its own look ends the dead hold, grants the first and refuses itself, for its
 * owner reads now what it would write. */
static void test_refused_by_its_own_look(void **state)
{
    (void)state;
    struct actor *reader = actor_start_part(read_as_somebody, NULL);
    actor_answer(reader, ORDER_GO, 0);
    struct actor *holder = actor_start();
    actor_holds(
        holder, 0,
        &(struct want){.name = "n", .kind = HF_WRITE, .ttl_ms = 900, .flags = HF_AUTO_RENEW});
    struct want write = {.name = "n", .kind = HF_WRITE, .ttl_ms = 3000, .wait_ms = 5000};
    struct call wait = {.client = stage_client(), .request = request_of(&write)};
    wait.request.owner = "somebody";
    actor_order(reader, ORDER_GO, 0);
    await_sight(wait.client, "n", 1, 1);
    actor_stop(reader);
    begin_call(&wait);
    await_sight(wait.client, "n", 1, 2);
    await_renewal(wait.client,
                  "n"); /* it looks when the hold would have ended, which now is too soon */
    actor_kill(holder);
    pthread_join(wait.thread, NULL);
    assert_int_equal(wait.status, HF_MISMATCH);
    assert_non_null(strstr(wait.text, "hf_upgrade"));
    hf_lease_free(must_acquire(wait.client, &(struct want){.name = "elsewhere"}));
}

/* ---- In the kernel ---- */

enum { IDLE_MS = 500, IDLE_CPU_MS = 100 };

static int64_t cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void refuse_waitv(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof steps / sizeof steps[0], .filter = steps};
    part_must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    part_must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void idle_under_a_filter(struct actor *me, void *arg)
{
    (void)arg;
    refuse_waitv();
    hf_client *client[] = {part_client(), part_client()}; /* each watches the other */
    int64_t from = cpu_ms();
    nap_us(IDLE_MS * 1000);
    int64_t used = cpu_ms() - from;
    part_must(hf_close(client[0], 1000) == HF_OK && hf_close(client[1], 1000) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO, .number = used});
}

static void test_idle_under_a_filter(void **state)
{
    (void)state;
    struct actor *idle = actor_start_part(idle_under_a_filter, NULL);
    assert_in_range(actor_answer(idle, ORDER_GO, 0).number, 0, IDLE_CPU_MS);
}

/* ---- In hf_process ---- */

struct processing {
    hf_client *client;
    _Atomic bool stop;
};

static void *process_until_stopped(void *arg)
{
    struct processing *processing = arg;
    while (!atomic_load(&processing->stop))
        (void)hf_process(processing->client);
    return NULL;
}

/* Who is inside hf_process must not wait; who was there before may, while another is. */
static void test_processed_earlier(void **state)
{
    (void)state;
    enum { FOR_MS = 2000, OTHERS = 3 };
    struct hf_client_options options = {.size = sizeof options, .no_thread = true};
    struct processing processing = {0};
    struct hf_request request = request_of(&(struct want){.name = "p", .wait_ms = 100});
    unsigned calls = 0, refused = 0;
    pthread_t other[OTHERS];
    assert_int_equal(hf_open(stage_url(), &options, &processing.client), HF_OK);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_create(&other[i], NULL, process_until_stopped, &processing), 0);
    for (int64_t until = now_ns() + FOR_MS * 1000000LL; now_ns() < until; calls++) {
        hf_lease *lease;
        (void)hf_process(processing.client);
        refused += hf_acquire(processing.client, &request, &lease) != HF_OK;
        hf_lease_free(lease);
    }
    atomic_store(&processing.stop, true);
    for (int i = 0; i < OTHERS; i++)
        pthread_join(other[i], NULL);
    assert_true(calls > 0);
    assert_int_equal(refused, 0);
    assert_int_equal(hf_close(processing.client, 1000), HF_OK);
}

/* ---- A granter that lost the CPU on its way in ---- */

/* Takes the holder's entry away as a releaser would that read the clock longer ago than the
 * waiters' ttl. */
static void release_with_an_old_clock(const char *name)
{
    struct table own;
    uint64_t hash = resource_name_hash(name, strlen(name));
    assert_int_equal(table_open(&own, stage_path(), 0600), HF_OK);
    assert_int_equal(shard_lock(&own, shard_of_hash(hash), clock_boot() + NANOS_OF_MS(1000)),
                     HF_OK);
    uint32_t resource = resource_find(&own, hash, name, strlen(name));
    entry_drop(&own, cell_at(&own, resource)->resource.holders.head,
               clock_boot() - NANOS_OF_MS(9000));
    shard_unlock(&own, shard_of_hash(hash));
    table_close(&own);
}

static void test_old_clock(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *first = actor_start(), *second = actor_start();
    struct want patient = {.name = "late", .ttl_ms = 4000, .wait_ms = HF_FOREVER};
    actor_holds(holder, 0, &(struct want){.name = "late", .ttl_ms = 60000});
    actor_acquire(first, 0, ORDER_ACQUIRE, &patient);
    await_sight(client, "late", 1, 1);
    actor_acquire(second, 0, ORDER_ACQUIRE, &patient);
    await_sight(client, "late", 1, 2);
    release_with_an_old_clock("late");
    struct answer earlier = actor_answer(first, ORDER_ACQUIRE, 0);
    assert_int_equal(earlier.status, HF_OK);
    actor_does(first, ORDER_RELEASE, 0);
    struct answer later = actor_answer(second, ORDER_ACQUIRE, 0);
    assert_int_equal(later.status, HF_OK);
    assert_true(earlier.token < later.token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("a granter with an old clock does not cost the first in line its turn",
               test_old_clock),
        STAGED(
            "a dead client whose burial was put off is buried although somebody joined meanwhile",
            test_burial_put_off),
        STAGED("a repair that was cut short is made again: no hold is forgotten",
               test_repair_cut_short),
        STAGED("a caller that cannot get through on one lease keeps no other from being renewed",
               test_others_are_renewed),
        STAGED("a detached hold that was granted while its part was shut outlives its client",
               test_detached_while_shut_out),
        STAGED("closing is bounded although nobody can enter the part that the names are in",
               test_close_while_shut_out),
        STAGED("a wait whose own look gets it refused hears why, and its client stays usable",
               test_refused_by_its_own_look),
        STAGED("idle clients do not spin where a filter refuses to wait for two words",
               test_idle_under_a_filter),
        STAGED("a thread that processed earlier may wait while another processes",
               test_processed_earlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
