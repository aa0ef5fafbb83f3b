/* api.c - the only file that defines public symbols: it checks arguments, fills in defaults and hands on. */
#include "holdfast.h"

#include "base/duration.h"
#include "base/name.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/why.h"
#include "client/client.h"
#include "sys/clock.h"

#include <stdlib.h>
#include <string.h>

enum { ID_MAX = 64, MANY_MAX = 1024 };
#define WAIT_MAX_MS ((int64_t)1 << 40) /* 34 years */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* ---- Statuses, kinds, version ---- */

const char *hf_status_name(hf_status status)
{
    return hf_status_row(status)->name;
}

const char *hf_status_text(hf_status status)
{
    return hf_status_row(status)->text;
}

int hf_status_exit_code(hf_status status)
{
    return hf_status_row(status)->exit_code;
}

int hf_status_http(hf_status status)
{
    return hf_status_row(status)->http;
}

bool hf_status_retry(hf_status status)
{
    return hf_status_row(status)->retry;
}

const char *hf_error_text(void)
{
    return hf_why_text();
}

const char *hf_version(void)
{
    return TEXT(HF_VERSION_MAJOR) "." TEXT(HF_VERSION_MINOR) "." TEXT(HF_VERSION_PATCH);
}

const char *hf_engines(void)
{
    return hf_engine_names();
}

const char *hf_kind_name(hf_kind kind)
{
    static const char *const names[] = {"exclusive", "semaphore", "read", "write"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* ---- Checking arguments ---- */

static hf_status missing(const char *what)
{
    return hf_why(HF_INVALID, "%s: must not be NULL", what);
}

/* An options struct of a caller that was compiled with an older, shorter header: what it does not have is zero. */
static hf_status copy_other_size(const char *what, void *to, size_t size, const void *from, size_t given)
{
    if (given < sizeof given || given > 1 << 16)
        return hf_why(HF_INVALID, "%s.size: %zu is not the size of that struct (%zu)", what, given, size);
    memset(to, 0, size);
    memcpy(to, from, given < size ? given : size);
    return HF_OK;
}

static inline hf_status copy_sized(const char *what, void *to, size_t size, const void *from)
{
    size_t given;
    memcpy(&given, from, sizeof given);
    if (given != size)
        return copy_other_size(what, to, size, from, given);
    memcpy(to, from, size);
    return HF_OK;
}

static hf_status refuse_range(const char *field, int64_t value, int64_t min, int64_t max)
{
    return hf_why(HF_INVALID, "%s: %lld is not between %lld and %lld", field, (long long)value, (long long)min,
                  (long long)max);
}

static inline hf_status check_range(const char *field, int64_t value, int64_t min, int64_t max)
{
    return value >= min && value <= max ? HF_OK : refuse_range(field, value, min, max);
}

static inline hf_status check_name(const char *field, const char *name, size_t *len)
{
    if (!name)
        return missing(field);
    if (!*len)
        *len = strlen(name);
    if (*len <= HF_NAME_MAX && hf_name_plain(name, *len))
        return HF_OK;
    return hf_name_check(field, name, *len, 1, HF_NAME_MAX);
}

static hf_status check_text(const char *field, const char *text, size_t max)
{
    return text ? hf_name_check(field, text, strlen(text), 0, max) : HF_OK;
}

static hf_status check_id(const char *field, const char *text)
{
    return text ? hf_name_check(field, text, strlen(text), 1, ID_MAX) : HF_OK;
}

static hf_status check_texts(const struct hf_request *r)
{
    hf_status status = check_text("label", r->label, HF_LABEL_MAX);
    if (status == HF_OK)
        status = check_text("correlation_id", r->correlation_id, HF_CORRELATION_MAX);
    if (status == HF_OK)
        status = check_id("owner", r->owner);
    return status == HF_OK ? check_id("attempt", r->attempt) : status;
}

/* Every kind is a lease on some units of a capacity. */
static inline hf_status check_units(struct hf_request *r)
{
    switch (r->kind) {
    case HF_EXCLUSIVE:
    case HF_READ:
    case HF_WRITE:
        if (r->units > 1 || r->capacity > 1)
            return hf_why(HF_INVALID, "units %u, capacity %u: a lock that is %s has neither", r->units, r->capacity,
                          hf_kind_name(r->kind));
        r->capacity = r->kind == HF_EXCLUSIVE ? 1 : HF_CAPACITY_MAX;
        r->units = r->kind == HF_WRITE ? HF_CAPACITY_MAX : 1;
        return HF_OK;
    case HF_SEMAPHORE:
        r->units = r->units ? r->units : 1;
        if (r->capacity < 1 || r->capacity > HF_CAPACITY_MAX)
            return hf_why(HF_INVALID, "capacity: %u is not between 1 and %d", r->capacity, HF_CAPACITY_MAX);
        if (r->units > r->capacity)
            return hf_why(HF_TOO_BIG, "units: %u is more than the capacity %u", r->units, r->capacity);
        return HF_OK;
    default:
        return hf_why(HF_INVALID, "kind: %d is none", (int)r->kind);
    }
}

static inline hf_status check_offer(const struct hf_client *client, const struct hf_request *r)
{
    const uint32_t flags = HF_AUTO_RENEW | HF_DETACHED | HF_BARGING | HF_TOKENLESS;
    if (r->flags & ~flags)
        return hf_why(HF_INVALID, "flags: 0x%x has unknown bits", r->flags);
    if (!(client->limits.kinds & 1u << r->kind))
        return hf_why(HF_UNSUPPORTED, "kind: %s is not offered by the engine %s%s%s", hf_kind_name(r->kind),
                      client->type->name, client->limits.kinds_why ? ": " : "",
                      client->limits.kinds_why ? client->limits.kinds_why : "");
    if ((r->flags & HF_DETACHED) && !(client->limits.offers & HF_CAN_DETACH))
        return hf_why(HF_UNSUPPORTED, "HF_DETACHED: not offered by the engine %s", client->type->name);
    if (r->owner && !(client->limits.offers & HF_REENTRANT))
        return hf_why(HF_UNSUPPORTED, "owner: reentrant locks are not offered by the engine %s", client->type->name);
    return HF_OK;
}

static inline hf_status check_times(const struct hf_client *client, struct hf_request *r)
{
    const struct hf_limits *limits = &client->limits;
    if (r->ttl_ms == 0)
        r->ttl_ms = client->settings.value[HF_SET_TTL];
    if (r->wait_ms == HF_WAIT_DEFAULT)
        r->wait_ms = client->settings.value[HF_SET_WAIT];
    if (r->max_hold_ms == 0)
        r->max_hold_ms = client->settings.value[HF_SET_MAX_HOLD];
    hf_status status = check_range("ttl_ms", r->ttl_ms, limits->ttl_min_ms, limits->ttl_max_ms);
    if (status == HF_OK)
        status = check_range("wait_ms", r->wait_ms, HF_FOREVER, WAIT_MAX_MS);
    if (status == HF_OK)
        status = check_range("max_hold_ms", r->max_hold_ms, 0, WAIT_MAX_MS);
    return status;
}

/* A checked copy of the caller's request, with every default filled in. */
static inline hf_status check_request(const struct hf_client *client, const struct hf_request *given,
                                      struct hf_request *r)
{
    if (!given)
        return missing("request");
    hf_status status = copy_sized("request", r, sizeof *r, given);
    if (status == HF_OK)
        status = check_name("name", r->name, &r->name_len);
    if (status == HF_OK && (r->label || r->correlation_id || r->owner || r->attempt))
        status = check_texts(r);
    if (status == HF_OK)
        status = check_units(r);
    if (status == HF_OK)
        status = check_times(client, r);
    if (status == HF_OK)
        status = check_offer(client, r);
    return status;
}

/* For calls that have a lease's lock as long as they are inside. */
static hf_status check_ours(const hf_client *client)
{
    return hf_forkmark_ours(&client->mark) ? HF_OK : hf_client_refuse(client);
}

static hf_status enter_with(hf_client *client, const struct hf_request *given, struct hf_request *r)
{
    if (!client)
        return missing("client");
    hf_status status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    status = check_request(client, given, r);
    if (status != HF_OK)
        hf_client_exit(client);
    return status;
}

static hf_status enter_lease(hf_lease *lease)
{
    return lease ? hf_client_enter(lease->client) : missing("lease");
}

/* ---- Clients ---- */

hf_status hf_open(const char *url, const struct hf_client_options *given, hf_client **client)
{
    if (!client)
        return missing("client");
    *client = NULL;
    struct hf_client_options options = {0};
    hf_status status = given ? copy_sized("options", &options, sizeof options, given) : HF_OK;
    if (status != HF_OK)
        return status;
    const char *from = "the URL";
    if (!url && !options.no_environment) {
        url = getenv("HOLDFAST_URL");
        from = "HOLDFAST_URL";
    }
    if (url && !*url) /* a variable of a script that was never set must not become another lock than its author meant */
        return hf_why(HF_CONFIG, "%s is empty; write local: for the locks of this machine", from);
    return hf_client_open(url ? url : "local:", &options, client);
}

hf_status hf_close(hf_client *client, int64_t timeout_ms)
{
    if (!client)
        return HF_OK;
    hf_status status = check_range("timeout_ms", timeout_ms, HF_FOREVER, INT64_MAX);
    return status == HF_OK ? hf_client_close(client, timeout_ms) : status;
}

hf_status hf_client_setting(const hf_client *client, const char *name, int64_t *value, const char **source)
{
    if (!client || !name)
        return missing(client ? "name" : "client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;
    size_t count;
    const struct hf_setting *table = hf_settings_table(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0) {
            if (value)
                *value = client->settings.value[i];
            if (source)
                *source = client->settings.source[i];
            return HF_OK;
        }
    return hf_why(HF_INVALID, "%s: no such setting", name);
}

hf_status hf_client_counters(const hf_client *client, struct hf_counters *counters)
{
    if (!client || !counters)
        return missing(client ? "counters" : "client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;
    size_t fit = counters->size < sizeof *counters ? counters->size : sizeof *counters;
    uint64_t *to = (uint64_t *)(void *)((char *)counters + offsetof(struct hf_counters, asked));
    for (size_t i = 0; i < HF_COUNTERS && offsetof(struct hf_counters, asked) + (i + 1) * sizeof *to <= fit; i++)
        to[i] = atomic_load_explicit(&client->count[i], memory_order_relaxed);
    return HF_OK;
}

/* ---- Acquiring ---- */

hf_status hf_acquire(hf_client *client, const struct hf_request *request, hf_lease **lease)
{
    if (!lease)
        return missing("lease");
    *lease = NULL;
    if (!client)
        return missing("client");
    struct hf_request r;
    hf_status status = check_ours(client);
    if (status == HF_OK)
        status = check_request(client, request, &r);
    if (status != HF_OK)
        return status;
    if (r.wait_ms != 0 && hf_keeper_is_me(client))
        return hf_why(HF_INVALID, "%.*s: a callback must not wait; use hf_acquire_start", (int)r.name_len, r.name);
    return hf_call_acquire(client, &r, lease);
}

hf_status hf_acquire_start(hf_client *client, const struct hf_request *request, hf_done_fn *done, void *arg,
                           hf_lease **lease)
{
    if (!lease || !done)
        return missing(lease ? "done" : "lease");
    *lease = NULL;
    struct hf_request r;
    hf_status status = enter_with(client, request, &r);
    if (status != HF_OK)
        return status;
    status = hf_call_start(client, &r, done, arg, lease);
    hf_client_exit(client);
    return status;
}

hf_status hf_cancel(hf_lease *lease)
{
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;
    hf_client *client = lease->client;
    status = hf_call_cancel(lease);
    hf_client_exit(client);
    return status;
}

static hf_status check_many(const struct hf_client *client, const struct hf_request *const *requests, size_t count,
                            struct hf_request *copies)
{
    for (size_t i = 0; i < count; i++) {
        hf_status status = check_request(client, requests[i], &copies[i]);
        if (status != HF_OK)
            return hf_why(status, "requests[%zu].%s", i, hf_why_text());
    }
    return HF_OK;
}

hf_status hf_acquire_many(hf_client *client, const struct hf_request *const *requests, size_t count, int64_t wait_ms,
                          hf_lease **leases)
{
    if (!client || !requests || !leases)
        return missing(!client ? "client" : requests ? "leases" : "requests");
    hf_status status = check_range("count", (int64_t)count, 1, MANY_MAX);
    if (status == HF_OK)
        status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    memset(leases, 0, count * sizeof *leases);
    if (wait_ms == HF_WAIT_DEFAULT)
        wait_ms = client->settings.value[HF_SET_WAIT];
    struct hf_request *copies = calloc(count, sizeof *copies);
    status = copies ? check_many(client, requests, count, copies)
                    : hf_why(HF_NO_MEMORY, "no memory for %zu requests", count);
    if (status == HF_OK)
        status = check_range("wait_ms", wait_ms, HF_FOREVER, WAIT_MAX_MS);
    if (status == HF_OK && hf_keeper_is_me(client) && wait_ms != 0)
        status = hf_why(HF_INVALID, "wait_ms: a callback must not wait");
    if (status == HF_OK)
        status = hf_call_many(client, copies, count, wait_ms, leases);
    free(copies);
    hf_client_exit(client);
    return status;
}

hf_status hf_with(hf_client *client, const struct hf_request *request, hf_with_fn *fn, void *arg, int *result)
{
    if (!fn || !request)
        return missing(fn ? "request" : "fn");
    struct hf_request r;
    hf_status status = copy_sized("request", &r, sizeof r, request);
    if (status != HF_OK)
        return status;
    r.flags |= HF_AUTO_RENEW;
    hf_lease *lease;
    r.size = sizeof r;
    status = hf_acquire(client, &r, &lease);
    if (status != HF_OK)
        return status;
    int value = fn(lease, arg);
    if (result)
        *result = value;
    status = hf_release(lease);
    if (status == HF_NOT_HELD)
        status = hf_why(HF_LOST, "%s: the lease was lost while the work ran", hf_lease_name(lease));
    hf_lease_free(lease);
    return status;
}

/* ---- Leases ---- */

hf_status hf_extend(hf_lease *lease, int64_t ttl_ms)
{
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;
    hf_client *client = lease->client;
    if (ttl_ms != 0)
        status = check_range("ttl_ms", ttl_ms, client->limits.ttl_min_ms, client->limits.ttl_max_ms);
    if (status == HF_OK)
        status = hf_call_extend(lease, ttl_ms);
    hf_client_exit(client);
    return status;
}

hf_status hf_release(hf_lease *lease)
{
    if (!lease)
        return missing("lease");
    hf_status status = check_ours(lease->client);
    return status == HF_OK ? hf_call_release(lease) : status;
}

void hf_lease_free(hf_lease *lease)
{
    if (lease && check_ours(lease->client) == HF_OK)
        hf_call_free(lease);
}

/* A forked child has a copy of the handle, but not the lease. */
static bool is_ours(const hf_lease *lease)
{
    return lease && hf_forkmark_ours(&lease->client->mark);
}

bool hf_lease_ok(const hf_lease *lease)
{
    return is_ours(lease) && atomic_load_explicit(&lease->claim.valid_until, memory_order_acquire) != 0;
}

int64_t hf_lease_left_ms(const hf_lease *lease)
{
    if (!is_ours(lease))
        return 0;
    hf_nanos left = atomic_load_explicit(&lease->claim.valid_until, memory_order_relaxed) - hf_clock_boot();
    return left > 0 ? left / HF_MS(1) : 0;
}

uint64_t hf_lease_token(const hf_lease *lease)
{
    return is_ours(lease) ? atomic_load_explicit(&lease->claim.token, memory_order_relaxed) : 0;
}

const char *hf_lease_name(const hf_lease *lease)
{
    return lease ? lease->ask.name : "";
}

int hf_lease_fd(hf_lease *lease)
{
    if (enter_lease(lease) != HF_OK)
        return -1;
    hf_client *client = lease->client;
    int fd = hf_call_lost_fd(lease);
    hf_client_exit(client);
    return fd;
}

static hf_status convert(hf_lease *lease, enum hf_verb verb)
{
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;
    hf_client *client = lease->client;
    if (client->limits.offers & HF_CAN_CONVERT)
        status = hf_call_convert(lease, verb);
    else
        status = hf_why(HF_UNSUPPORTED, "%s: the engine %s cannot upgrade or downgrade", lease->ask.name,
                        client->type->name);
    hf_client_exit(client);
    return status;
}

hf_status hf_upgrade(hf_lease *lease)
{
    return convert(lease, HF_V_UPGRADE);
}

hf_status hf_downgrade(hf_lease *lease)
{
    return convert(lease, HF_V_DOWNGRADE);
}

hf_status hf_lease_export(hf_lease *lease, char *text, size_t size)
{
    if (!text)
        return missing("text");
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;
    hf_client *client = lease->client;
    status = hf_call_export(lease, text, size);
    hf_client_exit(client);
    return status;
}

hf_status hf_lease_attach(hf_client *client, const char *text, hf_lease **lease)
{
    if (!client || !text || !lease)
        return missing(!client ? "client" : text ? "lease" : "text");
    *lease = NULL;
    hf_status status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    if (client->limits.offers & HF_CAN_DETACH)
        status = hf_call_attach(client, text, lease);
    else
        status = hf_why(HF_UNSUPPORTED, "the engine %s has no detached holds", client->type->name);
    hf_client_exit(client);
    return status;
}

/* ---- Event loop ---- */

static hf_status check_loop(hf_client *client)
{
    if (!client)
        return missing("client");
    if (!hf_forkmark_ours(&client->mark))
        return hf_why(HF_FORKED, "%s: the client belongs to the parent process", client->url);
    return client->no_thread ? HF_OK : hf_why(HF_INVALID, "%s: was opened without no_thread", client->url);
}

int hf_fd(hf_client *client)
{
    return check_loop(client) == HF_OK ? client->fd : -1;
}

int64_t hf_timeout_ms(hf_client *client)
{
    return check_loop(client) == HF_OK ? hf_keeper_timeout(client) : -1;
}

hf_status hf_process(hf_client *client)
{
    hf_status status = check_loop(client);
    if (status == HF_OK)
        status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    status = hf_keeper_process(client);
    hf_client_exit(client);
    return status;
}

/* ---- Seeing ---- */

/* A client and a name to see or act on. HF_OK: entered. */
static hf_status enter_named(hf_client *client, const char *name)
{
    size_t len = 0;
    if (!client)
        return missing("client");
    hf_status status = check_name("name", name, &len);
    return status == HF_OK ? hf_client_enter(client) : status;
}

hf_status hf_list(hf_client *client, const char *prefix, hf_row_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");
    hf_status status = check_text("prefix", prefix, HF_NAME_MAX);
    if (status == HF_OK)
        status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    status = hf_client_list(client, HF_SEE_PREFIX, prefix ? prefix : "", fn, arg);
    hf_client_exit(client);
    return status;
}

static hf_status list_one(hf_client *client, int which, const char *name, hf_row_fn *fn, void *arg)
{
    hf_status status = fn ? enter_named(client, name) : missing("fn");
    if (status != HF_OK)
        return status;
    status = hf_client_list(client, which, name, fn, arg);
    hf_client_exit(client);
    return status;
}

hf_status hf_show(hf_client *client, const char *name, hf_row_fn *fn, void *arg)
{
    return list_one(client, HF_SEE_ONE, name, fn, arg);
}

hf_status hf_show_servers(hf_client *client, const char *name, hf_standing_fn *fn, void *arg)
{
    hf_status status = fn ? enter_named(client, name) : missing("fn");
    if (status != HF_OK)
        return status;
    struct hf_seen what = {.which = HF_SEE_SERVERS, .name = name, .len = strlen(name)};
    if (client->type->list_servers)
        status = client->type->list_servers(client->engine, &what, hf_clock_boot(), fn, arg);
    hf_client_exit(client);
    return status;
}

hf_status hf_history(hf_client *client, const char *name, hf_row_fn *fn, void *arg)
{
    return list_one(client, HF_SEE_PAST, name, fn, arg);
}

hf_status hf_examine(hf_client *client, hf_finding_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");
    hf_status status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    if (client->type->examine)
        status = client->type->examine(client->engine, hf_clock_boot(), fn, arg);
    hf_client_exit(client);
    return status;
}

hf_status hf_watch(hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");
    hf_status status = check_text("prefix", prefix, HF_NAME_MAX);
    if (status == HF_OK)
        status = hf_client_enter(client);
    if (status != HF_OK)
        return status;
    if (hf_keeper_is_me(client))
        status = hf_why(HF_INVALID, "hf_watch: a callback must not wait");
    else
        status = hf_client_watch(client, prefix ? prefix : "", fn, arg);
    hf_client_exit(client);
    return status;
}

hf_status hf_break(hf_client *client, const char *name, uint64_t token, const char *reason)
{
    hf_status status = check_text("reason", reason, HF_NAME_MAX);
    if (status == HF_OK && !token)
        status = hf_why(HF_INVALID, "token: 0 is none");
    if (status == HF_OK)
        status = enter_named(client, name);
    if (status != HF_OK)
        return status;
    if (client->limits.offers & HF_CAN_BREAK)
        status = hf_client_break(client, name, token, reason);
    else
        status = hf_why(HF_UNSUPPORTED, "%s: the engine %s cannot break a hold", name, client->type->name);
    hf_client_exit(client);
    return status;
}

hf_status hf_resize(hf_client *client, const char *name, uint32_t capacity)
{
    hf_status status = check_range("capacity", capacity, 1, HF_CAPACITY_MAX);
    if (status == HF_OK)
        status = enter_named(client, name);
    if (status != HF_OK)
        return status;
    if (client->limits.offers & HF_CAN_RESIZE)
        status = hf_client_resize(client, name, capacity);
    else
        status = hf_why(HF_UNSUPPORTED, "%s: the engine %s cannot resize", name, client->type->name);
    hf_client_exit(client);
    return status;
}

/* ---- Fencing ---- */

hf_status hf_fence_admit(struct hf_fence *fence, uint64_t token)
{
    if (!fence)
        return missing("fence");
    if (!token)
        return hf_why(HF_INVALID, "token: 0 is none");
    uint64_t highest = __atomic_load_n(&fence->highest, __ATOMIC_ACQUIRE);
    while (token > highest)
        if (__atomic_compare_exchange_n(&fence->highest, &highest, token, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return HF_OK;
    if (token == highest)
        return HF_OK;
    return hf_why(HF_LOST, "token %llu is older than %llu, which was admitted before", (unsigned long long)token,
                  (unsigned long long)highest);
}

/* ---- Settings ---- */

const struct hf_setting *hf_settings(size_t *count)
{
    size_t unasked;
    return hf_settings_table(count ? count : &unasked);
}

hf_status hf_parse_duration(const char *text, int64_t *ms)
{
    if (!text || !ms)
        return missing(text ? "ms" : "text");
    return hf_duration_parse(text, ms);
}

hf_status hf_explain(const hf_client *client, int64_t ttl_ms, struct hf_timing_sheet *sheet)
{
    if (!client || !sheet)
        return missing(client ? "sheet" : "client");
    if (ttl_ms == 0)
        ttl_ms = client->settings.value[HF_SET_TTL];
    hf_status status = check_range("ttl_ms", ttl_ms, client->limits.ttl_min_ms, client->limits.ttl_max_ms);
    if (status != HF_OK)
        return status;
    struct hf_timing t;
    hf_timing_fill(&t, ttl_ms, &client->limits, &client->wishes);
    struct hf_timing_sheet all = {
        .size = sheet->size,
        .ttl_ms = ttl_ms,
        .renew_ms = t.renew / HF_MS(1),
        .warn_ms = t.warn / HF_MS(1),
        .stop_ms = t.stop / HF_MS(1),
        .drift_ms = t.drift / HF_MS(1),
        .op_timeout_ms = t.op_timeout / HF_MS(1),
        .retry_min_ms = t.retry_min / HF_MS(1),
        .retry_max_ms = t.retry_max / HF_MS(1),
    };
    memcpy(sheet, &all, sheet->size < sizeof all ? sheet->size : sizeof all);
    return HF_OK;
}
