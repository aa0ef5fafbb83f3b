/* counts.h - the numbers of tests/counts.tsv: what may not get worse, in counts that do not depend
 * on the machine. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Prints the count beside the one in the table. Returns false if it is worse by more than the slack
 * in the table. */
bool count_is_good(const char *name, double counted);

/* Fails the test if the count is worse than the table says. With HF_COUNTS=renew in the environment
 * nothing fails, and the lines "count NAME NUMBER" are for tests/renew-counts; then
 * counts_choose_tests() leaves only those tests that count cycles. */
void judge_count(const char *name, double counted);
void counts_choose_tests(void);

/* Returns the count in the table; the test fails if there is none. */
double expected_count(const char *name);

/* First line of a test whose count depends on the compiler and the C library: skips the test, with
 * the reason, if they are not those of the table. */
void counts_need_compiler(void);

/* Returns the nanoseconds that all threads of a process have been on a CPU. */
int64_t cpu_of(pid_t pid);
