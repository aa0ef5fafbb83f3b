/* fuzz_duration.c - what is read as a duration is in range, looks like one, and survives being
 * printed. */
#include "fuzz.h"

#include "base/duration.h"
#include "base/error.h"

const char *const fuzz_seeds[] = {"500ms",
                                  "5s",
                                  "2m",
                                  "1h",
                                  "1.5s",
                                  "0",
                                  "50us",
                                  "forever",
                                  "0.5m",
                                  "1.50h",
                                  "007",
                                  "9223372036854775807ms",
                                  "9223372036854775.807s",
                                  "1.000001s",
                                  "0.000000001h",
                                  NULL};
unsigned long fuzz_accepted, fuzz_refused;

/* The whole text must be digits, a point, digits, a unit; and the value what floating point makes
 * of it, as far as that is exact. */
static void check_meaning(const char *text, int64_t ticks, long double ticks_per_second)
{
    size_t whole = strspn(text, "0123456789");
    const char *unit = text + whole;
    if (*unit == '.') {
        size_t decimals = strspn(unit + 1, "0123456789");
        MUST(decimals > 0);
        unit += 1 + decimals;
    }
    MUST(whole > 0);
    static const char *const names[] = {"us", "ms", "s", "", "m", "h"};
    static const long double seconds[] = {1e-6L, 1e-3L, 1, 1, 60, 3600};
    size_t known = 0;
    while (known < 6 && strcmp(unit, names[known]) != 0)
        known++;
    MUST(known < 6);
    long double error =
        strtold(text, NULL) * seconds[known] * ticks_per_second - (long double)ticks;
    MUST(ticks > INT64_C(1) << 40 || (error > -0.01L && error < 0.01L));
}

static void check_milliseconds(const char *text)
{
    int64_t ms = -7, again = -7;
    char printed[DURATION_MAX];
    if (duration_parse(text, &ms) != HF_OK) {
        MUST(ms == -7);
        MUST(strstr(error_text(), "is not a duration"));
        fuzz_refused++;
        return;
    }
    fuzz_accepted++;
    MUST(ms >= 0 || (ms == HF_FOREVER && strcmp(text, "forever") == 0));
    if (ms >= 0)
        check_meaning(text, ms, 1e3L);
    duration_print(ms, printed);
    MUST(duration_parse(printed, &again) == HF_OK);
    MUST(again == ms);
    /* What is a number of milliseconds is a thousand times as many microseconds, unless that is too
     * many. */
    if (ms >= 0 && ms <= INT64_MAX / 1000)
        MUST(duration_parse_us(text, &again) == HF_OK && again == ms * 1000);
}

static void check_microseconds(const char *text)
{
    int64_t us = -7, again = -7;
    char printed[DURATION_MAX];
    if (duration_parse_us(text, &us) != HF_OK) {
        MUST(us == -7);
        return;
    }
    MUST(us >= 0 || us == HF_FOREVER);
    if (us >= 0)
        check_meaning(text, us, 1e6L);
    duration_print_us(us, printed);
    MUST(duration_parse_us(printed, &again) == HF_OK);
    MUST(again == us);
}

/* The same bytes as a number: every number of at least 0 can be printed and read. */
static void check_number(const uint8_t *data, size_t size)
{
    int64_t ms = 0, again;
    char printed[DURATION_MAX];
    memcpy(&ms, data, size < sizeof ms ? size : sizeof ms);
    ms &= INT64_MAX;
    duration_print(ms, printed);
    MUST(duration_parse(printed, &again) == HF_OK && again == ms);
    duration_print_us(ms, printed);
    MUST(duration_parse_us(printed, &again) == HF_OK && again == ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    check_milliseconds(text);
    check_microseconds(text);
    if (size > 0)
        check_number(data, size);
    free(text);
    return 0;
}
