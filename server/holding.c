/* holding.c - what clients do with a lease that they have: ask, extend, release. Any instance can: the id has all that
 * is needed, and the truth is in the engine. */
#include "engine.h"
#include "kept.h"
#include "lease_id.h"
#include "routes.h"
#include <stdlib.h>
#include <string.h>

enum deed { DEED_ASK, DEED_EXTEND, DEED_RELEASE };

struct holding {
    struct job job;
    struct exchange *x;
    struct server *server;
    enum deed deed;
    struct kept *kept; /* NULL: the handle is made for this */
    char text[HF_EXPORT_MAX];
    int64_t ttl_ms, slack_ms, left_ms, took_ms;
    hf_status status;
    bool forbidden;
    uint64_t token;
    char name[HF_NAME_MAX + 1], words[512];
};

static void act(struct holding *h, hf_lease *lease)
{
    snprintf(h->name, sizeof h->name, "%s", hf_lease_name(lease));
    h->token = hf_lease_token(lease);
    h->slack_ms = hf_lease_left_ms(lease);
    h->forbidden = !access_allows(h->x->caller, h->x->route->right, h->name);
    if (h->forbidden)
        return;
    if (h->deed == DEED_EXTEND)
        h->status = hf_extend(lease, h->ttl_ms);
    else if (h->deed == DEED_RELEASE)
        h->status = hf_release(lease);
    else
        h->status = hf_lease_ok(lease) ? HF_OK : HF_LOST;
    h->left_ms = hf_lease_left_ms(lease);
}

static void work(struct job *job)
{
    struct holding *h = (struct holding *)(void *)job;
    hf_lease *lease = NULL;
    int64_t began = clock_ms();
    if (h->kept) {
        act(h, kept_lease(h->kept));
    } else {
        h->status = hf_lease_attach(engine_client(h->server->engine), h->text, &lease);
        if (h->status == HF_OK)
            act(h, lease);
    }
    if (h->status != HF_OK)
        snprintf(h->words, sizeof h->words, "%s", hf_error_text());
    hf_lease_free(lease);
    h->took_ms = clock_ms() - began;
}

/* Its client comes too late: worth a line, once. */
static void note_expired(const struct holding *h)
{
    char correlation[HF_CORRELATION_MAX + 1];
    if (!metrics_expired(&h->server->metrics, h->text))
        return;
    correlation_of(h->x, correlation);
    const struct log_field fields[] = {{"text", h->words, 0}, /* has name and token */
                                       {"outcome", hf_status_name(h->status), 0},
                                       {"correlation_id", correlation, 0}};
    log_event(h->server->log_form, "expired_before_release", fields, sizeof fields / sizeof fields[0]);
}

static void note(const struct holding *h)
{
    struct metrics *metrics = &h->server->metrics;
    histogram_note(&metrics->round_trip, (double)h->took_ms / 1000);
    if ((h->status == HF_LOST || h->status == HF_NOT_HELD) && h->deed != DEED_ASK)
        note_expired(h);
    if (h->status != HF_OK || h->deed == DEED_ASK)
        return;
    if (h->deed == DEED_EXTEND)
        histogram_note(&metrics->renew_slack, (double)h->slack_ms / 1000);
    else
        metrics_released(metrics, h->text, h->token);
}

static void answer(struct holding *h)
{
    char token[24];
    bool lost = h->status == HF_LOST || h->status == HF_NOT_HELD;
    snprintf(token, sizeof token, "%llu", (unsigned long long)h->token);
    if (h->forbidden)
        answer_problem(h->x, 403, "forbidden", "this token may not touch that name", NULL);
    else if (h->status == HF_INVALID && h->token == 0)
        answer_problem(h->x, 404, "not_found", "that is not the id of a lease", NULL);
    else if (lost)
        answer_problem(h->x, 410, "lost", h->words, NULL);
    else if (h->status != HF_OK)
        answer_status(h->x, h->status, h->words, NULL);
    else if (h->deed == DEED_RELEASE)
        exchange_answer(h->x, 204, NULL, NULL, 0);
    else
        answer_json(
            h->x, 200,
            json_pack("{s:s, s:s, s:I}", "name", h->name, "token", token, "expiresInMs", (json_int_t)h->left_ms));
}

static void done(struct job *job)
{
    struct holding *h = (struct holding *)(void *)job;
    bool ended = h->status == HF_LOST || h->status == HF_NOT_HELD || (h->deed == DEED_RELEASE && h->status == HF_OK);
    note(h);
    answer(h);
    if (h->kept)
        kept_leave(h->kept, ended);
    explicit_bzero(h->text, sizeof h->text);
    free(h);
}

static void post(struct exchange *x, enum deed deed, int64_t ttl_ms)
{
    struct holding *h = calloc(1, sizeof *h);
    struct piece id = x->arguments[0];
    if (!h) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }
    *h = (struct holding){.job = {work, done, NULL}, .x = x, .server = server_of(x), .deed = deed, .ttl_ms = ttl_ms};
    if (!lease_id_read(id.at, id.len, h->text)) {
        free(h);
        answer_problem(x, 404, "not_found", "that is not the id of a lease", NULL);
        return;
    }
    h->kept = kept_enter(id.at, id.len);
    engine_ask(h->server->engine, h->server->workers, &h->job);
}

void leases_get(struct exchange *x)
{
    post(x, DEED_ASK, 0);
}

void leases_patch(struct exchange *x)
{
    static const char *const known[] = {"ttlMs", NULL};
    int64_t ttl_ms;
    json_t *body = read_body(x);
    if (!body)
        return;
    if (check_members(x, body, known) && read_whole(x, body, "ttlMs", 1, INT64_C(86400000), 0, &ttl_ms))
        post(x, DEED_EXTEND, ttl_ms);
    json_decref(body);
}

void leases_delete(struct exchange *x)
{
    post(x, DEED_RELEASE, 0);
}
