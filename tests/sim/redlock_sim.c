/* clang-format off */
/* redlock_sim.c - the simulator of a quorum: the production engine for redlock: against the
 * shipped scripts in five models of a server, under virtual time, with faults drawn from a seed
 * (G35, G36, G37, G38, G39).
 *
 *     redlock [SCHEDULES [FIRST SEED]]                     prints TAP; every planted mistake must be found, too
 *     redlock --plant NAME [SCHEDULES [FIRST SEED]]        that mistake alone
 *     redlock --every-call SECONDS [FIRST SEED]            each call of each script on one server is refused once
 *     redlock --every-line SECONDS [FIRST SEED]            the first call in each line of the library, until each was
 *                                                          refused often enough; prints how often
 *
 * Servers restart empty, hang, and have clocks that are wrong and run at rates of their own;
 * connections are cut and slow, with what was sent still under way; clients stand still, and their
 * clocks jump ahead. In every sixth schedule clients and connections are well, and a minority of
 * the servers hangs or is slow for minutes: there the lock must be granted soon whenever somebody
 * waits, and in the order in which they came (G39). What clients are told goes to the judge of all
 * runs (checker/checker.h). At the end, when all is healed and released: no key of a lock is left
 * on any server, and the engine has forgotten every try. */
/* clang-format on */
#include "sim/redis_world/refused.h"
#include "sim/redlock_world/redlock_events.h"
#include "sim/refused_lines.h"

#include <time.h>

enum { CALM_EVERY = 6, CALM_MS = 120000, BRIEF_MS = 1500 };
enum {
    FIND_WITHIN = 400
}; /* schedules in which each planted mistake must show, also where fewer are run without */

/* The call of a script that is refused, counted from 1 on that server; 0: none. */
static struct {
    uint64_t nth;
    unsigned server, error; /* error: in call_errors */
} refused;

static struct model_line *noted_lines; /* of that server; NULL: not noted */

static bool is_spoilt;

static const char *spoil(const char *text, size_t len, size_t *spoilt_len, const char *good,
                         const char *bad)
{
    static char spoilt[1 << 18];
    memcpy(spoilt, text, len);
    spoilt[len] = 0;
    char *at = strstr(spoilt, good);
    for (size_t i = 0; at && good[i]; i++)
        at[i] = i < strlen(bad) ? bad[i] : ' ';
    is_spoilt |= at != NULL;
    *spoilt_len = len;
    return spoilt;
}

/* The floor for later tokens is not written back. */
static const char *spoil_raise(const char *text, size_t len, size_t *spoilt_len)
{
    return spoil(text, len, spoilt_len, "lock.number = math.max(lock.number, tonumber(agreed))",
                 "");
}

/* Nobody comes too early. */
static const char *spoil_turns(const char *text, size_t len, size_t *spoilt_len)
{
    return spoil(text, len, spoilt_len, "ahead > 0 and is_early(keys, p, now, ahead)", "false");
}

static bool is_about_order(enum plant plant)
{
    return plant == PLANT_WAITS_FOR_ALL || plant == PLANT_NO_TURNS;
}

static void open_servers(enum plant plant)
{
    static const char *(*const spoilers[PLANT_COUNT])(const char *, size_t, size_t *) = {
        [PLANT_FORGETS_AGREED] = spoil_raise,
        [PLANT_NO_TURNS] = spoil_turns,
    };
    /* Without loss of data clocks may be wrong by minutes; with it, by less than half of the
     * longest ttl. */
    int64_t wrong_ms = w.data_is_lost ? MAX_TTL_MS / 2 - 20 : 300000;
    for (unsigned i = 0; i < SERVERS; i++) {
        struct server *s = &w.server[i];
        if (!models[i])
            models[i] = model_open(i + 1);
        model_reset(models[i], w.seed + i + 1);
        s->model = models[i];
        model_spoil(s->model, spoilers[plant]);
        s->wrong_us = ((int64_t)draw((uint32_t)(2 * wrong_ms)) - wrong_ms) * 1000;
        s->fast_ppm = w.data_is_lost ? 0 : (int64_t)draw(4000) - 2000;
        s->lies = plant == PLANT_EMPTY_COUNTS;
        set_clock(s);
        model_restart(s->model, false);
    }
    model_note_lines(models[refused.server], noted_lines, LINES_MOST);
    if (refused.nth)
        model_fail_call(models[refused.server], refused.nth, call_errors[refused.error].text);
    w.now = w.free_since = FIRST_DAY;
}

static void open_client(unsigned i)
{
    static const uint32_t own[CLIENTS] = {400, MAX_TTL_MS, 1000};
    static struct settings settings;
    struct url url;
    struct client *c = &w.client[i];
    settings_defaults(&settings, engine_settings());
    char text[128];
    c->max_ttl_ms = planted == PLANT_OWN_TTL ? own[i] : MAX_TTL_MS;
    snprintf(text, sizeof text, "redlock://a,b,c,d,e?max_ttl=%ums", c->max_ttl_ms);
    if (url_parse(&url, text) != HF_OK || settings_from_query(&settings, url.query) != HF_OK)
        abort();
    c->host = (struct wire_engine_host){.ctx = c,
                                        .dial = dial,
                                        .send = send_line,
                                        .hang_up = hang_up,
                                        .on_reply = on_reply,
                                        .row = ignore_row,
                                        .recheck = ignore_recheck,
                                        .random = draw_for_engine};
    c->ahead = NANOS_OF_MS((int64_t)draw(1000000));
    c->fast_ppm = (int64_t)draw(4000) - 2000;
    for (unsigned line = 0; line < LINES_EACH; line++)
        c->link[line] = -1;
    if (redlock_wire_engine.open(&c->engine, &url, &settings, &c->host) != HF_OK)
        abort();
    wish_at(c, w.now + NANOS_OF_MS(draw(50)));
}

static bool all_done(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        if (w.client[i].state != DONE)
            return false;
    return true;
}

static void run_until(nanos end, bool until_done)
{
    while (w.count && w.heap[0].at < end && !w.flaw[0] && !(until_done && all_done()))
        happen();
}

/* Nothing of any try is left, and the engine knows of none. */
static void check_rest(void)
{
    for (unsigned i = 0; i < SERVERS && !w.flaw[0]; i++) {
        struct model_key key;
        set_clock(&w.server[i]);
        if (model_look(w.server[i].model, "lock:job", 8, &key))
            flaw("server %u still has the key, for %lld ms", i, (long long)key.left_ms);
    }
    for (unsigned i = 0; i < CLIENTS && !w.flaw[0]; i++) {
        const struct quorum_try *b = ((struct redlock *)w.client[i].engine)->tries;
        for (unsigned j = 0; b && j < SERVERS; j++)
            if (b->node_op[j].open || b->node_op[j].freed == VOTE_OPEN)
                flaw("client %u still knows of a try: server %u owes %u answers, the first to verb "
                     "%u",
                     i, j, b->node_op[j].open, b->node_op[j].asked[b->node_op[j].first]);
    }
}

static void close_world(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        redlock_wire_engine.close(w.client[i].engine);
    while (w.count)
        free(calendar_take(w.heap, &w.count).bytes);
    free(w.heap);
}

static void close_models(void)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        if (models[i])
            model_close(models[i]);
        models[i] = NULL;
    }
}

static struct {
    unsigned long grants, waits, busy, failed, expiries, jumps, refusals;
} sum;

/* When the last server goes on; a calm world has no other faults, and others none that last as
 * long. */
static nanos latest_fault(void)
{
    nanos latest = w.now;
    for (unsigned i = 0; i < SERVERS; i++) {
        w.server[i].slow = 0;
        if (w.calm && w.server[i].hangs_until > latest)
            latest = w.server[i].hangs_until;
    }
    return latest;
}

static bool is_brief; /* schedules are run thousands of times */

/* False: a flaw was found; w.flaw says which. */
static bool run(uint64_t seed, enum plant plant)
{
    memset(&w, 0, sizeof w);
    history_begin(judge, &(struct history_rules){.exact = true, .quorum = true});
    w.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    w.clock_seed = seed * UINT64_C(0xd1b54a32d192ed03) + 1;
    draw(2);
    planted = plant;
    w.calm = is_about_order(plant) || (plant == PLANT_NONE && seed % CALM_EVERY == 0);
    w.data_is_lost = plant == PLANT_EMPTY_COUNTS || plant == PLANT_OWN_TTL ||
                     (plant == PLANT_NONE && !w.calm && draw(2));
    open_servers(plant);
    for (unsigned i = 0; i < CLIENTS; i++)
        open_client(i);
    schedule((struct occurrence){.at = w.now + NANOS_OF_MS(500), .what = FAULT});
    int64_t length_ms = is_brief ? BRIEF_MS : w.calm ? CALM_MS : 30000;
    run_until(FIRST_DAY + NANOS_OF_MS(length_ms), true);
    w.peace = true;
    run_until(latest_fault() + NANOS_OF_MS(3001),
              false); /* whoever stands still or hangs goes on by then */
    nanos healed = w.now;
    run_until(healed + NANOS_OF_MS(20000), true);
    if (!w.flaw[0] && !all_done())
        flaw("somebody did not end");
    nanos ended = w.now;
    run_until(ended + NANOS_OF_MS(4000),
              false); /* shorter than many ttls: what is gone was taken back */
    if (!w.flaw[0] && (plant == PLANT_NONE || plant == PLANT_BELIEVED_ONLY))
        check_rest();
    history_finish(judge);
    if (history_failures(judge))
        flaw("%s", history_failure(judge));
    sum.grants += w.grants;
    sum.waits += w.waits;
    sum.busy += w.busy;
    sum.failed += w.failed;
    sum.expiries += w.expiries;
    sum.jumps += w.jumps;
    sum.refusals += w.refusals;
    bool good = !w.flaw[0];
    close_world();
    return good;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* From that seed on, until it is found. */
static bool is_found(enum plant plant, uint64_t first, unsigned long schedules)
{
    double began = seconds_now();
    uint64_t seed = first;
    is_spoilt = false;
    close_models(); /* they keep what they have compiled */
    while (seed < first + schedules && run(seed, plant))
        seed++;
    bool found = w.flaw[0] != 0;
    if ((plant == PLANT_FORGETS_AGREED || plant == PLANT_NO_TURNS) && !is_spoilt)
        printf("# the text of the script has changed: nothing was planted\n");
    printf("%sok %d - %s: seed %llu, %.1f s, %s: %s\n", found ? "" : "not ", plant + 1,
           plants[plant].name, (unsigned long long)seed, seconds_now() - began, plants[plant].text,
           found ? w.flaw : "not found");
    fflush(stdout);
    return found;
}

static bool try_all(uint64_t first, unsigned long schedules)
{
    uint64_t seed = first;
    while (seed < first + schedules && run(seed, PLANT_NONE))
        seed++;
    bool good = seed == first + schedules;
    printf("1..%d\n", PLANT_COUNT);
    printf("# %lu grants, %lu of them while servers were slow or hung, %lu times busy, %lu times "
           "no quorum, %lu times "
           "too late, %lu clocks ahead, %lu late writes "
           "refused\n",
           sum.grants, sum.waits, sum.busy, sum.failed, sum.expiries, sum.jumps, sum.refusals);
    printf("%sok 1 - %lu schedules of a quorum\n", good ? "" : "not ", schedules);
    if (!good)
        printf("# seed %llu: %s\n", (unsigned long long)seed, w.flaw);
    bool covered = sum.grants && sum.busy && sum.failed && sum.jumps && sum.refusals &&
                   (sum.expiries || schedules < 1000);
    if (!covered)
        printf("# something never happened\n");
    for (unsigned plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++)
        good &=
            is_found((enum plant)plant, first, schedules > FIND_WITHIN ? schedules : FIND_WITHIN);
    return good && covered;
}

/* New schedules for so long, and no planted bugs. */
static bool try_for(double seconds, uint64_t first)
{
    double began = seconds_now();
    uint64_t seed = first;
    bool good = true;
    while (good && seconds_now() - began < seconds)
        good = run(seed++, PLANT_NONE);
    printf("1..1\n# %llu schedules, %lu grants\n", (unsigned long long)(seed - first), sum.grants);
    printf("%sok 1 - schedules of a quorum\n", good ? "" : "not ");
    if (!good)
        printf("# seed %llu: %s\n", (unsigned long long)(seed - 1), w.flaw);
    return good && sum.grants;
}

/* One schedule as it is, and then once for each call of a script on one server, with the errors in
 * turn. Returns how many calls that were, or 0 if a flaw was found. */
static uint64_t refuse_every_call(uint64_t seed)
{
    refused.nth = 0;
    refused.server = (unsigned)(seed % SERVERS);
    bool good = run(seed, PLANT_NONE);
    uint64_t calls = model_counts(models[refused.server]).calls, met = 0;

    for (refused.nth = 1; good && refused.nth <= calls; refused.nth++) {
        refused.error = (unsigned)((seed + refused.nth) % CALL_ERRORS);
        good = run(seed, PLANT_NONE);
        struct model_counts counts = model_counts(models[refused.server]);
        met += counts.refused;
        if (!good)
            printf("# seed %llu, call %llu of server %u (line %d), %s: %s\n",
                   (unsigned long long)seed, (unsigned long long)refused.nth, refused.server,
                   counts.refused_line, call_errors[refused.error].name, w.flaw);
    }
    return good ? met : 0;
}

/* One schedule as it is, and then again for each line that was refused seldom so far: its first
 * call on one server fails, with the errors in turn. Returns false if a flaw was found. */
static bool refuse_new_lines(uint64_t seed, uint64_t *met)
{
    static struct model_line line[LINES_MOST];
    memset(line, 0, sizeof line);
    refused.nth = 0;
    refused.server = (unsigned)(seed % SERVERS);
    noted_lines = line;
    bool good = run(seed, PLANT_NONE);
    noted_lines = NULL;
    note_called(line);
    for (unsigned i = 1; good && i < LINES_MOST; i++) {
        refused.nth = line[i].first;
        refused.error = (unsigned)((seed + i) % CALL_ERRORS);
        if (!is_due(line, i))
            continue;
        good = run(seed, PLANT_NONE);
        note_refused(model_counts(models[refused.server]));
        *met += 1;
    }
    if (!good)
        printf("# seed %llu, call %llu of server %u, %s: %s\n", (unsigned long long)seed,
               (unsigned long long)refused.nth, refused.server, call_errors[refused.error].name,
               w.flaw);
    return good;
}

static bool try_every_line(double seconds, uint64_t first)
{
    double began = seconds_now();
    uint64_t seed = first, met = 0;
    bool good = true;
    is_brief = true;
    for (; good && seconds_now() - began < seconds; seed++)
        good = refuse_new_lines(seed, &met);
    printf("1..1\n");
    print_refused_lines(true);
    printf("%sok 1 - %llu times a call of a script on one server of five is refused, in %llu "
           "schedules\n",
           good ? "" : "not ", (unsigned long long)met, (unsigned long long)(seed - first));
    return good;
}

static bool try_every_call(double seconds, uint64_t first)
{
    double began = seconds_now();
    uint64_t seed = first, met = 0, each = 1;
    is_brief = true;
    for (; each && seconds_now() - began < seconds; seed++)
        met += each = refuse_every_call(seed);
    printf("1..1\n# %lu grants in %llu schedules, %llu calls of scripts refused\n", sum.grants,
           (unsigned long long)(seed - first), (unsigned long long)met);
    printf("%sok 1 - each call of a script on one server of five is refused\n", each ? "" : "not ");
    return each && sum.grants;
}

static bool run_as_asked(int argc, char **argv)
{
    bool is_timed = argc > 2 && strcmp(argv[1], "--seconds") == 0;
    bool is_every_call = argc > 2 && strcmp(argv[1], "--every-call") == 0;
    bool is_one = argc > 2 && strcmp(argv[1], "--plant") == 0;
    if (is_every_call)
        return try_every_call(strtod(argv[2], NULL), argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
    if (argc > 2 && strcmp(argv[1], "--every-line") == 0)
        return try_every_line(strtod(argv[2], NULL), argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
    int at = is_timed || is_one ? 3 : 1;
    unsigned long schedules = argc > at && !is_timed ? strtoul(argv[at++], NULL, 10) : 2000;
    uint64_t first = argc > at ? strtoull(argv[at], NULL, 10) : 1;
    if (is_timed)
        return try_for(strtod(argv[2], NULL), first);
    return is_one ? is_found(find_plant(argv[2]), first, schedules) : try_all(first, schedules);
}

int main(int argc, char **argv)
{
    judge = history_open();
    bool good = run_as_asked(argc, argv);
    close_models();
    history_close(judge);
    return good ? 0 : 1;
}
