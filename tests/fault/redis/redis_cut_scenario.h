/* redis_cut_scenario.h - one cut: the rival, who tries to take the lock the whole time, the victim,
 * whose wire is cut in the middle of what it says or hears, and the look whether anything of it is
 * left. Included once, by redis_cuts.c.
 */
#pragma once
#include "checker/history_recording.h"
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <pthread.h>

enum {
    TTL_MS = 3000,
    OP_MS = 30,
    CONNECT_MS = 60,
    WAIT_MS = 8000,
    BRIEF_WAIT_MS = 60,
    PROXY_FAULTS = 60, /* that one proxy can remember */
    JUDGED_AFTER = 1000,
    RIVAL_HOLDS_US = 300,
    RIVAL_RESTS_US = 700,
};

static unsigned stride, first_byte;

/* ---- The rival ---- */

/* What the rival is to go for. */
static struct arena {
    _Atomic uint32_t what; /* the number of the name; 0: nothing */
    _Atomic int kind;
    _Atomic uint32_t took; /* how often it held that one */
    _Atomic uint32_t all;  /* and any */
    struct recording *held;
} * arena;

static void name_of(uint32_t what, char name[32])
{
    snprintf(name, 32, "cut-%u", what);
}

static void be_rival(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = scene_part_client();
    part_says(me, &(struct answer){.what = ORDER_GO});
    for (unsigned turn = 0;; turn++) {
        char name[32];
        uint32_t what = atomic_load(&arena->what);
        struct hf_request request =
            request_of(&(struct want){.name = name,
                                      .kind = (hf_kind)atomic_load(&arena->kind),
                                      .ttl_ms = TTL_MS,
                                      .wait_ms = turn % 2 * 20});
        hf_lease *lease;
        name_of(what, name);
        if (what && hf_acquire(client, &request, &lease) == HF_OK) {
            int64_t from = now_ns();
            nap_us(RIVAL_HOLDS_US);
            record_hold(arena->held, what, lease, from);
            part_must(hf_release(lease) == HF_OK);
            hf_lease_free(lease);
            atomic_fetch_add(&arena->all, 1);
            if (what == atomic_load(&arena->what))
                atomic_fetch_add(&arena->took, 1);
        }
        nap_us(RIVAL_RESTS_US);
    }
}

/* The rival gets it, long before a ttl is over: nobody else holds it, or stands in its way. */
static void await_rival(const char *what)
{
    uint32_t before = atomic_load(&arena->took);
    int64_t from = now_ns();
    while (atomic_load(&arena->took) <= before + 1) {
        if (now_ns() - from > TTL_MS * 1000000LL / 2)
            fail_msg("%s: the lock is not free afterwards", what);
        nap_us(200);
    }
}

/* ---- Cases ---- */

enum part {
    GREETING,
    LOADING, /* the greeting of a client that brings all scripts: in two steps, and long */
    ACQUIRING,
    TAKING,
    WAITING,
    LISTENING,
    HANDING_OVER,
    EXTENDING,
    RELEASING,
    GIVING_BACK, /* what was taken without a token */
    UPGRADING,
    DOWNGRADING
};
static const char *const part_names[] = {"greeting",  "greeting with all scripts",
                                         "acquire",   "acquire without a token",
                                         "wait",      "listen",
                                         "hand-over", "extend",
                                         "release",   "release without a token",
                                         "upgrade",   "downgrade"};

enum variant { LOST, UNANSWERED, UNHEARD, LATE, NO_FAULT };
static const char *const variant_names[] = {"lost", "not answered", "answered in vain", "late",
                                            "no fault"};

struct cut {
    enum part part;
    enum variant variant;
    uint64_t byte; /* of the request, or of the answer */
};

/* What a case has on stage. */
static struct {
    struct cut cut;
    char title[96], name[32];
    uint32_t what;
    struct proxy *proxy;
    int planted;
    uint32_t line[2]; /* numbers of the connections: of commands, of messages */
    uint64_t before;  /* bytes that had come there when the fault was planted */
    int fault;
    hf_client *victim, *holder;
    hf_lease *lease, *held;
    int64_t from_ns; /* the victim's belief */
} play;

static bool concerns_messages(enum part part)
{
    return part == LISTENING || part == HANDING_OVER;
}

static enum proxy_way way_of(const struct cut *cut)
{
    bool of_answer =
        cut->part == HANDING_OVER || cut->variant == UNANSWERED || cut->variant == UNHEARD;
    return of_answer ? PROXY_REPLIES : PROXY_REQUESTS;
}

static hf_kind kind_of(enum part part)
{
    return part == UPGRADING ? HF_READ : part == DOWNGRADING ? HF_WRITE : HF_EXCLUSIVE;
}

/* While a size is measured, or the size of a request or an answer counts that the rival would
 * change. */
static bool rival_comes_later(void)
{
    if (play.cut.part == GIVING_BACK)
        return true;
    return play.cut.part <= WAITING && (play.cut.variant == NO_FAULT || play.cut.part == WAITING) &&
           play.cut.variant != LOST && play.cut.variant != LATE;
}

static void send_rival(void)
{
    if (atomic_load(&arena->what) == play.what)
        return;
    atomic_store(&arena->kind, kind_of(play.cut.part) == HF_EXCLUSIVE ? HF_EXCLUSIVE : HF_WRITE);
    atomic_store(&arena->took, 0);
    atomic_store(&arena->what, play.what);
}

static struct hf_request wish(int64_t wait_ms)
{
    struct hf_request request = request_of(&(struct want){
        .name = play.name, .kind = kind_of(play.cut.part), .ttl_ms = TTL_MS, .wait_ms = wait_ms});
    request.label = "victim";
    if (play.cut.part == TAKING || play.cut.part == GIVING_BACK)
        request.flags |= HF_TOKENLESS;
    return request;
}

/* The user of the docs may not ask which scripts the server has, and so brings them all. */
static hf_client *open_at(uint16_t port, bool brings_all)
{
    char url[160];
    hf_client *client;
    snprintf(
        url, sizeof url,
        "redis://%s127.0.0.1:%u/0?retry_min=1ms&retry_max=4ms&op_timeout=%dms&connect_timeout=%dms",
        brings_all ? "locker:PASSWORD@" : "", port, OP_MS, CONNECT_MS);
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

/* ---- The fault ---- */

static uint64_t bytes_now(void)
{
    return proxy_bytes(play.proxy, play.line[concerns_messages(play.cut.part)], way_of(&play.cut));
}

static void plant_at(uint64_t before)
{
    static const enum proxy_fault_kind kinds[] = {
        [LOST] = PROXY_CUT, [UNANSWERED] = PROXY_CUT, [UNHEARD] = PROXY_DROP, [LATE] = PROXY_LATE};
    play.before = before;
    if (play.cut.variant == NO_FAULT)
        return;
    play.fault = proxy_plant(
        play.proxy, &(struct proxy_fault){.kind = kinds[play.cut.variant],
                                          .way = way_of(&play.cut),
                                          .connection = play.line[concerns_messages(play.cut.part)],
                                          .after = before + play.cut.byte});
    play.planted++;
}

static void plant(void)
{
    plant_at(bytes_now());
}

static void await_fault(void)
{
    if (play.cut.variant != NO_FAULT)
        proxy_await(play.proxy, play.fault);
}

/* ---- What the victim does ---- */

static void begin_belief(void)
{
    play.from_ns = now_ns();
}

static void must_hold(hf_status status)
{
    if (status != HF_OK)
        fail_msg("%s: %s (%s)", play.title, hf_status_name(status), hf_error_text());
    begin_belief();
}

/* Half of the cases do not wait: for them a cut is the end, and a doubt. But their requests are
 * shorter than the one that was measured, and so is the answer if the rival holds the lock. */
static void acquire(void)
{
    enum { SHORTEST_REFUSAL = 12, SHORTEST_REQUEST = 200 };
    bool is_request = way_of(&play.cut) == PROXY_REQUESTS;
    bool sure = play.cut.byte < (is_request ? SHORTEST_REQUEST : SHORTEST_REFUSAL);
    bool waits = play.cut.byte / stride % 2 || !sure || play.cut.variant == NO_FAULT;
    struct hf_request request = wish(waits ? WAIT_MS : 0);
    plant();
    hf_status status = hf_acquire(play.victim, &request, &play.lease);
    await_fault();
    if (waits)
        must_hold(status);
    else if (status != HF_IN_DOUBT)
        fail_msg("%s: %s instead of IN_DOUBT", play.title, hf_status_name(status));
}

/* Its first connection of all, with what is said there before anything else. */
static void greet(void)
{
    struct hf_request request = wish(WAIT_MS);
    plant_at(0);
    must_hold(hf_acquire(play.victim, &request, &play.lease));
    await_fault();
}

static void *acquire_slowly(void *arg)
{
    struct hf_request request = wish(*(int64_t *)arg);
    static hf_status status;
    status = hf_acquire(play.victim, &request, &play.lease);
    if (status == HF_OK)
        begin_belief();
    return &status;
}

static hf_status end_wait(pthread_t waiting)
{
    void *status;
    assert_int_equal(pthread_join(waiting, &status), 0);
    return *(hf_status *)status;
}

static void let_go(void)
{
    assert_int_equal(hf_release(play.held), HF_OK);
    hf_lease_free(play.held);
    play.held = NULL;
}

/* The holder goes when the cut has happened; or stays, and the wait ends by its time. */
static void wait_for_it(void)
{
    bool patient = play.cut.byte / stride % 3 || play.cut.variant == NO_FAULT;
    int64_t wait_ms = patient ? WAIT_MS : BRIEF_WAIT_MS;
    pthread_t waiting;
    plant();
    assert_int_equal(pthread_create(&waiting, NULL, acquire_slowly, &wait_ms), 0);
    await_fault();
    send_rival();
    if (patient) {
        nap_us(500);
        let_go();
    }
    hf_status status = end_wait(waiting);
    if (patient)
        must_hold(status);
    else if (status != HF_TIMEOUT && status != HF_IN_DOUBT && status != HF_UNAVAILABLE)
        fail_msg("%s: %s instead of a time-out", play.title, hf_status_name(status));
    if (!patient)
        let_go();
}

static void await_bytes(uint32_t line, enum proxy_way way, uint64_t bytes)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
         proxy_bytes(play.proxy, line, way) < bytes; nap_us(50))
        if (now_ns() > end)
            fail_msg("%s: %ju bytes on connection %u, not %ju", play.title,
                     (uintmax_t)proxy_bytes(play.proxy, line, way), line, (uintmax_t)bytes);
}

/* What the victim says on its second connection until it listens; known after the first time. */
static uint64_t until_it_listens;

/* Connects once more, and asks for messages; cut in there, or when the message comes. */
static void hear_of_it(void)
{
    int64_t wait_ms = WAIT_MS;
    pthread_t waiting;
    bool is_listening = play.cut.part == LISTENING;
    if (is_listening)
        plant_at(0);
    assert_int_equal(pthread_create(&waiting, NULL, acquire_slowly, &wait_ms), 0);
    if (is_listening)
        await_fault();
    if (is_listening && play.cut.variant == NO_FAULT) {
        await_bytes(play.line[1], PROXY_REPLIES, 1);
        nap_us(200000); /* once, for measuring: there is nothing more to be said */
    } else if (!is_listening) {
        await_bytes(play.line[1], PROXY_REQUESTS, until_it_listens);
        plant();
    }
    let_go();
    must_hold(end_wait(waiting));
    await_fault();
}

/* Says so if the answer did not come, and goes on until it does. */
static void change(hf_status (*call)(hf_lease *lease))
{
    plant();
    hf_status status = call(play.lease);
    await_fault();
    hf_status expected = play.cut.variant == NO_FAULT ? HF_OK : HF_IN_DOUBT;
    if (status != expected)
        fail_msg("%s: %s (%s) instead of %s", play.title, hf_status_name(status),
                 status ? hf_error_text() : "", hf_status_name(expected));
    assert_true(hf_lease_ok(play.lease));
    for (int64_t end = now_ns() + TTL_MS * 500000LL; status != HF_OK; nap_us(500)) {
        status = call(play.lease);
        if (status != HF_OK && now_ns() > end)
            fail_msg("%s: %s (%s) for long", play.title, hf_status_name(status), hf_error_text());
    }
}

static hf_status extend(hf_lease *lease)
{
    return hf_extend(lease, 0);
}

static void release(void)
{
    record_hold(arena->held, play.what, play.lease, play.from_ns);
    plant();
    hf_status status = hf_release(play.lease);
    await_fault();
    hf_status expected = play.cut.variant == NO_FAULT ? HF_OK : HF_IN_DOUBT;
    if (status != expected)
        fail_msg("%s: %s instead of %s", play.title, hf_status_name(status),
                 hf_status_name(expected));
    hf_lease_free(play.lease);
    play.lease = NULL;
}

/* ---- One case ---- */

static bool needs_holder(enum part part)
{
    return part == WAITING || concerns_messages(part);
}

static void open_victim(void)
{
    play.line[0] = proxy_connections(play.proxy) + 1;
    play.line[1] = play.line[0] + 1;
    play.victim = open_at(proxy_port(play.proxy), play.cut.part == LOADING);
}

static bool is_warmed_up(enum part part)
{
    return part > LOADING && part < EXTENDING;
}

/* Afterwards the connection is up, and nothing goes over it. Returns false, without the victim, if
 * the machine was too busy to answer in OP_MS: then it may have dialed again. */
static bool warm_up(void)
{
    enum { MOST_SLOW = 1000 };
    static unsigned warm_ups, slow;
    char name[32];
    hf_lease *lease;
    struct hf_request warm = wish(0);
    snprintf(name, sizeof name, "warm-up-%u", ++warm_ups);
    warm.name = name;
    warm.kind = HF_EXCLUSIVE;
    hf_status status = hf_acquire(play.victim, &warm, &lease);
    if (status == HF_OK) {
        status = hf_release(lease);
        hf_lease_free(lease);
    }
    if (status == HF_OK)
        return true;
    if ((status != HF_IN_DOUBT && status != HF_UNAVAILABLE) || ++slow > MOST_SLOW)
        fail_msg("%s: %s (%s)", play.title, hf_status_name(status), hf_error_text());
    hf_close(play.victim, 0);
    return false;
}

static void set_the_stage(const struct cut *cut)
{
    static uint32_t names;
    play.cut = *cut;
    play.what = ++names;
    play.lease = play.held = NULL;
    name_of(play.what, play.name);
    snprintf(play.title, sizeof play.title, "%s, %s, byte %ju", part_names[cut->part],
             variant_names[cut->variant], (uintmax_t)cut->byte);
    if (!play.proxy || play.planted >= PROXY_FAULTS) {
        if (play.proxy)
            proxy_end(play.proxy);
        play.proxy = proxy_start(server_port(scene.server));
        play.planted = 0;
    }
    struct hf_request request = wish(WAIT_MS);
    if (needs_holder(cut->part))
        must_hold(hf_acquire(play.holder, &request, &play.held));
    atomic_store(&arena->what, 0);
    if (!rival_comes_later())
        send_rival();
    do
        open_victim();
    while (is_warmed_up(cut->part) && !warm_up());
    if (cut->part >= EXTENDING)
        must_hold(hf_acquire(play.victim, &request, &play.lease));
}

static void act(void)
{
    switch (play.cut.part) {
    case GREETING:
    case LOADING:
        greet();
        break;
    case ACQUIRING:
    case TAKING:
        acquire();
        break;
    case WAITING:
        wait_for_it();
        break;
    case LISTENING:
    case HANDING_OVER:
        hear_of_it();
        break;
    case EXTENDING:
        change(extend);
        break;
    case RELEASING:
    case GIVING_BACK:
        release();
        break;
    case UPGRADING:
        change(hf_upgrade);
        break;
    case DOWNGRADING:
        change(hf_downgrade);
        break;
    }
}

static void count_victims(void *arg, const struct hf_row *row)
{
    unsigned *count = arg;
    *count += strcmp(row->label, "victim") == 0;
}

/* Nothing holds or waits that the victim left behind. */
static void look_for_ghosts(void)
{
    unsigned ghosts = 0;
    if (hf_show(play.holder, play.name, count_victims, &ghosts) != HF_OK)
        fail_msg("%s", hf_error_text());
    if (ghosts)
        fail_msg("%s: %u ghosts", play.title, ghosts);
}

/* The end of the victim: closed means that every release was answered. What was late comes before
 * it, or after. */
static void clear_the_stage(void)
{
    bool late = play.cut.variant == LATE, before = play.cut.byte / stride % 2;
    if (late && before)
        assert_true(proxy_deliver(play.proxy, play.fault) > 0);
    if (play.lease) {
        record_hold(arena->held, play.what, play.lease, play.from_ns);
        hf_status released = hf_release(play.lease);
        if (released != HF_OK &&
            released != HF_IN_DOUBT) /* the line may have to come up again first */
            fail_msg("%s: %s", play.title, hf_error_text());
        hf_lease_free(play.lease);
    }
    if (hf_close(play.victim, 5000) != HF_OK)
        fail_msg("%s: %s", play.title, hf_error_text());
    if (late && !before)
        assert_true(proxy_deliver(play.proxy, play.fault) > 0);
    look_for_ghosts();
    send_rival();
    await_rival(play.title);
    look_for_ghosts();
}

static void run(enum part part, enum variant variant, uint64_t byte)
{
    set_the_stage(&(struct cut){.part = part, .variant = variant, .byte = byte});
    act();
    clear_the_stage();
}
