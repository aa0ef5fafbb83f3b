/* sys_forkmark.c - tests of the mark that tells a parent's handle from one's own. */
#include "sentence.h"

#include "sys/forkmark.h"

#include <sys/wait.h>
#include <unistd.h>

/* What a forked child says: 0 ours, 1 not ours. */
static int ask_child(const struct hf_forkmark *mark, int generations)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(generations > 1 ? ask_child(mark, generations - 1) : !hf_forkmark_ours(mark));
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_ours(void **state)
{
    (void)state;
    struct hf_forkmark mark;
    assert_int_equal(hf_forkmark_set(&mark), 0);
    assert_true(hf_forkmark_ours(&mark));
    hf_forkmark_clear(&mark);
    assert_null(mark.page);
}

static void test_child(void **state)
{
    (void)state;
    struct hf_forkmark mark;
    assert_int_equal(hf_forkmark_set(&mark), 0);
    assert_int_equal(ask_child(&mark, 1), 1);
    assert_int_equal(ask_child(&mark, 2), 1);
    assert_true(hf_forkmark_ours(&mark));
    hf_forkmark_clear(&mark);
}

static void test_childs_own(void **state)
{
    (void)state;
    struct hf_forkmark parents;
    assert_int_equal(hf_forkmark_set(&parents), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hf_forkmark own;
        if (hf_forkmark_set(&own) != 0)
            _exit(2);
        _exit(hf_forkmark_ours(&own) && !hf_forkmark_ours(&parents) ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    hf_forkmark_clear(&parents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a mark is ours in the process that set it", test_ours),
        SENTENCE("a mark is not ours in a child nor in a grandchild, and still is in the parent", test_child),
        SENTENCE("a child that sets a mark of its own owns that one only", test_childs_own),
    };
    return cmocka_run_group_tests_name("sys/forkmark", tests, NULL, NULL);
}
