/* timing.c - the timing sheet: derives every interval of a lease from its ttl and the engine's
 * drift. */
#include "timing.h"

#include "base/settings.h"

#include <assert.h>

#define OP_TIMEOUT_LEAST NANOS_OF_MS(50)
#define OP_TIMEOUT_MOST NANOS_OF_MS(500)
#define OP_TIMEOUT_SLOW NANOS_OF_MS(2000) /* longest op_timeout, on a slow connection */
#define PATIENCE NANOS_OF_MS(5)
#define RETRY_MIN NANOS_OF_MS(50)
#define RETRY_MAX NANOS_OF_MS(1000)
#define RETRY_FLOOR NANOS_OF_MS(1)     /* near 0, as full jitter needs */
#define RELEASE_FOR NANOS_OF_MS(60000) /* longer than any request can be in flight */
#define REFRESH_LEAST NANOS_OF_MS(50)
#define REFRESH_FIRST_MOST NANOS_OF_MS(500)
#define HANDOFF_GRACE_MAX NANOS_OF_MS(900)
#define MARGIN NANOS_OF_MS(4)

/* Longest interval: a time plus a few of them cannot overflow. */
#define LONGEST (TIME_NEVER / 8)

static nanos least(nanos a, nanos b)
{
    return a < b ? a : b;
}

static nanos most(nanos a, nanos b)
{
    return a > b ? a : b;
}

nanos timing_nanos(int64_t ms)
{
    return ms >= LONGEST / NANOS_OF_MS(1) ? LONGEST : NANOS_OF_MS(ms);
}

static nanos setting_or(int64_t set_ms, nanos derived)
{
    return set_ms > 0 ? timing_nanos(set_ms) : derived;
}

nanos timing_drift_ppm(const struct engine_limits *limits, nanos length)
{
    /* Computes the drift. Quotient and remainder are separate, because ppm times a day in
     * nanoseconds would almost overflow. The result is rounded up: a drift that is too small allows
     * a second holder. */
    const nanos million = 1000000;
    nanos part = length / million * limits->drift_ppm;
    nanos rest = (length % million * limits->drift_ppm + million - 1) / million;
    return part + rest + NANOS_OF_MS(limits->drift_ms);
}

nanos timing_share(const struct timing *t, nanos part, nanos length)
{
    assert(part >= 0 && t->stop >= 0);

    if (length >= t->stop)
        return part;

    /* Shares of 1/1024 are fine enough for a plan, and ttl * 1024 fits for every ttl. */
    nanos in_1024 = part / most(t->stop / 1024, 1);
    return length / 1024 * in_1024 + length % 1024 * in_1024 / 1024;
}

static void fill_queue(struct timing *t)
{
    t->refresh = least(most(t->ttl / 2, REFRESH_LEAST), TIMING_REFRESH_MOST);
    t->refresh_first = least(most(t->ttl / 20, REFRESH_LEAST), REFRESH_FIRST_MOST);
    t->handoff_grace =
        most(least(t->ttl / 5, HANDOFF_GRACE_MAX), most(t->op_timeout, t->refresh_first) * 7 / 4);
    t->margin = MARGIN;
    t->stagger = TIMING_STAGGER;
}

/* Returns op_timeout: the setting if there is one, otherwise derived from the ttl and from how
 * long requests take on the connection. */
static nanos op_timeout_of(nanos ttl, const struct timing_overrides *overrides)
{
    nanos derived = least(most(ttl / 20, OP_TIMEOUT_LEAST), OP_TIMEOUT_MOST);
    nanos seen = most(derived, least(overrides->takes, OP_TIMEOUT_SLOW));
    return most(least(setting_or(overrides->op_timeout_ms, seen), ttl / 5), 1);
}

/* Returns the value of timing.answer. Unless op_timeout is set, the value includes time to connect:
 * before the first connection nobody knows how long requests take. */
static nanos answer_of(nanos op_timeout, const struct engine_limits *limits,
                       const struct timing_overrides *overrides)
{
    /* twice, because the grant of another caller may have to be acknowledged first */
    nanos acknowledge = 2 * timing_nanos(overrides->acknowledge_ms);
    if (!(limits->offers & ENGINE_QUEUES))
        return 2 * op_timeout + acknowledge;
    if (overrides->op_timeout_ms > 0)
        return op_timeout + acknowledge;
    return most(op_timeout, OP_TIMEOUT_MOST) + least(2 * overrides->takes, OP_TIMEOUT_MOST) +
           acknowledge;
}

void timing_fill(struct timing *t, int64_t ttl_ms, const struct engine_limits *limits,
                 const struct timing_overrides *overrides)
{
    nanos ttl = timing_nanos(ttl_ms);
    t->ttl = ttl;
    t->drift = timing_drift(limits, ttl);
    t->stop = most(ttl - t->drift, 0);
    t->op_timeout = op_timeout_of(ttl, overrides);
    t->answer = answer_of(t->op_timeout, limits, overrides);
    t->patience = least(PATIENCE, t->op_timeout);

    /* early enough for a second try if a renewal fails */
    nanos latest = most(t->stop - 2 * t->op_timeout, t->stop / 3);
    t->renew = overrides->renew_permille > 0 ? ttl / 1000 * overrides->renew_permille : ttl / 3;
    t->renew = least(t->renew, latest);
    t->warn = most(least(ttl / 3 * 2, t->stop), t->renew);
    t->retry_min = setting_or(overrides->retry_min_ms, RETRY_MIN);
    t->retry_max = most(setting_or(overrides->retry_max_ms, RETRY_MAX), t->retry_min);
    t->retry_floor = least(t->retry_min, RETRY_FLOOR);
    t->release_for = RELEASE_FOR;
    fill_queue(t);
    assert(t->renew <= t->warn && t->renew <= t->stop && t->stop <= t->ttl);
}

void timing_sheet_fill(struct timing_sheet *sheet, int64_t ttl_ms,
                       const struct engine_limits *limits, const struct timing_overrides *overrides)
{
    sheet->limits = *limits;
    timing_fill(&sheet->t, ttl_ms, limits, overrides);
    atomic_init(&sheet->op_timeout, sheet->t.op_timeout);
    atomic_init(&sheet->answer, sheet->t.answer);
}

void timing_sheet_adapt(struct timing_sheet *sheet, int64_t ttl_ms,
                        const struct timing_overrides *overrides)
{
    struct timing t;
    timing_fill(&t, ttl_ms, &sheet->limits, overrides);
    atomic_store_explicit(&sheet->op_timeout, t.op_timeout, memory_order_relaxed);
    atomic_store_explicit(&sheet->answer, t.answer, memory_order_relaxed);
}

static int64_t set_or_zero(const struct settings *settings, enum setting_id id)
{
    return settings->value[id] > 0 ? settings->value[id] : 0;
}

struct timing_overrides timing_overrides_of(const struct settings *settings)
{
    return (struct timing_overrides){
        .op_timeout_ms = set_or_zero(settings, SETTING_OP_TIMEOUT),
        .retry_min_ms = set_or_zero(settings, SETTING_RETRY_MIN),
        .retry_max_ms = set_or_zero(settings, SETTING_RETRY_MAX),
        .renew_permille = set_or_zero(settings, SETTING_RENEW_AT),
    };
}

void timing_set_drift(struct engine_limits *limits, const struct settings *settings)
{
    if (settings->value[SETTING_DRIFT] >= 0)
        limits->drift_ppm = settings->value[SETTING_DRIFT];
}
