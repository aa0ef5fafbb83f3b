/* measure.h - what every program of the bench needs: its arguments, the clock, times and their quantiles, what
 * processes cost, and the one line that it prints for a result. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* ---- Arguments ---- */

/* PROGRAM WORKLOAD [--url URL] [--who WHO] [--seconds S] [--rep R] [--workers N] [--section-ms M] [--cpu C]
 * [--server-pid PID]. What was not given is 0 or NULL, cpu -1. */
struct bench {
    const char *workload, *url, *who;
    double seconds, section_ms;
    int rep, workers, cpu;
    int rate; /* cycles that each worker begins in a second, whether or not the last one has ended; 0: one after the
                 other */
    pid_t server_pid; /* whose CPU is counted as the server's */
};

/* Ends the program with status 64 when they make no sense. */
struct bench bench_arguments(int argc, char **argv);
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2))); /* status 70 */

/* ---- Clock and times ---- */

int64_t now_ns(void);    /* monotonic */
void pass_ms(double ms); /* asleep; 0: returns at once */

/* Times by size: 64 slots for each power of two, so a quantile is wrong by less than 1.6%. Zero is an empty one. */
enum { TIMES_SLOTS = 64 * 48 };
struct times {
    uint64_t count;
    int64_t worst_ns;
    uint32_t slot[TIMES_SLOTS];
};
void times_note(struct times *t, int64_t ns);
void times_join(struct times *into, const struct times *from);
double times_us(const struct times *t, double quantile); /* NAN: there is none */

/* ---- Processes ---- */

void pin(int cpu);            /* this process and those it starts; -1: leaves it as it is */
double cpu_us(pid_t pid);     /* of all its threads so far; 0: this process. NAN: there is no such process */
double children_cpu_us(void); /* of those that were waited for */
int64_t rss_kb(pid_t pid);    /* 0: this process */

/* ---- The result ---- */

/* One line of JSON. What is NAN (or NULL) is left out; `result_of` sets everything so except what the arguments say. */
struct result {
    const char *workload, *who, *engine, *note;
    int rep, workers;
    double section_ms, seconds, ops, per_s;
    double p50_us, p99_us, p999_us, handoff_p50_us, handoff_p99_us;
    double least, most, jain; /* acquisitions of the worker with the fewest, the most; fairness, 1 is perfect */
    double commands_per_op, client_cpu_us, server_cpu_us, rss_kb, bytes_each, overlaps;
    double handoffs, handoff_worst_us, rss_before_kb, longest_gap_ms, commands_per_s;
};
struct result result_of(const struct bench *b, const char *who, const char *engine);
void result_rate(struct result *r, double ops, int64_t ns);      /* seconds, ops, per_s */
void result_times(struct result *r, const struct times *cycles); /* p50, p99, p999 */
void result_handoff(struct result *r, const struct times *handoffs);
void result_shares(struct result *r, const uint64_t *counts, int workers); /* least, most, jain */
void result_print(const struct result *r);
