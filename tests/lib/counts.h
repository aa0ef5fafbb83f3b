/* counts.h - the numbers of tests/counts.tsv: what may not get worse, in counts that do not depend
 * on the machine. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Prints what was counted beside what is written there; false: it is worse, by more than the slack
 * that is written. */
bool count_is_good(const char *name, double counted);

/* Fails the test when it is worse. With HF_COUNTS=renew in the environment nothing fails, and the
 * lines "count NAME NUMBER" are for tests/renew-counts; then counts_choose_tests() leaves only
 * those that count cycles. */
void judge_count(const char *name, double counted);
void counts_choose_tests(void);

/* What is written; the test fails when nothing is. */
double expected_count(const char *name);

/* First line of a test whose count comes from the compiler and the C library: skips it, with the
 * reason, where they are not those for which it is written. */
void counts_need_compiler(void);

/* Nanoseconds that all threads of a process have been on a CPU. */
int64_t cpu_of(pid_t pid);
