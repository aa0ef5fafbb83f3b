/* table_default_path.c - the default table: a user's own folder in /dev/shm, and why it may be
 * refused. */
#include "lib/privileges.h"
#include "table_fixture.h"

static char home[64], home_table[80];

static int begin(void **state)
{
    snprintf(home, sizeof home, "/dev/shm/holdfast-%d", SCENE_USER);
    snprintf(home_table, sizeof home_table, "%s/table", home);
    if (access(home, F_OK) == 0) /* not ours: whoever made it may need it */
        return -1;
    return scene_begin(state);
}

static int end(void **state)
{
    unlink(home_table);
    if (rmdir(home) != 0)
        unlink(home);
    return scene_end(state);
}

static void assert_mode(const char *path, mode_t mode)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
    assert_int_equal(st.st_uid, SCENE_USER);
}

static void open_home(void *arg)
{
    umask(*(mode_t *)arg);
    become(SCENE_USER, SCENE_USER, 0);
    REQUIRE(try_open("local:").status == HF_OK);
}

/* G24 */
static void test_made(void **state)
{
    privileges_needed(privileges_missing_root());
    (void)state;
    static const mode_t masks[] = {022, 077, 0, 0777};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        mode_t mask = masks[i];
        in_child(open_home, &mask);
        assert_mode(home, 0700);
        assert_mode(home_table, 0600);
        in_child(open_home, &mask); /* and found again */
        assert_int_equal(count_files(home, ""), 1);
        assert_int_equal(unlink(home_table), 0);
        assert_int_equal(rmdir(home), 0);
    }
}

static void refused_home(void *arg)
{
    (void)arg;
    become(SCENE_USER, SCENE_USER, 0);
    REQUIRE(
        refused("local:", HF_DENIED, home, "is not a directory of mode 0700 that belongs to you"));
}

static void test_symlink(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    char real[96];
    snprintf(real, sizeof real, "%s/real", s->dir);
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(chown(real, SCENE_USER, SCENE_USER), 0);
    assert_int_equal(symlink(real, home), 0);
    in_child(refused_home, NULL);
    assert_int_equal(count_files(real, ""), 0);
}

static void test_another_owner(void **state)
{
    privileges_needed(privileges_missing_root());
    (void)state;
    assert_int_equal(mkdir(home, 0700), 0);
    assert_int_equal(chown(home, SCENE_OTHER, SCENE_USER), 0);
    in_child(refused_home, NULL);
    assert_int_equal(chmod(home, 0777), 0);
    in_child(refused_home, NULL);
    assert_int_equal(count_files(home, ""), 0);
}

static void test_mode(void **state)
{
    privileges_needed(privileges_missing_root());
    (void)state;
    static const mode_t open_to_others[] = {0755, 0750, 0701, 0770, 0777};
    assert_int_equal(mkdir(home, 0700), 0);
    assert_int_equal(chown(home, SCENE_USER, SCENE_USER), 0);
    for (size_t i = 0; i < sizeof open_to_others / sizeof *open_to_others; i++) {
        assert_int_equal(chmod(home, open_to_others[i]), 0);
        in_child(refused_home, NULL);
        assert_mode(home, open_to_others[i]);
    }
    assert_int_equal(count_files(home, ""), 0);
}

static void test_file(void **state)
{
    privileges_needed(privileges_missing_root());
    (void)state;
    write_file(home, "", 0);
    assert_int_equal(chown(home, SCENE_USER, SCENE_USER), 0);
    assert_int_equal(chmod(home, 0600), 0);
    in_child(refused_home, NULL);
    assert_file_is(home, "", 0);
}

#define HOME(text, function)                                                                       \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = begin, .teardown_func = end             \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOME("the folder is made 0700 and the table 0600, whatever the umask", test_made),
        HOME("a symbolic link in place of the folder is refused", test_symlink),
        HOME("a folder of another user is refused", test_another_owner),
        HOME("a folder that others may enter is refused and stays as it is", test_mode),
        HOME("a file in place of the folder is refused", test_file),
    };
    return cmocka_run_group_tests_name("table: home", tests, NULL, NULL);
}
