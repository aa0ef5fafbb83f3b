/* patterns.c - buckets of minutes for each name that was waited for, and of days for losses. */
#include "patterns.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t minute_now(void)
{
    return (int64_t)time(NULL) / 60;
}

/* When there is no room, the name that was waited for longest ago goes. */
static struct pattern *find(struct patterns *patterns, const char *name)
{
    struct pattern *oldest = &patterns->all[0];
    for (size_t i = 0; i < patterns->count; i++) {
        struct pattern *pattern = &patterns->all[i];
        if (strcmp(pattern->name, name) == 0)
            return pattern;
        if (pattern->touched_minute < oldest->touched_minute)
            oldest = pattern;
    }
    char *copy = strdup(name);
    if (!copy)
        return NULL;
    if (patterns->count < PATTERN_NAMES)
        oldest = &patterns->all[patterns->count++];
    free(oldest->name);
    *oldest = (struct pattern){.name = copy};
    return oldest;
}

void patterns_waited(struct patterns *patterns, const char *name, int64_t ms)
{
    struct pattern *pattern = find(patterns, name);
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

void patterns_lost(struct patterns *patterns)
{
    int64_t day = minute_now() / 1440;
    size_t bucket = (size_t)(day % PATTERN_DAYS);
    if (patterns->day[bucket] != day)
        patterns->lost[bucket] = 0;
    patterns->day[bucket] = day;
    patterns->lost[bucket]++;
}

static json_t *minutes_of(const struct pattern *pattern)
{
    json_t *minutes = json_array();
    int64_t now = minute_now();
    for (int64_t minute = now - PATTERN_MINUTES + 1; minute <= now; minute++) {
        size_t bucket = (size_t)(minute % PATTERN_MINUTES);
        json_array_append_new(minutes,
                              json_integer(pattern->minute[bucket] == minute ? pattern->waited_ms[bucket] : 0));
    }
    return minutes;
}

json_t *patterns_json(const struct patterns *patterns, const struct right_holder *caller)
{
    json_t *locks = json_array(), *days = json_array();
    int64_t today = minute_now() / 1440;
    for (size_t i = 0; i < patterns->count; i++)
        if (access_allows(caller, RIGHT_READ, patterns->all[i].name))
            json_array_append_new(locks, json_pack("{s:s, s:I, s:o}", "name", patterns->all[i].name, "waitedMs",
                                                   (json_int_t)patterns->all[i].total_ms, "minutes",
                                                   minutes_of(&patterns->all[i])));
    for (int64_t day = today - PATTERN_DAYS + 1; day <= today; day++) {
        size_t bucket = (size_t)(day % PATTERN_DAYS);
        uint64_t lost = patterns->day[bucket] == day ? patterns->lost[bucket] : 0;
        json_array_append_new(days, json_pack("{s:I, s:I}", "day", (json_int_t)day, "lost", (json_int_t)lost));
    }
    return json_pack("{s:o, s:o}", "locks", locks, "lossesPerDay", days);
}

void patterns_free(struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        free(patterns->all[i].name);
}
