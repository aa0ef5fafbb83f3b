/* lease_ops.c - shows, extends and releases a lease by its id.
 *
 * An extend or a release is one request to the engine, started and answered on the loop: the id has
 * everything that the library needs for a handle (hf_lease_assume). A worker with an attached
 * handle does it where the engine must be asked first, and everywhere if the lease is only shown.
 */
#include "auto_renew.h"
#include "caller_label.h"
#include "lease_id.h"
#include "lease_ledger.h"
#include "lock_client.h"
#include "pending_acquires.h"
#include "routes.h"
#include "snapshot_stream.h"
#include <stdlib.h>
#include <string.h>

enum action { ACTION_QUERY, ACTION_EXTEND, ACTION_RELEASE };

struct holding {
    struct job job;
    struct exchange *x;          /* NULL: the service closes, and has answered */
    struct holding *next, *prev; /* while the outcome is awaited on the loop */
    hf_lease *assumed;           /* handle of this request alone; NULL: none */
    int64_t began_ms;
    struct server *server;
    enum action action;
    /* entry of the lease in auto_renew; NULL: this instance does not renew the lease, so a handle
     * is attached for this request */
    struct auto_renewed *auto_renewed;
    char text[HF_EXPORT_MAX];
    uint64_t key;             /* hash of `text` */
    struct lease_facts facts; /* parsed from `text` */
    int64_t granted_ms;       /* time of the grant in milliseconds since 1970; 0 if unknown */
    int64_t ttl_ms, slack_ms, left_ms, took_ms;
    int64_t ended_ms; /* when the outcome was known, by clock_ms() */
    hf_status status;
    bool forbidden;
    bool is_tried; /* the engine was asked to extend or release */
    uint64_t token;
    char name[HF_NAME_MAX + 1], message[HF_NAME_MAX + 128];
};

static struct holding *in_flight; /* requests whose outcome is awaited on the loop */

/* Returns true if the caller may use the lease. */
static bool look_at(struct holding *h, hf_lease *lease)
{
    snprintf(h->name, sizeof h->name, "%s", hf_lease_name(lease));
    h->token = hf_lease_token(lease);
    h->slack_ms = hf_lease_left_ms(lease);
    h->forbidden = !auth_allows(h->x->caller, h->x->route->right, h->name);
    if (h->forbidden)
        h->status = HF_DENIED;
    return !h->forbidden;
}

static void act(struct holding *h, hf_lease *lease)
{
    if (!look_at(h, lease))
        return;
    h->is_tried = h->action != ACTION_QUERY;
    if (h->action == ACTION_EXTEND)
        h->status = hf_extend(lease, h->ttl_ms);
    else if (h->action == ACTION_RELEASE)
        h->status = hf_release(lease);
    else
        h->status = hf_lease_left_ms(lease) > 0 ? HF_OK : HF_LOST;

    h->left_ms = hf_lease_left_ms(lease);
}

static void work(struct job *job)
{
    struct holding *h = (struct holding *)(void *)job;
    hf_lease *lease = NULL;

    if (h->auto_renewed) {
        act(h, auto_renew_lease(h->auto_renewed));
    } else {
        h->status = hf_lease_attach(lock_client_client(h->server->engine), h->text, &lease);
        if (h->status == HF_OK)
            act(h, lease);
    }

    if (h->status != HF_OK)
        snprintf(h->message, sizeof h->message, "%s", hf_error_text());
    hf_lease_free(lease);
    h->ended_ms = clock_ms();
    h->took_ms = h->ended_ms - h->began_ms;
}

/* ---- The log ---- */

/* Releases of leases that this instance renews. Their log line is written in this file, with the
 * correlation id of the request. The library reports the same releases without that id. An entry in
 * this list exists from the request until that report, which is then not logged. */
struct own_line {
    uint64_t token;
    struct own_line *next;
};
static struct own_line *own_lines;

static void expect_line(uint64_t token)
{
    struct own_line *line = malloc(sizeof *line);
    if (!line)
        return;
    *line = (struct own_line){token, own_lines};
    own_lines = line;
}

bool lease_ops_has_line(uint64_t token)
{
    struct own_line **at = &own_lines;

    while (*at && (*at)->token != token)
        at = &(*at)->next;
    struct own_line *found = *at;
    if (!found)
        return false;

    *at = found->next;
    free(found);

    return true;
}

void lease_ops_forget_lines(void)
{
    while (own_lines)
        (void)lease_ops_has_line(own_lines->token);
}

/* NULL: the ledger does not have the lease. */
static struct ledger_entry *entry_of(const struct holding *h)
{
    return lease_ledger_find_key(h->server->ledger, h->key);
}

/* Returns the time since the grant; -1: unknown. The time in the id comes from another
 * instance's clock, so it is used only if this instance did not grant the lease. */
static int64_t held_ms(const struct holding *h)
{
    const struct ledger_entry *entry = entry_of(h);
    int64_t ms = entry ? clock_ms() - entry->granted_ms : wall_ms() - h->granted_ms;
    if (!entry && h->granted_ms <= 0)
        return -1;
    return ms > 0 ? ms : 0;
}

/* Returns how long a lease that has ended was held. The end is now, or the last end time that this
 * instance knows, if that is earlier. */
static int64_t held_until_end_ms(const struct holding *h)
{
    const struct ledger_entry *entry = entry_of(h);
    int64_t ms = held_ms(h), most = entry ? entry->ends_ms - entry->granted_ms : h->facts.ttl_ms;
    return ms < most ? ms : most;
}

/* Chooses the correlation id of the request, or else that of the grant. */
static void choose_correlation(const struct holding *h, char text[HF_CORRELATION_MAX + 1])
{
    const struct ledger_entry *entry = entry_of(h);
    if (correlation_given(h->x, text))
        return;
    snprintf(text, HF_CORRELATION_MAX + 1, "%s", entry ? entry->correlation : h->x->id);
}

static void write_line(const struct holding *h, enum hf_log_level level, const char *event,
                       int64_t held)
{
    char correlation[HF_CORRELATION_MAX + 1];
    const struct ledger_entry *entry = entry_of(h);
    bool extends = h->action == ACTION_EXTEND;

    struct caller_label labels = caller_label_read(entry ? entry->label : "");
    choose_correlation(h, correlation);
    const struct log_field fields[] = {
        {"name", h->facts.name, 0},
        {"token", NULL, (int64_t)h->facts.token},
        {"ttlMs", NULL, extends && h->ttl_ms > 0 ? h->ttl_ms : h->facts.ttl_ms},
        {"heldMs", NULL, held},
        {"leftMs", NULL, extends && h->status == HF_OK ? h->left_ms : -1},
        {"outcome", hf_status_name(h->status), 0},
        {"label", labels.label, 0},
        {"caller", caller_name(h->x), 0},
        {"correlationId", correlation, 0},
        {"requestId", h->x->id, 0},
        {"text", h->message, 0},
    };
    log_event(h->server->log_form, level, event, fields, sizeof fields / sizeof fields[0]);
}

static void report_release(const struct holding *h, const char *label, int64_t held)
{
    struct lease_change change = {.event = "released",
                                  .name = h->facts.name,
                                  .label = label,
                                  .text = "",
                                  .token = h->facts.token,
                                  .held_ms = held,
                                  .waited_ms = -1};
    snapshot_change(h->server->view, &change);
}

static void note_extended(const struct holding *h)
{
    struct ledger_entry *entry = entry_of(h);

    int64_t slack_ms = entry ? entry->ends_ms - h->began_ms : h->slack_ms;
    histogram_note(&h->server->metrics.renew_slack, (double)slack_ms / 1000);
    if (entry)
        lease_ledger_extended(entry, h->ended_ms + h->left_ms);
    write_line(h, HF_LOG_INFO, "extended", held_ms(h));
}

static void note_released(const struct holding *h)
{
    struct ledger_entry *entry = entry_of(h);
    int64_t held = held_ms(h);

    (void)metrics_first_end(&h->server->metrics, h->key);
    h->server->metrics.released_for_others += entry == NULL;
    write_line(h, HF_LOG_INFO, "released", held);
    report_release(h, entry ? entry->label : "", held);
    lease_ledger_release(entry, HF_OK);
}

/* The client asked to extend or release a lease that is not held any more. If the time of the lease
 * ran out, that is logged once. If the lease was broken through this instance, the break was logged
 * already. */
static void note_lost(const struct holding *h)
{
    struct ledger_entry *entry = entry_of(h);
    bool first = metrics_first_end(&h->server->metrics, h->key);
    bool is_held = h->auto_renewed ? h->slack_ms > 0 : entry && h->ended_ms < entry->ends_ms;

    if (entry)
        lease_ledger_gone(entry, is_held);

    bool is_late = !entry || entry->end == END_EXPIRED;
    if (is_late && first)
        write_line(h, HF_LOG_WARN, "expired_before_release", held_until_end_ms(h));
}

/* Notes a release that got no answer, or was refused: the library goes on trying. */
static void note_failed(const struct holding *h)
{
    if (h->action == ACTION_RELEASE && h->is_tried)
        lease_ledger_release(entry_of(h), h->status);
    if (h->status == HF_IN_DOUBT)
        write_line(h, HF_LOG_WARN, "in_doubt", held_ms(h));
}

static void note(const struct holding *h)
{
    histogram_note(&h->server->metrics.round_trip, (double)h->took_ms / 1000);
    if (h->action == ACTION_QUERY)
        return;

    bool is_lost = h->status == HF_LOST || h->status == HF_NOT_HELD;
    if (is_lost)
        note_lost(h);
    else if (h->status != HF_OK)
        note_failed(h);
    else if (h->action == ACTION_EXTEND)
        note_extended(h);
    else
        note_released(h);
}

static void answer_held(const struct holding *h)
{
    char token[DIGITS_MAX], text[6 * HF_NAME_MAX + 128]; /* a character escaped has six bytes */
    struct flat_json json = flat_json_begin(text, sizeof text);

    digits_print(h->token, token);
    flat_json_text(&json, "name", h->name);
    flat_json_text(&json, "token", token);
    flat_json_number(&json, "expiresInMs", h->left_ms);
    answer_flat_json(h->x, 200, &json);
}

static void answer(struct holding *h)
{
    bool lost = h->status == HF_LOST || h->status == HF_NOT_HELD;

    if (h->forbidden)
        answer_problem(h->x, 403, "forbidden", "the token may not use this name", NULL);
    else if (h->status == HF_INVALID && h->token == 0)
        answer_problem(h->x, 404, "not_found", "this is not the id of a lease", NULL);
    else if (lost)
        answer_problem(h->x, 410, "lost", h->message, NULL);
    else if (h->status != HF_OK)
        answer_status(h->x, h->status, h->message, NULL);
    else if (h->action == ACTION_RELEASE)
        exchange_answer(h->x, 204, NULL, NULL, 0);
    else
        answer_held(h);
}

static void finish(struct holding *h)
{
    /* After a release the handle no longer renews the lease, whatever the outcome is. */
    bool ended = h->status == HF_LOST || h->status == HF_NOT_HELD ||
                 (h->action == ACTION_RELEASE && h->is_tried);

    if (h->x) {
        note(h);
        answer(h);
    }
    /* The library does not report a release that failed. */
    bool release_failed = h->auto_renewed && h->action == ACTION_RELEASE && h->status != HF_OK;
    if (release_failed)
        (void)lease_ops_has_line(h->facts.token);
    if (h->auto_renewed)
        auto_renew_leave(h->auto_renewed, ended);
    hf_lease_free(h->assumed);
    explicit_bzero(h->text, sizeof h->text);
    free(h);
}

static void done(struct job *job)
{
    finish((struct holding *)(void *)job);
}

/* ---- On the loop ---- */

static void wait_for_outcome(struct holding *h)
{
    h->next = in_flight;
    if (h->next)
        h->next->prev = h;
    in_flight = h;
    h->server->leases->busy++;
}

static void on_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct holding *h = arg;

    h->status = outcome;
    bool has_ended = outcome == HF_LOST || outcome == HF_NOT_HELD;
    if (h->assumed && has_ended) {
        h->status = HF_LOST;
        snprintf(h->message, sizeof h->message, "%s: the hold with token %llu has ended", h->name,
                 (unsigned long long)h->token);
    } else if (outcome != HF_OK) {
        snprintf(h->message, sizeof h->message, "%s", hf_error_text());
    }
    h->left_ms = hf_lease_left_ms(lease);
    h->ended_ms = clock_ms();
    h->took_ms = h->ended_ms - h->began_ms;
    *(h->prev ? &h->prev->next : &in_flight) = h->next;
    if (h->next)
        h->next->prev = h->prev;
    h->server->leases->busy--;
    finish(h);
}

/* Starts an extend or a release of a handle. Returns its status. */
static hf_status start_call(struct holding *h, hf_lease *lease)
{
    h->is_tried = true;
    if (h->action == ACTION_RELEASE)
        return hf_release_start(lease, on_outcome, h);
    return hf_extend_start(lease, h->ttl_ms, on_outcome, h);
}

/* Does the request on the loop. Returns false if a worker must do it: the engine must be asked for
 * the hold first, or another extend of the handle is in flight, which a worker can wait for. */
static bool start(struct holding *h)
{
    hf_lease *lease = h->auto_renewed ? auto_renew_lease(h->auto_renewed) : NULL;

    if (h->action == ACTION_QUERY)
        return false;
    if (!lease) {
        h->status = hf_lease_assume(lock_client_client(h->server->engine), h->text, &h->assumed);
        lease = h->assumed;
    }
    if (h->status == HF_OK && look_at(h, lease))
        h->status = start_call(h, lease);
    if (h->status == HF_UNSUPPORTED || h->status == HF_BUSY)
        return false;
    if (h->status == HF_OK) {
        wait_for_outcome(h);
        lock_client_started(h->server->engine);
        return true;
    }

    snprintf(h->message, sizeof h->message, "%s", hf_error_text());
    h->ended_ms = clock_ms();
    finish(h);
    return true;
}

void lease_ops_close(void)
{
    for (struct holding *h = in_flight; h; h = h->next) {
        answer_problem(h->x, 503, "stopping", "the service is stopping", NULL);
        h->x = NULL;
    }
}

static void post(struct exchange *x, enum action action, int64_t ttl_ms)
{
    struct holding *h = calloc(1, sizeof *h);
    struct piece id = x->arguments[0];

    if (!h) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }

    *h = (struct holding){.job = {work, done, NULL},
                          .x = x,
                          .server = server_of(x),
                          .action = action,
                          .began_ms = clock_ms(),
                          .ttl_ms = ttl_ms};
    if (!lease_id_read(id.at, id.len, h->text, &h->granted_ms) ||
        !lease_text_read(h->text, &h->facts)) {
        free(h);
        answer_problem(x, 404, "not_found", "this is not the id of a lease", NULL);
        return;
    }

    h->key = text_hash(h->text);
    h->auto_renewed = auto_renew_enter(id.at, id.len);
    if (h->auto_renewed && action == ACTION_RELEASE)
        expect_line(h->facts.token);
    if (!start(h))
        lock_client_do(h->server->engine, h->server->workers, &h->job);
}

void route_show_lease(struct exchange *x)
{
    post(x, ACTION_QUERY, 0);
}

void route_extend(struct exchange *x)
{
    static const char *const known[] = {"ttlMs", NULL};
    int64_t ttl_ms;
    json_t *body = read_body(x);

    if (!body)
        return;

    if (check_members(x, body, known) &&
        read_whole(x, body, "ttlMs", 1, INT64_C(86400000), 0, &ttl_ms))
        post(x, ACTION_EXTEND, ttl_ms);
    json_decref(body);
}

void route_release(struct exchange *x)
{
    post(x, ACTION_RELEASE, 0);
}
