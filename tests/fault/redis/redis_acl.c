/* redis_acl.c - the user that docs/redis-operations.md describes can do all that Holdfast does, and
 * needs each of its rights: without any one of them something is refused, with HF_DENIED (exit 77)
 * and that right in the words. */
#include "redis_fixture.h"

#include <stdatomic.h>

enum { WAIT_MS = 3000, LISTEN_MS = 6500 };

/* What came of all that one user tried, up to the first refusal. */
struct tried {
    const char *user;
    bool slowly; /* long enough for a subscription to be proved */
    hf_status status;
    char words[1024];
};

static bool went(struct tried *tried, hf_status status)
{
    if (status != HF_OK && tried->status == HF_OK) {
        tried->status = status;
        snprintf(tried->words, sizeof tried->words, "%s", hf_error_text());
    }
    return tried->status == HF_OK;
}

/* With names of its own. Database 0 unless the query begins with another one: "1?history=2". */
static hf_client *open_as(const struct tried *tried, const char *query)
{
    char url[256];
    hf_client *client;
    snprintf(url, sizeof url, "redis://%s:PASSWORD@127.0.0.1:%u/%s&prefix=lock:%s:&ttl=4s",
             tried->user, server_port(scene.server), query, tried->user);
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

static hf_status end_lease(hf_lease *lease)
{
    hf_status status = hf_release(lease);
    hf_lease_free(lease);
    return status;
}

/* Takes it, extends it, gives it back. */
static bool cycle(struct tried *tried, hf_client *client, const struct want *want)
{
    struct hf_request request = request_of(want);
    hf_lease *lease;
    if (!went(tried, hf_acquire(client, &request, &lease)))
        return false;
    bool extended = went(tried, hf_extend(lease, 8000));
    return went(tried, end_lease(lease)) && extended;
}

struct told {
    _Atomic int calls;
    hf_status status;
    char words[1024];
};

static void note(hf_lease *lease, hf_status status, void *arg)
{
    struct told *told = arg;
    (void)lease;
    told->status = status;
    snprintf(told->words, sizeof told->words, "%s", status ? hf_error_text() : "");
    atomic_store(&told->calls, 1);
}

/* It is handed the lock, and gives it back. */
static bool take_turn(struct tried *tried, struct told *told, hf_lease *waiter)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    for (; !atomic_load(&told->calls); nap_us(1000))
        assert_true(now_ns() < end);
    if (told->status != HF_OK && tried->status == HF_OK) {
        tried->status = told->status;
        strcpy(tried->words, told->words);
    }
    hf_status released = end_lease(waiter);
    return told->status == HF_OK && went(tried, released);
}

/* Two wait for one, one behind the other. */
static bool hand_over(struct tried *tried, hf_client *one, hf_client *other, int64_t held_ms)
{
    struct hf_request request =
        request_of(&(struct want){.name = "turn", .ttl_ms = 20000, .wait_ms = held_ms + WAIT_MS});
    hf_lease *holder, *waiter[2];
    struct told told[2] = {0};
    if (!went(tried, hf_acquire(one, &request, &holder)))
        return false;
    for (int i = 0; i < 2; i++)
        if (hf_acquire_start(other, &request, note, &told[i], &waiter[i]) != HF_OK)
            fail_msg("%s", hf_error_text());
    for (int64_t end = now_ns() + (held_ms + 30) * 1000000;
         now_ns() < end && !atomic_load(&told[0].calls);)
        nap_us(1000);
    went(tried, end_lease(holder));
    bool first = take_turn(tried, &told[0], waiter[0]),
         second = take_turn(tried, &told[1], waiter[1]);
    return first && second;
}

static bool convert(struct tried *tried, hf_client *client)
{
    struct hf_request request = request_of(&(struct want){.name = "book", .kind = HF_READ});
    hf_lease *lease;
    if (!went(tried, hf_acquire(client, &request, &lease)))
        return false;
    bool done = went(tried, hf_upgrade(lease)) && went(tried, hf_downgrade(lease));
    return went(tried, end_lease(lease)) && done;
}

/* What people do. */
static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

static void ignore_finding(void *arg, const struct hf_finding *finding)
{
    (void)arg, (void)finding;
}

static bool oversee(struct tried *tried, hf_client *client)
{
    struct hf_request request =
        request_of(&(struct want){.name = "pool", .kind = HF_SEMAPHORE, .capacity = 3});
    hf_lease *lease;
    if (!went(tried, hf_acquire(client, &request, &lease)))
        return false;
    bool done = went(tried, hf_list(client, NULL, ignore_row, NULL)) &&
                went(tried, hf_show(client, "pool", ignore_row, NULL)) &&
                went(tried, hf_resize(client, "pool", 4)) &&
                went(tried, hf_diagnose(client, ignore_finding, NULL)) &&
                went(tried, hf_break(client, "pool", hf_lease_token(lease), NULL)) &&
                went(tried, hf_history(client, "turn", ignore_row, NULL));
    hf_lease_free(lease);
    return done;
}

/* What was refused is not waited for. */
static void close_after(hf_client *client, bool done)
{
    if (hf_close(client, done ? 5000 : 20) != HF_OK && done)
        fail_msg("%s", hf_error_text());
}

static bool with_client(struct tried *tried, const char *query, const struct want *want)
{
    hf_client *client = open_as(tried, query);
    bool done = cycle(tried, client, want);
    close_after(client, done);
    return done;
}

static bool wait_by(struct tried *tried, const char *query, int64_t held_ms)
{
    hf_client *one = open_as(tried, query), *other = open_as(tried, query);
    bool done = hand_over(tried, one, other, held_ms) && hand_over(tried, one, other, 0) &&
                convert(tried, one) && cycle(tried, one, &(struct want){.name = "odd }{ name"}) &&
                oversee(tried, one);
    close_after(one, done);
    close_after(other, done);
    return done;
}

/* There is no replica, so none acknowledges anything; but one may ask. */
static bool ask_replicas(struct tried *tried)
{
    bool done =
        with_client(tried, "0?replicas=1&replica_timeout=10ms", &(struct want){.name = "copy"});
    if (tried->status != HF_NOT_REPLICATED)
        return done;
    tried->status = HF_OK;
    return true;
}

static void try_all(struct tried *tried)
{
    bool done = with_client(tried, "0?wake=inbox", &(struct want){.name = "plain"}) &&
                wait_by(tried, "0?history=2&wake=inbox", 0) &&
                wait_by(tried, "0?wake=pubsub", tried->slowly ? LISTEN_MS : 0) &&
                with_client(tried, "1?wake=inbox", &(struct want){.name = "elsewhere"}) &&
                ask_replicas(tried);
    assert_int_equal(done, tried->status == HF_OK);
}

static void test_it_suffices(void **state)
{
    (void)state;
    server_add_locker(scene.server, "all", NULL);
    struct tried tried = {.user = "all"};
    try_all(&tried);
    if (tried.status != HF_OK)
        fail_msg("%s", tried.words);
}

/* "~lock:*" is in the words with the prefix of that user: "~lock:u01:*". */
static bool is_named(const char *right, const char *words)
{
    char beginning[64];
    snprintf(beginning, sizeof beginning, "%s", right);
    if (*right != '+')
        beginning[strlen(right) - 1] = 0;
    return strstr(words, beginning) != NULL;
}

static void test_each_right_is_needed_and_named(void **state)
{
    (void)state;
    size_t count = 0, wrong = 0;
    for (const char *right; (right = locker_right(count)); count++) {
        char user[16];
        snprintf(user, sizeof user, "u%02zu", count);
        struct tried tried = {.user = user, .slowly = strcmp(right, "+ping") == 0};
        server_add_locker(scene.server, user, right);
        if (strcmp(right, "+function|load") == 0) /* the first client of a server needs it */
            server_does(scene.server, "FUNCTION FLUSH");
        try_all(&tried);
        if (tried.status == HF_DENIED && is_named(right, tried.words))
            continue;
        wrong++;
        print_error("without %s: %s %s\n", right, hf_status_name(tried.status), tried.words);
    }
    print_message("# %zu rights were taken away one by one\n", count);
    assert_true(count > 25);
    assert_int_equal(wrong, 0);
    assert_int_equal(hf_status_exit_code(HF_DENIED), 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "the documented user can do everything", .test_func = test_it_suffices},
        {.name = "without any of its rights something is denied, and the right is named",
         .test_func = test_each_right_is_needed_and_named},
    };
    return SCENE_JUDGE(tests);
}
