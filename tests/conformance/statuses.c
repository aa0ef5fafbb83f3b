/* statuses.c - every row of the status table is provoked through the library, with words that name
 * the thing concerned. A status that is new in status.def does not compile here until somebody says
 * how it comes about. Needs root, for a small tmpfs and for a user who may not. */
#include "lib/engines.h"
#include "lib/privileges.h"

#include "engines/local/shard.h"
#include "engines/local/wait_queue.h"
#include "sys/clock.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

/* With this ttl one operation may take a quarter of a second. NOBODY is a user that no system has.
 */
enum { TTL_MS = 5000, FULL_MOST = 20000, NOBODY = 64988 };

/* What a call answered. */
struct said {
    hf_status status;
    char text[ACTOR_TEXT];
    _Atomic int told;
};

/* How a status comes about: here, or in a process of its own; or why it cannot. */
struct way {
    void (*provoke)(struct said *said);
    actor_part *part;
    const char *because;
    const char *names; /* what the words must name; NULL: the path of the table */
    /* Returns why the status cannot be provoked by this process; may be NULL. */
    const char *(*missing)(void);
};

static void hear(struct said *said, hf_status status)
{
    said->status = status;
    snprintf(said->text, sizeof said->text, "%s", hf_error_text());
}

/* In a process of its own. */
static void tell(struct actor *me, hf_status status)
{
    struct answer answer = {.what = ORDER_GO, .status = status};
    snprintf(answer.text, sizeof answer.text, "%s", hf_error_text());
    part_says(me, &answer);
}

static void hear_from(struct said *said, actor_part *part, void *arg)
{
    struct answer answer = actor_answer(actor_start_part(part, arg), ORDER_GO, 0);
    said->status = answer.status;
    memcpy(said->text, answer.text, sizeof said->text);
}

static void hear_of_ask(struct said *said, const struct hf_request *request)
{
    hf_lease *lease;
    hear(said, hf_acquire(row_client(), request, &lease));
    assert_int_equal(!lease, said->status != HF_OK);
    hf_lease_free(lease);
}

static void hear_of_open(struct said *said, const char *url)
{
    hf_client *client;
    hear(said, hf_open(url, NULL, &client));
    assert_int_equal(!client, said->status != HF_OK);
    close_client(client);
}

/* ---- What asking brings ---- */

static void ask(struct said *said)
{
    hear_of_ask(said, ASK(.name = "nightly"));
}
static const struct way way_OK = {.provoke = ask};

static void ask_for_held(struct said *said)
{
    hf_lease *held = take(row_client(), ASK(.name = "nightly"));
    hear_of_ask(said, ASK(.name = "nightly"));
    give(held);
}
static const struct way way_BUSY = {.provoke = ask_for_held, .names = "nightly"};

static void wait_in_vain(struct said *said)
{
    hf_lease *held = take(row_client(), ASK(.name = "nightly"));
    hear_of_ask(said, ASK(.name = "nightly", .wait_ms = 30));
    give(held);
}
static const struct way way_TIMEOUT = {.provoke = wait_in_vain, .names = "nightly"};

static void hear_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct said *said = arg;
    (void)lease;
    hear(said, outcome);
    atomic_fetch_add(&said->told, 1);
}

/* A wait that only its end can end. */
static hf_lease *start_wait(hf_client *client, struct said *said)
{
    hf_lease *lease;
    assert_int_equal(hf_acquire_start(client, ASK(.name = "nightly", .wait_ms = HF_FOREVER),
                                      hear_outcome, said, &lease),
                     HF_OK);
    await_sight(row_client(), "nightly", 1, 1);
    return lease;
}

static void cancel_wait(struct said *said)
{
    hf_lease *held = take(row_client(), ASK(.name = "nightly"));
    hf_lease *waiting = start_wait(row_client(), said);
    assert_int_equal(hf_cancel(waiting), HF_OK);
    await_count(&said->told, 1);
    hf_lease_free(waiting);
    give(held);
}
static const struct way way_CANCELLED = {.provoke = cancel_wait, .names = "nightly"};

static void close_with_wait(struct said *said)
{
    hf_client *client = open_client(NULL, NULL);
    hf_lease *held = take(row_client(), ASK(.name = "nightly"));
    start_wait(client, said);
    close_client(client);
    assert_int_equal(atomic_load(&said->told), 1);
    give(held);
}
static const struct way way_CLOSED = {.provoke = close_with_wait, .names = "nightly"};

static void ask_with_bad_field(struct said *said)
{
    hear_of_ask(said, ASK(.name = "nightly", .wait_ms = -3));
}
static const struct way way_INVALID = {.provoke = ask_with_bad_field, .names = "wait_ms: -3"};

static void ask_for_too_many(struct said *said)
{
    hear_of_ask(said, ASK(.name = "nightly", .kind = HF_SEMAPHORE, .capacity = 4, .units = 5));
}
static const struct way way_TOO_BIG = {.provoke = ask_for_too_many, .names = "units: 5"};

static void ask_for_another_kind(struct said *said)
{
    hf_lease *held = take(row_client(), ASK(.name = "nightly"));
    hear_of_ask(said, ASK(.name = "nightly", .kind = HF_SEMAPHORE, .capacity = 4));
    give(held);
}
static const struct way way_MISMATCH = {.provoke = ask_for_another_kind, .names = "nightly"};

/* ---- What becomes of leases ---- */

static void extend_broken(struct said *said)
{
    hf_lease *lease = take(row_client(), ASK(.name = "nightly"));
    assert_int_equal(hf_break(row_client(), "nightly", hf_lease_token(lease), NULL), HF_OK);
    hear(said, hf_extend(lease, 0));
    hf_lease_free(lease);
}
static const struct way way_LOST = {.provoke = extend_broken, .names = "nightly"};

static void release_twice(struct said *said)
{
    hf_lease *lease = take(row_client(), ASK(.name = "nightly"));
    assert_int_equal(hf_release(lease), HF_OK);
    hear(said, hf_release(lease));
    hf_lease_free(lease);
}
static const struct way way_NOT_HELD = {.provoke = release_twice, .names = "nightly"};

/* Stops where the hold is kept, with that part of the table locked. */
static void stop_inside(struct actor *me, void *arg)
{
    static struct table table;
    uint32_t shard = shard_of_hash(resource_name_hash(arg, strlen(arg)));
    part_must(table_open(&table, stage_path(), 0600) == HF_OK);
    part_must(shard_lock(&table, shard, clock_boot() + NANOS_OF_MS(1000)) == HF_OK);
    raise(SIGSTOP);
    shard_unlock(&table, shard);
    part_says(me, &(struct answer){.what = ORDER_GO});
}

static void release_without_answer(struct said *said)
{
    char name[] = "nightly";
    hf_lease *lease = take(stage_client(), ASK(.name = name, .ttl_ms = TTL_MS));
    struct actor *stopped = actor_start_part(stop_inside, name);
    actor_await_stop(stopped);
    hear(said, hf_release(lease));
    actor_go_on(stopped);
    actor_answer(stopped, ORDER_GO, 0);
    hf_lease_free(lease);
    await_sight(stage_client(), name, 0, 0);
}
static const struct way way_IN_DOUBT = {.provoke = release_without_answer, .names = "nightly"};

static void ask_with_clients_of_parent(struct actor *me, void *arg)
{
    hf_lease *lease;
    tell(me, hf_acquire(arg, ASK(.name = "nightly"), &lease));
}

static void ask_after_fork(struct said *said)
{
    hear_from(said, ask_with_clients_of_parent, stage_client());
}
static const struct way way_FORKED = {.provoke = ask_after_fork};

/* ---- Where a table cannot be had ---- */

static void open_with_bad_setting(struct said *said)
{
    char url[300];
    snprintf(url, sizeof url, "%s?ttl=soon", stage_url());
    hear_of_open(said, url);
}
static const struct way way_CONFIG = {.provoke = open_with_bad_setting, .names = "soon"};

static void open_nowhere(struct said *said)
{
    char url[300];
    snprintf(url, sizeof url, "%s/no/such/folder", stage_url());
    hear_of_open(said, url);
}
static const struct way way_UNAVAILABLE = {.provoke = open_nowhere, .names = "/no/such/folder"};

static void open_text(struct said *said)
{
    FILE *f = fopen(stage_path(), "w");
    assert_non_null(f);
    assert_true(fputs("a list of things\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    hear_of_open(said, stage_url());
}
static const struct way way_DAMAGED = {.provoke = open_text};

static void open_as_nobody(struct actor *me, void *arg)
{
    hf_client *client;
    (void)arg;
    part_must(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0);
    part_must(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    tell(me, hf_open(stage_url(), NULL, &client));
}
static const struct way way_DENIED = {.part = open_as_nobody, .missing = privileges_missing_root};

/* The file system is this process's own, and goes with it. */
static void hold_until_full(struct actor *me, void *arg)
{
    (void)arg;
    part_must(unshare(CLONE_NEWNS) == 0);
    part_must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    part_must(mount("tmpfs", stage_directory(), "tmpfs", 0, "size=256k") == 0);
    hf_client *client = part_client();
    hf_status status = HF_OK;
    for (int i = 0; status == HF_OK && i < FULL_MOST; i++) {
        char name[16];
        hf_lease *lease;
        snprintf(name, sizeof name, "n%d", i);
        status = hf_acquire(client, ASK(.name = name), &lease);
    }
    tell(me, status);
}
static const struct way way_FULL = {.part = hold_until_full, .missing = privileges_missing_mounts};

/* From now on no page can be added to this process; what it has it may use. */
static void allow_no_more_memory(void)
{
    long pages = 0;
    struct rlimit limit;
    FILE *f = fopen("/proc/self/statm", "r");
    part_must(f && fscanf(f, "%ld", &pages) == 1);
    part_must(fclose(f) == 0 && getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE));
    part_must(setrlimit(RLIMIT_AS, &limit) == 0);
}

enum { OPENS_BEFORE = 20 };

/* Opens often before, so that neither the stack nor the heap has to grow before the library's own
 * pages. By the same call: the address sanitizer keeps a record of every new call stack, of which a
 * single opening need not show all, and ends the process that has no room for one. */
static void open_without_memory(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client;
    hf_status status = HF_OK;
    for (int i = 0; i <= OPENS_BEFORE; i++) {
        if (i == OPENS_BEFORE)
            allow_no_more_memory();
        status = hf_open(stage_url(), NULL, &client);
        if (i < OPENS_BEFORE)
            part_must(status == HF_OK && hf_close(client, 5000) == HF_OK);
    }
    tell(me, status);
}
static const struct way way_NO_MEMORY = {.part = open_without_memory};

/* A quorum of servers that are not there: ports that nobody listens at. */
#define NOWHERE "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"

static void ask_nowhere(struct said *said, const struct hf_request *request)
{
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(hf_open(NOWHERE, NULL, &client), HF_OK);
    hear(said, hf_acquire(client, request, &lease));
    assert_int_equal(hf_close(client, 5000), HF_OK);
}

static void ask_a_quorum_to_count(struct said *said)
{
    ask_nowhere(said, ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = 3));
}
static const struct way way_UNSUPPORTED = {.provoke = ask_a_quorum_to_count, .names = "redlock"};

static void ask_a_dead_quorum(struct said *said)
{
    ask_nowhere(said, ASK(.name = "q"));
}
static const struct way way_NO_QUORUM = {.provoke = ask_a_dead_quorum, .names = "127.0.0.1:2"};

/* ---- What is not to be had here ---- */

#define NOT_TO_BE_HAD " NOT_REPLICATED INTERNAL"
static const struct way way_NOT_REPLICATED = {
    .because = "it takes a server with replicas: fault-redis-replicas"};
static const struct way way_INTERNAL = {.because = "it would be a mistake of the library's own"};

/* ---- The rows ---- */

static const struct row {
    hf_status status;
    const char *name;
    int exit_code, http;
    bool retry;
    const char *text;
    const struct way *way;
} table[] = {
#define HF_STATUS(name, number, exit_code, http, retry, text)                                      \
    {HF_##name, #name, exit_code, http, retry, text, &way_##name},
#include "holdfast/status.def"
#undef HF_STATUS
};

enum { TABLE = sizeof table / sizeof *table };

static void check_columns(const struct row *row)
{
    assert_string_equal(hf_status_name(row->status), row->name);
    assert_string_equal(hf_status_text(row->status), row->text);
    assert_int_equal(hf_status_exit_code(row->status), row->exit_code);
    assert_int_equal(hf_status_http(row->status), row->http);
    assert_int_equal(hf_status_retry(row->status), row->retry);
}

static void provoke(hf_status status)
{
    const struct row *row = table;
    while (row->status != status)
        row++;
    struct said said = {.status = (hf_status)-1};
    if (status == HF_MISMATCH && !offers(NEED_SEMAPHORE))
        return; /* the only kind that there is does not differ from itself */
    privileges_needed(row->way->missing ? row->way->missing() : NULL);
    if (row->way->part)
        hear_from(&said, row->way->part, NULL);
    else
        row->way->provoke(&said);
    if (said.status != status)
        fail_msg("answered %s (%s), not %s", hf_status_name(said.status), said.text, row->name);
    check_columns(row);
    if (status == HF_OK)
        return; /* the words are those of the last call that failed */
    const char *thing = row->way->names ? row->way->names : stage_path();
    if (!*said.text || !strstr(said.text, thing))
        fail_msg("the words \"%s\" do not name \"%s\"", said.text, thing);
    print_message("# %s: %s\n", row->name, said.text);
}

#define HF_STATUS(name, number, exit_code, http, retry, text)                                      \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        provoke(HF_##name);                                                                        \
    }
#include "holdfast/status.def"
#undef HF_STATUS

static void test_not_to_be_had(void **state)
{
    (void)state;
    char names[256] = "";
    for (size_t i = 0; i < TABLE; i++) {
        if (!table[i].way->because)
            continue;
        check_columns(&table[i]);
        print_message("# not to be had: %s: %s\n", table[i].name, table[i].way->because);
        assert_true(strlen(names) + strlen(table[i].name) + 2 < sizeof names);
        strcat(strcat(names, " "), table[i].name);
    }
    assert_string_equal(names, NOT_TO_BE_HAD);
}

int main(void)
{
    static const struct CMUnitTest all[] = {
#define HF_STATUS(name, number, exit_code, http, retry, text)                                      \
    ROW(#name " is provoked (" text "): exit code " #exit_code ", HTTP " #http ", retry " #retry,  \
        test_##name),
#include "holdfast/status.def"
#undef HF_STATUS
    };
    struct CMUnitTest rows[TABLE + 1] = {
        ROW("what no engine gives is known by name", test_not_to_be_had)};
    size_t count = 1;
    for (size_t i = 0; i < TABLE; i++)
        if (!table[i].way->because)
            rows[count++] = all[i];
    return judge(rows, count);
}
