/* advise_times.c - suggests ttl and max_hold from measured hold times: the past holds that an
 * engine keeps, or the histogram in the metrics of `holdfast serve`. docs/ttl.md has the
 * reasons. */
#include "advise_times.h"
#include "fetch.h"
#include "output.h"
#include "row_list.h"
#include "verb_client.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The suggested ttl is TTL_FACTOR times the p99 of the holds, and at least TTL_LEAST_MS. The
 * suggested max_hold is MAX_HOLD_FACTOR times the p99. */
enum { TTL_FACTOR = 3, MAX_HOLD_FACTOR = 10, TTL_LEAST_MS = 1000 };

#define HOLD_BUCKET "holdfast_hold_seconds_bucket{le=\""

struct holds {
    uint64_t count;
    int64_t median_ms, p99_ms;
};

static int print_times(const struct holds *holds, bool json)
{
    int64_t ttl_ms = holds->p99_ms * TTL_FACTOR, max_hold_ms = holds->p99_ms * MAX_HOLD_FACTOR;

    ttl_ms = ttl_ms < TTL_LEAST_MS ? TTL_LEAST_MS : ttl_ms;
    max_hold_ms = max_hold_ms < ttl_ms ? ttl_ms : max_hold_ms;
    if (json)
        printf("{\"holds\":%" PRIu64 ",\"medianMs\":%" PRId64 ",\"p99Ms\":%" PRId64
               ",\"ttlMs\":%" PRId64 ",\"maxHoldMs\":%" PRId64 "}\n",
               holds->count, holds->median_ms, holds->p99_ms, ttl_ms, max_hold_ms);
    else
        printf("%" PRIu64 " holds: half of them up to %" PRId64 " ms, 99 of 100 up to %" PRId64
               " ms\n  not renewed (acquire):  --ttl %" PRId64
               "ms, %d times the p99\n  renewed (run):          the default ttl, and --max-hold "
               "%" PRId64 "ms against a command that hangs\n",
               holds->count, holds->median_ms, holds->p99_ms, ttl_ms, TTL_FACTOR, max_hold_ms);

    return finish_stdout();
}

static int refuse_empty(const char *source)
{
    complain("advise: %s has no holds to measure", output_shown(source).text);
    return hf_status_exit_code(HF_NOT_HELD);
}

/* ---- Past holds ---- */

static int by_length(const void *left, const void *right)
{
    int64_t a = ((const struct hf_row *)left)->since_ms,
            b = ((const struct hf_row *)right)->since_ms;
    return (a > b) - (a < b);
}

/* Returns the percentile of the hold times. The rows are sorted by length. */
static int64_t length_of(const struct row_list *rows, size_t percent)
{
    return rows->all[(rows->count * percent + 99) / 100 - 1].since_ms;
}

static int print_history(struct row_list *rows, const struct cli_options *options)
{
    if (rows->count == 0)
        return refuse_empty(options->from_history);
    qsort(rows->all, rows->count, sizeof *rows->all, by_length);
    struct holds holds = {
        .count = rows->count, .median_ms = length_of(rows, 50), .p99_ms = length_of(rows, 99)};
    return print_times(&holds, options->json != 0);
}

int advise_from_history(const struct cli_options *options)
{
    struct row_list rows = {0};
    hf_client *client;
    int code = verb_client_open(options, NULL, &client);

    if (code != 0)
        return code;
    code = row_list_check(&rows, hf_history(client, options->from_history, row_list_add, &rows));
    if (code == 0)
        code = print_history(&rows, options);
    row_list_free(&rows);
    return verb_client_close(client, code);
}

/* ---- Metrics ---- */

enum { BUCKETS_MAX = 64 };

struct histogram {
    size_t count;
    double bound_s[BUCKETS_MAX]; /* upper bounds in rising order; the last is infinite */
    uint64_t up_to[BUCKETS_MAX]; /* number of holds up to that bound */
};

/* Adds a line of the histogram; ignores all other lines. */
static void add_line(struct histogram *histogram, const char *line)
{
    if (strncmp(line, HOLD_BUCKET, strlen(HOLD_BUCKET)) != 0 || histogram->count == BUCKETS_MAX)
        return;
    char *end;
    double bound = strtod(line + strlen(HOLD_BUCKET), &end); /* reads "+Inf" too */
    if (strncmp(end, "\"} ", 3) != 0)
        return;
    histogram->bound_s[histogram->count] = bound;
    histogram->up_to[histogram->count++] = (uint64_t)strtod(end + 3, NULL);
}

/* Returns the bound, in milliseconds, of the first bucket that reaches the percentile; -1 if
 * that bound is infinite. */
static int64_t bound_of(const struct histogram *histogram, uint64_t percent)
{
    uint64_t all = histogram->up_to[histogram->count - 1], i = 0;
    while (histogram->up_to[i] * 100 < all * percent)
        i++;
    return histogram->bound_s[i] > 1e9 ? -1 : (int64_t)(histogram->bound_s[i] * 1000 + 0.5);
}

static int print_metrics(const struct histogram *histogram, const struct cli_options *options)
{
    if (histogram->count == 0 || histogram->up_to[histogram->count - 1] == 0)
        return refuse_empty(options->from_metrics);
    struct holds holds = {.count = histogram->up_to[histogram->count - 1],
                          .median_ms = bound_of(histogram, 50),
                          .p99_ms = bound_of(histogram, 99)};
    if (holds.p99_ms < 0) {
        complain("advise: some holds are longer than the last bucket of %s; use holdfast advise "
                 "--from-history NAME",
                 output_shown(options->from_metrics).text);
        return hf_status_exit_code(HF_TOO_BIG);
    }

    return print_times(&holds, options->json != 0);
}

int advise_from_metrics(const struct cli_options *options)
{
    struct histogram histogram = {0};
    char line[512];
    FILE *metrics = fetch_open(options->from_metrics);

    if (!metrics)
        return hf_status_exit_code(HF_UNAVAILABLE);
    while (fgets(line, sizeof line, metrics))
        add_line(&histogram, line);

    fclose(metrics);
    return print_metrics(&histogram, options);
}
