/* leases.c - acquires leases over HTTP. A request becomes a `wait`, one acquire of the library.
 * Requests with the same Idempotency-Key share one. pending_acquires.h names the other files. */
#include "leases.h"
#include "auto_renew.h"
#include "lease_ledger.h"
#include "lock_client.h"
#include "pending_acquires.h"
#include "routes.h"
#include <stdlib.h>
#include <string.h>

#define RENEWALS_POLL_MS 100

bool is_own_name(const char *name)
{
    return strncmp(name, RECORD_PREFIX, strlen(RECORD_PREFIX)) == 0;
}

void answer_own_name(struct exchange *x)
{
    answer_problem(x, 403, "forbidden",
                   "names that begin with " RECORD_PREFIX " belong to the service", NULL);
}

/* ---- Refused ---- */

struct poll {
    struct job job;
    struct wait *wait;
    struct lock_state lock_state;
};

static void do_poll(struct job *job)
{
    struct poll *poll = (struct poll *)(void *)job;
    struct wait *wait = poll->wait;
    uint32_t needed = wait->request.kind == HF_WRITE ? HF_CAPACITY_MAX : wait->request.units;
    lock_state_read(lock_client_client(wait->leases->server->engine), wait->name,
                    needed ? needed : 1, &poll->lock_state);
}

static void answer_refused(struct wait *wait, struct lock_state *lock_state)
{
    for (struct exchange *x; (x = wait_take_requester(wait));) {
        if (wait->leases->server->stopping)
            answer_problem(x, 503, "stopping", "the service is stopping", NULL);
        else if (lock_state) {
            json_incref(lock_state->holder);
            answer_busy(x, lock_state, wait->message, NULL);
        } else
            answer_status(x, wait->outcome, wait->message, NULL);
    }
}

static void after_poll(struct job *job)
{
    struct poll *poll = (struct poll *)(void *)job;

    answer_refused(poll->wait, &poll->lock_state);
    json_decref(poll->lock_state.holder);
    poll->wait->leases->busy--;
    wait_free(poll->wait);
    free(poll);
}

void wait_refused(struct wait *wait)
{
    struct leases *leases = wait->leases;
    bool held = wait->outcome == HF_BUSY || wait->outcome == HF_TIMEOUT;

    struct poll *poll =
        held && wait->requesters && !leases->server->stopping ? calloc(1, sizeof *poll) : NULL;
    wait_uncount(wait);
    if (!poll) {
        answer_refused(wait, NULL);
        wait_free(wait);
        return;
    }

    leases->server->metrics.refused++;
    *poll = (struct poll){.job = {do_poll, after_poll, NULL}, .wait = wait};
    leases->busy++;
    lock_client_do(leases->server->engine, leases->server->workers, &poll->job);
}

/* ---- Asking ---- */

void wait_start_lock(struct wait *wait)
{
    hf_client *client = lock_client_client(wait->leases->server->engine);

    wait->phase = PHASE_LOCK;
    wait->lease = NULL;
    if (!wait->requesters) { /* all clients left while the record was being written */
        wait_free(wait);
        return;
    }

    /* subtracts the time spent waiting for the key's lock */
    if (wait->request.wait_ms > 0) {
        int64_t left = wait->until_ms - clock_ms();
        wait->request.wait_ms = left > 0 ? left : 0;
    }
    wait->outcome = hf_acquire_start(client, &wait->request, wait_done, wait, &wait->lease);
    if (wait->outcome == HF_OK) {
        lock_client_started(wait->leases->server->engine);
        return;
    }

    snprintf(wait->message, sizeof wait->message, "%s", hf_error_text());
    wait_refused(wait);
}

static void note_grant(struct wait *wait)
{
    char text[HF_EXPORT_MAX];
    struct lease_ledger *ledger = wait->leases->server->ledger;
    bool has_text = hf_lease_export(wait->lease, text, sizeof text) == HF_OK;

    wait->granted_ms = wall_ms();
    uint64_t key = lease_ledger_add(ledger, has_text ? text : NULL, wait->lease, &wait->request);
    if (!has_text) /* it was lost before this instance heard of it */
        lease_ledger_end(lease_ledger_find_key(ledger, key), END_EXPIRED);
    explicit_bzero(text, sizeof text);
}

static void take_grant(struct wait *wait)
{
    note_grant(wait);
    bool needs_note = *wait->key && wait->requesters;
    if (needs_note) {
        idempotency_start_note(wait);
        return;
    }
    wait_granted(wait);
    wait_free(wait);
}

/* If the lease was lost, it has no text any more, and the answer says so. */
static void on_confirmed(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease;
    (void)outcome;
    take_grant(arg);
}

/* A handoff on a server is short until its new holder confirms it. The client must get the ttl that
 * it asked for: it renews at a third of it. Returns false if there is nothing to wait for. */
static bool start_confirming(struct wait *wait)
{
    bool is_short = hf_lease_left_ms(wait->lease) < wait->request.ttl_ms / 2;

    if (!is_short || !wait->requesters ||
        hf_extend_start(wait->lease, 0, on_confirmed, wait) != HF_OK)
        return false;
    lock_client_started(wait->leases->server->engine);
    return true;
}

void wait_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct wait *wait = arg;

    wait->lease = lease;
    wait->outcome = outcome;
    if (outcome != HF_OK)
        snprintf(wait->message, sizeof wait->message, "%s", hf_error_text());
    if (wait->phase != PHASE_LOCK) {
        idempotency_done(wait);
        return;
    }

    if (outcome == HF_OK) {
        if (!start_confirming(wait))
            take_grant(wait);
        return;
    }

    hf_lease_free(lease);
    wait->lease = NULL;
    wait_refused(wait);
}

static void begin(struct exchange *x, struct wait *wait)
{
    struct leases *leases = wait->leases;
    struct wait *shared = idempotency_shared(leases, wait);

    if (shared) {
        if (strcmp(shared->idempotency.body, wait->idempotency.body) != 0)
            answer_problem(x, 422, "key_reused",
                           "this Idempotency-Key was used with another request", NULL);
        else if (!wait_join(shared, x))
            answer_status(x, HF_NO_MEMORY, NULL, NULL);
        free(wait);
        return;
    }
    if (!wait_may(x, wait)) {
        free(wait);
        return;
    }
    if (!wait_join(wait, x)) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        free(wait);
        return;
    }

    wait->next = leases->waits;
    if (wait->next)
        wait->next->prev = wait;
    leases->waits = wait;
    wait_count(wait);
    wait->until_ms = clock_ms() + wait->request.wait_ms;
    if (*wait->key)
        idempotency_start(wait);
    else
        wait_start_lock(wait);
}

static void request_lease(struct exchange *x, json_t *body, const char *name)
{
    struct server *server = server_of(x);
    struct wait *wait = calloc(1, sizeof *wait);

    if (server->stopping)
        answer_problem(x, 503, "stopping", "the service is stopping", NULL);
    else if (!wait)
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
    else {
        wait->leases = server->leases;
        snprintf(wait->name, sizeof wait->name, "%s", name);
        if (wait_read(x, wait, body))
            begin(x, wait);
        else
            free(wait);
        return;
    }

    free(wait);
}

void route_acquire(struct exchange *x)
{
    char name[HF_NAME_MAX + 1];
    json_t *body = NULL;

    if (!read_name(x, 0, RIGHT_ACQUIRE, name) || !(body = read_body(x)))
        return;
    if (json_object_get(body, "name"))
        answer_problem(x, 400, "invalid", "name: is already given in the path", NULL);
    else
        request_lease(x, body, name);

    json_decref(body);
}

void route_acquire_named(struct exchange *x)
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
    else if (!auth_allows(x->caller, RIGHT_ACQUIRE, name))
        answer_problem(x, 403, "forbidden", "the token may not use this name", NULL);
    else
        request_lease(x, body, name);

    json_decref(body);
}

/* ---- As a whole ---- */

static void note_renewal(void *arg, int64_t slack_ms)
{
    struct metrics *metrics = arg;
    metrics->renewed++;
    histogram_note(&metrics->renew_slack, (double)slack_ms / 1000);
}

/* Finds renewals by checking the end times of the leases, because the library does not report
 * renewals to the loop. */
static void on_renewals(evutil_socket_t fd, short what, void *arg)
{
    struct leases *leases = arg;
    (void)fd;
    (void)what;
    auto_renew_renewed(note_renewal, &leases->server->metrics);
    leases_watch_renewals(leases);
}

void leases_watch_renewals(struct leases *leases)
{
    struct timeval time = {.tv_usec = RENEWALS_POLL_MS * 1000};
    if (auto_renew_count() > 0 && !event_pending(leases->renewals, EV_TIMEOUT, NULL))
        event_add(leases->renewals, &time);
}

struct leases *leases_new(struct server *server)
{
    struct leases *leases = calloc(1, sizeof *leases);
    struct event *renewals = leases ? event_new(server->base, -1, 0, on_renewals, leases) : NULL;

    if (!renewals) {
        free(leases);
        return NULL;
    }
    *leases = (struct leases){.server = server, .renewals = renewals};
    return leases;
}

void leases_free(struct leases *leases)
{
    if (!leases)
        return;
    event_free(leases->renewals);
    wait_counts_free(leases);
    free(leases);
}

static void release_auto_renewed(void *arg, hf_lease *lease)
{
    struct idempotency none = {.key_lock = NULL};
    release_job(arg, lease, &none, false);
}

void leases_stop(struct leases *leases)
{
    for (struct wait *wait = leases->waits; wait; wait = wait->next)
        wait_cancel(wait);
    auto_renew_take_all(release_auto_renewed, leases);
}

size_t leases_waiting(const struct leases *leases)
{
    return leases->waiting;
}

bool leases_idle(const struct leases *leases)
{
    return !leases->waits && leases->busy == 0;
}
