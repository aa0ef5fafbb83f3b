/* nested.c - three levels of one owner, exhaustively: every message of every level is fine, lost,
 * executed without its answer being heard, or doubled, and so is what is sent in its place; the
 * levels are released in every order. After each step the server counts what the user counts; at
 * the end it counts 0, and a fourth release is an error that changes nothing. Planted bugs in the
 * count must be found. Prints TAP. */
#include "core/claim.h"
#include "sim/claim_world/lock_replies.h"

#define LEVELS 3
#define STRANGER LEVELS /* the attempt of another owner, which tries the door */
#define TTL NANOS_OF_MS(3600000)

enum fate { FINE, LOST, UNHEARD, DOUBLED, FATES };

struct nest {
    struct lock_server server;
    struct claim claims[LEVELS];
    struct timing_sheet sheet; /* of all of them */
    nanos now, wake_at;
    enum fate first[2 * LEVELS], retry; /* of the first message of each step, and of the second */
    unsigned step, messages;            /* messages: of this step */
    unsigned reports[REPORT_RELEASED + 1];
};

static struct nest n;

static bool nobody_moved_on(unsigned id)
{
    (void)id;
    return false;
}

static enum fate next_fate(void)
{
    unsigned message = n.messages++;
    return message == 0 ? n.first[n.step] : message == 1 ? n.retry : FINE;
}

/* The answer to a request, as far as its fate lets it be heard. */
static struct engine_reply send(unsigned level, const struct claim_move *move)
{
    struct request request = {
        .verb = move->verb, .id = level, .units = 1, .wait = true, .ttl = TTL};
    struct engine_reply reply = {.kind = REPLY_UNKNOWN, .asked_at = n.now, .retry_at = TIME_NEVER};
    struct answer answer = {0};
    enum fate fate = next_fate();
    request.may_be_in_flight = move->may_be_in_flight;
    if (fate != LOST)
        answer = serve(&n.server, &request, n.now);
    if (fate == DOUBLED)
        serve(&n.server, &request, n.now);
    if (fate == LOST || fate == UNHEARD) {
        n.now += n.claims[level].sheet->t.op_timeout;
        return reply;
    }
    reply.kind = answer.kind;
    reply.good = answer.good;
    reply.token = answer.token;
    return reply;
}

/* One event and all that follows from it without waiting. */
static void drive(unsigned level, struct claim_event event)
{
    struct engine_reply reply;
    for (;;) {
        event.now = n.now;
        struct claim_move move = claim_step(&n.claims[level], &event);
        n.reports[move.report]++;
        n.wake_at = move.wake_at;
        if (move.verb == OP_NONE)
            return;
        reply = send(level, &move);
        event = (struct claim_event){
            .in = claim_input_of_reply(reply.kind), .reply = &reply, .random = 1u << 31};
    }
}

static void drive_to(unsigned level, enum claim_input wish, enum claim_state goal)
{
    n.messages = 0;
    drive(level, (struct claim_event){.in = wish});
    for (unsigned i = 0; i < 100 && n.claims[level].state != goal; i++) {
        n.now = n.wake_at > n.now && n.wake_at != TIME_NEVER ? n.wake_at : n.now;
        drive(level, (struct claim_event){.in = INPUT_TIMER, .random = 1u << 31});
    }
    if (n.claims[level].state != goal)
        server_fails(&n.server, "level %u is %s", level, claim_state_name(n.claims[level].state));
    n.step++;
}

/* What the server counts is what the user counts; and others are out as long as that is not 0. */
static void check_count(unsigned count)
{
    struct request knock = {
        .verb = OP_ACQUIRE, .id = STRANGER, .owner = STRANGER, .units = 1, .ttl = TTL};
    if (n.server.hold_count != count)
        server_fails(&n.server, "the count is %u and should be %u", n.server.hold_count, count);
    enum reply_kind answer = serve(&n.server, &knock, n.now).kind;
    if ((answer == REPLY_GRANTED) != (count == 0))
        server_fails(&n.server, "at count %u another owner is %s", count,
                     answer == REPLY_GRANTED ? "let in" : "kept out");
    knock.verb = OP_RELEASE;
    serve(&n.server, &knock, n.now);
}

static void release_once_more(unsigned level)
{
    struct claim_event release = {.in = INPUT_RELEASE, .now = n.now};
    struct claim_move move = claim_step(&n.claims[level], &release);
    if (move.status != HF_NOT_HELD || move.verb != OP_NONE)
        server_fails(&n.server, "level %u can be released twice", level);
    struct request request = {.verb = OP_RELEASE, .id = level, .units = 1};
    if (serve(&n.server, &request, n.now).kind != REPLY_NOT_HELD)
        server_fails(&n.server, "the server lets level %u be released twice", level);
}

static void set_up(unsigned fates, enum plant plant)
{
    struct engine_limits limits = {
        .ttl_min_ms = 10, .ttl_max_ms = 86400000, .drift_ppm = 10000, .drift_ms = 2};
    struct claim_terms terms = {.auto_renew = true, .deadline = TIME_NEVER, .shared = true};
    struct timing_overrides no_wishes = {0};
    n = (struct nest){.now = NANOS_OF_MS(1000)};
    n.server = (struct lock_server){
        .capacity = 1, .queues = true, .grace = TTL, .refresh = TTL, .plant = plant};
    n.server.moved_on = nobody_moved_on;
    for (unsigned i = 0; i < 2 * LEVELS; i++, fates /= FATES)
        n.first[i] = (enum fate)(fates % FATES);
    n.retry = (enum fate)(fates % FATES);
    timing_sheet_fill(&n.sheet, TTL / NANOS_OF_MS(1), &limits, &no_wishes);
    for (unsigned level = 0; level < LEVELS; level++)
        claim_init(&n.claims[level], &terms, &n.sheet);
}

static const char *run(unsigned fates, const unsigned order[LEVELS], enum plant plant)
{
    set_up(fates, plant);
    for (unsigned level = 0; level < LEVELS && !*n.server.failure; level++) {
        drive_to(level, INPUT_START, CLAIM_HELD);
        check_count(level + 1);
    }
    for (unsigned i = 0; i < LEVELS && !*n.server.failure; i++) {
        drive_to(order[i], INPUT_RELEASE, CLAIM_OVER);
        check_count(LEVELS - 1 - i);
        release_once_more(order[i]);
        check_count(LEVELS - 1 - i);
    }
    if (!*n.server.failure &&
        (n.reports[REPORT_GRANTED] != LEVELS || n.reports[REPORT_RELEASED] != LEVELS))
        server_fails(&n.server, "%u grants and %u releases were reported",
                     n.reports[REPORT_GRANTED], n.reports[REPORT_RELEASED]);
    return n.server.failure;
}

/* Every order and every fate of every message; the first failure, or "". */
static const char *run_all(enum plant plant, unsigned *runs)
{
    static const unsigned orders[][LEVELS] = {{2, 1, 0}, {0, 1, 2}, {1, 0, 2},
                                              {1, 2, 0}, {0, 2, 1}, {2, 0, 1}};
    unsigned all = 1;
    for (unsigned i = 0; i < 2 * LEVELS + 1; i++)
        all *= FATES;
    for (unsigned o = 0; o < sizeof orders / sizeof *orders; o++)
        for (unsigned fates = 0; fates < all; fates++, ++*runs)
            if (*run(fates, orders[o], plant))
                return n.server.failure;
    return "";
}

int main(void)
{
    static const enum plant chosen[] = {PLANT_COUNT_TWICE, PLANT_RELEASE_ALL, PLANT_RELEASE_ANY,
                                        PLANT_DEAF_TO_OWNER};
    unsigned count = sizeof chosen / sizeof *chosen, runs = 0;
    printf("1..%u\n", count + 1);
    const char *failure = run_all(PLANT_NONE, &runs);
    bool ok = !*failure;
    printf(
        "%s 1 - three nested levels with every message lost or doubled count to 0: %u runs%s%s\n",
        ok ? "ok" : "not ok", runs, ok ? "" : ", ", failure);
    for (unsigned i = 0; i < count; i++) {
        failure = run_all(chosen[i], &runs);
        printf("%s %u - planted bug %s (%s) is found: %s\n", *failure ? "ok" : "not ok", i + 2,
               plants[chosen[i]].name, plants[chosen[i]].text, failure);
        ok &= *failure != '\0';
    }
    return ok ? 0 : 1;
}
