/* redis_hostile.h - calls on an impostor that answers with something hostile: what they end with,
 * what they say, how long they take and what memory they cost. */
#pragma once
#include "redis_fake_server.h"

#include <fcntl.h>
#include <malloc.h>

/* With this ttl one request may take 50 ms. Without a wait a call ends after 500 ms, as connecting
 * counts. */
enum { TTL_MS = 1000, OP_MS = 50, CALL_MS = 500, SLACK_MS = 1000, WAIT_MS = 5000, LOOK_MS = 400 };

/* What a hostile answer may cost at its peak, in KiB. The sanitizer keeps freed blocks, and has its
 * own notes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COST_KB = 12 * 1024 };
#else
enum { COST_KB = 3 * 1024 };
#endif

/* For what is not about time: a release without an answer is tried again after this. Long enough
 * for a machine with much else to do. */
#define HASTY "&op_timeout=30ms"

#define HUGE_NUMBER ":9223372036854775807\r\n"

#define QUEUED                                                                                     \
    "*7\r\n:0\r\n:900\r\n:400\r\n$16\r\n1794739091582000\r\n$16\r\n" TOKEN                         \
    "\r\n:0\r\n$16\r\n" TOKEN "\r\n"

#define ALONE(text, function)                                                                      \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = impostor_teardown                    \
    }

static inline hf_client *open_at(const char *user, const char *query)
{
    char url[256];
    hf_client *client;
    snprintf(url, sizeof url, "redis://%s127.0.0.1:%u/0?retry_min=1ms&retry_max=5ms%s", user,
             impostor.port, query);
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

static inline void await_number(_Atomic unsigned *number, unsigned least, const char *what)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; atomic_load(number) < least;
         nap_us(200))
        if (now_ns() > end)
            fail_msg("%s: %u instead of %u", what, atomic_load(number), least);
}

/* ---- Memory ---- */

static inline long status_kb(const char *field)
{
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = atol(line + strlen(field));
    fclose(file);
    assert_true(kb >= 0);
    return kb;
}

/* The peak counts from here on. */
static inline long begin_peak(void)
{
    malloc_trim(0); /* what was freed before must not serve now */
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "5", 1), 1);
    close(fd);
    return status_kb("VmRSS:");
}

/* ---- One call ---- */

struct call {
    hf_status status;
    int64_t took_ms;
    long cost_kb;
    char words[512];
    hf_lease *lease;
};

static inline struct call acquire(hf_client *client, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request request =
        request_of(&(struct want){.name = "prey", .ttl_ms = TTL_MS, .wait_ms = wait_ms});
    long before = begin_peak();
    int64_t from = now_ns();
    struct call call = {.status = hf_acquire(client, &request, lease)};
    call.took_ms = (now_ns() - from) / 1000000;
    call.cost_kb = status_kb("VmHWM:") - before;
    snprintf(call.words, sizeof call.words, "%s", call.status == HF_OK ? "" : hf_error_text());
    return call;
}

static inline void must_say(const struct call *call, const char *what, const char *words)
{
    if (!strstr(call->words, impostor.where) || !strstr(call->words, words))
        fail_msg("%s: \"%s\" says neither \"%s\" nor \"%s\"", what, call->words, impostor.where,
                 words);
}

static inline void must_be(const struct call *call, const char *what, hf_status status)
{
    if (call->status != status)
        fail_msg("%s: %s (%s) instead of %s", what, hf_status_name(call->status), call->words,
                 hf_status_name(status));
    if (call->took_ms > CALL_MS + SLACK_MS)
        fail_msg("%s: took %lld ms", what, (long long)call->took_ms);
    if (call->cost_kb > COST_KB)
        fail_msg("%s: took %ld KiB", what, call->cost_kb);
}

/* A machine with much else to do may connect too late for HASTY. Nothing was asked then: once more.
 */
static inline struct call acquire_once_connected(hf_client **client, const struct script *script,
                                                 const char *query)
{
    hf_lease *lease;
    impostor_start(script);
    *client = open_at("", query);
    struct call call = acquire(*client, 0, &lease);
    for (int tries = 0;
         call.status == HF_UNAVAILABLE && atomic_load(&impostor.asks) == 0 && tries < 50; tries++) {
        assert_int_equal(hf_close(*client, 2000), HF_OK);
        impostor_end();
        impostor_start(script);
        *client = open_at("", query);
        call = acquire(*client, 0, &lease);
    }
    call.lease = lease;
    return call;
}
