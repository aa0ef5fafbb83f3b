/* duration.c - reads and prints durations exactly, without floating point. */
#include "duration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

struct unit {
    const char *name;
    int64_t ticks; /* its length in the smallest unit */
};

/* Smallest first. Each unit is a multiple of those before it. */
static const struct unit ms_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {NULL, 0}};
static const struct unit us_units[] = {{"us", 1},       {"ms", 1000},      {"s", 1000000},
                                       {"m", 60000000}, {"h", 3600000000}, {NULL, 0}};

/* Nine decimals of an hour in microseconds still fit into 64 bits: 10^9 * 3.6 * 10^9. */
#define DECIMALS_MAX 9

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    if (*name == '\0')
        name = "s";
    for (; units->name; units++)
        if (strcmp(units->name, name) == 0)
            return units;
    return NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns false without a digit, or if the number overflows. */
static bool read_digits(const char **at, int64_t *value)
{
    const char *start = *at;
    *value = 0;
    for (; is_digit(**at); (*at)++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, **at - '0', value))
            return false;
    return *at > start;
}

/* Reads the digits behind the point as the fraction part / whole. Zeros at the end are skipped. */
static bool read_decimals(const char **at, int64_t *part, int64_t *whole)
{
    const char *start = *at, *end = start;
    for (; is_digit(**at); (*at)++)
        if (**at != '0')
            end = *at + 1;
    if (*at == start || end - start > DECIMALS_MAX)
        return false;

    for (*part = 0, *whole = 1; start < end; start++) {
        *part = *part * 10 + (*start - '0');
        *whole *= 10;
    }
    return true;
}

static bool parse(const struct unit *units, const char *text, int64_t *ticks)
{
    int64_t number, part = 0, whole = 1, sum;
    if (strcmp(text, "forever") == 0) {
        *ticks = HF_FOREVER;
        return true;
    }
    if (!read_digits(&text, &number))
        return false;

    if (*text == '.') {
        text++;
        if (!read_decimals(&text, &part, &whole))
            return false;
    }

    const struct unit *unit = find_unit(units, text);
    if (!unit || part * unit->ticks % whole != 0)
        return false;
    if (__builtin_mul_overflow(number, unit->ticks, &sum) ||
        __builtin_add_overflow(sum, part * unit->ticks / whole, &sum))
        return false;
    *ticks = sum;
    return true;
}

static void print(const struct unit *units, int64_t ticks, char out[static DURATION_MAX])
{
    if (ticks == HF_FOREVER) {
        snprintf(out, DURATION_MAX, "forever");
        return;
    }

    const struct unit *best = units;
    for (; ticks != 0 && units->name; units++)
        if (ticks % units->ticks == 0)
            best = units;
    snprintf(out, DURATION_MAX, "%" PRId64 "%s", ticks / best->ticks, best->name);
}

hf_status duration_parse(const char *text, int64_t *ms)
{
    if (!text)
        return error_set(HF_INVALID, "no duration given (like 500ms, 5s, 2m, 1h)");
    if (!parse(ms_units, text, ms))
        return error_set(HF_INVALID, "\"%.80s\" is not a duration (like 500ms, 5s, 2m, 1h)", text);
    return HF_OK;
}

hf_status duration_parse_us(const char *text, int64_t *us)
{
    if (!text)
        return error_set(HF_INVALID, "no duration given (like 50us, 5ms, 1s)");
    if (!parse(us_units, text, us))
        return error_set(HF_INVALID, "\"%.80s\" is not a duration (like 50us, 5ms, 1s)", text);
    return HF_OK;
}

void duration_print(int64_t ms, char out[static DURATION_MAX])
{
    print(ms_units, ms, out);
}

void duration_print_us(int64_t us, char out[static DURATION_MAX])
{
    print(us_units, us, out);
}
