/* leases.c - taking leases over HTTP.
 *
 * A request becomes a `wait`: one acquire that the library runs. Requests with the same Idempotency-Key share one. The
 * grant belongs to nobody until an answer with it is written; when none can be, it is given back at once.
 *
 * An Idempotency-Key becomes the attempt id, so that the engine itself knows the second try for the first, through
 * whatever instance it comes. That the body is the same is kept in the engine too: a record, which is a lease on a name
 * made of caller and key, taken by an attempt made of all that and the body. Another body finds it held.
 *
 * Whoever knows an attempt can release it, so an instance whose client left could take away what another one, asked
 * again under the same key, has just granted. Therefore a key has a turn: a lock that an instance holds from before it
 * asks until its answer is written or its grant is given back. A retry elsewhere waits for that. And an engine may
 * refuse for a while what was given up in doubt, so a try after one that came to nothing needs another attempt: the
 * attempt is made of the key and the token of its record, and the record is taken anew then. */
#include "leases.h"
#include "engine.h"
#include "kept.h"
#include "lease_id.h"
#include "routes.h"
#include <openssl/sha.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MS (INT64_C(10) * 60 * 1000) /* how long a record outlives the wait and the ttl at least */
#define DAY_MS (INT64_C(24) * 3600 * 1000)
#define HEX_BYTES (2 * SHA256_DIGEST_LENGTH + 1)
#define KEY_MAX 255
#define TURN_SUFFIX "/turn"
#define TURN_TTL_MS INT64_C(5000) /* an instance that died holds up a retry for no longer */
#define TURN_GRACE_MS                                                                                                  \
    INT64_C(2000) /* a client that left is noticed within a second: even who does not wait waits so                    \
                   */

struct asker {
    struct exchange *x;
    struct wait *wait;
    struct asker *next;
};

enum phase { PHASE_TURN, PHASE_RECORD, PHASE_LOCK };

/* What a request under an Idempotency-Key has besides its lease. */
struct keyed {
    hf_lease *turn, *record; /* NULL: not yet, or not any more */
    int64_t record_ms;
    char body[HEX_BYTES]; /* caller, key and body: the attempt of the record */
};

struct wait {
    struct leases *leases;
    struct wait *next, *prev;
    struct asker *askers;
    enum phase phase;
    hf_lease *lease;
    int64_t until_ms;          /* the end of what it may wait */
    struct hf_request request; /* its texts are below */
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1], correlation[HF_CORRELATION_MAX + 1];
    bool renews, counted;
    char record[sizeof RECORD_PREFIX + HEX_BYTES]; /* the name of the record */
    char key[HEX_BYTES];                           /* caller and key, a secret; empty: there is none */
    char attempt[HEX_BYTES];                       /* of the lock */
    struct keyed keyed;
    hf_status outcome;
    char words[512];
};

/* A lease between its grant and the last answer about it. */
struct grant {
    struct leases *leases;
    hf_lease *lease;
    struct keyed keyed;
    size_t askers;
    bool delivered, renews;
    char id[LEASE_ID_MAX];
};

struct name_count {
    char name[HF_NAME_MAX + 1];
    size_t count;
};

struct leases {
    struct server *server;
    struct wait *waits;
    size_t waiting; /* those that may wait */
    size_t busy;    /* jobs that give back */
    void *names;    /* struct name_count */
};

/* ---- How many wait ---- */

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct name_count *)left)->name, ((const struct name_count *)right)->name);
}

static struct name_count *count_of(struct leases *leases, const char *name)
{
    struct name_count wanted;
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    struct name_count **found = tfind(&wanted, &leases->names, by_name);
    if (found)
        return *found;
    struct name_count *new = calloc(1, sizeof *new);
    if (!new)
        return NULL;
    memcpy(new->name, wanted.name, sizeof new->name);
    if (tsearch(new, &leases->names, by_name))
        return new;
    free(new);
    return NULL;
}

static void count_wait(struct wait *wait)
{
    struct name_count *count = count_of(wait->leases, wait->name);
    if (wait->request.wait_ms == 0 || !count)
        return;
    wait->counted = true;
    count->count++;
    wait->leases->waiting++;
}

static void uncount_wait(struct wait *wait)
{
    struct name_count *count = wait->counted ? count_of(wait->leases, wait->name) : NULL;
    if (!count)
        return;
    wait->counted = false;
    wait->leases->waiting--;
    if (--count->count > 0)
        return;
    tdelete(count, &wait->leases->names, by_name);
    free(count);
}

static bool may_wait(struct exchange *x, struct wait *wait)
{
    const struct settings *settings = &wait->leases->server->settings;
    struct name_count *count = wait->request.wait_ms != 0 ? count_of(wait->leases, wait->name) : NULL;
    if (wait->request.wait_ms == 0)
        return true;
    bool all = wait->leases->waiting >= (size_t)setting_number(settings, SET_MAX_WAITS);
    bool here = !count || count->count >= (size_t)setting_number(settings, SET_MAX_WAITS_PER_NAME);
    if (!all && !here)
        return true;
    exchange_field(x, "Retry-After", "1");
    if (all)
        answer_problem(x, 503, "too_many_waits", "too many requests wait", NULL);
    else
        answer_problem(x, 429, "too_many_waits", "too many requests wait for this name", NULL);
    return false;
}

/* ---- Giving back ---- */

struct give_back {
    struct job job;
    struct leases *leases;
    hf_lease *lease; /* NULL: only what belongs to the key */
    struct keyed keyed;
    bool again; /* the next try under the key needs another attempt */
};

/* Made to outlive its handle. */
static bool leave_behind(hf_lease *lease)
{
    char text[HF_EXPORT_MAX];
    bool fine = hf_lease_export(lease, text, sizeof text) == HF_OK;
    explicit_bzero(text, sizeof text);
    return fine;
}

static struct hf_request record_request(const char *name, const struct keyed *keyed)
{
    return (struct hf_request){.size = sizeof(struct hf_request),
                               .name = name,
                               .flags = HF_DETACHED,
                               .ttl_ms = keyed->record_ms,
                               .label = "an Idempotency-Key",
                               .attempt = keyed->body};
}

/* The same record under another token. */
static void renew_record(hf_client *client, const struct keyed *keyed)
{
    struct hf_request request = record_request(hf_lease_name(keyed->record), keyed);
    hf_lease *lease = NULL;
    if (hf_release(keyed->record) == HF_OK && hf_acquire(client, &request, &lease) == HF_OK)
        (void)leave_behind(lease);
    hf_lease_free(lease);
}

/* Without its turn an instance does not know whether another one has granted the same attempt meanwhile: then the lease
 * is left to its time. */
static void do_give_back(struct job *job)
{
    struct give_back *give = (struct give_back *)(void *)job;
    hf_lease *turn = give->keyed.turn;
    bool ours = !turn || hf_lease_ok(turn);
    if (give->lease && (ours || !leave_behind(give->lease)))
        (void)hf_release(give->lease);
    if (give->keyed.record && give->again && ours)
        renew_record(engine_client(give->leases->server->engine), &give->keyed);
    if (turn)
        (void)hf_release(turn);
}

static void free_given(const struct give_back *give)
{
    hf_lease_free(give->lease);
    hf_lease_free(give->keyed.record);
    hf_lease_free(give->keyed.turn);
}

static void after_give_back(struct job *job)
{
    struct give_back *give = (struct give_back *)(void *)job;
    free_given(give);
    give->leases->busy--;
    free(give);
}

/* A lease, and what belongs to its key; takes over both. */
static void give_back(struct leases *leases, hf_lease *lease, struct keyed *keyed, bool again)
{
    struct workers *workers = leases->server->workers; /* NULL: at the very end */
    struct give_back given = {{do_give_back, after_give_back, NULL}, leases, lease, *keyed, again};
    struct give_back *give = malloc(sizeof *give);
    bool nothing = !lease && !keyed->turn;
    *keyed = (struct keyed){.turn = NULL};
    if (workers && give && !nothing) {
        *give = given;
        leases->busy++;
        workers_post(workers, &give->job);
        return;
    }
    free(give);
    if (!nothing)
        do_give_back(&given.job);
    free_given(&given);
}

/* ---- Waits and who asks in them ---- */

static void free_wait(struct wait *wait)
{
    struct leases *leases = wait->leases;
    uncount_wait(wait);
    give_back(leases, NULL, &wait->keyed, wait->phase == PHASE_LOCK && wait->outcome != HF_BUSY);
    *(wait->prev ? &wait->prev->next : &leases->waits) = wait->next;
    if (wait->next)
        wait->next->prev = wait->prev;
    free(wait);
}

/* Out of the queue; not without the turn, for then another instance may stand there under the same attempt, or hold. */
static void give_up(struct wait *wait)
{
    if (wait->lease && (!wait->keyed.turn || hf_lease_ok(wait->keyed.turn)))
        hf_cancel(wait->lease);
}

/* The client left: the last one takes the place in the queue along. */
static void on_gone(struct exchange *x)
{
    struct asker *asker = x->work;
    struct wait *wait = asker->wait;
    struct asker **at = &wait->askers;
    while (*at != asker)
        at = &(*at)->next;
    *at = asker->next;
    free(asker);
    x->work = NULL;
    wait->leases->server->metrics.left++;
    if (!wait->askers)
        give_up(wait);
    exchange_answer(x, 499, NULL, NULL, 0);
}

static bool join(struct wait *wait, struct exchange *x)
{
    struct asker *asker = calloc(1, sizeof *asker);
    if (!asker)
        return false;
    *asker = (struct asker){.x = x, .wait = wait, .next = wait->askers};
    wait->askers = asker;
    x->work = asker;
    x->gone = on_gone;
    return true;
}

/* Takes an asker out for its answer. */
static struct exchange *take_asker(struct wait *wait)
{
    struct asker *asker = wait->askers;
    if (!asker)
        return NULL;
    struct exchange *x = asker->x;
    wait->askers = asker->next;
    free(asker);
    x->gone = NULL;
    x->work = NULL;
    return x;
}

/* ---- Granted ---- */

static void end_grant(struct grant *grant)
{
    struct leases *leases = grant->leases;
    bool stopping = leases->server->stopping;
    if (!grant->delivered)
        leases->server->metrics.undelivered++;
    bool unwanted = !grant->delivered || (grant->renews && stopping);
    if (!unwanted && (!grant->renews || !kept_add(grant->id, grant->lease)))
        hf_lease_free(grant->lease);
    give_back(leases, unwanted ? grant->lease : NULL, &grant->keyed, unwanted);
    explicit_bzero(grant->id, sizeof grant->id);
    free(grant);
}

static void on_settled(struct exchange *x, bool delivered)
{
    struct grant *grant = x->work;
    grant->delivered |= delivered;
    if (--grant->askers == 0)
        end_grant(grant);
}

static void answer_granted(struct exchange *x, const struct grant *grant, const struct wait *wait)
{
    char token[24];
    snprintf(token, sizeof token, "%llu", (unsigned long long)hf_lease_token(grant->lease));
    exchange_field(x, "Location", "/v1/leases/%s", grant->id);
    answer_json(x, 201,
                json_pack("{s:s, s:s, s:s, s:s, s:I, s:b}", "leaseId", grant->id, "name", wait->name, "kind",
                          hf_kind_name(wait->request.kind), "token", token, "expiresInMs",
                          (json_int_t)hf_lease_left_ms(grant->lease), "autoRenew", (int)wait->renews));
}

static bool print_grant(struct grant *grant)
{
    char exported[HF_EXPORT_MAX];
    bool fine =
        hf_lease_export(grant->lease, exported, sizeof exported) == HF_OK && lease_id_print(exported, grant->id);
    explicit_bzero(exported, sizeof exported);
    return fine;
}

static void finish_granted(struct wait *wait)
{
    struct grant *grant = calloc(1, sizeof *grant);
    if (!grant || !wait->askers) {
        if (!wait->askers)
            wait->leases->server->metrics.undelivered++;
        free(grant);
        give_back(wait->leases, wait->lease, &wait->keyed, true);
        for (struct exchange *x; (x = take_asker(wait));)
            answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }
    *grant = (struct grant){
        .leases = wait->leases, .lease = wait->lease, .keyed = wait->keyed, .renews = wait->renews, .askers = 1};
    wait->keyed = (struct keyed){.turn = NULL}; /* the grant's until its answer is written */
    bool fine = print_grant(grant);
    for (struct exchange *x; (x = take_asker(wait));) {
        if (!fine) {
            answer_status(x, HF_LOST, NULL, NULL);
            continue;
        }
        grant->askers++;
        x->work = grant;
        x->settled = on_settled;
        answer_granted(x, grant, wait);
    }
    if (--grant->askers == 0)
        end_grant(grant);
}

/* ---- Refused ---- */

struct look {
    struct job job;
    struct wait *wait;
    struct standing standing;
};

static void do_look(struct job *job)
{
    struct look *look = (struct look *)(void *)job;
    struct wait *wait = look->wait;
    standing_read(engine_client(wait->leases->server->engine), wait->name, &look->standing);
}

static void answer_refused(struct wait *wait, struct standing *standing)
{
    for (struct exchange *x; (x = take_asker(wait));) {
        if (wait->leases->server->stopping)
            answer_problem(x, 503, "stopping", "the service stops", NULL);
        else if (standing) {
            json_incref(standing->holder);
            answer_busy(x, standing, wait->words, NULL);
        } else
            answer_status(x, wait->outcome, wait->words, NULL);
    }
}

static void after_look(struct job *job)
{
    struct look *look = (struct look *)(void *)job;
    answer_refused(look->wait, &look->standing);
    json_decref(look->standing.holder);
    look->wait->leases->busy--;
    free_wait(look->wait);
    free(look);
}

static void finish_refused(struct wait *wait)
{
    struct leases *leases = wait->leases;
    bool held = wait->outcome == HF_BUSY || wait->outcome == HF_TIMEOUT;
    struct look *look = held && wait->askers && !leases->server->stopping ? calloc(1, sizeof *look) : NULL;
    uncount_wait(wait);
    if (!look) {
        answer_refused(wait, NULL);
        free_wait(wait);
        return;
    }
    leases->server->metrics.refused++;
    *look = (struct look){.job = {do_look, after_look, NULL}, .wait = wait};
    leases->busy++;
    workers_post(leases->server->workers, &look->job);
}

/* ---- Asking ---- */

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

static void on_done(hf_lease *lease, hf_status outcome, void *arg);

static void lost_lease(hf_lease *lease, hf_status why, void *arg)
{
    (void)why;
    (void)arg;
    kept_drop(lease);
}

static void start_lock(struct wait *wait)
{
    hf_client *client = engine_client(wait->leases->server->engine);
    wait->phase = PHASE_LOCK;
    wait->lease = NULL;
    if (!wait->askers) { /* left while the record was written */
        free_wait(wait);
        return;
    }
    if (wait->request.wait_ms > 0) { /* less what went by before the key's turn came */
        int64_t left = wait->until_ms - clock_ms();
        wait->request.wait_ms = left > 0 ? left : 0;
    }
    wait->outcome = hf_acquire_start(client, &wait->request, on_done, wait, &wait->lease);
    if (wait->outcome == HF_OK)
        return;
    snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    finish_refused(wait);
}

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
    wait->outcome = hf_acquire_start(client, request, on_done, wait, &wait->lease);
    if (wait->outcome == HF_OK)
        return;
    snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    finish_refused(wait);
}

static void start_turn(struct wait *wait)
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

/* The record outlives whatever is done under its key. */
static void start_record(struct wait *wait)
{
    wait->keyed.record_ms = bounded_ttl(wait, wait->request.ttl_ms + wait->request.wait_ms + RECORD_MS);
    struct hf_request request = record_request(wait->record, &wait->keyed);
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
    for (struct exchange *x; taken && (x = take_asker(wait));) {
        exchange_field(x, "Retry-After", "1");
        answer_problem(x, 409, "key_in_use", "another request under this Idempotency-Key is under way", NULL);
    }
    finish_refused(wait);
}

static void name_attempt(struct wait *wait)
{
    char text[HEX_BYTES + 24];
    int len = snprintf(text, sizeof text, "%s %llu", wait->key, (unsigned long long)hf_lease_token(wait->keyed.record));
    digest(text, (size_t)len, wait->attempt);
    wait->request.attempt = wait->attempt;
}

static void finish_record(struct wait *wait)
{
    hf_status outcome = wait->outcome;
    if (outcome == HF_OK && !leave_behind(wait->lease))
        outcome = HF_LOST;
    if (outcome == HF_OK)
        wait->keyed.record = wait->lease;
    else
        hf_lease_free(wait->lease);
    wait->lease = NULL;
    if (outcome == HF_OK && !wait->leases->server->stopping) {
        name_attempt(wait);
        start_lock(wait);
        return;
    }
    if (outcome == HF_BUSY) {
        for (struct exchange *x; (x = take_asker(wait));)
            answer_problem(x, 422, "key_reused", "this Idempotency-Key was used with another request", NULL);
        free_wait(wait);
        return;
    }
    finish_refused(wait);
}

static void on_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct wait *wait = arg;
    wait->lease = lease;
    wait->outcome = outcome;
    if (outcome != HF_OK)
        snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    if (wait->phase != PHASE_LOCK) {
        wait->phase == PHASE_TURN ? finish_turn(wait) : finish_record(wait);
        return;
    }
    if (outcome == HF_OK) {
        finish_granted(wait);
        free_wait(wait);
        return;
    }
    hf_lease_free(lease);
    wait->lease = NULL;
    finish_refused(wait);
}

/* ---- Reading a request ---- */

/* Whose keys these are: the hash of the token, which nobody else knows, or the certificate. */
static void print_caller(const struct exchange *x, char text[HEX_BYTES + 128])
{
    if (x->caller)
        print_hex(x->caller->id, text);
    else
        snprintf(text, HEX_BYTES + 128, "certificate %s", x->client);
}

static bool use_key(struct exchange *x, struct wait *wait, json_t *body)
{
    const struct piece *key = head_field(&x->head, "idempotency-key");
    char caller[HEX_BYTES + 128], *text = NULL, *plain = NULL;
    if (!key)
        return true;
    if (key->len == 0 || key->len > KEY_MAX) {
        answer_problem(x, 400, "invalid", "Idempotency-Key: must have between 1 and 255 bytes", NULL);
        return false;
    }
    print_caller(x, caller);
    char *canonical = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    int len = asprintf(&text, "key\n%s\n%.*s", caller, (int)key->len, key->at);
    int all = asprintf(&plain, "body\n%s\n%.*s\n%s\n%s", caller, (int)key->len, key->at, wait->name,
                       canonical ? canonical : "");
    bool fine = canonical && len > 0 && all > 0;
    if (fine) {
        char record[HEX_BYTES];
        digest(text, (size_t)len, wait->key);
        digest(plain, (size_t)all, wait->keyed.body);
        digest(wait->key, strlen(wait->key), record); /* the key is a secret, a name is none */
        snprintf(wait->record, sizeof wait->record, RECORD_PREFIX "%s", record);
    } else {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
    }
    free(canonical);
    free(len > 0 ? text : NULL);
    free(all > 0 ? plain : NULL);
    return fine;
}

static bool read_kind(struct exchange *x, json_t *body, struct hf_request *request)
{
    const char *word;
    int64_t units, capacity;
    if (!read_text(x, body, "kind", &word) || !read_whole(x, body, "units", 1, HF_CAPACITY_MAX, 0, &units) ||
        !read_whole(x, body, "capacity", 1, HF_CAPACITY_MAX, 0, &capacity))
        return false;
    request->units = (uint32_t)units;
    request->capacity = (uint32_t)capacity;
    request->kind = capacity > 0 ? HF_SEMAPHORE : HF_EXCLUSIVE;
    if (!word)
        return true;
    for (hf_kind kind = HF_EXCLUSIVE; kind <= HF_WRITE; kind++)
        if (strcmp(word, hf_kind_name(kind)) == 0) {
            request->kind = kind;
            return true;
        }
    answer_problem(x, 400, "invalid", "kind: must be exclusive, semaphore, read or write", NULL);
    return false;
}

static bool read_renewal(struct exchange *x, json_t *body, struct wait *wait)
{
    json_t *renews = json_object_get(body, "autoRenew");
    if (renews && !json_is_boolean(renews) && !json_is_null(renews)) {
        answer_problem(x, 400, "invalid", "autoRenew: must be true or false", NULL);
        return false;
    }
    wait->renews = json_is_true(renews);
    if (!wait->renews)
        return true;
    wait->request.flags |= HF_AUTO_RENEW;
    wait->request.max_hold_ms = setting_number(&wait->leases->server->settings, SET_MAX_HOLD);
    wait->request.on_lost = lost_lease;
    return true;
}

static bool read_label(struct exchange *x, json_t *body, struct wait *wait)
{
    const char *label;
    if (!read_text(x, body, "label", &label))
        return false;
    if (!label && x->caller)
        label = x->caller->name;
    if (label && strlen(label) > HF_LABEL_MAX) {
        answer_problem(x, 400, "invalid", "label: is too long", NULL);
        return false;
    }
    snprintf(wait->label, sizeof wait->label, "%s", label ? label : "");
    wait->request.label = *wait->label ? wait->label : NULL;
    return true;
}

static bool read_times(struct exchange *x, json_t *body, struct wait *wait)
{
    const char *source;
    struct server *server = wait->leases->server;
    int64_t most = setting_number(&server->settings, SET_MAX_WAIT), ttl = 0;
    (void)hf_client_setting(engine_client(server->engine), "ttl", &ttl, &source);
    return read_whole(x, body, "ttlMs", 1, DAY_MS, ttl, &wait->request.ttl_ms) &&
           read_whole(x, body, "waitMs", 0, most, 0, &wait->request.wait_ms);
}

static bool read_request(struct exchange *x, struct wait *wait, json_t *body)
{
    static const char *const known[] = {"name",     "ttlMs",     "waitMs", "kind", "units",
                                        "capacity", "autoRenew", "label",  NULL};
    wait->request = (struct hf_request){.size = sizeof wait->request, .name = wait->name, .flags = HF_DETACHED};
    if (!check_members(x, body, known) || !read_times(x, body, wait) || !read_kind(x, body, &wait->request) ||
        !read_renewal(x, body, wait) || !read_label(x, body, wait))
        return false;
    if (strncmp(wait->name, RECORD_PREFIX, strlen(RECORD_PREFIX)) == 0) {
        answer_problem(x, 403, "forbidden", "names that begin like this are the service's own", NULL);
        return false;
    }
    correlation_of(x, wait->correlation);
    wait->request.correlation_id = wait->correlation;
    return use_key(x, wait, body);
}

/* The wait under the same key, if this instance has one. */
static struct wait *find_shared(struct leases *leases, const struct wait *wanted)
{
    for (struct wait *wait = *wanted->key ? leases->waits : NULL; wait; wait = wait->next)
        if (wait->askers && strcmp(wait->key, wanted->key) == 0)
            return wait;
    return NULL;
}

static void begin(struct exchange *x, struct wait *wait)
{
    struct leases *leases = wait->leases;
    struct wait *shared = find_shared(leases, wait);
    if (shared) {
        if (strcmp(shared->keyed.body, wait->keyed.body) != 0)
            answer_problem(x, 422, "key_reused", "this Idempotency-Key was used with another request", NULL);
        else if (!join(shared, x))
            answer_status(x, HF_NO_MEMORY, NULL, NULL);
        free(wait);
        return;
    }
    if (!may_wait(x, wait)) {
        free(wait);
        return;
    }
    if (!join(wait, x)) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        free(wait);
        return;
    }
    wait->next = leases->waits;
    if (wait->next)
        wait->next->prev = wait;
    leases->waits = wait;
    count_wait(wait);
    wait->until_ms = clock_ms() + wait->request.wait_ms;
    if (*wait->key)
        start_turn(wait);
    else
        start_lock(wait);
}

static void ask(struct exchange *x, json_t *body, const char *name)
{
    struct server *server = server_of(x);
    struct wait *wait = calloc(1, sizeof *wait);
    if (server->stopping)
        answer_problem(x, 503, "stopping", "the service stops", NULL);
    else if (!wait)
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
    else {
        wait->leases = server->leases;
        snprintf(wait->name, sizeof wait->name, "%s", name);
        if (read_request(x, wait, body))
            begin(x, wait);
        else
            free(wait);
        return;
    }
    free(wait);
}

void leases_post_named(struct exchange *x)
{
    char name[HF_NAME_MAX + 1];
    json_t *body = NULL;
    if (!read_name(x, 0, RIGHT_ACQUIRE, name) || !(body = read_body(x)))
        return;
    if (json_object_get(body, "name"))
        answer_problem(x, 400, "invalid", "name: stands in the target already", NULL);
    else
        ask(x, body, name);
    json_decref(body);
}

void leases_post(struct exchange *x)
{
    const char *name;
    json_t *body = read_body(x);
    if (!body)
        return;
    if (!read_text(x, body, "name", &name)) {
        json_decref(body);
        return;
    }
    if (!name || strlen(name) > HF_NAME_MAX)
        answer_problem(x, 400, "invalid", "name: must have between 1 and 512 bytes", NULL);
    else if (!access_allows(x->caller, RIGHT_ACQUIRE, name))
        answer_problem(x, 403, "forbidden", "this token may not touch that name", NULL);
    else
        ask(x, body, name);
    json_decref(body);
}

/* ---- As a whole ---- */

struct leases *leases_new(struct server *server)
{
    struct leases *leases = calloc(1, sizeof *leases);
    if (leases)
        leases->server = server;
    return leases;
}

void leases_free(struct leases *leases)
{
    if (!leases)
        return;
    tdestroy(leases->names, free);
    free(leases);
}

static void release_kept(void *arg, hf_lease *lease)
{
    struct keyed none = {.turn = NULL};
    give_back(arg, lease, &none, false);
}

void leases_stop(struct leases *leases)
{
    for (struct wait *wait = leases->waits; wait; wait = wait->next)
        if (wait->lease)
            hf_cancel(wait->lease);
    kept_take_all(release_kept, leases);
}

size_t leases_waiting(const struct leases *leases)
{
    return leases->waiting;
}

bool leases_idle(const struct leases *leases)
{
    return !leases->waits && leases->busy == 0;
}
