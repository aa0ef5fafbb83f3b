/* redis_rights_taken.c - each right of the documented user is taken away between two operations,
 * with the server's clock stepped back, before an operation of every kind; and given back after it.
 * Whatever that operation says, the judge (checker/checker.h) finds one holder at a time and rising
 * tokens, and the lock can be had again within its time. */
#include "checker/checker.h"
#include "lib/quorum_servers_setup.h"
#include "redis_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TTL_MS = 1500, BACK_S = 120, AGAIN_MS = 2 * TTL_MS, PATIENCE_MS = 10000 };

/* ---- The world ---- */

static struct {
    struct history *judge;
    hf_client *client[2];
    uint32_t attempts, lock;
    char name[32];
    struct quorum clock;    /* of the server */
    unsigned refused, done; /* operations that the missing right concerned, and all */
} world;

/* A lease, and what its user relies on. */
struct holder {
    uint32_t who, units, capacity;
    hf_lease *lease;
};

static void tell(struct history_event event)
{
    event.at = now_ns();
    history_add(world.judge, &event);
    if (*history_failure(world.judge))
        fail_msg("%s: %s", world.name, history_failure(world.judge));
}

static void tell_fault(enum history_fault fault, int64_t by)
{
    tell((struct history_event){
        .what = H_FAULT, .fault = (uint8_t)fault, .process = H_ALL, .until = now_ns(), .by = by});
}

/* The time before the question is the last that it surely covers. */
static void tell_belief(const struct holder *h, enum history_kind what, int64_t from)
{
    int64_t at = now_ns();
    tell((struct history_event){.what = (uint8_t)what,
                                .who = h->who,
                                .token = hf_lease_token(h->lease),
                                .from = from,
                                .until = at + hf_lease_left_ms(h->lease) * 1000000});
}

static void tell_units(const struct holder *h, enum history_kind what, uint32_t units, int flags)
{
    tell((struct history_event){.what = (uint8_t)what,
                                .who = h->who,
                                .units = units,
                                .token = hf_lease_token(h->lease),
                                .flags = (uint16_t)flags});
}

/* ---- Operations ---- */

static struct history_event asked_event(const struct holder *h, unsigned client)
{
    return (struct history_event){.what = H_ASKED,
                                  .who = h->who,
                                  .process = client,
                                  .lock = world.lock,
                                  .units = h->units,
                                  .capacity = h->capacity,
                                  .owner = h->who,
                                  .other = H_NOBODY,
                                  .until = H_NEVER,
                                  .reach = (int64_t)TTL_MS * 1000000};
}

static hf_status take(struct holder *h, unsigned client, hf_kind kind, int64_t wait_ms)
{
    struct hf_request request =
        request_of(&(struct want){.name = world.name,
                                  .ttl_ms = TTL_MS,
                                  .wait_ms = wait_ms,
                                  .kind = kind,
                                  .capacity = kind == HF_SEMAPHORE ? 2 : 0});
    bool shares = kind == HF_READ || kind == HF_WRITE;
    h->who = world.attempts++;
    h->capacity = shares ? HF_CAPACITY_MAX : kind == HF_SEMAPHORE ? 2 : 1;
    h->units = kind == HF_WRITE ? h->capacity : 1;
    tell(asked_event(h, client));
    int64_t from = now_ns();
    hf_status status = hf_acquire(world.client[client], &request, &h->lease);
    if (status == HF_OK) {
        tell_belief(h, H_GRANTED, from);
        return status;
    }
    h->lease = NULL;
    tell((struct history_event){.what = H_REFUSED, .who = h->who});
    tell((struct history_event){.what = H_OVER, .who = h->who, .flags = H_DOUBT});
    return status;
}

static hf_status give_back(struct holder *h)
{
    if (!h->lease)
        return HF_OK;
    tell((struct history_event){.what = H_ENDED, .who = h->who});
    hf_status status = hf_release(h->lease);
    hf_lease_free(h->lease);
    h->lease = NULL;
    tell((struct history_event){.what = H_OVER, .who = h->who, .flags = H_DOUBT});
    return status;
}

static hf_status extend(struct holder *h)
{
    int64_t from = now_ns();
    hf_status status = hf_extend(h->lease, TTL_MS);
    if (status == HF_OK)
        tell_belief(h, H_BELIEVES, from);
    return status;
}

static hf_status upgrade(struct holder *h)
{
    hf_status status = hf_upgrade(h->lease);
    if (status == HF_OK)
        tell_units(h, H_CONVERTED, h->capacity, H_FRESH);
    return status;
}

/* Who asks to read on writes no more; unless it is told that nothing happened: then it goes on as
 * before. */
static hf_status downgrade(struct holder *h)
{
    tell_units(h, H_RELIES, 1, 0);
    hf_status status = hf_downgrade(h->lease);
    if (status != HF_OK && status != HF_IN_DOUBT && hf_lease_left_ms(h->lease) > 0)
        tell_units(h, H_CONVERTED, h->capacity, 0);
    return status;
}

/* ---- Each of them without a right ---- */

enum operation {
    ASK,
    ASK_MANY,
    WAIT_FOR,
    EXTEND,
    EXTEND_MANY,
    RELEASE,
    RELEASE_MANY,
    HAND_OVER,
    UPGRADE,
    DOWNGRADE,
    OPERATIONS
};
static const struct {
    const char *text;
    hf_kind kind;
    bool held; /* it begins with a lock that is held */
} operations[] = {
    [ASK] = {"an ask", HF_EXCLUSIVE, false},
    [ASK_MANY] = {"an ask for a unit", HF_SEMAPHORE, false},
    [WAIT_FOR] = {"an ask for what is held", HF_EXCLUSIVE, true},
    [EXTEND] = {"an extend", HF_EXCLUSIVE, true},
    [EXTEND_MANY] = {"an extend of a unit", HF_SEMAPHORE, true},
    [RELEASE] = {"a release", HF_EXCLUSIVE, true},
    [RELEASE_MANY] = {"a release of a unit", HF_SEMAPHORE, true},
    [HAND_OVER] = {"a release to one who waits", HF_EXCLUSIVE, true},
    [UPGRADE] = {"an upgrade", HF_READ, true},
    [DOWNGRADE] = {"a downgrade", HF_WRITE, true},
};

static void set_right(const char *right, bool allowed)
{
    server_does(scene.server, "ACL SETUSER locker %s%s", allowed ? "+" : "-", right + 1);
    tell_fault(H_AWAY, 0);
}

static void step_back(void)
{
    quorum_step_clock(&world.clock, 0, -BACK_S);
    tell_fault(H_BACK, -(int64_t)BACK_S * 1000000000);
}

struct waiter {
    pthread_t thread;
    hf_lease *lease;
    hf_status status;
    _Atomic bool is_over;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;
    struct hf_request request =
        request_of(&(struct want){.name = world.name, .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS});
    w->status = hf_acquire(world.client[1], &request, &w->lease);
    atomic_store(&w->is_over, true);
    return NULL;
}

/* On a busy machine the hold may end before the waiter has begun. */
static void await_waiter(const struct waiter *w)
{
    while (!atomic_load(&w->is_over) &&
           server_count(scene.server, "ZCARD {lock:%s}:q", world.name) != 1)
        nap_us(1000);
}

/* The waiter gets it, by the hand-over or by its own look. */
static hf_status hand_over(struct holder *h, const char *right)
{
    struct waiter w = {0};
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    await_waiter(&w);
    set_right(right, false);
    hf_status status = give_back(h);
    set_right(right, true);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    if (w.status != HF_OK && w.status != HF_DENIED)
        fail_msg("who waited for %s: %s", world.name, hf_status_name(w.status));
    if (w.status == HF_OK)
        must_release(w.lease);
    return status;
}

static hf_status operate(enum operation what, struct holder *h, const char *right)
{
    struct holder other = {0};
    hf_status status = HF_OK;
    if (what == HAND_OVER)
        return hand_over(h, right);
    set_right(right, false);
    if (what == ASK || what == ASK_MANY)
        status = take(h, 0, operations[what].kind, 0);
    else if (what == WAIT_FOR)
        status = take(&other, 1, HF_EXCLUSIVE, 50);
    else if (what == EXTEND || what == EXTEND_MANY)
        status = extend(h);
    else if (what == RELEASE || what == RELEASE_MANY)
        status = give_back(h);
    else
        status = (what == UPGRADE ? upgrade : downgrade)(h);
    set_right(right, true);
    give_back(&other);
    return status;
}

/* Readers come as soon as they may. */
static void read_beside(void)
{
    struct holder reader = {0};
    take(&reader, 1, HF_READ, 0);
    give_back(&reader);
}

static void play(enum operation what, const char *right)
{
    hf_kind kind = operations[what].kind, whole = kind == HF_READ ? HF_WRITE : kind;
    struct holder before = {0}, h = {0}, after = {0};
    world.lock++;
    snprintf(world.name, sizeof world.name, "%s-%u", right + 1, what);
    assert_int_equal(take(&before, 1, whole, PATIENCE_MS), HF_OK);
    assert_int_equal(give_back(&before), HF_OK);
    if (operations[what].held && take(&h, 0, kind, PATIENCE_MS) != HF_OK)
        fail_msg("%s", hf_error_text());
    step_back();
    hf_status status = operate(what, &h, right);
    world.done++;
    world.refused += status != HF_OK && status != HF_TIMEOUT;
    if (what == DOWNGRADE)
        read_beside();
    give_back(&h);
    int64_t from = now_ns();
    if (take(&after, 1, whole, PATIENCE_MS) != HF_OK)
        fail_msg("after %s without %s (%s): %s", operations[what].text, right,
                 hf_status_name(status), hf_error_text());
    int64_t took_ms = (now_ns() - from) / 1000000;
    if (took_ms > AGAIN_MS)
        fail_msg("after %s without %s it was free in %lld ms", operations[what].text, right,
                 (long long)took_ms);
    give_back(&after);
}

static void open_clients(void)
{
    char url[256];
    server_add_locker(scene.server, "locker", NULL);
    snprintf(url, sizeof url, "redis://locker:PASSWORD@127.0.0.1:%u/0?wake=inbox",
             server_port(scene.server));
    for (int i = 0; i < 2; i++)
        if (hf_open(url, NULL, &world.client[i]) != HF_OK)
            fail_msg("%s", hf_error_text());
}

/* What the clients themselves send, and not their scripts, is refused before it begins. */
static bool is_called_by_scripts(const char *right)
{
    return *right == '+' &&
           !strstr("+fcall +function|load +scan +subscribe +ping +select +wait", right);
}

static void test_each_right(void **state)
{
    (void)state;
    unsigned rights = 0;
    server_end(scene.server);
    scene.server =
        server_start(&(struct server_options){.kind = scene.kind, .preload = HF_WRONG_CLOCK});
    memset(&world, 0, sizeof world);
    world.judge = history_open();
    world.clock = (struct quorum){.count = 1, .server = {scene.server}};
    history_begin(world.judge, &(struct history_rules){.settles = (int64_t)TTL_MS * 1000000});
    open_clients();
    const char *right;
    for (size_t i = 0; (right = locker_right(i)); i++) {
        if (!is_called_by_scripts(right))
            continue;
        rights++;
        for (int what = 0; what < OPERATIONS; what++)
            play((enum operation)what, right);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_close(world.client[i], 5000), HF_OK);
    print_message("# %u rights taken away before %u operations: %u were refused; exclusion was "
                  "judged %llu times, "
                  "tokens %llu times\n",
                  rights, world.done, world.refused,
                  (unsigned long long)history_judged(world.judge, INV_EXCLUSION),
                  (unsigned long long)history_judged(world.judge, INV_TOKEN_ORDER));
    assert_true(rights > 20 && world.refused > 50);
    history_close(world.judge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "a right that is taken away between two operations costs neither exclusion nor "
                 "the order of tokens",
         .test_func = test_each_right},
    };
    return SCENE_JUDGE(tests);
}
