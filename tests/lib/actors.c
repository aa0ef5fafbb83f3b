/* actors.c - processes that take part in a test of faults. */
#include "actors.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STASH = 128, NAME_SIZE = 200 };

struct order {
    enum order_kind what;
    uint32_t id;
    struct want want; /* its `name` is the text below */
    char name[NAME_SIZE];
};

struct actor {
    struct actor *next;
    pid_t pid; /* 0: the actor was reaped */
    int wire;
    struct answer stash[STASH]; /* answers that came before the test asked for them */
    unsigned stashed;
};

static struct actor *actors;
static hf_client *own_client;
static char directory[64], table_path[96], table_url[112];

/* ---- The stage ---- */

const char *stage_directory(void)
{
    return directory;
}

const char *stage_path(void)
{
    return table_path;
}

const char *stage_url(void)
{
    return table_url;
}

int stage_setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN); /* an actor may die before it reads its orders */
    strcpy(directory, "/dev/shm/holdfast-test.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(table_path, sizeof table_path, "%s/table", directory);
    snprintf(table_url, sizeof table_url, "local:%s", table_path);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int stage_teardown(void **state)
{
    (void)state;
    for (struct actor *a = actors; a; a = a->next)
        if (a->pid)
            kill(a->pid, SIGKILL);
    while (actors) {
        struct actor *a = actors;
        actors = a->next;
        if (a->pid)
            waitpid(a->pid, NULL, 0);
        close(a->wire);
        free(a);
    }
    hf_status closed = hf_close(own_client, 5000);
    own_client = NULL;
    if (closed != HF_OK)
        print_error("closing the test's own client: %s\n", hf_error_text());
    remove_tree(directory);
    return closed == HF_OK ? 0 : -1;
}

hf_client *stage_other_client(void)
{
    hf_client *client;
    if (hf_open(stage_url(), NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

hf_lease *must_acquire(hf_client *client, const struct want *want)
{
    struct hf_request request = request_of(want);
    hf_lease *lease;
    if (hf_acquire(client, &request, &lease) != HF_OK)
        fail_msg("%s: %s", want->name, hf_error_text());
    return lease;
}

void must_release(hf_lease *lease)
{
    if (hf_release(lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    hf_lease_free(lease);
}

hf_client *stage_client(void)
{
    if (!own_client && hf_open(table_url, NULL, &own_client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return own_client;
}

/* ---- Inside an actor ---- */

void part_fails(const char *file, int line, const char *condition)
{
    fprintf(stderr, "# %s:%d: process %d: %s (%s)\n", file, line, (int)getpid(), condition,
            hf_error_text());
    _exit(70);
}

hf_client *part_client(void)
{
    hf_client *client;
    part_must(hf_open(table_url, NULL, &client) == HF_OK);
    return client;
}

void part_says(struct actor *me, const struct answer *answer)
{
    struct answer said = *answer;
    said.at_ns = now_ns();
    part_must(send(me->wire, &said, sizeof said, 0) == sizeof said);
}

static bool hear_order(struct actor *me, struct order *order)
{
    ssize_t n;
    do
        n = recv(me->wire, order, sizeof *order, 0);
    while (n < 0 && errno == EINTR);
    order->want.name = order->name;
    return n == sizeof *order;
}

void part_awaits_go(struct actor *me)
{
    struct order order;
    part_must(hear_order(me, &order) && order.what == ORDER_GO);
}

/* One acquire of an actor that has no outcome yet. */
struct attempt {
    struct actor *me;
    hf_client *client;
    struct order order;
};

static _Atomic(hf_lease *) leases[ACTOR_LEASES];

static void say_status(struct actor *me, const struct order *order, hf_status status)
{
    struct answer answer = {.what = order->what, .id = order->id, .status = status};
    snprintf(answer.text, sizeof answer.text, "%s", status == HF_OK ? "" : hf_error_text());
    hf_lease *lease = atomic_load(&leases[order->id]);
    if (lease && status == HF_OK) {
        answer.token = hf_lease_token(lease);
        answer.number = hf_lease_left_ms(lease);
    }
    part_says(me, &answer);
}

static void *acquire_and_say(void *arg)
{
    struct attempt *attempt = arg;
    struct hf_request request = request_of(&attempt->order.want);
    hf_lease *lease;
    hf_status status = hf_acquire(attempt->client, &request, &lease);
    atomic_store(&leases[attempt->order.id], lease);
    say_status(attempt->me, &attempt->order, status);
    free(attempt);
    return NULL;
}

static void say_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct attempt *attempt = arg;
    atomic_store(&leases[attempt->order.id],
                 lease); /* the callback may come before hf_acquire_start has returned */
    say_status(attempt->me, &attempt->order, outcome);
    free(attempt);
}

static void begin_acquire(struct actor *me, hf_client *client, const struct order *order)
{
    struct attempt *attempt = malloc(sizeof *attempt);
    part_must(attempt);
    *attempt = (struct attempt){.me = me, .client = client, .order = *order};
    attempt->order.want.name = attempt->order.name;
    if (order->what == ORDER_ACQUIRE) {
        pthread_t thread;
        part_must(pthread_create(&thread, NULL, acquire_and_say, attempt) == 0);
        pthread_detach(thread);
        return;
    }
    struct hf_request request = request_of(&attempt->order.want);
    hf_lease *lease;
    part_must(hf_acquire_start(client, &request, say_done, attempt, &lease) == HF_OK);
    atomic_store(&leases[order->id], lease);
}

static hf_status follow(const struct order *order, hf_client *client)
{
    hf_lease *lease = atomic_load(&leases[order->id]);
    hf_status status;
    switch (order->what) {
    case ORDER_RELEASE:
        status = hf_release(lease);
        atomic_store(&leases[order->id], NULL);
        hf_lease_free(lease);
        return status;
    case ORDER_EXTEND:
        return hf_extend(lease, order->want.ttl_ms);
    case ORDER_CANCEL:
        return hf_cancel(lease);
    case ORDER_LOOK:
        return hf_lease_ok(lease) ? HF_OK : HF_LOST;
    case ORDER_CLOSE:
        for (int i = 0; i < ACTOR_LEASES; i++)
            atomic_store(&leases[i], NULL);
        return hf_close(client, 5000);
    default:
        return HF_OK;
    }
}

void part_follows_orders(struct actor *me, hf_client *client)
{
    struct order order;
    while (hear_order(me, &order)) {
        if (order.what == ORDER_ACQUIRE || order.what == ORDER_START)
            begin_acquire(me, client, &order);
        else
            say_status(me, &order, follow(&order, client));
        if (order.what == ORDER_CLOSE)
            return;
    }
}

static void follow_orders(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = part_client();
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_follows_orders(me, client);
}

/* ---- Starting and ending ---- */

struct actor *actor_start_part(actor_part *part, void *arg)
{
    int wire[2];
    struct actor *a = calloc(1, sizeof *a);
    assert_non_null(a);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wire), 0);
    pid_t parent = getpid();
    a->pid = fork();
    assert_true(a->pid >= 0);
    if (a->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        close(wire[0]);
        a->wire = wire[1];
        part(a, arg);
        _exit(0);
    }
    close(wire[1]);
    a->wire = wire[0];
    a->next = actors;
    actors = a;
    return a;
}

struct actor *actor_start(void)
{
    struct actor *a = actor_start_part(follow_orders, NULL);
    actor_answer(a, ORDER_GO, 0);
    return a;
}

pid_t actor_pid(const struct actor *a)
{
    return a->pid;
}

void actor_kill(struct actor *a)
{
    assert_int_equal(kill(a->pid, SIGKILL), 0);
}

void actor_await_stop(struct actor *a)
{
    int status;
    assert_int_equal(waitpid(a->pid, &status, WUNTRACED), a->pid);
    assert_true(WIFSTOPPED(status));
}

void actor_stop(struct actor *a)
{
    assert_int_equal(kill(a->pid, SIGSTOP), 0);
    actor_await_stop(a);
}

void actor_go_on(struct actor *a)
{
    assert_int_equal(kill(a->pid, SIGCONT), 0);
}

int actor_await_end(struct actor *a)
{
    int status;
    assert_int_equal(waitpid(a->pid, &status, 0), a->pid);
    a->pid = 0;
    return status;
}

/* ---- Orders and answers ---- */

static void send_order(struct actor *a, const struct order *order)
{
    assert_int_equal(send(a->wire, order, sizeof *order, 0), sizeof *order);
}

void actor_acquire(struct actor *a, uint32_t id, enum order_kind how, const struct want *want)
{
    struct order order = {.what = how, .id = id, .want = *want};
    assert_true(id < ACTOR_LEASES && strlen(want->name) < sizeof order.name);
    strcpy(order.name, want->name);
    send_order(a, &order);
}

void actor_order(struct actor *a, enum order_kind what, uint32_t id)
{
    send_order(a, &(struct order){.what = what, .id = id});
}

static bool take_from_stash(struct actor *a, enum order_kind what, uint32_t id,
                            struct answer *answer)
{
    for (unsigned i = 0; i < a->stashed; i++)
        if (a->stash[i].what == what && a->stash[i].id == id) {
            *answer = a->stash[i];
            a->stash[i] = a->stash[--a->stashed];
            return true;
        }
    return false;
}

static struct answer receive(struct actor *a)
{
    struct pollfd wire = {.fd = a->wire, .events = POLLIN};
    struct answer answer;
    if (poll(&wire, 1, 3 * ACTOR_PATIENCE_MS) !=
        1) /* the actor may have thousands of things to do, on a busy machine */
        fail_msg("process %d says nothing", (int)a->pid);
    if (recv(a->wire, &answer, sizeof answer, 0) != sizeof answer)
        fail_msg("process %d ended before it answered", (int)a->pid);
    return answer;
}

struct answer actor_answer(struct actor *a, enum order_kind what, uint32_t id)
{
    struct answer answer;
    if (take_from_stash(a, what, id, &answer))
        return answer;
    for (;;) {
        answer = receive(a);
        if (answer.what == what && answer.id == id)
            return answer;
        assert_true(a->stashed < STASH);
        a->stash[a->stashed++] = answer;
    }
}

struct answer actor_does(struct actor *a, enum order_kind what, uint32_t id)
{
    actor_order(a, what, id);
    return actor_answer(a, what, id);
}

struct answer actor_holds(struct actor *a, uint32_t id, const struct want *want)
{
    actor_acquire(a, id, ORDER_ACQUIRE, want);
    struct answer answer = actor_answer(a, ORDER_ACQUIRE, id);
    if (answer.status != HF_OK)
        fail_msg("%s: %s", want->name, answer.text);
    return answer;
}

bool actor_is_silent(struct actor *a)
{
    struct pollfd wire = {.fd = a->wire, .events = POLLIN};
    return a->stashed == 0 && poll(&wire, 1, 0) == 0;
}

/* ---- Seeing ---- */

struct hf_request request_of(const struct want *want)
{
    return (struct hf_request){
        .size = sizeof(struct hf_request),
        .name = want->name,
        .kind = want->kind,
        .units = want->units,
        .capacity = want->capacity,
        .ttl_ms = want->ttl_ms,
        .wait_ms = want->wait_ms,
        .flags = want->flags,
    };
}

static void note_row(void *arg, const struct hf_row *row)
{
    struct sight *seen = arg;
    if (row->role == HF_HOLDER && seen->holders++ == 0) {
        seen->token = row->token;
        seen->pid = row->pid;
        seen->left_ms = row->left_ms;
        seen->since_ms = row->since_ms;
    }
    seen->waiters += row->role == HF_WAITER;
    seen->used = row->used;
    seen->capacity = row->capacity;
}

struct sight see(hf_client *client, const char *name)
{
    struct sight seen = {0};
    if (hf_show(client, name, note_row, &seen) != HF_OK)
        fail_msg("%s", hf_error_text());
    return seen;
}

static bool waiters_hidden;

void sight_hides_waiters(bool hidden)
{
    waiters_hidden = hidden;
}

struct sight await_sight(hf_client *client, const char *name, int holders, int waiters)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    if (waiters > 0 && waiters_hidden) {
        nap_us(100000);
        waiters = 0;
    }
    for (;;) {
        struct sight seen = see(client, name);
        if ((holders < 0 || seen.holders == (uint32_t)holders) &&
            (waiters < 0 || seen.waiters == (uint32_t)waiters))
            return seen;
        if (now_ns() > end)
            fail_msg("%s: %u hold and %u wait, not %d and %d", name, seen.holders, seen.waiters,
                     holders, waiters);
        nap_us(100);
    }
}
