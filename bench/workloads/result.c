/* result.c - the line of JSON that a program of the bench prints as its result. */
#include "measure.h"

#include <string.h>

struct result result_of(const struct bench *b, const char *who, const char *engine)
{
    struct result r = {
        .workload = b->workload, .who = b->who ? b->who : who, .engine = engine, .rep = b->rep};
    r.workers = b->workers > 0 ? b->workers : 1;
    r.section_ms = b->section_ms;
    double *last = &r.commands_per_s;

    for (double *field = &r.seconds; field <= last; field++)
        *field = NAN;
    return r;
}

void result_rate(struct result *r, double ops, int64_t ns)
{
    r->seconds = (double)ns / 1e9;
    r->ops = ops;
    r->per_s = ns > 0 ? ops / r->seconds : NAN;
}

void result_times(struct result *r, const struct times *cycles)
{
    r->p50_us = times_us(cycles, 0.5);
    r->p99_us = times_us(cycles, 0.99);
    r->p999_us = times_us(cycles, 0.999);
}

void result_handoff(struct result *r, const struct times *handoffs)
{
    r->handoff_p50_us = times_us(handoffs, 0.5);
    r->handoff_p99_us = times_us(handoffs, 0.99);
    r->handoffs = (double)handoffs->count;
    if (handoffs->count)
        r->handoff_worst_us = (double)handoffs->worst_ns / 1000;
}

/* Jain's index: the square of the sum over the sum of squares, times their number. */
void result_shares(struct result *r, const uint64_t *counts, int workers)
{
    double sum = 0, squares = 0, least = (double)counts[0], most = least;
    for (int i = 0; i < workers; i++) {
        double count = (double)counts[i];
        sum += count;
        squares += count * count;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }

    r->least = least;
    r->most = most;
    r->jain = squares > 0 ? sum * sum / (squares * workers) : NAN;
}

static void print_word(const char *key, const char *value)
{
    if (!value)
        return;
    printf(",\"%s\":\"", key);
    for (; *value; value++)
        printf(*value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    putchar('"');
}

static void print_number(const char *key, double value, int digits)
{
    if (isfinite(value))
        printf(",\"%s\":%.*f", key, digits, value);
}

void result_print(const struct result *r)
{
    printf("{\"workload\":\"%s\"", r->workload);
    print_word("who", r->who);
    printf(",\"rep\":%d", r->rep);
    print_word("engine", r->engine);
    printf(",\"workers\":%d", r->workers);
    print_number("section_ms", r->section_ms, 3);
    print_number("seconds", r->seconds, 3);
    print_number("ops", r->ops, 0);
    print_number("per_s", r->per_s, 1);
    print_number("p50_us", r->p50_us, 4);
    print_number("p99_us", r->p99_us, 3);
    print_number("p999_us", r->p999_us, 3);
    print_number("handoff_p50_us", r->handoff_p50_us, 3);
    print_number("handoff_p99_us", r->handoff_p99_us, 3);
    print_number("handoff_worst_us", r->handoff_worst_us, 3);
    print_number("handoffs", r->handoffs, 0);
    print_number("least", r->least, 0);
    print_number("most", r->most, 0);
    print_number("jain", r->jain, 5);
    print_number("commands_per_op", r->commands_per_op, 3);
    print_number("commands_per_s", r->commands_per_s, 1);
    print_number("client_cpu_us", r->client_cpu_us, 3);
    print_number("server_cpu_us", r->server_cpu_us, 3);
    print_number("rss_kb", r->rss_kb, 0);
    print_number("rss_before_kb", r->rss_before_kb, 0);
    print_number("bytes_each", r->bytes_each, 1);
    print_number("longest_gap_ms", r->longest_gap_ms, 3);
    print_number("overlaps", r->overlaps, 0);
    print_word("note", r->note);
    puts("}");
    fflush(stdout);
}
