/* api_no_client.c - public functions that need no client: statuses, version, fences, settings. */
#include "api_checks.h"

#include "base/duration.h"
#include "base/settings.h"
#include "base/status.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* ---- Statuses, kinds, version ---- */

const char *hf_status_name(hf_status status)
{
    return status_row(status)->name;
}

const char *hf_status_text(hf_status status)
{
    return status_row(status)->text;
}

int hf_status_exit_code(hf_status status)
{
    return status_row(status)->exit_code;
}

int hf_status_http(hf_status status)
{
    return status_row(status)->http;
}

bool hf_status_retry(hf_status status)
{
    return status_row(status)->retry;
}

const char *hf_error_text(void)
{
    return error_text();
}

bool hf_error_holder(struct hf_row *holder)
{
    bool has_room = holder && holder->size >= sizeof holder->size;
    return has_room && error_holder(holder);
}

const char *hf_version(void)
{
    return TEXT(HF_VERSION_MAJOR) "." TEXT(HF_VERSION_MINOR) "." TEXT(HF_VERSION_PATCH);
}

const char *hf_engines(void)
{
    return engine_names();
}

const char *hf_engines_left_out(void)
{
    return engines_left_out();
}

const char *hf_kind_name(hf_kind kind)
{
    static const char *const names[] = {"exclusive", "semaphore", "read", "write"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* ---- Fencing ---- */

hf_status hf_fence_admit(struct hf_fence *fence, uint64_t token)
{
    if (!fence)
        return missing("fence");
    if (!token)
        return error_set(HF_INVALID, "token: 0 is not a token");

    uint64_t highest = __atomic_load_n(&fence->highest, __ATOMIC_ACQUIRE);
    while (token > highest)
        if (__atomic_compare_exchange_n(&fence->highest, &highest, token, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return HF_OK;
    if (token == highest)
        return HF_OK;
    return error_set(HF_LOST, "token %llu is older than %llu, which was admitted before",
                     (unsigned long long)token, (unsigned long long)highest);
}

/* ---- Settings ---- */

const struct hf_setting *hf_settings(size_t *count)
{
    const struct settings_table *table = engine_settings();
    if (count)
        *count = table->count;
    return table->row;
}

hf_status hf_parse_duration(const char *text, int64_t *ms)
{
    if (!text || !ms)
        return missing(text ? "ms" : "text");
    return duration_parse(text, ms);
}
