/* sys_fork_guard.c - tests of the mark that tells a parent's handle from one's own. */
#include "lib/sentence.h"

#include "sys/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

/* What a forked child says: 0 ours, 1 not ours. */
static int ask_child(const struct fork_guard *mark, int generations)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(generations > 1 ? ask_child(mark, generations - 1) : !fork_guard_ours(mark));
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_ours(void **state)
{
    (void)state;
    struct fork_guard mark;
    assert_int_equal(fork_guard_set(&mark), 0);
    assert_true(fork_guard_ours(&mark));
    fork_guard_clear(&mark);
    assert_null(mark.page);
}

static void test_child(void **state)
{
    (void)state;
    struct fork_guard mark;
    assert_int_equal(fork_guard_set(&mark), 0);
    assert_int_equal(ask_child(&mark, 1), 1);
    assert_int_equal(ask_child(&mark, 2), 1);
    assert_true(fork_guard_ours(&mark));
    fork_guard_clear(&mark);
}

static void test_childs_own(void **state)
{
    (void)state;
    struct fork_guard parents;
    assert_int_equal(fork_guard_set(&parents), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct fork_guard own;
        if (fork_guard_set(&own) != 0)
            _exit(2);
        _exit(fork_guard_ours(&own) && !fork_guard_ours(&parents) ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    fork_guard_clear(&parents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a mark is ours in the process that set it", test_ours),
        SENTENCE("a mark is not ours in a child nor in a grandchild, and still is in the parent",
                 test_child),
        SENTENCE("a child that sets a mark of its own owns that one only", test_childs_own),
    };
    return cmocka_run_group_tests_name("sys/forkmark", tests, NULL, NULL);
}
