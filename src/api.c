/* api.c - public functions of clients, leases and event loops: they check arguments, fix the
 * deadline and call the client. Beside it are api_admin.c and api_no_client.c; no other file
 * defines public symbols. */
#include "api_checks.h"

#include "base/settings.h"
#include "sys/clock.h"

#include <stdlib.h>

enum { MANY_MAX = 1024 };

/* Checks that the client is usable, for calls that hold a lease's lock while they run. */
static hf_status check_ours(const hf_client *client)
{
    return fork_guard_ours(&client->mark) ? HF_OK : client_refuse(client);
}

static hf_status enter_with(hf_client *client, const struct hf_request *given, struct hf_request *r)
{
    if (!client)
        return missing("client");

    hf_status status = client_enter(client);
    if (status != HF_OK)
        return status;

    status = api_check_request(client, given, r);
    if (status != HF_OK)
        client_exit(client);
    return status;
}

static hf_status enter_lease(hf_lease *lease)
{
    return lease ? client_enter(lease->client) : missing("lease");
}

/* ---- Clients ---- */

/* Chooses the URL: the argument, else that of the environment, else the table of this machine.
 * An empty URL is refused: an unset variable in a script must not select other locks than its
 * author meant. */
static hf_status choose_url(const char **url, bool environment)
{
    const char *from = *url ? "the URL" : "HOLDFAST_URL";
    if (!*url && environment)
        *url = getenv("HOLDFAST_URL");
    if (*url && !**url)
        return error_set(HF_CONFIG, "%s is empty; write local: for the locks of this machine",
                         from);
    *url = *url ? *url : "local:";
    return HF_OK;
}

hf_status hf_open(const char *url, const struct hf_client_options *given, hf_client **client)
{
    if (!client)
        return missing("client");

    *client = NULL;
    struct hf_client_options options = {0};
    hf_status status = given ? copy_sized("options", &options, sizeof options, given) : HF_OK;
    if (status != HF_OK)
        return status;

    status = check_range("max_stall_ms", options.max_stall_ms, 0, WAIT_MAX_MS);
    if (status == HF_OK)
        status = choose_url(&url, !options.no_environment);
    return status == HF_OK ? client_open(url, &options, client) : status;
}

hf_status hf_check_url(const char *url)
{
    hf_status status = choose_url(&url, true);
    return status == HF_OK ? client_check_url(url) : status;
}

hf_status hf_close(hf_client *client, int64_t timeout_ms)
{
    if (!client)
        return HF_OK;
    hf_status status = check_range("timeout_ms", timeout_ms, HF_FOREVER, INT64_MAX);
    if (status == HF_OK)
        status = client_check_close(client);
    return status == HF_OK ? client_close(client, timeout_ms) : status;
}

hf_status hf_close_start(hf_client *client, int64_t timeout_ms, hf_closed_fn *done, void *arg)
{
    if (!client || !done)
        return missing(client ? "done" : "client");
    hf_status status = check_range("timeout_ms", timeout_ms, HF_FOREVER, INT64_MAX);
    if (status == HF_OK)
        status = client_check_close(client);
    return status == HF_OK ? client_close_start(client, timeout_ms, done, arg) : status;
}

hf_status hf_client_setting(const hf_client *client, const char *name, int64_t *value,
                            const char **source)
{
    if (!client || !name)
        return missing(client ? "name" : "client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;

    const struct settings_table *table = client->settings.table;
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->row[i].name, name) == 0) {
            size_t index = table->from[i]->index;
            if (value)
                *value = client->settings.value[index];
            if (source)
                *source = client->settings.source[index];
            return HF_OK;
        }

    return error_set(HF_INVALID, "%s: no such setting", name);
}

hf_status hf_client_set_log_level(hf_client *client, enum hf_log_level level)
{
    if (!client)
        return missing("client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;

    hf_status status = check_range("level", level, 0, HF_LOG_DEBUG);
    if (status == HF_OK)
        atomic_store_explicit(&client->log_level, level, memory_order_relaxed);
    return status;
}

hf_status hf_client_alive(hf_client *client)
{
    if (!client)
        return missing("client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;
    client_note_alive(client);
    return HF_OK;
}

hf_status hf_client_counters(const hf_client *client, struct hf_counters *counters)
{
    if (!client || !counters)
        return missing(client ? "counters" : "client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;

    size_t fit = counters->size < sizeof *counters ? counters->size : sizeof *counters;
    uint64_t *to = (uint64_t *)(void *)((char *)counters + offsetof(struct hf_counters, asked));
    for (size_t i = 0;
         i < CLIENT_COUNTERS && offsetof(struct hf_counters, asked) + (i + 1) * sizeof *to <= fit;
         i++)
        to[i] = atomic_load_explicit(&client->count[i], memory_order_relaxed);

    return HF_OK;
}

const char *hf_client_engine(const hf_client *client)
{
    return client ? client->type->name : NULL;
}

static uint32_t capabilities_of(const struct engine_limits *limits)
{
    static const struct {
        uint32_t offer, can;
    } pairs[] = {
        {ENGINE_QUEUES, HF_CAN_QUEUE},      {ENGINE_CAN_DETACH, HF_CAN_DETACH},
        {ENGINE_REENTRANT, HF_CAN_REENTER}, {ENGINE_CAN_RESIZE, HF_CAN_RESIZE},
        {ENGINE_CAN_BREAK, HF_CAN_BREAK},   {ENGINE_CAN_CONVERT, HF_CAN_CONVERT},
    };

    uint32_t can = limits->offers & ENGINE_REPLIES_LATER ? 0 : HF_CAN_ANSWER_AT_ONCE;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (limits->offers & pairs[i].offer)
            can |= pairs[i].can;
    return can;
}

hf_status hf_client_capabilities(const hf_client *client, struct hf_capabilities *capabilities)
{
    if (!client || !capabilities)
        return missing(client ? "capabilities" : "client");
    if (check_ours(client) != HF_OK)
        return HF_FORKED;

    struct hf_capabilities all = {
        .size = capabilities->size,
        .can = capabilities_of(&client->limits),
        .kinds = client->limits.kinds,
    };
    memcpy(capabilities, &all, all.size < sizeof all ? all.size : sizeof all);
    return HF_OK;
}

hf_status hf_explain(const hf_client *client, int64_t ttl_ms, struct hf_timing_sheet *sheet)
{
    if (!client || !sheet)
        return missing(client ? "sheet" : "client");

    if (ttl_ms == 0)
        ttl_ms = client->settings.value[SETTING_TTL];
    hf_status status =
        check_range("ttl_ms", ttl_ms, client->limits.ttl_min_ms, client->limits.ttl_max_ms);

    if (status != HF_OK)
        return status;

    struct timing t;
    struct timing_overrides overrides = client_overrides(client);
    timing_fill(&t, ttl_ms, &client->limits, &overrides);
    struct hf_timing_sheet all = {
        .size = sheet->size,
        .ttl_ms = ttl_ms,
        .renew_ms = t.renew / NANOS_OF_MS(1),
        .warn_ms = t.warn / NANOS_OF_MS(1),
        .stop_ms = t.stop / NANOS_OF_MS(1),
        .drift_ms = t.drift / NANOS_OF_MS(1),
        .op_timeout_ms = t.op_timeout / NANOS_OF_MS(1),
        .retry_min_ms = t.retry_min / NANOS_OF_MS(1),
        .retry_max_ms = t.retry_max / NANOS_OF_MS(1),
    };
    memcpy(sheet, &all, sheet->size < sizeof all ? sheet->size : sizeof all);
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
        status = api_check_request(client, request, &r);
    if (status != HF_OK)
        return status;
    if (r.wait_ms != 0 && callbacks_run_here(client))
        return error_set(HF_INVALID, "%.*s: a callback must not wait; call hf_acquire_start",
                         (int)r.name_len, r.name);
    if (r.cancel_fd)
        return client_acquire_cancellable(client, &r, lease);
    return client_acquire(client, &r, lease);
}

static hf_status refuse_cancel_fd(const struct hf_request *r)
{
    return r->cancel_fd ? error_set(HF_INVALID, "cancel_fd: only hf_acquire has one") : HF_OK;
}

hf_status hf_acquire_start(hf_client *client, const struct hf_request *request, hf_done_fn *done,
                           void *arg, hf_lease **lease)
{
    if (!lease || !done)
        return missing(lease ? "done" : "lease");

    *lease = NULL;
    struct hf_request r;
    hf_status status = enter_with(client, request, &r);
    if (status != HF_OK)
        return status;

    status = refuse_cancel_fd(&r);
    if (status == HF_OK)
        status = client_acquire_start(client, &r, (struct done_call){done, arg}, lease);
    client_exit(client);
    return status;
}

hf_status hf_cancel(hf_lease *lease)
{
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;

    hf_client *client = lease->client;
    status = client_cancel(lease);
    client_exit(client);
    return status;
}

static hf_status check_many(const struct hf_client *client,
                            const struct hf_request *const *requests, size_t count,
                            struct hf_request *copies)
{
    for (size_t i = 0; i < count; i++) {
        hf_status status = api_check_request(client, requests[i], &copies[i]);
        if (status == HF_OK)
            status = refuse_cancel_fd(&copies[i]);
        if (status != HF_OK)
            return error_set(status, "requests[%zu].%s", i, error_text());
    }
    return HF_OK;
}

hf_status hf_acquire_many(hf_client *client, const struct hf_request *const *requests, size_t count,
                          int64_t wait_ms, hf_lease **leases)
{
    if (!client || !requests || !leases)
        return missing(first_missing(client, "client", requests, "requests", "leases"));

    hf_status status = check_range("count", (int64_t)count, 1, MANY_MAX);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    memset(leases, 0, count * sizeof *leases);
    if (wait_ms == HF_WAIT_DEFAULT)
        wait_ms = client->settings.value[SETTING_WAIT];
    struct hf_request *copies = calloc(count, sizeof *copies);
    status = copies ? check_many(client, requests, count, copies)
                    : error_set(HF_NO_MEMORY, "no memory for %zu requests", count);
    if (status == HF_OK)
        status = check_range("wait_ms", wait_ms, HF_FOREVER, WAIT_MAX_MS);

    bool may_wait = wait_ms == 0 || !callbacks_run_here(client);
    if (status == HF_OK && !may_wait)
        status = error_set(HF_INVALID, "wait_ms: a callback must not wait");
    if (status == HF_OK)
        status = client_acquire_many(client, copies, count, wait_ms, leases);
    free(copies);
    client_exit(client);
    return status;
}

hf_status hf_with(hf_client *client, const struct hf_request *request, hf_with_fn *fn, void *arg,
                  int *result)
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
        status =
            error_set(HF_LOST, "%s: the lease was lost while the work ran", hf_lease_name(lease));

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
        status =
            check_range("ttl_ms", ttl_ms, client->limits.ttl_min_ms, client->limits.ttl_max_ms);
    if (status == HF_OK)
        status = client_extend(lease, ttl_ms);

    client_exit(client);
    return status;
}

hf_status hf_extend_start(hf_lease *lease, int64_t ttl_ms, hf_done_fn *done, void *arg)
{
    hf_status status = done ? enter_lease(lease) : missing("done");
    if (status != HF_OK)
        return status;

    hf_client *client = lease->client;
    if (ttl_ms != 0)
        status =
            check_range("ttl_ms", ttl_ms, client->limits.ttl_min_ms, client->limits.ttl_max_ms);
    if (status == HF_OK)
        status = client_extend_start(lease, ttl_ms, (struct done_call){done, arg});
    client_exit(client);
    return status;
}

hf_status hf_release_start(hf_lease *lease, hf_done_fn *done, void *arg)
{
    hf_status status = done ? enter_lease(lease) : missing("done");
    if (status != HF_OK)
        return status;

    hf_client *client = lease->client;
    status = client_release_start(lease, (struct done_call){done, arg});
    client_exit(client);
    return status;
}

hf_status hf_release(hf_lease *lease)
{
    if (!lease)
        return missing("lease");
    hf_status status = check_ours(lease->client);
    return status == HF_OK ? client_release(lease) : status;
}

void hf_lease_free(hf_lease *lease)
{
    if (lease && check_ours(lease->client) == HF_OK)
        client_lease_free(lease);
}

/* Returns false in a forked child: it has a copy of the handle, but the lease belongs to the
 * parent. */
static bool is_ours(const hf_lease *lease)
{
    return lease && fork_guard_ours(&lease->client->mark);
}

bool hf_lease_ok(const hf_lease *lease)
{
    return is_ours(lease) &&
           atomic_load_explicit(&lease->claim.valid_until, memory_order_acquire) != 0;
}

int64_t hf_lease_left_ms(const hf_lease *lease)
{
    if (!is_ours(lease))
        return 0;
    nanos left =
        atomic_load_explicit(&lease->claim.valid_until, memory_order_relaxed) - clock_boot();
    return left > 0 ? left / NANOS_OF_MS(1) : 0;
}

uint64_t hf_lease_token(const hf_lease *lease)
{
    return is_ours(lease) ? atomic_load_explicit(&lease->claim.token, memory_order_relaxed) : 0;
}

const char *hf_lease_name(const hf_lease *lease)
{
    return lease ? lease->op.name : "";
}

hf_status hf_lease_renew(hf_lease *lease, bool on)
{
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;

    hf_client *client = lease->client;
    status = client_set_renewal(lease, on);
    client_exit(client);
    return status;
}

int hf_lease_fd(hf_lease *lease)
{
    if (enter_lease(lease) != HF_OK)
        return -1;
    hf_client *client = lease->client;
    int fd = client_lost_fd(lease);
    client_exit(client);
    return fd;
}

/* Converts the lease. If `done` is NULL, waits for the outcome. */
static hf_status convert(hf_lease *lease, enum op_verb verb, const struct done_call *done)
{
    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;

    hf_client *client = lease->client;
    if (!(client->limits.offers & ENGINE_CAN_CONVERT))
        status = error_set(HF_UNSUPPORTED, "%s: the engine %s cannot upgrade or downgrade",
                           lease->op.name, client->type->name);
    else if (done)
        status = client_convert_start(lease, verb, *done);
    else
        status = client_convert(lease, verb);

    client_exit(client);
    return status;
}

hf_status hf_upgrade_start(hf_lease *lease, hf_done_fn *done, void *arg)
{
    return done ? convert(lease, OP_UPGRADE, &(struct done_call){done, arg}) : missing("done");
}

hf_status hf_downgrade_start(hf_lease *lease, hf_done_fn *done, void *arg)
{
    return done ? convert(lease, OP_DOWNGRADE, &(struct done_call){done, arg}) : missing("done");
}

hf_status hf_upgrade(hf_lease *lease)
{
    return convert(lease, OP_UPGRADE, NULL);
}

hf_status hf_downgrade(hf_lease *lease)
{
    return convert(lease, OP_DOWNGRADE, NULL);
}

hf_status hf_lease_export(hf_lease *lease, char *text, size_t size)
{
    if (!text)
        return missing("text");

    hf_status status = enter_lease(lease);
    if (status != HF_OK)
        return status;

    hf_client *client = lease->client;
    status = client_export(lease, text, size);
    client_exit(client);
    return status;
}

typedef hf_status adopt_fn(hf_client *client, const char *text, hf_lease **lease);

static hf_status adopt(hf_client *client, const char *text, hf_lease **lease, adopt_fn *fn)
{
    if (!client || !text || !lease)
        return missing(first_missing(client, "client", text, "text", "lease"));

    *lease = NULL;
    hf_status status = client_enter(client);
    if (status != HF_OK)
        return status;

    if (client->limits.offers & ENGINE_CAN_DETACH)
        status = fn(client, text, lease);
    else
        status = error_set(HF_UNSUPPORTED, "text: the engine %s has no detached holds",
                           client->type->name);

    client_exit(client);
    return status;
}

hf_status hf_lease_attach(hf_client *client, const char *text, hf_lease **lease)
{
    return adopt(client, text, lease, client_attach);
}

hf_status hf_lease_assume(hf_client *client, const char *text, hf_lease **lease)
{
    return adopt(client, text, lease, client_assume);
}

/* ---- Event loop ---- */

static hf_status check_loop(hf_client *client)
{
    if (!client)
        return missing("client");
    if (!fork_guard_ours(&client->mark))
        return error_set(HF_FORKED, "%s: the client belongs to the parent process", client->url);

    return client->no_thread || client->own_callbacks
               ? HF_OK
               : error_set(HF_INVALID,
                           "%s: the client was opened without no_thread and own_callbacks",
                           client->url);
}

int hf_fd(hf_client *client)
{
    if (check_loop(client) != HF_OK || client_enter(client) != HF_OK)
        return -1;

    int fd = background_loop_fd(client);
    client_exit(client);
    return fd;
}

hf_status hf_batch(hf_client *client)
{
    hf_status status = check_loop(client);
    if (status == HF_OK)
        atomic_store(&client->batcher, pthread_self());
    return status;
}

hf_status hf_flush(hf_client *client)
{
    hf_status status = check_loop(client);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    pthread_t me = pthread_self();
    atomic_compare_exchange_strong(&client->batcher, &me, 0);
    client_flush(client);
    client_exit(client);
    return HF_OK;
}

int64_t hf_timeout_ms(hf_client *client)
{
    return check_loop(client) == HF_OK ? background_timeout(client) : -1;
}

hf_status hf_process(hf_client *client)
{
    hf_status status = check_loop(client);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    status = background_process(client);
    client_exit(client);
    return status;
}
