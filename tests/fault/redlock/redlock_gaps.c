/* clang-format off */
/* redlock_gaps.c - a minority of slow or hung servers leaves no gap without a holder, and at least
 * half of the rate of a healthy quorum (G39). Processes contend for one lock on real servers
 * through the public interface; each case measures the healthy quorum first, and then the same
 * contenders with some servers stopped (SIGSTOP) or far away.
 *
 *     redlock_gaps [SECONDS of each phase [all | CASE]]     all: every case, instead of the most telling ones; a number
 *                                                           from 1 on: that case alone *
 * With REDLOCK_PEER=worker.mjs (redlock_gaps_npm.sh) each case is measured with that program, too,
 * on the same servers; nothing is asserted of it. */
/* clang-format on */
#include "redlock_fixture.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

enum { CONTENDERS_MOST = 20, GAP_MS = 200, WAIT_MS = 20000 };

static double phase_s = 2;

enum ill { HUNG, SLOW };

struct row {
    unsigned servers, ill;
    enum ill how;
    unsigned contenders;
    unsigned hold_us;
    bool always; /* also without "all" */
    bool anew;   /* each acquire has a client of its own, as commands have */
};

static const struct row rows[] = {
    {5, 1, HUNG, 10, 100000, true, false},  {5, 1, HUNG, 5, 1000, true, false},
    {5, 2, HUNG, 5, 1000, true, false},     {5, 1, SLOW, 5, 1000, true, false},
    {3, 1, HUNG, 5, 1000, true, false},     {5, 2, SLOW, 10, 0, true, false},
    {5, 1, HUNG, 2, 0, false, false},       {5, 1, HUNG, 20, 0, false, false},
    {5, 1, HUNG, 20, 10000, false, false},  {5, 2, HUNG, 2, 0, false, false},
    {5, 2, HUNG, 10, 10000, false, false},  {5, 2, HUNG, 20, 0, false, false},
    {5, 1, SLOW, 10, 100000, false, false}, {5, 1, SLOW, 20, 0, false, false},
    {5, 2, SLOW, 2, 1000, false, false},    {5, 2, SLOW, 20, 10000, false, false},
    {3, 1, HUNG, 2, 0, false, false},       {3, 1, HUNG, 20, 10000, false, false},
    {3, 1, SLOW, 2, 1000, false, false},    {3, 1, SLOW, 10, 10000, false, false},
    {5, 2, HUNG, 2, 1000, false, true},     {5, 1, HUNG, 5, 1000, true, true},
    {5, 2, HUNG, 20, 0, false, true},       {3, 1, HUNG, 5, 1000, false, true},
    {3, 1, HUNG, 2, 100000, false, true},   {5, 1, SLOW, 2, 1000, false, true},
};

enum { SLOW_RTT_MS = 400 };

/* ---- Contenders ---- */

enum phase { WARMING, HEALTHY, ILL, PHASES };

struct floor {
    _Atomic unsigned phase;
    _Atomic bool over;
    _Atomic int inside, overlaps;
    _Atomic int64_t left_at;         /* when the last holder left */
    _Atomic int64_t longest[PHASES]; /* longest time without a holder, in nanoseconds */
    _Atomic unsigned held[PHASES];   /* grants */
    _Atomic unsigned failed[PHASES]; /* waits that ended without one */
    _Atomic unsigned each[PHASES][CONTENDERS_MOST]; /* grants of each contender */
};

struct contender {
    struct floor *floor;
    const struct row *row;
    unsigned number;
    char url[512];
};

static void note_gap(struct floor *floor, unsigned phase)
{
    int64_t gap = now_ns() - atomic_load(&floor->left_at),
            longest = atomic_load(&floor->longest[phase]);

    while (gap > longest && !atomic_compare_exchange_weak(&floor->longest[phase], &longest, gap)) {
    }
}

static void hold_once(const struct contender *me, hf_lease *lease)
{
    struct floor *floor = me->floor;
    unsigned phase = atomic_load(&floor->phase);

    if (atomic_fetch_add(&floor->inside, 1) != 0)
        atomic_fetch_add(&floor->overlaps, 1);
    note_gap(floor, phase);
    atomic_fetch_add(&floor->held[phase], 1);
    atomic_fetch_add(&floor->each[phase][me->number], 1);
    if (me->row->hold_us)
        nap_us(me->row->hold_us);
    atomic_store(&floor->left_at, now_ns());
    atomic_fetch_sub(&floor->inside, 1);
    hf_status status = hf_release(lease);
    if (status != HF_OK)
        fprintf(stderr, "# release: %s\n", hf_error_text());
    hf_lease_free(lease);
}

static void contend_once(const struct contender *me, hf_client *client)
{
    struct want want = {.name = "job", .ttl_ms = 20000, .wait_ms = WAIT_MS};
    struct hf_request request = request_of(&want);
    hf_lease *lease;

    if (hf_acquire(client, &request, &lease) == HF_OK)
        hold_once(me, lease);
    else
        atomic_fetch_add(&me->floor->failed[atomic_load(&me->floor->phase)], 1);
}

static void contend(struct actor *self, void *arg)
{
    const struct contender *me = arg;
    hf_client *client;

    part_must(hf_open(me->url, NULL, &client) == HF_OK);
    part_says(self, &(struct answer){.what = ORDER_GO});
    part_awaits_go(self);
    while (!atomic_load(&me->floor->over)) {
        contend_once(me, client);
        if (me->row->anew) {
            hf_close(client, 5000);
            part_must(hf_open(me->url, NULL, &client) == HF_OK);
        }
    }
    hf_close(client, 5000);
    part_says(self, &(struct answer){.what = ORDER_CLOSE});
}

/* ---- Contenders of another make ---- */

struct peer {
    char ports[200], hold_ms[16], log[200];
};

/* It writes a line for each grant, "G nanoseconds", and for each end of a hold, "L nanoseconds",
 * until it is killed. */
static void contend_as_peer(struct actor *self, void *arg)
{
    const struct peer *peer = arg;

    part_says(self, &(struct answer){.what = ORDER_GO});
    part_awaits_go(self);
    execlp("node", "node", getenv("REDLOCK_PEER"), peer->ports, peer->hold_ms, peer->log,
           (char *)NULL);
    part_must(!"node can be started");
}

struct line {
    int64_t at;
    char what;
};

static int by_time(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* What the floor would have counted between these two times. */
static void count_lines(struct line *line, size_t count, int64_t begin, int64_t end, unsigned *held,
                        int64_t *longest)
{
    int64_t left_at = begin;
    bool is_held = false;

    *held = 0;
    *longest = 0;
    for (size_t i = 0; i < count && line[i].at < end; i++) {
        int64_t since = left_at > begin ? left_at : begin;
        if (line[i].what == 'G' && line[i].at > begin) {
            ++*held;
            if (!is_held && line[i].at - since > *longest)
                *longest = line[i].at - since;
        }
        is_held = line[i].what == 'G';
        left_at = line[i].at;
    }
    if (!is_held && end - left_at > *longest)
        *longest = end - (left_at > begin ? left_at : begin);
}

static size_t read_lines(const char *path, struct line *line, size_t most)
{
    FILE *log = fopen(path, "r");
    size_t count = 0;
    long long at;

    assert_non_null(log);
    while (count < most && fscanf(log, " %c %lld", &line[count].what, &at) == 2)
        line[count++].at = at;
    fclose(log);
    qsort(line, count, sizeof *line, by_time);
    return count;
}

/* ---- One case ---- */

static struct proxy *far_away[QUORUM_MOST];

/* The last servers of the list are the ones that fall ill. */
static void make_url(const struct row *row, char *url, size_t size)
{
    uint16_t port[QUORUM_MOST];

    for (unsigned i = 0; i < row->servers; i++) {
        bool is_far = row->how == SLOW && i >= row->servers - row->ill;
        far_away[i] = is_far ? proxy_start(server_port(scene.quorum.server[i])) : NULL;
        port[i] = is_far ? proxy_port(far_away[i]) : server_port(scene.quorum.server[i]);
    }
    quorum_url_of_ports(port, row->servers, NULL, url, size);
}

static void fall_ill(const struct row *row, bool ill)
{
    for (unsigned i = row->servers - row->ill; i < row->servers; i++) {
        if (row->how == HUNG)
            (ill ? server_pause : server_continue)(scene.quorum.server[i]);
        for (unsigned way = 0; row->how == SLOW && way < 2; way++)
            proxy_delay(far_away[i], (enum proxy_way)way, ill ? SLOW_RTT_MS / 2 : 0);
    }
}

static void run_phase(struct floor *floor, enum phase phase, double seconds)
{
    atomic_store(&floor->phase, phase);
    nap_us((int64_t)(seconds * 1e6));
    if (atomic_load(&floor->inside) == 0) /* a gap that goes on */
        note_gap(floor, phase);
}

static void print_row(const struct row *row, const struct floor *floor)
{
    unsigned least = UINT32_MAX, most = 0;

    for (unsigned i = 0; i < row->contenders; i++) {
        unsigned each = atomic_load(&floor->each[ILL][i]);
        least = each < least ? each : least;
        most = each > most ? each : most;
    }
    print_message("# %u of %u %s, %2u %s, %5.1f ms holds: %6.1f/s healthy, %6.1f/s ill; "
                  "gaps %lld ms healthy, "
                  "%lld ms ill; each held %u to %u times; %u waits failed\n",
                  row->ill, row->servers, row->how == HUNG ? "hung" : "slow", row->contenders,
                  row->anew ? "new clients" : "contenders", row->hold_us / 1000.0,
                  atomic_load(&floor->held[HEALTHY]) / phase_s,
                  atomic_load(&floor->held[ILL]) / phase_s,
                  (long long)atomic_load(&floor->longest[HEALTHY]) / 1000000,
                  (long long)atomic_load(&floor->longest[ILL]) / 1000000, least, most,
                  atomic_load(&floor->failed[ILL]));
}

static void play(const struct row *row, struct floor *floor)
{
    static struct contender contender[CONTENDERS_MOST];
    struct actor *actor[CONTENDERS_MOST];
    char url[512];

    scene_start(row->servers);
    make_url(row, url, sizeof url);
    for (unsigned i = 0; i < row->contenders; i++) {
        contender[i] = (struct contender){.floor = floor, .number = i, .row = row};
        memcpy(contender[i].url, url, sizeof url);
        actor[i] = actor_start_part(contend, &contender[i]);
        actor_answer(actor[i], ORDER_GO, 0);
    }

    atomic_store(&floor->left_at, now_ns());
    for (unsigned i = 0; i < row->contenders; i++)
        actor_order(actor[i], ORDER_GO, 0);
    run_phase(floor, WARMING, 0.5);
    run_phase(floor, HEALTHY, phase_s);
    fall_ill(row, true);
    run_phase(floor, ILL, phase_s);
    fall_ill(row, false);
    atomic_store(&floor->over, true);
    for (unsigned i = 0; i < row->contenders; i++)
        actor_answer(actor[i], ORDER_CLOSE, 0);
}

static void write_peer(const struct row *row, struct peer *peer)
{
    size_t len = 0;

    for (unsigned i = 0; i < row->servers; i++)
        len += (size_t)snprintf(peer->ports + len, sizeof peer->ports - len, "%s%u", i ? "," : "",
                                far_away[i] ? proxy_port(far_away[i])
                                            : server_port(scene.quorum.server[i]));
    snprintf(peer->hold_ms, sizeof peer->hold_ms, "%u", row->hold_us / 1000);
    snprintf(peer->log, sizeof peer->log, "%s/peer.log", stage_directory());
}

/* The same case again, with another program. */
static void play_peer(const struct row *row)
{
    enum { LINES_MOST = 1000000 };
    static struct peer peer;
    struct actor *actor[CONTENDERS_MOST];
    struct line *line = calloc(LINES_MOST, sizeof *line);
    unsigned held[2];
    int64_t longest[2], healthy_at, ill_at, end_at;

    write_peer(row, &peer);
    for (unsigned i = 0; i < row->contenders; i++) {
        actor[i] = actor_start_part(contend_as_peer, &peer);
        actor_answer(actor[i], ORDER_GO, 0);
    }
    for (unsigned i = 0; i < row->contenders; i++)
        actor_order(actor[i], ORDER_GO, 0);
    nap_us(3000000); /* node starts slowly */
    healthy_at = now_ns();
    nap_us((int64_t)(phase_s * 1e6));
    fall_ill(row, true);
    ill_at = now_ns();
    nap_us((int64_t)(phase_s * 1e6));
    end_at = now_ns();
    fall_ill(row, false);
    for (unsigned i = 0; i < row->contenders; i++)
        actor_kill(actor[i]);

    size_t count = read_lines(peer.log, line, LINES_MOST);
    count_lines(line, count, healthy_at, ill_at, &held[0], &longest[0]);
    count_lines(line, count, ill_at, end_at, &held[1], &longest[1]);
    print_message(
        "#   npm redlock: %.1f/s healthy, %.1f/s ill; gaps %lld ms healthy, %lld ms ill\n",
        held[0] / phase_s, held[1] / phase_s, (long long)longest[0] / 1000000,
        (long long)longest[1] / 1000000);
    free(line);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    struct floor *floor =
        mmap(NULL, sizeof *floor, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(floor != MAP_FAILED);
    play(row, floor);
    print_row(row, floor);
    assert_int_equal(atomic_load(&floor->overlaps), 0);
    assert_int_equal(atomic_load(&floor->failed[ILL]), 0);
    assert_in_range(atomic_load(&floor->longest[ILL]), 0, INT64_C(1000000) * GAP_MS);
    assert_true(2 * atomic_load(&floor->held[ILL]) >= atomic_load(&floor->held[HEALTHY]));
    scene_await_keys("job", 0);
    if (getenv("REDLOCK_PEER") && !row->anew)
        play_peer(row);
    for (unsigned i = 0; i < row->servers; i++)
        if (far_away[i])
            proxy_end(far_away[i]);
    munmap(floor, sizeof *floor);
}

static int setup_row(void **state)
{
    const struct row *row = *state;
    void *unused = NULL;
    (void)row;
    return scene_setup(&unused);
}

static int teardown_row(void **state)
{
    void *unused = NULL;
    (void)state;
    return scene_teardown(&unused);
}

int main(int argc, char **argv)
{
    enum { ROWS = sizeof rows / sizeof *rows };
    static struct CMUnitTest tests[ROWS];
    static char name[ROWS][120];
    bool all = argc > 2 && strcmp(argv[2], "all") == 0;
    size_t count = 0;

    size_t only = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc > 1)
        phase_s = atof(argv[1]);
    for (size_t i = 0; i < ROWS; i++) {
        if (only ? i + 1 != only : !all && !rows[i].always)
            continue;
        snprintf(name[count], sizeof name[count],
                 "%u of %u servers %s, %u %s, holds of %u us leave no gap", rows[i].ill,
                 rows[i].servers, rows[i].how == HUNG ? "hung" : "slow", rows[i].contenders,
                 rows[i].anew ? "new clients each time" : "contenders", rows[i].hold_us);
        tests[count] = (struct CMUnitTest){.name = name[count],
                                           .test_func = test_row,
                                           .setup_func = setup_row,
                                           .teardown_func = teardown_row,
                                           .initial_state = (void *)(uintptr_t)&rows[i]};
        count++;
    }
    return _cmocka_run_group_tests("redlock: gaps", tests, count, NULL, NULL);
}
