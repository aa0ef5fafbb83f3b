/* metrics.c - counters and histograms in Prometheus' text format. */
#include "metrics.h"
#include "lease_ledger.h"
#include "routes.h"
#include "snapshot_stream.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define GROUPS_MAX 200 /* most labels; further ones are counted as "other" */

static const double BOUNDS[BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                       0.25,  0.5,    1,     2.5,  10,    60,   600};

void histogram_note(struct histogram *histogram, double seconds)
{
    size_t i = 0;

    while (i < BUCKETS && seconds > BOUNDS[i])
        i++;
    histogram->bucket[i]++;
    histogram->count++;
    histogram->sum += seconds;
}

/* Prints the first `depth` parts of a name; characters that would break the format become _. */
static void print_label(const char *name, int64_t depth, char *label, size_t size)
{
    size_t len = 0;

    for (; *name && len + 1 < size; name++) {
        if (*name == '/' && --depth == 0)
            break;
        bool plain = (unsigned char)*name >= 0x20 && *name != '"' && *name != '\\';
        label[len++] = plain ? *name : '_';
    }

    label[len] = 0;
}

static struct metrics_group *find_group(struct metrics *metrics, const char *label)
{
    size_t count = 0;

    for (struct metrics_group *group = metrics->groups; group; group = group->next, count++)
        if (strcmp(group->label, label) == 0)
            return group;
    if (count >= GROUPS_MAX && strcmp(label, "other") != 0)
        return find_group(metrics, "other");

    struct metrics_group *group = calloc(1, sizeof *group);
    char *copy = group ? strdup(label) : NULL;
    if (!copy) {
        free(group);
        return NULL;
    }

    *group = (struct metrics_group){.label = copy, .next = metrics->groups};
    metrics->groups = group;

    return group;
}

static struct metrics_group *group_of(struct metrics *metrics, const char *name, int64_t depth)
{
    char label[128];
    if (depth == 0)
        return NULL;
    print_label(name, depth, label, sizeof label);
    return find_group(metrics, label);
}

uint64_t text_hash(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static struct handoff *handoff_of(struct metrics *metrics, const char *name)
{
    uint64_t hash = text_hash(name);
    struct handoff *found = &metrics->handoffs[hash % HANDOFFS];
    if (found->name != hash)
        *found = (struct handoff){.name = hash};
    return found;
}

/* Measures a handoff if both sides are known and somebody waited at the release; otherwise the
 * lock was free in between. */
static void measure_handoff(struct metrics *metrics, struct handoff *handoff)
{
    int64_t took = handoff->granted_ms - handoff->released_ms;

    if (handoff->released_ms == 0 || handoff->granted_ms == 0)
        return;

    if (handoff->waited_ms > 0 && took <= handoff->waited_ms)
        histogram_note(&metrics->hand_off, took > 0 ? (double)took / 1000 : 0);
    *handoff = (struct handoff){.name = handoff->name};
}

static void note_granted(struct metrics *metrics, const struct hf_log_event *event, int64_t depth)
{
    struct handoff *handoff = handoff_of(metrics, event->name);
    struct metrics_group *group = group_of(metrics, event->name, depth);

    histogram_note(&metrics->wait, (double)event->waited_ms / 1000);
    handoff->granted_ms = event->waited_ms > 0 ? event->wall_ms : 0;
    handoff->waited_ms = event->waited_ms;
    if (event->waited_ms == 0)
        handoff->released_ms = 0;
    measure_handoff(metrics, handoff);
    if (group)
        group->acquired++;
}

static void note_released(struct metrics *metrics, const struct hf_log_event *event)
{
    struct handoff *handoff = handoff_of(metrics, event->name);

    /* A grant from before this release is not the next one: the hold ahead of that grant was
     * released through another instance. */
    if (handoff->granted_ms < event->wall_ms)
        handoff->granted_ms = 0;
    handoff->released_ms = event->wall_ms;
    measure_handoff(metrics, handoff);
}

static void note_queued(struct metrics *metrics, const struct hf_log_event *event, int64_t depth)
{
    struct metrics_group *group = group_of(metrics, event->name, depth);
    metrics->contended++;
    if (group)
        group->contended++;
}

/* The library warns before a lease that it cannot renew ends. If it did not warn, the engine
 * reported the lease as not held: it was broken, unless renewing had stopped at max-hold. */
enum lease_end metrics_loss(const struct metrics *metrics, const struct hf_log_event *event)
{
    if (event->status != HF_LOST || metrics->warned[event->token % WARNINGS] == event->token)
        return END_ENGINE;
    return metrics->max_hold_ms > 0 && event->held_ms >= metrics->max_hold_ms ? END_EXPIRED
                                                                              : END_BROKEN;
}

/* Returns false if this end was counted before. */
bool metrics_first_end(struct metrics *metrics, uint64_t hash)
{
    uint64_t *end = &metrics->ends[hash % ENDS];
    bool first = *end != hash;
    *end = hash;
    return first;
}

void metrics_note(struct metrics *metrics, const struct hf_log_event *event, int64_t depth)
{
    if (strcmp(event->event, "granted") == 0) {
        note_granted(metrics, event, depth);
    } else if (strcmp(event->event, "queued") == 0) {
        note_queued(metrics, event, depth);
    } else if (strcmp(event->event, "released") == 0) {
        note_released(metrics, event);
    } else if (strcmp(event->event, "warned") == 0) {
        metrics->warned[event->token % WARNINGS] = event->token;
    } else if (strcmp(event->event, "extended") == 0) {
        metrics->renewed++;
    } else if (strcmp(event->event, "broken") == 0) {
        metrics->broken++;
    }
}

void metrics_free(struct metrics *metrics)
{
    for (struct metrics_group *group = metrics->groups, *next; group; group = next) {
        next = group->next;
        free(group->label);
        free(group);
    }
}

static void print_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP holdfast_%s %s\n# TYPE holdfast_%s %s\n", name, help, name, type);
}

static void counter(FILE *out, const char *name, const char *help, uint64_t value)
{
    print_head(out, name, "counter", help);
    fprintf(out, "holdfast_%s %" PRIu64 "\n", name, value);
}

static void gauge(FILE *out, const char *name, const char *help, double value)
{
    print_head(out, name, "gauge", help);
    fprintf(out, "holdfast_%s %.15g\n", name, value);
}

static void print_histogram(FILE *out, const char *name, const char *help,
                            const struct histogram *histogram)
{
    uint64_t sum = 0;

    print_head(out, name, "histogram", help);
    for (size_t i = 0; i < BUCKETS; i++) {
        sum += histogram->bucket[i];
        fprintf(out, "holdfast_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, BOUNDS[i], sum);
    }

    fprintf(out,
            "holdfast_%s_bucket{le=\"+Inf\"} %" PRIu64
            "\nholdfast_%s_sum %.9g\nholdfast_%s_count %" PRIu64 "\n",
            name, histogram->count, name, histogram->sum, name, histogram->count);
}

static void print_losses(FILE *out, const struct metrics *metrics)
{
    static const struct {
        enum lease_end end;
        const char *cause;
    } losses[] = {{END_EXPIRED, "expired"}, {END_BROKEN, "broken"}, {END_ENGINE, "engine"}};

    print_head(out, "lost_total", "counter",
               "Leases granted here that ended without a release, by cause.");
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++)
        fprintf(out, "holdfast_lost_total{cause=\"%s\"} %" PRIu64 "\n", losses[i].cause,
                metrics->ended[losses[i].end]);
}

static void print_groups(FILE *out, const struct metrics *metrics)
{
    if (!metrics->groups)
        return;

    print_head(out, "acquired_by_prefix_total", "counter",
               "Leases granted, by the first parts of the name.");
    for (const struct metrics_group *group = metrics->groups; group; group = group->next)
        fprintf(out, "holdfast_acquired_by_prefix_total{prefix=\"%s\"} %" PRIu64 "\n", group->label,
                group->acquired);
    print_head(out, "contended_by_prefix_total", "counter",
               "Requests that had to wait, by the first parts of the name.");
    for (const struct metrics_group *group = metrics->groups; group; group = group->next)
        fprintf(out, "holdfast_contended_by_prefix_total{prefix=\"%s\"} %" PRIu64 "\n",
                group->label, group->contended);
}

static void print_process(FILE *out)
{
    struct rusage usage;
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");

    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1)
        pages = 0;
    if (statm)
        fclose(statm);
    getrusage(RUSAGE_SELF, &usage);
    fprintf(out,
            "# HELP process_cpu_seconds_total Processor time used.\n# TYPE "
            "process_cpu_seconds_total counter\n"
            "process_cpu_seconds_total %.6f\n",
            (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    fprintf(out,
            "# HELP process_resident_memory_bytes Memory in use.\n# TYPE "
            "process_resident_memory_bytes gauge\n"
            "process_resident_memory_bytes %ld\n",
            pages * sysconf(_SC_PAGESIZE));
    print_head(out, "build_info", "gauge", "Version of this service.");
    fprintf(out, "holdfast_build_info{version=\"%s\"} 1\n", hf_version());
}

static void print_answers(FILE *out, const struct metrics *metrics)
{
    print_head(out, "http_answers_total", "counter", "Answers by class of their status.");
    for (size_t i = 1; i < 6; i++)
        fprintf(out, "holdfast_http_answers_total{status=\"%zuxx\"} %" PRIu64 "\n", i,
                metrics->answers[i]);
}

static void print_seen(FILE *out, const struct server *server)
{
    const struct snapshot *seen = snapshot_latest(server->view);

    gauge(out, "engine_up", "Whether the engine answered its last poll.", seen->up);
    if (server->redlock)
        gauge(out, "quorum_servers_up", "Servers of the quorum that answered their last poll.",
              (double)seen->servers_up);
    gauge(out, "held", "Holds in the engine, of all clients.", (double)seen->held);
    gauge(out, "waiters", "Waiters in the engine, of all clients.", (double)seen->waiters);
    gauge(out, "deadlocks", "Circles of holders that wait for each other.",
          (double)seen->deadlocks);
    gauge(out, "oldest_holder_seconds", "Age of the oldest hold.",
          (double)seen->oldest_holder_ms / 1000);
    gauge(out, "oldest_waiter_seconds", "Wait of the oldest waiter.",
          (double)seen->oldest_waiter_ms / 1000);
    counter(out, "patterns_dropped_total",
            "Names that were dropped from the patterns for others (max-patterns).",
            snapshot_dropped(server->view));
    gauge(out, "leases", "Leases that this instance granted and that have not ended.",
          (double)lease_ledger_count(server->ledger));
    counter(out, "untracked_leases_total",
            "Leases beyond those that one instance keeps track of; their end is not counted.",
            lease_ledger_untracked(server->ledger));
    gauge(out, "http_connections", "Open connections.", (double)http_connections(server->http));
}

static void print_all(FILE *out, const struct server *server)
{
    const struct metrics *m = &server->metrics;

    print_histogram(out, "wait_seconds", "Time from the request to the grant.", &m->wait);
    print_histogram(out, "hold_seconds", "Time from the grant to the release.", &m->hold);
    print_histogram(out, "hand_off_seconds", "Time from a release to the grant of the next waiter.",
                    &m->hand_off);
    print_histogram(out, "renew_slack_seconds", "Time left of a lease when it was extended.",
                    &m->renew_slack);
    print_histogram(out, "round_trip_seconds", "Time until the engine answered.", &m->round_trip);
    counter(out, "acquired_total", "Leases granted.", m->acquired);
    counter(out, "contended_total", "Requests that had to wait.", m->contended);
    counter(out, "refused_total",
            "Requests that were refused because the lock was held, at once or after their wait.",
            m->refused);
    counter(out, "released_total", "Leases granted here and released.", m->ended[END_RELEASED]);
    counter(out, "released_for_others_total",
            "Leases that another instance granted, released through this one.",
            m->released_for_others);
    counter(out, "renewed_total", "Leases extended.", m->renewed);
    counter(out, "broken_total", "Leases broken through this instance.", m->broken);
    counter(out, "undelivered_total", "Grants released because their client had disconnected.",
            m->undelivered);
    counter(out, "ended_elsewhere_total",
            "Leases granted here that ended before their time, released or broken elsewhere.",
            m->ended[END_ELSEWHERE]);
    counter(out, "left_total", "Clients that disconnected while they waited.", m->left);
    print_losses(out, m);
    print_groups(out, m);
    print_answers(out, m);
    print_seen(out, server);
    print_process(out);
}

void route_metrics(struct exchange *x)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (out)
        print_all(out, server_of(x));
    if (out && fclose(out) == 0)
        exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", text, len);
    else
        answer_status(x, HF_NO_MEMORY, NULL, NULL);

    free(text);
}
