/* export.c - turns a detached hold into text, and such a text into a handle.
 *
 * The text: "hf1", attempt, owner, kind, units, capacity, ttl in ms, token, name, separated by one
 * blank each. The name is last because it may contain blanks. Ids are in hexadecimal.
 *
 * The token has a + before it if no ACQUIRE of the attempt can arrive any more (claim.h:
 * is_settled). Then a release needs no tombstone, which would make this and the next acquire of
 * the lock a lot dearer. A library that does not know the + reads the same number and leaves a
 * tombstone. */
#include "client.h"

#include "base/error.h"
#include "base/name.h"
#include "sys/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_id(const struct id *id, char text[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        text[2 * i] = digits[id->b[i] >> 4];
        text[2 * i + 1] = digits[id->b[i] & 15];
    }
    text[32] = 0;
}

static void export_hold(struct hf_lease *lease)
{
    assert(lease->op.detached && lease_is_held(lease));

    lease->exported = true;
    claim_export(&lease->claim);
}

/* Returns true if no ACQUIRE of the attempt can arrive any more. If the caller named the attempt,
 * other processes may send it, too. */
static bool is_settled(const struct hf_lease *lease)
{
    return lease->claim.is_settled && !lease->claim.may_be_in_flight && !lease->op.named;
}

hf_status client_export(struct hf_lease *lease, char *text, size_t size)
{
    assert(text);

    char attempt[33], owner[33];
    hf_status status = HF_OK;
    small_mutex_lock(&lease->lock);
    const struct engine_op *op = &lease->op;
    const char *settled = is_settled(lease) ? "+" : "";
    print_id(&op->attempt, attempt);
    print_id(&op->owner, owner);
    if (!op->detached)
        status = error_set(HF_INVALID, "%s: only a detached hold can be exported", lease->op.name);
    else if (!lease_is_held(lease))
        status =
            error_set(lease->lost_status ? HF_LOST : HF_NOT_HELD, "%s: not held", lease->op.name);
    else if (snprintf(text, size, "hf1 %s %s %d %u %u %" PRId64 " %s%" PRIu64 " %s", attempt, owner,
                      (int)op->kind, op->units, op->capacity,
                      lease->claim.sheet->t.ttl / NANOS_OF_MS(1), settled,
                      (uint64_t)lease->claim.token, lease->op.name) >= (int)size)
        status = error_set(HF_FULL, "%s: %zu bytes are too few for the text of its lease",
                           lease->op.name, size);
    else
        export_hold(lease);

    small_mutex_unlock(&lease->lock);
    return status;
}

/* ---- Back from text ---- */

struct exported {
    struct hf_request request;
    struct id attempt, owner;
    uint64_t token;
    bool is_settled;
};

/* Reads an id from 32 hexadecimal digits in lower case. */
static void read_id(const char *text, struct id *id)
{
    for (int i = 0; i < 16; i++) {
        int high = text[2 * i], low = text[2 * i + 1];
        high -= high > '9' ? 'a' - 10 : '0';
        low -= low > '9' ? 'a' - 10 : '0';
        id->b[i] = (uint8_t)(high << 4 | low);
    }
}

static bool in_range(const struct hf_client *client, const struct hf_request *r)
{
    const struct engine_limits *limits = &client->limits;
    bool kind = r->kind <= HF_WRITE;
    bool units = r->units >= 1 && r->units <= r->capacity && r->capacity <= HF_CAPACITY_MAX;
    bool ttl = r->ttl_ms >= limits->ttl_min_ms && r->ttl_ms <= limits->ttl_max_ms;
    return kind && units && ttl;
}

/* Parses a text that may come from anywhere. Messages do not show it, because it is a secret. */
static hf_status parse(const struct hf_client *client, const char *text, struct exported *e)
{
    char attempt[33] = "", owner[33] = "";
    unsigned kind = 0;
    int token_at = 0, name_at = 0;

    *e = (struct exported){.request = {.size = sizeof e->request, .flags = HF_DETACHED}};
    struct hf_request *r = &e->request;
    int fields = sscanf(
        text, "hf1 %32[0-9a-f] %32[0-9a-f] %2u %9u %9u %18" SCNd64 " %n%21" SCNu64 "%n", attempt,
        owner, &kind, &r->units, &r->capacity, &r->ttl_ms, &token_at, &e->token, &name_at);

    r->kind = (hf_kind)kind;

    bool has_ids = strlen(attempt) == 32 && strlen(owner) == 32;
    bool is_whole = fields == 7 && has_ids && e->token > 0 && text[name_at] == ' ';
    if (!is_whole || !in_range(client, r))
        return error_set(HF_INVALID, "text: not an exported lease");

    e->is_settled = text[token_at] == '+';
    read_id(attempt, &e->attempt);
    read_id(owner, &e->owner);
    r->name = text + name_at + 1;
    r->name_len = strnlen(r->name, HF_NAME_MAX + 1);
    return name_check("text: name", r->name, r->name_len, 1, HF_NAME_MAX);
}

/* Makes the lease of a text, locked and in state NEW. */
static hf_status make_lease(struct hf_client *client, const char *text, struct hf_lease **out,
                            bool *is_settled)
{
    struct exported e;
    nanos now = clock_boot();
    hf_status status = parse(client, text, &e);
    if (status == HF_OK)
        status = lease_make(client, &e.request, now, now, out);
    if (status != HF_OK)
        return status;

    struct hf_lease *lease = *out;
    lease->op.owner = e.owner;
    lease->op.attempt = e.attempt;
    lease->op.token = e.token;
    lease->op.named = memcmp(&e.owner, &e.attempt, sizeof e.owner) != 0;
    *is_settled = e.is_settled;
    return HF_OK;
}

static void finish_lease(struct hf_lease *lease)
{
    lease->decided = true;
    lease->exported = true; /* freeing this handle must not end the hold */
    small_mutex_unlock(&lease->lock);
}

/* Makes a handle from a text. The text alone proves nothing, so the engine is asked whether the
 * hold exists, and for how long. */
hf_status client_attach(struct hf_client *client, const char *text, struct hf_lease **out)
{
    assert(text && out);

    struct hf_lease *lease;
    bool is_settled;
    hf_status status = make_lease(client, text, &lease, &is_settled);
    if (status != HF_OK)
        return status;

    status = claim_driver_adopt(lease, lease->op.token, is_settled);
    if (status != HF_OK) {
        lease_drop(lease);
        return status;
    }
    finish_lease(lease);
    *out = lease;
    return HF_OK;
}

/* As client_attach, but without asking the engine: the first reply to a later request says whether
 * the text was right. */
hf_status client_assume(struct hf_client *client, const char *text, struct hf_lease **out)
{
    assert(text && out);

    struct hf_lease *lease;
    bool is_settled;
    if (!(client->limits.offers & ENGINE_FINDS_HOLDS))
        return error_set(HF_UNSUPPORTED, "text: the engine %s must be asked for a hold; attach it",
                         client->type->name);
    hf_status status = make_lease(client, text, &lease, &is_settled);
    if (status != HF_OK)
        return status;

    claim_driver_assume(lease, lease->op.token, is_settled);
    finish_lease(lease);
    *out = lease;
    return HF_OK;
}
