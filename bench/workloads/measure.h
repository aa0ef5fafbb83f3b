/* measure.h - shared by `holdfast bench` and all programs of the bench: arguments, clock, times and
 * their quantiles, CPU time and memory of processes, and the result. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* ---- Arguments ---- */

/* PROGRAM WORKLOAD [--url URL] [--who WHO] [--seconds S] [--rep R] [--workers N] [--section-ms M]
 * [--cpu C] [--server-pid PID]. Defaults: seconds 1, rep 1, cpu -1, everything else 0 or NULL. */
struct bench {
    const char *workload, *url, *who;
    double seconds, section_ms;
    int rep, workers, cpu;
    int rate; /* cycles that a worker begins in a second, whether or not the last one has ended;
                 0: each begins when the last one has ended */
    pid_t server_pid; /* the process whose CPU time is the server's */
};

/* Ends the program with status 64 if the arguments are invalid. */
struct bench bench_arguments(int argc, char **argv);
/* Prints a message and ends the program with status 70. */
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Clock and times ---- */

int64_t now_ns(void);    /* monotonic */
void pass_ms(double ms); /* sleeps; returns at once if 0 */

/* A histogram of times with 64 slots for each power of two, so the error of a quantile is below
 * 1.6%. All zero is an empty histogram. */
enum { TIMES_SLOTS = 64 * 48 };
struct times {
    uint64_t count;
    int64_t worst_ns;
    uint32_t slot[TIMES_SLOTS];
};
void times_note(struct times *t, int64_t ns);
void times_join(struct times *into, const struct times *from);
double times_us(const struct times *t, double quantile); /* NAN if empty */

/* ---- Processes ---- */

void pin(int cpu);            /* pins this process and those it starts; -1: does nothing */
double cpu_us(pid_t pid);     /* CPU time of its threads; 0: this process; NAN: no such process */
double children_cpu_us(void); /* CPU time of children that were waited for */
int64_t rss_kb(pid_t pid);    /* 0: this process */

/* ---- The result ---- */

/* One line of JSON. Fields that are NAN or NULL are left out. result_of() sets every field to
 * NAN or NULL that the arguments do not give. */
struct result {
    const char *workload, *who, *engine, *note;
    int rep, workers;
    double section_ms, seconds, ops, per_s;
    double p50_us, p99_us, p999_us, handoff_p50_us, handoff_p99_us;
    double least, most, jain; /* fewest and most acquisitions of a worker; fairness, 1 is perfect */
    double commands_per_op, client_cpu_us, server_cpu_us, rss_kb, bytes_each, overlaps;
    double handoffs, handoff_worst_us, rss_before_kb, longest_gap_ms, commands_per_s;
};
struct result result_of(const struct bench *b, const char *who, const char *engine);
void result_rate(struct result *r, double ops, int64_t ns);      /* seconds, ops, per_s */
void result_times(struct result *r, const struct times *cycles); /* p50, p99, p999 */
void result_handoff(struct result *r, const struct times *handoffs);
void result_shares(struct result *r, const uint64_t *counts, int workers); /* least, most, jain */
void result_print(const struct result *r);
