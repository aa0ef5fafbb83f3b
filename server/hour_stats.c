/* hour_stats.c - a ring of 60 minutes, and rings of durations for the percentiles. */
#include "hour_stats.h"
#include <stdlib.h>

#define MINUTE_MS 60000
#define HOUR_MS (HOUR_MINUTES * MINUTE_MS)

static struct hour_minute *minute_of(struct hour_stats *hour, int64_t now_ms)
{
    int64_t minute = now_ms / MINUTE_MS;
    struct hour_minute *found = &hour->minutes[minute % HOUR_MINUTES];

    if (found->minute != minute)
        *found = (struct hour_minute){.minute = minute};
    return found;
}

static void add_sample(struct hour_samples *samples, int64_t now_ms, int64_t ms)
{
    if (ms < 0)
        return;
    samples->at_ms[samples->next] = now_ms;
    samples->ms[samples->next] = ms;
    samples->next = (samples->next + 1) % HOUR_SAMPLES;
    samples->count += samples->count < HOUR_SAMPLES;
}

void hour_polled(struct hour_stats *hour, int64_t now_ms, size_t held, size_t waiting)
{
    struct hour_minute *minute = minute_of(hour, now_ms);

    minute->held = held > minute->held ? held : minute->held;
    minute->waiting = waiting > minute->waiting ? waiting : minute->waiting;
}

void hour_granted(struct hour_stats *hour, int64_t now_ms, int64_t waited_ms)
{
    minute_of(hour, now_ms)->grants++;
    add_sample(&hour->waits, now_ms, waited_ms);
}

void hour_ended(struct hour_stats *hour, int64_t now_ms, int64_t held_ms)
{
    add_sample(&hour->holds, now_ms, held_ms);
}

/* ---- JSON ---- */

static int by_size(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Returns the smallest value that at least `percent` percent of the values do not exceed. */
static json_t *percentile(const int64_t *sorted, size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100, index = rank ? rank - 1 : 0;
    return count ? json_integer(sorted[index]) : json_null();
}

static json_t *samples_json(const struct hour_samples *samples, int64_t now_ms)
{
    int64_t *sorted = malloc(HOUR_SAMPLES * sizeof *sorted);
    size_t count = 0;

    for (size_t i = 0; sorted && i < samples->count; i++)
        if (samples->at_ms[i] > now_ms - HOUR_MS)
            sorted[count++] = samples->ms[i];
    if (count)
        qsort(sorted, count, sizeof *sorted, by_size);
    json_t *json = json_pack("{s:I, s:o, s:o}", "count", (json_int_t)count, "p50Ms",
                             percentile(sorted, count, 50), "p99Ms", percentile(sorted, count, 99));
    free(sorted);

    return json;
}

json_t *hour_json(const struct hour_stats *hour, int64_t now_ms)
{
    json_t *held = json_array(), *waiting = json_array(), *grants = json_array();
    int64_t now = now_ms / MINUTE_MS;

    for (int64_t minute = now - HOUR_MINUTES + 1; minute <= now; minute++) {
        const struct hour_minute *each = &hour->minutes[minute % HOUR_MINUTES];
        bool known = each->minute == minute;
        json_array_append_new(held, known ? json_integer((json_int_t)each->held) : json_null());
        json_array_append_new(waiting,
                              known ? json_integer((json_int_t)each->waiting) : json_null());
        json_array_append_new(grants, known ? json_integer((json_int_t)each->grants) : json_null());
    }

    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "held", held, "waiting", waiting, "grants",
                     grants, "waits", samples_json(&hour->waits, now_ms), "holds",
                     samples_json(&hour->holds, now_ms));
}
