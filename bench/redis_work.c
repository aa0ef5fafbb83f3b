/* redis_work.c - the program that runs the workloads on servers, or on a quorum, through the
 * library. */
#include "library.h"
#include "redis_requests.h"

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    if (!b.url)
        bench_fail("--url is missing");
    fill_in(&b);
    return run_on_servers(&b);
}
