/* table_lost.c - the table is deleted or replaced while it is in use. */
#include "table_fixture.h"

#include <pthread.h>

enum { TTL = 1500, SLACK = 300 };

/* ---- Holders ---- */

struct loss {
    _Atomic int count;
    _Atomic int64_t at_ms;
    hf_status status;
    char text[512], logged[512];
};

static void note_loss(hf_lease *lease, hf_status why, void *arg)
{
    struct loss *loss = arg;
    (void)lease;
    loss->status = why;
    snprintf(loss->text, sizeof loss->text, "%s", hf_error_text());
    atomic_store(&loss->at_ms, now_ms());
    atomic_fetch_add(&loss->count, 1);
}

static void note_log(void *arg, const struct hf_log_event *event)
{
    struct loss *loss = arg;
    if (strcmp(event->event, "lost") == 0)
        snprintf(loss->logged, sizeof loss->logged, "%s", event->text);
}

static void assert_says_so(const char *text, const struct scene *s)
{
    if (!strstr(text, s->path) || !strstr(text, "the table was deleted or replaced"))
        fail_msg("\"%s\" does not say that %s was deleted or replaced", text, s->path);
}

static void remove_table(const struct scene *s)
{
    assert_int_equal(unlink(s->path), 0);
}

static void replace_table(const struct scene *s)
{
    assert_int_equal(unlink(s->path), 0);
    make_table(s);
}

/* The same bytes in another file are another table. */
static void replace_by_copy(const struct scene *s)
{
    char copy[160];
    struct bytes b = read_file(s->path);
    snprintf(copy, sizeof copy, "%s.copy", s->path);
    write_file(copy, b.at, b.len);
    assert_int_equal(rename(copy, s->path), 0);
    free(b.at);
}

static void lose_holder(const struct scene *s, uint32_t flags, void (*spoil)(const struct scene *))
{
    struct loss loss = {0};
    struct hf_client_options options = {
        .size = sizeof options, .no_environment = true, .on_log = note_log, .log_arg = &loss};
    struct hf_request want = {.size = sizeof want,
                              .name = "job",
                              .ttl_ms = TTL,
                              .flags = flags,
                              .on_lost = note_loss,
                              .lost_arg = &loss};
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(hf_open(s->url, &options, &client), HF_OK);
    assert_int_equal(hf_acquire(client, &want, &lease), HF_OK);
    spoil(s);
    int64_t spoilt = now_ms();
    while (!atomic_load(&loss.count) && now_ms() < spoilt + 4 * TTL)
        nap_ms(5);
    assert_int_equal(atomic_load(&loss.count), 1);
    assert_in_range(atomic_load(&loss.at_ms) - spoilt, 0, TTL / 3 + SLACK);
    assert_int_equal(loss.status, HF_LOST);
    assert_false(hf_lease_ok(lease));
    assert_int_equal(hf_lease_left_ms(lease), 0);
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    assert_int_equal(hf_extend(lease, 0), HF_LOST);
    hf_lease_free(lease);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_int_equal(atomic_load(&loss.count), 1);
    assert_says_so(loss.logged, s);
    assert_says_so(loss.text, s);
}

static void test_removed_renewed(void **state)
{
    lose_holder(*state, HF_AUTO_RENEW, remove_table);
}

static void test_removed_not_renewed(void **state)
{
    lose_holder(*state, 0, remove_table);
}

static void test_replaced_renewed(void **state)
{
    lose_holder(*state, HF_AUTO_RENEW, replace_table);
}

static void test_replaced_not_renewed(void **state)
{
    lose_holder(*state, 0, replace_table);
}

static void test_copied(void **state)
{
    lose_holder(*state, HF_AUTO_RENEW, replace_by_copy);
}

/* One lease notices; the others of the same client hear of it, long before their own look. */
static void test_all_of_a_client(void **state)
{
    struct scene *s = *state;
    struct loss quick = {0}, slow = {0};
    struct hf_request want = {
        .size = sizeof want, .name = "quick", .ttl_ms = TTL, .on_lost = note_loss};
    hf_client *client;
    hf_lease *a, *b;
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    want.lost_arg = &quick;
    assert_int_equal(hf_acquire(client, &want, &a), HF_OK);
    want.name = "slow", want.ttl_ms = 3600000, want.lost_arg = &slow;
    assert_int_equal(hf_acquire(client, &want, &b), HF_OK);
    remove_table(s);
    int64_t until = now_ms() + 4 * TTL;
    while (!(atomic_load(&quick.count) && atomic_load(&slow.count)) && now_ms() < until)
        nap_ms(5);
    assert_int_equal(atomic_load(&quick.count), 1);
    assert_int_equal(atomic_load(&slow.count), 1);
    assert_false(hf_lease_ok(b));
    assert_says_so(slow.text, s);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* ---- Whoever comes later ---- */

static void test_later_asks(void **state)
{
    struct scene *s = *state;
    hf_client *client, *fresh;
    hf_lease *lease;
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    assert_int_equal(acquire(client, "job", 0, &lease), HF_OK);
    replace_table(s);
    assert_int_equal(hf_extend(lease, 0), HF_LOST);
    assert_says_so(hf_error_text(), s);
    assert_int_equal(acquire(client, "job", 0, &lease), HF_UNAVAILABLE);
    assert_says_so(hf_error_text(), s);
    int64_t from = now_ms();
    assert_int_not_equal(acquire(client, "job", HF_FOREVER, &lease), HF_OK);
    assert_says_so(hf_error_text(), s);
    assert_in_range(now_ms() - from, 0, 5000);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_int_equal(scene_open(s->url, &fresh), HF_OK);
    assert_int_equal(acquire(fresh, "job", 0, &lease), HF_OK);
    assert_int_equal(hf_close(fresh, 1000), HF_OK);
}

/* ---- Waiters ---- */

struct waiter {
    hf_client *client;
    pthread_t thread;
    hf_status status;
    int64_t ended_ms;
    char text[512];
};

static void *wait_for_job(void *arg)
{
    struct waiter *w = arg;
    hf_lease *lease;
    w->status = acquire(w->client, "job", HF_FOREVER, &lease);
    w->ended_ms = now_ms();
    snprintf(w->text, sizeof w->text, "%s", hf_error_text());
    return NULL;
}

static void count_waiters(void *arg, const struct hf_row *row)
{
    *(int *)arg += row->role == HF_WAITER;
}

static void start_waiter(struct waiter *w, const struct scene *s, int place)
{
    assert_int_equal(scene_open(s->url, &w->client), HF_OK);
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_job, w), 0);
    for (int waiting = 0; waiting < place; nap_ms(2)) {
        waiting = 0;
        assert_int_equal(hf_show(w->client, "job", count_waiters, &waiting), HF_OK);
    }
}

static void assert_waiter_refused(struct waiter *w, const struct scene *s)
{
    pthread_join(w->thread, NULL);
    assert_int_not_equal(w->status, HF_OK);
    assert_says_so(w->text, s);
    assert_int_equal(hf_close(w->client, 1000), HF_OK);
}

static hf_lease *hold(hf_client *client, int64_t ttl_ms)
{
    struct hf_request want = {.size = sizeof want, .name = "job", .ttl_ms = ttl_ms};
    hf_lease *lease;
    assert_int_equal(hf_acquire(client, &want, &lease), HF_OK);
    return lease;
}

static void hand_over(const struct scene *s, void (*spoil)(const struct scene *))
{
    struct waiter w = {0};
    hf_client *holder;
    assert_int_equal(scene_open(s->url, &holder), HF_OK);
    hf_lease *lease = hold(holder, 3600000); /* its next look is far away */
    start_waiter(&w, s, 1);
    spoil(s);
    int64_t from = now_ms();
    assert_int_equal(hf_release(lease), HF_OK);
    assert_waiter_refused(&w, s);
    assert_in_range(w.ended_ms - from, 0, 2000);
    assert_int_equal(hf_close(holder, 1000), HF_OK);
}

/* G22 */
static void test_hand_over_removed(void **state)
{
    hand_over(*state, remove_table);
}

static void test_hand_over_replaced(void **state)
{
    hand_over(*state, replace_table);
}

/* Nobody hands on: the holder has lost it too. The waiter looks when the hold ahead would have
 * ended. */
static void test_waiters_notice(void **state)
{
    struct scene *s = *state;
    struct waiter w[3] = {0};
    hf_client *holder;
    assert_int_equal(scene_open(s->url, &holder), HF_OK);
    hold(holder, TTL);
    for (int i = 0; i < 3; i++)
        start_waiter(&w[i], s, i + 1);
    remove_table(s);
    int64_t from = now_ms();
    for (int i = 0; i < 3; i++) {
        assert_waiter_refused(&w[i], s);
        assert_in_range(w[i].ended_ms - from, 0, TTL + 1000);
    }
    assert_int_equal(hf_close(holder, 1000), HF_OK);
}

static _Atomic int done_count;
static struct answer done_answer;

static void note_done(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)arg;
    done_answer.status = outcome;
    snprintf(done_answer.text, sizeof done_answer.text, "%s", hf_error_text());
    atomic_fetch_add(&done_count, 1);
}

static void test_hand_over_by_bell(void **state)
{
    struct scene *s = *state;
    struct hf_request want = {
        .size = sizeof want, .name = "job", .ttl_ms = TTL, .wait_ms = HF_FOREVER};
    hf_client *holder, *waiter;
    hf_lease *queued;
    assert_int_equal(scene_open(s->url, &holder), HF_OK);
    assert_int_equal(scene_open(s->url, &waiter), HF_OK);
    hf_lease *lease = hold(holder, 3600000);
    assert_int_equal(hf_acquire_start(waiter, &want, note_done, NULL, &queued), HF_OK);
    remove_table(s);
    assert_int_equal(hf_release(lease), HF_OK);
    for (int64_t until = now_ms() + 5000; !atomic_load(&done_count) && now_ms() < until;)
        nap_ms(5);
    assert_int_equal(atomic_load(&done_count), 1);
    assert_int_not_equal(done_answer.status, HF_OK);
    assert_says_so(done_answer.text, s);
    assert_int_equal(hf_close(waiter, 1000), HF_OK);
    assert_int_equal(hf_close(holder, 1000), HF_OK);
    assert_int_equal(atomic_load(&done_count), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("a renewed hold in a deleted table is lost within a third of its ttl, once, and says "
              "so",
              test_removed_renewed),
        SCENE("a hold that is not renewed is lost with its table as fast",
              test_removed_not_renewed),
        SCENE("a renewed hold in a replaced table is lost within a third of its ttl, once, and "
              "says so",
              test_replaced_renewed),
        SCENE("a hold that is not renewed is lost with its replaced table as fast",
              test_replaced_not_renewed),
        SCENE("a copy under the same path is another table", test_copied),
        SCENE("what one hold notices all holds of the client hear of", test_all_of_a_client),
        SCENE("a client whose table is gone gets nothing any more and says so; a new one does",
              test_later_asks),
        SCENE("a waiter gets no grant in a deleted table from a holder that has not noticed",
              test_hand_over_removed),
        SCENE("a waiter gets no grant in a replaced table from a holder that has not noticed",
              test_hand_over_replaced),
        SCENE("waiters in a deleted table end with the hold ahead and say so", test_waiters_notice),
        SCENE("a waiter told by callback gets no grant in a deleted table either",
              test_hand_over_by_bell),
    };
    return cmocka_run_group_tests_name("table: lost", tests, NULL, NULL);
}
