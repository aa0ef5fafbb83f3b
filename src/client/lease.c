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
        pthread_mutex_init(&slab->lease[i].lock, NULL);
        atomic_init(&slab->lease[i].timer_at, HF_NEVER);
        slab->lease[i].next = client->pool;
        client->pool = &slab->lease[i];
    }
    return true;
}

static void set_state(struct hf_lease *lease)
{
    atomic_store_explicit(&lease->refs, 1, memory_order_relaxed);
    lease->alive = lease->caller_drives = lease->decided = lease->freed = lease->exported = lease->awaited = false;
    lease->outcome = lease->lost_status = HF_OK;
    lease->wake_at = HF_NEVER;
    lease->change = lease->release = (struct hf_pending_call){.open = false};
    lease->in_look = lease->in_call = false;
    lease->callers = lease->sleepers = 0;
    lease->parked = 0;
    lease->callbacks = 0;
    lease->done = NULL;
    lease->group = NULL;
    atomic_store_explicit(&lease->ok, false, memory_order_relaxed);
    atomic_store_explicit(&lease->valid_until, 0, memory_order_relaxed);
    atomic_store_explicit(&lease->token, 0, memory_order_relaxed);
    atomic_store_explicit(&lease->lost_fd, -1, memory_order_relaxed);
}

/* Takes a handle from the pool and gives it its ids. Under the client's lock: from here on hf_close and the loss of the
 * table find it among the client's leases, so it must not remember its last life. */
static struct hf_lease *take(struct hf_client *client)
{
    if (!client->pool && !grow_pool(client))
        return NULL;
    struct hf_lease *lease = client->pool;
    client->pool = lease->next;
    lease->client = client;
    set_state(lease);
    lease->prev = NULL;
    lease->next = client->all;
    if (client->all)
        client->all->prev = lease;
    client->all = lease;
    hf_entropy_take(&client->entropy, &lease->ask.attempt, sizeof lease->ask.attempt);
    lease->ask.owner = lease->ask.attempt;
    return lease;
}

static void give_back(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    int fd = atomic_load(&lease->lost_fd);
    if (fd >= 0)
        close(fd);
    free(lease->block);
    free(lease->words);
    lease->block = lease->words = NULL;
    pthread_mutex_lock(&client->lock);
    hf_group_leave(lease);
    if (lease->prev)
        lease->prev->next = lease->next;
    else
        client->all = lease->next;
    if (lease->next)
        lease->next->prev = lease->prev;
    lease->next = client->pool;
    client->pool = lease;
    pthread_mutex_unlock(&client->lock);
}

void hf_lease_ref(struct hf_lease *lease)
{
    atomic_fetch_add_explicit(&lease->refs, 1, memory_order_relaxed);
}

bool hf_lease_ref_listed(struct hf_lease *lease)
{
    uint32_t refs = atomic_load_explicit(&lease->refs, memory_order_relaxed);
    while (refs && !atomic_compare_exchange_weak(&lease->refs, &refs, refs + 1))
        ;
    return refs != 0;
}

void hf_lease_unref(struct hf_lease *lease)
{
    if (atomic_fetch_sub_explicit(&lease->refs, 1, memory_order_acq_rel) == 1)
        give_back(lease);
}

struct hf_lease *hf_lease_walk(struct hf_client *client, struct hf_lease *lease)
{
    pthread_mutex_lock(&client->lock);
    struct hf_lease *next = lease ? lease->next : client->all;
    while (next && !hf_lease_ref_listed(next))
        next = next->next;
    pthread_mutex_unlock(&client->lock);
    if (lease)
        hf_lease_unref(lease);
    return next;
}

void hf_leases_free(struct hf_client *client)
{
    for (struct hf_lease *l = client->all; l; l = l->next) {
        hf_group_leave(l);
        int fd = atomic_load(&l->lost_fd);
        if (fd >= 0)
            close(fd);
        free(l->block);
        free(l->words);
    }
    for (struct hf_slab *slab = client->slabs, *next; slab; slab = next) {
        next = slab->next;
        for (int i = 0; i < SLAB; i++)
            pthread_mutex_destroy(&slab->lease[i].lock);
        free(slab);
    }
}

/* ---- One request ---- */

void hf_lease_words(struct hf_lease *lease, const char *text)
{
    free(lease->words);
    lease->words = text && *text ? strdup(text) : NULL; /* without memory the status must speak for itself */
}

static char *put_text(char **at, const char *text, size_t len)
{
    char *start = *at;
    if (len)
        memcpy(start, text, len);
    start[len] = 0;
    *at += len + 1;
    return start;
}

static bool copy_texts(struct hf_lease *lease, const struct hf_request *request)
{
    size_t name = request->name_len, label = request->label ? strlen(request->label) : 0;
    size_t correlation = request->correlation_id ? strlen(request->correlation_id) : 0;
    size_t all = name + label + correlation + 3;
    char *at = lease->small;
    if (all > sizeof lease->small) {
        lease->block = at = malloc(all);
        if (!at)
            return false;
    }
    lease->name = put_text(&at, request->name, name);
    lease->label = put_text(&at, request->label, label);
    lease->correlation = put_text(&at, request->correlation_id, correlation);
    lease->ask.name = lease->name, lease->ask.name_len = name;
    lease->ask.label = lease->label, lease->ask.label_len = label;
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
    struct hf_client *client = lease->client;
    struct hf_ask *ask = &lease->ask;
    set_ids(ask, request);
    ask->kind = request->kind;
    ask->units = request->units;
    ask->capacity = request->capacity;
    ask->ttl_ms = request->ttl_ms;
    ask->barging = request->flags & HF_BARGING;
    ask->detached = request->flags & HF_DETACHED;
    ask->tokenless = request->flags & HF_TOKENLESS;
    ask->history = (uint32_t)client->settings.value[HF_SET_HISTORY];
    ask->history_age_ms = client->settings.value[HF_SET_HISTORY_AGE];
    ask->doubt = ask->bell = false;
    ask->slot = 0;
    ask->seen = ask->lines = 0;
    ask->engine_state = NULL;
    lease->on_lost = request->on_lost;
    lease->lost_arg = request->lost_arg;
    struct hf_claim_terms terms = {
        .ttl_ms = request->ttl_ms,
        .max_hold_ms = request->max_hold_ms,
        .auto_renew = request->flags & HF_AUTO_RENEW,
        .deadline = deadline,
        .shared = ask->named, /* others of this owner may upgrade the hold, and its token rises */
    };
    hf_claim_init(&lease->claim, &terms, &client->limits, &client->wishes);
}

/* The request has been checked, and its defaults are filled in. */
hf_status hf_lease_make(struct hf_client *client, const struct hf_request *request, hf_nanos now, hf_nanos deadline,
                        struct hf_lease **out)
{
    pthread_mutex_lock(&client->lock);
    struct hf_lease *lease = take(client);
    pthread_mutex_unlock(&client->lock);
    if (!lease)
        return hf_why(HF_NO_MEMORY, "%.*s: no memory for a lease", (int)request->name_len, request->name);
    pthread_mutex_lock(&lease->lock);
    if (!copy_texts(lease, request)) {
        pthread_mutex_unlock(&lease->lock);
        hf_lease_unref(lease);
        return hf_why(HF_NO_MEMORY, "%.*s: no memory for a lease", (int)request->name_len, request->name);
    }
    set_terms(lease, request, deadline);
    lease->ask.waits = deadline > now;
    lease->ask.queue = lease->ask.waits && (client->limits.offers & HF_QUEUES);
    *out = lease;
    return HF_OK;
}
