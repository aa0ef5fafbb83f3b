/* table_network_fs.c - file systems that lie on another machine are refused. The answer of one
 * system call is false here, nothing else: no network file system is at hand. */
#include "table_fixture.h"

#include <sys/syscall.h>
#include <sys/vfs.h>

static long false_type; /* 0: the true one */
static int asked;

/* Stands in for the C library's in this program. */
int fstatfs(int fd, struct statfs *fs)
{
    long result = syscall(SYS_fstatfs, fd, fs);
    asked++;
    if (result == 0 && false_type)
        fs->f_type = false_type;
    return (int)result;
}

static const struct {
    const char *name;
    long type;
} networks[] = {
    {"NFS", 0x6969},        {"SMB", 0x517b},      {"SMB2", 0xfe534d42},  {"CIFS", 0xff534d42},
    {"Coda", 0x73757245},   {"AFS", 0x5346414f},  {"9p", 0x01021997},    {"Ceph", 0x00c36400},
    {"Lustre", 0x0bd00bd0}, {"GFS2", 0x01161970}, {"OCFS2", 0x7461636f},
};

/* G23 */
static void test_existing(void **state)
{
    struct scene *s = *state;
    false_type = 0;
    make_table(s);
    struct bytes b = read_file(s->path);
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        false_type = networks[i].type;
        asked = 0;
        assert_true(refused(s->url, HF_CONFIG, s->path, "is on a network file system"));
        assert_true(asked > 0);
        assert_file_is(s->path, b.at, b.len);
    }
    false_type = 0;
    assert_int_equal(try_open(s->url).status, HF_OK);
    free(b.at);
}

static void test_new(void **state)
{
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        false_type = networks[i].type;
        asked = 0;
        assert_true(refused(s->url, HF_CONFIG, s->path, "is on a network file system"));
        assert_true(asked > 0);
        assert_int_equal(count_files(s->dir, ""), 0);
    }
    false_type = 0;
}

/* Each of these is a file system of this machine. */
static void test_here(void **state)
{
    struct scene *s = *state;
    static const long types[] = {0xef53,     0x01021994, 0x58465342,
                                 0x9123683e, 0x794c7630, 0x858458f6};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        false_type = types[i];
        assert_int_equal(try_open(s->url).status, HF_OK);
        assert_int_equal(unlink(s->path), 0);
    }
    false_type = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("a table on a network file system is refused and stays as it is", test_existing),
        SCENE("no table is made on a network file system, and nothing is left there", test_new),
        SCENE("ext4, tmpfs, xfs, btrfs, overlayfs and ramfs are not network file systems",
              test_here),
    };
    return cmocka_run_group_tests_name("table: network", tests, NULL, NULL);
}
