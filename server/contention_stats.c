/* contention_stats.c - one bucket a minute for each name with waiters, and one a day for losses. */
#include "contention_stats.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t minute_now(void)
{
    return (int64_t)time(NULL) / 60;
}

bool contention_open(struct contention *patterns, size_t most)
{
    *patterns = (struct contention){.all = calloc(most, sizeof *patterns->all), .most = most};
    return patterns->all != NULL;
}

/* Finds or adds a name. If the table is full, the name that was waited for least recently is
 * dropped. */
static struct contention_bucket *find(struct contention *patterns, const char *name)
{
    struct contention_bucket *oldest = &patterns->all[0];

    for (size_t i = 0; i < patterns->count; i++) {
        struct contention_bucket *pattern = &patterns->all[i];
        if (strcmp(pattern->name, name) == 0)
            return pattern;
        if (pattern->touched_minute < oldest->touched_minute)
            oldest = pattern;
    }

    char *copy = strdup(name);
    if (!copy)
        return NULL;
    if (patterns->count < patterns->most)
        oldest = &patterns->all[patterns->count++];
    else
        patterns->dropped++;

    free(oldest->name);

    *oldest = (struct contention_bucket){.name = copy};
    return oldest;
}

void contention_waited(struct contention *patterns, const char *name, int64_t ms)
{
    struct contention_bucket *pattern = find(patterns, name);
    int64_t minute = minute_now();
    size_t bucket = (size_t)(minute % PATTERN_MINUTES);

    if (!pattern)
        return;

    if (pattern->minute[bucket] != minute)
        pattern->waited_ms[bucket] = 0;
    pattern->minute[bucket] = minute;
    pattern->waited_ms[bucket] += ms;
    pattern->total_ms += ms;
    pattern->touched_minute = minute;
}

void contention_lost(struct contention *patterns)
{
    int64_t day = minute_now() / 1440;
    size_t bucket = (size_t)(day % PATTERN_DAYS);

    if (patterns->day[bucket] != day)
        patterns->lost[bucket] = 0;
    patterns->day[bucket] = day;
    patterns->lost[bucket]++;
}

static json_t *minutes_of(const struct contention_bucket *pattern)
{
    json_t *minutes = json_array();
    int64_t now = minute_now();

    for (int64_t minute = now - PATTERN_MINUTES + 1; minute <= now; minute++) {
        size_t bucket = (size_t)(minute % PATTERN_MINUTES);
        json_array_append_new(
            minutes,
            json_integer(pattern->minute[bucket] == minute ? pattern->waited_ms[bucket] : 0));
    }

    return minutes;
}

json_t *contention_json(const struct contention *patterns, const struct caller *caller)
{
    json_t *locks = json_array(), *days = json_array();
    int64_t today = minute_now() / 1440;

    for (size_t i = 0; i < patterns->count; i++)
        if (auth_allows(caller, RIGHT_READ, patterns->all[i].name))
            json_array_append_new(locks,
                                  json_pack("{s:s, s:I, s:o}", "name", patterns->all[i].name,
                                            "waitedMs", (json_int_t)patterns->all[i].total_ms,
                                            "minutes", minutes_of(&patterns->all[i])));

    for (int64_t day = today - PATTERN_DAYS + 1; day <= today; day++) {
        size_t bucket = (size_t)(day % PATTERN_DAYS);
        uint64_t lost = patterns->day[bucket] == day ? patterns->lost[bucket] : 0;
        json_array_append_new(
            days, json_pack("{s:I, s:I}", "day", (json_int_t)day, "lost", (json_int_t)lost));
    }

    return json_pack("{s:o, s:o, s:I}", "locks", locks, "lossesPerDay", days, "dropped",
                     (json_int_t)patterns->dropped);
}

void contention_free(struct contention *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        free(patterns->all[i].name);
    free(patterns->all);
}
