/* etcd_counts.c - what an uncontended cycle costs a client of a real etcd: allocations, system
 * calls, instructions, judged by tests/counts.tsv. nghttp2 is in all of them. */
#include "etcd_fixture.h"
#include "lib/counts.h"
#include "lib/cycles.h"

#include <stdio.h>

static char url[128];

static int setup(void **state)
{
    (void)state;
    etcd_needed();
    struct etcd_server *server = etcd_start(NULL);
    snprintf(url, sizeof url, "etcd://127.0.0.1:%u/counts", etcd_port(server));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    etcd_servers_end();
    return 0;
}

static void test_allocations(void **state)
{
    (void)state;
    judge_count("etcd-allocations", count_allocations(url, PLANT_NOTHING));
}

/* A reply and the PING ahead of it may come together or apart, so receives have no bound here. */
static void test_sends(void **state)
{
    (void)state;
    struct calls calls = count_calls(url, PLANT_NOTHING);
    printf("# receives: %.3f, polls: %.3f, others: %.3f, strays: %.3f\n", calls.receives,
           calls.polls, calls.others, calls.strays);
    assert_true(calls.sends > 1.9); /* or they go by another name, and are not counted */
    judge_count("etcd-sends", calls.sends);
}

/* Under callgrind a request takes far longer than usual. */
static void test_instructions(void **state)
{
    (void)state;
    char patient[200];
    counts_need_compiler();
    snprintf(patient, sizeof patient, "%s?spin=0&op_timeout=10s", url);
    judge_count("etcd-instructions", count_instructions(patient, 0));
}

static void test_plants(void **state)
{
    (void)state;
    assert_false(count_is_good("etcd-allocations", count_allocations(url, PLANT_ALLOCATION)));
}

int main(int argc, char **argv)
{
    int part = cycles_part(argc, argv);
    if (part >= 0)
        return part;
    counts_choose_tests();
    const struct CMUnitTest tests[] = {
        SENTENCE("an uncontended cycle on etcd allocates nothing, and neither does nghttp2",
                 test_allocations),
        SENTENCE("each request of it is one send", test_sends),
        SENTENCE("its instructions are counted, with those of nghttp2", test_instructions),
        SENTENCE("an allocation in each cycle is noticed", test_plants),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
