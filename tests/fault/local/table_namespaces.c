/* table_namespaces.c - other namespaces and file systems that cannot take a table. */
#include "lib/privileges.h"
#include "table_fixture.h"

#include <sched.h>
#include <sys/mount.h>

/* ---- Namespaces ---- */

static void open_from_another_pid_namespace(void *arg)
{
    struct scene *s = arg;
    REQUIRE(refused(s->url, HF_DAMAGED, s->path, "belongs to another pid namespace"));
    /* What the process would see of itself in a container. */
    REQUIRE(mount("proc", "/proc", "proc", 0, NULL) == 0);
    REQUIRE(getpid() == 1);
    REQUIRE(refused(s->url, HF_DAMAGED, s->path, "belongs to another pid namespace"));
    char own[200];
    snprintf(own, sizeof own, "%s.own", s->url);
    REQUIRE(try_open(own).status == HF_OK);
}

static void enter_pid_namespace(void *arg)
{
    REQUIRE(unshare(CLONE_NEWNS | CLONE_NEWPID) == 0);
    REQUIRE(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    pid_t pid = start_child(open_from_another_pid_namespace, arg, 30);
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
}

/* G23 */
static void test_pid_namespace(void **state)
{
    privileges_needed(privileges_missing_mounts());
    struct scene *s = *state;
    hf_client *user;
    assert_int_equal(scene_open(s->url, &user), HF_OK);
    struct bytes b = read_file(s->path);
    in_child(enter_pid_namespace, s);
    assert_file_is(s->path, b.at, b.len);
    free(b.at);
    assert_int_equal(hf_close(user, 1000), HF_OK);
}

/* ---- Abandoned tables ---- */

static uint64_t last_token; /* children have it from their parent */

static void use_abandoned(void *arg)
{
    struct scene *s = arg;
    hf_client *client;
    hf_lease *lease;
    REQUIRE(scene_open(s->url, &client) == HF_OK);
    REQUIRE(acquire(client, "kept", 0, &lease) == HF_OK);
    REQUIRE(hf_lease_token(lease) > last_token);
    REQUIRE(hf_close(client, 1000) == HF_OK);
}

static void find_detached_hold(void *arg)
{
    struct scene *s = arg;
    REQUIRE(refused(s->url, HF_DAMAGED, s->path, "belongs to another pid namespace"));
}

static void in_new_namespace(void (*fn)(void *), void *arg)
{
    REQUIRE(unshare(CLONE_NEWPID) == 0);
    pid_t pid = start_child(fn, arg, 30);
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
}

static void use_abandoned_elsewhere(void *arg)
{
    in_new_namespace(use_abandoned, arg);
}

static void find_detached_hold_elsewhere(void *arg)
{
    in_new_namespace(find_detached_hold, arg);
}

/* A user dies with its hold, as all processes of a container do. */
static void hold_and_die(void *arg)
{
    struct scene *s = arg;
    hf_client *client;
    hf_lease *lease;
    REQUIRE(scene_open(s->url, &client) == HF_OK && acquire(client, "kept", 0, &lease) == HF_OK);
    _exit(0);
}

static void test_abandoned(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    assert_int_equal(acquire(client, "kept", 0, &lease), HF_OK);
    last_token = hf_lease_token(lease) + 3600u * UINT64_C(1000000);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    in_child(hold_and_die, s);
    /* As if the wall clock had been ahead: only what the table remembers keeps its tokens rising.
     */
    for (size_t shard = 0; shard < LOCAL_SHARDS; shard++)
        poke(s->path,
             LOCAL_SHARDS_AT + shard * sizeof(struct shard) + offsetof(struct shard, token_floor),
             &last_token, sizeof last_token);
    in_child(use_abandoned_elsewhere, s);
    assert_true(try_open(s->url).status == HF_OK);
}

static void test_detached_hold(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    hf_client *client;
    hf_lease *lease;
    struct hf_request want = {
        .size = sizeof want, .name = "kept", .ttl_ms = 60000, .flags = HF_DETACHED};
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    assert_int_equal(hf_acquire(client, &want, &lease), HF_OK);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    in_child(find_detached_hold_elsewhere, s);
}

static void open_from_another_time_namespace(void *arg)
{
    struct scene *s = arg;
    REQUIRE(refused(s->url, HF_DAMAGED, s->path, "belongs to another time namespace"));
}

static void enter_time_namespace(void *arg)
{
    static const char offset[] = "boottime 86400 0\n";
    REQUIRE(unshare(CLONE_NEWTIME) == 0);
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    REQUIRE(write(fd, offset, sizeof offset - 1) == sizeof offset - 1);
    close(fd);
    pid_t pid = start_child(open_from_another_time_namespace, arg, 30);
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
}

static void test_time_namespace(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    make_table(s);
    struct bytes b = read_file(s->path);
    in_child(enter_time_namespace, s);
    assert_file_is(s->path, b.at, b.len);
    free(b.at);
}

/* ---- File systems ---- */

static void mount_small(const struct scene *s, const char *options)
{
    REQUIRE(unshare(CLONE_NEWNS) == 0);
    REQUIRE(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    REQUIRE(mount("small", s->dir, "tmpfs", 0, options) == 0);
}

static void open_on_full(void *arg)
{
    struct scene *s = arg;
    mount_small(s, "size=32k");
    REQUIRE(refused(s->url, HF_FULL, s->path, "No space left on device"));
    REQUIRE(count_files(s->dir, "") == 0);
    REQUIRE(mount(NULL, s->dir, NULL, MS_REMOUNT, "size=64k") == 0);
    REQUIRE(try_open(s->url).status == HF_OK);
}

static void test_full(void **state)
{
    privileges_needed(privileges_missing_mounts());
    in_child(open_on_full, *state);
}

/* No inode is left for a table. */
static void open_without_inodes(void *arg)
{
    struct scene *s = arg;
    mount_small(s, "nr_inodes=1");
    REQUIRE(refused(s->url, HF_FULL, s->path, "No space left on device"));
}

static void test_no_inodes(void **state)
{
    privileges_needed(privileges_missing_mounts());
    in_child(open_without_inodes, *state);
}

static void grow_on_full(void *arg)
{
    struct scene *s = arg;
    mount_small(s, "size=128k");
    hf_client *client;
    hf_lease *first, *lease;
    REQUIRE(scene_open(s->url, &client) == HF_OK);
    REQUIRE(acquire(client, "first", 0, &first) == HF_OK);
    hf_status status = HF_OK;
    char name[16];
    for (int i = 0; i < 100000 && status == HF_OK; i++) {
        snprintf(name, sizeof name, "n%d", i);
        status = acquire(client, name, 0, &lease);
    }
    REQUIRE(status == HF_FULL);
    REQUIRE(strstr(hf_error_text(), s->path) && strstr(hf_error_text(), "cannot grow beyond"));
    REQUIRE(hf_lease_ok(first) && hf_extend(first, 0) == HF_OK);
    REQUIRE(hf_release(first) == HF_OK);
    REQUIRE(hf_close(client, 1000) == HF_OK);
}

/* G25 */
static void test_full_later(void **state)
{
    privileges_needed(privileges_missing_mounts());
    in_child(grow_on_full, *state);
}

static void open_read_only(void *arg)
{
    struct scene *s = arg;
    mount_small(s, "size=1m");
    REQUIRE(mount(NULL, s->dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    REQUIRE(refused(s->url, HF_UNAVAILABLE, s->path, "Read-only file system"));
    REQUIRE(mount(NULL, s->dir, NULL, MS_REMOUNT, NULL) == 0);
    REQUIRE(try_open(s->url).status == HF_OK);
    REQUIRE(mount(NULL, s->dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    REQUIRE(refused(s->url, HF_UNAVAILABLE, s->path, "Read-only file system"));
}

static void test_read_only(void **state)
{
    privileges_needed(privileges_missing_mounts());
    in_child(open_read_only, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("a table in use in another pid namespace is refused, with the old /proc and with its "
              "own",
              test_pid_namespace),
        SCENE("a table that nobody of its pid namespace uses any more is emptied, and tokens rise",
              test_abandoned),
        SCENE("unless a detached hold is left in it", test_detached_hold),
        SCENE("a table of another time namespace is refused", test_time_namespace),
        SCENE("a full file system is named and nothing is left on it", test_full),
        SCENE("a file system without inodes is full", test_no_inodes),
        SCENE("a table that cannot grow is full, and what is held stays held", test_full_later),
        SCENE("a read-only file system is named, with and without a table on it", test_read_only),
    };
    return cmocka_run_group_tests_name("table: places", tests, NULL, NULL);
}
