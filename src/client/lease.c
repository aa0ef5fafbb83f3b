/* lease.c - lease handles: made from a pool, so that a cycle of acquire and release allocates nothing, and given back
 * when neither the caller, nor the claim, nor a queue needs them. */
#include "client.h"

#include "base/why.h"
#include "core/id.h"
#include "sys/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLAB = 32 };

struct hf_slab {
    struct hf_slab *next;
    struct hf_lease lease[SLAB];
};

/* ---- The pool ---- */

/* What is the same in every life of a handle. */
static void set_up(struct hf_client *client, struct hf_lease *lease)
{
    lease->client = client;
    lease->ask.name = lease->texts.small;
    atomic_init(&lease->timer.key, HF_NEVER);
    atomic_init(&lease->lost_fd, -1);
}

static bool grow_pool(struct hf_client *client)
{
    if (hf_heap_reserve(&client->timers, client->leases + SLAB) != HF_OK)
        return false;
    struct hf_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return false;
    slab->next = client->slabs;
    client->slabs = slab;
    client->leases += SLAB;
    for (int i = 0; i < SLAB; i++) {
        set_up(client, &slab->lease[i]);
        slab->lease[i].look_next = client->pool;
        client->pool = &slab->lease[i];
    }
    return true;
}

static void set_state(struct hf_lease *lease)
{
    atomic_store_explicit(&lease->refs, 1, memory_order_relaxed);
    lease->alive = lease->caller_drives = lease->decided = lease->freed = lease->exported = lease->awaited = false;
    lease->in_look = lease->in_call = false;
    lease->change = lease->release = (struct hf_pending_call){.open = false};
    lease->outcome = lease->lost_status = HF_OK;
    lease->callers = lease->sleepers = 0;
    lease->parked = 0;
    lease->wake_at = HF_NEVER;
    lease->callbacks = 0;
    lease->muted = false;
}

/* ---- Timing sheets ---- */

/* One that nobody uses any more is taken before another one is made, so there are never more than leases. */
static struct hf_shared_sheet *make_sheet(struct hf_client *client, struct hf_shared_sheet **bucket, int64_t ttl_ms)
{
    struct hf_shared_sheet *s = *bucket;
    while (s && s->users)
        s = s->next;
    if (!s) {
        s = malloc(sizeof *s);
        if (!s)
            return NULL;
        s->next = *bucket;
        *bucket = s;
    }
    s->users = 0;
    s->ttl_ms = ttl_ms;
    hf_sheet_fill(&s->sheet, ttl_ms, &client->limits, &client->wishes);
    return s;
}

static unsigned sheet_bucket(int64_t ttl_ms)
{
    return (unsigned)((uint64_t)ttl_ms * 0x9e3779b97f4a7c15u >> (64 - HF_SHEET_BITS));
}

static const struct hf_sheet *take_sheet(struct hf_client *client, int64_t ttl_ms)
{
    struct hf_shared_sheet **bucket = &client->sheets[sheet_bucket(ttl_ms)], *s = *bucket;
    while (s && s->ttl_ms != ttl_ms)
        s = s->next;
    if (!s && !(s = make_sheet(client, bucket, ttl_ms)))
        return NULL;
    s->users++;
    return &s->sheet;
}

static void give_sheet(const struct hf_sheet *sheet)
{
    ((struct hf_shared_sheet *)(uintptr_t)sheet)->users--;
}

/* ---- In and out of the pool ---- */

/* Where an id is a key, on a server and for a hold that goes by it alone, it must be hard to guess. In a table whoever
 * could use it can read it: there it only has to be unlike all others, and the next number behind a random one is. */
static void draw_id(struct hf_client *client, struct hf_id *id, bool is_key)
{
    if (is_key || hf_client_hears_later(client)) {
        hf_entropy_id(&client->entropy, id);
        return;
    }
    client->next_id[0]++;
    memcpy(id, client->next_id, sizeof *id);
}

/* Takes a handle from the pool, with its lock held, and gives it its ids. Under the client's lock: from here on
 * hf_close and the loss of the table find it among the client's leases, so it must not remember its last life. */
static struct hf_lease *take(struct hf_client *client, const struct hf_request *request)
{
    if (hf_client_closing(client) || (!client->pool && !grow_pool(client)))
        return NULL;
    struct hf_lease *lease = client->pool;
    lease->claim.sheet = take_sheet(client, request->ttl_ms);
    if (!lease->claim.sheet)
        return NULL;
    client->pool = lease->look_next;
    set_state(lease);
    hf_latch_begin_held(&lease->lock);
    draw_id(client, &lease->ask.attempt, request->flags & HF_DETACHED);
    return lease;
}

static void close_lost_fd(struct hf_lease *lease)
{
    int fd = atomic_load_explicit(&lease->lost_fd, memory_order_relaxed);
    if (fd < 0)
        return;
    close(fd);
    atomic_store_explicit(&lease->lost_fd, -1, memory_order_relaxed);
}

/* Under the client's lock. */
static void put_into_pool(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    close_lost_fd(lease);
    hf_lease_words(lease, NULL);
    if (lease->hooks)
        hf_hooks_give(lease);
    give_sheet(lease->claim.sheet);
    lease->look_next = client->pool;
    client->pool = lease;
}

void hf_lease_give_back(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    hf_latch_lock(&client->lock);
    put_into_pool(lease);
    hf_latch_unlock(&client->lock);
}

/* Others get a reference under the client's lock alone, unless they have one: of a last one there can be no second. */
bool hf_lease_pool_last(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (atomic_load_explicit(&lease->refs, memory_order_relaxed) != 1)
        return false;
    hf_latch_lock(&client->lock);
    bool last = atomic_load_explicit(&lease->refs, memory_order_acquire) == 1;
    if (last) {
        atomic_store_explicit(&lease->refs, 0, memory_order_relaxed);
        put_into_pool(lease);
    }
    hf_latch_unlock(&client->lock);
    return last;
}

void hf_lease_drop(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    hf_client_stay(client);
    hf_latch_unlock(&lease->lock);
    hf_lease_unref(lease);
    hf_client_exit(client);
}

bool hf_lease_ref_listed(struct hf_lease *lease)
{
    uint32_t refs = atomic_load_explicit(&lease->refs, memory_order_relaxed);
    while (refs && !atomic_compare_exchange_weak(&lease->refs, &refs, refs + 1))
        ;
    return refs != 0;
}

static struct hf_lease *find_next(struct hf_walk *walk)
{
    for (; walk->slab; walk->slab = walk->slab->next, walk->next = 0)
        while (walk->next < SLAB) {
            struct hf_lease *lease = &walk->slab->lease[walk->next++];
            if (hf_lease_ref_listed(lease))
                return lease;
        }
    return NULL;
}

struct hf_lease *hf_lease_walk(struct hf_client *client, struct hf_walk *walk)
{
    struct hf_lease *last = walk->lease;
    hf_latch_lock(&client->lock);
    if (!last)
        walk->slab = client->slabs;
    walk->lease = find_next(walk);
    hf_latch_unlock(&client->lock);
    if (last)
        hf_lease_unref(last);
    return walk->lease;
}

static void free_lease(struct hf_lease *lease)
{
    if (lease->hooks)
        hf_hooks_give(lease);
    close_lost_fd(lease);
    free(lease->words);
    if (lease->has_block)
        free(lease->texts.block.at);
}

void hf_leases_free(struct hf_client *client)
{
    for (struct hf_slab *slab = client->slabs, *next; slab; slab = next) {
        next = slab->next;
        for (int i = 0; i < SLAB; i++)
            free_lease(&slab->lease[i]);
        free(slab);
    }
    hf_hooks_free(client);
    for (int b = 0; b < HF_SHEET_BUCKETS; b++)
        for (struct hf_shared_sheet *s = client->sheets[b], *next; s; s = next) {
            next = s->next;
            free(s);
        }
}

/* ---- One request ---- */

void hf_lease_words(struct hf_lease *lease, const char *text)
{
    if (!lease->words && !text)
        return;
    free(lease->words);
    lease->words = text && *text ? strdup(text) : NULL; /* without memory the status must speak for itself */
}

/* Where `size` bytes of text fit; what was there is lost. NULL: no memory, and nothing is. */
static char *room_for(struct hf_lease *lease, size_t size)
{
    if (!lease->has_block && size <= sizeof lease->texts.small)
        return lease->texts.small;
    if (lease->has_block && size <= lease->texts.block.size)
        return lease->texts.block.at;
    char *block = malloc(size);
    if (!block)
        return NULL;
    if (lease->has_block)
        free(lease->texts.block.at);
    lease->has_block = true;
    lease->texts.block.at = block;
    lease->texts.block.size = (uint32_t)size;
    return block;
}

static const char *put_text(char **at, const char *text, size_t len)
{
    char *start = *at;
    if (len)
        memcpy(start, text, len);
    start[len] = 0;
    *at += len + 1;
    return start;
}

static bool copy_new_texts(struct hf_lease *lease, const struct hf_request *request, size_t label, size_t correlation)
{
    struct hf_ask *ask = &lease->ask;
    char *at = room_for(lease, request->name_len + label + correlation + 3);
    if (!at)
        return false;
    ask->name = put_text(&at, request->name, request->name_len);
    ask->name_len = (uint32_t)request->name_len;
    ask->name_hash = 0;
    ask->label = put_text(&at, request->label, label);
    ask->label_len = (uint32_t)label;
    put_text(&at, request->correlation_id, correlation);
    return true;
}

/* A handle is often used for the same name again. */
static bool copy_texts(struct hf_lease *lease, const struct hf_request *request)
{
    struct hf_ask *ask = &lease->ask;
    size_t label = request->label ? strlen(request->label) : 0;
    size_t correlation = request->correlation_id ? strlen(request->correlation_id) : 0;
    if (label || correlation || ask->name_len != request->name_len ||
        memcmp(ask->name, request->name, request->name_len) != 0)
        return copy_new_texts(lease, request, label, correlation);
    ask->label = "\0"; /* and so is the correlation id behind it */
    ask->label_len = 0;
    return true;
}

/* Ids that the caller gave, in place of the random ones. An attempt without an owner is its own owner: asked for again
 * it meets itself. */
static void set_ids(struct hf_ask *ask, const struct hf_request *request)
{
    if (request->attempt)
        hf_id_of_text(&ask->attempt, 'a', request->attempt, strlen(request->attempt));
    ask->owner = ask->attempt;
    if (request->owner)
        hf_id_of_text(&ask->owner, 'o', request->owner, strlen(request->owner));
    ask->named = request->attempt || request->owner;
}

static void set_terms(struct hf_lease *lease, const struct hf_request *request, hf_nanos deadline)
{
    struct hf_ask *ask = &lease->ask;
    set_ids(ask, request);
    ask->kind = request->kind;
    ask->units = request->units;
    ask->capacity = request->capacity;
    ask->ttl_ms = request->ttl_ms;
    ask->barging = request->flags & HF_BARGING;
    ask->detached = request->flags & HF_DETACHED;
    ask->tokenless = request->flags & HF_TOKENLESS;
    ask->doubt = ask->bell = false;
    ask->slot = 0;
    ask->token = 0;
    ask->seen = ask->lines = 0;
    struct hf_claim_terms terms = {
        .max_hold_ms = request->max_hold_ms,
        .auto_renew = request->flags & HF_AUTO_RENEW,
        .deadline = deadline,
        .shared = ask->named, /* others of this owner may upgrade the hold, and its token rises */
    };
    hf_claim_init(&lease->claim, &terms, lease->claim.sheet);
}

static bool set_on_lost(struct hf_lease *lease, const struct hf_request *request)
{
    if (!request->on_lost)
        return true;
    if (hf_hooks_need(lease) != HF_OK)
        return false;
    lease->hooks->on_lost = request->on_lost;
    lease->hooks->lost_arg = request->lost_arg;
    return true;
}

static hf_status refuse_lease(const struct hf_client *client, const struct hf_request *request)
{
    if (hf_client_closing(client))
        return hf_client_refuse(client);
    return hf_why(HF_NO_MEMORY, "%.*s: no memory for a lease", (int)request->name_len, request->name);
}

/* The request has been checked, and its defaults are filled in. */
hf_status hf_lease_make(struct hf_client *client, const struct hf_request *request, hf_nanos now, hf_nanos deadline,
                        struct hf_lease **out)
{
    hf_latch_lock(&client->lock);
    struct hf_lease *lease = take(client, request);
    hf_latch_unlock(&client->lock);
    if (!lease)
        return refuse_lease(client, request);
    if (!copy_texts(lease, request) || !set_on_lost(lease, request)) {
        hf_status status = refuse_lease(client, request);
        hf_lease_drop(lease);
        return status;
    }
    set_terms(lease, request, deadline);
    lease->ask.waits = deadline > now;
    lease->ask.queue = lease->ask.waits && (client->limits.offers & HF_QUEUES);
    *out = lease;
    return HF_OK;
}
