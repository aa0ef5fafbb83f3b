/* addon_lease.c - leases: acquire, cancel, extend, release. None of these waits: an engine that
 * answers at once is asked here, any other tells the outcome to the dispatcher. */
#include "addon.h"

#include <stdlib.h>

/* ---- Handles ---- */

struct addon_lease *addon_lease_new(struct addon_client *client, uint64_t id)
{
    struct addon_lease *lease = calloc(1, sizeof *lease);

    if (!lease)
        return NULL;
    lease->client = client;
    lease->id = id;
    addon_client_ref(client);
    return lease;
}

static void lease_delete(struct addon_lease *lease)
{
    hf_lease_free(lease->hf);
    addon_client_unref(lease->client);
    free(lease);
}

/* JavaScript keeps every lease that is held or waits, so the garbage collector finds only those
 * that have ended. Handles outlive their client (keep_handles), so the order does not matter. */
static void drop_lease(napi_env env, void *data, void *hint)
{
    (void)env, (void)hint;
    lease_delete(data);
}

static struct addon_lease *lease_of(napi_env env, napi_callback_info info)
{
    napi_value arguments[1];

    addon_arguments(env, info, 1, arguments);
    return addon_external(env, arguments[0]);
}

/* ---- Acquiring ---- */

/* Begins an acquire. HF_OK: the lease is held if *token is not 0; otherwise the dispatcher will get
 * the outcome. */
static hf_status begin_acquire(napi_env env, struct addon_lease *lease, struct hf_request *request,
                               uint64_t *token)
{
    struct addon_client *client = lease->client;
    void *ticket = addon_event_ticket(client, lease->id);
    int64_t wait_ms = request->wait_ms;
    hf_status status = HF_BUSY;

    request->on_lost = addon_on_lost;
    request->lost_arg = ticket;
    if (client->answers_at_once) {
        request->wait_ms = 0;
        status = hf_acquire(client->hf, request, &lease->hf);
        request->wait_ms = wait_ms;
    }
    if (status == HF_OK && client->answers_at_once)
        *token = hf_lease_token(lease->hf);
    bool may_wait = wait_ms != 0 || !client->answers_at_once;
    if (status != HF_BUSY || !may_wait)
        return status;

    status = hf_acquire_start(client->hf, request, addon_on_done, ticket, &lease->hf);
    if (status == HF_OK)
        addon_event_wait(env, client);
    return status;
}

/* Returns [lease, token]; the token is 0 if the outcome is not known yet. */
static napi_value pair(napi_env env, struct addon_lease *lease, uint64_t token)
{
    napi_value handle = NULL, result = NULL;

    napi_create_external(env, lease, drop_lease, NULL, &handle);
    napi_create_array_with_length(env, 2, &result);
    napi_set_element(env, result, 0, handle);
    napi_set_element(env, result, 1, addon_number(env, (double)token));
    return result;
}

/* acquire(client, id, request[]) -> [lease, token] */
napi_value addon_acquire(napi_env env, napi_callback_info info)
{
    napi_value arguments[3];
    struct hf_request request;
    struct addon_texts texts;
    uint64_t token = 0;

    addon_arguments(env, info, 3, arguments);
    struct addon_client *client = addon_external(env, arguments[0]);
    if (!client)
        return NULL;
    if (!addon_client_is_open(client))
        return addon_throw(env, HF_CLOSED, "the client is closed");
    struct addon_lease *lease =
        addon_lease_new(client, (uint64_t)addon_integer(env, arguments[1], 0));
    if (!lease)
        return addon_throw(env, HF_NO_MEMORY, "no memory for a lease");

    addon_read_request(env, arguments[2], &request, &texts);
    hf_status status = begin_acquire(env, lease, &request, &token);
    if (status == HF_OK)
        return pair(env, lease, token);
    addon_throw(env, status, hf_error_text());
    lease_delete(lease);
    return NULL;
}

/* cancel(lease): the dispatcher is told the outcome, which may be a grant that came first. */
napi_value addon_cancel(napi_env env, napi_callback_info info)
{
    struct addon_lease *lease = lease_of(env, info);

    if (lease && lease->hf)
        (void)hf_cancel(lease->hf);
    return NULL;
}

/* ---- What a holder asks and does ---- */

/* left(lease) -> ms that are certainly left; also in the middle of work that blocks the loop. */
napi_value addon_left(napi_env env, napi_callback_info info)
{
    struct addon_lease *lease = lease_of(env, info);

    return lease ? addon_number(env, (double)hf_lease_left_ms(lease->hf)) : NULL;
}

/* token(lease) -> number; throws if it is too large for an exact number. */
napi_value addon_token(napi_env env, napi_callback_info info)
{
    struct addon_lease *lease = lease_of(env, info);
    uint64_t token = lease ? hf_lease_token(lease->hf) : 0;

    if (token >= TOKEN_MAX)
        return addon_throw(env, HF_UNSUPPORTED, "the token is 2^53 or more: no exact number");
    return lease ? addon_number(env, (double)token) : NULL;
}

/* free(lease): releases what is held, without waiting for the reply. */
napi_value addon_free(napi_env env, napi_callback_info info)
{
    struct addon_lease *lease = lease_of(env, info);

    if (lease) {
        hf_lease_free(lease->hf);
        lease->hf = NULL;
    }
    return NULL;
}

/* Returns true if the call is done, false if the dispatcher will get its outcome, NULL if an error
 * was thrown. */
static napi_value begun(napi_env env, struct addon_lease *lease, hf_status status)
{
    bool is_done = lease->client->answers_at_once;

    if (status != HF_OK)
        return addon_throw(env, status, hf_error_text());
    if (!is_done)
        addon_event_wait(env, lease->client);
    return addon_boolean(env, is_done);
}

/* release(lease) -> true: done; false: the dispatcher will be told */
napi_value addon_release(napi_env env, napi_callback_info info)
{
    struct addon_lease *lease = lease_of(env, info);

    if (!lease)
        return NULL;
    if (!lease->hf)
        return addon_throw(env, HF_NOT_HELD, "not held");
    if (lease->client->answers_at_once)
        return begun(env, lease, hf_release(lease->hf));
    void *ticket = addon_event_ticket(lease->client, lease->id);
    return begun(env, lease, hf_release_start(lease->hf, addon_on_done, ticket));
}

/* extend(lease, ms, id) -> true: done; false: the dispatcher will be told, under this id */
napi_value addon_extend(napi_env env, napi_callback_info info)
{
    napi_value arguments[3];

    addon_arguments(env, info, 3, arguments);
    struct addon_lease *lease = addon_external(env, arguments[0]);
    if (!lease)
        return NULL;
    if (!lease->hf)
        return addon_throw(env, HF_NOT_HELD, "not held");
    int64_t ms = addon_integer(env, arguments[1], 0);
    if (lease->client->answers_at_once)
        return begun(env, lease, hf_extend(lease->hf, ms));
    uint64_t id = (uint64_t)addon_integer(env, arguments[2], 0);
    void *ticket = addon_event_ticket(lease->client, id);
    return begun(env, lease, hf_extend_start(lease->hf, ms, addon_on_done, ticket));
}

/* convert(lease, upgrade, id) -> true: done; false: the dispatcher will be told, under this id */
napi_value addon_convert(napi_env env, napi_callback_info info)
{
    napi_value arguments[3];
    bool upgrade = false;

    addon_arguments(env, info, 3, arguments);
    struct addon_lease *lease = addon_external(env, arguments[0]);
    if (!lease)
        return NULL;
    if (!lease->hf)
        return addon_throw(env, HF_NOT_HELD, "not held");
    napi_get_value_bool(env, arguments[1], &upgrade);
    if (lease->client->answers_at_once)
        return begun(env, lease, upgrade ? hf_upgrade(lease->hf) : hf_downgrade(lease->hf));
    uint64_t id = (uint64_t)addon_integer(env, arguments[2], 0);
    void *ticket = addon_event_ticket(lease->client, id);
    return begun(env, lease,
                 upgrade ? hf_upgrade_start(lease->hf, addon_on_done, ticket)
                         : hf_downgrade_start(lease->hf, addon_on_done, ticket));
}
