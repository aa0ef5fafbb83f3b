/* grant_response.c - answers with a lease. If no such answer can be written, the lease is
 * released at once. */
#include "auto_renew.h"
#include "lease_id.h"
#include "pending_acquires.h"
#include <stdlib.h>
#include <string.h>

/* A lease between its grant and the last answer that carries it. */
struct grant {
    struct leases *leases;
    hf_lease *lease;
    struct idempotency idempotency;
    size_t requesters;
    bool delivered, replayed, renews; /* replayed: an earlier answer carried the lease */
    char id[LEASE_ID_MAX];
};

static void end_grant(struct grant *grant)
{
    struct leases *leases = grant->leases;
    bool stopping = leases->server->stopping;
    bool nobodys = !grant->delivered && !grant->replayed;

    leases->server->metrics.undelivered += nobodys;
    bool unwanted = nobodys || (grant->renews && stopping);
    bool is_kept = !unwanted && grant->renews && auto_renew_add(grant->id, grant->lease);
    if (!unwanted && !is_kept)
        hf_lease_free(grant->lease);
    leases_watch_renewals(leases);
    release_job(leases, unwanted ? grant->lease : NULL, &grant->idempotency, nobodys);
    explicit_bzero(grant->id, sizeof grant->id);
    free(grant);
}

static void on_settled(struct exchange *x, bool delivered)
{
    struct grant *grant = x->work;
    grant->delivered |= delivered;
    if (--grant->requesters == 0)
        end_grant(grant);
}

#define LEASES_PATH "/v1/leases/"
enum { ANSWER_MAX = LEASE_ID_MAX + 6 * HF_NAME_MAX + 256 }; /* a character escaped has six bytes */

static void answer_granted(struct exchange *x, const struct grant *grant, const struct wait *wait)
{
    char token[DIGITS_MAX], location[sizeof LEASES_PATH + LEASE_ID_MAX], text[ANSWER_MAX];
    struct flat_json json = flat_json_begin(text, sizeof text);

    digits_print(hf_lease_token(grant->lease), token);
    flat_json_text(&json, "leaseId", grant->id);
    flat_json_text(&json, "name", wait->name);
    flat_json_text(&json, "kind", hf_kind_name(wait->request.kind));
    flat_json_text(&json, "token", token);
    flat_json_number(&json, "expiresInMs", hf_lease_left_ms(grant->lease));
    flat_json_bool(&json, "autoRenew", wait->replayed ? auto_renew_has(grant->id) : wait->renews);
    strcpy(location, LEASES_PATH);
    strcpy(location + strlen(LEASES_PATH), grant->id);
    exchange_field(x, "Location", location);
    answer_flat_json(x, 201, &json);
}

static bool print_grant(struct grant *grant, const struct wait *wait)
{
    char exported[HF_EXPORT_MAX];
    bool fine = hf_lease_export(grant->lease, exported, sizeof exported) == HF_OK &&
                lease_id_print(exported, wait->granted_ms, grant->id);

    explicit_bzero(exported, sizeof exported);

    return fine;
}

void wait_granted(struct wait *wait)
{
    struct grant *grant = calloc(1, sizeof *grant);

    if (!grant || !wait->requesters) {
        if (!wait->requesters && !wait->replayed)
            wait->leases->server->metrics.undelivered++;
        free(grant);
        if (wait->replayed)
            hf_lease_free(wait->lease);
        release_job(wait->leases, wait->replayed ? NULL : wait->lease, &wait->idempotency,
                    !wait->replayed);
        for (struct exchange *x; (x = wait_take_requester(wait));)
            answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }

    *grant = (struct grant){.leases = wait->leases,
                            .lease = wait->lease,
                            .idempotency = wait->idempotency,
                            .replayed = wait->replayed,
                            .renews = wait->renews && !wait->replayed,
                            .requesters = 1};
    /* from here on the grant owns the key's lock, until its answer is written */
    wait->idempotency = (struct idempotency){.key_lock = NULL};
    bool fine = print_grant(grant, wait);
    for (struct exchange *x; (x = wait_take_requester(wait));) {
        if (!fine) {
            answer_status(x, HF_LOST, NULL, NULL);
            continue;
        }
        grant->requesters++;
        x->work = grant;
        x->settled = on_settled;
        answer_granted(x, grant, wait);
    }

    if (--grant->requesters == 0)
        end_grant(grant);
}
