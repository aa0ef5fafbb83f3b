/* many_names.c - a hundred thousand names in a small file system: the table grows under its
 * holders, freed cells are used again, and a full file system is an answer and not a loss. Needs
 * root, for a tmpfs in a mount namespace of its own.
 */
#include "lib/actors.h"
#include "lib/privileges.h"

#include "engines/local/wait_queue.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROCESSES = 4, NAMES_EACH = 25000, LONG_MS = 600000, START_BYTES = 64 * 1024 };

/* ---- The small file system ---- */

static void mount_small(const char *size)
{
    char options[32];
    privileges_needed(privileges_missing_mounts());
    snprintf(options, sizeof options, "size=%s", size);
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("tmpfs", stage_directory(), "tmpfs", 0, options), 0);
}

static int unmount_and_teardown(void **state)
{
    int closed =
        stage_teardown(state); /* its directory cannot go while something is mounted there */
    umount2(stage_directory(), MNT_DETACH);
    rmdir(stage_directory());
    return closed;
}

static int64_t table_size(void)
{
    struct stat st;
    assert_int_equal(stat(stage_path(), &st), 0);
    return st.st_size;
}

/* ---- Names ---- */

static uint32_t shard_of(const char *name)
{
    return shard_of_hash(resource_name_hash(name, strlen(name)));
}

/* The name of a number. In the second round each is another one in the same part of the table, so
 * that the parts need as many cells as before, and not by chance more. */
static void make_name(char name[48], int number, bool second)
{
    snprintf(name, 48, "first-%d", number);
    uint32_t shard = shard_of(name);
    for (int salt = 0; second; salt++) {
        snprintf(name, 48, "second-%d-%d", number, salt);
        if (shard_of(name) == shard)
            return;
    }
}

/* ---- Those who fill the table ---- */

static hf_lease *leases[NAMES_EACH];

static void hold_all(struct actor *me, hf_client *client, int first, bool second)
{
    for (int i = 0; i < NAMES_EACH; i++) {
        char name[48];
        make_name(name, first + i, second);
        struct hf_request request = request_of(&(struct want){.name = name, .ttl_ms = LONG_MS});
        part_must(hf_acquire(client, &request, &leases[i]) == HF_OK);
    }
    part_says(me, &(struct answer){.what = ORDER_GO, .id = second});
}

static void release_all(void)
{
    for (int i = 0; i < NAMES_EACH; i++) {
        part_must(hf_lease_ok(leases[i]) && hf_release(leases[i]) == HF_OK);
        hf_lease_free(leases[i]);
    }
}

static void hold_names_twice(struct actor *me, void *arg)
{
    int first = *(int *)arg;
    hf_client *client = part_client();
    hold_all(me, client, first, false);
    part_awaits_go(me);
    release_all();
    part_says(me, &(struct answer){.what = ORDER_GO, .id = 2});
    part_awaits_go(me);
    hold_all(me, client, first, true);
    part_awaits_go(me);
}

static void tell_all(struct actor *const *actor)
{
    for (int p = 0; p < PROCESSES; p++)
        actor_order(actor[p], ORDER_GO, 0);
}

static void hear_all(struct actor *const *actor, uint32_t id)
{
    for (int p = 0; p < PROCESSES; p++)
        actor_answer(actor[p], ORDER_GO, id);
}

static void count_holder(void *arg, const struct hf_row *row)
{
    *(int *)arg += row->role == HF_HOLDER;
}

static int count_held(const char *prefix)
{
    int count = 0;
    assert_int_equal(hf_list(stage_client(), prefix, count_holder, &count), HF_OK);
    return count;
}

static void test_hundred_thousand(void **state)
{
    (void)state;
    mount_small("64m");
    hf_client *client = stage_client();
    assert_int_equal(table_size(), START_BYTES);
    struct actor *early = actor_start(), *actor[PROCESSES];
    uint64_t token =
        actor_holds(early, 0,
                    &(struct want){.name = "early", .ttl_ms = 2000, .flags = HF_AUTO_RENEW})
            .token;
    for (int p = 0; p < PROCESSES; p++) {
        int first = p * NAMES_EACH;
        actor[p] = actor_start_part(hold_names_twice, &first);
    }
    hear_all(actor, false);
    assert_int_equal(count_held("first-"), PROCESSES * NAMES_EACH);
    assert_int_equal(see(client, "early").token, token);
    int64_t size = table_size();
    tell_all(actor);
    hear_all(actor, 2);
    assert_int_equal(count_held(NULL), 1);
    tell_all(actor);
    hear_all(actor, true);
    assert_int_equal(count_held("second-"), PROCESSES * NAMES_EACH);
    printf("# the table grew from %d KiB to %lld KiB and then no more\n", START_BYTES / 1024,
           (long long)size / 1024);
    assert_int_equal(table_size(), size);
    assert_int_equal(see(client, "early").token, token);
    assert_int_equal(actor_does(early, ORDER_LOOK, 0).status, HF_OK);
    assert_int_equal(actor_does(early, ORDER_RELEASE, 0).status, HF_OK);
}

/* ---- Full ---- */

enum { FULL_MOST = 20000 };

/* Holds names until one is refused; how many it got. */
static int fill(hf_client *client, hf_lease **held)
{
    for (int i = 0; i < FULL_MOST; i++) {
        char name[48];
        make_name(name, i, false);
        struct hf_request request = request_of(&(struct want){.name = name, .ttl_ms = LONG_MS});
        hf_status status = hf_acquire(client, &request, &held[i]);
        if (status != HF_OK) {
            assert_int_equal(status, HF_FULL);
            return i;
        }
    }
    fail_msg("%d names fit into a file system that is too small for them", FULL_MOST);
    return 0;
}

/* G25 */
static void test_full(void **state)
{
    (void)state;
    static hf_lease *held[FULL_MOST];
    mount_small("2m");
    hf_client *client = stage_client();
    int count = fill(client, held);
    assert_non_null(strstr(hf_error_text(), stage_path()));
    printf("# %d names fit; then: %s\n", count, hf_error_text());
    assert_true(count > 2000);
    assert_int_equal(count_held("first-"), count);
    for (int i = 0; i < count; i++)
        assert_true(hf_lease_ok(held[i]));
    /* Whoever may wait gets what somebody releases; here the place in the same part of the table.
     */
    for (int i = 0; i < count; i += 2) {
        assert_int_equal(hf_release(held[i]), HF_OK);
        hf_lease_free(held[i]);
        char name[48];
        make_name(name, i, true);
        struct hf_request request = request_of(&(struct want){.name = name, .ttl_ms = LONG_MS});
        if (hf_acquire(client, &request, &held[i]) != HF_OK)
            fail_msg("%s", hf_error_text());
    }
    assert_int_equal(count_held(NULL), count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(hf_release(held[i]), HF_OK);
        hf_lease_free(held[i]);
    }
    assert_int_equal(count_held(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"100,000 names of 4 processes grow a table of 64 KiB, and another 100,000 fit into it",
         test_hundred_thousand, stage_setup, unmount_and_teardown, NULL},
        {"a full file system is HF_FULL with the path, nothing is lost, and room that comes free "
         "is used",
         test_full, stage_setup, unmount_and_teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
