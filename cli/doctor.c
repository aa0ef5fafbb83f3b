/* doctor.c - the verb `doctor`: opens the engine and checks what can be checked from outside.
 *
 * A check is a function that adds findings. Checks of the table's file and of the kernel run for
 * the engine local: only. */
#include "findings.h"
#include "output.h"
#include "row_list.h"
#include "table_path.h"
#include "verb_client.h"
#include "verbs.h"
#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define CYCLES 100
#define SLOW_PART 10 /* a cycle is slow if it takes more than 1/SLOW_PART of op_timeout */
#define OLDEST_CLOCK 1735689600 /* seconds since 1970, in 2025: an earlier clock was never set */
#define AHEAD_US                                                                                   \
    INT64_C(2000000) /* tokens further ahead of the clock than this show that the clock was        \
                        stepped back */

/* The shared table of a machine: the package makes its directory and the group that may use it. */
#define SHARED_TABLE "local:/run/lock/holdfast/table?mode=0660"

static const struct option_spec OPTIONS[] = {
    {"scan", 0, NULL, STORE_CONSTANT, OPTION_FIELD(scan), 1, 1,
     "search all keys of a Redis server, and compare them with the list"},
    {"install", 0, NULL, STORE_CONSTANT, OPTION_FIELD(install), 1, 1,
     "only install the functions that run inside servers, for users that may not"},
    {"prune", 0, NULL, STORE_CONSTANT, OPTION_FIELD(prune), 1, 1,
     "only remove libraries of other releases that no client uses"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

struct patient {
    hf_client *client;
    char path[4096]; /* path of the table; "" if the engine is not local: */
    uint64_t token;  /* largest token seen, in a cycle or in a hold */
};

static void check_file(struct findings *findings, const struct patient *patient)
{
    struct stat info;
    int64_t mode;
    const char *source;
    struct shown path = output_shown(patient->path);

    if (stat(patient->path, &info) != 0) {
        findings_add(findings, FINDING_WARN, "table", "%.300s: %s", path.text, strerror(errno));
        return;
    }

    unsigned bits = (unsigned)info.st_mode & 0777;
    findings_add(findings, FINDING_OK, "table", "%.300s, %lld KiB", path.text,
                 (long long)info.st_size / 1024);

    bool known = hf_client_setting(patient->client, "mode", &mode, &source) == HF_OK;
    if (known && (bits & ~(unsigned)mode))
        findings_add(findings, FINDING_WARN, "mode",
                     "%.300s is 0%o, wider than the setting mode, 0%o (%s)", path.text, bits,
                     (unsigned)mode, source);
    else
        findings_add(findings, FINDING_OK, "mode", "0%o, owner uid %u, we are uid %u; %s", bits,
                     (unsigned)info.st_uid, (unsigned)geteuid(),
                     bits & 022 ? "all who may write it are trusted with its locks"
                                : "several users share " SHARED_TABLE);
}

static void check_file_system(struct findings *findings, const struct patient *patient)
{
    struct statfs fs;

    if (statfs(patient->path, &fs) != 0) {
        findings_add(findings, FINDING_WARN, "disk", "cannot read the state of the file system: %s",
                     strerror(errno));
        return;
    }

    uint64_t free_kib = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / 1024;
    bool memory = fs.f_type == TMPFS_MAGIC;
    enum finding_state state = memory && free_kib > 1024 ? FINDING_OK : FINDING_WARN;
    findings_add(findings, state, "disk", "%" PRIu64 " KiB free%s", free_kib,
                 memory ? ", in memory"
                        : "; not in memory: a table on a disk is written back to it");
}

static void check_namespaces(struct findings *findings, const struct patient *patient)
{
    static const char *const links[] = {"/proc/self/ns/pid", "/proc/self/ns/time"};
    char text[2][64] = {"unknown", "unknown"};

    (void)patient;
    for (size_t i = 0; i < 2; i++) {
        ssize_t len = readlink(links[i], text[i], sizeof text[i] - 1);
        if (len > 0)
            text[i][len] = 0;
    }

    /* The engine compares the namespaces when it opens the table. It opened, so they match. */
    findings_add(findings, FINDING_OK, "namespace", "%s and %s, those of the table", text[0],
                 text[1]);
}

static void check_kernel(struct findings *findings, const struct patient *patient)
{
    (void)patient;
#ifdef SYS_futex_waitv
    bool offered = syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) == 0 || errno != ENOSYS;
#else
    bool offered = false;
#endif
    if (offered)
        findings_add(findings, FINDING_OK, "kernel",
                     "has futex_waitv: the death of a holder is noticed at once");
    else
        findings_add(
            findings, FINDING_WARN, "kernel",
            "has no futex_waitv (Linux 5.16): the death of a holder is noticed within 10 ms");
}

static int64_t now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int by_size(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Acquires and releases a lock of a name of its own, so that no other lock is touched. *us is
 * the time taken. */
static hf_status cycle(struct patient *patient, int64_t *us)
{
    char name[64];
    hf_lease *lease;

    snprintf(name, sizeof name, "holdfast-doctor-%d", (int)getpid());
    struct hf_request request = {.size = sizeof request, .name = name, .label = "holdfast doctor"};
    int64_t from = now_us(CLOCK_MONOTONIC);
    hf_status status = hf_acquire(patient->client, &request, &lease);
    if (status != HF_OK)
        return status;

    patient->token = hf_lease_token(lease);
    status = hf_release(lease);
    *us = now_us(CLOCK_MONOTONIC) - from;
    hf_lease_free(lease);

    return status;
}

static void check_cycles(struct findings *findings, struct patient *patient)
{
    int64_t us[CYCLES];

    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    for (size_t i = 0; i < CYCLES; i++) {
        hf_status status = cycle(patient, &us[i]);
        if (status != HF_OK) {
            findings_fail(findings, "cycle", status);
            return;
        }
    }

    qsort(us, CYCLES, sizeof us[0], by_size);
    hf_status status = hf_explain(patient->client, 0, &sheet);
    if (status != HF_OK) {
        findings_fail(findings, "cycle", status);
        return;
    }

    bool slow = us[CYCLES / 2] > sheet.op_timeout_ms * 1000 / SLOW_PART;
    findings_add(findings, slow ? FINDING_WARN : FINDING_OK, "cycle",
                 "acquire and release: median %" PRId64 " us, worst of %d %" PRId64
                 " us; op_timeout is %" PRId64 " ms",
                 us[CYCLES / 2], CYCLES, us[CYCLES - 1], sheet.op_timeout_ms);
}

/* A first token is at least the wall clock in microseconds. So a token far ahead of the clock
 * shows that the clock was stepped back. */
static void check_clock(struct findings *findings, struct patient *patient)
{
    int64_t wall = now_us(CLOCK_REALTIME);
    int64_t ahead = (int64_t)patient->token - wall;

    if (wall / 1000000 < OLDEST_CLOCK)
        findings_add(findings, FINDING_WARN, "clock", "shows %s: it was never set",
                     text_time(wall / 1000).text);
    else if (patient->token > 0 && ahead > AHEAD_US)
        findings_add(findings, FINDING_WARN, "clock",
                     "%s is %" PRId64
                     " s behind the newest token: it was stepped back; tokens go on rising",
                     text_time(wall / 1000).text, ahead / 1000000);
    else
        findings_add(findings, FINDING_OK, "clock", "%s, not behind the newest token",
                     text_time(wall / 1000).text);
}

/* Returns the state letter of a process of this machine, or 0 if it has ended. */
static char process_state(int64_t pid)
{
    char path[64], text[512];

    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

static void check_row(struct findings *findings, const struct hf_row *row)
{
    struct shown name = output_shown(row->name);
    const char *does = row->role == HF_HOLDER ? "holds" : "waits for";
    char state = process_state(row->pid);
    bool has_ended = state == 0 || state == 'Z' || state == 'X';

    if (state == 'T' || state == 't')
        findings_add(findings, FINDING_WARN, "holds",
                     "pid %" PRId64 " %s \"%.300s\" and is stopped", row->pid, does, name.text);
    else if (!row->detached && has_ended)
        findings_add(findings, FINDING_WARN, "holds", "pid %" PRId64 " %s \"%.300s\" and is gone",
                     row->pid, does, name.text);
}

static void check_holds(struct findings *findings, struct patient *patient)
{
    struct row_list rows = {0};
    char host[256] = "";
    size_t before = findings->count + findings->dropped, holders = 0;
    hf_status status = hf_list(patient->client, NULL, row_list_add, &rows);

    if (status != HF_OK) {
        findings_fail(findings, "holds", status);
        return;
    }

    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < rows.count; i++) {
        holders += rows.all[i].role == HF_HOLDER;
        if (rows.all[i].token > patient->token)
            patient->token = rows.all[i].token;
        if (strcmp(rows.all[i].host, host) == 0)
            check_row(findings, &rows.all[i]);
    }

    if (findings->count + findings->dropped == before)
        findings_add(findings, FINDING_OK, "holds",
                     "%zu holds, %zu waiters, none of a process that is gone or stopped", holders,
                     rows.count - holders);
    row_list_free(&rows);
}

static bool is_listed(const struct row_list *rows, const char *name)
{
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(rows->all[i].name, name) == 0)
            return true;
    return false;
}

/* Warns of every name that the search found and the list lacks, if it was held before both began.
 * Locks of other programs need not be in the list. */
static void compare_lists(struct findings *findings, const struct row_list *listed,
                          const struct row_list *found, int64_t took_ms)
{
    size_t foreign = 0, missed = 0;

    for (size_t i = 0; i < found->count; i++) {
        const struct hf_row *row = &found->all[i];
        bool is_missed = !row->foreign && row->role == HF_HOLDER && row->since_ms > took_ms &&
                         !is_listed(listed, row->name);
        foreign += row->foreign;
        missed += is_missed;
        if (is_missed)
            findings_add(findings, FINDING_WARN, "scan",
                         "\"%.300s\" is held and not listed; a list finds it within an hour",
                         output_shown(row->name).text);
    }

    if (!missed)
        findings_add(findings, FINDING_OK, "scan",
                     "the list has every lock that a search finds; %zu locks of other programs",
                     foreign);
}

static void check_scan(struct findings *findings, const struct patient *patient)
{
    struct row_list listed = {0}, found = {0};
    struct hf_page all = {.size = sizeof all, .foreign = true};
    char next[HF_NAME_MAX + 1];
    int64_t began_us = now_us(CLOCK_MONOTONIC);
    hf_status status = hf_list(patient->client, NULL, row_list_add, &listed);
    if (status == HF_OK)
        status = hf_list_page(patient->client, &all, row_list_add, &found, next);

    if (status != HF_OK)
        findings_fail(findings, "scan", status);
    else
        compare_lists(findings, &listed, &found, (now_us(CLOCK_MONOTONIC) - began_us) / 1000 + 1);
    row_list_free(&listed);
    row_list_free(&found);
}

static void add_finding(void *arg, const struct hf_finding *f)
{
    static const enum finding_state states[] = {[HF_HEALTH_OK] = FINDING_OK,
                                                [HF_HEALTH_NOTE] = FINDING_NOTE,
                                                [HF_HEALTH_WARN] = FINDING_WARN,
                                                [HF_HEALTH_BAD] = FINDING_FAIL};

    if (f->health == HF_HEALTH_BAD)
        findings_broken(arg, EXIT_CONFIG);
    findings_add(arg, states[f->health], f->what, "%s%s%s%s%s", f->where, *f->where ? ": " : "",
                 f->text, *f->advice ? "; what to do: " : "", f->advice);
}

static void check_servers(struct findings *findings, const struct patient *patient)
{
    hf_status status = hf_diagnose(patient->client, add_finding, findings);
    if (status != HF_OK)
        findings_fail(findings, "server", status);
}

static void diagnose(struct findings *findings, const struct cli_options *options)
{
    struct patient patient = {0};
    bool embedded = table_path(options->url, patient.path, sizeof patient.path);
    hf_status status = hf_open(options->url, NULL, &patient.client);

    if (status != HF_OK) {
        findings_fail(findings, "engine", status);
        return;
    }

    findings_add(findings, FINDING_OK, "engine", "opened; engines built in: %s", hf_engines());
    if (embedded) {
        check_file(findings, &patient);
        check_file_system(findings, &patient);
        check_namespaces(findings, &patient);
        check_kernel(findings, &patient);
    }

    check_servers(findings, &patient);
    check_cycles(findings, &patient);
    check_holds(findings, &patient);
    if (options->scan)
        check_scan(findings, &patient);
    check_clock(findings, &patient);
    status = hf_close(patient.client, 1000);
    if (status != HF_OK)
        findings_fail(findings, "close", status);
}

/* Carries out the options --install and --prune: care for the library that runs inside servers. No
 * lock is taken. */
static void care_for_library(struct findings *findings, const struct cli_options *options)
{
    hf_client *client;
    hf_status status = hf_open(options->url, NULL, &client);

    if (status != HF_OK) {
        findings_fail(findings, "engine", status);
        return;
    }

    if (options->install)
        status = hf_library_install(client, add_finding, findings);
    if (status == HF_OK && options->prune)
        status = hf_library_prune(client, add_finding, findings);
    if (status != HF_OK)
        findings_fail(findings, "library", status);
    status = hf_close(client, 1000);
    if (status != HF_OK)
        findings_fail(findings, "close", status);
}

static int run_doctor(const struct cli_options *options, int argc, char **argv)
{
    struct findings findings = {0};
    int code = check_operands(&VERB_DOCTOR, argc, argv, 0, 0);
    if (code != 0)
        return code;
    if (options->install || options->prune)
        care_for_library(&findings, options);
    else
        diagnose(&findings, options);
    return findings_print(&findings, options->json);
}

const struct verb VERB_DOCTOR = {
    .name = "doctor",
    .operands = "",
    .summary = "Opens the engine and checks it: table, permissions, clock, speed, stale holds.",
    .details =
        "Each line is ok, note (good to know), warn or fail. Exit codes: 0 nothing failed; "
        "69 the engine\n"
        "cannot be reached or is full; 78 bad configuration, no permission, or a table or "
        "server that cannot\n"
        "do its work.\n"
        "With --json: one object with the keys exit, dropped and checks (check, state, text "
        "each).\n"
        "\n"
        "--install and --prune are for administrators of servers, and take no lock. On Redis and "
        "Valkey they do\n"
        "their work on every server of the URL: each primary of a cluster, each server of a "
        "quorum. --install\n"
        "loads the library of functions that clients call, and replaces it if somebody changed "
        "it. --prune\n"
        "removes those of other releases, but none that a connected client uses, or may use "
        "because it does not\n"
        "say. On PostgreSQL --install makes the schema or upgrades it, also with install=0 in "
        "the URL. Both say\n"
        "what they did on each server.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_doctor,
};
