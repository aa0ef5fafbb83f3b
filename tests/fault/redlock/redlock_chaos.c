/* redlock_chaos.c - eight processes on five servers while servers are killed and come back empty,
 * stand still, and are cut off from some clients and not from others; and while clients are killed
 * and stand still. What the clients write down is judged as the simulator is, by checker/checker.h
 * (G35, G36). Usage: redlock_chaos [SECONDS [SEED]] */
#include "checker/history_recording.h"
#include "lib/random_draw.h"
#include "redlock_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
    SERVERS = 5,
    CLIENTS = 8,
    WAYS = 4,        /* so many clients have proxies of their own before the servers */
    SLACK_MS = 2000, /* for a call to be let run, and for what it has to take back, on a machine
                        with much else to do */
    EVENTS = 1 << 20,
};

static int seconds = 15;

/* A server counts again two seconds after its start. */
static const char query[] = "max_ttl=1s&retry_max=50ms&retry_min=10ms";

struct shared {
    pthread_mutex_t fence; /* robust: clients are killed with it */
    struct hf_fence guard;
    struct recording *told;
    _Atomic bool over;
    _Atomic unsigned grants, refusals;
};

struct part {
    struct shared *shared;
    unsigned number, life;
    char url[512];
};

/* ---- Clients ---- */

struct holding {
    struct part *part;
    hf_lease *lease;
    uint32_t number; /* in the history */
    int64_t asked;
};

#define TELL(h, ...)                                                                               \
    RECORD((h)->part->shared->told, .at = now_ns(), .who = (h)->number, __VA_ARGS__)

static void tell_ask(struct holding *h, const struct want *want)
{
    h->number = recording_attempt(h->part->shared->told);
    h->asked = now_ns();
    RECORD(h->part->shared->told, .at = h->asked, .what = H_ASKED, .who = h->number,
           .process = h->part->number, .life = h->part->life, .units = 1, .capacity = 1,
           .owner = h->number, .other = H_NOBODY, .until = h->asked + want->wait_ms * 1000000,
           .slack = SLACK_MS * 1000000LL, .reach = want->ttl_ms * 1000000);
}

/* Until when it is good, as it says itself; 0: it is not. */
static int64_t good_until(const struct holding *h)
{
    int64_t time = now_ns(), left_ms = hf_lease_left_ms(h->lease);
    return left_ms > 0 ? time + left_ms * 1000000 : 0;
}

static bool tell_belief(const struct holding *h)
{
    int64_t time = now_ns(), until = good_until(h);
    if (until)
        RECORD(h->part->shared->told, .at = time, .what = H_BELIEVES, .who = h->number,
               .token = hf_lease_token(h->lease), .until = until);
    return until;
}

static void lock_fence(struct shared *shared)
{
    if (pthread_mutex_lock(&shared->fence) == EOWNERDEAD)
        pthread_mutex_consistent(&shared->fence);
}

/* Fence and history are one step, so that the history has the fence's order. */
static void write_fenced(const struct holding *h)
{
    struct shared *shared = h->part->shared;
    lock_fence(shared);
    bool admitted = hf_fence_admit(&shared->guard, hf_lease_token(h->lease)) == HF_OK;
    TELL(h, .what = H_WROTE, .token = hf_lease_token(h->lease), .flags = admitted ? H_ADMITTED : 0);
    pthread_mutex_unlock(&shared->fence);
}

/* Half of the time it writes without looking whether it still may. */
static void work(const struct holding *h)
{
    int64_t until = now_ns() + (int64_t)draw(60) * 1000000;
    do {
        if (draw(2) && !tell_belief(h))
            return;
        write_fenced(h);
        nap_us(1000 + draw(6000));
    } while (now_ns() < until);
    tell_belief(h);
}

/* Of one that was granted. */
static void use(const struct holding *h, int64_t granted)
{
    int64_t until = good_until(h);
    if (until) {
        RECORD(h->part->shared->told, .at = granted, .what = H_GRANTED, .who = h->number,
               .token = hf_lease_token(h->lease), .from = h->asked, .until = until);
        atomic_fetch_add(&h->part->shared->grants, 1);
        work(h);
        TELL(h, .what = H_ENDED);
    } else {
        TELL(h, .what = H_REFUSED);
    }
    TELL(h, .what = H_CALLED, .until = now_ns(), .slack = SLACK_MS * 1000000LL);
    hf_status released = hf_release(h->lease);
    TELL(h, .what = H_RETURNED);
    part_must(released == HF_OK || released == HF_NOT_HELD || released == HF_LOST ||
              released == HF_IN_DOUBT);
    hf_lease_free(h->lease);
}

static void hold_once(struct part *part, hf_client *client)
{
    struct want want = {.name = "job", .ttl_ms = 200 + draw(800), .wait_ms = 2000};
    want.flags = draw(2) ? HF_AUTO_RENEW : 0;
    struct hf_request request = request_of(&want);
    struct holding h = {.part = part};
    tell_ask(&h, &want);
    hf_status status = hf_acquire(client, &request, &h.lease);
    int64_t time = now_ns();
    if (status == HF_OK) {
        use(&h, time);
    } else {
        RECORD(part->shared->told, .at = time, .what = H_REFUSED, .who = h.number);
        part_must(status == HF_TIMEOUT || status == HF_NO_QUORUM || status == HF_BUSY ||
                  status == HF_UNAVAILABLE);
        atomic_fetch_add(&part->shared->refusals, 1);
    }
    TELL(&h, .what = H_OVER);
}

static void play(struct actor *me, void *arg)
{
    struct part *part = arg;
    hf_client *client;
    draw_apart();
    part_must(hf_open(part->url, NULL, &client) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO});
    while (!atomic_load(&part->shared->over))
        hold_once(part, client);
    part_must(hf_close(client, 5000) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_CLOSE});
}

/* ---- Faults ---- */

static struct {
    struct part part[CLIENTS];
    struct actor *actor[CLIENTS];
    int64_t stopped_at[CLIENTS]; /* 0: it runs */
    enum { FINE, DEAD, HUNG } server[SERVERS];
    bool frozen[WAYS][SERVERS];
    unsigned kills, hangs, cuts, stops, murders;
} chaos;

/* It struck that client, or all of them, at that time, and lasted until now. */
static void tell_fault(enum history_fault fault, unsigned process, int64_t from)
{
    RECORD(chaos.part[0].shared->told, .at = from, .what = H_FAULT, .fault = (uint8_t)fault,
           .process = process, .until = now_ns());
}

static void start_client(unsigned i)
{
    chaos.part[i].life++;
    chaos.actor[i] = actor_start_part(play, &chaos.part[i]);
    actor_answer(chaos.actor[i], ORDER_GO, 0);
    chaos.stopped_at[i] = 0;
}

static void go_on(unsigned i)
{
    tell_fault(H_PAUSED, i, chaos.stopped_at[i]);
    actor_go_on(chaos.actor[i]);
    chaos.stopped_at[i] = 0;
}

static void heal_server(unsigned i)
{
    if (chaos.server[i] == DEAD) {
        server_restart(scene.quorum.server[i], false);
        tell_fault(H_FORGOT, H_ALL, now_ns());
    } else if (chaos.server[i] == HUNG) {
        server_continue(scene.quorum.server[i]);
        tell_fault(H_AWAY, H_ALL, now_ns());
    }
    chaos.server[i] = FINE;
}

/* Now and then more than a minority is away: then nobody gets anything, and nothing breaks. */
static void hurt_server(unsigned i)
{
    unsigned away = 0;
    for (unsigned j = 0; j < SERVERS; j++)
        away += chaos.server[j] != FINE;
    if (chaos.server[i] != FINE || (away >= 2 && draw(10))) {
        heal_server(i);
    } else if (draw(3) == 0) {
        server_kill9(scene.quorum.server[i]);
        chaos.server[i] = DEAD;
        chaos.kills++;
    } else {
        server_pause(scene.quorum.server[i]);
        chaos.server[i] = HUNG;
        chaos.hangs++;
    }
}

static void hurt_client(unsigned i)
{
    if (chaos.stopped_at[i]) {
        go_on(i);
    } else if (draw(4) == 0) {
        actor_kill(chaos.actor[i]);
        actor_await_end(chaos.actor[i]);
        tell_fault(H_KILLED, i, now_ns());
        start_client(i);
        chaos.murders++;
    } else {
        actor_stop(chaos.actor[i]);
        chaos.stopped_at[i] = now_ns();
        chaos.stops++;
    }
}

static void hurt_way(unsigned way, unsigned server)
{
    struct proxy *p = scene.proxy[way][server];
    if (draw(3) == 0) {
        chaos.cuts += proxy_cut_all(p);
        return;
    }
    chaos.frozen[way][server] = !chaos.frozen[way][server];
    proxy_freeze(p, chaos.frozen[way][server]);
    chaos.cuts += chaos.frozen[way][server];
}

static void hurt(void)
{
    uint32_t which = draw(10);
    if (which < 4)
        hurt_server(draw(SERVERS));
    else if (which < 7)
        hurt_client(draw(CLIENTS));
    else
        hurt_way(draw(WAYS), draw(SERVERS));
}

static void heal_all(void)
{
    for (unsigned i = 0; i < SERVERS; i++)
        heal_server(i);
    for (unsigned i = 0; i < CLIENTS; i++)
        if (chaos.stopped_at[i])
            go_on(i);
    for (unsigned i = 0; i < WAYS; i++)
        for (unsigned j = 0; j < SERVERS; j++)
            if (chaos.frozen[i][j])
                proxy_freeze(scene.proxy[i][j], false);
    tell_fault(H_LINE, H_ALL, now_ns());
}

/* ---- The play ---- */

static struct shared *open_stage(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->fence, &attributes);
    shared->told = recording_open(EVENTS);
    return shared;
}

static void judge_all(struct shared *shared)
{
    static const struct history_rules rules = {.quorum = true};
    struct history *h = history_open();
    const char *failure = recording_judge(shared->told, h, &rules);
    print_message(
        "# %u events; judged: exclusion %llu, token order %llu, store %llu, returns %llu times\n",
        atomic_load(&shared->told->count), (unsigned long long)history_judged(h, INV_EXCLUSION),
        (unsigned long long)history_judged(h, INV_TOKEN_ORDER),
        (unsigned long long)history_judged(h, INV_STORE),
        (unsigned long long)history_judged(h, INV_RETURNS));
    if (*failure)
        fail_msg("%s (%u in all)", failure, history_failures(h));
    assert_true(history_judged(h, INV_EXCLUSION) && history_judged(h, INV_TOKEN_ORDER));
    assert_true(history_judged(h, INV_STORE) && history_judged(h, INV_RETURNS));
    history_close(h);
}

static void test_chaos(void **state)
{
    (void)state;
    scene_start(SERVERS);
    struct shared *shared = open_stage();
    for (unsigned i = 0; i < CLIENTS; i++) {
        chaos.part[i] = (struct part){.shared = shared, .number = i};
        if (i < WAYS)
            scene_proxied_url(query, chaos.part[i].url, sizeof chaos.part[i].url);
        else
            quorum_url(&scene.quorum, query, chaos.part[i].url, sizeof chaos.part[i].url);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        start_client(i);
    for (int64_t end = now_ns() + (int64_t)seconds * 1000000000; now_ns() < end;
         nap_us(20000 + draw(150000)))
        hurt();
    heal_all();
    nap_us(1000000);
    unsigned so_far = atomic_load(&shared->grants);
    nap_us(2500000); /* and now everything is fine again */
    unsigned in_peace = atomic_load(&shared->grants) - so_far;
    atomic_store(&shared->over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        actor_answer(chaos.actor[i], ORDER_CLOSE, 0);
    print_message("# %u servers killed, %u hung, %u ways cut, %u clients stopped, %u killed\n",
                  chaos.kills, chaos.hangs, chaos.cuts, chaos.stops, chaos.murders);
    print_message("# %u grants, %u of them when all was healed, %u refusals\n",
                  atomic_load(&shared->grants), in_peace, atomic_load(&shared->refusals));
    assert_true(chaos.kills && chaos.hangs && chaos.cuts && chaos.stops && chaos.murders);
    assert_true(so_far > (unsigned)seconds && in_peace > 5);
    judge_all(shared);
    recording_close(shared->told);
    munmap(shared, sizeof *shared);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("through deaths, pauses and partitions there is one holder, and tokens rise",
                  test_chaos),
    };
    if (argc > 1)
        seconds = atoi(argv[1]);
    draw_from(argc > 2 ? argv[2] : NULL);
    return cmocka_run_group_tests_name("redlock: chaos", tests, NULL, NULL);
}
