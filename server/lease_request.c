/* lease_request.c - what the body of a request for a lease says. */
#include "engine.h"
#include "kept.h"
#include "waits.h"
#include <string.h>

static void lost_lease(hf_lease *lease, hf_status why, void *arg)
{
    (void)why;
    (void)arg;
    kept_drop(lease);
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

bool wait_read(struct exchange *x, struct wait *wait, json_t *body)
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
    return keyed_read(x, wait, body);
}
