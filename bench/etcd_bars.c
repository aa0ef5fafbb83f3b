/* etcd_bars.c - locks in one etcd, side by side: Holdfast, the mutex of etcd's own Go client
 * written call by call (clientv3/concurrency, which `etcdctl lock` uses, too), and the bare calls.
 * All speak gRPC through the same few functions. bench/etcd runs it.
 *
 *     etcd_bars PORT turns WAY WORKERS SECONDS HOLD_US   processes that take turns
 *     etcd_bars PORT cycle WAY THREADS SECONDS           each of its own lock: take, release
 *     etcd_bars PORT renew HOLDS TTL_S                   what renewing costs the server in one ttl
 *
 * WAY: holdfast, native, raw. A raw turn is a deletion here and its event there; a raw cycle is the
 * two transactions of Holdfast, with THREADS of them in flight on one connection. */
#include "engines/etcd/etcd_messages.h"
#include "engines/etcd/http2.h"
#include "turns.h"

#include <holdfast.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 64 };

static const char txn_path[] = "/etcdserverpb.KV/Txn", range_path[] = "/etcdserverpb.KV/Range",
                  grant_path[] = "/etcdserverpb.Lease/LeaseGrant",
                  watch_path[] = "/etcdserverpb.Watch/Watch";

static int port, worker_number;
static struct pb_writer message;

/* ---- A connection ---- */

/* What a call has brought so far: its last message. */
struct call {
    char bytes[4096];
    size_t len;
    unsigned messages;
    bool ended;
    void (*on_message)(const struct call *call); /* NULL: only the last message matters */
    void (*on_end)(struct call *call);           /* NULL: nobody but its caller waits */
    void *ctx;
};

struct wire {
    int fd;
    struct http2 *http2;
    char out[1 << 16];
    size_t len;
};

static struct wire commands, watches;

static void on_send(void *ctx, const void *bytes, size_t len)
{
    struct wire *wire = ctx;
    if (wire->len + len > sizeof wire->out)
        turns_fail("send", "too much at once");
    memcpy(wire->out + wire->len, bytes, len);
    wire->len += len;
}

static void on_message(void *ctx, void *of, const char *bytes, size_t len)
{
    (void)ctx;
    struct call *call = of;
    if (len > sizeof call->bytes)
        turns_fail("message", "too long");
    memcpy(call->bytes, bytes, len);
    call->len = len;
    call->messages++;
    if (call->on_message)
        call->on_message(call);
}

static void on_end(void *ctx, void *of, const struct http2_end *end)
{
    (void)ctx;
    struct call *call = of;
    if (end->code != 0)
        turns_fail("etcd", end->text);
    call->ended = true;
    if (call->on_end)
        call->on_end(call);
}

static void flush_wire(struct wire *wire)
{
    if (!http2_flush(wire->http2))
        turns_fail("connection", "of no use");
    if (write(wire->fd, wire->out, wire->len) != (ssize_t)wire->len)
        turns_fail("write", "not all was sent");
    wire->len = 0;
}

static void read_wire(struct wire *wire)
{
    char bytes[1 << 16];
    const char *why;
    ssize_t got = read(wire->fd, bytes, sizeof bytes);
    if (got <= 0)
        turns_fail("read", "the server closed the connection");
    if (!http2_receive(wire->http2, bytes, (size_t)got, &why))
        turns_fail("read", why);
}

static void open_wire(struct wire *wire)
{
    static const struct http2_events events = {on_send, on_message, on_end};
    wire->fd = turns_connect(port);
    wire->http2 = http2_open(&events, wire, "127.0.0.1", "");
    if (!wire->http2)
        turns_fail("connection", "no memory");
}

/* Sends `message` and waits for its answer. */
static void ask(const char *path, struct call *call)
{
    *call = (struct call){0};
    http2_call(commands.http2, path, message.bytes, message.len, false, call);
    flush_wire(&commands);
    while (!call->ended)
        read_wire(&commands);
}

static struct slice text_slice(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static struct message read_answer(const struct call *call, enum message_kind kind)
{
    struct message answer;
    if (!message_read(&answer, kind, call->bytes, call->len))
        turns_fail("answer", "not a message");
    return answer;
}

static int64_t grant_lease(void)
{
    static struct call call;
    pb_clear(&message);
    message_lease_grant(&message, 60);
    ask(grant_path, &call);
    return read_answer(&call, MESSAGE_LEASE).lease;
}

/* ---- A watch ---- */

static void note_deletions(const struct call *call);

static struct call watching = {.on_message = note_deletions};
static int32_t watch_stream = -1;
static int64_t awaited; /* id of the watch that waits for a deletion; 0: the deletion has come */

static void note_deletions(const struct call *call)
{
    struct watch_message said;
    struct watch_event event;
    if (!message_read_watch(&said, call->bytes, call->len))
        turns_fail("watch", "not a message");
    while (said.watch_id == awaited && message_next_event(&said.events, &event))
        if (event.deleted)
            awaited = 0;
}

static void await_deletion(void)
{
    while (awaited) {
        read_wire(&watches);
        flush_wire(&watches);
    }
}

static void send_watch(void)
{
    if (watch_stream < 0)
        watch_stream =
            http2_call(watches.http2, watch_path, message.bytes, message.len, true, &watching);
    else
        http2_message(watches.http2, watch_stream, message.bytes, message.len);
    flush_wire(&watches);
}

/* ---- Writes, as the server counts them ---- */

static double metric(const char *name)
{
    const char *text = turns_http_get(port, "/metrics"), *at = text;
    size_t len = strlen(name);
    while ((at = strstr(at, name)) && (at[-1] != '\n' || at[len] != ' '))
        at += len;
    if (!at)
        turns_fail(name, "the server does not say it");
    return atof(at + len);
}

static uint64_t proposals(void)
{
    return (uint64_t)metric("etcd_server_proposals_applied_total");
}

/* ---- The mutex of clientv3/concurrency ---- */

static int64_t lease;
static char own_key[64];
static uint64_t own_created;

static void open_native(int worker)
{
    worker_number = worker;
    open_wire(&commands);
    open_wire(&watches);
    lease = grant_lease();
    snprintf(own_key, sizeof own_key, "native/race/%" PRIx64, (uint64_t)lease);
}

/* Sends the query of clientv3's WithLastCreate() and WithMaxCreateRev(): for the newest key that
 * was created before ours. *revision: revision of the reply. */
static bool find_key_ahead(char key[64], uint64_t *revision)
{
    static struct call call;
    struct key_value pair;
    const uint64_t descending = 2, by_creation = 2;
    pb_clear(&message);
    pb_put_bytes(&message, 1, "native/race/", 12);
    pb_put_bytes(&message, 2, "native/race0", 12);
    pb_put_number(&message, 3, 1);
    pb_put_number(&message, 5, descending);
    pb_put_number(&message, 6, by_creation);
    pb_put_number(&message, 13, own_created - 1);
    ask(range_path, &call);
    struct message answer = read_answer(&call, MESSAGE_RANGE);
    *revision = answer.header.revision;
    if (!message_next_pair(&answer.pairs, &pair))
        return false;
    snprintf(key, 64, "%.*s", (int)pair.key.len, pair.key.at);
    return true;
}

/* Waits for the deletion of the key. As in etcd's client, the watch begins at the revision of the
 * reply that named the key. */
static void await_key_ahead(const char *key, uint64_t revision)
{
    static int64_t id;
    pb_clear(&message);
    size_t create = pb_begin(&message, 1);
    pb_put_bytes(&message, 1, key, strlen(key));
    pb_put_number(&message, 3, revision);
    pb_put_number(&message, 7, (uint64_t)++id);
    pb_end(&message, create);
    awaited = id;
    send_watch();
    await_deletion();
    pb_clear(&message);
    message_unwatch(&message, id);
    send_watch();
}

static bool take_native(void)
{
    static struct call call;
    struct slice key = text_slice(own_key);
    struct range_request own = {.key = key}, owner = {.key = text_slice("native/race/"),
                                                      .range_end = text_slice("native/race0"),
                                                      .limit = 1};
    pb_clear(&message);
    message_compare(&message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL, 0);
    message_txn_put(&message, TXN_THEN, key, SLICE_NONE, lease);
    message_txn_range(&message, TXN_THEN, &owner);
    message_txn_range(&message, TXN_ELSE, &own);
    message_txn_range(&message, TXN_ELSE, &owner);
    ask(txn_path, &call);
    struct message answer = read_answer(&call, MESSAGE_TXN), owners;
    struct key_value first;
    own_created = answer.header.revision;
    message_next_response(&answer.responses, &owners);
    message_next_response(&answer.responses, &owners);
    bool is_owner = message_next_pair(&owners.pairs, &first) && first.created == own_created;
    char ahead[64];
    uint64_t revision;
    while (!is_owner && find_key_ahead(ahead, &revision))
        await_key_ahead(ahead, revision);
    return true;
}

static void delete_key(const char *key)
{
    static struct call call;
    pb_clear(&message);
    message_txn_delete(&message, TXN_THEN, text_slice(key));
    ask(txn_path, &call);
}

static void give_native(void)
{
    delete_key(own_key);
}

/* ---- Holdfast ---- */

static hf_client *client;
static hf_lease *held;

static void open_client(void)
{
    char url[100];
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d/bars", port);
    if (hf_open(url, NULL, &client) != HF_OK)
        turns_fail("hf_open", hf_error_text());
}

static void open_holdfast(int worker)
{
    (void)worker;
    open_client();
}

static bool take_holdfast(void)
{
    struct hf_request want = {.size = sizeof want, .name = "ours", .wait_ms = 120000};
    if (hf_acquire(client, &want, &held) != HF_OK)
        turns_fail("hf_acquire", hf_error_text());
    return true;
}

static void give_holdfast(void)
{
    if (hf_release(held) != HF_OK)
        turns_fail("hf_release", hf_error_text());
    hf_lease_free(held);
}

/* ---- The fastest handoff in etcd: each worker deletes a key that the other watches ---- */

static void put_key(const char *key)
{
    static struct call call;
    pb_clear(&message);
    message_txn_put(&message, TXN_THEN, text_slice(key), text_slice("1"), 0);
    ask(txn_path, &call);
}

static const char *const raw_key[2] = {"raw/0", "raw/1"};

static void open_raw(int worker)
{
    worker_number = worker;
    open_wire(&commands);
    open_wire(&watches);
    put_key(raw_key[worker]); /* the other worker deletes it */
    pb_clear(&message);
    message_watch(&message, 1, text_slice(raw_key[worker]), SLICE_NONE, true);
    send_watch();
    while (!watching.messages)
        read_wire(&watches);
    awaited = 1;
    usleep(200000); /* now both workers watch */
    if (worker == 0)
        delete_key(raw_key[0]);
}

static bool take_raw(void)
{
    await_deletion();
    awaited = 1;
    if (turns_are_over()) {
        delete_key(raw_key[1 - worker_number]); /* ends the wait of the other worker, too */
        return false;
    }
    return true;
}

/* Deletes the key for which the other worker waits. The same transaction restores the key that the
 * other worker will delete next. */
static void give_raw(void)
{
    static struct call call;
    pb_clear(&message);
    message_txn_put(&message, TXN_THEN, text_slice(raw_key[worker_number]), text_slice("1"), 0);
    message_txn_delete(&message, TXN_THEN, text_slice(raw_key[1 - worker_number]));
    ask(txn_path, &call);
}

/* ---- Cycles ---- */

static double cycle_seconds;
static atomic_ulong cycles;
static _Atomic bool stops;

static void *cycle_holdfast(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "own-%d", (int)(intptr_t)number);
    struct hf_request want = {.size = sizeof want, .name = name};
    hf_lease *one;
    unsigned long count = 0;
    for (; !stops; count++) {
        if (hf_acquire(client, &want, &one) != HF_OK || hf_release(one) != HF_OK)
            turns_fail("cycle", hf_error_text());
        hf_lease_free(one);
    }
    cycles += count;
    return NULL;
}

static void run_holdfast_cycles(int threads)
{
    pthread_t thread[THREADS_MAX];
    open_client();
    for (intptr_t i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, cycle_holdfast, (void *)i);
    usleep((useconds_t)(cycle_seconds * 1e6));
    stops = true;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
}

/* One of the cycles in flight: the transactions that Holdfast sends, with values of the same
 * lengths. */
struct raw_cycle {
    struct call call;
    char base[32], end[32], key[80], value[80];
    bool is_held;
};

static void send_raw(struct raw_cycle *cycle);

static void on_raw_end(struct call *call)
{
    struct raw_cycle *cycle = call->ctx;
    cycles += cycle->is_held;
    cycle->is_held = !cycle->is_held;
    if (!stops)
        send_raw(cycle);
}

static void send_raw(struct raw_cycle *cycle)
{
    struct slice key = text_slice(cycle->key), epoch = text_slice("raw/.s/0123456789abcdef");
    struct range_request own = {.key = key}, epochs = {.key = epoch},
                         all = {.key = text_slice(cycle->base),
                                .range_end = text_slice(cycle->end),
                                .limit = 33};
    cycle->call = (struct call){.on_end = on_raw_end, .ctx = cycle};
    pb_clear(&message);
    if (cycle->is_held) {
        message_compare(&message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_GREATER, 0);
        message_txn_delete(&message, TXN_THEN, key);
    } else {
        message_compare_value(&message, epoch, text_slice("0000000000000001"));
        message_compare(&message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL, 0);
        message_compare(&message, all.key, all.range_end, COMPARE_CREATED, COMPARE_EQUAL, 0);
        message_txn_put(&message, TXN_THEN, key, text_slice(cycle->value), lease);
        message_txn_range(&message, TXN_THEN, &all);
        message_txn_range(&message, TXN_ELSE, &epochs);
        message_txn_range(&message, TXN_ELSE, &own);
        message_txn_range(&message, TXN_ELSE, &all);
    }
    http2_call(commands.http2, txn_path, message.bytes, message.len, false, &cycle->call);
}

static void run_raw_cycles(int in_flight)
{
    static struct raw_cycle cycle[THREADS_MAX];
    static struct call call;
    open_wire(&commands);
    lease = grant_lease();
    pb_clear(&message);
    message_txn_put(&message, TXN_THEN, text_slice("raw/.s/0123456789abcdef"),
                    text_slice("0000000000000001"), lease);
    ask(txn_path, &call);
    int64_t end = turns_now() + (int64_t)(cycle_seconds * 1e9);
    for (int i = 0; i < in_flight; i++) {
        struct raw_cycle *one = &cycle[i];
        snprintf(one->base, sizeof one->base, "raw/own-%d/0", i);
        snprintf(one->end, sizeof one->end, "raw/own-%d/p", i);
        snprintf(one->key, sizeof one->key, "raw/own-%d/0123456789abcdef0123456789abcdef", i);
        snprintf(one->value, sizeof one->value, "hf1 e 1 1 30000 - = 1700000000000 12345 host ");
        send_raw(one);
    }
    while (turns_now() < end) {
        flush_wire(&commands);
        read_wire(&commands);
    }
}

static void run_cycles(const char *way, int threads)
{
    uint64_t before = proposals();
    if (strcmp(way, "raw") == 0)
        run_raw_cycles(threads);
    else
        run_holdfast_cycles(threads);
    printf("%s in_flight=%d cycles_per_s=%.0f writes=%.3f\n", way, threads,
           (double)cycles / cycle_seconds, (double)(proposals() - before) / (double)cycles);
}

/* ---- Renewing ---- */

static double calls_of(const char *method)
{
    char name[200];
    snprintf(name, sizeof name,
             "grpc_server_msg_received_total{grpc_method=\"%s\",grpc_service=\"etcdserverpb.%s\","
             "grpc_type=\"%s\"}",
             method, strcmp(method, "LeaseKeepAlive") == 0 ? "Lease" : "KV",
             strcmp(method, "LeaseKeepAlive") == 0 ? "bidi_stream" : "unary");
    return metric(name);
}

static void run_renewals(int holds, int seconds)
{
    open_client();
    for (int i = 0; i < holds; i++) {
        char name[32];
        snprintf(name, sizeof name, "kept-%d", i);
        struct hf_request want = {
            .size = sizeof want, .name = name, .ttl_ms = seconds * 1000, .flags = HF_AUTO_RENEW};
        if (hf_acquire(client, &want, &held) != HF_OK)
            turns_fail("hf_acquire", hf_error_text());
    }
    sleep((unsigned)seconds);
    double kept = calls_of("LeaseKeepAlive"), reads = calls_of("Range") + calls_of("Txn");
    sleep((unsigned)seconds);
    printf("renew holds=%d ttl_s=%d keepalives=%.0f reads=%.0f\n", holds, seconds,
           calls_of("LeaseKeepAlive") - kept, calls_of("Range") + calls_of("Txn") - reads);
    fflush(stdout);
    _exit(0); /* the holds end with their lease */
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct turns turns;
    } ways[] = {{"holdfast", {open_holdfast, take_holdfast, give_holdfast, proposals}},
                {"native", {open_native, take_native, give_native, proposals}},
                {"raw", {open_raw, take_raw, give_raw, proposals}}};
    if (argc < 5)
        turns_fail("arguments", "PORT turns|cycle|renew ...");
    port = atoi(argv[1]);
    cycle_seconds = argc > 5 ? atof(argv[5]) : 1;
    if (strcmp(argv[2], "renew") == 0) {
        run_renewals(atoi(argv[3]), atoi(argv[4]));
    } else if (strcmp(argv[2], "cycle") == 0) {
        run_cycles(argv[3], atoi(argv[4]) < THREADS_MAX ? atoi(argv[4]) : THREADS_MAX);
    } else {
        for (size_t i = 0; argc > 6 && i < sizeof ways / sizeof *ways; i++)
            if (strcmp(argv[3], ways[i].name) == 0)
                turns_run(argv[3], &ways[i].turns, atoi(argv[4]), atof(argv[5]), atoll(argv[6]));
    }
    return 0;
}
