/* journal.c - the log: what happened to which lease, queued where it happens and told on the background thread. Owner
 * and attempt ids never come here. */
#include "client.h"

#include "sys/clock.h"

#include <stdlib.h>
#include <string.h>

struct hf_record {
    struct hf_record *next;
    struct hf_log_event event;
    char text[]; /* name, correlation id, words: each with its NUL */
};

static const struct {
    const char *event;
    enum hf_log_level level;
} kinds[] = {
    [HF_R_GRANTED] = {"granted", HF_LOG_INFO},   [HF_R_DENIED] = {"denied", HF_LOG_INFO},
    [HF_R_QUEUED] = {"queued", HF_LOG_INFO},     [HF_R_EXTENDED] = {"extended", HF_LOG_DEBUG},
    [HF_R_WARN] = {"warned", HF_LOG_WARN},       [HF_R_LOST] = {"lost", HF_LOG_ERROR},
    [HF_R_RELEASED] = {"released", HF_LOG_INFO},
};

static struct hf_record *make_record(const char *of, const char *correlation_id, const char *words)
{
    size_t name = strlen(of) + 1, correlation = strlen(correlation_id) + 1;
    struct hf_record *r = malloc(sizeof *r + name + correlation + strlen(words) + 1);
    if (!r)
        return NULL;
    memcpy(r->text, of, name);
    memcpy(r->text + name, correlation_id, correlation);
    strcpy(r->text + name + correlation, words);
    r->next = NULL;
    r->event = (struct hf_log_event){
        .size = sizeof r->event,
        .name = r->text,
        .correlation_id = correlation > 1 ? r->text + name : NULL,
        .text = r->text + name + correlation,
        .wall_ms = hf_clock_wall_us() / 1000,
    };
    return r;
}

/* The wall clock is read first: if it takes long until the other one is, the result is too early, never too late. */
static int64_t wall_ms_of(hf_nanos when)
{
    int64_t wall_us = hf_clock_wall_us();
    return (wall_us - (hf_clock_boot() - when) / 1000) / 1000;
}

static void put(struct hf_client *client, struct hf_record *r)
{
    hf_latch_lock(&client->lock);
    *(client->log_first ? &client->log_last->next : &client->log_first) = r;
    client->log_last = r;
    bool wake = client->armed_at != INT64_MIN;
    hf_latch_unlock(&client->lock);
    if (wake)
        hf_keeper_wake(client);
}

void hf_journal_report(struct hf_lease *lease, enum hf_report report, hf_status status, hf_nanos now)
{
    struct hf_client *client = lease->client;
    if (kinds[report].level > client->log_level)
        return;
    struct hf_record *r = make_record(lease->ask.name, hf_lease_correlation(lease), lease->words ? lease->words : "");
    if (!r)
        return; /* without memory the lock goes on, the log has a gap */
    const struct hf_claim *claim = &lease->claim;
    r->event.level = kinds[report].level;
    r->event.event = status == HF_IN_DOUBT ? "in_doubt" : kinds[report].event;
    r->event.ttl_ms = claim->sheet->t.ttl / HF_MS(1);
    r->event.held_ms = claim->granted_at ? (now - claim->granted_at) / HF_MS(1) : 0;
    r->event.waited_ms = ((claim->granted_at ? claim->granted_at : now) - claim->started_at) / HF_MS(1);
    r->event.token = claim->token;
    r->event.status = status;
    /* A grant is told as late as it can have been, an end as early: so in the logs of several clients put together no
     * two holds overlap that did not. */
    if (report == HF_R_RELEASED || report == HF_R_LOST)
        r->event.wall_ms = wall_ms_of(now);
    put(client, r);
}

void hf_journal_break(struct hf_client *client, const char *name, uint64_t token, const char *reason)
{
    struct hf_record *r =
        client->on_log && client->log_level >= HF_LOG_WARN ? make_record(name, "", reason ? reason : "") : NULL;
    if (!r)
        return;
    r->event.level = HF_LOG_WARN;
    r->event.event = "broken";
    r->event.token = token;
    put(client, r);
}

void hf_journal_deliver(struct hf_client *client)
{
    for (;;) {
        hf_latch_lock(&client->lock);
        struct hf_record *r = client->log_first;
        if (r)
            client->log_first = r->next;
        hf_latch_unlock(&client->lock);
        if (!r)
            return;
        client->on_log(client->log_arg, &r->event);
        free(r);
    }
}

void hf_journal_free(struct hf_client *client)
{
    for (struct hf_record *r = client->log_first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
}
