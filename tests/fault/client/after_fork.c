/* after_fork.c - a process forks while it holds: the child can do nothing with the parent's
 * handles, the parent does not notice, and nothing of the library is open in a program that a child
 * executes. */
#include "lib/actors.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct want now_or_never = {.name = "l", .ttl_ms = 60000};

static void never_called(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)outcome, (void)arg;
    abort();
}

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

/* Runs in a forked child; the test sees whether it came to its end. */
static void assert_child_is_content(void (*child)(hf_client *, hf_lease *), hf_client *client,
                                    hf_lease *lease)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(10);
        child(client, lease);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void use_handles(hf_client *client, hf_lease *lease)
{
    hf_lease *other;
    struct hf_request request = request_of(&(struct want){.name = "other"});
    part_must(hf_release(lease) == HF_FORKED);
    part_must(strstr(hf_error_text(), stage_path()));
    part_must(hf_extend(lease, 1000) == HF_FORKED);
    part_must(hf_cancel(lease) == HF_FORKED);
    part_must(hf_acquire(client, &request, &other) == HF_FORKED && !other);
    part_must(hf_acquire_start(client, &request, never_called, NULL, &other) == HF_FORKED &&
              !other);
    part_must(hf_show(client, "l", ignore_row, NULL) == HF_FORKED);
    struct hf_counters counters = {.size = sizeof counters};
    part_must(hf_client_counters(client, &counters) == HF_FORKED);
    struct hf_capabilities capabilities = {.size = sizeof capabilities};
    part_must(hf_client_capabilities(client, &capabilities) == HF_FORKED);
    part_must(hf_client_setting(client, "ttl", NULL, NULL) == HF_FORKED);
    part_must(hf_lease_fd(lease) == -1);
    part_must(!hf_lease_ok(lease));
    part_must(hf_lease_left_ms(lease) == 0);
    part_must(hf_lease_token(lease) == 0);
    hf_lease_free(lease);
    part_must(hf_close(client, 1000) == HF_FORKED);
}

/* G19 */
static void test_handles(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    hf_lease *lease = must_acquire(client, &now_or_never);
    uint64_t token = hf_lease_token(lease);
    assert_child_is_content(use_handles, client, lease);
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_lease_token(lease), token);
    assert_int_equal(see(client, "l").token, token);
    assert_int_equal(see(client, "other").holders, 0);
    assert_int_equal(hf_extend(lease, 0), HF_OK);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

static void open_own(hf_client *client, hf_lease *lease)
{
    (void)client, (void)lease;
    hf_client *mine = part_client();
    hf_lease *second;
    struct hf_request request = request_of(&now_or_never);
    part_must(hf_acquire(mine, &request, &second) == HF_BUSY);
    request.name = "child";
    part_must(hf_acquire(mine, &request, &second) == HF_OK && hf_lease_ok(second));
    part_must(hf_close(mine, 1000) == HF_OK);
}

static void test_own_client(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    hf_lease *lease = must_acquire(client, &now_or_never);
    assert_child_is_content(open_own, client, lease);
    assert_int_equal(see(client, "child").holders, 0);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

/* A child that lives on must not keep the parent's holds alive: it has the memory, not the life. */
static void hold_fork_and_wait(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = part_client();
    struct hf_request request = request_of(&now_or_never);
    hf_lease *lease;
    part_must(hf_acquire(client, &request, &lease) == HF_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        pause();
        _exit(0);
    }
    part_says(me, &(struct answer){.what = ORDER_GO, .number = child});
    part_awaits_go(me);
}

static void test_child_outlives(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *parent = actor_start_part(hold_fork_and_wait, NULL);
    pid_t child = (pid_t)actor_answer(parent, ORDER_GO, 0).number;
    actor_kill(parent);
    await_sight(client, "l", 0, 0);
    assert_int_equal(kill(child, 0), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
}

/* What /proc/self/fd of an executed program leads to, without its own directory handle. */
static void list_descriptors(char *text, size_t size)
{
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", "for f in /proc/$$/fd/*; do echo \"${f##*/}\"; done",
              (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    size_t used = 0;
    for (ssize_t n; used < size - 1 && (n = read(out[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = 0;
    close(out[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* G19 */
static void test_descriptors(void **state)
{
    (void)state;
    char before[1024], after[1024];
    list_descriptors(before, sizeof before);
    hf_client *client = stage_client();
    hf_lease *lease = must_acquire(client, &now_or_never);
    int lost = hf_lease_fd(lease);
    assert_true(lost >= 0);
    assert_true(fcntl(lost, F_GETFD) & FD_CLOEXEC);
    list_descriptors(after, sizeof after);
    assert_string_equal(before, after);
    hf_lease_free(lease);
}

static volatile sig_atomic_t pipes;

static void count_pipe(int signal_number)
{
    (void)signal_number;
    pipes = pipes + 1;
}

/* Lost, with its descriptor watched by a child that is gone. */
static void test_no_sigpipe(void **state)
{
    (void)state;
    signal(SIGPIPE, count_pipe);
    hf_client *client = stage_client();
    hf_lease *lease =
        must_acquire(client, &(struct want){.name = "l", .ttl_ms = 90, .flags = HF_AUTO_RENEW});
    int lost = hf_lease_fd(lease);
    assert_child_is_content(use_handles, client, lease);
    assert_int_equal(unlink(stage_path()), 0);
    assert_int_equal(poll(&(struct pollfd){.fd = lost, .events = POLLIN}, 1, ACTOR_PATIENCE_MS), 1);
    assert_false(hf_lease_ok(lease));
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    hf_lease_free(lease);
    struct sigaction now;
    sigaction(SIGPIPE, NULL, &now);
    assert_ptr_equal(now.sa_handler, count_pipe);
    assert_int_equal(pipes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("in a forked child every call answers HF_FORKED and the parent is unharmed",
               test_handles),
        STAGED("a forked child with a client of its own is refused the parent's lock",
               test_own_client),
        STAGED("a hold ends with its process although a forked child lives on",
               test_child_outlives),
        STAGED("no descriptor is open in a program that a child executes", test_descriptors),
        STAGED("no SIGPIPE is raised and its handler is the application's", test_no_sigpipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
