/* table_truncated.c - somebody truncates a table while programs use it: they get errors and go on.
 * A SIGBUS that is not the table's ends a program as ever. */
#include "table_fixture.h"

#include <sys/mman.h>

/* Children begin with the handler of the test's own library. */
static hf_status open_plainly(const struct scene *s, hf_client **client)
{
    signal(SIGBUS, SIG_DFL);
    return scene_open(s->url, client);
}

static void ignore_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)outcome, (void)arg;
}

static void use(hf_client *client, hf_lease *held)
{
    static const hf_status expected[] = {HF_OK,       HF_DAMAGED, HF_LOST, HF_UNAVAILABLE, HF_BUSY,
                                         HF_NOT_HELD, HF_TIMEOUT, HF_FULL, HF_CLOSED};
    for (int i = 0; i < 20; i++) {
        char name[16];
        hf_lease *lease = NULL;
        snprintf(name, sizeof name, "n%d", i);
        hf_status status = acquire(client, name, i % 2 ? 20 : 0, &lease);
        bool known = false;
        for (size_t k = 0; k < sizeof expected / sizeof *expected; k++)
            known |= status == expected[k];
        REQUIRE(known && status != HF_OK);
        hf_lease_free(lease);
    }
    REQUIRE(hf_extend(held, 1000) != HF_OK);
}

/* A holder, a waiter in the background and a keeper that renews, while the file becomes `size`. */
static void truncate_in_use(const struct scene *s, off_t size)
{
    hf_client *client, *other;
    hf_lease *held, *waiting;
    struct hf_request renewed = {
        .size = sizeof renewed, .name = "renewed", .ttl_ms = 150, .flags = HF_AUTO_RENEW};
    struct hf_request wait = {.size = sizeof wait, .name = "held", .ttl_ms = 1000, .wait_ms = 300};
    REQUIRE(open_plainly(s, &client) == HF_OK && scene_open(s->url, &other) == HF_OK);
    REQUIRE(acquire(client, "held", 0, &held) == HF_OK);
    hf_lease *kept;
    REQUIRE(hf_acquire(client, &renewed, &kept) == HF_OK);
    REQUIRE(hf_acquire_start(other, &wait, ignore_outcome, NULL, &waiting) == HF_OK);
    REQUIRE(truncate(s->path, size) == 0);
    nap_ms(400); /* renewals and the end of the wait come due */
    use(client, held);
    hf_lease_free(held);
    hf_lease_free(kept);
    hf_lease_free(waiting);
    int64_t from = now_ms();
    (void)!hf_close(client, 1000);
    (void)!hf_close(other, 1000);
    REQUIRE(now_ms() - from < 8000);
    REQUIRE(unlink(s->path) == 0);
    REQUIRE(try_open(s->url).status == HF_OK);
}

static void truncate_to_nothing(void *arg)
{
    truncate_in_use(arg, 0);
}

static void truncate_to_the_head(void *arg)
{
    truncate_in_use(arg, LOCAL_PAGE);
}

static void truncate_the_cells(void *arg)
{
    truncate_in_use(arg, LOCAL_CELLS_AT);
}

/* G23 */
static void test_truncated(void **state)
{
    in_child(truncate_to_nothing, *state);
    in_child(truncate_to_the_head, *state);
    in_child(truncate_the_cells, *state);
}

enum { MANY_TABLES = 70 };

static void path_of(const struct scene *s, int number, char *path, size_t size)
{
    snprintf(path, size, "%s/table-%d", s->dir, number);
}

static void open_many(const struct scene *s, hf_client *client[MANY_TABLES])
{
    signal(SIGBUS, SIG_DFL);
    for (int i = 0; i < MANY_TABLES; i++) {
        char path[160], url[200];
        path_of(s, i, path, sizeof path);
        snprintf(url, sizeof url, "local:%s", path);
        REQUIRE(scene_open(url, &client[i]) == HF_OK);
    }
}

static void truncate_many(void *arg)
{
    const struct scene *s = arg;
    hf_client *client[MANY_TABLES];
    open_many(s, client);
    for (int i = MANY_TABLES - 1; i >= 0; i -= 23) {
        char path[160];
        hf_lease *held = NULL;
        path_of(s, i, path, sizeof path);
        REQUIRE(acquire(client[i], "held", 0, &held) == HF_OK);
        REQUIRE(truncate(path, 0) == 0);
        REQUIRE(hf_extend(held, 1000) != HF_OK);
        hf_lease_free(held);
    }
}

static void test_many_tables(void **state)
{
    in_child(truncate_many, *state);
}

static void fault_elsewhere(void *arg)
{
    struct scene *s = arg;
    hf_client *client;
    REQUIRE(open_plainly(s, &client) == HF_OK);
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    REQUIRE(fd >= 0);
    volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED);
    map[0] = 1;
}

static void raise_it(void *arg)
{
    struct scene *s = arg;
    hf_client *client;
    REQUIRE(open_plainly(s, &client) == HF_OK);
    raise(SIGBUS);
}

static void test_other_faults(void **state)
{
    int status = end_of(start_child(fault_elsewhere, *state, 30));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = end_of(start_child(raise_it, *state, 30));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void exit_three(int signal)
{
    (void)signal;
    _exit(3);
}

static void have_a_handler(void *arg)
{
    struct scene *s = arg;
    hf_client *client;
    signal(SIGBUS, exit_three);
    REQUIRE(scene_open(s->url, &client) == HF_OK);
    raise(SIGBUS);
}

static void close_again(void *arg)
{
    struct scene *s = arg;
    signal(SIGBUS, SIG_DFL);
    REQUIRE(try_open(s->url).status == HF_OK);
    struct sigaction now;
    REQUIRE(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
}

static void test_handlers_of_the_program(void **state)
{
    assert_int_equal(WEXITSTATUS(end_of(start_child(have_a_handler, *state, 30))), 3);
    in_child(close_again, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("programs whose table is truncated get errors and go on", test_truncated),
        SCENE("of a program's 70 tables any may be truncated", test_many_tables),
        SCENE("a SIGBUS that is not the table's ends the program", test_other_faults),
        SCENE("a program's own handler stays, and none stays behind the last client",
              test_handlers_of_the_program),
    };
    return cmocka_run_group_tests_name("table: truncated", tests, NULL, NULL);
}
