/* table_bit_flips.c - bytes of a table in use are changed at random: calls may answer wrongly, but
 * they answer, in time, and nothing is touched outside of the table.
 *
 *     table_flips [ROUNDS [SEED]] */
#include "table_life.h"

#include <sys/mman.h>

enum { PER_CHILD = 50, OPERATIONS = 12 };

static unsigned long rounds = 2000, seed = 1;

struct spoiler {
    const struct scene *scene;
    unsigned long seed;
    bool state_page; /* else shards and cells */
};

/* ---- Where to ---- */

/* A byte that is in use is worth more than one of the many that are zero. */
static size_t choose(const char *map, size_t len, bool state_page, unsigned long *random)
{
    size_t from = state_page ? LOCAL_STATE_AT : LOCAL_SHARDS_AT;
    size_t to = state_page ? LOCAL_STATE_AT + sizeof(struct table_state) : len, at;
    int tries = 0;
    do
        at = from + draw(random) % (to - from);
    while (map[at] == 0 && ++tries < 20);
    return at;
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
        map[at] = (char)(map[at] ^ (draw(&random) % 2 ? 1 << draw(&random) % 8
                                                      : (int)(draw(&random) % 255 + 1)));
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
        struct spoiler spoiler = {
            .scene = s, .seed = seed * 1000003 + done, .state_page = state_page};
        int status = end_of(start_child(flip_and_live, &spoiler, 60));
        if (status != 0)
            fail_msg("round %lu of seed %lu: %s %d", done, seed,
                     WIFSIGNALED(status) ? "signal" : "exit status",
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
        SCENE("calls on a table whose shards and cells are damaged answer in time",
              test_shards_and_cells),
        SCENE("calls on a table whose state page is damaged answer in time", test_state_page),
    };
    return cmocka_run_group_tests_name("table: flips", tests, NULL, NULL);
}
