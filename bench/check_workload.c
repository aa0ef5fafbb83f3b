/* check_workload.c - a lock that excludes nobody. The result of workers that use it must show
 * overlaps. */
#include "workload.h"

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
    const struct lock_kind kind = {.who = "nobody",
                                   .engine = "none",
                                   .open = enter,
                                   .take = do_nothing,
                                   .give = do_nothing,
                                   .close = do_nothing};
    struct result result;
    int code = workload_run(&b, &kind, &result);

    if (code == 0)
        result_print(&result);
    return code;
}
