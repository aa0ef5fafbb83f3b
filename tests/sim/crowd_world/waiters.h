/* waiters.h - who takes part: a holder, the crowd that waits behind it, those of it that live, and
 * a newcomer that does not wait. All of them want the lock L, with the same ttl. */
#pragma once
#include "sim/redis_world/client_driver.h"

/* One schedule, as drawn. Processes are numbered: the holder, the crowd, the living, the newcomer.
 */
static struct plan {
    unsigned waits;         /* of the crowd */
    unsigned crowd, living; /* processes */
    nanos free_at;          /* when the holder releases, or dies */
    nanos joined_at;        /* by then everybody waits */
    nanos newcomer_at;      /* H_NEVER: none comes */
    nanos over_at;          /* the end of the schedule */
    nanos bound; /* how long a lock that nobody holds may be withheld from a living waiter */
    bool holder_dies;
} plan;

/* What the judge knows of an attempt, besides what is in w.attempt. */
static struct waiter {
    int64_t arrival; /* the number of its place; 0: it was not told to wait */
    bool silent;  /* its client gave no sign of life for a while, or the server's clock stepped */
    bool granted; /* it was told so, or its first request may have been answered so after its death
                   */
    bool polled;  /* the same of a poll: that is granted no longer than a handoff */
} waiters[MAX_ATTEMPTS];

static nanos
    last_death; /* the last time that something happened to a process or to the server's clock */
static bool stepped_back;  /* the server's clock: what has ended may be there again */
static bool stepped_ahead; /* the server's clock: holds end before their time */
static uint64_t grants;    /* so far */
static void judge_grant(unsigned id);
static void judge_refusal(unsigned id, hf_status status);
static void judge_place(unsigned id);

static unsigned first_living(void)
{
    return 1 + plan.crowd;
}

static unsigned newcomer(void)
{
    return first_living() + plan.living;
}

static bool is_living(const struct process *p)
{
    return !p->dead && w.now >= p->stalled_until && w.now >= p->parted_until;
}

/* ---- Asking ---- */

static void draw_id(struct id *id)
{
    for (size_t i = 0; i < sizeof id->b; i++)
        id->b[i] = (uint8_t)draw(256);
}

static void shape_ask(struct engine_op *op, bool alone)
{
    op->capacity = w.capacity;
    op->units = alone ? w.capacity : 1;
    op->kind = w.kind == EXCLUSIVE ? HF_EXCLUSIVE : HF_SEMAPHORE;
    if (w.kind == READ_WRITE)
        op->kind = op->units == w.capacity ? HF_WRITE : HF_READ;
}

/* Requests of one owner, from several processes, hold together. */
static void give_owner(struct attempt_of_user *a)
{
    a->owner = a->process ? 1 + draw(2) : 0;
    a->op.named = true;
    memset(a->op.owner.b, (int)a->owner + 1, sizeof a->op.owner.b);
}

static void begin(unsigned process)
{
    if (w.attempts == MAX_ATTEMPTS)
        fails("there are too many attempts");
    if (*w.failure)
        return;
    unsigned id = w.attempts++;
    struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[process];
    bool waits = process != newcomer();
    struct claim_terms terms = {.auto_renew = true};
    struct engine_limits limits = REDIS_LIMITS;
    *a = (struct attempt_of_user){.process = process, .other = -1, .life = p->life};
    waiters[id] = (struct waiter){.arrival = 0};
    terms.deadline = waits ? TIME_NEVER : local_time(p, w.now);
    draw_id(&a->op.attempt);
    redis_id_text(&a->op.attempt, a->id);
    a->op.owner = a->op.attempt;
    a->op.name = "L";
    a->op.name_len = 1;
    a->op.label = "";
    a->op.ttl_ms = w.ttl / NANOS_OF_MS(1);
    a->op.queue = waits;
    a->hold_for = draw_time(NANOS_OF_MS(50));
    if (w.kind == REENTRANT)
        give_owner(a);
    shape_ask(&a->op, !process || (w.kind == READ_WRITE && !draw(3)));
    a->units = a->op.units;
    timing_sheet_fill(&a->sheet, a->op.ttl_ms, &limits, &(struct timing_overrides){0});
    claim_init(&a->claim, &terms, &a->sheet);
    apply(id, (struct claim_event){.in = INPUT_START});
}

/* ---- What they hear ---- */

static void plan_release(unsigned id, nanos at)
{
    schedule((struct occurrence){.at = at, .what = WISH, .who = id, .wish = INPUT_RELEASE});
}

static void hear_report(unsigned id, const struct claim_move *move, const struct claim *was)
{
    struct attempt_of_user *a = &w.attempt[id];
    (void)was;
    a->ended |= move->report == REPORT_DENIED || move->report == REPORT_LOST ||
                move->report == REPORT_RELEASED;
    if (move->report == REPORT_DENIED)
        judge_refusal(id, move->status);
    if (move->report != REPORT_GRANTED)
        return;
    grants++;
    waiters[id].granted = true;
    tally.grants++;
    judge_grant(id);
    if (a->process)
        plan_release(id, w.now + a->hold_for);
    else if (!plan.holder_dies)
        plan_release(id, plan.free_at);
}

static void hear_adoption(unsigned id, const struct engine_reply *reply)
{
    (void)reply;
    fails("a%u took nothing up", id);
}

static void tell_step(unsigned id, const struct claim *was, const struct claim_event *event,
                      const struct claim_move *move)
{
    (void)was, (void)move;
    if (event->in == INPUT_QUEUED)
        judge_place(id);
}
