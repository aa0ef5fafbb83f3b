/* table_reboot.c - a table that the last boot left behind: emptied, its tokens go on rising. */
#include "lib/privileges.h"
#include "table_fixture.h"

#include <sys/mman.h>

/* As if the machine had been started anew since the table was made. */
static void reboot(const char *path)
{
    static const uint8_t other[16] = {1, 2, 3};
    poke_head(path, offsetof(struct table_head, boot_id), other, sizeof other);
}

static void count_rows(void *arg, const struct hf_row *row)
{
    (void)row;
    ++*(int *)arg;
}

static uint64_t token_of_next(const char *url, const char *name)
{
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(scene_open(url, &client), HF_OK);
    assert_int_equal(acquire(client, name, 0, &lease), HF_OK);
    uint64_t token = hf_lease_token(lease);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    return token;
}

/* A hold that nothing but the reboot ends. */
static uint64_t leave_detached_hold(const char *url)
{
    struct hf_request want = {
        .size = sizeof want, .name = "job", .ttl_ms = 3600000, .flags = HF_DETACHED};
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(scene_open(url, &client), HF_OK);
    assert_int_equal(hf_acquire(client, &want, &lease), HF_OK);
    uint64_t token = hf_lease_token(lease);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    return token;
}

/* G10, G26 */
static void test_emptied(void **state)
{
    struct scene *s = *state;
    struct stat before, after;
    uint64_t old = leave_detached_hold(s->url);
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    assert_int_equal(acquire(client, "job", 0, &lease), HF_BUSY);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_int_equal(stat(s->path, &before), 0);
    reboot(s->path);
    int rows = 0;
    assert_int_equal(scene_open(s->url, &client), HF_OK);
    assert_int_equal(hf_list(client, NULL, count_rows, &rows), HF_OK);
    assert_int_equal(rows, 0);
    assert_int_equal(acquire(client, "job", 0, &lease), HF_OK);
    assert_true(hf_lease_token(lease) > old);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_int_equal(stat(s->path, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    assert_int_equal(count_files(s->dir, ""), 1);
}

/* Moves the last token of the only resource into a future that the wall clock does not reach. */
static void poke_token(const char *path, uint64_t token)
{
    struct bytes b = read_file(path);
    int found = 0;
    for (size_t at = LOCAL_CELLS_AT; at + LOCAL_CELL <= b.len; at += LOCAL_CELL) {
        const union cell *cell = (const void *)(b.at + at);
        if (cell->head.state != CELL_RESOURCE)
            continue;
        poke(path, at + offsetof(struct resource, token), &token, sizeof token);
        found++;
    }
    free(b.at);
    assert_int_equal(found, 1);
}

static void test_future_tokens(void **state)
{
    struct scene *s = *state;
    uint64_t future = token_of_next(s->url, "job") + (1ull << 50);
    poke_token(s->path, future);
    reboot(s->path);
    uint64_t first = token_of_next(s->url, "job");
    assert_true(first > future);
    assert_true(token_of_next(s->url, "another name") >
                future); /* who knows what it was called before */
    reboot(s->path);     /* the floor of the table, too, is kept */
    assert_true(token_of_next(s->url, "job") > first);
    reboot(s->path);
    make_table(s); /* nobody asks for anything between two boots */
    reboot(s->path);
    assert_true(token_of_next(s->url, "job") > first);
}

/* What a dropped resource leaves behind is the floor of its shard. */
static void test_floor_of_shards(void **state)
{
    struct scene *s = *state;
    make_table(s);
    uint64_t floor = 1ull << 60;
    poke(s->path, LOCAL_SHARDS_AT + 17 * sizeof(struct shard) + offsetof(struct shard, token_floor),
         &floor, sizeof floor);
    reboot(s->path);
    assert_true(token_of_next(s->url, "job") > floor);
}

static void test_mode_and_group(void **state)
{
    privileges_needed(privileges_missing_root());
    struct scene *s = *state;
    struct stat st;
    make_table(s);
    assert_int_equal(chmod(s->path, 0660), 0);
    assert_int_equal(chown(s->path, SCENE_USER, SCENE_GROUP), 0);
    reboot(s->path);
    make_table(s);
    assert_int_equal(stat(s->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    assert_int_equal(st.st_uid, SCENE_USER);
    assert_int_equal(st.st_gid, SCENE_GROUP);
}

/* ---- All at once ---- */

enum { OPENERS = 8, ROUNDS = 25 };

struct meeting {
    const char *url;
    _Atomic int ready, go, opened, granted, busy, leave;
};

static void open_with_others(void *arg)
{
    struct meeting *m = arg;
    hf_client *client;
    hf_lease *lease;
    atomic_fetch_add(&m->ready, 1);
    while (!atomic_load(&m->go))
        sched_yield();
    REQUIRE(scene_open(m->url, &client) == HF_OK);
    hf_status status = acquire(client, "job", 0, &lease);
    REQUIRE(status == HF_OK || status == HF_BUSY);
    atomic_fetch_add(status == HF_OK ? &m->granted : &m->busy, 1);
    atomic_fetch_add(&m->opened, 1);
    while (!atomic_load(&m->leave))
        nap_ms(1);
    REQUIRE(hf_close(client, 2000) == HF_OK);
}

static void test_all_at_once(void **state)
{
    struct scene *s = *state;
    struct meeting *m =
        mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make_table(s);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid[OPENERS];
        *m = (struct meeting){.url = s->url};
        reboot(s->path);
        for (int i = 0; i < OPENERS; i++)
            pid[i] = start_child(open_with_others, m, 30);
        while (atomic_load(&m->ready) < OPENERS)
            sched_yield();
        atomic_store(&m->go, 1);
        for (int64_t until = now_ms() + 20000;
             atomic_load(&m->opened) < OPENERS && now_ms() < until;)
            nap_ms(1);
        atomic_store(&m->leave, 1);
        for (int i = 0; i < OPENERS; i++)
            assert_int_equal(end_of(pid[i]), 0);
        assert_int_equal(atomic_load(&m->granted), 1);
        assert_int_equal(atomic_load(&m->busy), OPENERS - 1);
        assert_int_equal(count_files(s->dir, ""), 1);
    }
    munmap(m, sizeof *m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE("after a reboot the table is empty and tokens go on rising", test_emptied),
        SCENE("tokens go on rising when the wall clock would give less", test_future_tokens),
        SCENE("the floor that dropped names left behind is kept", test_floor_of_shards),
        SCENE("mode, owner and group of the table are kept", test_mode_and_group),
        SCENE("eight processes that open at the same moment meet in one new table",
              test_all_at_once),
    };
    return cmocka_run_group_tests_name("table: reboot", tests, NULL, NULL);
}
