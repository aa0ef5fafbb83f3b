/* consul_model.h - a model of Consul's state: keys with their indexes, sessions, transactions. */
#pragma once
#include "consul_world.h"

#define LOCK "s/job/"
#define NATIVE_SESSION "99999999-0000-0000-0000-000000000000"

static void wake_queries(void);

/* ---- Keys ---- */

static bool is_epoch(const char *key)
{
    return strncmp(key, "s/.s/", 5) == 0;
}

static bool is_lock(const char *key)
{
    return strcmp(key, LOCK ".lock") == 0;
}

static struct kv_pair *pair_of(const char *key)
{
    for (unsigned i = 0; i < store.pairs; i++)
        if (strcmp(store.pair[i].key, key) == 0)
            return &store.pair[i];
    return NULL;
}

static bool is_seen_by_some(void)
{
    for (unsigned i = 0; i < AGENTS; i++)
        if (is_stale(&store.agent[i]))
            return true;
    return false;
}

/* An agent that follows an old leader goes on seeing the pair as it was. */
static void keep_old(const struct kv_pair *pair)
{
    if (!is_seen_by_some()) {
        store.olds = 0;
        return;
    }
    if (store.olds == OLD_PAIRS)
        abort();
    store.old[store.olds] = *pair;
    store.old[store.olds++].to = store.index;
}

static void remove_pair(struct kv_pair *pair)
{
    keep_old(pair);
    note("%llu: %s is deleted", (unsigned long long)store.index, pair->key);
    if (strncmp(pair->key, LOCK, sizeof LOCK - 1) == 0)
        store.deleted_at = store.index;
    *pair = store.pair[--store.pairs];
}

/* Like Consul, leaves a pair alone that would not change. */
static struct kv_pair *write_pair(const struct kv_pair *wanted)
{
    struct kv_pair *pair = pair_of(wanted->key);
    if (pair) {
        bool same = pair->flags == wanted->flags && strcmp(pair->value, wanted->value) == 0 &&
                    strcmp(pair->session, wanted->session) == 0 &&
                    pair->lock_index == wanted->lock_index;
        bool is_touch = strcmp(pair->value, wanted->value) == 0 && pair->session[0];
        if (planted == PLANT_NO_TOUCH && is_touch && !is_lock(pair->key) && !is_epoch(pair->key))
            same = true;
        if (same)
            return pair;
        keep_old(pair);
    } else {
        if (store.pairs == PAIRS)
            abort();
        pair = &store.pair[store.pairs++];
        pair->created = store.index;
    }
    uint64_t created = pair->created;
    *pair = *wanted;
    pair->created = created;
    pair->changed = store.index;
    note("%llu: %s is of session %.8s", (unsigned long long)store.index, pair->key, pair->session);
    return pair;
}

/* ---- Sessions ---- */

static struct server_session *session_of(const char *id)
{
    for (unsigned i = 0; i < store.sessions; i++)
        if (strcmp(store.session[i].id, id) == 0)
            return &store.session[i];
    return NULL;
}

static void prolong(struct server_session *session)
{
    nanos ttl = NANOS_OF_MS(session->seconds * 1000);
    session->ends_at =
        w.now + (store.ends_early ? ttl + (nanos)draw((uint32_t)(ttl / 1000)) * 1000 : 2 * ttl);
}

static void close_key(const char *key, int64_t delay_ms)
{
    if (!delay_ms || planted == PLANT_SHORT_DELAY)
        return;
    if (store.closes == DELAYS)
        abort();
    struct closed_key *closed = &store.closed[store.closes++];
    *closed = (struct closed_key){.until = w.now + NANOS_OF_MS(delay_ms)};
    memcpy(closed->key, key, sizeof closed->key);
}

static bool is_closed(const char *key)
{
    for (unsigned i = 0; i < store.closes; i++)
        if (store.closed[i].until > w.now && strcmp(store.closed[i].key, key) == 0)
            return true;
    return false;
}

static void end_session(struct server_session *session)
{
    store.index++;
    note("session %s ends", session->id);
    for (unsigned i = 0; i < store.pairs;) {
        if (strcmp(store.pair[i].session, session->id) != 0) {
            i++;
            continue;
        }
        /* If those ahead of it have left, the next waiter watches its own entry and looks again. */
        if (is_lock(store.pair[i].key))
            store.free_until = w.now + TIMING_REFRESH_MOST + CLIENTS * SLOTS * CONSUL_PER_PLACE;
        close_key(store.pair[i].key, session->delay_ms);
        remove_pair(&store.pair[i]);
    }
    *session = store.session[--store.sessions];
}

static void expire_sessions(void)
{
    for (unsigned i = 0; i < store.sessions;) {
        bool is_over = store.session[i].ends_at <= w.now && store.leaderless_until <= w.now;
        sum.expired += is_over;
        if (is_over)
            end_session(&store.session[i]);
        else
            i++;
    }
}

/* ---- Transactions ---- */

struct txn_step {
    const char *verb;
    struct kv_pair pair; /* as asked for */
    uint64_t index;
};

static void copy_string(char *to, size_t size, const json_t *from)
{
    const char *text = json_string_value(from);
    int len = snprintf(to, size, "%s", text ? text : "");
    if (len < 0 || (size_t)len >= size)
        abort();
}

static struct txn_step read_step(const json_t *ops, size_t i)
{
    const json_t *op = json_object_get(json_array_get(ops, i), "KV");
    struct txn_step step = {.verb = json_string_value(json_object_get(op, "Verb"))};
    step.index = (uint64_t)json_integer_value(json_object_get(op, "Index"));
    step.pair.flags = (uint64_t)json_integer_value(json_object_get(op, "Flags"));
    copy_string(step.pair.key, KEY, json_object_get(op, "Key"));
    copy_string(step.pair.value, VALUE, json_object_get(op, "Value"));
    copy_string(step.pair.session, sizeof step.pair.session, json_object_get(op, "Session"));
    if (planted == PLANT_SAME_EPOCH && is_epoch(step.pair.key))
        step.pair.flags = 0;
    return step;
}

/* Returns true if a planted bug has the client leave out that check. */
static bool is_left_out(const struct txn_step *step)
{
    const char *key = step->pair.key;
    bool is_entry = !is_epoch(key) && !is_lock(key);
    if (planted == PLANT_NO_EPOCH)
        return is_epoch(key);
    if (planted == PLANT_NO_LOCK_CHECK)
        return is_lock(key) && strcmp(step->verb, "check-session") != 0;
    if (planted == PLANT_NO_ROW_CHECK)
        return is_entry && strcmp(step->verb, "check-index") == 0;
    return planted == PLANT_NO_PLACE_CHECK && is_entry && strcmp(step->verb, "check-session") == 0;
}

static bool check_step(const struct txn_step *step, const struct kv_pair *pair, const char **why)
{
    if (is_left_out(step))
        return true;
    if (strcmp(step->verb, "check-not-exists") == 0)
        *why = pair ? "key exists" : NULL;
    else if (!pair)
        *why = "key doesn't exist";
    else if (strcmp(step->verb, "check-index") == 0)
        *why = pair->changed != step->index ? "current modify index differs" : NULL;
    else
        *why = strcmp(pair->session, step->pair.session) ? "current session differs" : NULL;
    return !*why;
}

/* Returns the pair that the transaction's reply shows for it; NULL: none, or it failed. */
static const struct kv_pair *lock_step(struct txn_step *step, struct kv_pair *pair,
                                       const char **why)
{
    static char text[80];
    bool is_alive = session_of(step->pair.session);
    bool is_taken = pair && pair->session[0] && strcmp(pair->session, step->pair.session) != 0;
    if (!is_alive) {
        snprintf(text, sizeof text, "invalid session \\\"%s\\\"", step->pair.session);
        *why = text;
        return NULL;
    }
    if (is_taken) {
        *why = "failed to lock key, lock is already held";
        return NULL;
    }
    step->pair.lock_index = (pair ? pair->lock_index : 0) + !(pair && pair->session[0]);
    return write_pair(&step->pair);
}

static const struct kv_pair *unlock_step(struct kv_pair *pair, const struct txn_step *step,
                                         const char **why)
{
    if (!pair || strcmp(pair->session, step->pair.session) != 0) {
        *why = "failed to unlock key, lock isn't held, or is held by another session";
        return NULL;
    }
    struct kv_pair free_pair = *pair;
    free_pair.session[0] = '\0';
    return write_pair(&free_pair);
}

/* Carries out one step of a transaction. Returns the pair that its reply shows; NULL: none. *why
 * says why it failed. */
static const struct kv_pair *carry_out(struct txn_step *step, const char **why)
{
    struct kv_pair *pair = pair_of(step->pair.key);
    *why = NULL;
    if (strncmp(step->verb, "check-", 6) == 0)
        return check_step(step, pair, why) ? pair : NULL;
    if (strcmp(step->verb, "lock") == 0)
        return lock_step(step, pair, why);
    if (strcmp(step->verb, "unlock") == 0)
        return unlock_step(pair, step, why);
    if (strcmp(step->verb, "delete-cas") == 0 && pair && pair->changed != step->index)
        *why = "failed to delete key, index is stale";
    else if (strncmp(step->verb, "delete", 6) == 0 && pair)
        remove_pair(pair);
    else if (strcmp(step->verb, "get") == 0 && !pair)
        *why = "key doesn't exist";
    return strcmp(step->verb, "get") == 0 ? pair : NULL;
}
