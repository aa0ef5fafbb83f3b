/* redis_users.h - the users: what they ask for, how long they hold, what they wish meanwhile, and
 * what they hear. */
#pragma once
#include "redis_history.h"

static int make_attempt(unsigned process, unsigned user); /* -1: there is room for no more */
static void prepare(unsigned id, bool is_ahead);
static void start(unsigned id);
static void begin(unsigned id);
static void plan_wish(unsigned id, enum claim_input wish, nanos after);

#include "adopt_hold.h"
#include "two_names.h"

/* ---- Wishes ---- */

static void plan_wish(unsigned id, enum claim_input wish, nanos after)
{
    schedule(
        (struct occurrence){.at = w.now + after, .what = WISH, .who = id, .wish = (uint8_t)wish});
}

static void end_round(struct attempt_of_user *a)
{
    if (a->ended)
        return;
    a->ended = true;
    schedule((struct occurrence){
        .at = w.now + draw_time(w.ttl / 2), .what = NEXT_ROUND, .who = a->user});
}

static void ask_again_inside(unsigned outer);

static void user_got_it(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    nanos after_extend = draw_time(w.ttl), after_forfeit = draw_time(w.ttl),
          after_convert = draw_time(a->hold_for);
    bool extends = !draw(4), forfeits = !draw(20), converts = draw(3) > 0, enters = draw(4) > 0;
    /* Those who share an owner agree among themselves who converts: here the outermost one does. */
    bool convertible = !a->name && (w.kind == READ_WRITE ||
                                    (w.kind == READ_WRITE_AGAIN && !w.shared_owners && !a->level));
    tally.grants++;
    tally.reentries += a->level > 0;
    tally.barges += a->op.barging;
    tally.plain += a->claim.token == NO_TOKEN;
    if (w.options.plant != PLANT_LATE_TOKEN)
        use_store(id);
    if (extends && w.options.faults & FAULT_EXTEND)
        plan_wish(id, INPUT_EXTEND, after_extend);
    if (forfeits && w.options.faults & FAULT_CANCEL)
        plan_wish(id, INPUT_FORFEIT, after_forfeit);
    if (converts && convertible && w.options.faults & FAULT_CONVERT)
        plan_wish(id, INPUT_CONVERT, after_convert);
    if (wants_other(a))
        ask_other_name(id); /* which is held from then on, until both are given back */
    else
        plan_wish(id, INPUT_RELEASE, a->hold_for);
    if (strikes(FAULT_PART, a->claim.brief ? w.rough ? 300 : 60 : 15))
        part(a->process);
    if (w.owners && !a->several && a->level < 2 && enters)
        ask_again_inside(id);
}

static void rely_on_reading(unsigned id)
{
    w.attempt[id].units = 1;
    tell_judge((struct history_event){.what = H_RELIES, .who = id, .units = 1});
}

/* Who asks to read on writes no more. Mostly what makes sense, sometimes two at a time. */
static void wish_to_convert(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    enum op_verb sensible = is_alone(a) ? OP_DOWNGRADE : OP_UPGRADE;
    enum op_verb strange = sensible == OP_UPGRADE ? OP_DOWNGRADE : OP_UPGRADE;
    nanos soon = draw_time(NANOS_OF_MS(2)), again = draw_time(w.ttl);
    bool twice = !draw(3), extends = !draw(4);
    a->wants = draw(6) ? sensible : strange;
    if (!is_held(a))
        return;
    a->wrote_before = is_alone(a) && !a->downgrades;
    if (twice)
        plan_wish(id, INPUT_CONVERT, extends ? again : soon);
    if (extends)
        plan_wish(id, INPUT_EXTEND, soon);
    for (unsigned other = 0; other < w.attempts && a->wants == OP_DOWNGRADE; other++)
        if (other == id || (w.owners && w.attempt[other].owner == a->owner))
            rely_on_reading(other); /* an owner's hold is one */
    a->downgrades |= a->wants == OP_DOWNGRADE;
    apply(id, (struct claim_event){.in = INPUT_CONVERT, .verb = a->wants});
}

/* Refused for a reason: nothing happened, says the caller to himself, and relies on writing as
 * before. */
static void rely_on_writing(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    if (!a->wrote_before || w.owners || !is_held(a))
        return;
    a->units = w.capacity;
    a->downgrades = false;
    tell_judge((struct history_event){
        .what = H_CONVERTED, .who = id, .units = a->units, .token = a->claim.token});
}

static void hear_conversion(unsigned id, hf_status status)
{
    struct attempt_of_user *a = &w.attempt[id];
    enum op_verb wanted = a->wants;
    a->wants = OP_NONE;
    a->upgrade_doubt |= status != HF_OK && status != HF_BUSY;
    if (wanted == OP_UPGRADE && w.strong && status != HF_OK && draw(2))
        plan_wish(id, INPUT_CONVERT,
                  draw_time(w.ttl)); /* while what takes the first one back may be under way */
    if (wanted == OP_DOWNGRADE && status != HF_OK && status != HF_BUSY && status != HF_IN_DOUBT)
        rely_on_writing(id);
    if (wanted == OP_NONE || status != HF_OK)
        return;
    a->op.kind = wanted == OP_UPGRADE ? HF_WRITE : HF_READ;
    a->downgrades &= wanted != OP_UPGRADE; /* what was told IN_DOUBT may still come */
    tally.upgrades += wanted == OP_UPGRADE;
    tally.downgrades += wanted == OP_DOWNGRADE;
    bool fresh = wanted == OP_UPGRADE && !is_alone(a) && !a->upgrade_doubt;
    a->units = wanted == OP_UPGRADE ? w.capacity : 1;
    tell_judge((struct history_event){.what = H_CONVERTED,
                                      .who = id,
                                      .units = a->units,
                                      .token = a->claim.token,
                                      .flags = fresh ? H_FRESH : 0});
}

static void plan_adoption(unsigned id)
{
    nanos after = draw_time(w.ttl);
    unsigned by = draw(w.options.processes);
    bool adopts = draw(3) > 0;
    if (adopts && w.options.faults & FAULT_ADOPT)
        schedule(
            (struct occurrence){.at = w.now + after, .what = ADOPTION, .who = by, .serial = id});
}

/* The hold goes on without its claim. */
static void leave_behind(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    tally.detached++;
    note((int)a->process, "a%u is left to itself", id);
    a->disowned = true;
    tell_judge((struct history_event){.what = H_ENDED, .who = id, .flags = H_LEFT});
    tell_judge((struct history_event){.what = H_OVER, .who = id, .flags = H_LEFT});
    a->is_settled = a->claim.is_settled && !a->claim.may_be_in_flight && !a->op.named;
    tally.settled += a->is_settled;
    uint64_t token = a->claim.token;
    claim_disown(&a->claim);
    a->claim.token = token; /* it stands in the text */
    arm_timer(id, TIME_NEVER);
    keep_alive(a);
    end_round(a);
    plan_adoption(id);
}

static void grant_wish(unsigned id, enum claim_input wish)
{
    struct attempt_of_user *a = &w.attempt[id];
    struct claim_event event = {.in = wish, .status = HF_CANCELLED};
    event.ttl_ms =
        wish == INPUT_EXTEND && draw(2) ? 100 + draw((uint32_t)(2 * w.ttl / NANOS_OF_MS(1))) : 0;
    if (wish == INPUT_CONVERT) {
        wish_to_convert(id);
        return;
    }
    use_store_late(id);
    if (!claim_legal(a->claim.state, wish))
        return;
    use_store(id);
    if (wish == INPUT_RELEASE && a->leaves) {
        leave_behind(id);
        return;
    }
    a->forfeited |= wish == INPUT_FORFEIT;
    tally.cancels += wish == INPUT_CANCEL;
    tally.extends += wish == INPUT_EXTEND;
    apply(id, event);
}

/* ---- What they hear ---- */

static void hear_report(unsigned id, const struct claim_move *move, const struct claim *was)
{
    struct attempt_of_user *a = &w.attempt[id];
    a->decided |= move->report == REPORT_GRANTED || move->report == REPORT_DENIED;
    if (move->report == REPORT_GRANTED) {
        tally.pushed += a->claim.brief && was->state == CLAIM_QUEUED;
        user_got_it(id);
    }
    if (move->report == REPORT_EXTENDED) {
        hear_conversion(id, move->status);
        use_store(id);
    }
    tally.lost += move->report == REPORT_LOST;
    tally.denied += move->report == REPORT_DENIED;
    tally.released += move->report == REPORT_RELEASED;
    if (move->report == REPORT_DENIED || move->report == REPORT_LOST ||
        move->report == REPORT_RELEASED) {
        end_round(a);
        end_other_name(id, move->report);
    }
}

/* ---- Asking ---- */

static void draw_id(struct id *id)
{
    for (size_t i = 0; i < sizeof id->b; i++)
        id->b[i] = (uint8_t)draw(256);
}

/* Who enters beside a downgrade of its owner, which may come before or after it, cannot rely on
 * more than reading. */
static bool writes_no_more(const struct attempt_of_user *a)
{
    for (unsigned i = 0; w.kind == READ_WRITE_AGAIN && i < w.attempts; i++)
        if (w.attempt[i].owner == a->owner && w.attempt[i].downgrades && !a->name)
            return true;
    return false;
}

static void shape_ask(struct attempt_of_user *a)
{
    struct engine_op *op = &a->op;
    op->capacity = w.capacity;
    op->units = 1;
    bool writes = !draw(3);
    uint32_t weight = 1 + draw(w.capacity < 8 ? w.capacity : 1);
    if (a->name)
        op->capacity = 1;
    switch (a->name ? EXCLUSIVE : w.kind) {
    case EXCLUSIVE:
    case REENTRANT:
        op->kind = HF_EXCLUSIVE;
        break;
    case SEMAPHORE:
        op->kind = HF_SEMAPHORE;
        op->units = weight;
        break;
    default:
        op->kind = writes ? HF_WRITE : HF_READ;
        op->units = writes ? w.capacity : 1;
    }
    a->units = writes_no_more(a) ? 1 : op->units;
}

/* Who asks ahead waits until it is told to stop: how long that takes is up to those before. */
static void prepare(unsigned id, bool is_ahead)
{
    struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    nanos local = local_time(p, w.now);
    nanos possible[] = {0, draw_time(w.ttl / 4), draw_time(7 * w.ttl), TIME_NEVER};
    nanos wait = is_ahead ? TIME_NEVER : possible[draw(4)], cancel_after = draw_time(12 * w.ttl);
    bool cancels = !draw(8), barges = !draw(12), detaches = !draw(10);
    struct claim_terms terms = {.auto_renew = draw(3) > 0, .shared = w.owners};
    terms.max_hold_ms = draw(6) ? 0 : draw((uint32_t)(2 * w.ttl / NANOS_OF_MS(1)));
    terms.deadline = wait == TIME_NEVER ? TIME_NEVER : local + wait;
    draw_id(&a->op.attempt);
    redis_id_text(&a->op.attempt, a->id);
    a->op.owner = a->op.attempt;
    if (w.owners && !a->several) {
        memset(a->op.owner.b, (int)a->owner + 1, sizeof a->op.owner.b);
        a->op.named = true;
    }
    a->op.name = lock_names[a->name];
    a->op.name_len = 1;
    a->op.label = "";
    a->op.ttl_ms = w.ttl / NANOS_OF_MS(1);
    a->op.queue = wait > 0;
    a->op.barging = barges && w.options.faults & FAULT_BARGE;
    a->op.tokenless = w.plain && draw_from(&w.plain_random, 3) && w.options.faults & FAULT_PLAIN;
    a->op.detached = a->leaves = detaches && !a->several && w.options.faults & FAULT_DETACH;
    a->longest = w.ttl;
    a->life = p->life;
    shape_ask(a);
    struct engine_limits limits = REDIS_LIMITS;
    struct timing_overrides overrides = {.acknowledge_ms = w.acknowledge_ms};
    timing_sheet_fill(&a->sheet, a->op.ttl_ms, &limits, &overrides);
    claim_init(&a->claim, &terms, &a->sheet);
    if (wait == TIME_NEVER || (cancels && w.options.faults & FAULT_CANCEL))
        plan_wish(id, INPUT_CANCEL, cancel_after);
    tell_ask(id, a->other, false);
}

static void start(unsigned id)
{
    apply(id, (struct claim_event){.in = INPUT_START});
}

static void begin(unsigned id)
{
    prepare(id, false);
    if (w.attempt[id].several && w.attempt[id].other < 0)
        name_other(id);
    start(id);
}

static int make_attempt(unsigned process, unsigned user)
{
    if (w.attempts == MAX_ATTEMPTS || w.process[process].closing)
        return -1;
    unsigned id = w.attempts++;
    w.attempt[id] =
        (struct attempt_of_user){.process = process, .user = user, .owner = id, .other = -1};
    if (w.shared_owners)
        w.attempt[id].owner = MAX_ATTEMPTS + draw(3);
    w.attempt[id].hold_for = draw_time(draw(3) ? w.ttl / 2 : 3 * w.ttl);
    return (int)id;
}

static void next_round(unsigned user)
{
    unsigned process = user % PROCESSES;
    if (w.process[process].dead || (unsigned)w.rounds_of_user[user] >= w.rounds)
        return;
    w.rounds_of_user[user]++;
    int id = make_attempt(process, user);
    bool several = w.several && draw(2);
    if (id < 0)
        return;
    w.attempt[id].several = several && w.options.faults & FAULT_SEVERAL;
    w.attempt[id].name = w.attempt[id].several ? first_name() : 0;
    begin((unsigned)id);
}

/* Another attempt of the same owner, with a life of its own; the next round follows the outermost.
 */
static void ask_again_inside(unsigned outer)
{
    int id = make_attempt(w.attempt[outer].process, w.attempt[outer].user);
    if (id < 0)
        return;
    struct attempt_of_user *a = &w.attempt[id];
    a->owner = w.attempt[outer].owner;
    a->level = w.attempt[outer].level + 1;
    a->hold_for = draw_time(w.ttl);
    a->ended = true;
    begin((unsigned)id);
}

/* ---- Errands: somebody looks, breaks a hold or changes the capacity ---- */

static void send_errand(unsigned process, enum admin_verb verb)
{
    struct process *p = &w.process[process];
    uint32_t which = draw(MAX_ATTEMPTS), capacity = 1 + draw(5);
    if (p->errands == MAX_ERRANDS)
        return;
    struct admin_op *errand = &p->errand[p->errands++];
    struct engine_op *op = &errand->op;
    *errand = (struct admin_op){.verb = verb};
    *op = (struct engine_op){
        .verb = OP_ADMIN, .name = "L", .name_len = 1, .label = "", .capacity = capacity};
    op->ttl_ms = w.ttl / NANOS_OF_MS(1);
    draw_id(&op->attempt);
    if (w.options.looks)
        errand->scope = (enum list_scope)(op->attempt.b[0] % LIST_SERVERS);
    if (verb == ADMIN_BREAK) {
        const struct seen_hold *hold = w.sight.holds ? &w.sight.hold[which % w.sight.holds] : NULL;
        if (!hold || hold->attempt < 0)
            return;
        op->token = hold->token;
        tell_judge((struct history_event){
            .what = H_BROKEN, .token = hold->token, .owner = w.attempt[hold->attempt].owner});
        tally.breaks++;
        note((int)process, "breaks the hold of a%d", hold->attempt);
    }
    if (verb == ADMIN_RESIZE) {
        w.resized = true;
        tell_judge((struct history_event){.what = H_RESIZED, .capacity = capacity});
        tally.resizes++;
        note((int)process, "changes the capacity to %u", capacity);
    }
    redis_wire_engine.submit(p->engine, op, local_time(p, w.now));
}
