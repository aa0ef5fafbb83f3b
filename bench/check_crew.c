/* check_crew.c - a lock that keeps nobody out: what a crew that uses it prints must show that. */
#include "crew.h"

static int open_to_all;

static void *enter(const struct bench *b, int worker)
{
    (void)b;
    (void)worker;
    return &open_to_all;
}

static void do_nothing(void *lock)
{
    (void)lock;
}

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    const struct lock_kind kind = {
        .who = "nobody", .engine = "none", .open = enter, .take = do_nothing, .give = do_nothing, .close = do_nothing};
    struct result result;
    int code = crew_run(&b, &kind, &result);
    if (code == 0)
        result_print(&result);
    return code;
}
