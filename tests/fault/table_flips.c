/* table_flips.c - bytes of a table in use are changed at random: calls may answer wrongly, but they answer, in time,
 * and nothing is touched outside of the table.
 *
 *     table_flips [ROUNDS [SEED]]
 *
 * Left out are the bytes of the C library's mutexes: it asserts on their kind and aborts, and they hold pointers of the
 * thread that owns them, which it follows without a look when it unlocks. Whoever can write to a table can end its
 * users; that is why it is made 0600. */
#include "table_scene.h"

#include <sys/mman.h>

enum { PER_CHILD = 50, OPERATIONS = 12, SLOWEST_MS = 4000 };

static unsigned long rounds = 2000, seed = 1;

struct spoiler {
    const struct scene *scene;
    unsigned long seed;
    bool state_page; /* else shards and cells */
};

static uint64_t draw(unsigned long *from)
{
    *from = *from * 6364136223846793005u + 1442695040888963407u;
    return *from >> 33;
}

/* ---- Where to ---- */

static bool within(size_t at, size_t begin, size_t len)
{
    return at >= begin && at < begin + len;
}

static bool is_mutex(const char *map, size_t at)
{
    if (at < LOCAL_SHARDS_AT)
        return within(at, LOCAL_STATE_AT + offsetof(struct hf_local_state, grow), sizeof(pthread_mutex_t));
    if (at < LOCAL_CELLS_AT)
        return within((at - LOCAL_SHARDS_AT) % sizeof(struct hf_shard), offsetof(struct hf_shard, mutex),
                      sizeof(pthread_mutex_t));
    const union hf_cell *cell = (const void *)(map + at / LOCAL_CELL * LOCAL_CELL);
    return cell->head.shard == LOCAL_REGISTRY &&
           within(at % LOCAL_CELL, offsetof(struct hf_member, life), sizeof(pthread_mutex_t));
}

/* A byte that is in use is worth more than one of the many that are zero. */
static size_t choose(const char *map, size_t len, bool state_page, unsigned long *random)
{
    size_t from = state_page ? LOCAL_STATE_AT : LOCAL_SHARDS_AT;
    size_t to = state_page ? LOCAL_STATE_AT + sizeof(struct hf_local_state) : len, at;
    int tries = 0;
    do
        at = from + draw(random) % (to - from);
    while (is_mutex(map, at) || (map[at] == 0 && ++tries < 20));
    return at;
}

/* ---- What goes on meanwhile ---- */

struct life {
    hf_client *client[2];
    hf_lease *held[16], *waiting[4];
};

static void check_row(void *arg, const struct hf_row *row)
{
    *(size_t *)arg += strlen(row->name) + strlen(row->label) + strlen(row->host);
}

static void ignore_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)arg;
    REQUIRE(strcmp(hf_status_name(outcome), "UNKNOWN") != 0);
}

static void make_name(char name[300], uint64_t number)
{
    int len = snprintf(name, 300, "name-%d-", (int)number);
    if (number % 3 == 0) /* in several cells */
        memset(name + len, 'x', 280), name[len + 280] = 0;
}

static void expect_status(hf_status status, int64_t from)
{
    REQUIRE(strcmp(hf_status_name(status), "UNKNOWN") != 0);
    REQUIRE(status != HF_INTERNAL);
    REQUIRE(now_ms() - from < SLOWEST_MS);
}

static void acquire_one(struct life *l, unsigned long *random, hf_lease **lease)
{
    char name[300];
    struct hf_request want = {.size = sizeof want, .name = name, .ttl_ms = 1000, .label = "a label"};
    make_name(name, draw(random) % 24);
    want.kind = draw(random) % 4 ? HF_EXCLUSIVE : HF_SEMAPHORE;
    want.capacity = want.kind == HF_SEMAPHORE ? 3 : 0;
    want.flags = draw(random) % 3 == 0 ? HF_DETACHED : draw(random) % 2 ? HF_AUTO_RENEW : 0;
    want.wait_ms = draw(random) % 4 ? 0 : 5;
    int64_t from = now_ms();
    hf_lease_free(*lease);
    *lease = NULL;
    expect_status(hf_acquire(l->client[draw(random) % 2], &want, lease), from);
}

static void start_one(struct life *l, unsigned long *random, hf_lease **lease)
{
    char name[300];
    struct hf_request want = {.size = sizeof want, .name = name, .ttl_ms = 1000, .wait_ms = 50};
    make_name(name, draw(random) % 24);
    int64_t from = now_ms();
    hf_lease_free(*lease);
    *lease = NULL;
    expect_status(hf_acquire_start(l->client[draw(random) % 2], &want, ignore_outcome, NULL, lease), from);
}

static void operate(struct life *l, unsigned long *random)
{
    int64_t from = now_ms();
    size_t length = 0;
    hf_lease **lease = &l->held[draw(random) % 16];
    switch (draw(random) % 8) {
    case 0:
        if (*lease)
            expect_status(hf_release(*lease), from);
        break;
    case 1:
        if (*lease)
            expect_status(hf_extend(*lease, 2000), from);
        break;
    case 2:
        expect_status(hf_list(l->client[draw(random) % 2], NULL, check_row, &length), from);
        break;
    case 3:
    case 4:
        start_one(l, random, &l->waiting[draw(random) % 4]);
        break;
    default:
        acquire_one(l, random, lease);
    }
}

static void flip_and_live(void *arg)
{
    const struct spoiler *spoiler = arg;
    const struct scene *s = spoiler->scene;
    unsigned long random = spoiler->seed;
    struct life l = {0};
    REQUIRE(scene_open(s->url, &l.client[0]) == HF_OK && scene_open(s->url, &l.client[1]) == HF_OK);
    for (int i = 0; i < 200; i++)
        operate(&l, &random);
    int fd = open(s->path, O_RDWR | O_CLOEXEC);
    struct stat st;
    REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
    size_t len = (size_t)st.st_size;
    char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED);
    for (int round = 0; round < PER_CHILD; round++) {
        size_t at = choose(map, len, spoiler->state_page, &random);
        map[at] = (char)(map[at] ^ (draw(&random) % 2 ? 1 << draw(&random) % 8 : (int)(draw(&random) % 255 + 1)));
        for (int i = 0; i < OPERATIONS; i++)
            operate(&l, &random);
    }
    int64_t from = now_ms();
    expect_status(hf_close(l.client[0], 1000), from);
    from = now_ms();
    expect_status(hf_close(l.client[1], 1000), from);
}

static void flip(const struct scene *s, bool state_page)
{
    for (unsigned long done = 0; done < rounds; done += PER_CHILD) {
        struct spoiler spoiler = {.scene = s, .seed = seed * 1000003 + done, .state_page = state_page};
        int status = end_of(start_child(flip_and_live, &spoiler, 60));
        if (status != 0)
            fail_msg("round %lu of seed %lu: %s %d", done, seed, WIFSIGNALED(status) ? "signal" : "exit status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        assert_int_equal(unlink(s->path), 0);
    }
}

/* G23 */
static void test_shards_and_cells(void **state)
{
    flip(*state, false);
}

static void test_state_page(void **state)
{
    rounds /= 4;
    flip(*state, true);
    rounds *= 4;
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : rounds;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : seed;
    const struct CMUnitTest tests[] = {
        SCENE("calls on a table whose shards and cells are damaged answer in time", test_shards_and_cells),
        SCENE("calls on a table whose state page is damaged answer in time", test_state_page),
    };
    return cmocka_run_group_tests_name("table: flips", tests, NULL, NULL);
}
