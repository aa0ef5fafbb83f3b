/* keyed.c - requests under an Idempotency-Key.
 *
 * The key becomes the attempt id, so that the engine itself knows the second try for the first, through whatever
 * instance it comes. That the body is the same is kept in the engine too: a record, which is a lease on a name made of
 * caller and key, taken by an attempt made of all that and the body. Another body finds it held.
 *
 * Whoever knows an attempt can release it, so an instance whose client left could take away what another one, asked
 * again under the same key, has just granted. Therefore a key has a turn: a lock that an instance holds from before it
 * asks until its answer is written or its grant is given back. A retry elsewhere waits for that. And an engine may
 * refuse for a while what was given up in doubt, so a try after one that came to nothing needs another attempt: the
 * attempt is made of the key and the token of its record, and the record is taken anew then.
 *
 * A key names one lease for its life: what was granted is noted before it is answered (told.c). */
#include "engine.h"
#include "waits.h"
#include <stdlib.h>
#include <string.h>

#define RECORD_MS (INT64_C(10) * 60 * 1000) /* how long a record outlives the wait and the ttl at least */
#define KEY_MAX 255
#define CALLER_BYTES (HEX_BYTES + 128)
#define TURN_SUFFIX "/turn"
#define TURN_TTL_MS INT64_C(5000) /* an instance that died holds up a retry for no longer */
/* A client that left is noticed within a second: even who does not wait waits so long. */
#define TURN_GRACE_MS INT64_C(2000)

/* ---- What makes a key ---- */

static void print_hex(const unsigned char hash[SHA256_DIGEST_LENGTH], char text[HEX_BYTES])
{
    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}

static void digest(const void *data, size_t len, char text[HEX_BYTES])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256(data, len, hash);
    print_hex(hash, text);
}

/* Whose keys these are: the hash of the token, which nobody else knows, or the certificate. */
static void print_caller(const struct exchange *x, char text[CALLER_BYTES])
{
    if (x->caller)
        print_hex(x->caller->id, text);
    else
        snprintf(text, CALLER_BYTES, "certificate %s", x->client);
}

/* Two texts become three names: the key and the body under it are secrets, the name of the record is none. */
static void derive(struct wait *wait, const char *key, const char *body)
{
    char record[HEX_BYTES];
    digest(key, strlen(key), wait->key);
    digest(body, strlen(body), wait->keyed.body);
    digest(wait->key, strlen(wait->key), record);
    snprintf(wait->record, sizeof wait->record, RECORD_PREFIX "%s", record);
}

bool keyed_read(struct exchange *x, struct wait *wait, json_t *body)
{
    const struct piece *key = head_field(&x->head, "idempotency-key");
    char caller[CALLER_BYTES], *text = NULL, *all = NULL;
    if (!key)
        return true;
    if (key->len == 0 || key->len > KEY_MAX) {
        answer_problem(x, 400, "invalid", "Idempotency-Key: must have between 1 and 255 bytes", NULL);
        return false;
    }
    print_caller(x, caller);
    char *canonical = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    if (asprintf(&text, "key\n%s\n%.*s", caller, (int)key->len, key->at) < 0)
        text = NULL;
    if (!canonical ||
        asprintf(&all, "body\n%s\n%.*s\n%s\n%s", caller, (int)key->len, key->at, wait->name, canonical) < 0)
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

struct wait *keyed_shared(struct leases *leases, const struct wait *wanted)
{
    for (struct wait *wait = *wanted->key ? leases->waits : NULL; wait; wait = wait->next)
        if (wait->askers && strcmp(wait->key, wanted->key) == 0)
            return wait;
    return NULL;
}

/* ---- Its turn, its record ---- */

/* As long as the engine admits. */
static int64_t bounded_ttl(const struct wait *wait, int64_t ttl)
{
    const char *source;
    const struct server *server = wait->leases->server;
    int64_t most = DAY_MS;
    if (server->redlock == server->engine)
        (void)hf_client_setting(engine_client(server->engine), "max_ttl", &most, &source);
    return ttl < most ? ttl : most;
}

static void start_own(struct wait *wait, const struct hf_request *request)
{
    hf_client *client = engine_client(wait->leases->server->engine);
    wait->outcome = hf_acquire_start(client, request, wait_done, wait, &wait->lease);
    if (wait->outcome == HF_OK) {
        engine_started(wait->leases->server->engine);
        return;
    }
    snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    keyed_done(wait);
}

void keyed_start(struct wait *wait)
{
    char name[sizeof wait->record + sizeof TURN_SUFFIX];
    snprintf(name, sizeof name, "%s" TURN_SUFFIX, wait->record);
    struct hf_request request = {.size = sizeof request,
                                 .name = name,
                                 .flags = HF_AUTO_RENEW,
                                 .ttl_ms = bounded_ttl(wait, TURN_TTL_MS),
                                 .wait_ms = wait->request.wait_ms + TURN_GRACE_MS,
                                 .label = "the turn of an Idempotency-Key"};
    start_own(wait, &request);
}

struct hf_request keyed_record_request(const char *name, const struct keyed *keyed)
{
    return (struct hf_request){.size = sizeof(struct hf_request),
                               .name = name,
                               .flags = HF_DETACHED,
                               .ttl_ms = keyed->record_ms,
                               .label = "an Idempotency-Key",
                               .attempt = keyed->body};
}

/* The record outlives whatever is done under its key. */
static void start_record(struct wait *wait)
{
    int64_t lasts = wait->renews ? wait->request.max_hold_ms : wait->request.ttl_ms;
    wait->keyed.record_ms = bounded_ttl(wait, lasts + wait->request.wait_ms + RECORD_MS);
    struct hf_request request = keyed_record_request(wait->record, &wait->keyed);
    wait->phase = PHASE_RECORD;
    start_own(wait, &request);
}

static void finish_turn(struct wait *wait)
{
    bool taken = wait->outcome == HF_BUSY || wait->outcome == HF_TIMEOUT;
    if (wait->outcome == HF_OK)
        wait->keyed.turn = wait->lease;
    else
        hf_lease_free(wait->lease);
    wait->lease = NULL;
    if (wait->keyed.turn && wait->askers && !wait->leases->server->stopping) {
        start_record(wait);
        return;
    }
    for (struct exchange *x; taken && (x = wait_take_asker(wait));) {
        exchange_field(x, "Retry-After", "1");
        answer_problem(x, 409, "key_in_use", "another request under this Idempotency-Key is under way", NULL);
    }
    wait_refused(wait);
}

static void name_attempt(struct wait *wait)
{
    char text[HEX_BYTES + 24];
    int len = snprintf(text, sizeof text, "%s %llu", wait->key, (unsigned long long)hf_lease_token(wait->keyed.record));
    digest(text, (size_t)len, wait->attempt);
    wait->request.attempt = wait->attempt;
}

void keyed_start_lock(struct wait *wait)
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
        wait->keyed.note = wait->lease;
        wait->lease = granted;
        wait_granted(wait);
        wait_free(wait);
        return;
    }
    hf_lease_free(wait->lease);
    wait->lease = NULL;
    if (wait->outcome == HF_OK)
        wait->outcome = HF_LOST;
    give_back(wait->leases, granted, &wait->keyed, true);
    wait_refused(wait);
}

void keyed_start_note(struct wait *wait)
{
    struct told_note note;
    wait->phase = PHASE_NOTE;
    wait->granted = wait->lease;
    wait->lease = NULL;
    if (told_request(wait, &note)) {
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
        wait->keyed.record = wait->lease;
    else
        hf_lease_free(wait->lease);
    wait->lease = NULL;
    if (outcome == HF_OK && !wait->leases->server->stopping) {
        told_recall(wait);
        return;
    }
    if (outcome == HF_BUSY) {
        for (struct exchange *x; (x = wait_take_asker(wait));)
            answer_problem(x, 422, "key_reused", "this Idempotency-Key was used with another request", NULL);
        wait_free(wait);
        return;
    }
    wait_refused(wait);
}

void keyed_done(struct wait *wait)
{
    if (wait->phase == PHASE_TURN)
        finish_turn(wait);
    else if (wait->phase == PHASE_RECORD)
        finish_record(wait);
    else
        finish_note(wait);
}
