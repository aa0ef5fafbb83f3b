/* export.c - a detached hold as text, and a handle made from it.
 *
 * The text: "hf1", attempt, owner, kind, units, capacity, ttl in ms, token, name; separated by one blank each, the name
 * last because it may hold blanks. Ids are in hexadecimal. */
#include "client.h"

#include "base/name.h"
#include "base/why.h"
#include "sys/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_id(const struct hf_id *id, char text[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id->b[i]);
}

hf_status hf_call_export(struct hf_lease *lease, char *text, size_t size)
{
    char attempt[33], owner[33];
    hf_status status = HF_OK;
    hf_latch_lock(&lease->lock);
    const struct hf_ask *ask = &lease->ask;
    print_id(&ask->attempt, attempt);
    print_id(&ask->owner, owner);
    if (!ask->detached)
        status = hf_why(HF_INVALID, "%s: only a detached hold outlives its client", lease->ask.name);
    else if (!hf_lease_held(lease))
        status = hf_why(lease->lost_status ? HF_LOST : HF_NOT_HELD, "%s: not held", lease->ask.name);
    else if (snprintf(text, size, "hf1 %s %s %d %u %u %" PRId64 " %" PRIu64 " %s", attempt, owner, (int)ask->kind,
                      ask->units, ask->capacity, lease->claim.sheet->t.ttl / HF_MS(1), (uint64_t)lease->claim.token,
                      lease->ask.name) >= (int)size)
        status = hf_why(HF_FULL, "%s: %zu bytes are too few for its text", lease->ask.name, size);
    else
        lease->exported = true;
    hf_latch_unlock(&lease->lock);
    return status;
}

/* ---- Back from text ---- */

struct exported {
    struct hf_request request;
    struct hf_id attempt, owner;
    uint64_t token;
};

static bool read_id(const char *text, struct hf_id *id)
{
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        id->b[i] = (uint8_t)byte;
    }
    return true;
}

static bool in_range(const struct hf_client *client, const struct hf_request *r)
{
    return r->kind <= HF_WRITE && r->units >= 1 && r->units <= r->capacity && r->capacity <= HF_CAPACITY_MAX &&
           r->ttl_ms >= client->limits.ttl_min_ms && r->ttl_ms <= client->limits.ttl_max_ms;
}

/* The text may have come from anywhere. It is not shown in the message: it is a secret. */
static hf_status parse(const struct hf_client *client, const char *text, struct exported *e)
{
    char attempt[33] = "", owner[33] = "";
    unsigned kind = 0;
    int name_at = 0;
    *e = (struct exported){.request = {.size = sizeof e->request, .flags = HF_DETACHED}};
    struct hf_request *r = &e->request;
    int fields = sscanf(text, "hf1 %32[0-9a-f] %32[0-9a-f] %2u %9u %9u %18" SCNd64 " %20" SCNu64 "%n", attempt, owner,
                        &kind, &r->units, &r->capacity, &r->ttl_ms, &e->token, &name_at);
    r->kind = (hf_kind)kind;
    bool whole = fields == 7 && strlen(attempt) == 32 && strlen(owner) == 32 && text[name_at] == ' ' &&
                 read_id(attempt, &e->attempt) && read_id(owner, &e->owner) && in_range(client, r);
    if (!whole)
        return hf_why(HF_INVALID, "text: not an exported lease");
    r->name = text + name_at + 1;
    r->name_len = strnlen(r->name, HF_NAME_MAX + 1);
    return hf_name_check("text: name", r->name, r->name_len, 1, HF_NAME_MAX);
}

/* The engine's record is asked how long it is still good; nothing is taken on the text's word. */
hf_status hf_call_attach(struct hf_client *client, const char *text, struct hf_lease **out)
{
    struct hf_lease *lease;
    struct exported e;
    hf_nanos now = hf_clock_boot();
    hf_status status = parse(client, text, &e);
    if (status == HF_OK)
        status = hf_lease_make(client, &e.request, now, now, &lease);
    if (status != HF_OK)
        return status;
    lease->ask.owner = e.owner;
    lease->ask.attempt = e.attempt;
    lease->ask.token = e.token;
    lease->ask.named = memcmp(&e.owner, &e.attempt, sizeof e.owner) != 0;
    status = hf_drive_adopt(lease, e.token);
    if (status == HF_OK) {
        lease->decided = true;
        lease->exported = true; /* freeing this handle does not end what the text still names */
    }
    if (status != HF_OK) {
        hf_lease_drop(lease);
        return status;
    }
    *out = lease;
    hf_latch_unlock(&lease->lock);
    return HF_OK;
}
