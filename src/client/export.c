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

#include <string.h>

enum { DIGITS_MAX = 20, FACTS_MAX = 4 + 2 * 33 + 5 * (DIGITS_MAX + 1) + 1 };

/* Texts are printed and parsed by hand. A service exports each lease that it grants and parses one
 * for each request, and printf and sscanf took a fifth of its own time. */
static char *put_id(char *at, const struct id *id)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        *at++ = digits[id->b[i] >> 4];
        *at++ = digits[id->b[i] & 15];
    }
    *at++ = ' ';
    return at;
}

static char *put_number(char *at, uint64_t number)
{
    char reversed[DIGITS_MAX];
    int len = 0;

    do
        reversed[len++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (len > 0)
        *at++ = reversed[--len];
    *at++ = ' ';
    return at;
}

static void export_hold(struct hf_lease *lease)
{
    assert(lease->op.detached && lease_is_held(lease));

    lease->exported = true;
    claim_export(&lease->claim);
}

/* Prints all but the name, ended by a blank. Returns the length. */
static size_t put_facts(const struct hf_lease *lease, bool settled, char facts[FACTS_MAX])
{
    const struct engine_op *op = &lease->op;
    char *at = facts;

    memcpy(at, "hf1 ", 4);
    at = put_id(at + 4, &op->attempt);
    at = put_id(at, &op->owner);
    at = put_number(at, op->kind);
    at = put_number(at, op->units);
    at = put_number(at, op->capacity);
    at = put_number(at, (uint64_t)(lease->claim.sheet->t.ttl / NANOS_OF_MS(1)));
    if (settled)
        *at++ = '+';
    at = put_number(at, lease->claim.token);
    return (size_t)(at - facts);
}

/* Returns true if no ACQUIRE of the attempt can arrive any more. If the caller named the attempt,
 * other processes may send it, too. */
static bool is_settled(const struct hf_lease *lease)
{
    return lease->claim.is_settled && !lease->claim.may_be_in_flight && !lease->op.named;
}

/* The lease is locked. */
static hf_status export_text(struct hf_lease *lease, char *text, size_t size)
{
    char facts[FACTS_MAX];
    const char *name = lease->op.name;
    size_t name_size = strlen(name) + 1;

    if (!lease->op.detached)
        return error_set(HF_INVALID, "%s: only a detached hold can be exported", name);
    if (!lease_is_held(lease))
        return error_set(lease->lost_status ? HF_LOST : HF_NOT_HELD, "%s: not held", name);

    size_t len = put_facts(lease, is_settled(lease), facts);
    if (len + name_size > size)
        return error_set(HF_FULL, "%s: %zu bytes are too few for the text of its lease", name,
                         size);

    memcpy(text, facts, len);
    memcpy(text + len, name, name_size);
    export_hold(lease);
    return HF_OK;
}

hf_status client_export(struct hf_lease *lease, char *text, size_t size)
{
    assert(text);

    small_mutex_lock(&lease->lock);
    hf_status status = export_text(lease, text, size);
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

/* Returns the value of a digit in lower case; 16: it is none. */
static unsigned hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

/* The functions that read return what follows the blank behind the field, or NULL. */
static const char *read_id(const char *at, struct id *id)
{
    for (int i = 0; at && i < 16; i++) {
        unsigned high = hex_value(*at), low = high < 16 ? hex_value(at[1]) : 16;
        id->b[i] = (uint8_t)(high << 4 | low);
        at = low < 16 ? at + 2 : NULL;
    }
    return at && *at == ' ' ? at + 1 : NULL;
}

/* `most`: number of digits at most. */
static const char *read_number(const char *at, int most, uint64_t *number)
{
    int len = 0;

    *number = 0;
    for (; at && at[len] >= '0' && at[len] <= '9' && len < most; len++)
        *number = *number * 10 + (uint64_t)(at[len] - '0');
    return len > 0 && at[len] == ' ' ? at + len + 1 : NULL;
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
    uint64_t kind, units, capacity, ttl_ms;

    *e = (struct exported){.request = {.size = sizeof e->request, .flags = HF_DETACHED}};
    struct hf_request *r = &e->request;
    const char *at = strncmp(text, "hf1 ", 4) == 0 ? text + 4 : NULL;
    at = read_id(at, &e->attempt);
    at = read_id(at, &e->owner);
    at = read_number(at, 2, &kind);
    at = read_number(at, 9, &units);
    at = read_number(at, 9, &capacity);
    at = read_number(at, 18, &ttl_ms);
    e->is_settled = at && *at == '+';
    at = read_number(at ? at + e->is_settled : NULL, 20, &e->token);

    r->kind = (hf_kind)kind;
    r->units = (uint32_t)units;
    r->capacity = (uint32_t)capacity;
    r->ttl_ms = (int64_t)ttl_ms;
    if (!at || e->token == 0 || !in_range(client, r))
        return error_set(HF_INVALID, "text: not an exported lease");

    r->name = at;
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
