/* redis_chaos.c - some processes on one server while all that can happen to it, to them and to the lines between them
 * does, in an order drawn from a seed. They use a lock, a semaphore, and a lock for readers and writers. What they
 * write down is judged by history_check: where the server kept its data nobody holds more than there is; where it lost
 * them, or its clock stepped, two are good for a ttl at most; tokens rise; every call returns once and in time; and in
 * the end nothing stays behind.
 *
 *     redis_chaos [SECONDS [SEED [KILLS [valkey]]]]      a seed of 0 is drawn; lasts until so many were killed, too */
#include "history.h"
#include "proxy.h"
#include "quorum.h"
#include "redis_scene.h"

#include <glob.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum {
    CLIENTS = 5,
    PLANTS = 60,      /* that one proxy can remember */
    ROUNDS = 1 << 16, /* of one process, at most */
    SLACK_MS = 1000,  /* for a call to be let run, on a machine with much else to do */
    REACH_MS = 300,   /* a hand-over may outlast a short ttl by that much: the waiter's next look, and a grace */
    OP_LEAST_MS = 50, /* what one request may take */
    LAST_WORDS = 4,   /* requests that may follow the end of a wait */
    MORE_MS = 20000,
    PEACE_MS = 10000,
    PEACE_GRANTS = 20,
    SEATS = 3,
    READERS = 1000, /* a writer is as many in the history */
};

static int seconds = 20, kills_wanted;
static uint64_t seed;
static enum server_kind kind;

struct shared {
    int log;
    _Atomic bool over;
    _Atomic unsigned grants, refusals, lost, extended;
    _Atomic unsigned seats, readers, writers; /* of the grants */
    _Atomic int64_t stopped_ns[CLIENTS];      /* how long each stood still so far */
};

struct part {
    struct shared *shared;
    unsigned number;
    char url[160];
};

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

/* ---- Clients ---- */

struct holding {
    struct part *part;
    hf_lease *lease;
    char name[40];
    struct want want;
    int64_t ttl_ms, reach_ms, asked;
    _Atomic unsigned *losses;
};

#define NOTE(part, ...) part_must(history_note((part)->shared->log, __VA_ARGS__))

static void note(const struct holding *h, const char *what, int64_t time)
{
    NOTE(h->part, "%s %s %llu %lld\n", what, h->name, (unsigned long long)hf_lease_token(h->lease), (long long)time);
}

/* A call into the library that should return within a time. That in which the process stood still does not count. */
struct call {
    const struct holding *h;
    const char *what;
    unsigned number;
    int64_t from, stopped, within_ms;
};

static int64_t stopped_so_far(const struct part *part)
{
    return atomic_load(&part->shared->stopped_ns[part->number]);
}

static struct call begin_call(const struct holding *h, const char *what, int64_t wait_ms)
{
    static unsigned calls;
    int64_t op_ms = h->ttl_ms / 20 > OP_LEAST_MS ? h->ttl_ms / 20 : OP_LEAST_MS;
    struct call c = {.h = h, .what = what, .number = calls++, .stopped = stopped_so_far(h->part), .from = now_ns()};
    c.within_ms = wait_ms + LAST_WORDS * op_ms + SLACK_MS;
    NOTE(h->part, "call %s.%s%u 0 %lld\n", h->name, what, c.number, (long long)c.from);
    return c;
}

static void end_call(const struct call *c)
{
    int64_t time = now_ns(), stood = stopped_so_far(c->h->part) - c->stopped;
    NOTE(c->h->part, "return %s.%s%u 0 %lld %lld\n", c->h->name, c->what, c->number, (long long)time,
         (long long)(c->from + stood + c->within_ms * 1000000));
}

/* It is good now if it is good a little later. */
static bool note_valid(const struct holding *h)
{
    int64_t time = now_ns();
    if (hf_lease_left_ms(h->lease) <= 0)
        return false;
    note(h, "valid", time);
    return true;
}

static void extend(const struct holding *h)
{
    struct call c = begin_call(h, "extend", 0);
    hf_status status = hf_extend(h->lease, h->ttl_ms);
    end_call(&c);
    part_must(status == HF_OK || status == HF_LOST || status == HF_IN_DOUBT || status == HF_UNAVAILABLE ||
              status == HF_FULL);
    atomic_fetch_add(&h->part->shared->extended, status == HF_OK);
}

/* Many are brief; some last for as long as they are good, where a belief that is too long shows. */
static void work(const struct holding *h)
{
    int64_t ms = draw(5) ? draw(20) : draw(1000), until = now_ns() + ms * 1000000;
    bool extends = draw(3) == 0;
    while (note_valid(h) && now_ns() < until) {
        nap_us(200 + draw(3000));
        if (extends && draw(30) == 0)
            extend(h);
    }
}

static void count_loss(hf_lease *lease, hf_status why, void *losses)
{
    (void)lease, (void)why;
    atomic_fetch_add((_Atomic unsigned *)losses, 1);
}

/* An acquire that tells its outcome by a callback. */
struct outcome {
    sem_t told;
    _Atomic unsigned times;
    hf_status status;
};

static void note_outcome(hf_lease *lease, hf_status status, void *arg)
{
    struct outcome *o = arg;
    (void)lease;
    o->status = status;
    atomic_fetch_add(&o->times, 1);
    sem_post(&o->told);
}

static hf_status acquire_later(hf_client *client, const struct hf_request *request, struct holding *h)
{
    static struct outcome outcomes[ROUNDS];
    static unsigned used;
    part_must(used < ROUNDS);
    struct outcome *o = &outcomes[used++];
    sem_init(&o->told, 0, 0);
    hf_status status = hf_acquire_start(client, request, note_outcome, o, &h->lease);
    if (status != HF_OK)
        return status;
    if (draw(4) == 0) {
        nap_us(draw(50000));
        status = hf_cancel(h->lease);
        part_must(status == HF_OK || status == HF_NOT_HELD);
    }
    while (sem_wait(&o->told) != 0) {
    }
    if (o->status != HF_OK) {
        hf_lease_free(h->lease);
        h->lease = NULL;
    }
    for (unsigned i = 0; i < used; i++)
        part_must(atomic_load(&outcomes[i].times) <= 1);
    return o->status;
}

static bool may_refuse(hf_status status)
{
    return status == HF_TIMEOUT || status == HF_BUSY || status == HF_UNAVAILABLE || status == HF_IN_DOUBT ||
           status == HF_FULL || status == HF_CANCELLED;
}

/* Half of them want the lock. */
static struct want draw_want(int64_t ttl_ms)
{
    struct want want = {.name = "job", .ttl_ms = ttl_ms, .wait_ms = draw(4) ? draw(2500) : 0};
    uint32_t which = draw(4), units = 1 + draw(SEATS);
    bool writes = draw(3) == 0;
    want.flags = draw(3) ? 0 : HF_AUTO_RENEW;
    if (which == 2) {
        want.name = "seats";
        want.kind = HF_SEMAPHORE;
        want.units = units;
        want.capacity = SEATS;
    } else if (which == 3) {
        want.name = "page";
        want.kind = writes ? HF_WRITE : HF_READ;
    }
    return want;
}

static hf_status acquire(struct holding *h, hf_client *client)
{
    struct want want = h->want = draw_want(h->ttl_ms);
    struct hf_request request = request_of(&want);
    request.on_lost = count_loss;
    request.lost_arg = h->losses;
    struct call c = begin_call(h, "acquire", want.wait_ms);
    h->asked = c.from;
    hf_status status = draw(4) ? hf_acquire(client, &request, &h->lease) : acquire_later(client, &request, h);
    end_call(&c);
    if (status != HF_OK && !may_refuse(status))
        print_error("%s: %s: %s\n", h->name, hf_status_name(status), hf_error_text());
    part_must(status == HF_OK || may_refuse(status));
    return status;
}

static void give_back(const struct holding *h)
{
    note(h, "end", now_ns());
    struct call c = begin_call(h, "release", 0);
    hf_status status = hf_release(h->lease);
    end_call(&c);
    part_must(status == HF_OK || status == HF_NOT_HELD || status == HF_LOST || status == HF_IN_DOUBT);
    unsigned losses = atomic_load(h->losses);
    part_must(losses <= 1);
    atomic_fetch_add(&h->part->shared->lost, losses);
    hf_lease_free(h->lease);
}

static void note_grant(const struct holding *h, int64_t time)
{
    struct shared *s = h->part->shared;
    hf_kind what = h->want.kind;
    bool reads = what == HF_READ, seats = what == HF_SEMAPHORE;
    unsigned capacity = seats ? SEATS : READERS;
    NOTE(h->part, "grant %s %llu %lld %lld %lld %s %u %u\n", h->name, (unsigned long long)hf_lease_token(h->lease),
         (long long)time, (long long)h->asked, (long long)h->reach_ms * 1000000, h->want.name,
         seats   ? h->want.units
         : reads ? 1
                 : capacity,
         capacity);
    atomic_fetch_add(&s->grants, 1);
    atomic_fetch_add(&s->seats, seats);
    atomic_fetch_add(&s->readers, reads);
    atomic_fetch_add(&s->writers, what == HF_WRITE);
}

static void hold_once(struct part *part, hf_client *client, unsigned round)
{
    static _Atomic unsigned losses[ROUNDS];
    struct holding h = {.part = part, .ttl_ms = 100 + draw(400), .losses = &losses[round]};
    h.reach_ms = h.ttl_ms + REACH_MS;
    snprintf(h.name, sizeof h.name, "%u-%d-%u", part->number, (int)getpid(), round);
    if (acquire(&h, client) != HF_OK) {
        atomic_fetch_add(&part->shared->refusals, 1);
        nap_us(2000 + draw(20000));
        return;
    }
    int64_t time = now_ns();
    if (hf_lease_left_ms(h.lease) > 0) {
        note_grant(&h, time);
        work(&h);
        give_back(&h);
    } else {
        hf_lease_free(h.lease);
    }
}

static void play(struct actor *me, void *arg)
{
    struct part *part = arg;
    hf_client *client;
    seed ^= (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15);
    part_must(hf_open(part->url, NULL, &client) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO});
    for (unsigned round = 0; round < ROUNDS && !atomic_load(&part->shared->over); round++)
        hold_once(part, client, round);
    hf_status closed = hf_close(client, 5000);
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .status = closed});
}

/* ---- The world ---- */

/* What was switched on for a while, and until when. */
struct client {
    struct part part;
    struct actor *actor;
    struct proxy *proxy;
    int plants;                         /* faults at a byte so far, */
    bool seen[PLANTS];                  /* and which of them were seen to have happened */
    enum proxy_fault_kind kind[PLANTS]; /* what they were */
    bool slow, dribbles, frozen, shut;
    int64_t line_until, stopped_at, stopped_until; /* 0: it is not */
};

static struct {
    struct shared *shared;
    struct client client[CLIENTS];
    struct quorum clock; /* the server's: it can be stepped */
    int64_t ahead_ns, highest_ns;
    unsigned kills;
    unsigned late_bytes;
} world;

static struct client *some_client(void)
{
    return &world.client[draw(CLIENTS)];
}

/* A way of its own to the server; a new one when the old one has no room for more faults. */
static void lay_line(struct client *c)
{
    static const char *const wake[] = {"inbox", "pubsub", "poll"};
    if (c->proxy)
        proxy_end(c->proxy);
    *c = (struct client){.part = c->part, .proxy = proxy_start(server_port(scene.server))};
    snprintf(c->part.url, sizeof c->part.url, "redis://127.0.0.1:%u?wake=%s&retry_min=5ms&retry_max=100ms",
             proxy_port(c->proxy), wake[c->part.number % 3]);
}

static void start_client(struct client *c)
{
    if (!c->proxy || c->plants > PLANTS / 2)
        lay_line(c);
    c->actor = actor_start_part(play, &c->part);
    actor_answer(c->actor, ORDER_GO, 0);
}

static void go_on(struct client *c)
{
    atomic_fetch_add(&world.shared->stopped_ns[c->part.number], now_ns() - c->stopped_at);
    actor_go_on(c->actor);
    c->stopped_at = 0;
}

/* Is the server's clock behind what it has shown before? */
static bool clock_is_behind(void)
{
    return now_ns() + world.ahead_ns < world.highest_ns;
}

/* Between then and now the server lost data, or some. */
static void note_forgetting(const char *why, int64_t from)
{
    assert_true(history_note(world.shared->log, "forgot %s %d %lld %lld\n", why, clock_is_behind(), (long long)from,
                             (long long)now_ns()));
}

/* ---- Faults: each returns how often it happened ---- */

static unsigned kill_client(void)
{
    struct client *c = some_client();
    if (c->stopped_at)
        return 0;
    pid_t pid = actor_pid(c->actor);
    actor_kill(c->actor);
    actor_await_end(c->actor);
    assert_true(history_note(world.shared->log, "dead %u-%d- 0 %lld\n", c->part.number, (int)pid, (long long)now_ns()));
    start_client(c);
    world.kills++;
    return 1;
}

static unsigned stop_client(void)
{
    struct client *c = some_client();
    if (c->stopped_at)
        return 0;
    actor_stop(c->actor);
    c->stopped_at = now_ns();
    c->stopped_until = c->stopped_at + (int64_t)draw(1500) * 1000000;
    return 1;
}

/* At a byte that will come soon, of a connection that is there or in the beginning of one that comes. That it happened
 * is seen later. */
static unsigned plant(enum proxy_fault_kind fault)
{
    struct client *c = some_client();
    uint32_t last = proxy_connections(c->proxy);
    if (c->plants == PLANTS)
        return 0;
    enum proxy_way way = fault != PROXY_LATE && draw(2) ? PROXY_REPLIES : PROXY_REQUESTS;
    struct proxy_fault at = {fault, way, 0, draw(way == PROXY_REQUESTS ? 25000 : 1000)};
    if (last && draw(2)) {
        at.connection = last - draw(last < 2 ? 1 : 2);
        at.after = proxy_bytes(c->proxy, at.connection, way) + draw(300);
    }
    c->kind[c->plants++] = fault;
    proxy_plant(c->proxy, &at);
    return 0;
}

static unsigned plant_cut(void)
{
    return plant(PROXY_CUT);
}

static unsigned plant_reset(void)
{
    return plant(PROXY_RESET);
}

static unsigned plant_stall(void)
{
    return plant(PROXY_STALL);
}

static unsigned plant_drop(void)
{
    return plant(PROXY_DROP);
}

static unsigned plant_late(void)
{
    return plant(PROXY_LATE);
}

static unsigned plant_half(void)
{
    return plant(PROXY_HALF);
}

/* A line that nothing is wrong with as a whole so far. */
static struct client *sound_line(void)
{
    struct client *c = some_client();
    if (c->slow || c->dribbles || c->frozen || c->shut)
        return NULL;
    c->line_until = now_ns() + (int64_t)(50 + draw(800)) * 1000000;
    return c;
}

static unsigned slow_line(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->slow = true;
    proxy_delay(c->proxy, PROXY_REQUESTS, draw(150));
    proxy_delay(c->proxy, PROXY_REPLIES, 1 + draw(150));
    return 1;
}

static unsigned dribble(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->dribbles = true;
    proxy_dribble(c->proxy, PROXY_REQUESTS, true);
    proxy_dribble(c->proxy, PROXY_REPLIES, true);
    return 1;
}

static unsigned freeze(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->frozen = true;
    proxy_freeze(c->proxy, true);
    return 1;
}

static unsigned refuse(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->shut = true;
    proxy_refuse(c->proxy, true);
    return 1;
}

static unsigned cut_all(void)
{
    return proxy_cut_all(some_client()->proxy);
}

static unsigned pause_server(void)
{
    server_pause(scene.server);
    nap_us(draw(700) * 1000);
    server_continue(scene.server);
    return 1;
}

static unsigned kill_server(void)
{
    server_kill9(scene.server);
    nap_us(draw(200) * 1000);
    server_restart(scene.server, true);
    world.kills++;
    return 1;
}

static unsigned empty_server(void)
{
    int64_t from = now_ns();
    server_kill9(scene.server);
    server_restart(scene.server, false);
    note_forgetting("restart", from);
    world.kills++;
    return 1;
}

static void cut_file(void)
{
    glob_t found;
    struct stat file;
    assert_int_equal(glob(server_file(scene.server, "appendonlydir/*.incr.aof"), 0, NULL, &found), 0);
    const char *path = found.gl_pathv[found.gl_pathc - 1];
    assert_int_equal(stat(path, &file), 0);
    off_t lost = 1 + (off_t)draw(3000);
    assert_int_equal(truncate(path, file.st_size > lost ? file.st_size - lost : 0), 0);
    globfree(&found);
}

static unsigned truncate_file(void)
{
    int64_t from = now_ns();
    server_kill9(scene.server);
    cut_file();
    server_restart(scene.server, true);
    note_forgetting("truncated", from);
    world.kills++;
    return 1;
}

static unsigned flush_all(void)
{
    int64_t from = now_ns();
    server_does(scene.server, "FLUSHALL");
    note_forgetting("flushall", from);
    return 1;
}

static unsigned kill_connections(void)
{
    return (unsigned)(server_count(scene.server, "CLIENT KILL TYPE normal") +
                      server_count(scene.server, "CLIENT KILL TYPE pubsub"));
}

static unsigned pause_connections(void)
{
    server_does(scene.server, "CLIENT PAUSE %d %s", 50 + (int)draw(300), draw(2) ? "ALL" : "WRITE");
    return 1;
}

static void set_memory(const char *policy, int most)
{
    server_does(scene.server, "CONFIG SET maxmemory-policy %s maxmemory %d", policy, most);
}

/* How often it refused with that word. */
static int64_t refused_with(const char *word)
{
    char line[40];
    snprintf(line, sizeof line, "errorstat_%s:count=", word);
    redisReply *info = server_cli(scene.server, "INFO errorstats");
    assert_int_equal(info->type, REDIS_REPLY_STRING);
    const char *found = strstr(info->str, line);
    int64_t count = found ? atoll(strchr(found, '=') + 1) : 0;
    freeReplyObject(info);
    return count;
}

/* How often somebody asked for one that it had forgotten. */
static unsigned flush_scripts(void)
{
    int64_t before = refused_with("NOSCRIPT");
    server_does(scene.server, "SCRIPT FLUSH SYNC");
    nap_us(100000);
    return (unsigned)(refused_with("NOSCRIPT") - before);
}

static unsigned fill_memory(void)
{
    int64_t before = refused_with("OOM");
    set_memory("noeviction", 1);
    nap_us((100 + draw(400)) * 1000);
    set_memory("noeviction", 0);
    return (unsigned)(refused_with("OOM") - before);
}

static unsigned evict(void)
{
    int64_t from = now_ns(), before = server_info_number(scene.server, "stats", "evicted_keys");
    set_memory("volatile-lru", 1);
    nap_us(draw(100) * 1000);
    set_memory("noeviction", 0);
    note_forgetting("evicted", from);
    return (unsigned)(server_info_number(scene.server, "stats", "evicted_keys") - before);
}

/* Of nobody that there is: it keeps its data and takes no writes. */
static unsigned make_replica(void)
{
    int64_t before = refused_with("READONLY");
    server_does(scene.server, "REPLICAOF 127.0.0.1 1");
    nap_us((50 + draw(500)) * 1000);
    server_replica_of(scene.server, NULL);
    return (unsigned)(refused_with("READONLY") - before);
}

static int64_t some_seconds(void)
{
    static const int64_t steps[] = {1, 3, 20, 3600};
    return steps[draw(4)];
}

static unsigned step_forward(void)
{
    int64_t from = now_ns(), by = some_seconds();
    quorum_step_clock(&world.clock, 0, by);
    world.ahead_ns += by * 1000000000;
    note_forgetting("stepped", from);
    return 1;
}

static unsigned step_back(void)
{
    int64_t shown = now_ns() + world.ahead_ns, by = some_seconds();
    if (shown > world.highest_ns)
        world.highest_ns = shown;
    quorum_step_clock(&world.clock, 0, -by);
    world.ahead_ns -= by * 1000000000;
    return 1;
}

static int64_t clock_number(int which, const int64_t *set)
{
    int64_t value = 0;
    int fd = open(server_file(scene.server, "clock"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (set)
        assert_int_equal(pwrite(fd, set, sizeof *set, which * (off_t)sizeof *set), sizeof *set);
    assert_int_equal(pread(fd, &value, sizeof value, which * (off_t)sizeof value), sizeof value);
    close(fd);
    return value;
}

/* The clock on which the server's own timers run, and the one that counts while a machine sleeps; see server_clock.c.
 */
static unsigned step_monotonic(void)
{
    enum { WRONG_MONOTONIC = 2, TOLD = 3 };
    int64_t ahead_us = clock_number(WRONG_MONOTONIC, NULL) + some_seconds() * 1000000;
    clock_number(WRONG_MONOTONIC, &ahead_us);
    int64_t before = clock_number(TOLD, NULL);
    server_does(scene.server, "PING");
    return clock_number(TOLD, NULL) > before;
}

static struct fault {
    const char *name;
    unsigned (*happen)(void);
    unsigned cards; /* how often it is in the deck */
    bool forgets;   /* the server does not know any more what it granted */
    unsigned times;
} faults[] = {
    {"clients killed", kill_client, 3, false, 0},
    {"clients stopped", stop_client, 2, false, 0},
    {"cuts at a byte", plant_cut, 2, false, 0},
    {"resets at a byte", plant_reset, 1, false, 0},
    {"stalls at a byte", plant_stall, 1, false, 0},
    {"drops at a byte", plant_drop, 1, false, 0},
    {"late requests", plant_late, 1, false, 0},
    {"half-closes at a byte", plant_half, 1, false, 0},
    {"slow lines", slow_line, 1, false, 0},
    {"dribbles", dribble, 1, false, 0},
    {"freezes", freeze, 1, false, 0},
    {"refusals to connect", refuse, 1, false, 0},
    {"lines cut", cut_all, 1, false, 0},
    {"servers stopped", pause_server, 1, false, 0},
    {"servers killed", kill_server, 2, false, 0},
    {"restarts without data", empty_server, 1, true, 0},
    {"truncated files", truncate_file, 1, true, 0},
    {"FLUSHALL", flush_all, 1, true, 0},
    {"scripts forgotten", flush_scripts, 1, false, 0},
    {"connections killed", kill_connections, 1, false, 0},
    {"CLIENT PAUSE", pause_connections, 1, false, 0},
    {"refusals for memory", fill_memory, 1, false, 0},
    {"keys evicted", evict, 1, true, 0},
    {"refusals of a replica", make_replica, 1, false, 0},
    {"steps forward", step_forward, 1, true, 0},
    {"steps back", step_back, 1, false, 0},
    {"steps of the monotonic clock", step_monotonic, 1, false, 0},
};

enum { FAULTS = sizeof faults / sizeof *faults, DECK = 256 };

/* ---- The schedule ---- */

/* A plant's row in the table. */
static struct fault *fault_of(enum proxy_fault_kind planted)
{
    static unsigned (*const happen[])(void) = {
        [PROXY_CUT] = plant_cut,   [PROXY_RESET] = plant_reset, [PROXY_STALL] = plant_stall,
        [PROXY_DROP] = plant_drop, [PROXY_LATE] = plant_late,   [PROXY_HALF] = plant_half,
    };
    struct fault *f = faults;
    while (f->happen != happen[planted])
        f++;
    return f;
}

/* What was kept back comes to the server long after its client has gone on; the server must be up for that. */
static void look_at_plants(struct client *c, bool deliver)
{
    for (int i = 0; i < c->plants; i++) {
        if (c->seen[i] || !proxy_happened(c->proxy, i))
            continue;
        c->seen[i] = true;
        fault_of(c->kind[i])->times++;
        if (deliver && (c->kind[i] == PROXY_STALL || c->kind[i] == PROXY_LATE))
            world.late_bytes += (unsigned)proxy_deliver(c->proxy, i);
    }
}

static void mend_line(struct client *c)
{
    for (enum proxy_way way = PROXY_REQUESTS; way <= PROXY_REPLIES; way++) {
        if (c->slow)
            proxy_delay(c->proxy, way, 0);
        if (c->dribbles)
            proxy_dribble(c->proxy, way, false);
    }
    if (c->frozen)
        proxy_freeze(c->proxy, false);
    if (c->shut)
        proxy_refuse(c->proxy, false);
    c->slow = c->dribbles = c->frozen = c->shut = false;
}

/* Of what was to last for a while, what is over by then. */
static void mend(int64_t now)
{
    for (struct client *c = world.client; c < world.client + CLIENTS; c++) {
        if (c->line_until <= now)
            mend_line(c);
        if (c->stopped_at && c->stopped_until <= now)
            go_on(c);
        look_at_plants(c, draw(3) == 0);
    }
}

/* Every other deck forgets nothing: two that are good together have no excuse then. */
static unsigned shuffle(struct fault *deck[DECK])
{
    static bool forgetful;
    unsigned count = 0;
    forgetful = !forgetful;
    for (struct fault *f = faults; f < faults + FAULTS; f++)
        for (unsigned i = 0; i < f->cards && (forgetful || !f->forgets); i++) {
            assert_true(count < DECK);
            deck[count++] = f;
        }
    for (unsigned i = count; i > 1; i--) {
        unsigned other = draw(i);
        struct fault *kept = deck[i - 1];
        deck[i - 1] = deck[other];
        deck[other] = kept;
    }
    return count;
}

static const struct fault *missing_fault(void)
{
    for (const struct fault *f = faults; f < faults + FAULTS; f++)
        if (f->times == 0)
            return f;
    return NULL;
}

/* Until the time is over; what was planted may need some more to happen at all. */
static bool goes_on(int64_t end)
{
    int64_t now = now_ns();
    return now < end || world.kills < (unsigned)kills_wanted || (missing_fault() && now < end + MORE_MS * 1000000LL);
}

/* One after the other, so that a short run has them all; those for a while overlap with what comes next. */
static void let_happen(void)
{
    struct fault *deck[DECK];
    unsigned left = 0;
    int64_t end = now_ns() + (int64_t)seconds * 1000000000;
    while (goes_on(end)) {
        if (left == 0)
            left = shuffle(deck);
        struct fault *f = deck[--left];
        f->times += f->happen();
        nap_us(10000 + draw(120000));
        mend(now_ns());
    }
    mend(INT64_MAX);
}

/* A long run is for kills. */
static void stack_deck(void)
{
    if (!kills_wanted)
        return;
    for (struct fault *f = faults; f < faults + FAULTS; f++)
        f->cards *= f->happen == kill_client ? 12 : f->happen == kill_server ? 4 : 1;
}

/* ---- The play ---- */

static int setup(void **state)
{
    scene.kind = kind;
    if (server_missing(kind))
        return 0;
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(&(struct server_options){.kind = kind, .appendonly = true, .preload = HF_SERVER_CLOCK});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    return 0;
}

static int teardown(void **state)
{
    if (server_missing(kind))
        return 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        if (world.client[i].proxy)
            proxy_end(world.client[i].proxy);
    return scene_teardown(state);
}

static void open_stage(const char *log)
{
    world.shared = scene_page(sizeof *world.shared);
    world.shared->log = history_open(log);
    world.clock = (struct quorum){.count = 1, .server = {scene.server}};
    for (unsigned i = 0; i < CLIENTS; i++) {
        world.client[i].part = (struct part){.shared = world.shared, .number = i};
        start_client(&world.client[i]);
    }
}

static void show_faults(void)
{
    for (unsigned i = 0; i < FAULTS; i++)
        print_message("# %6u %s\n", faults[i].times, faults[i].name);
    print_message("# %6u kills in all, %u bytes came late\n", world.kills, world.late_bytes);
}

/* Everything is fine again: in how many milliseconds so many more were granted. */
static int64_t see_peace(void)
{
    int64_t from = now_ns();
    unsigned wanted = atomic_load(&world.shared->grants) + PEACE_GRANTS;
    while (atomic_load(&world.shared->grants) < wanted) {
        if (now_ns() - from > PEACE_MS * 1000000LL)
            fail_msg("all is healed, and %u are still to be granted", wanted - atomic_load(&world.shared->grants));
        nap_us(1000);
    }
    return (now_ns() - from) / 1000000;
}

static void end_clients(void)
{
    atomic_store(&world.shared->over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_int_equal(actor_answer(world.client[i].actor, ORDER_CLOSE, 0).status, HF_OK);
}

/* Whoever was killed has left its place; somebody who comes sweeps it away. */
static void check_nothing_is_left(void)
{
    static const struct want all[] = {
        {.name = "job"},
        {.name = "seats", .kind = HF_SEMAPHORE, .units = SEATS, .capacity = SEATS},
        {.name = "page", .kind = HF_WRITE},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct want want = all[i];
        want.ttl_ms = 1000;
        want.wait_ms = 5000;
        hf_lease *lease = must_acquire(scene_client(), &want);
        assert_int_equal(hf_release(lease), HF_OK);
        hf_lease_free(lease);
        assert_int_equal(
            server_count(scene.server, "EXISTS lock:%s {lock:%s}:q {lock:%s}:h", want.name, want.name, want.name), 0);
    }
    struct leftovers left = scene_leftovers();
    print_message("# left: %lld counters, %lld inboxes, %lld tombstones\n", (long long)left.counters,
                  (long long)left.inboxes, (long long)left.buried);
}

static void test_chaos(void **state)
{
    (void)state;
    char log[512];
    server_needed(kind);
    snprintf(log, sizeof log, "%s/history", stage_directory());
    stack_deck();
    open_stage(log);
    let_happen();
    show_faults();
    int64_t peace_ms = see_peace();
    struct shared *s = world.shared;
    print_message("# %u grants, the last %d in %lld ms of peace, %u refusals, %u extended, %u lost\n",
                  atomic_load(&s->grants), PEACE_GRANTS, (long long)peace_ms, atomic_load(&s->refusals),
                  atomic_load(&s->extended), atomic_load(&s->lost));
    print_message("# of the grants %u of the semaphore, %u to read, %u to write\n", atomic_load(&s->seats),
                  atomic_load(&s->readers), atomic_load(&s->writers));
    end_clients();
    assert_int_equal(history_judge(log), 0);
    check_nothing_is_left();
    assert_true(atomic_load(&s->extended) && atomic_load(&s->lost));
    assert_true(atomic_load(&s->seats) && atomic_load(&s->readers) && atomic_load(&s->writers));
    if (missing_fault())
        fail_msg("%s: none happened", missing_fault()->name);
    close(s->log);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        {.name = "whatever happens nobody holds more than there is, tokens rise, calls return, and nothing is left",
         .test_func = test_chaos,
         .setup_func = setup,
         .teardown_func = teardown},
    };
    if (argc > 1)
        seconds = atoi(argv[1]);
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (seed == 0)
        seed = (uint64_t)arc4random() << 32 | arc4random();
    kills_wanted = argc > 3 ? atoi(argv[3]) : 0;
    kind = argc > 4 && strcmp(argv[4], "valkey") == 0 ? SERVER_VALKEY : SERVER_REDIS;
    print_message("# seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("redis: chaos", tests, NULL, NULL);
}
