/* sys_process.c - tests of what is known about processes. */
#include "lib/sentence.h"

#include "sys/process.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t start_sleeper(const char *name)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        for (;;)
            pause();
    }
    return pid;
}

/* Waits until the process is in that state; the runner's budget bounds it. */
static void await_state(pid_t pid, char state)
{
    while (process_state(pid) != state)
        usleep(1000);
}

static void test_states(void **state)
{
    (void)state;
    pid_t pid = start_sleeper("sleeper");
    await_state(pid, 'S');
    kill(pid, SIGSTOP);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    assert_int_equal(process_state(pid), 'T');
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_state(pid), 'Z');
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(process_state(pid), 0);
    assert_int_equal(process_state(getpid()), 'R');
}

static void test_strange_name(void **state)
{
    (void)state;
    pid_t pid = start_sleeper(") Z 1 (");
    await_state(pid, 'S');
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int64_t process_seen, thread_seen;
static int gate[2];

static void *live(void *arg)
{
    char go;
    *(int64_t *)arg = gettid();
    process_seen = process_of_thread(gettid());
    ssize_t n = read(gate[0], &go, 1);
    (void)n;
    return NULL;
}

static void test_thread(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pthread_create(&thread, NULL, live, &thread_seen), 0);
    assert_int_equal(write(gate[1], "x", 1), 1);
    pthread_join(thread, NULL);
    assert_int_not_equal(thread_seen, getpid());
    assert_int_equal(process_seen, getpid());
    assert_int_equal(process_of_thread(getpid()), getpid());
    while (process_of_thread(thread_seen) != 0) /* joined is a moment before gone */
        usleep(1000);
    assert_int_equal(process_of_thread(INT32_MAX), 0);
    close(gate[0]), close(gate[1]);
}

static void test_place(void **state)
{
    (void)state;
    static const uint8_t nothing[16];
    struct process_domain a, b;
    const char *what;
    assert_int_equal(process_domain_read(&a, &what), 0);
    assert_int_equal(process_domain_read(&b, &what), 0);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(a.boot_id, nothing, sizeof nothing);
    assert_int_not_equal(a.pid_namespace, 0);
    assert_int_equal(strncmp(a.libc, "glibc 2.", 8), 0);
}

static void test_self(void **state)
{
    (void)state;
    char name[65] = "";
    gethostname(name, sizeof name - 1);
    assert_string_equal(process_host_name(), name);
    assert_ptr_equal(process_host_name(), process_host_name());
    assert_int_equal(process_id(), getpid());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a child that sleeps, is stopped, is dead and is reaped has the letters S, T, Z "
                 "and none",
                 test_states),
        SENTENCE("a process named like the rest of its line in /proc does not deceive",
                 test_strange_name),
        SENTENCE("a thread leads to its process, and one that ended to none", test_thread),
        SENTENCE("two looks at the place where we run agree, and it has a boot id", test_place),
        SENTENCE("host name and process id are those of the system", test_self),
    };
    return cmocka_run_group_tests_name("sys/process", tests, NULL, NULL);
}
