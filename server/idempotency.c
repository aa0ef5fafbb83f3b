/* idempotency.c - requests under an Idempotency-Key.
 *
 * The key becomes the attempt id, so the engine itself recognizes a repeated request, whichever
 * instance it reaches. The engine also keeps which body came with the key: a record, that is a
 * lease on a name made of caller and key, acquired by an attempt made of all that and the body.
 * A request with another body finds the record held.
 *
 * Whoever knows an attempt can release it. An instance whose client disconnected could therefore
 * release what another instance has just granted under the same key. So each key has a lock: an
 * instance holds it from before it asks until its answer is written or its grant is released,
 * and a retry elsewhere waits for it. An engine may also refuse an attempt that was given up
 * with unknown outcome. So the attempt is made of the key and the token of its record, and after
 * a try that granted nothing the record is acquired anew.
 *
 * A key names one lease for its life: a grant is noted before it is answered
 * (idempotency_replay.c). */
#include "lock_client.h"
#include "pending_acquires.h"
#include <stdlib.h>
#include <string.h>

#define RECORD_MS                                                                                  \
    (INT64_C(10) * 60 * 1000) /* shortest time for which a record outlives wait and ttl */
#define KEY_MAX 255
#define KEY_LOCK_SUFFIX "/turn"
#define KEY_LOCK_TTL_MS                                                                            \
    INT64_C(5000) /* an instance that died delays a retry for this long at most */
/* A disconnected client is noticed within a second, so even a request with waitMs 0 waits up to
 * 2 s for the key's lock. */
#define KEY_LOCK_GRACE_MS INT64_C(2000)

/* ---- Names made of the key ---- */

void hex_print(const unsigned char hash[SHA256_DIGEST_LENGTH], char text[HEX_BYTES])
{
    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}

void hex_digest(const void *data, size_t len, char text[HEX_BYTES])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256(data, len, hash);
    hex_print(hash, text);
}

/* Identifies the caller: by the hash of its token, which nobody else knows, or by its
 * certificate. */
void caller_print(const struct exchange *x, char text[CALLER_BYTES])
{
    if (x->caller)
        hex_print(x->caller->id, text);
    else
        snprintf(text, CALLER_BYTES, "certificate %s", x->client);
}

/* Derives three names: wait->key and the attempt of the record are secrets, the name of the
 * record is not. */
static void derive(struct wait *wait, const char *key, const char *body)
{
    char record[HEX_BYTES];
    hex_digest(key, strlen(key), wait->key);
    hex_digest(body, strlen(body), wait->idempotency.body);
    hex_digest(wait->key, strlen(wait->key), record);
    snprintf(wait->record, sizeof wait->record, RECORD_PREFIX "%s", record);
}

bool idempotency_read(struct exchange *x, struct wait *wait, json_t *body)
{
    const struct piece *key = request_head_field(&x->head, "idempotency-key");
    char caller[CALLER_BYTES], *text = NULL, *all = NULL;

    if (!key)
        return true;
    if (key->len == 0 || key->len > KEY_MAX) {
        answer_problem(x, 400, "invalid", "Idempotency-Key: must have between 1 and 255 bytes",
                       NULL);
        return false;
    }

    caller_print(x, caller);
    char *canonical = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    if (asprintf(&text, "key\n%s\n%.*s", caller, (int)key->len, key->at) < 0)
        text = NULL;
    if (!canonical || asprintf(&all, "body\n%s\n%.*s\n%s\n%s", caller, (int)key->len, key->at,
                               wait->name, canonical) < 0)
        all = NULL;
    bool fine = text && all;
    if (fine)
        derive(wait, text, all);
    else
        answer_status(x, HF_NO_MEMORY, NULL, NULL);

    free(canonical);
    free(text);
    free(all);

    return fine;
}

struct wait *idempotency_shared(struct leases *leases, const struct wait *wanted)
{
    for (struct wait *wait = *wanted->key ? leases->waits : NULL; wait; wait = wait->next)
        if (wait->requesters && strcmp(wait->key, wanted->key) == 0)
            return wait;
    return NULL;
}

/* ---- The key's lock and record ---- */

/* Returns the ttl, or the longest one that the engine accepts. */
static int64_t bounded_ttl(const struct wait *wait, int64_t ttl)
{
    const char *source;
    const struct server *server = wait->leases->server;
    int64_t most = DAY_MS;

    if (server->redlock == server->engine)
        (void)hf_client_setting(lock_client_client(server->engine), "max_ttl", &most, &source);
    return ttl < most ? ttl : most;
}

static void start_own(struct wait *wait, const struct hf_request *request)
{
    hf_client *client = lock_client_client(wait->leases->server->engine);

    wait->outcome = hf_acquire_start(client, request, wait_done, wait, &wait->lease);
    if (wait->outcome == HF_OK) {
        lock_client_started(wait->leases->server->engine);
        return;
    }

    snprintf(wait->message, sizeof wait->message, "%s", hf_error_text());
    idempotency_done(wait);
}

void idempotency_start(struct wait *wait)
{
    char name[sizeof wait->record + sizeof KEY_LOCK_SUFFIX];

    snprintf(name, sizeof name, "%s" KEY_LOCK_SUFFIX, wait->record);
    struct hf_request request = {.size = sizeof request,
                                 .name = name,
                                 .flags = HF_AUTO_RENEW,
                                 .ttl_ms = bounded_ttl(wait, KEY_LOCK_TTL_MS),
                                 .wait_ms = wait->request.wait_ms + KEY_LOCK_GRACE_MS,
                                 .label = "the turn of an Idempotency-Key"};
    start_own(wait, &request);
}

struct hf_request idempotency_record_request(const char *name,
                                             const struct idempotency *idempotency)
{
    return (struct hf_request){.size = sizeof(struct hf_request),
                               .name = name,
                               .flags = HF_DETACHED,
                               .ttl_ms = idempotency->record_ms,
                               .label = "an Idempotency-Key",
                               .attempt = idempotency->body};
}

/* The record outlives everything that is done under its key. */
static void start_record(struct wait *wait)
{
    int64_t lasts = wait->renews ? wait->request.max_hold_ms : wait->request.ttl_ms;
    wait->idempotency.record_ms = bounded_ttl(wait, lasts + wait->request.wait_ms + RECORD_MS);
    struct hf_request request = idempotency_record_request(wait->record, &wait->idempotency);
    wait->phase = PHASE_RECORD;
    start_own(wait, &request);
}

static void finish_key_lock(struct wait *wait)
{
    bool taken = wait->outcome == HF_BUSY || wait->outcome == HF_TIMEOUT;

    if (wait->outcome == HF_OK)
        wait->idempotency.key_lock = wait->lease;
    else
        hf_lease_free(wait->lease);

    wait->lease = NULL;
    bool may_start =
        wait->idempotency.key_lock && wait->requesters && !wait->leases->server->stopping;
    if (may_start) {
        start_record(wait);
        return;
    }

    for (struct exchange *x; taken && (x = wait_take_requester(wait));) {
        exchange_field(x, "Retry-After", "1");
        answer_problem(x, 409, "key_in_use",
                       "another request under this Idempotency-Key is in flight", NULL);
    }

    wait_refused(wait);
}

static void name_attempt(struct wait *wait)
{
    char text[HEX_BYTES + 24];
    int len = snprintf(text, sizeof text, "%s %llu", wait->key,
                       (unsigned long long)hf_lease_token(wait->idempotency.record));
    hex_digest(text, (size_t)len, wait->attempt);
    wait->request.attempt = wait->attempt;
}

void idempotency_start_lock(struct wait *wait)
{
    name_attempt(wait);
    wait_start_lock(wait);
}

static void finish_note(struct wait *wait)
{
    hf_lease *granted = wait->granted;
    bool noted = wait->outcome == HF_OK && lease_leave_behind(wait->lease);

    wait->granted = NULL;
    if (noted) {
        wait->idempotency.note = wait->lease;
        wait->lease = granted;
        wait_granted(wait);
        wait_free(wait);
        return;
    }

    hf_lease_free(wait->lease);
    wait->lease = NULL;
    if (wait->outcome == HF_OK)
        wait->outcome = HF_LOST;
    release_job(wait->leases, granted, &wait->idempotency, true);
    wait_refused(wait);
}

void idempotency_start_note(struct wait *wait)
{
    struct replay_note note;

    wait->phase = PHASE_NOTE;
    wait->granted = wait->lease;
    wait->lease = NULL;
    if (idempotency_replay_request(wait, &note)) {
        start_own(wait, &note.request);
        return;
    }

    wait->outcome = HF_LOST;
    finish_note(wait);
}

static void finish_record(struct wait *wait)
{
    hf_status outcome = wait->outcome;

    if (outcome == HF_OK && !lease_leave_behind(wait->lease))
        outcome = HF_LOST;
    if (outcome == HF_OK)
        wait->idempotency.record = wait->lease;
    else
        hf_lease_free(wait->lease);

    wait->lease = NULL;
    if (outcome == HF_OK && !wait->leases->server->stopping) {
        idempotency_replay(wait);
        return;
    }
    if (outcome == HF_BUSY) {
        for (struct exchange *x; (x = wait_take_requester(wait));)
            answer_problem(x, 422, "key_reused",
                           "this Idempotency-Key was used with another request", NULL);
        wait_free(wait);
        return;
    }

    wait_refused(wait);
}

void idempotency_done(struct wait *wait)
{
    if (wait->phase == PHASE_KEY_LOCK)
        finish_key_lock(wait);
    else if (wait->phase == PHASE_RECORD)
        finish_record(wait);
    else
        finish_note(wait);
}
