/* arguments.c - what callers may get wrong: each answer names the field and the value, and nothing
 * happened. */
#include "lib/engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fail_if_called(void *arg, const struct hf_row *row)
{
    (void)arg;
    fail_msg("%s is held or waited for", row->name);
}

/* Nothing that was refused left anything behind. */
static void assert_nothing_happened(hf_client *client)
{
    if (hf_list(client, NULL, fail_if_called, NULL) != HF_OK)
        fail_msg("%s", hf_error_text());
}

/* ---- Names ---- */

static const struct bad_name {
    const char *text;
    size_t len; /* 0: to the NUL */
    const char *words;
} bad_names[] = {
    {"", 0, "0 bytes"},
    {"a\nb", 0, "byte 2 (0x0a) is a control character"},
    {"a\0b", 3, "byte 2 (0x00) is a control character"},
    {"\0", 1, "byte 1 (0x00)"},
    {"tab\t", 0, "byte 4 (0x09)"},
    {"\x7f", 0, "(0x7f)"},
    {"c1 \xc2\x85", 0, "a control character"},
    {"\xff", 0, "byte 1 (0xff) is not valid UTF-8"},
    {"abc\x80", 0, "byte 4 (0x80) is not valid UTF-8"},
    {"cut \xe2\x82", 0, "not valid UTF-8"},
    {"\xc0\xaf", 0, "not valid UTF-8"},         /* overlong */
    {"\xed\xa0\x80", 0, "not valid UTF-8"},     /* a surrogate */
    {"\xf4\x90\x80\x80", 0, "not valid UTF-8"}, /* above U+10FFFF */
};

static void test_names(void **state)
{
    (void)state;
    hf_client *client = row_client();
    for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++) {
        const struct bad_name *bad = &bad_names[i];
        refuse(client, ASK(.name = bad->text, .name_len = bad->len), HF_INVALID, "name: ");
        refuse(client, ASK(.name = bad->text, .name_len = bad->len), HF_INVALID, bad->words);
        if (bad->len)
            continue;
        assert_refused(hf_show(client, bad->text, fail_if_called, NULL), HF_INVALID, bad->words);
        assert_refused(hf_history(client, bad->text, fail_if_called, NULL), HF_INVALID, bad->words);
        assert_refused(hf_break(client, bad->text, 1, NULL), HF_INVALID, bad->words);
        assert_refused(hf_resize(client, bad->text, 1), HF_INVALID, bad->words);
        if (*bad->text)
            assert_refused(hf_list(client, bad->text, fail_if_called, NULL), HF_INVALID,
                           bad->words);
    }
    assert_nothing_happened(client);
}

static void test_long_names(void **state)
{
    (void)state;
    hf_client *client = row_client();
    static char name[HF_NAME_MAX + 2];
    memset(name, 'n', HF_NAME_MAX + 1);
    refuse(client, ASK(.name = name), HF_INVALID, "name: 513 bytes");
    refuse(client, ASK(.name = name, .name_len = 100000), HF_INVALID, "100000 bytes");
    assert_refused(hf_show(client, name, fail_if_called, NULL), HF_INVALID, "513 bytes");
    assert_refused(hf_list(client, name, fail_if_called, NULL), HF_INVALID, "513 bytes");
    hf_lease *longest = take(client, ASK(.name = name, .name_len = HF_NAME_MAX));
    assert_int_equal(strlen(hf_lease_name(longest)), HF_NAME_MAX);
    name[HF_NAME_MAX] = 0;
    assert_int_equal(look_at(client, name).holders, 1);
    give(longest);
    hf_lease *odd = take(client, ASK(.name = "\xe6\x9c\xad {a}:*? '\"\\%s %n ../\xf0\x9f\x94\x92"));
    assert_int_equal(look_at(client, hf_lease_name(odd)).holders, 1);
    give(odd);
}

/* ---- The other fields ---- */

static char long_text[256]; /* all 'x', longer than every text but a name may be */

static void test_fields(void **state)
{
    (void)state;
    const struct {
        struct hf_request *request;
        hf_status status;
        const char *words;
    } bad[] = {
        {ASK(.name = "n", .ttl_ms = -1), HF_INVALID, "ttl_ms: -1"},
        {ASK(.name = "n", .ttl_ms = 1), HF_INVALID, "ttl_ms: 1"},
        {ASK(.name = "n", .ttl_ms = INT64_MAX), HF_INVALID, "ttl_ms: 9223372036854775807"},
        {ASK(.name = "n", .ttl_ms = INT64_MIN), HF_INVALID, "ttl_ms: -9223372036854775808"},
        {ASK(.name = "n", .wait_ms = -3), HF_INVALID, "wait_ms: -3"},
        {ASK(.name = "n", .wait_ms = INT64_MAX), HF_INVALID, "wait_ms: 9223372036854775807"},
        {ASK(.name = "n", .max_hold_ms = -1), HF_INVALID, "max_hold_ms: -1"},
        {ASK(.name = "n", .max_hold_ms = INT64_MAX), HF_INVALID,
         "max_hold_ms: 9223372036854775807"},
        {ASK(.name = "n", .units = 2), HF_INVALID, "units 2"},
        {ASK(.name = "n", .capacity = 2), HF_INVALID, "capacity 2"},
        {ASK(.name = "n", .kind = HF_READ, .units = 7), HF_INVALID, "units 7"},
        {ASK(.name = "n", .kind = HF_WRITE, .capacity = 9), HF_INVALID, "capacity 9"},
        {ASK(.name = "n", .kind = HF_SEMAPHORE), HF_INVALID, "capacity: 0"},
        {ASK(.name = "n", .kind = HF_SEMAPHORE, .capacity = UINT32_MAX), HF_INVALID,
         "capacity: 4294967295"},
        {ASK(.name = "n", .kind = HF_SEMAPHORE, .capacity = 4, .units = 5), HF_TOO_BIG, "units: 5"},
        {ASK(.name = "n", .kind = HF_SEMAPHORE, .capacity = 4, .units = UINT32_MAX), HF_TOO_BIG,
         "units: 4294967295"},
        {ASK(.name = "n", .kind = (hf_kind)4), HF_INVALID, "kind: 4"},
        {ASK(.name = "n", .kind = (hf_kind)-1), HF_INVALID, "kind: -1"},
        {ASK(.name = "n", .flags = 16), HF_INVALID, "flags: 0x10"},
        {ASK(.name = "n", .flags = 0x80000001), HF_INVALID, "flags: 0x80000001"},
        {ASK(.name = "n", .label = "a\nb"), HF_INVALID, "label: byte 2"},
        {ASK(.name = "n", .label = long_text), HF_INVALID, "label: 255 bytes"},
        {ASK(.name = "n", .correlation_id = long_text), HF_INVALID, "correlation_id: 255 bytes"},
        {ASK(.name = "n", .correlation_id = "\xff"), HF_INVALID, "correlation_id: byte 1 (0xff)"},
        {ASK(.name = "n", .owner = ""), HF_INVALID, "owner: 0 bytes"},
        {ASK(.name = "n", .owner = long_text), HF_INVALID, "owner: 255 bytes"},
        {ASK(.name = "n", .attempt = ""), HF_INVALID, "attempt: 0 bytes"},
        {ASK(.name = "n", .attempt = long_text), HF_INVALID, "attempt: 255 bytes"},
        {&(struct hf_request){.size = 0, .name = "n"}, HF_INVALID, "request.size: 0"},
        {&(struct hf_request){.size = 1 << 20, .name = "n"}, HF_INVALID, "request.size: 1048576"},
        {&(struct hf_request){.size = sizeof(size_t)}, HF_INVALID, "name"},
    };
    memset(long_text, 'x', sizeof long_text - 1);
    hf_client *client = row_client();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(client, bad[i].request, bad[i].status, bad[i].words);
    assert_nothing_happened(client);
}

static void test_defaults(void **state)
{
    (void)state;
    hf_client *client = open_client("ttl=7s&wait=30ms", NULL);
    hf_lease *lease = take(client, ASK(.name = "n", .ttl_ms = 0));
    assert_int_equal(look_at(client, "n").row[0].ttl_ms, 7000);
    int64_t value;
    const char *source;
    assert_int_equal(hf_client_setting(client, "ttl", &value, &source), HF_OK);
    assert_int_equal(value, 7000);
    assert_string_equal(source, "url");
    refuse(client, ASK(.name = "n", .wait_ms = HF_WAIT_DEFAULT), HF_TIMEOUT, "30 ms");
    give(lease);
    close_client(client);
}

static void test_lease_arguments(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "n"));
    assert_refused(hf_extend(lease, -5), HF_INVALID, "ttl_ms: -5");
    assert_refused(hf_extend(lease, INT64_MAX), HF_INVALID, "ttl_ms: 9223372036854775807");
    assert_true(hf_lease_ok(lease));
    assert_refused(hf_break(client, "n", 0, NULL), HF_INVALID, "token: 0");
    assert_refused(hf_break(client, "n", 1, "a\nreason"), HF_INVALID, "reason: byte 2");
    assert_refused(hf_resize(client, "n", HF_CAPACITY_MAX + 1), HF_INVALID, "capacity: 1048577");
    assert_refused(hf_close(client, -2), HF_INVALID, "timeout_ms: -2");
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    assert_refused(hf_explain(client, -4, &sheet), HF_INVALID, "ttl_ms: -4");
    give(lease);
}

/* ---- NULL ---- */

static void note_done(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)outcome, (void)arg;
    abort();
}

static int never_run(hf_lease *lease, void *arg)
{
    (void)lease, (void)arg;
    abort();
}

static bool never_told(void *arg, const struct hf_log_event *event)
{
    (void)arg, (void)event;
    abort();
}

static void test_null(void **state)
{
    (void)state;
    hf_client *client = row_client(), *opened;
    hf_lease *lease;
    struct hf_request *good = ASK(.name = "n");
    char text[HF_EXPORT_MAX];
    refuse(NULL, good, HF_INVALID, "client");
    refuse(client, NULL, HF_INVALID, "request");
    refuse(client, ASK(.ttl_ms = 0), HF_INVALID, "name");
    assert_refused(hf_acquire(client, good, NULL), HF_INVALID, "lease");
    assert_refused(hf_acquire_start(client, good, NULL, NULL, &lease), HF_INVALID, "done");
    assert_refused(hf_acquire_start(client, good, note_done, NULL, NULL), HF_INVALID, "lease");
    assert_refused(hf_acquire_start(NULL, good, note_done, NULL, &lease), HF_INVALID, "client");
    assert_refused(hf_acquire_many(client, NULL, 1, 0, &lease), HF_INVALID, "requests");
    assert_refused(hf_acquire_many(client, (const struct hf_request *const[]){NULL}, 1, 0, &lease),
                   HF_INVALID, "requests[0]");
    assert_refused(hf_with(client, good, NULL, NULL, NULL), HF_INVALID, "fn");
    assert_refused(hf_with(client, NULL, never_run, NULL, NULL), HF_INVALID, "request");
    assert_refused(hf_with(NULL, good, never_run, NULL, NULL), HF_INVALID, "client");
    assert_refused(hf_open(engine_url(), NULL, NULL), HF_INVALID, "client");
    assert_refused(hf_open(engine_url(), &(struct hf_client_options){.size = 1}, &opened),
                   HF_INVALID, "options.size: 1");
    assert_null(opened);
    assert_refused(hf_list(client, NULL, NULL, NULL), HF_INVALID, "fn");
    assert_refused(hf_show(client, NULL, fail_if_called, NULL), HF_INVALID, "name");
    assert_refused(hf_show_servers(client, "name", NULL, NULL), HF_INVALID, "fn");
    assert_refused(hf_watch(client, NULL, NULL, NULL), HF_INVALID, "fn");
    assert_refused(hf_watch(NULL, NULL, never_told, NULL), HF_INVALID, "client");
    assert_refused(hf_lease_attach(client, NULL, &lease), HF_INVALID, "text");
    assert_refused(hf_lease_export(NULL, text, sizeof text), HF_INVALID, "lease");
    assert_refused(hf_fence_admit(NULL, 1), HF_INVALID, "fence");
    assert_refused(hf_fence_admit(&(struct hf_fence){0}, 0), HF_INVALID, "token");
    assert_refused(hf_client_setting(client, "nonsense", NULL, NULL), HF_INVALID, "nonsense");
    assert_nothing_happened(client);
}

static void test_null_leases(void **state)
{
    (void)state;
    assert_refused(hf_release(NULL), HF_INVALID, "lease");
    assert_refused(hf_extend(NULL, 0), HF_INVALID, "lease");
    assert_refused(hf_cancel(NULL), HF_INVALID, "lease");
    assert_refused(hf_upgrade(NULL), HF_INVALID, "lease");
    assert_refused(hf_downgrade(NULL), HF_INVALID, "lease");
    hf_lease_free(NULL);
    assert_int_equal(hf_lease_fd(NULL), -1);
    assert_int_equal(hf_lease_token(NULL) + (uint64_t)hf_lease_left_ms(NULL) + hf_lease_ok(NULL),
                     0);
    assert_string_equal(hf_lease_name(NULL), "");
    assert_int_equal(hf_fd(NULL), -1);
    assert_refused(hf_process(NULL), HF_INVALID, "client");
}

/* ---- Where the structs lie, and how long they are ---- */

/* Pages that end where the next one cannot be touched. */
static char *guarded_page(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
    return map;
}

static void free_page(char *map)
{
    munmap(map, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

/* Of an older, shorter struct there is nothing behind its last field, and the whole of it cannot be
 * written to. */
static void use_cut_request(hf_client *client, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = guarded_page(), *at = map + page - size;
    struct hf_request whole = {.size = size, .name = strcpy(map, "cut"), .ttl_ms = 5000};
    memcpy(at, &whole, size);
    assert_int_equal(mprotect(map, page, PROT_READ), 0);
    const struct hf_request *cut = (const struct hf_request *)(const void *)at;
    hf_lease *lease = take(client, cut), *many;
    assert_string_equal(hf_lease_name(lease), "cut");
    give(lease);
    assert_int_equal(hf_acquire_many(client, &cut, 1, 0, &many), HF_OK);
    give(many);
    struct outcome outcome;
    start_ask(client, cut, &outcome);
    assert_int_equal(await_outcome(&outcome), HF_OK);
    give(outcome.lease);
    free_page(map);
}

static void test_cut_structs(void **state)
{
    (void)state;
    static const size_t ends[] = {
        offsetof(struct hf_request, name_len),
        offsetof(struct hf_request, kind),
        offsetof(struct hf_request, ttl_ms),
        offsetof(struct hf_request, wait_ms),
        offsetof(struct hf_request, flags),
        offsetof(struct hf_request, max_hold_ms),
        offsetof(struct hf_request, owner),
        offsetof(struct hf_request, label),
        offsetof(struct hf_request, on_lost),
        offsetof(struct hf_request, attempt),
        sizeof(struct hf_request),
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        use_cut_request(row_client(), ends[i]);
}

static void test_cut_options(void **state)
{
    (void)state;
    static const size_t ends[] = {
        offsetof(struct hf_client_options, on_log), offsetof(struct hf_client_options, log_level),
        offsetof(struct hf_client_options, no_environment), sizeof(struct hf_client_options)};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *map = guarded_page(), *at = map + page - ends[i];
        struct hf_client_options whole = {.size = ends[i]};
        memcpy(at, &whole, ends[i]);
        assert_int_equal(mprotect(map, page, PROT_READ), 0);
        hf_client *client = open_client(NULL, (const struct hf_client_options *)(const void *)at);
        struct hf_counters counters = {.size = sizeof(size_t) + sizeof(uint64_t), .granted = 77};
        give(take(client, ASK(.name = "n")));
        assert_int_equal(hf_client_counters(client, &counters), HF_OK);
        assert_int_equal(counters.asked, 1);
        assert_int_equal(counters.granted, 77); /* beyond what the caller knows of */
        close_client(client);
        free_page(map);
    }
}

/* A newer, longer struct of a caller that is ahead of this library: what it adds is not known here.
 */
static void test_longer_struct(void **state)
{
    (void)state;
    struct {
        struct hf_request known;
        char more[64];
    } newer = {.known = {.size = sizeof newer, .name = "n"}};
    give(take(row_client(), &newer.known));
}

/* hf_open and hf_check_url refuse the same, in the same words. */
static void refuse_url(const char *url, const char *words)
{
    hf_client *client;
    assert_refused(hf_open(url, NULL, &client), HF_CONFIG, words);
    assert_null(client);
    char text[512];
    snprintf(text, sizeof text, "%s", hf_error_text());
    assert_refused(hf_check_url(url), HF_CONFIG, words);
    assert_string_equal(hf_error_text(), text);
}

static void test_urls(void **state)
{
    (void)state;
    char url[300];
    refuse_url("gopher://x", "gopher");
    refuse_url("", "empty");
    refuse_url("local:relative", "absolute");
    refuse_url("redis://host:notaport", "port");
    engine_url_with(url, sizeof url, "ttl=soon");
    refuse_url(url, "soon");
    engine_url_with(url, sizeof url, "colour=red");
    refuse_url(url, "colour");
    engine_url_with(url, sizeof url, "ttl=1ms");
    refuse_url(url, "ttl");
}

static void test_check_opens_nothing(void **state)
{
    (void)state;
    char url[64], *path = url + strlen("local:");
    snprintf(url, sizeof url, "local:/dev/shm/holdfast-check-%d", (int)getpid());
    assert_int_equal(hf_check_url(url), HF_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(hf_check_url("redis://nobody.invalid:1"), HF_OK);
    assert_int_equal(hf_check_url(engine_url()), HF_OK);
}

/* ---- Capabilities ---- */

/* Each answer is compared with what the engine does when it is asked for that. */
static void test_capabilities(void **state)
{
    (void)state;
    static const struct {
        uint32_t can;
        enum need need;
    } pairs[] = {
        {HF_CAN_DETACH, NEED_DETACHED}, {HF_CAN_REENTER, NEED_OWNER},
        {HF_CAN_RESIZE, NEED_RESIZE},   {HF_CAN_BREAK, NEED_BREAK},
        {HF_CAN_CONVERT, NEED_CONVERT},
    };
    struct hf_capabilities all = {.size = sizeof all};
    assert_int_equal(hf_client_capabilities(row_client(), &all), HF_OK);
    assert_int_equal(all.size, sizeof all);

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal((all.can & pairs[i].can) != 0, offers(pairs[i].need));
    assert_true(all.kinds & 1u << HF_EXCLUSIVE);
    assert_int_equal((all.kinds & 1u << HF_SEMAPHORE) != 0, offers(NEED_SEMAPHORE));
    assert_int_equal((all.kinds & 1u << HF_READ) != 0, offers(NEED_READ_WRITE));
    assert_int_equal((all.kinds & 1u << HF_WRITE) != 0, offers(NEED_READ_WRITE));

    assert_string_equal(hf_client_engine(row_client()), engine()->name);
    assert_null(hf_client_engine(NULL));
    bool is_local = strcmp(engine()->name, "local") == 0;
    assert_int_equal((all.can & HF_CAN_ANSWER_AT_ONCE) != 0, is_local);
    assert_int_equal((all.can & HF_CAN_QUEUE) != 0, engine()->first_come && !engine()->is_quorum);
}

static void test_cut_capabilities(void **state)
{
    (void)state;
    struct hf_capabilities cut = {.size = offsetof(struct hf_capabilities, kinds), .kinds = 77};
    assert_int_equal(hf_client_capabilities(row_client(), &cut), HF_OK);
    assert_true(cut.can != 0);
    assert_int_equal(cut.kinds, 77); /* beyond what the caller knows of */
    assert_refused(hf_client_capabilities(NULL, &cut), HF_INVALID, "client");
    assert_refused(hf_client_capabilities(row_client(), NULL), HF_INVALID, "capabilities");
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("a name that is empty, has NUL, newline or bad UTF-8 is refused, and the byte is named",
            test_names),
        ROW("a name has up to 512 bytes, and any letters", test_long_names),
        ROW("every bad field of a request is refused by its name and its value", test_fields),
        ROW("ttl 0 and HF_WAIT_DEFAULT are what the URL says", test_defaults),
        ROW("bad arguments of calls on leases and names are refused by name and value",
            test_lease_arguments),
        ROW("NULL where something is needed is refused by name", test_null),
        ROW("a lease that is NULL is refused, and freeing it is nothing", test_null_leases),
        ROW("a request from a read-only page and of every older, shorter size works",
            test_cut_structs),
        ROW("options from a read-only page and of every older, shorter size work",
            test_cut_options),
        ROW("a newer, longer request works", test_longer_struct),
        ROW("what a client says of its engine is what the engine does", test_capabilities),
        ROW("capabilities of an older, shorter size are filled in that far", test_cut_capabilities),
        ROW("a bad URL is refused, and the words name the part that is bad", test_urls),
        ROW("checking a URL makes no table and connects to nobody", test_check_opens_nothing),
    };
    return JUDGE(rows);
}
