/* granting.c - answers with a lease. It belongs to nobody until such an answer is written; when none can be, it is
 * given back at once. */
#include "kept.h"
#include "lease_id.h"
#include "waits.h"
#include <stdlib.h>
#include <string.h>

/* A lease between its grant and the last answer about it. */
struct grant {
    struct leases *leases;
    hf_lease *lease;
    struct keyed keyed;
    size_t askers;
    bool delivered, told, renews; /* told: an answer had it before */
    char id[LEASE_ID_MAX];
};

static void end_grant(struct grant *grant)
{
    struct leases *leases = grant->leases;
    bool stopping = leases->server->stopping;
    bool nobodys = !grant->delivered && !grant->told;
    leases->server->metrics.undelivered += nobodys;
    bool unwanted = nobodys || (grant->renews && stopping);
    if (!unwanted && (!grant->renews || !kept_add(grant->id, grant->lease)))
        hf_lease_free(grant->lease);
    leases_watch_renewals(leases);
    give_back(leases, unwanted ? grant->lease : NULL, &grant->keyed, nobodys);
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
                          (json_int_t)hf_lease_left_ms(grant->lease), "autoRenew",
                          (int)(wait->told ? kept_has(grant->id) : wait->renews)));
}

static bool print_grant(struct grant *grant)
{
    char exported[HF_EXPORT_MAX];
    bool fine =
        hf_lease_export(grant->lease, exported, sizeof exported) == HF_OK && lease_id_print(exported, grant->id);
    explicit_bzero(exported, sizeof exported);
    return fine;
}

void wait_granted(struct wait *wait)
{
    struct grant *grant = calloc(1, sizeof *grant);
    if (!grant || !wait->askers) {
        if (!wait->askers && !wait->told)
            wait->leases->server->metrics.undelivered++;
        free(grant);
        if (wait->told)
            hf_lease_free(wait->lease);
        give_back(wait->leases, wait->told ? NULL : wait->lease, &wait->keyed, !wait->told);
        for (struct exchange *x; (x = wait_take_asker(wait));)
            answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }
    *grant = (struct grant){.leases = wait->leases,
                            .lease = wait->lease,
                            .keyed = wait->keyed,
                            .told = wait->told,
                            .renews = wait->renews && !wait->told,
                            .askers = 1};
    wait->keyed = (struct keyed){.turn = NULL}; /* the grant's until its answer is written */
    bool fine = print_grant(grant);
    for (struct exchange *x; (x = wait_take_asker(wait));) {
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
