/* engines.c - the engines that the conformance suite judges, and what its rows are made of. */
#include "engines.h"

#include "cluster_setup.h"
#include "consul_server.h"
#include "engines/engine.h"
#include "etcd_server.h"
#include "postgres_servers.h"
#include "quorum_servers_setup.h"
#include "sentinel_setup.h"
#include "zookeeper_server.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static bool fresh_table(const struct engine *one, char *url, size_t size)
{
    (void)one;
    return snprintf(url, size, "%s", stage_url()) < (int)size;
}

static const char *always_there(const struct engine *one)
{
    (void)one;
    return NULL;
}

/* Returns one server for all rows, each of which has its own part of the names. */
static struct server *server_of(enum server_kind kind)
{
    static struct server *server[2];
    if (!server[kind])
        server[kind] = server_start(&(struct server_options){.kind = kind});
    return server[kind];
}

static bool fresh_prefix(const struct engine *one, char *url, size_t size)
{
    static unsigned rows;
    struct server *server = server_of(one->kind);
    if (one->user[0])
        server_add_locker(server, "locker", NULL);
    return snprintf(url, size, "redis://%s127.0.0.1:%u/0?prefix=lock:r%03u:%s", one->user,
                    server_port(server), ++rows, one->settings) < (int)size;
}

static const char *missing_server(const struct engine *one)
{
    return server_missing(one->kind);
}

/* Gives a row five servers that all rows share. */
static bool fresh_quorum(const struct engine *one, char *url, size_t size)
{
    static struct quorum quorum;
    static unsigned rows;
    char query[32];
    if (!quorum.count)
        quorum_start(&quorum, 5, SERVER_REDIS);
    (void)one;
    snprintf(query, sizeof query, "prefix=r%03u:", ++rows);
    quorum_url(&quorum, query, url, size);
    return true;
}

/* Starts a program of tests/engines, which serves until this process ends. The first line that it
 * prints is the URL of its server. */
static void start_program(const char *program, char *url, size_t size)
{
    char path[256];
    int out[2];
    assert_true(snprintf(path, sizeof path, HF_TESTS_FOLDER "/engines/%s", program) <
                (int)sizeof path);
    assert_int_equal(pipe(out), 0);

    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        execl(path, path, NULL);
        _exit(127);
    }

    close(out[1]);
    FILE *said = fdopen(out[0], "r");
    assert_non_null(said);
    assert_non_null(fgets(url, (int)size, said));
    fclose(said);
    url[strcspn(url, "\n")] = '\0';
}

/* Gives a row one server that all rows share. They share their names: each must leave nothing
 * behind, or only what soon ends. */
static bool fresh_program(const struct engine *one, char *url, size_t size)
{
    static char started[128];
    if (!started[0])
        start_program(one->program, started, sizeof started);
    return snprintf(url, size, "%s", started) < (int)size;
}

/* Gives a row a primary and a sentinel that all rows share. */
static bool fresh_watched(const struct engine *one, char *url, size_t size)
{
    static struct watched watched;
    static unsigned rows;
    char query[32];
    if (!watched.server[0])
        watched_start(&watched, &(struct watched_options){.replicas = 0, .sentinels = 1});
    (void)one;
    snprintf(query, sizeof query, "?prefix=lock:r%03u:", ++rows);
    watched_url(&watched, query, url, size);
    return true;
}

/* Gives a row a cluster that all rows share: three primaries, among which the names of a row are
 * spread. */
static bool fresh_cluster(const struct engine *one, char *url, size_t size)
{
    static struct cluster_servers cluster;
    static unsigned rows;
    char query[64];
    if (!cluster.count)
        cluster_start(&cluster, &(struct cluster_options){.kind = one->kind, .primaries = 3});
    snprintf(query, sizeof query, "?prefix=lock:r%03u:%s", ++rows, one->settings);
    cluster_url(&cluster, query, url, size);
    return true;
}

static const char *missing_postgres(const struct engine *one)
{
    (void)one;
    return postgres_missing();
}

/* Gives a row one server that all rows share. */
static bool fresh_postgres(const struct engine *one, char *url, size_t size)
{
    static struct postgres_server *server;
    static unsigned rows;
    if (!server)
        server = postgres_start(NULL);
    return snprintf(url, size, "postgres://postgres@127.0.0.1:%u/postgres?prefix=r%03u:%s",
                    postgres_port(server), ++rows, one->settings) < (int)size;
}

static const char *missing_pooler(const struct engine *one)
{
    (void)one;
    return postgres_pooler_missing();
}

/* Gives a row that server behind a pooler, which gives each transaction any of its sessions. */
static bool fresh_pooled(const struct engine *one, char *url, size_t size)
{
    static struct postgres_server *server;
    static unsigned rows;
    (void)one;
    if (!server)
        server = postgres_start(NULL);
    return snprintf(url, size, "postgres://postgres@127.0.0.1:%u/postgres?prefix=r%03u:",
                    postgres_pooler(server, 20), ++rows) < (int)size;
}

/* Gives a row one server that all rows share, and a prefix of its own. */
static bool fresh_etcd(const struct engine *one, char *url, size_t size)
{
    static struct etcd_server *server;
    static unsigned rows;
    if (!server)
        server = etcd_start(NULL);
    (void)one;
    return snprintf(url, size, "etcd://127.0.0.1:%u/r%03u", etcd_port(server), ++rows) < (int)size;
}

static const char *missing_etcd(const struct engine *one)
{
    (void)one;
    return etcd_missing();
}

/* Gives a row one server that all rows share, and a prefix of its own. */
static bool fresh_consul(const struct engine *one, char *url, size_t size)
{
    static struct consul_server *server;
    static unsigned rows;
    if (!server)
        server = consul_start(NULL);
    (void)one;
    return snprintf(url, size, "consul://127.0.0.1:%u/r%03u?session_min=1s", consul_port(server),
                    ++rows) < (int)size;
}

static const char *missing_consul(const struct engine *one)
{
    (void)one;
    return consul_missing();
}

/* Takes one lock. A server that has just begun may need seconds for its first one, because java
 * loads its classes then. */
static void warm_zookeeper(const struct zookeeper_server *server)
{
    char url[64];
    struct hf_request want = {.size = sizeof want, .name = "first", .wait_ms = 30000};
    hf_client *client;
    hf_lease *lease;
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%u/warm", zookeeper_port(server));
    if (hf_open(url, NULL, &client) != HF_OK || hf_acquire(client, &want, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    hf_release(lease);
    hf_lease_free(lease);
    hf_close(client, 1000);
}

/* Gives a row one server that all rows share, and a node of its own. */
static bool fresh_zookeeper(const struct engine *one, char *url, size_t size)
{
    static struct zookeeper_server *server;
    static unsigned rows;
    if (!server) {
        server = zookeeper_start(NULL);
        warm_zookeeper(server);
    }
    (void)one;
    return snprintf(url, size, "zookeeper://127.0.0.1:%u/r%03u", zookeeper_port(server), ++rows) <
           (int)size;
}

static const char *missing_zookeeper(const struct engine *one)
{
    (void)one;
    return zookeeper_missing();
}

/* The places and traits of matrix.def. LOCKER is the user that docs/redis-operations.md describes.
 */
#define TABLE .missing = always_there, .fresh = fresh_table
#define PROGRAM(path) .missing = always_there, .fresh = fresh_program, .program = path
#define QUORUM .missing = missing_server, .fresh = fresh_quorum
#define WATCHED .missing = missing_server, .fresh = fresh_watched
#define SERVER(server, who, how)                                                                   \
    .missing = missing_server, .fresh = fresh_prefix, .kind = SERVER_##server, .user = who,        \
    .settings = how
#define CLUSTER(server, how)                                                                       \
    .missing = missing_server, .fresh = fresh_cluster, .kind = SERVER_##server, .settings = how
#define DATABASE(how) .missing = missing_postgres, .fresh = fresh_postgres, .settings = how
#define POOLED_DATABASE .missing = missing_pooler, .fresh = fresh_pooled
#define DURABLE ""
#define MEMORY "&memory=1"
#define ETCD .missing = missing_etcd, .fresh = fresh_etcd
#define CONSUL .missing = missing_consul, .fresh = fresh_consul, .shortest_ttl_ms = 1000
#define ZOOKEEPER .missing = missing_zookeeper, .fresh = fresh_zookeeper
#define ANY_USER ""
#define LOCKER "locker:PASSWORD@"
#define INBOX ""
#define PUBSUB "&wake=pubsub"
#define POLL "&wake=poll"
#define FIRST_COME .first_come = true
#define IS_QUORUM .is_quorum = true
#define NOTICES_DEATH .notices_death = true
#define LASTING_WAITERS .lasting_waiters = true
#define POLLS .polls = true
#define HIDES_LEFT .hides_left = true

static const struct engine engines[] = {
#define ENGINE(called, engine, place, marks, ...)                                                  \
    {.word = #called, .name = engine, place, __VA_ARGS__},
#include "conformance/matrix.def"
};

enum { ENGINES = sizeof engines / sizeof *engines, ROWS_MAX = 64 };

static const struct engine *judged;
static char url[256];
static hf_client *own;
static void *page;
static size_t page_size;

const struct engine *engine(void)
{
    return judged;
}

const char *engine_url(void)
{
    return url;
}

void engine_url_with(char *to, size_t size, const char *settings)
{
    const char *joint = !settings ? "" : strchr(url, '?') ? "&" : "?";
    assert_true(snprintf(to, size, "%s%s%s", url, joint, settings ? settings : "") < (int)size);
}

int rounds(int usual)
{
    return judged->polls ? 1 + usual / 6 : usual;
}

int64_t turn_ttl_ms(void)
{
    return judged->polls ? 1000 : 0;
}

/* The scheme finds the engine: its name need not be one. */
static int64_t shortest_ttl_ms(void)
{
    if (judged->shortest_ttl_ms)
        return judged->shortest_ttl_ms;
    return engine_find(url, strcspn(url, ":"))->limits.ttl_min_ms;
}

/* What a ttl is multiplied by in this row: 1, and up to 3 on a machine that is too busy to wake a
 * thread in time. A lease that a test keeps must not end because nobody let the test run. */
static int64_t slowness = 1;

static void measure_slowness(void)
{
    enum { NAPS = 3, NAP_US = 1000, LATE_US = 2000, MOST = 3 };
    int64_t worst_us = 0;
    for (int i = 0; i < NAPS; i++) {
        int64_t before = now_ns();
        nap_us(NAP_US);
        int64_t late_us = (now_ns() - before) / 1000 - NAP_US;
        worst_us = late_us > worst_us ? late_us : worst_us;
    }
    slowness = 1 + worst_us / LATE_US;
    slowness = slowness < MOST ? slowness : MOST;
}

static int64_t at_least_shortest(int64_t ttl_ms)
{
    int64_t shortest = shortest_ttl_ms();
    return ttl_ms > shortest ? ttl_ms : shortest;
}

int64_t brief_ttl_ms(void)
{
    return at_least_shortest(50);
}

int64_t ttl(int64_t usual_ms)
{
    return at_least_shortest(usual_ms * slowness);
}

/* ---- Judging ---- */

static int row_setup(void **state)
{
    sight_hides_waiters(!judged->first_come);
    measure_slowness();
    return stage_setup(state) || !judged->fresh(judged, url, sizeof url) ? -1 : 0;
}

static int row_teardown(void **state)
{
    hf_status closed = hf_close(own, 5000);
    if (closed != HF_OK)
        print_error("closing the row's client: %s\n", hf_error_text());
    own = NULL;
    if (page)
        munmap(page, page_size);
    page = NULL;
    return stage_teardown(state) || closed != HF_OK ? -1 : 0;
}

void engine_afresh(void)
{
    assert_int_equal(row_teardown(NULL), 0);
    assert_int_equal(row_setup(NULL), 0);
}

static const char *name_of(const struct engine *one)
{
    return one->name;
}

static const char *word_for(const struct engine *one)
{
    return one->word;
}

/* Checks that each of the words is what some line of the table is called. */
static void check_words(const char *words, const char *(*called)(const struct engine *),
                        const char *complaint)
{
    char each[256], *rest = each;
    assert_true(strlen(words) < sizeof each);
    strcpy(each, words);
    for (char *word; (word = strsep(&rest, " "));) {
        size_t i = 0;
        while (i < ENGINES && strcmp(called(&engines[i]), word) != 0)
            i++;
        if (i == ENGINES)
            fail_msg("%s: %s", word, complaint);
    }
}

/* An engine that was built but is not in the table above would pass every row unjudged. */
static void test_all_are_judged(void **state)
{
    (void)state;
    check_words(hf_engines(), name_of, "this engine is built and not judged");
}

/* An engine whose word in HF_TEST_ENGINES is misspelt would not be judged either. */
static void test_all_wanted_are_known(void **state)
{
    (void)state;
    if (getenv("HF_TEST_ENGINES"))
        check_words(getenv("HF_TEST_ENGINES"), word_for,
                    "HF_TEST_ENGINES wants it and there is none");
}

/* Returns true if the text is one of the words. */
static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static bool is_wanted(const struct engine *one)
{
    const char *only = getenv("HF_TEST_ENGINES");
    return has_word(hf_engines(), one->name) && (!only || has_word(only, word_for(one)));
}

static void skip_row(void **state)
{
    (void)state;
    print_message("# skipped: %s\n", judged->missing(judged));
    skip();
}

static struct CMUnitTest row_of(const struct engine *one, const char *name,
                                const struct CMUnitTest *row)
{
    if (one->missing(one))
        return (struct CMUnitTest){.name = name, .test_func = skip_row};
    return (struct CMUnitTest){.name = name,
                               .test_func = row->test_func,
                               .setup_func = row_setup,
                               .teardown_func = row_teardown};
}

static int judge_one(const struct engine *one, const struct CMUnitTest *rows, size_t count)
{
    struct CMUnitTest tests[ROWS_MAX] = {0};
    char *names[ROWS_MAX] = {0}, label[64];
    judged = one;
    bool is_variant = strcmp(one->word, one->name) != 0;
    snprintf(label, sizeof label, "%s%s%s%s", one->name, is_variant ? " (" : "",
             is_variant ? one->word : "", is_variant ? ")" : "");
    for (size_t i = 0; i < count; i++) {
        if (asprintf(&names[i], "%s: %s", label, rows[i].name) < 0)
            abort();
        tests[i] = row_of(one, names[i], &rows[i]);
    }
    int failed = _cmocka_run_group_tests(label, tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    return failed;
}

int judge(const struct CMUnitTest *rows, size_t count)
{
    const struct CMUnitTest all[] = {
        SENTENCE("every engine that is built is judged", test_all_are_judged),
        SENTENCE("every engine that is wanted is known", test_all_wanted_are_known),
    };
    int failed = cmocka_run_group_tests(all, NULL, NULL);
    if (count > ROWS_MAX)
        abort();
    for (size_t i = 0; i < ENGINES; i++)
        if (is_wanted(&engines[i]))
            failed += judge_one(&engines[i], rows, count);
    servers_end();
    postgres_servers_end();
    consul_servers_end();
    etcd_servers_end();
    zookeeper_servers_end();
    return failed;
}

/* ---- What an engine offers ---- */

static void note_row(void *arg, const struct hf_row *row);

static hf_status probe_acquire(hf_client *client, const struct hf_request *request)
{
    hf_lease *lease;
    hf_status status = hf_acquire(client, request, &lease);
    if (status == HF_OK)
        give(lease);
    return status;
}

static hf_status probe_convert(hf_client *client)
{
    hf_lease *lease;
    hf_status status = hf_acquire(client, ASK(.name = "probe", .kind = HF_READ), &lease);
    if (status != HF_OK)
        return status;
    status = hf_upgrade(lease);
    hf_lease_free(lease);
    return status;
}

static hf_status probe(hf_client *client, enum need need)
{
    switch (need) {
    case NEED_SEMAPHORE:
        return probe_acquire(client, ASK(.name = "probe", .kind = HF_SEMAPHORE, .capacity = 2));
    case NEED_READ_WRITE:
        return probe_acquire(client, ASK(.name = "probe", .kind = HF_READ));
    case NEED_DETACHED:
        return probe_acquire(client, ASK(.name = "probe", .flags = HF_DETACHED));
    case NEED_OWNER:
        return probe_acquire(client, ASK(.name = "probe", .owner = "somebody"));
    case NEED_CONVERT:
        return probe_convert(client);
    case NEED_RESIZE:
        return hf_resize(client, "nobody holds this", 2) == HF_UNSUPPORTED ? HF_UNSUPPORTED : HF_OK;
    case NEED_BREAK:
        return hf_break(client, "nobody holds this", 1, NULL) == HF_UNSUPPORTED ? HF_UNSUPPORTED
                                                                                : HF_OK;
    case NEED_HISTORY:
        return hf_history(client, "nobody held this", note_row, &(struct view){0});
    case NEED_BARGING:
        return probe_acquire(client, ASK(.name = "probe", .flags = HF_BARGING));
    }
    return HF_INVALID;
}

bool offers(enum need need)
{
    hf_client *client = open_client(NULL, NULL);
    hf_status status = probe(client, need);
    if (status == HF_UNSUPPORTED) {
        assert_true(strlen(hf_error_text()) > 0);
        print_message("# %s: not offered: %s\n", judged->name, hf_error_text());
    } else if (status != HF_OK) {
        fail_msg("%s: %s", judged->name, hf_error_text());
    }
    close_client(client);
    return status == HF_OK;
}

/* ---- Clients and leases ---- */

hf_client *open_client(const char *query, const struct hf_client_options *options)
{
    char whole[512];
    hf_client *client;
    engine_url_with(whole, sizeof whole, query);
    if (hf_open(whole, options, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

hf_client *row_client(void)
{
    if (!own)
        own = open_client(NULL, NULL);
    return own;
}

void close_client(hf_client *client)
{
    if (hf_close(client, 5000) != HF_OK)
        fail_msg("%s", hf_error_text());
}

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg;
    (void)row;
}

hf_status engine_connect(hf_client *client)
{
    return hf_show(client, "connect", ignore_row, NULL);
}

hf_lease *take(hf_client *client, const struct hf_request *request)
{
    hf_lease *lease;
    if (hf_acquire(client, request, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    assert_true(hf_lease_ok(lease));
    assert_true(hf_lease_token(lease) > 0);
    return lease;
}

void check_refused(hf_status status, hf_status expected, const char *words, const char *file,
                   int line)
{
    if (status != expected) {
        print_error("answered %s (%s), not %s\n", hf_status_name(status),
                    status ? hf_error_text() : "", hf_status_name(expected));
        _fail(file, line);
    }
    if (!strstr(hf_error_text(), words)) {
        print_error("the words \"%s\" do not contain \"%s\"\n", hf_error_text(), words);
        _fail(file, line);
    }
}

void refuse(hf_client *client, const struct hf_request *request, hf_status status,
            const char *words)
{
    hf_lease *lease = (hf_lease *)(uintptr_t)1;
    assert_refused(hf_acquire(client, request, &lease), status, words);
    assert_null(lease);
}

void give(hf_lease *lease)
{
    if (hf_release(lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    assert_false(hf_lease_ok(lease));
    assert_int_equal(hf_lease_left_ms(lease), 0);
    hf_lease_free(lease);
}

void note_outcome(hf_lease *lease, hf_status status, void *arg)
{
    struct outcome *outcome = arg;
    atomic_store(&outcome->token, status == HF_OK ? hf_lease_token(lease) : 0);
    atomic_store(&outcome->status, (int)status);
    atomic_fetch_add(&outcome->calls, 1);
}

void start_ask(hf_client *client, const struct hf_request *request, struct outcome *outcome)
{
    atomic_store(&outcome->status, -1);
    atomic_store(&outcome->calls, 0);
    if (hf_acquire_start(client, request, note_outcome, outcome, &outcome->lease) != HF_OK)
        fail_msg("%s", hf_error_text());
}

void await_count(_Atomic int *word, int at_least)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (atomic_load(word) < at_least) {
        if (now_ns() > end)
            fail_msg("%d instead of %d after %d ms", atomic_load(word), at_least,
                     ACTOR_PATIENCE_MS);
        nap_us(100);
    }
}

hf_status await_outcome(struct outcome *outcome)
{
    await_count(&outcome->calls, 1);
    return (hf_status)atomic_load(&outcome->status);
}

/* ---- Processes ---- */

static hf_client *client_of_part(void)
{
    hf_client *client;
    part_must(hf_open(url, NULL, &client) == HF_OK);
    return client;
}

static void follow_here(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = client_of_part();
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_follows_orders(me, client);
}

struct actor *actor_here(void)
{
    struct actor *a = actor_start_part(follow_here, NULL);
    actor_answer(a, ORDER_GO, 0);
    return a;
}

static void ask_and_release(struct actor *me, void *arg)
{
    hf_client *client = client_of_part();
    for (;;) {
        hf_lease *lease;
        struct answer taken = {.what = ORDER_ACQUIRE, .status = hf_acquire(client, arg, &lease)};
        taken.token = hf_lease_token(lease);
        snprintf(taken.text, sizeof taken.text, "%s", taken.status ? hf_error_text() : "");
        part_says(me, &taken);
        part_awaits_go(me);
        part_says(me, &(struct answer){.what = ORDER_RELEASE,
                                       .status = lease ? hf_release(lease) : HF_OK});
        hf_lease_free(lease);
        part_awaits_go(me);
    }
}

struct actor *actor_asking(const struct hf_request *request)
{
    return actor_start_part(ask_and_release, (void *)(uintptr_t)request);
}

void *shared_page(size_t size)
{
    assert_null(page);
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    page_size = size;
    return page;
}

/* ---- Seeing ---- */

static void note_row(void *arg, const struct hf_row *row)
{
    struct view *view = arg;
    uint32_t i = view->holders + view->waiters;
    if (i < sizeof view->row / sizeof *view->row) {
        view->row[i].role = row->role;
        view->row[i].kind = row->kind;
        view->row[i].units = row->units;
        view->row[i].depth = row->depth;
        view->row[i].place = row->place;
        view->row[i].used = row->used;
        view->row[i].capacity = row->capacity;
        view->row[i].token = row->token;
        view->row[i].ticket = row->ticket;
        view->row[i].left_ms = row->left_ms;
        view->row[i].ttl_ms = row->ttl_ms;
        view->row[i].since_ms = row->since_ms;
        view->row[i].pid = row->pid;
        view->row[i].detached = row->detached;
        snprintf(view->row[i].host, sizeof view->row[i].host, "%s", row->host);
        snprintf(view->row[i].label, sizeof view->row[i].label, "%s", row->label);
    }
    ++*(row->role == HF_HOLDER ? &view->holders : &view->waiters);
}

struct view look_at(hf_client *client, const char *name)
{
    struct view view = {0};
    if (hf_show(client, name, note_row, &view) != HF_OK)
        fail_msg("%s", hf_error_text());
    return view;
}

uint32_t depth_of(hf_client *client, const char *name)
{
    struct view view = look_at(client, name);
    return view.holders ? view.row[0].depth : 0;
}
