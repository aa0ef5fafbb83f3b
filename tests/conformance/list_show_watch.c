/* list_show_watch.c - what people see: list, show, watch, break, history, counters, log. */
#include "lib/engines.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTED = 200, EVENTS = 64 };

/* ---- Show and list ---- */

static void test_show(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    struct hf_request *want = ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = 7, .units = 3,
                                  .ttl_ms = 60000, .label = "import of \xc3\xa9t\xc3\xa9");
    struct actor *a = actor_asking(want);
    struct answer held = actor_answer(a, ORDER_ACQUIRE, 0);
    hf_client *client = row_client();
    struct outcome waiter;
    start_ask(client,
              ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = 7, .units = 5, .ttl_ms = 9000,
                  .wait_ms = HF_FOREVER, .label = "waits"),
              &waiter);
    await_sight(client, "s", 1, 1);
    struct view seen = look_at(client, "s");
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    assert_int_equal(seen.row[0].role, HF_HOLDER);
    assert_int_equal(seen.row[0].kind, HF_SEMAPHORE);
    assert_int_equal(seen.row[0].capacity, 7);
    assert_int_equal(seen.row[0].used, 3);
    assert_int_equal(seen.row[0].units, 3);
    assert_int_equal(seen.row[0].depth, 1);
    assert_int_equal(seen.row[0].place, 0);
    assert_int_equal(seen.row[0].token, held.token);
    assert_int_equal(seen.row[0].ttl_ms, 60000);
    assert_true(seen.row[0].left_ms > 30000 && seen.row[0].left_ms <= 60000);
    assert_true(seen.row[0].since_ms >= 0 && seen.row[0].since_ms < 30000);
    assert_int_equal(seen.row[0].pid, actor_pid(a));
    assert_string_equal(seen.row[0].host, host);
    assert_string_equal(seen.row[0].label, want->label);
    assert_false(seen.row[0].detached);
    assert_int_equal(seen.row[1].role, HF_WAITER);
    assert_int_equal(seen.row[1].units, 5);
    assert_int_equal(seen.row[1].place, 1);
    assert_int_equal(seen.row[1].token, 0);
    assert_int_equal(seen.row[1].pid, getpid());
    assert_string_equal(seen.row[1].label, "waits");
    hf_lease_free(waiter.lease);
    await_outcome(&waiter);
    assert_int_equal(look_at(client, "nobody").holders + look_at(client, "nobody").waiters, 0);
}

struct listing {
    int rows, wrong, in_prefix;
    char last[64];
    hf_role last_role;
};

static void check_order(void *arg, const struct hf_row *row)
{
    struct listing *l = arg;
    int order = strcmp(l->last, row->name);
    l->wrong += order > 0 || (order == 0 && l->last_role > row->role);
    l->in_prefix += strncmp(row->name, "l1", 2) == 0;
    snprintf(l->last, sizeof l->last, "%s", row->name);
    l->last_role = row->role;
    l->rows++;
}

static void test_list(void **state)
{
    (void)state;
    static hf_lease *lease[LISTED];
    hf_client *client = row_client();
    char name[32];
    struct outcome waiter[3];
    for (int i = 0; i < LISTED; i++) {
        snprintf(name, sizeof name, "l%d", i * 7919 % LISTED);
        lease[i] = take(client, ASK(.name = name));
    }
    for (int i = 0; i < 3; i++)
        start_ask(client, ASK(.name = "l7", .wait_ms = HF_FOREVER), &waiter[i]);
    await_sight(client, "l7", 1, 3);
    struct listing all = {0}, some = {0}, none = {0};
    assert_int_equal(hf_list(client, NULL, check_order, &all), HF_OK);
    assert_int_equal(all.rows, LISTED + (engine()->first_come ? 3 : 0));
    assert_int_equal(all.wrong, 0);
    assert_int_equal(hf_list(client, "l1", check_order, &some), HF_OK);
    assert_int_equal(some.rows, 1 + 10 + 100);
    assert_int_equal(some.in_prefix, some.rows);
    assert_int_equal(hf_list(client, "nothing", check_order, &none), HF_OK);
    assert_int_equal(none.rows, 0);
    for (int i = 0; i < 3; i++)
        hf_lease_free(waiter[i].lease);
    for (int i = 0; i < 3; i++)
        await_outcome(&waiter[i]);
    for (int i = 0; i < LISTED; i++)
        give(lease[i]);
}

/* ---- Pages ---- */

/* Reads all pages from the first on, and compares them with the whole list. */
static void check_pages(hf_client *client, uint32_t names)
{
    struct listing all = {0}, paged = {0};
    char after[HF_NAME_MAX + 1] = "", next[HF_NAME_MAX + 1];
    int pages = 0;
    assert_int_equal(hf_list(client, "l", check_order, &all), HF_OK);

    do {
        struct hf_page page = {
            .size = sizeof page, .prefix = "l", .except = "l1", .after = after, .names = names};
        int before = paged.rows;
        assert_int_equal(hf_list_page(client, &page, check_order, &paged, next), HF_OK);
        assert_true(!names || paged.rows - before <= (int)names + 3);
        assert_true(!next[0] || strcmp(next, after) > 0);
        strcpy(after, next);
        pages++;
    } while (next[0]);

    assert_int_equal(paged.wrong, 0);
    assert_int_equal(paged.in_prefix, 0); /* l1 is left out */
    assert_int_equal(paged.rows, all.rows - all.in_prefix);
    assert_true(names ? pages >= (LISTED - 111) / (int)names : pages == 1);
}

static void test_pages(void **state)
{
    (void)state;
    static hf_lease *lease[LISTED];
    hf_client *client = row_client();
    char name[32], next[HF_NAME_MAX + 1];
    struct outcome waiter[3];
    for (int i = 0; i < LISTED; i++) {
        snprintf(name, sizeof name, "l%d", i * 7919 % LISTED);
        lease[i] = take(client, ASK(.name = name));
    }
    for (int i = 0; i < 3; i++)
        start_ask(client, ASK(.name = "l7", .wait_ms = HF_FOREVER), &waiter[i]);
    await_sight(client, "l7", 1, 3);

    check_pages(client, 1);
    check_pages(client, 7);
    check_pages(client, HF_PAGE_MAX);
    check_pages(client, 0);
    struct listing none = {0};
    struct hf_page page = {.size = sizeof page, .after = "l99", .names = 5};
    assert_int_equal(hf_list_page(client, &page, check_order, &none, next), HF_OK);
    assert_int_equal(none.rows, 0);
    assert_string_equal(next, "");
    page.names = HF_PAGE_MAX + 1;
    assert_int_equal(hf_list_page(client, &page, check_order, &none, next), HF_INVALID);

    for (int i = 0; i < 3; i++)
        hf_lease_free(waiter[i].lease);
    for (int i = 0; i < 3; i++)
        await_outcome(&waiter[i]);
    for (int i = 0; i < LISTED; i++)
        give(lease[i]);
}

/* ---- Watch ---- */

struct watcher {
    hf_client *client;
    pthread_t thread;
    _Atomic int count, ticks;
    _Atomic bool stop;
    hf_status status;
    struct {
        char event[16], name[32], label[32];
        uint64_t token;
        int64_t waited_ms;
        hf_status status;
    } told[EVENTS];
};

static bool note_event(void *arg, const struct hf_log_event *event)
{
    struct watcher *w = arg;
    int i = atomic_load(&w->count);
    if (!event) {
        atomic_fetch_add(&w->ticks, 1);
    } else if (i < EVENTS) {
        snprintf(w->told[i].event, sizeof w->told[i].event, "%s", event->event);
        snprintf(w->told[i].name, sizeof w->told[i].name, "%s", event->name);
        snprintf(w->told[i].label, sizeof w->told[i].label, "%s", event->label);
        w->told[i].token = event->token;
        w->told[i].waited_ms = event->waited_ms;
        w->told[i].status = event->status;
        atomic_store(&w->count, i + 1);
    }
    return !atomic_load(&w->stop);
}

static void *run_watch(void *arg)
{
    struct watcher *w = arg;
    w->status = hf_watch(w->client, "w/", note_event, w);
    return NULL;
}

static void start_watch(struct watcher *w)
{
    w->client = open_client(NULL, NULL);
    assert_int_equal(pthread_create(&w->thread, NULL, run_watch, w), 0);
}

/* The next thing that is told is this. */
static void expect(struct watcher *w, int *at, const char *event, const char *name)
{
    await_count(&w->count, *at + 1);
    assert_string_equal(w->told[*at].event, event);
    assert_string_equal(w->told[*at].name, name);
    ++*at;
}

static void test_watch(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !offers(NEED_RESIZE))
        return;
    struct watcher w = {0};
    hf_client *client = row_client();
    struct hf_request *one = ASK(.name = "w/s", .kind = HF_SEMAPHORE, .capacity = 1);
    struct hf_request *patient = ASK(.name = "w/s", .kind = HF_SEMAPHORE, .capacity = 1,
                                     .wait_ms = HF_FOREVER, .label = "me");
    hf_lease *outside = take(client, ASK(.name = "v")), *held = take(client, one);
    int at = 0;
    start_watch(&w);
    expect(&w, &at, "granted", "w/s"); /* what is held when the watch begins */
    assert_int_equal(w.told[0].token, hf_lease_token(held));
    struct outcome stays, leaves;
    start_ask(client, patient, &stays);
    expect(&w, &at, "queued", "w/s");
    start_ask(client, patient, &leaves);
    expect(&w, &at, "queued", "w/s");
    hf_lease_free(leaves.lease);
    expect(&w, &at, "left", "w/s");
    uint64_t token = hf_lease_token(held);
    give(held);
    expect(&w, &at, "released", "w/s");
    assert_int_equal(w.told[at - 1].token, token);
    assert_int_equal(w.told[at - 1].status, HF_OK);
    expect(&w, &at, "granted", "w/s");
    assert_true(w.told[at - 1].waited_ms > 0);
    assert_string_equal(w.told[at - 1].label, "me");
    assert_int_equal(await_outcome(&stays), HF_OK);
    assert_int_equal(w.told[at - 1].token, hf_lease_token(stays.lease));
    assert_int_equal(hf_resize(client, "w/s", 4), HF_OK);
    expect(&w, &at, "resized", "w/s");
    hf_lease *other = take(client, ASK(.name = "w/x"));
    expect(&w, &at, "granted", "w/x");
    give(other);
    expect(&w, &at, "released", "w/x");
    await_outcome(&leaves);
    give(outside);
    atomic_store(&w.stop, true); /* an idle watch hears of it by the tick */
    pthread_join(w.thread, NULL);
    assert_int_equal(w.status, HF_OK);
    assert_int_equal(atomic_load(&w.count), at);
    assert_true(atomic_load(&w.ticks) > 0);
    give(stays.lease);
    close_client(w.client);
}

/* A hold that runs out is told apart from one that is released. */
static void test_watch_tells_expiry(void **state)
{
    (void)state;
    if (engine()->hides_left || !offers(NEED_DETACHED))
        return;
    struct watcher w = {0};
    char text[HF_EXPORT_MAX];
    int at = 0;
    hf_lease *lease = take(row_client(), ASK(.name = "w/e", .ttl_ms = 1500, .flags = HF_DETACHED));
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    hf_lease_free(lease);
    start_watch(&w);
    expect(&w, &at, "granted", "w/e");
    expect(&w, &at, "released", "w/e");
    assert_int_equal(w.told[at - 1].status, HF_LOST);
    atomic_store(&w.stop, true);
    pthread_join(w.thread, NULL);
    close_client(w.client);
}

static void test_close_ends_watch(void **state)
{
    (void)state;
    struct watcher w = {0};
    hf_lease *held = take(row_client(), ASK(.name = "w/a"));
    start_watch(&w);
    await_count(&w.count, 1);
    assert_int_equal(hf_close(w.client, ACTOR_PATIENCE_MS), HF_OK);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.status, HF_CLOSED);
    give(held);
}

/* ---- Break ---- */

static void test_break(void **state)
{
    (void)state;
    if (!offers(NEED_BREAK))
        return;
    int64_t ttl = engine()->notices_death
                      ? 60000
                      : 3000; /* elsewhere the holder hears of it at its next renewal */
    struct actor *holder = actor_here();
    struct answer held =
        actor_holds(holder, 0, &(struct want){.name = "b", .ttl_ms = ttl, .flags = HF_AUTO_RENEW});
    hf_client *client = row_client();
    struct outcome next;
    start_ask(client, ASK(.name = "b", .wait_ms = HF_FOREVER), &next);
    await_sight(client, "b", 1, 1);
    assert_refused(hf_break(client, "b", held.token + 1, "wrong"), HF_NOT_HELD, "b");
    assert_refused(hf_break(client, "nobody", held.token, NULL), HF_NOT_HELD, "nobody");
    assert_int_equal(actor_does(holder, ORDER_LOOK, 0).status, HF_OK);
    assert_int_equal(hf_break(client, "b", held.token, "it hangs"), HF_OK);
    assert_int_equal(await_outcome(&next), HF_OK);
    assert_true(hf_lease_token(next.lease) > held.token);
    while (actor_does(holder, ORDER_LOOK, 0).status == HF_OK)
        nap_us(1000);
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_NOT_HELD);
    assert_true(hf_lease_ok(next.lease));
    assert_refused(hf_break(client, "b", held.token, NULL), HF_NOT_HELD, "b");
    give(next.lease);
}

/* ---- History ---- */

struct past {
    int rows;
    struct {
        uint64_t token;
        hf_status ended;
        int64_t ended_ms, since_ms;
        char label[32];
    } row[EVENTS];
};

static void note_past(void *arg, const struct hf_row *row)
{
    struct past *past = arg;
    if (past->rows == EVENTS)
        return;
    past->row[past->rows].token = row->token;
    past->row[past->rows].ended = row->ended;
    past->row[past->rows].ended_ms = row->ended_ms;
    past->row[past->rows].since_ms = row->since_ms;
    snprintf(past->row[past->rows].label, sizeof past->row[0].label, "%s", row->label);
    past->rows++;
}

static struct past past_of(hf_client *client, const char *name)
{
    struct past past = {0};
    if (hf_history(client, name, note_past, &past) != HF_OK)
        fail_msg("%s", hf_error_text());
    return past;
}

static void test_history(void **state)
{
    (void)state;
    if (!offers(NEED_HISTORY))
        return;
    hf_client *client = open_client("history=3", NULL), *none = row_client();
    uint64_t token[5];
    char label[16];
    for (int i = 0; i < 5; i++) {
        snprintf(label, sizeof label, "hold %d", i);
        hf_lease *lease =
            take(client, ASK(.name = "h", .label = label, .ttl_ms = i == 4 ? brief_ttl_ms() : 5000,
                             .wait_ms = HF_FOREVER));
        token[i] = hf_lease_token(lease);
        if (i < 4)
            assert_int_equal(hf_release(lease), HF_OK);
        while (i == 4 && hf_lease_ok(lease)) /* the last one ends by its time */
            nap_us(1000);
        hf_lease_free(lease);
    }
    await_sight(client, "h", 0, 0);
    struct past past = past_of(none, "h");
    assert_int_equal(past.rows, 3);
    for (int i = 0; i < 3; i++) { /* the newest first */
        assert_int_equal(past.row[i].token, token[4 - i]);
        assert_int_equal(past.row[i].ended, i ? HF_OK : HF_LOST);
        assert_true(past.row[i].ended_ms >= 0 &&
                    (i == 0 || past.row[i].ended_ms >= past.row[i - 1].ended_ms));
        snprintf(label, sizeof label, "hold %d", 4 - i);
        assert_string_equal(past.row[i].label, label);
    }
    assert_true(past.row[0].since_ms >= 45); /* how long it was held */
    give(take(none, ASK(.name = "unkept")));
    assert_int_equal(past_of(none, "unkept").rows, 0);
    assert_int_equal(past_of(none, "nobody").rows, 0);
    close_client(client);
}

static void test_history_ages(void **state)
{
    (void)state;
    if (!offers(NEED_HISTORY))
        return;
    hf_client *client = open_client("history=10&history_age=1s", NULL);
    give(take(client, ASK(.name = "h")));
    struct past past;
    for (int64_t end = now_ns() + 10000000000; (past = past_of(client, "h")).rows; nap_us(10000)) {
        assert_true(past.row[0].ended_ms <= 1000);
        assert_true(now_ns() < end);
    }
    close_client(client);
}

/* ---- Counters and log ---- */

static void test_counters(void **state)
{
    (void)state;
    hf_client *client = open_client(NULL, NULL);
    hf_lease *held = take(row_client(), ASK(.name = "c")), *lease;
    refuse(client, ASK(.name = "c"), HF_BUSY, "c");
    refuse(client, ASK(.name = "c", .wait_ms = 300), HF_TIMEOUT,
           "c"); /* long enough to be queued */
    struct outcome cancelled;
    start_ask(client, ASK(.name = "c", .wait_ms = HF_FOREVER), &cancelled);
    await_sight(row_client(), "c", 1, engine()->first_come ? 1 : 0);
    struct hf_counters c = {.size = sizeof c};
    for (int64_t end = now_ns() + 5000000000; !engine()->is_quorum && c.queued < 2; nap_us(1000)) {
        assert_true(now_ns() < end); /* the answer may be on its way */
        assert_int_equal(hf_client_counters(client, &c), HF_OK);
    }
    assert_int_equal(hf_cancel(cancelled.lease), HF_OK);
    await_outcome(&cancelled);
    hf_lease_free(cancelled.lease);
    refuse(client, ASK(.name = "", .wait_ms = 20), HF_INVALID, "name"); /* was never asked */
    lease = take(client, ASK(.name = "mine", .ttl_ms = ttl(500)));
    assert_int_equal(hf_extend(lease, 0), HF_OK);
    while (hf_lease_ok(lease))
        nap_us(1000);
    hf_lease_free(lease);
    give(take(client, ASK(.name = "other")));
    assert_int_equal(hf_client_counters(client, &c), HF_OK);
    assert_int_equal(c.asked, 5);
    assert_int_equal(c.granted, 2);
    assert_int_equal(c.queued, engine()->is_quorum ? 0 : 2);
    assert_int_equal(c.busy, 1);
    assert_int_equal(c.timed_out, 1);
    assert_int_equal(c.cancelled, 1);
    assert_int_equal(c.failed, 0);
    assert_int_equal(c.extended, 1);
    assert_int_equal(c.released, 1);
    assert_int_equal(c.lost, 1);
    give(held);
    close_client(client);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("show tells holder and waiter with units, time, host, pid and label", test_show),
        ROW("list tells names in byte order, holders before waiters, by prefix", test_list),
        ROW("pages of a list are the list, and leave out what was excepted", test_pages),
        ROW("watch tells of queued, left, granted, released and resized, and of nothing else",
            test_watch),
        ROW("a watch tells that a lease ran out", test_watch_tells_expiry),
        ROW("closing the client ends its watch", test_close_ends_watch),
        ROW("break takes the hold with that token and no other, and the next in line has it",
            test_break),
        ROW("history keeps the last three holds, the newest first, and how they ended",
            test_history),
        ROW("history forgets what is older than its age", test_history_ages),
        ROW("counters count what happened", test_counters),
    };
    return JUDGE(rows);
}
