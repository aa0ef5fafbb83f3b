/* log_history.c - the log: several processes write down what their log callbacks tell, and from
 * those lines alone a checker rebuilds who held what when. The checker is checked too: it finds
 * what is wrong with a doctored log. */
#include "lib/engines.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITERS = 5, TURNS = 120, LINES = 20000, POOL = 3, CASES = 16 };

/* ---- Lines ---- */

struct line {
    int64_t wall_ms, pid;
    char event[16], name[16], correlation[24];
    uint64_t token;
    int status;
};

/* One line, one write: lines of several processes do not mix. Only what the event says is written.
 */
static void write_line(void *arg, const struct hf_log_event *event)
{
    char line[256];
    int fd = *(int *)arg;
    int len = snprintf(line, sizeof line, "%" PRId64 " %d %s %s %s %" PRIu64 " %d\n",
                       event->wall_ms, (int)getpid(), event->event, event->name ? event->name : "-",
                       event->correlation_id ? event->correlation_id : "-", event->token,
                       (int)event->status);
    part_must(write(fd, line, (size_t)len) == len);
}

static size_t read_lines(const char *path, struct line *lines)
{
    FILE *file = fopen(path, "r");
    size_t count = 0;
    assert_non_null(file);
    struct line l;
    while (fscanf(file, "%" SCNd64 " %" SCNd64 " %15s %15s %23s %" SCNu64 " %d\n", &l.wall_ms,
                  &l.pid, l.event, l.name, l.correlation, &l.token, &l.status) == 7) {
        assert_true(count < LINES);
        lines[count++] = l;
    }
    assert_true(feof(file));
    fclose(file);
    return count;
}

/* ---- The checker ---- */

static int capacity_of(const char *name)
{
    return strcmp(name, "pool") == 0 ? POOL : 1;
}

static bool is(const struct line *line, const char *event)
{
    return strcmp(line->event, event) == 0;
}

struct hold {
    const struct line *grant, *end;
};

/* The one end of a grant, told by the same process about the same request. */
static const char *find_end(const struct line *lines, size_t count, struct hold *hold)
{
    hold->end = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct line *l = &lines[i];
        if (l->token != hold->grant->token || strcmp(l->name, hold->grant->name) != 0)
            continue;
        if (is(l, "granted") && l != hold->grant)
            return "a token was given out twice";
        if (!is(l, "released") && !is(l, "lost"))
            continue;
        if (hold->end)
            return "a hold ended twice";
        hold->end = l;
    }
    if (!hold->end)
        return "a grant has no end";
    if (hold->end->pid != hold->grant->pid ||
        strcmp(hold->end->correlation, hold->grant->correlation) != 0)
        return "a hold was ended by another";
    return hold->end->wall_ms < hold->grant->wall_ms ? "a hold ended before it began" : NULL;
}

static int by_token(const void *a, const void *b)
{
    const struct hold *x = a, *y = b;
    int names = strcmp(x->grant->name, y->grant->name);
    return names ? names
                 : (x->grant->token > y->grant->token) - (x->grant->token < y->grant->token);
}

/* How many hold at the end of the millisecond in which this one began? All those that began by then
 * and ended in a later one; two of which one ends and the other begins within the same millisecond
 * need not overlap. */
static int holders_at(const struct hold *holds, size_t count, const struct hold *one)
{
    int holders = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hold *h = &holds[i];
        holders += strcmp(h->grant->name, one->grant->name) == 0 &&
                   h->grant->wall_ms <= one->grant->wall_ms &&
                   h->end->wall_ms > one->grant->wall_ms;
    }
    return holders;
}

/* Tokens rise: for one process in the order of its lines, for a lock with one holder through the
 * whole log. */
static const char *check_tokens(const struct hold *sorted, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const struct hold *a = &sorted[i - 1], *b = &sorted[i];
        if (strcmp(a->grant->name, b->grant->name) != 0)
            continue;
        if (capacity_of(a->grant->name) == 1 && b->grant->wall_ms < a->end->wall_ms)
            return "a higher token was given out before the lower one's hold was over";
        if (a->grant->pid == b->grant->pid && a->grant > b->grant)
            return "a process was given a lower token after a higher one";
    }
    return NULL;
}

/* What is wrong with a log; NULL: nothing. */
static const char *judge_log(const struct line *lines, size_t count, size_t *grants)
{
    static struct hold holds[LINES];
    const char *wrong = NULL;
    *grants = 0;
    for (size_t i = 0; i < count && !wrong; i++)
        if (is(&lines[i], "granted")) {
            holds[*grants].grant = &lines[i];
            wrong = lines[i].token ? find_end(lines, count, &holds[(*grants)++])
                                   : "a grant has no token";
        }
    for (size_t i = 0; i < *grants && !wrong; i++)
        if (holders_at(holds, *grants, &holds[i]) > capacity_of(holds[i].grant->name))
            wrong = "more hold at once than there is room for";
    if (wrong)
        return wrong;
    qsort(holds, *grants, sizeof *holds, by_token);
    return check_tokens(holds, *grants);
}

/* ---- Those who write ---- */

static int turns(void)
{
    return engine()->polls ? TURNS / 2 : TURNS;
}

static void hold_once(hf_client *client, unsigned *seed, int turn)
{
    char correlation[24];
    snprintf(correlation, sizeof correlation, "%d-%d", (int)getpid(), turn);
    bool pool = rand_r(seed) % 2, brief = turn % 40 == 7;
    struct hf_request *want =
        ASK(.name = pool ? "pool" : "lock", .kind = pool ? HF_SEMAPHORE : HF_EXCLUSIVE,
            .capacity = pool ? POOL : 0,
            .ttl_ms = brief             ? brief_ttl_ms()
                      : engine()->polls ? 1000
                                        : 10000,
            .wait_ms = rand_r(seed) % 4 ? HF_FOREVER : rand_r(seed) % 3,
            .correlation_id = correlation);
    hf_lease *lease;
    hf_status status = hf_acquire(client, want, &lease);
    /* a wait of 2 ms may end before the server has said anything */
    bool is_unheard = status == HF_UNAVAILABLE && want->wait_ms > 0;
    part_must(status == HF_OK || status == HF_BUSY || status == HF_TIMEOUT || is_unheard);
    if (status == HF_OK && rand_r(seed) % 3 == 0)
        nap_us(rand_r(seed) % 3000);
    while (brief && hf_lease_ok(lease)) /* some end by their time */
        nap_us(1000);
    hf_lease_free(lease);
}

static void write_log(struct actor *me, void *arg)
{
    int fd = open(arg, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    unsigned seed = (unsigned)getpid();
    struct hf_client_options options = {
        .size = sizeof options, .on_log = write_line, .log_arg = &fd};
    hf_client *client;
    part_must(fd >= 0 && hf_open(engine_url(), &options, &client) == HF_OK);
    part_must(engine_connect(client) == HF_OK);
    (void)see(client, "pool"); /* a lock may be on a server of its own: a short wait is no time */
    (void)see(client, "lock"); /* to connect to it */
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_awaits_go(me);
    for (int i = 0; i < turns(); i++)
        hold_once(client, &seed, i);
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .status = hf_close(client, 5000)});
}

/* ---- Doctoring ---- */

static size_t find_line(const struct line *lines, size_t count, size_t from, const char *event,
                        const char *name)
{
    for (size_t i = from; i < count; i++)
        if (is(&lines[i], event) && strcmp(lines[i].name, name) == 0)
            return i;
    fail_msg("no %s of %s", event, name);
    return 0;
}

static size_t end_of(const struct line *lines, size_t count, const struct line *grant)
{
    struct hold hold = {.grant = grant};
    assert_null(find_end(lines, count, &hold));
    return (size_t)(hold.end - lines);
}

/* A hold of the lock that was longer than a millisecond. */
static size_t find_lasting(const struct line *lines, size_t count, size_t from)
{
    size_t i = find_line(lines, count, from, "granted", "lock");
    while (lines[end_of(lines, count, &lines[i])].wall_ms == lines[i].wall_ms)
        i = find_line(lines, count, i + 1, "granted", "lock");
    return i;
}

/* Each forgery on a copy of its own; the checker must say what is wrong. */
static void assert_found(const struct line *doctored, size_t count, const char *expected)
{
    size_t grants;
    const char *wrong = judge_log(doctored, count, &grants);
    if (!wrong || strcmp(wrong, expected) != 0)
        fail_msg("\"%s\" was found, not \"%s\"", wrong ? wrong : "nothing", expected);
}

static void doctor(const struct line *lines, size_t count)
{
    static struct line copy[LINES + 2];
    size_t middle = find_lasting(lines, count, count / 2),
           end = end_of(lines, count, &lines[middle]);
    size_t later = find_lasting(lines, count, end + 1);
#define AFRESH memcpy(copy, lines, count * sizeof *lines)
    AFRESH, strcpy(copy[end].event, "extended");
    assert_found(copy, count, "a grant has no end");
    AFRESH, copy[count] = copy[end];
    assert_found(copy, count + 1, "a hold ended twice");
    AFRESH, copy[count] = copy[middle];
    assert_found(copy, count + 1, "a token was given out twice");
    AFRESH, copy[end].pid++;
    assert_found(copy, count, "a hold was ended by another");
    AFRESH, copy[middle].token = 0;
    assert_found(copy, count, "a grant has no token");
    AFRESH, copy[end].wall_ms = copy[middle].wall_ms - 1;
    assert_found(copy, count, "a hold ended before it began");
    AFRESH, copy[end].wall_ms = copy[later].wall_ms + 1;
    assert_found(copy, count, "more hold at once than there is room for");
    /* A hold that nobody had, in the middle of another one's, from beginning to end. */
    AFRESH, copy[end].wall_ms += 5, copy[count] = copy[middle], copy[count + 1] = copy[end];
    copy[count].token = copy[count + 1].token = 1;
    assert_found(copy, count + 2, "more hold at once than there is room for");
    /* The whole of a late hold gets a token from before the first. */
    AFRESH, copy[later].token = copy[end_of(lines, count, &lines[later])].token = 1;
    assert_found(copy, count, "a higher token was given out before the lower one's hold was over");
}

static void test_retelling(void **state)
{
    (void)state;
    static struct line lines[LINES];
    if (!offers(NEED_SEMAPHORE))
        return;
    char path[128];
    size_t grants;
    snprintf(path, sizeof path, "%s/log", stage_directory());
    struct actor *writer[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writer[i] = actor_start_part(write_log, path);
        actor_answer(writer[i], ORDER_GO, 0);
    }
    for (int i = 0; i < WRITERS; i++)
        actor_order(writer[i], ORDER_GO, 0);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(actor_answer(writer[i], ORDER_CLOSE, 0).status, HF_OK);
    size_t count = read_lines(path, lines);
    const char *wrong = judge_log(lines, count, &grants);
    print_message("# %zu lines, %zu grants\n", count, grants);
    if (wrong)
        fail_msg("%s", wrong);
    assert_true(grants > WRITERS * (size_t)turns() / 2);
    find_line(lines, count, 0, "lost", "lock");
    find_line(lines, count, 0, "denied", "lock");
    if (!engine()->polls) /* there most of them wait for the lock, and the pool has room */
        find_line(lines, count, 0, "queued", "pool");
    doctor(lines, count);
}

/* ---- What one line says ---- */

struct told {
    _Atomic int count;
    struct {
        struct hf_log_event event;
        char name[16], what[16], correlation[HF_CORRELATION_MAX + 1], text[256];
    } line[CASES];
};

static void note_line(void *arg, const struct hf_log_event *event)
{
    struct told *told = arg;
    int i = atomic_load(&told->count);
    if (i == CASES)
        return;
    told->line[i].event = *event;
    snprintf(told->line[i].what, sizeof told->line[i].what, "%s", event->event);
    snprintf(told->line[i].name, sizeof told->line[i].name, "%s", event->name ? event->name : "");
    snprintf(told->line[i].correlation, sizeof told->line[i].correlation, "%s",
             event->correlation_id ? event->correlation_id : "none");
    snprintf(told->line[i].text, sizeof told->line[i].text, "%s", event->text);
    atomic_store(&told->count, i + 1);
}

static void expect(struct told *told, int i, const char *what, const char *correlation,
                   hf_status status)
{
    await_count(&told->count, i + 1);
    assert_string_equal(told->line[i].what, what);
    assert_string_equal(told->line[i].name, "n");
    assert_string_equal(told->line[i].correlation, correlation);
    assert_int_equal(told->line[i].event.status, status);
    assert_null(strstr(told->line[i].text, "secret"));
}

static void test_lines(void **state)
{
    (void)state;
    struct told told = {0};
    struct hf_client_options options = {
        .size = sizeof options, .on_log = note_line, .log_arg = &told, .log_level = HF_LOG_DEBUG};
    hf_client *client = open_client(NULL, &options);
    hf_lease *lease = take(client, ASK(.name = "n", .ttl_ms = 5000, .correlation_id = "order 66"));
    int64_t heard = now_ns(); /* the engine may count from long before: the answer was under way */
    uint64_t token = hf_lease_token(lease);
    expect(&told, 0, "granted", "order 66", HF_OK);
    assert_int_equal(told.line[0].event.token, token);
    assert_int_equal(told.line[0].event.ttl_ms, 5000);
    refuse(client, ASK(.name = "n", .attempt = "secret try"), HF_BUSY, "n");
    expect(&told, 1, "denied", "none", HF_BUSY);
    assert_int_equal(told.line[1].event.token, 0);
    assert_int_equal(hf_extend(lease, 0), HF_OK);
    expect(&told, 2, "extended", "order 66", HF_OK);
    assert_int_equal(told.line[2].event.level, HF_LOG_DEBUG);
    while (now_ns() - heard < 50 * 1000000)
        nap_us(1000);
    give(lease);
    expect(&told, 3, "released", "order 66", HF_OK);
    assert_true(told.line[3].event.held_ms >= 50 && told.line[3].event.held_ms < 5000);
    assert_int_equal(told.line[3].event.token, token);
    lease = take(client, ASK(.name = "n", .ttl_ms = brief_ttl_ms()));
    expect(&told, 4, "granted", "none", HF_OK);
    expect(&told, 5, "lost", "none", HF_LOST);
    assert_int_equal(told.line[5].event.level, HF_LOG_ERROR);
    hf_lease_free(lease);
    close_client(client);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("who held when is rebuilt from the log lines of 5 processes, and a doctored log is "
            "found out",
            test_retelling),
        ROW("a line says what happened to which request, with its correlation id and without its "
            "secrets",
            test_lines),
    };
    return JUDGE(rows);
}
