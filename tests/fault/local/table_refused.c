/* table_refused.c - what a table must not be opened as, or on: each has its message, and nothing is
 * overwritten. */
#include "lib/privileges.h"
#include "table_fixture.h"

#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

/* ---- Foreign files ---- */

/* Opening must fail with these words, and leave the file as it is. */
static void assert_refused_unchanged(const struct scene *s, const char *words)
{
    struct stat before, after;
    struct bytes b = read_file(s->path);
    assert_int_equal(stat(s->path, &before), 0);
    assert_true(refused(s->url, HF_DAMAGED, s->path, words));
    assert_int_equal(stat(s->path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_file_is(s->path, b.at, b.len);
    assert_int_equal(count_files(s->dir, ""), 1);
    free(b.at);
}

/* G23 */
static void test_foreign_bytes(void **state)
{
    struct scene *s = *state;
    enum { LEN = 100000 };
    char *bytes = malloc(LEN);
    srandom(1);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)random();
    static const size_t lengths[] = {1, 8, 4095, 4096, 4097, 65536, LEN};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_file(s->path, bytes, lengths[i]);
        assert_refused_unchanged(s, "not a Holdfast table");
    }
    free(bytes);
}

static void test_foreign_text(void **state)
{
    struct scene *s = *state;
    static const char *const texts[] = {"", "HOLDFAST", "# a list\nof things\n",
                                        "HOLDFASTER than you think\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(s->path, texts[i], strlen(texts[i]));
        assert_refused_unchanged(s, "not a Holdfast table");
    }
}

static void test_zeros(void **state)
{
    struct scene *s = *state;
    write_file(s->path, "", 0);
    assert_int_equal(truncate(s->path, LOCAL_START), 0);
    assert_refused_unchanged(s, "not a Holdfast table");
}

static void assert_not_a_file(const struct scene *s, mode_t type)
{
    struct stat st;
    assert_true(refused(s->url, HF_DAMAGED, s->path, "is not a regular file; nothing was changed"));
    assert_int_equal(lstat(s->path, &st), 0);
    assert_int_equal(st.st_mode & S_IFMT, type);
    assert_int_equal(count_files(s->dir, ""), 1);
}

static void test_directory(void **state)
{
    struct scene *s = *state;
    assert_int_equal(mkdir(s->path, 0700), 0);
    assert_not_a_file(s, S_IFDIR);
}

static void test_fifo(void **state)
{
    struct scene *s = *state;
    assert_int_equal(mkfifo(s->path, 0600), 0);
    assert_not_a_file(s, S_IFIFO);
}

static void test_socket(void **state)
{
    struct scene *s = *state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, s->path, strlen(s->path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_not_a_file(s, S_IFSOCK);
    close(fd);
}

static void test_device(void **state)
{
    (void)state;
    assert_true(refused("local:/dev/null", HF_DAMAGED, "/dev/null", "is not a regular file"));
    assert_true(refused("local:/dev/zero", HF_DAMAGED, "/dev/zero", "is not a regular file"));
}

/* ---- Tables that are not ours to use ---- */

static void test_flips(void **state)
{
    struct scene *s = *state;
    make_table(s);
    struct bytes good = read_file(s->path);
    char *bad = malloc(good.len);
    memcpy(bad, good.at, good.len);
    for (size_t i = 0; i < LOCAL_PAGE; i++) {
        bad[i] = (char)(good.at[i] ^ (1 << i % 8));
        poke(s->path, i, bad + i, 1);
        assert_true(
            refused(s->url, HF_DAMAGED, s->path, i < 8 ? "not a Holdfast table" : "checksum"));
        assert_file_is(s->path, bad, good.len);
        bad[i] = (char)~good.at[i];
        poke(s->path, i, bad + i, 1);
        assert_true(
            refused(s->url, HF_DAMAGED, s->path, i < 8 ? "not a Holdfast table" : "checksum"));
        bad[i] = good.at[i];
        poke(s->path, i, bad + i, 1);
    }
    assert_file_is(s->path, good.at, good.len);
    assert_int_equal(try_open(s->url).status, HF_OK);
    free(bad);
    free(good.at);
}

static void test_truncated(void **state)
{
    struct scene *s = *state;
    make_table(s);
    struct bytes good = read_file(s->path);
    assert_int_equal(good.len, LOCAL_START);
    for (size_t len = 0; len < good.len; len += len % LOCAL_PAGE == 0 ? 1
                                                : len % 509           ? 509 - len % 509
                                                                      : 509) {
        write_file(s->path, good.at, len);
        assert_true(refused(s->url, HF_DAMAGED, s->path,
                            len < LOCAL_PAGE ? "not a Holdfast table" : "shorter"));
        assert_file_is(s->path, good.at, len);
    }
    for (size_t len = 0; len < good.len; len += LOCAL_PAGE) {
        write_file(s->path, good.at, len);
        assert_true(refused(s->url, HF_DAMAGED, s->path,
                            len < LOCAL_PAGE ? "not a Holdfast table" : "shorter"));
    }
    write_file(s->path, good.at, good.len - 1);
    assert_true(refused(s->url, HF_DAMAGED, s->path, "shorter"));
    free(good.at);
}

/* A table that has grown, cut back to the size of a new one. */
static void test_cut_back(void **state)
{
    struct scene *s = *state;
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(acquire(client, name, 0, &lease), HF_OK);
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
    struct bytes grown = read_file(s->path);
    assert_true(grown.len > LOCAL_START);
    assert_int_equal(truncate(s->path, LOCAL_START), 0);
    assert_refused_unchanged(s, "shorter than it says");
    free(grown.at);
}

static void test_layout(void **state)
{
    struct scene *s = *state;
    make_table(s);
    uint32_t version = LOCAL_VERSION + 1, layout = table_layout() ^ 1;
    poke_head(s->path, offsetof(struct table_head, version), &version, sizeof version);
    assert_refused_unchanged(s, "another layout (version 3.");
    version = LOCAL_VERSION;
    poke_head(s->path, offsetof(struct table_head, version), &version, sizeof version);
    assert_int_equal(try_open(s->url).status, HF_OK);
    poke_head(s->path, offsetof(struct table_head, layout), &layout, sizeof layout);
    assert_refused_unchanged(s, "another layout (version 2.");
}

static void test_libc(void **state)
{
    struct scene *s = *state;
    make_table(s);
    poke_head(s->path, offsetof(struct table_head, libc), "musl 1.2.5", sizeof "musl 1.2.5");
    assert_refused_unchanged(s, "was made with musl 1.2.5, this program runs with glibc 2.");
}

/* ---- Permissions and places ---- */

static void open_denied(void *arg)
{
    struct scene *s = arg;
    become(SCENE_OTHER, SCENE_OTHER, 0);
    REQUIRE(refused(s->url, HF_DENIED, s->path, "Permission denied"));
}

static void test_permission(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    make_table(s);
    struct bytes b = read_file(s->path);
    in_child(open_denied, s);
    assert_int_equal(unlink(s->path), 0);
    in_child(open_denied, s); /* nor may it make one here */
    assert_int_equal(count_files(s->dir, ""), 0);
    free(b.at);
}

static void test_missing_directory(void **state)
{
    struct scene *s = *state;
    char path[256], url[300];
    snprintf(path, sizeof path, "%s/nowhere/table", s->dir);
    snprintf(url, sizeof url, "local:%s", path);
    assert_true(refused(url, HF_UNAVAILABLE, path, "No such file or directory"));
    snprintf(path, sizeof path, "%s/table/table", s->dir);
    snprintf(url, sizeof url, "local:%s", path);
    write_file(s->path, "", 0);
    assert_true(refused(url, HF_UNAVAILABLE, path, "Not a directory"));
}

static void test_symlink(void **state)
{
    struct scene *s = *state;
    char real[256], url[300];
    snprintf(real, sizeof real, "%s/real", s->dir);
    snprintf(url, sizeof url, "local:%s", real);
    assert_int_equal(symlink(real, s->path), 0);
    assert_true(refused(s->url, HF_DENIED, s->path, "is a symbolic link"));
    assert_int_equal(access(real, F_OK), -1);
    assert_int_equal(try_open(url).status, HF_OK);
    struct bytes b = read_file(real);
    assert_true(refused(s->url, HF_DENIED, s->path, "is a symbolic link"));
    assert_file_is(real, b.at, b.len);
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("random bytes are not a table and stay as they are", test_foreign_bytes),
        SCENE("an empty file and a text file are not a table and stay as they are",
              test_foreign_text),
        SCENE("a file of zeros is not a table and stays as it is", test_zeros),
        SCENE("a directory is refused", test_directory),
        SCENE("a fifo is refused without waiting for its other end", test_fifo),
        SCENE("a socket is refused", test_socket),
        SCENE("a device is refused", test_device),
        SCENE("a table with any byte of its first page changed is refused and stays as it is",
              test_flips),
        SCENE("a table cut off at any length is refused and stays as it is", test_truncated),
        SCENE("a grown table that was cut back to its first size is refused", test_cut_back),
        SCENE("a table of another version or layout is refused and stays as it is", test_layout),
        SCENE("a table made with another C library is refused and stays as it is", test_libc),
        SCENE("a table of another user is denied, and so is making one in another's folder",
              test_permission),
        SCENE("a folder that does not exist is named", test_missing_directory),
        SCENE("a symbolic link is refused, whether or not it leads to a good table", test_symlink),
    };
    return cmocka_run_group_tests_name("table: refused", tests, NULL, NULL);
}
