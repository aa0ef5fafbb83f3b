/* leases.c - taking leases over HTTP: a request becomes a `wait`, one acquire that the library runs. Requests with the
 * same Idempotency-Key share one. waits.h names the files that belong to this. */
#include "leases.h"
#include "engine.h"
#include "kept.h"
#include "routes.h"
#include "waits.h"
#include <stdlib.h>
#include <string.h>

#define RENEWALS_LOOK_MS 100

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
    for (struct exchange *x; (x = wait_take_asker(wait));) {
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
    wait_free(look->wait);
    free(look);
}

void wait_refused(struct wait *wait)
{
    struct leases *leases = wait->leases;
    bool held = wait->outcome == HF_BUSY || wait->outcome == HF_TIMEOUT;
    struct look *look = held && wait->askers && !leases->server->stopping ? calloc(1, sizeof *look) : NULL;
    wait_uncount(wait);
    if (!look) {
        answer_refused(wait, NULL);
        wait_free(wait);
        return;
    }
    leases->server->metrics.refused++;
    *look = (struct look){.job = {do_look, after_look, NULL}, .wait = wait};
    leases->busy++;
    engine_ask(leases->server->engine, leases->server->workers, &look->job);
}

/* ---- Asking ---- */

void wait_start_lock(struct wait *wait)
{
    hf_client *client = engine_client(wait->leases->server->engine);
    wait->phase = PHASE_LOCK;
    wait->lease = NULL;
    if (!wait->askers) { /* left while the record was written */
        wait_free(wait);
        return;
    }
    if (wait->request.wait_ms > 0) { /* less what went by before the key's turn came */
        int64_t left = wait->until_ms - clock_ms();
        wait->request.wait_ms = left > 0 ? left : 0;
    }
    wait->outcome = hf_acquire_start(client, &wait->request, wait_done, wait, &wait->lease);
    if (wait->outcome == HF_OK) {
        engine_started(wait->leases->server->engine);
        return;
    }
    snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    wait_refused(wait);
}

void wait_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct wait *wait = arg;
    wait->lease = lease;
    wait->outcome = outcome;
    if (outcome != HF_OK)
        snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    if (wait->phase != PHASE_LOCK) {
        keyed_done(wait);
        return;
    }
    if (outcome == HF_OK && *wait->key && wait->askers) {
        keyed_start_note(wait);
        return;
    }
    if (outcome == HF_OK) {
        wait_granted(wait);
        wait_free(wait);
        return;
    }
    hf_lease_free(lease);
    wait->lease = NULL;
    wait_refused(wait);
}

static void begin(struct exchange *x, struct wait *wait)
{
    struct leases *leases = wait->leases;
    struct wait *shared = keyed_shared(leases, wait);
    if (shared) {
        if (strcmp(shared->keyed.body, wait->keyed.body) != 0)
            answer_problem(x, 422, "key_reused", "this Idempotency-Key was used with another request", NULL);
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
        keyed_start(wait);
    else
        wait_start_lock(wait);
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
        if (wait_read(x, wait, body))
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

static void note_renewal(void *arg, int64_t slack_ms)
{
    struct metrics *metrics = arg;
    metrics->renewed++;
    histogram_note(&metrics->renew_slack, (double)slack_ms / 1000);
}

/* The library renews without a word, so the leases are looked at. */
static void on_renewals(evutil_socket_t fd, short what, void *arg)
{
    struct leases *leases = arg;
    (void)fd;
    (void)what;
    kept_renewed(note_renewal, &leases->server->metrics);
    leases_watch_renewals(leases);
}

void leases_watch_renewals(struct leases *leases)
{
    struct timeval time = {.tv_usec = RENEWALS_LOOK_MS * 1000};
    if (kept_count() > 0 && !event_pending(leases->renewals, EV_TIMEOUT, NULL))
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

static void release_kept(void *arg, hf_lease *lease)
{
    struct keyed none = {.turn = NULL};
    give_back(arg, lease, &none, false);
}

void leases_stop(struct leases *leases)
{
    for (struct wait *wait = leases->waits; wait; wait = wait->next)
        wait_cancel(wait);
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
