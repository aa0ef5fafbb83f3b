/* lease_request.c - reads the body of a request for a lease. */
#include "auto_renew.h"
#include "caller_label.h"
#include "lock_client.h"
#include "pending_acquires.h"
#include <stdlib.h>
#include <string.h>

static void lost_lease(hf_lease *lease, hf_status why, void *arg)
{
    (void)arg;
    (void)why;
    auto_renew_drop(lease);
}

static bool read_kind(struct exchange *x, json_t *body, struct hf_request *request)
{
    const char *word;
    int64_t units, capacity;

    bool is_invalid = !read_text(x, body, "kind", &word) ||
                      !read_whole(x, body, "units", 1, HF_CAPACITY_MAX, 0, &units) ||
                      !read_whole(x, body, "capacity", 1, HF_CAPACITY_MAX, 0, &capacity);
    if (is_invalid)
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

    bool is_invalid = renews && !json_is_boolean(renews) && !json_is_null(renews);
    if (is_invalid) {
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

    if (label && strlen(label) > HF_LABEL_MAX) {
        char message[64];
        snprintf(message, sizeof message, "label: must have at most %d bytes", HF_LABEL_MAX);
        answer_problem(x, 400, "invalid", message, NULL);
        return false;
    }

    caller_label_print(label ? label : "", caller_name(x), wait->label);
    wait->request.label = *wait->label ? wait->label : NULL;

    return true;
}

static bool is_owner(const char *text)
{
    size_t len = strlen(text);

    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool is_c1 = *c == 0xc2 && c[1] < 0xa0;
        bool is_control = *c < 0x20 || *c == 0x7f || is_c1;
        if (is_control)
            return false;
    }

    return len >= 1 && len <= OWNER_MAX;
}

/* If callers are identified, an owner belongs to its caller: the same name from another caller
 * is another owner. */
static bool print_owner(const struct exchange *x, const char *owner, char text[OWNER_MAX + 1])
{
    char caller[CALLER_BYTES], *both = NULL;

    if (!x->caller && !*x->client) {
        strcpy(text, owner);
        return true;
    }

    caller_print(x, caller);
    int len = asprintf(&both, "owner\n%s\n%s", caller, owner);
    if (len < 0)
        return false;

    hex_digest(both, (size_t)len, text);
    free(both);

    return true;
}

static bool read_owner(struct exchange *x, json_t *body, struct wait *wait)
{
    const char *owner;

    if (!read_text(x, body, "owner", &owner))
        return false;
    if (!owner)
        return true;
    if (!is_owner(owner)) {
        answer_problem(x, 400, "invalid",
                       "owner: must have between 1 and 64 bytes and no control character", NULL);
        return false;
    }
    if (!print_owner(x, owner, wait->owner)) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return false;
    }

    wait->request.owner = wait->owner;

    return true;
}

static bool read_times(struct exchange *x, json_t *body, struct wait *wait)
{
    const char *source;
    struct server *server = wait->leases->server;
    int64_t most = setting_number(&server->settings, SET_MAX_WAIT), ttl = 0;

    (void)hf_client_setting(lock_client_client(server->engine), "ttl", &ttl, &source);
    return read_whole(x, body, "ttlMs", 1, DAY_MS, ttl, &wait->request.ttl_ms) &&
           read_whole(x, body, "waitMs", 0, most, 0, &wait->request.wait_ms);
}

bool wait_read(struct exchange *x, struct wait *wait, json_t *body)
{
    static const char *const known[] = {"name",     "ttlMs",     "waitMs", "kind",  "units",
                                        "capacity", "autoRenew", "label",  "owner", NULL};

    wait->request =
        (struct hf_request){.size = sizeof wait->request, .name = wait->name, .flags = HF_DETACHED};
    bool is_invalid = !check_members(x, body, known) || !read_times(x, body, wait) ||
                      !read_kind(x, body, &wait->request) || !read_renewal(x, body, wait) ||
                      !read_label(x, body, wait) || !read_owner(x, body, wait);
    if (is_invalid)
        return false;
    if (is_own_name(wait->name)) {
        answer_own_name(x);
        return false;
    }

    correlation_of(x, wait->correlation);
    wait->request.correlation_id = wait->correlation;

    return idempotency_read(x, wait, body);
}
