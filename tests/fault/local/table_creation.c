/* table_creation.c - a new table: made by many at once, by somebody who dies over it, with a mode,
 * under odd paths. */
#include "lib/privileges.h"
#include "table_fixture.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static bool die_at_link;

/* Stands in for the C library's in this program: the moment between making a table and giving it
 * its path. */
int link(const char *from, const char *to)
{
    if (die_at_link)
        raise(SIGKILL);
    return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- Many makers ---- */

enum { MAKERS = 16, ROUNDS = 20 };

struct crowd {
    const char *url;
    _Atomic int ready, go, granted, busy, opened, leave;
};

static void make_with_others(void *arg)
{
    struct crowd *c = arg;
    hf_client *client;
    hf_lease *lease;
    atomic_fetch_add(&c->ready, 1);
    while (!atomic_load(&c->go))
        sched_yield();
    REQUIRE(scene_open(c->url, &client) == HF_OK);
    hf_status status = acquire(client, "job", 0, &lease);
    REQUIRE(status == HF_OK || status == HF_BUSY);
    atomic_fetch_add(status == HF_OK ? &c->granted : &c->busy, 1);
    atomic_fetch_add(&c->opened, 1);
    while (!atomic_load(&c->leave))
        nap_ms(1);
    REQUIRE(hf_close(client, 2000) == HF_OK);
}

static void test_crowd(void **state)
{
    struct scene *s = *state;
    struct crowd *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid[MAKERS];
        *c = (struct crowd){.url = s->url};
        for (int i = 0; i < MAKERS; i++)
            pid[i] = start_child(make_with_others, c, 30);
        while (atomic_load(&c->ready) < MAKERS)
            sched_yield();
        atomic_store(&c->go, 1);
        for (int64_t until = now_ms() + 20000;
             atomic_load(&c->opened) < MAKERS && now_ms() < until;)
            nap_ms(1);
        atomic_store(&c->leave, 1);
        for (int i = 0; i < MAKERS; i++)
            assert_int_equal(end_of(pid[i]), 0);
        assert_int_equal(atomic_load(&c->granted), 1);
        assert_int_equal(atomic_load(&c->busy), MAKERS - 1);
        assert_int_equal(count_files(s->dir, ".new-"), 0);
        assert_int_equal(count_files(s->dir, ""), 1);
        assert_int_equal(unlink(s->path), 0);
    }
    munmap(c, sizeof *c);
}

static void die_making(void *arg)
{
    struct scene *s = arg;
    die_at_link = true;
    try_open(s->url);
}

/* Nobody removes the stray: who could tell it from one that is about to be published? It has no
 * meaning to anybody. */
static void test_killed_maker(void **state)
{
    struct scene *s = *state;
    int status = end_of(start_child(die_making, s, 30));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(access(s->path, F_OK), -1);
    assert_int_equal(count_files(s->dir, "table.new-"), 1);
    make_table(s);
    assert_int_equal(count_files(s->dir, ""), 2);
}

/* ---- Modes ---- */

struct sharing {
    char url[256];
    mode_t mask;
    uid_t user;
    gid_t group;
    hf_status wanted;
    int ready[2], leave[2];
};

static void open_with_mask(void *arg)
{
    struct sharing *w = arg;
    umask(w->mask);
    REQUIRE(try_open(w->url).status == HF_OK);
}

/* G24 */
static void test_umask(void **state)
{
    struct scene *s = *state;
    static const mode_t masks[] = {0, 022, 077, 0777}, modes[] = {0600, 0660, 0666};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
            struct sharing w = {.mask = masks[i]};
            struct stat st;
            snprintf(w.url, sizeof w.url, "%s?mode=%04o", s->url, modes[m]);
            in_child(open_with_mask, &w);
            assert_int_equal(stat(s->path, &st), 0);
            assert_int_equal(st.st_mode & 07777, modes[m]);
            assert_int_equal(unlink(s->path), 0);
        }
}

static void hold_as_member(void *arg)
{
    struct sharing *w = arg;
    hf_client *client;
    hf_lease *lease;
    become(w->user, SCENE_GROUP, 0);
    REQUIRE(scene_open(w->url, &client) == HF_OK);
    REQUIRE(acquire(client, "job", 0, &lease) == HF_OK);
    REQUIRE(write(w->ready[1], "x", 1) == 1);
    char go;
    REQUIRE(read(w->leave[0], &go, 1) == 1);
    _exit(0); /* without a word: the other user's process finds out */
}

static void meet_as_member(void *arg)
{
    struct sharing *w = arg;
    hf_client *client;
    hf_lease *lease;
    become(w->user, w->user, w->group);
    hf_status status = scene_open(w->url, &client);
    if (w->wanted != HF_OK) {
        REQUIRE(status == w->wanted);
        return;
    }
    REQUIRE(status == HF_OK);
    REQUIRE(acquire(client, "job", 0, &lease) == HF_BUSY);
    REQUIRE(write(w->leave[1], "x", 1) == 1);
    int64_t from = now_ms();
    REQUIRE(acquire(client, "job", 10000, &lease) == HF_OK);
    REQUIRE(now_ms() - from < 5000); /* by the death, not by the ttl of 30 s */
    REQUIRE(hf_close(client, 1000) == HF_OK);
}

static void test_two_users(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    struct sharing w = {.user = SCENE_USER};
    snprintf(w.url, sizeof w.url, "%s?mode=0660", s->url);
    assert_int_equal(chown(s->dir, 0, SCENE_GROUP), 0);
    assert_int_equal(chmod(s->dir, 0775), 0);
    assert_int_equal(pipe2(w.ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(w.leave, O_CLOEXEC), 0);
    pid_t holder = start_child(hold_as_member, &w, 30);
    char ready;
    close(w.ready[1]);
    assert_int_equal(read(w.ready[0], &ready, 1), 1);
    w.user = SCENE_OTHER, w.group = 0, w.wanted = HF_DENIED;
    in_child(meet_as_member, &w);
    w.group = SCENE_GROUP, w.wanted = HF_OK;
    in_child(meet_as_member, &w);
    assert_int_equal(end_of(holder), 0);
    close(w.ready[0]), close(w.leave[0]), close(w.leave[1]);
}

/* ---- Paths and settings ---- */

/* G34 */
static void test_bad_urls(void **state)
{
    struct scene *s = *state;
    char url[256];
    assert_true(refused("local:relative", HF_CONFIG, "local:relative", "must be absolute"));
    assert_true(refused("local:./table", HF_CONFIG, "local:./table", "must be absolute"));
    assert_true(refused("local:/tmp/%zz", HF_CONFIG, "local:/tmp/%zz", "hexadecimal"));
    assert_true(refused("local:/tmp/%00", HF_CONFIG, "local:/tmp/%00", "NUL"));
    static const char *const modes[] = {"0999", "rw", "0777", "0400", "", "-1", "06600"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        snprintf(url, sizeof url, "%s?mode=%s", s->url, modes[i]);
        assert_true(refused(url, HF_CONFIG, "mode", modes[i]));
    }
    assert_int_equal(count_files(s->dir, ""), 0);
}

static void test_percent(void **state)
{
    struct scene *s = *state;
    char url[256], path[256];
    snprintf(url, sizeof url, "local:%s/a%%20b%%3Fc%%25%%C3%%A9", s->dir);
    snprintf(path, sizeof path, "%s/a b?c%%\xc3\xa9", s->dir);
    assert_int_equal(try_open(url).status, HF_OK);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(count_files(s->dir, ""), 1);
}

/* The shortest path that names `dir` in so many bytes and more. */
static void lengthen(char *path, size_t size, const char *dir, size_t len)
{
    size_t used = (size_t)snprintf(path, size, "%s", dir);
    while (used + 6 < len)
        used += (size_t)snprintf(path + used, size - used, "/.");
    snprintf(path + used, size - used, "/table");
}

static void test_long_paths(void **state)
{
    struct scene *s = *state;
    char path[4200], url[4300];
    static const size_t refused_lengths[] = {1100, 1024, 1500, 4000};
    for (size_t i = 0; i < sizeof refused_lengths / sizeof *refused_lengths; i++) {
        lengthen(path, sizeof path, s->dir, refused_lengths[i]);
        snprintf(url, sizeof url, "local:%s", path);
        assert_true(refused(url, HF_CONFIG, s->dir, "longer than"));
        struct table t;
        assert_int_equal(table_open(&t, path, 0600), HF_CONFIG);
        assert_non_null(strstr(hf_error_text(), s->dir));
    }
    assert_int_equal(count_files(s->dir, ""), 0);
    lengthen(path, sizeof path, s->dir, 1000);
    snprintf(url, sizeof url, "local:%s", path);
    assert_int_equal(try_open(url).status, HF_OK);
    assert_int_equal(access(s->path, F_OK), 0);
}

static void test_long_name(void **state)
{
    struct scene *s = *state;
    char url[600], name[300];
    memset(name, 'n', sizeof name);
    name[250] = 0; /* fits, but not with what a table is called while it is made */
    snprintf(url, sizeof url, "local:%s/%s", s->dir, name);
    assert_true(refused(url, HF_UNAVAILABLE, name, "File name too long"));
    assert_int_equal(count_files(s->dir, ""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("sixteen processes that make a table at once meet in one and leave nothing behind",
              test_crowd),
        SCENE("a maker killed before it publishes leaves a stray file and no table",
              test_killed_maker),
        SCENE("the mode is the one that was asked for, whatever the umask", test_umask),
        SCENE("two users of a group share a table of mode 0660, and a third does not",
              test_two_users),
        SCENE("a path that is not absolute, not decodable or a mode that is none is named",
              test_bad_urls),
        SCENE("a percent-encoded path is decoded", test_percent),
        SCENE("a path that is too long is refused, never cut off", test_long_paths),
        SCENE("a file name that is too long is refused", test_long_name),
    };
    return cmocka_run_group_tests_name("table: making", tests, NULL, NULL);
}
