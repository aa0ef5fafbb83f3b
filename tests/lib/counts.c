/* counts.c - reads the table of counts and compares; sums up what processes used. */
#include "counts.h"

#include "sentence.h"

#include <dirent.h>
#include <gnu/libc-version.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#ifdef __clang__
#define COMPILER "clang"
#else
#define COMPILER "gcc"
#endif

struct expected {
    double at_most, slack_percent;
};

static bool is_renewing(void)
{
    const char *how = getenv("HF_COUNTS");
    return how && strcmp(how, "renew") == 0;
}

void counts_choose_tests(void)
{
    if (is_renewing())
        cmocka_set_test_filter("*uncontended*");
}

/* Copies the words behind the name. Returns false if the name is not in the table. */
static bool find_line(const char *name, char *words, size_t size)
{
    char line[256];
    size_t length = strlen(name);
    bool found = false;
    FILE *table = fopen(HF_TESTS_FOLDER "/counts.tsv", "r");
    if (!table)
        fail_msg("%s: cannot be read", HF_TESTS_FOLDER "/counts.tsv");
    while (!found && fgets(line, sizeof line, table)) {
        found = strncmp(line, name, length) == 0 && line[length] == '\t';
        if (found)
            snprintf(words, size, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
    }
    fclose(table);
    return found;
}

static struct expected find(const char *name)
{
    char words[256];
    struct expected expected;
    if (!find_line(name, words, sizeof words) ||
        sscanf(words, "%lf\t%lf", &expected.at_most, &expected.slack_percent) != 2)
        fail_msg("%s: not in tests/counts.tsv", name);
    return expected;
}

double expected_count(const char *name)
{
    return find(name).at_most;
}

bool count_is_good(const char *name, double counted)
{
    struct expected expected = find(name);
    printf("# %s: %.3f, written is %g with a slack of %g%%\n", name, counted, expected.at_most,
           expected.slack_percent);
    return counted <= expected.at_most * (1 + expected.slack_percent / 100) + 1e-9;
}

void judge_count(const char *name, double counted)
{
    if (is_renewing())
        printf("count %s %.3f\n", name, counted);
    else if (!count_is_good(name, counted))
        fail_msg("%s: %.3f is worse than what stands in tests/counts.tsv", name, counted);
}

void counts_need_compiler(void)
{
    char here[256], written[256];
    struct utsname machine;
    assert_int_equal(uname(&machine), 0);
    snprintf(here, sizeof here, "%s, %s %s, glibc %s, hiredis %d.%d.%d", machine.machine, COMPILER,
             __VERSION__, gnu_get_libc_version(), HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    if (is_renewing()) {
        printf("compiler %s\n", here);
        return;
    }
    if (!find_line("compiler", written, sizeof written))
        fail_msg("no compiler is named in tests/counts.tsv");
    if (strcmp(here, written) == 0)
        return;
    print_message("# counted with %s, here it is %s\n", written, here);
    skip();
}

int64_t cpu_of(pid_t pid)
{
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    int64_t sum = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, task->d_name);
        FILE *file = fopen(path, "r");
        long long on_cpu;
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%lld", &on_cpu), 1);
        fclose(file);
        sum += on_cpu;
    }
    closedir(tasks);
    return sum;
}
