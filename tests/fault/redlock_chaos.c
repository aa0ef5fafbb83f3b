/* redlock_chaos.c - eight processes on five servers while servers are killed and come back empty, stand still, and are
 * cut off from some clients and not from others; and while clients are killed and stand still. What the clients write
 * down is judged by history_check (G35, G36). Usage: redlock_chaos [SECONDS [SEED]] */
#include "draw.h"
#include "history.h"
#include "redlock_scene.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SERVERS = 5, CLIENTS = 8, WAYS = 4 }; /* so many clients have proxies of their own before the servers */

static int seconds = 15;

/* A server counts again two seconds after its start. */
static const char query[] = "max_ttl=1s&retry_max=50ms&retry_min=10ms";

struct shared {
    pthread_mutex_t fence; /* robust: clients are killed with it */
    struct hf_fence guard;
    int log;
    _Atomic bool over;
    _Atomic unsigned grants, refusals;
};

struct part {
    struct shared *shared;
    unsigned number;
    char url[512];
};

/* ---- Clients ---- */

struct holding {
    struct part *part;
    hf_lease *lease;
    char name[48];
};

static void note(const struct holding *h, const char *what, int64_t time, const char *said)
{
    part_must(history_note(h->part->shared->log, "%s %s %llu %lld%s\n", what, h->name,
                           (unsigned long long)hf_lease_token(h->lease), (long long)time, said));
}

/* It is good now if it is good a little later. */
static bool note_valid(const struct holding *h)
{
    int64_t time = now_ns();
    if (hf_lease_left_ms(h->lease) <= 0)
        return false;
    note(h, "valid", time, "");
    return true;
}

static void lock_fence(struct shared *shared)
{
    if (pthread_mutex_lock(&shared->fence) == EOWNERDEAD)
        pthread_mutex_consistent(&shared->fence);
}

/* Fence and log are one step, so that the log has the fence's order. */
static void write_fenced(const struct holding *h)
{
    struct shared *shared = h->part->shared;
    lock_fence(shared);
    bool admitted = hf_fence_admit(&shared->guard, hf_lease_token(h->lease)) == HF_OK;
    note(h, "write", now_ns(), admitted ? " yes" : " no");
    pthread_mutex_unlock(&shared->fence);
}

/* Half of the time it writes without looking whether it still may. */
static void work(const struct holding *h)
{
    int64_t until = now_ns() + (int64_t)draw(60) * 1000000;
    do {
        if (draw(2) && !note_valid(h))
            return;
        write_fenced(h);
        nap_us(1000 + draw(6000));
    } while (now_ns() < until);
    note_valid(h);
}

static void hold_once(struct part *part, hf_client *client, unsigned round)
{
    struct want want = {.name = "job", .ttl_ms = 200 + draw(800), .wait_ms = 2000};
    want.flags = draw(2) ? HF_AUTO_RENEW : 0;
    struct hf_request request = request_of(&want);
    struct holding h = {.part = part};
    hf_status status = hf_acquire(client, &request, &h.lease);
    if (status != HF_OK) {
        part_must(status == HF_TIMEOUT || status == HF_NO_QUORUM || status == HF_BUSY || status == HF_UNAVAILABLE);
        atomic_fetch_add(&part->shared->refusals, 1);
        return;
    }
    snprintf(h.name, sizeof h.name, "%u-%d-%u", part->number, (int)getpid(), round);
    int64_t time = now_ns();
    if (hf_lease_left_ms(h.lease) > 0) {
        note(&h, "grant", time, "");
        atomic_fetch_add(&part->shared->grants, 1);
        work(&h);
        note(&h, "end", now_ns(), "");
    }
    hf_status released = hf_release(h.lease);
    part_must(released == HF_OK || released == HF_NOT_HELD || released == HF_LOST || released == HF_IN_DOUBT);
    hf_lease_free(h.lease);
}

static void play(struct actor *me, void *arg)
{
    struct part *part = arg;
    hf_client *client;
    draw_apart();
    part_must(hf_open(part->url, NULL, &client) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO});
    for (unsigned round = 0; !atomic_load(&part->shared->over); round++)
        hold_once(part, client, round);
    part_must(hf_close(client, 5000) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_CLOSE});
}

/* ---- Faults ---- */

static struct {
    struct part part[CLIENTS];
    struct actor *actor[CLIENTS];
    bool stopped[CLIENTS];
    enum { FINE, DEAD, HUNG } server[SERVERS];
    bool frozen[WAYS][SERVERS];
    unsigned kills, hangs, cuts, stops, murders;
} chaos;

static void start_client(unsigned i)
{
    chaos.actor[i] = actor_start_part(play, &chaos.part[i]);
    actor_answer(chaos.actor[i], ORDER_GO, 0);
    chaos.stopped[i] = false;
}

static void heal_server(unsigned i)
{
    if (chaos.server[i] == DEAD)
        server_restart(scene.quorum.server[i], false);
    else if (chaos.server[i] == HUNG)
        server_continue(scene.quorum.server[i]);
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
    if (chaos.stopped[i]) {
        actor_go_on(chaos.actor[i]);
        chaos.stopped[i] = false;
    } else if (draw(4) == 0) {
        actor_kill(chaos.actor[i]);
        actor_await_end(chaos.actor[i]);
        start_client(i);
        chaos.murders++;
    } else {
        actor_stop(chaos.actor[i]);
        chaos.stopped[i] = true;
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
        if (chaos.stopped[i])
            actor_go_on(chaos.actor[i]);
    for (unsigned i = 0; i < WAYS; i++)
        for (unsigned j = 0; j < SERVERS; j++)
            if (chaos.frozen[i][j])
                proxy_freeze(scene.proxy[i][j], false);
}

/* ---- The play ---- */

static struct shared *open_stage(const char *log)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->fence, &attributes);
    shared->log = history_open(log);
    return shared;
}

static void test_chaos(void **state)
{
    (void)state;
    char log[512];
    snprintf(log, sizeof log, "%s/history", stage_directory());
    scene_start(SERVERS);
    struct shared *shared = open_stage(log);
    for (unsigned i = 0; i < CLIENTS; i++) {
        chaos.part[i] = (struct part){.shared = shared, .number = i};
        if (i < WAYS)
            scene_proxied_url(query, chaos.part[i].url, sizeof chaos.part[i].url);
        else
            quorum_url(&scene.quorum, query, chaos.part[i].url, sizeof chaos.part[i].url);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        start_client(i);
    for (int64_t end = now_ns() + (int64_t)seconds * 1000000000; now_ns() < end; nap_us(20000 + draw(150000)))
        hurt();
    heal_all();
    nap_us(1000000);
    unsigned so_far = atomic_load(&shared->grants);
    nap_us(2500000); /* and now everything is fine again */
    unsigned in_peace = atomic_load(&shared->grants) - so_far;
    atomic_store(&shared->over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        actor_answer(chaos.actor[i], ORDER_CLOSE, 0);
    print_message("# %u servers killed, %u hung, %u ways cut, %u clients stopped, %u killed\n", chaos.kills,
                  chaos.hangs, chaos.cuts, chaos.stops, chaos.murders);
    print_message("# %u grants, %u of them when all was healed, %u refusals\n", atomic_load(&shared->grants), in_peace,
                  atomic_load(&shared->refusals));
    assert_true(chaos.kills && chaos.hangs && chaos.cuts && chaos.stops && chaos.murders);
    assert_true(so_far > (unsigned)seconds && in_peace > 5);
    close(shared->log);
    assert_int_equal(history_judge(log), 0);
    munmap(shared, sizeof *shared);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("through deaths, pauses and partitions there is one holder, and tokens rise", test_chaos),
    };
    if (argc > 1)
        seconds = atoi(argv[1]);
    draw_from(argc > 2 ? argv[2] : NULL);
    return cmocka_run_group_tests_name("redlock: chaos", tests, NULL, NULL);
}
