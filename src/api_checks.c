/* api_checks.c - checks a request and fills in its defaults; also the rarely taken branches of the
 * checks in api_checks.h. */
#include "api_checks.h"

#include "base/settings.h"

#include <assert.h>

enum { ID_MAX = 64 };

/* ---- Rarely taken branches ---- */

/* Copies a struct of a caller that was compiled with a shorter, older header or a longer, newer
 * one. */
hf_status api_copy_other_size(const char *what, void *to, size_t size, const void *from,
                              size_t given)
{
    if (given < sizeof given || given > 1 << 16)
        return error_set(HF_INVALID, "%s.size: %zu is not the size of that struct (%zu)", what,
                         given, size);

    memset(to, 0, size);
    memcpy(to, from, given < size ? given : size);
    return HF_OK;
}

hf_status api_refuse_range(const char *field, int64_t value, int64_t min, int64_t max)
{
    assert(value < min || value > max);
    return error_set(HF_INVALID, "%s: %lld is not between %lld and %lld", field, (long long)value,
                     (long long)min, (long long)max);
}

/* ---- A request ---- */

static hf_status check_id(const char *field, const char *text)
{
    return text ? name_check(field, text, strlen(text), 1, ID_MAX) : HF_OK;
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

/* Derives units and capacity: every kind is a lease on some units of a capacity. */
static inline hf_status check_units(struct hf_request *r)
{
    switch (r->kind) {
    case HF_EXCLUSIVE:
    case HF_READ:
    case HF_WRITE:
        if (r->units > 1 || r->capacity > 1)
            return error_set(HF_INVALID, "units %u, capacity %u: must be 0 or 1 for kind %s",
                             r->units, r->capacity, hf_kind_name(r->kind));
        r->capacity = r->kind == HF_EXCLUSIVE ? 1 : HF_CAPACITY_MAX;
        r->units = r->kind == HF_WRITE ? HF_CAPACITY_MAX : 1;
        return HF_OK;
    case HF_SEMAPHORE:
        r->units = r->units ? r->units : 1;
        if (r->capacity < 1 || r->capacity > HF_CAPACITY_MAX)
            return error_set(HF_INVALID, "capacity: %u is not between 1 and %d", r->capacity,
                             HF_CAPACITY_MAX);
        if (r->units > r->capacity)
            return error_set(HF_TOO_BIG, "units: %u is more than the capacity %u", r->units,
                             r->capacity);
        return HF_OK;
    default:
        return error_set(HF_INVALID, "kind: %d is not a kind; use 0 to 3 (hf_kind)", (int)r->kind);
    }
}

static inline hf_status check_offer(const struct hf_client *client, const struct hf_request *r)
{
    const uint32_t flags = HF_AUTO_RENEW | HF_DETACHED | HF_BARGING | HF_TOKENLESS;
    if (r->flags & ~flags)
        return error_set(HF_INVALID, "flags: 0x%x has bits that are no flags (hf_flags)", r->flags);
    if (!(client->limits.kinds & 1u << r->kind))
        return error_set(HF_UNSUPPORTED, "kind: %s is not offered by the engine %s%s%s",
                         hf_kind_name(r->kind), client->type->name,
                         client->limits.kinds_why ? ": " : "",
                         client->limits.kinds_why ? client->limits.kinds_why : "");
    if ((r->flags & HF_DETACHED) && !(client->limits.offers & ENGINE_CAN_DETACH))
        return error_set(HF_UNSUPPORTED, "HF_DETACHED: not offered by the engine %s",
                         client->type->name);
    if ((r->flags & HF_BARGING) && (client->limits.offers & ENGINE_NO_BARGING))
        return error_set(HF_UNSUPPORTED, "HF_BARGING: not offered by the engine %s",
                         client->type->name);
    if (r->owner && !(client->limits.offers & ENGINE_REENTRANT))
        return error_set(HF_UNSUPPORTED, "owner: reentrant locks are not offered by the engine %s",
                         client->type->name);
    return HF_OK;
}

static inline hf_status check_times(const struct hf_client *client, struct hf_request *r)
{
    const struct engine_limits *limits = &client->limits;
    if (r->ttl_ms == 0)
        r->ttl_ms = client->settings.value[SETTING_TTL];
    if (r->wait_ms == HF_WAIT_DEFAULT)
        r->wait_ms = client->settings.value[SETTING_WAIT];

    if (r->max_hold_ms == 0)
        r->max_hold_ms = client->settings.value[SETTING_MAX_HOLD];
    hf_status status = check_range("ttl_ms", r->ttl_ms, limits->ttl_min_ms, limits->ttl_max_ms);
    if (status == HF_OK)
        status = check_range("wait_ms", r->wait_ms, HF_FOREVER, WAIT_MAX_MS);

    if (status == HF_OK)
        status = check_range("max_hold_ms", r->max_hold_ms, 0, WAIT_MAX_MS);
    if (status == HF_OK)
        status = check_range("cancel_fd", r->cancel_fd, 0, INT32_MAX);
    return status;
}

hf_status api_check_request(const struct hf_client *client, const struct hf_request *given,
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
