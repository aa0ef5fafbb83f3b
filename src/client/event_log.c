/* event_log.c - the log: events are queued where they happen and passed to on_log on the background
 * thread. They never contain owner or attempt ids. */
#include "client.h"

#include "sys/clock.h"

#include <stdlib.h>
#include <string.h>

struct log_entry {
    struct log_entry *next;
    struct hf_log_event event;
    char text[]; /* name, correlation id, message and label, each ended by a NUL */
};

static const struct {
    const char *event;
    enum hf_log_level level;
} kinds[] = {
    [REPORT_GRANTED] = {"granted", HF_LOG_INFO},   [REPORT_DENIED] = {"denied", HF_LOG_INFO},
    [REPORT_QUEUED] = {"queued", HF_LOG_INFO},     [REPORT_EXTENDED] = {"extended", HF_LOG_DEBUG},
    [REPORT_WARN] = {"warned", HF_LOG_WARN},       [REPORT_LOST] = {"lost", HF_LOG_ERROR},
    [REPORT_RELEASED] = {"released", HF_LOG_INFO},
};

static struct log_entry *make_entry(const char *of, const char *correlation_id,
                                    const char *failure_text, const char *label)
{
    assert(of && correlation_id && failure_text);

    size_t name = strlen(of) + 1, correlation = strlen(correlation_id) + 1;
    size_t message = strlen(failure_text) + 1, all = name + correlation + message;
    struct log_entry *r = malloc(sizeof *r + all + strlen(label) + 1);
    if (!r)
        return NULL;

    memcpy(r->text, of, name);
    memcpy(r->text + name, correlation_id, correlation);
    memcpy(r->text + name + correlation, failure_text, message);
    strcpy(r->text + all, label);
    r->next = NULL;
    r->event = (struct hf_log_event){
        .size = sizeof r->event,
        .name = r->text,
        .correlation_id = correlation > 1 ? r->text + name : NULL,
        .text = r->text + name + correlation,
        .label = r->text + all,
        .wall_ms = clock_wall_us() / 1000,
    };
    return r;
}

/* Returns the wall clock at `when`. The wall clock is read first: if the thread is delayed
 * between the two readings, the result is too early, never too late. */
static int64_t wall_ms_of(nanos when)
{
    int64_t wall_us = clock_wall_us();
    return (wall_us - (clock_boot() - when) / 1000) / 1000;
}

static void put(struct hf_client *client, struct log_entry *r)
{
    assert(client->on_log);

    small_mutex_lock(&client->lock);
    bool was_empty = !client->log_first;
    *(was_empty ? &client->log_first : &client->log_last->next) = r;
    client->log_last = r;
    bool is_awake = client->armed_at == BACKGROUND_AWAKE;
    small_mutex_unlock(&client->lock);

    if (client->own_callbacks && was_empty && !callbacks_run_here(client))
        background_wake_loop(client);
    else if (!client->own_callbacks && !is_awake)
        background_wake(client);
}

void event_log_report(struct hf_lease *lease, enum claim_report report, hf_status status, nanos now)
{
    assert(report != REPORT_NONE && report < sizeof kinds / sizeof *kinds);

    struct hf_client *client = lease->client;
    if (kinds[report].level > client->log_level)
        return;

    struct log_entry *r = make_entry(lease->op.name, lease_correlation(lease),
                                     lease_failure(lease)->text, lease->op.label);
    if (!r)
        return; /* without memory the event is missing in the log */

    const struct claim *claim = &lease->claim;
    r->event.level = kinds[report].level;
    r->event.event = status == HF_IN_DOUBT ? "in_doubt" : kinds[report].event;
    r->event.ttl_ms = claim->sheet->t.ttl / NANOS_OF_MS(1);
    r->event.held_ms = claim->granted_at ? (now - claim->granted_at) / NANOS_OF_MS(1) : 0;
    r->event.waited_ms =
        ((claim->granted_at ? claim->granted_at : now) - claim->started_at) / NANOS_OF_MS(1);
    r->event.token = claim->token;
    r->event.status = status;

    /* A grant gets the latest possible time, an end the earliest. So two holds that did not overlap
     * do not seem to, even in the combined logs of several clients. */
    if (report == REPORT_RELEASED || report == REPORT_LOST)
        r->event.wall_ms = wall_ms_of(now);
    put(client, r);
}

void event_log_break(struct hf_client *client, const char *name, uint64_t token, const char *reason)
{
    assert(name && token != 0);

    if (!client->on_log || client->log_level < HF_LOG_WARN)
        return;

    struct log_entry *r = make_entry(name, "", reason ? reason : "", "");
    if (!r)
        return;

    r->event.level = HF_LOG_WARN;
    r->event.event = "broken";
    r->event.token = token;
    put(client, r);
}

void event_log_deliver(struct hf_client *client)
{
    for (;;) {
        small_mutex_lock(&client->lock);
        struct log_entry *r = client->log_first;
        if (r)
            client->log_first = r->next;
        small_mutex_unlock(&client->lock);
        if (!r)
            return;
        client->on_log(client->log_arg, &r->event);
        free(r);
    }
}

void event_log_free(struct hf_client *client)
{
    for (struct log_entry *r = client->log_first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
}
