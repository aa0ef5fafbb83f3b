/* timing.c - the timing sheet: derives every interval of a lease from its ttl and the engine's drift. */
#include "timing.h"

#include "base/settings.h"

#define OP_TIMEOUT_LEAST HF_MS(50)
#define OP_TIMEOUT_MOST HF_MS(500)
#define PATIENCE HF_MS(5)
#define RETRY_MIN HF_MS(50)
#define RETRY_MAX HF_MS(1000)
#define RETRY_FLOOR HF_MS(1)     /* keeps a loop of retries from spinning; full jitter wants it near 0 */
#define RELEASE_FOR HF_MS(60000) /* longer than any request can be under way */
#define REFRESH_LEAST HF_MS(50)
#define REFRESH_MOST HF_MS(5000)
#define REFRESH_FIRST_MOST HF_MS(500)
#define TURN_MOST HF_MS(2000)
#define TURN_TRIES 4 /* half as many, and simulated waiters lose their turn */
#define MARGIN HF_MS(4)
#define STAGGER HF_MS(20)

/* No interval is longer than this, so that a time plus a few intervals cannot overflow. */
#define LONGEST (HF_NEVER / 8)

static hf_nanos least(hf_nanos a, hf_nanos b)
{
    return a < b ? a : b;
}

static hf_nanos most(hf_nanos a, hf_nanos b)
{
    return a > b ? a : b;
}

hf_nanos hf_timing_nanos(int64_t ms)
{
    return ms >= LONGEST / HF_MS(1) ? LONGEST : HF_MS(ms);
}

static hf_nanos wish_or(int64_t wish_ms, hf_nanos derived)
{
    return wish_ms > 0 ? hf_timing_nanos(wish_ms) : derived;
}

hf_nanos hf_timing_drift_ppm(const struct hf_limits *limits, hf_nanos length)
{
    /* Whole and rest apart: ppm times a day in nanoseconds would come close to the end of the range. The rest is
     * rounded up, because a drift that is too small is a second holder. */
    const hf_nanos million = 1000000;
    hf_nanos part = length / million * limits->drift_ppm;
    hf_nanos rest = (length % million * limits->drift_ppm + million - 1) / million;
    return part + rest + HF_MS(limits->drift_ms);
}

hf_nanos hf_timing_share(const struct hf_timing *t, hf_nanos part, hf_nanos length)
{
    if (length >= t->stop)
        return part;
    /* 1/1024 is fine enough for a plan, and ttl times 1024 fits for any ttl that an engine offers. */
    hf_nanos in_1024 = part / most(t->stop / 1024, 1);
    return length / 1024 * in_1024 + length % 1024 * in_1024 / 1024;
}

static void fill_queue(struct hf_timing *t)
{
    t->refresh = least(most(t->ttl / 2, REFRESH_LEAST), REFRESH_MOST);
    t->refresh_first = least(most(t->ttl / 20, REFRESH_LEAST), REFRESH_FIRST_MOST);
    t->turn = most(TURN_TRIES * t->op_timeout, least(t->ttl / 5, TURN_MOST));
    t->margin = MARGIN;
    t->stagger = STAGGER;
}

void hf_timing_fill(struct hf_timing *t, int64_t ttl_ms, const struct hf_limits *limits,
                    const struct hf_timing_wishes *wishes)
{
    hf_nanos ttl = hf_timing_nanos(ttl_ms);
    t->ttl = ttl;
    t->drift = hf_timing_drift(limits, ttl);
    t->stop = most(ttl - t->drift, 0);
    t->op_timeout = least(most(ttl / 20, OP_TIMEOUT_LEAST), OP_TIMEOUT_MOST);
    t->op_timeout = most(least(wish_or(wishes->op_timeout_ms, t->op_timeout), ttl / 5), 1);
    t->answer = 2 * t->op_timeout + hf_timing_nanos(wishes->acknowledge_ms);
    t->patience = least(PATIENCE, t->op_timeout);
    /* A renewal that is planned too late to be tried twice would be a plan to lose the lease. */
    hf_nanos latest = most(t->stop - 2 * t->op_timeout, t->stop / 3);
    t->renew = wishes->renew_permille > 0 ? ttl / 1000 * wishes->renew_permille : ttl / 3;
    t->renew = least(t->renew, latest);
    t->warn = most(least(ttl / 3 * 2, t->stop), t->renew);
    t->retry_min = wish_or(wishes->retry_min_ms, RETRY_MIN);
    t->retry_max = most(wish_or(wishes->retry_max_ms, RETRY_MAX), t->retry_min);
    t->retry_floor = least(t->retry_min, RETRY_FLOOR);
    t->release_for = RELEASE_FOR;
    fill_queue(t);
}

void hf_sheet_fill(struct hf_sheet *sheet, int64_t ttl_ms, const struct hf_limits *limits,
                   const struct hf_timing_wishes *wishes)
{
    sheet->limits = *limits;
    hf_timing_fill(&sheet->t, ttl_ms, limits, wishes);
}

static int64_t wish(const struct hf_settings *settings, enum hf_setting_id id)
{
    return settings->value[id] > 0 ? settings->value[id] : 0;
}

struct hf_timing_wishes hf_timing_wishes_of(const struct hf_settings *settings)
{
    bool strong = settings->value[HF_SET_REPLICAS] || settings->value[HF_SET_FSYNC];
    return (struct hf_timing_wishes){
        .op_timeout_ms = wish(settings, HF_SET_OP_TIMEOUT),
        .retry_min_ms = wish(settings, HF_SET_RETRY_MIN),
        .retry_max_ms = wish(settings, HF_SET_RETRY_MAX),
        .renew_permille = wish(settings, HF_SET_RENEW_AT),
        .acknowledge_ms = strong ? settings->value[HF_SET_REPLICA_TIMEOUT] : 0,
    };
}

void hf_timing_set_drift(struct hf_limits *limits, const struct hf_settings *settings)
{
    if (settings->value[HF_SET_DRIFT] >= 0)
        limits->drift_ppm = settings->value[HF_SET_DRIFT];
}
