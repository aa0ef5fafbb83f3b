/* table_hostile.c - users who share a table attack each other through it: they flip bits and plant
 * values in heads, shards, mutexes, lists and cells while others work. The others may lose their
 * locks. They do not crash, write nowhere else, and no call takes longer than it may.
 *
 *     table_hostile [SECONDS [SEED]] */
#include "table_life.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { VICTIMS = 3, ATTACKERS = 2, FEWEST_CALLS = 200 };

static unsigned seconds = 15;
static unsigned long seed = 1;

/* Shared by all processes of a test. */
static struct tally {
    _Atomic uint64_t calls, writes, opened, lost_tables;
    _Atomic bool over;
} * tally;

struct part {
    const struct scene *scene;
    unsigned long seed;
    bool strike_hard; /* whole cells and pages too, and the head */
};

/* ---- The attackers ---- */

struct target {
    int fd;
    char *map;
    size_t len;
};

static bool aim(struct target *at, const char *path)
{
    struct stat st;
    at->fd = open(path, O_RDWR | O_CLOEXEC);
    if (at->fd < 0)
        return false;
    bool whole = fstat(at->fd, &st) == 0 && st.st_size >= LOCAL_START;
    at->len = whole ? (size_t)st.st_size : 0;
    at->map = whole ? mmap(NULL, at->len, PROT_READ | PROT_WRITE, MAP_SHARED, at->fd, 0) : NULL;
    if (whole && at->map != MAP_FAILED)
        return true;
    close(at->fd);
    return false;
}

static void let_go(struct target *at)
{
    munmap(at->map, at->len);
    close(at->fd);
}

/* Values that are wrong in an interesting way. */
static uint64_t evil_value(const struct target *at, unsigned long *random)
{
    uint64_t cells = (at->len - LOCAL_CELLS_AT) / LOCAL_CELL;
    uint64_t values[] = {0,
                         1,
                         draw(random) % cells,
                         draw(random) % 64,
                         cells,
                         cells + draw(random) % 100000,
                         UINT32_MAX,
                         INT32_MAX,
                         UINT64_MAX,
                         INT64_MAX,
                         (uint64_t)INT64_MIN,
                         (uint64_t)getpid(),
                         UINT32_C(0x80000000) | (uint64_t)getpid(),
                         UINT32_C(0x40000000),
                         (uintptr_t)&values,
                         draw(random)};
    return values[draw(random) % (sizeof values / sizeof *values)];
}

static size_t draw_place(const struct target *at, unsigned long *random)
{
    size_t cells = (at->len - LOCAL_CELLS_AT) / LOCAL_CELL;
    size_t cell = LOCAL_CELLS_AT + draw(random) % cells * LOCAL_CELL;
    size_t shard = LOCAL_SHARDS_AT + draw(random) % (LOCAL_SHARDS + 1) * sizeof(struct shard);
    switch (draw(random) % 8) {
    case 0:
        return LOCAL_STATE_AT + draw(random) % sizeof(struct table_state);
    case 1: /* the mutex and the first lists */
        return shard + draw(random) % 48;
    case 2:
        return shard + draw(random) % sizeof(struct shard);
    case 3: /* state, shard, links, life word */
    case 4:
        return cell + draw(random) % 40;
    case 5: /* lengths, kinds, counts */
        return cell + 24 + draw(random) % 104;
    default:
        return cell + draw(random) % LOCAL_CELL;
    }
}

static void strike(const struct target *at, bool hard, unsigned long *random)
{
    size_t place = draw_place(at, random);
    uint64_t value = evil_value(at, random);
    unsigned how = (unsigned)draw(random) % (hard ? 64 : 60);
    if (how < 20) {
        at->map[place] = (char)(at->map[place] ^ 1 << draw(random) % 8);
    } else if (how < 45) {
        memcpy(at->map + place / 4 * 4, &value, 4);
    } else if (how < 60) {
        memcpy(at->map + place / 8 * 8, &value, 8);
    } else if (how < 62) { /* a cell becomes another's twin */
        memcpy(at->map + place / LOCAL_CELL * LOCAL_CELL,
               at->map + LOCAL_CELLS_AT + draw(random) % 100 * LOCAL_CELL, LOCAL_CELL);
    } else {
        memset(at->map + place / LOCAL_PAGE * LOCAL_PAGE, (int)value, LOCAL_PAGE);
    }
    atomic_fetch_add(&tally->writes, 1);
}

static void attack(void *arg)
{
    const struct part *part = arg;
    unsigned long random = part->seed;
    if (geteuid() == 0)
        become(SCENE_OTHER, SCENE_OTHER, 0);
    while (!atomic_load(&tally->over)) {
        struct target at;
        nap_ms((long)(draw(&random) % 20));
        if (!aim(&at, part->scene->path))
            continue;
        for (unsigned n = (unsigned)draw(&random) % 60; n; n--) {
            strike(&at, part->strike_hard, &random);
            if (draw(&random) % 4 == 0)
                usleep((useconds_t)(draw(&random) % 400));
        }
        let_go(&at);
    }
}

/* ---- The victims ---- */

/* A table that cannot be opened any more is deleted, as its owner would. */
static void open_again(const struct scene *s, hf_client **client)
{
    char url[200];
    snprintf(url, sizeof url, "%s?mode=0666", s->url);
    for (int tries = 0; tries < 100; tries++) {
        int64_t from = now_ms();
        hf_status status = scene_open(url, client);
        expect_status(status, from);
        if (status == HF_OK) {
            atomic_fetch_add(&tally->opened, 1);
            return;
        }
        unlink(s->path);
        atomic_fetch_add(&tally->lost_tables, 1);
    }
    REQUIRE(!"a table can be opened");
}

static void close_life(struct life *l)
{
    for (int i = 0; i < 16; i++)
        hf_lease_free(l->held[i]);
    for (int i = 0; i < 4; i++)
        hf_lease_free(l->waiting[i]);
    for (int i = 0; i < 2; i++) {
        int64_t from = now_ms();
        expect_status(hf_close(l->client[i], 200), from);
    }
}

static void work(void *arg)
{
    const struct part *part = arg;
    unsigned long random = part->seed;
    while (!atomic_load(&tally->over)) {
        struct life l = {0};
        open_again(part->scene, &l.client[0]);
        open_again(part->scene, &l.client[1]);
        for (unsigned n = 50 + (unsigned)draw(&random) % 400; n && !atomic_load(&tally->over);
             n--) {
            operate(&l, &random);
            atomic_fetch_add(&tally->calls, 1);
        }
        close_life(&l);
    }
}

/* ---- Together ---- */

static void fight(const struct scene *s, bool hard)
{
    pid_t victim[VICTIMS], attacker[ATTACKERS];
    struct part part[VICTIMS + ATTACKERS];
    memset(tally, 0, sizeof *tally);
    for (unsigned i = 0; i < VICTIMS + ATTACKERS; i++)
        part[i] = (struct part){.scene = s, .seed = seed * 7919 + i, .strike_hard = hard};
    for (unsigned i = 0; i < VICTIMS; i++)
        victim[i] = start_child(work, &part[i], seconds + 60);
    for (unsigned i = 0; i < ATTACKERS; i++)
        attacker[i] = start_child(attack, &part[VICTIMS + i], seconds + 60);

    int64_t end = now_ms() + seconds * 1000 / 2;
    int status = 0;
    for (unsigned i = 0; now_ms() < end && status == 0; i++) {
        nap_ms(50);
        if (waitpid(victim[i % VICTIMS], &status, WNOHANG) == victim[i % VICTIMS])
            fail_msg("seed %lu: a victim ended with status %#x", seed, (unsigned)status);
    }
    atomic_store(&tally->over, true);
    for (unsigned i = 0; i < ATTACKERS; i++)
        end_of(attacker[i]);
    for (unsigned i = 0; i < VICTIMS; i++)
        assert_int_equal(end_of(victim[i]), 0);
    printf("# %llu calls, %llu hostile writes, %llu clients opened, %llu tables given up\n",
           (unsigned long long)tally->calls, (unsigned long long)tally->writes,
           (unsigned long long)tally->opened, (unsigned long long)tally->lost_tables);
    assert_true(tally->calls >= FEWEST_CALLS && tally->writes >= FEWEST_CALLS);
}

/* G23 */
static void test_planted_values(void **state)
{
    fight(*state, false);
}

static void test_planted_pages(void **state)
{
    fight(*state, true);
}

/* Plants entries and resources among the clients and in cell 0, and makes a shard look as if its
 * owner had died: the next to come repairs it. */
static void plant_states(const struct target *at, uint32_t shard, uint32_t state)
{
    uint32_t cells = (uint32_t)((at->len - LOCAL_CELLS_AT) / LOCAL_CELL);
    const uint32_t owner_died = UINT32_C(0x40000000);

    for (uint32_t i = 0; i < cells; i++) {
        struct cell_head *head = (void *)(at->map + LOCAL_CELLS_AT + (size_t)i * LOCAL_CELL);
        uint32_t seen = atomic_load(&head->state);
        bool is_idle = seen == CELL_FREE || seen == CELL_RESERVED;
        if (is_idle && (i == 0 || head->shard == shard))
            atomic_store(&head->state, state);
    }
    memcpy(at->map + LOCAL_SHARDS_AT + shard * sizeof(struct shard), &owner_died, 4);
}

static void open_and_work(void *arg)
{
    const struct part *part = arg;
    unsigned long random = part->seed;
    struct life l = {0};
    open_again(part->scene, &l.client[0]);
    open_again(part->scene, &l.client[1]);
    for (int n = 0; n < 100; n++)
        operate(&l, &random);
    close_life(&l);
}

static void test_states_out_of_place(void **state)
{
    const struct scene *s = *state;
    hf_client *client;
    struct target at;
    char url[200];
    snprintf(url, sizeof url, "%s?mode=0666", s->url);
    memset(tally, 0, sizeof *tally);

    for (uint32_t planted = CELL_FREE; planted <= CELL_DEAD + 1; planted++)
        for (uint32_t shard = 0; shard <= LOCAL_REGISTRY; shard += LOCAL_REGISTRY / 2) {
            struct part part = {.scene = s, .seed = planted};
            unlink(s->path);
            assert_int_equal(scene_open(url, &client), HF_OK);
            assert_true(aim(&at, s->path));
            plant_states(&at, shard, planted);
            let_go(&at);
            pid_t victim = start_child(open_and_work, &part, 60);
            assert_int_equal(end_of(victim), 0);
            hf_status closed = hf_close(client, 500);
            assert_true(strcmp(hf_status_name(closed), "UNKNOWN") != 0);
        }
}

/* ---- Lists that are far too long ---- */

enum { CRAFTED_NAMES = 330 };

/* Links every cell of a state into one list, by the index that lies at `link`. */
static uint32_t link_all(const struct target *at, uint32_t state, size_t link, bool in_a_circle)
{
    uint32_t cells = (uint32_t)((at->len - LOCAL_CELLS_AT) / LOCAL_CELL), first = 0, before = 0;
    for (uint32_t i = 1; i < cells; i++) {
        char *cell = at->map + LOCAL_CELLS_AT + (size_t)i * LOCAL_CELL;
        if (atomic_load(&((struct cell_head *)(void *)cell)->state) != state)
            continue;
        if (before)
            memcpy(at->map + LOCAL_CELLS_AT + (size_t)before * LOCAL_CELL + link, &i, sizeof i);
        first = first ? first : i;
        before = i;
    }
    uint32_t last = in_a_circle ? first : 0;
    memcpy(at->map + LOCAL_CELLS_AT + (size_t)before * LOCAL_CELL + link, &last, sizeof last);
    return first;
}

struct crafted {
    const struct scene *scene;
    const struct crafted_call *call;
    bool in_a_circle;
    uint32_t units; /* 0: the holders have no rows of their own; 1: they have, and one owner */
};

/* Every bucket of every part leads to all resources, and each of these to all holders. */
static void craft_lists(const struct target *at, const struct crafted *crafted)
{
    uint32_t resource =
        link_all(at, CELL_RESOURCE, offsetof(struct resource, chain), crafted->in_a_circle);
    uint32_t holder =
        link_all(at, CELL_HELD, offsetof(struct cell_head, next), crafted->in_a_circle);
    union cell *cells = (void *)(at->map + LOCAL_CELLS_AT);
    size_t count = (at->len - LOCAL_CELLS_AT) / LOCAL_CELL;

    for (size_t i = 1; i < count; i++)
        if (atomic_load(&cells[i].head.state) == CELL_RESOURCE) {
            cells[i].resource.holders = (struct cell_list){holder, holder, (uint32_t)count};
        } else if (atomic_load(&cells[i].head.state) == CELL_HELD) {
            cells[i].entry.units = crafted->units;
            cells[i].entry.named = 1;
            cells[i].entry.owner = cells[holder].entry.owner;
        }

    struct shard *shards = (void *)(at->map + LOCAL_SHARDS_AT);
    for (uint32_t s = 0; s < LOCAL_SHARDS; s++)
        for (uint32_t b = 0; b < LOCAL_BUCKETS; b++)
            shards[s].bucket[b] = resource;
}

/* One of the calls that walk, on a table of its own. */
struct crafted_call {
    const char *name;
    hf_status (*call)(hf_client *client, hf_lease *held);
};

static hf_status call_list(hf_client *client, hf_lease *held)
{
    size_t length = 0;
    (void)held;
    return hf_list(client, NULL, check_row, &length);
}

static hf_status call_page(hf_client *client, hf_lease *held)
{
    struct hf_page page = {.size = sizeof page, .names = HF_PAGE_MAX};
    char next[HF_NAME_MAX + 1];
    size_t length = 0;
    (void)held;
    return hf_list_page(client, &page, check_row, &length, next);
}

static hf_status call_show(hf_client *client, hf_lease *held)
{
    size_t length = 0;
    return hf_show(client, hf_lease_name(held), check_row, &length);
}

static hf_status call_acquire(hf_client *client, hf_lease *held)
{
    hf_lease *lease;
    struct hf_request want = {
        .size = sizeof want, .name = hf_lease_name(held), .ttl_ms = 1000, .owner = "somebody"};
    hf_status status = hf_acquire(client, &want, &lease);
    hf_lease_free(lease);
    return status;
}

static hf_status call_release(hf_client *client, hf_lease *held)
{
    (void)client;
    return hf_release(held);
}

static hf_status call_close(hf_client *client, hf_lease *held)
{
    (void)held;
    return hf_close(client, 200);
}

static void call_crafted(void *arg)
{
    const struct crafted *crafted = arg;
    static hf_lease *lease[CRAFTED_NAMES];
    hf_client *client;
    struct target at;
    char name[32];

    REQUIRE(scene_open(crafted->scene->url, &client) == HF_OK);
    for (int i = 0; i < CRAFTED_NAMES; i++) {
        snprintf(name, sizeof name, "crafted-%d", i);
        REQUIRE(acquire(client, name, 0, &lease[i]) == HF_OK);
    }
    REQUIRE(aim(&at, crafted->scene->path));
    craft_lists(&at, crafted);

    int64_t from = now_ms();
    hf_status status = crafted->call->call(client, lease[0]);
    if (now_ms() - from >= SLOWEST_MS)
        fprintf(stderr, "%s, units %u, %s\n", crafted->call->name, crafted->units,
                crafted->in_a_circle ? "in a circle" : "in one list");
    expect_status(status, from);
}

/* G23 */
static void test_crafted_lists(void **state)
{
    static const struct crafted_call calls[] = {
        {"list", call_list},       {"page", call_page},       {"show", call_show},
        {"acquire", call_acquire}, {"release", call_release}, {"close", call_close}};
    const struct scene *s = *state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (uint32_t form = 0; form < 4; form++) {
            struct crafted crafted = {
                .scene = s, .call = &calls[i], .in_a_circle = form < 2, .units = form % 2};
            unlink(s->path);
            assert_int_equal(end_of(start_child(call_crafted, &crafted, 60)), 0);
        }
}

int main(int argc, char **argv)
{
    seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : seconds;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : seed;
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED)
        return 70;
    const struct CMUnitTest tests[] = {
        SCENE("a repair takes no cell for what its place does not allow", test_states_out_of_place),
        SCENE("no call walks through crafted lists for longer than its bound", test_crafted_lists),
        SCENE("another user who plants values in a shared table can cost locks and nothing else",
              test_planted_values),
        SCENE("neither can one who overwrites cells and pages", test_planted_pages),
    };
    return cmocka_run_group_tests_name("table: hostile", tests, NULL, NULL);
}
