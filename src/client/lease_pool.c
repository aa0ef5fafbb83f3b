/* lease_pool.c - lease handles. They come from a pool, so that a cycle of acquire and release
 * allocates nothing, and return to it when the last reference is dropped. */
#include "client.h"

#include "base/error.h"
#include "core/id.h"
#include "sys/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLAB = 32 };

struct lease_slab {
    struct lease_slab *next;
    struct hf_lease lease[SLAB];
};

/* ---- The pool ---- */

/* Sets the fields that keep their value when a handle is reused. */
static void set_up(struct hf_client *client, struct hf_lease *lease)
{
    lease->client = client;
    lease->op.name = lease->texts.small;
    atomic_init(&lease->timer.key, TIME_NEVER);
    atomic_init(&lease->lost_fd, -1);
}

static bool grow_pool(struct hf_client *client)
{
    assert(!client->pool);

    if (heap_reserve(&client->timers, client->leases + SLAB) != HF_OK)
        return false;

    struct lease_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return false;

    slab->next = client->slabs;
    client->slabs = slab;
    client->leases += SLAB;
    for (int i = 0; i < SLAB; i++) {
        set_up(client, &slab->lease[i]);
        slab->lease[i].notified_next = client->pool;
        client->pool = &slab->lease[i];
    }

    return true;
}

static void set_state(struct hf_lease *lease)
{
    atomic_store_explicit(&lease->refs, 1, memory_order_relaxed);
    lease->alive = lease->caller_drives = lease->decided = lease->freed = lease->exported =
        lease->awaited = false;
    lease->is_notified = lease->in_call = false;
    lease->change = lease->release = (struct pending_call){.open = false};
    lease->outcome = lease->lost_status = HF_OK;
    lease->callers = lease->sleepers = 0;
    lease->parked = 0;
    lease->wake_at = TIME_NEVER;
    lease->due_callbacks = 0;
    lease->muted = false;
}

/* ---- Timing sheets ---- */

/* Reuses an unused sheet before it makes a new one, so there are never more sheets than leases. */
static struct shared_sheet *make_sheet(struct hf_client *client, struct shared_sheet **bucket,
                                       int64_t ttl_ms)
{
    assert(ttl_ms > 0);

    struct shared_sheet *s = *bucket;
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
    struct timing_overrides overrides = client_overrides(client);
    timing_sheet_fill(&s->sheet, ttl_ms, &client->limits, &overrides);
    return s;
}

void lease_adapt_sheets(struct hf_client *client)
{
    struct timing_overrides overrides = client_overrides(client);
    for (unsigned i = 0; i < SHEET_BUCKETS; i++)
        for (struct shared_sheet *s = client->sheets[i]; s; s = s->next)
            timing_sheet_adapt(&s->sheet, s->ttl_ms, &overrides);
}

static unsigned sheet_bucket(int64_t ttl_ms)
{
    return (unsigned)((uint64_t)ttl_ms * 0x9e3779b97f4a7c15u >> (64 - SHEET_BITS));
}

static const struct timing_sheet *take_sheet(struct hf_client *client, int64_t ttl_ms)
{
    struct shared_sheet **bucket = &client->sheets[sheet_bucket(ttl_ms)], *s = *bucket;
    while (s && s->ttl_ms != ttl_ms)
        s = s->next;
    if (!s && !(s = make_sheet(client, bucket, ttl_ms)))
        return NULL;
    s->users++;
    return &s->sheet;
}

static void give_sheet(const struct timing_sheet *sheet)
{
    struct shared_sheet *shared = (struct shared_sheet *)(uintptr_t)sheet;
    assert(shared->users > 0);
    shared->users--;
}

/* ---- In and out of the pool ---- */

/* Draws an id. On a server, or for a detached hold, an id must be hard to guess, because it works
 * as a key. In the table of `local:` any process that could use the id can also read it, so a
 * number that counts up from a random start is enough. */
static void draw_id(struct hf_client *client, struct id *id, bool is_key)
{
    if (is_key || client_replies_later(client)) {
        entropy_id(&client->entropy, id);
        return;
    }
    client->next_id[0]++;
    memcpy(id, client->next_id, sizeof *id);
}

/* Takes a handle from the pool, with its lock held, and gives it an attempt id. Under the client's
 * lock: once its reference count is set, hf_close and a sweep find it among the client's leases, so
 * no state of its last use may be left. */
static struct hf_lease *take(struct hf_client *client, const struct hf_request *request)
{
    if (client_closing(client) || (!client->pool && !grow_pool(client)))
        return NULL;

    struct hf_lease *lease = client->pool;
    lease->claim.sheet = take_sheet(client, request->ttl_ms);
    if (!lease->claim.sheet)
        return NULL;

    client->pool = lease->notified_next;
    set_state(lease);
    small_mutex_begin_held(&lease->lock);
    draw_id(client, &lease->op.attempt, request->flags & HF_DETACHED);
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

/* Called under the client's lock. */
static void put_into_pool(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    close_lost_fd(lease);
    lease_set_error(lease, NULL);
    if (lease->callbacks)
        callbacks_return(lease);

    give_sheet(lease->claim.sheet);
    lease->notified_next = client->pool;
    client->pool = lease;
}

void lease_recycle(struct hf_lease *lease)
{
    assert(atomic_load_explicit(&lease->refs, memory_order_relaxed) == 0);
    struct hf_client *client = lease->client;
    small_mutex_lock(&client->lock);
    put_into_pool(lease);
    small_mutex_unlock(&client->lock);
}

/* Returns true if this is the last reference. A thread without a reference gets one only under
 * the client's lock, so no new one can appear while that lock is held. */
bool lease_pool_last(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (atomic_load_explicit(&lease->refs, memory_order_relaxed) != 1)
        return false;

    small_mutex_lock(&client->lock);
    bool last = atomic_load_explicit(&lease->refs, memory_order_acquire) == 1;
    if (last) {
        atomic_store_explicit(&lease->refs, 0, memory_order_relaxed);
        put_into_pool(lease);
    }

    small_mutex_unlock(&client->lock);
    return last;
}

void lease_drop(struct hf_lease *lease)
{
    assert(!lease_is_held(lease));

    struct hf_client *client = lease->client;
    client_stay_open(client);
    small_mutex_unlock(&lease->lock);
    lease_unref(lease);
    client_exit(client);
}

bool lease_ref_listed(struct hf_lease *lease)
{
    uint32_t refs = atomic_load_explicit(&lease->refs, memory_order_relaxed);
    while (refs && !atomic_compare_exchange_weak(&lease->refs, &refs, refs + 1))
        ;
    return refs != 0;
}

static struct hf_lease *find_next(struct lease_walk *walk)
{
    assert(walk->next <= SLAB);

    for (; walk->slab; walk->slab = walk->slab->next, walk->next = 0)
        while (walk->next < SLAB) {
            struct hf_lease *lease = &walk->slab->lease[walk->next++];
            if (lease_ref_listed(lease))
                return lease;
        }
    return NULL;
}

struct hf_lease *lease_walk(struct hf_client *client, struct lease_walk *walk)
{
    assert(!walk->lease || walk->lease->client == client);

    struct hf_lease *last = walk->lease;
    small_mutex_lock(&client->lock);
    if (!last)
        walk->slab = client->slabs;
    walk->lease = find_next(walk);
    small_mutex_unlock(&client->lock);
    if (last)
        lease_unref(last);
    return walk->lease;
}

uint32_t lease_pool_count_handles(struct hf_client *client)
{
    uint32_t handles = 0;
    for (struct lease_slab *slab = client->slabs; slab; slab = slab->next)
        for (int i = 0; i < SLAB; i++) {
            struct hf_lease *lease = &slab->lease[i];
            bool is_used = atomic_load_explicit(&lease->refs, memory_order_acquire) != 0;
            atomic_store_explicit(&lease->claim.valid_until, 0, memory_order_release);
            handles += is_used && !lease->freed;
        }
    return handles;
}

static void free_lease(struct hf_lease *lease)
{
    if (lease->callbacks)
        callbacks_return(lease);
    close_lost_fd(lease);
    free(lease->failure);
    if (lease->has_block)
        free(lease->texts.block.at);
}

void lease_pool_free(struct hf_client *client)
{
    for (struct lease_slab *slab = client->slabs, *next; slab; slab = next) {
        next = slab->next;
        for (int i = 0; i < SLAB; i++)
            free_lease(&slab->lease[i]);
        free(slab);
    }

    callbacks_free(client);
    for (int b = 0; b < SHEET_BUCKETS; b++)
        for (struct shared_sheet *s = client->sheets[b], *next; s; s = next) {
            next = s->next;
            free(s);
        }
}

/* ---- One request ---- */

/* Returns a failure with its text behind it. NULL without memory: then only the status is
 * reported. */
static struct lease_failure *make_failure(const char *text)
{
    size_t len = strlen(text);
    struct lease_failure *failure = calloc(1, sizeof *failure + len + 1);
    if (failure)
        failure->text = memcpy(failure + 1, text, len + 1);
    return failure;
}

void lease_set_error(struct hf_lease *lease, const char *text)
{
    if (!lease->failure && !text)
        return;
    struct lease_failure *old = lease->failure;
    lease->failure = text && *text ? make_failure(text) : NULL;
    free(old);
}

void lease_set_holder(struct hf_lease *lease, const struct reply_holder *holder, nanos until)
{
    if (!lease->failure)
        lease->failure = make_failure("");
    if (!lease->failure)
        return;

    lease->failure->has_holder = true;
    lease->failure->until = until;
    lease->failure->holder = holder ? *holder : (struct reply_holder){0};
}

/* Returns room for `size` bytes of text in place of the old texts. NULL without memory: the old
 * texts are kept. */
static char *room_for(struct hf_lease *lease, size_t size)
{
    assert(size > 0);

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

static bool copy_new_texts(struct hf_lease *lease, const struct hf_request *request, size_t label,
                           size_t correlation)
{
    assert(request->name_len > 0 && request->name_len <= HF_NAME_MAX);

    struct engine_op *op = &lease->op;
    char *at = room_for(lease, request->name_len + label + correlation + 3);
    if (!at)
        return false;

    op->name = put_text(&at, request->name, request->name_len);
    op->name_len = (uint16_t)request->name_len;
    op->name_hash = 0;
    op->label = put_text(&at, request->label, label);
    op->label_len = (uint32_t)label;
    put_text(&at, request->correlation_id, correlation);
    return true;
}

/* Copies the texts. A handle is often reused for the same name; then the copy of the name is
 * reused, too. */
static bool copy_texts(struct hf_lease *lease, const struct hf_request *request)
{
    struct engine_op *op = &lease->op;
    size_t label = request->label ? strlen(request->label) : 0;
    size_t correlation = request->correlation_id ? strlen(request->correlation_id) : 0;
    bool same_name = op->name_len == request->name_len &&
                     memcmp(op->name, request->name, request->name_len) == 0;
    if (label || correlation || !same_name)
        return copy_new_texts(lease, request, label, correlation);

    op->label = "\0"; /* label and correlation id are both empty */
    op->label_len = 0;
    return true;
}

/* Replaces the random ids by those that the caller gave. An attempt without an owner is its own
 * owner, so the same attempt again finds its own hold. */
static void set_ids(struct engine_op *op, const struct hf_request *request)
{
    if (request->attempt)
        id_of_text(&op->attempt, 'a', request->attempt, strlen(request->attempt));
    op->owner = op->attempt;
    if (request->owner)
        id_of_text(&op->owner, 'o', request->owner, strlen(request->owner));
    op->named = request->attempt || request->owner;
}

static void set_terms(struct hf_lease *lease, const struct hf_request *request, nanos deadline)
{
    struct engine_op *op = &lease->op;
    set_ids(op, request);
    op->kind = request->kind;
    op->units = request->units;
    op->capacity = request->capacity;
    op->ttl_ms = request->ttl_ms;
    op->barging = request->flags & HF_BARGING;
    op->detached = request->flags & HF_DETACHED;
    op->tokenless = request->flags & HF_TOKENLESS;
    op->may_be_in_flight = op->in_background = false;
    op->is_ahead = op->of_several = false;
    op->slot = 0;
    op->token = 0;
    op->seen = 0;
    op->connections = 0;

    struct claim_terms terms = {
        .max_hold_ms = request->max_hold_ms,
        .auto_renew = request->flags & HF_AUTO_RENEW,
        .deadline = deadline,
        .shared = op->named, /* another lease of the same owner may upgrade the hold */
    };
    claim_init(&lease->claim, &terms, lease->claim.sheet);
}

static bool set_on_lost(struct hf_lease *lease, const struct hf_request *request)
{
    if (!request->on_lost)
        return true;
    if (callbacks_ensure(lease) != HF_OK)
        return false;

    lease->callbacks->on_lost = request->on_lost;
    lease->callbacks->lost_arg = request->lost_arg;
    return true;
}

static hf_status refuse_lease(const struct hf_client *client, const struct hf_request *request)
{
    assert(request->name_len > 0);

    if (client_closing(client))
        return client_refuse(client);
    return error_set(HF_NO_MEMORY, "%.*s: no memory for a lease", (int)request->name_len,
                     request->name);
}

hf_status lease_make(struct hf_client *client, const struct hf_request *request, nanos now,
                     nanos deadline, struct hf_lease **out)
{
    small_mutex_lock(&client->lock);
    struct hf_lease *lease = take(client, request);
    small_mutex_unlock(&client->lock);
    if (!lease)
        return refuse_lease(client, request);

    if (!copy_texts(lease, request) || !set_on_lost(lease, request)) {
        hf_status status = refuse_lease(client, request);
        lease_drop(lease);
        return status;
    }

    set_terms(lease, request, deadline);
    lease->op.waits = deadline > now;
    lease->op.queue = lease->op.waits && (client->limits.offers & ENGINE_QUEUES);
    *out = lease;
    return HF_OK;
}
