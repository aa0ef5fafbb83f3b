/* redis_history.h - what this world tells the judge (checker/checker.h), who sees nothing else of
 * it: what users ask for, are told and rely on, what they write to a store that is guarded by
 * tokens, and what is left in the end. Faults are told where they happen. */
#pragma once
#include "redis_server_faults.h"

static bool is_running(const struct attempt_of_user *a)
{
    return !w.process[a->process].dead && w.process[a->process].life == a->life;
}

static bool believes(const struct attempt_of_user *a)
{
    return is_running(a) && is_held(a) &&
           local_time(&w.process[a->process], w.now) < a->claim.valid_until;
}

static bool is_alone(const struct attempt_of_user *a)
{
    return a->name || (a->units == w.capacity && !w.resized);
}

/* ---- What is asked for, and what comes of it ---- */

static nanos reach_of(const struct attempt_of_user *a)
{
    return later(a->longest, w.refresh + w.handoff_grace);
}

/* `other`: the one of two names that it has, or what it takes up; -1: neither. */
static void tell_ask(unsigned id, int other, bool adopts)
{
    const struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    struct history_event asked = {.what = H_ASKED,
                                  .who = id,
                                  .process = a->process,
                                  .life = a->life,
                                  .lock = a->name,
                                  .units = a->op.units,
                                  .capacity = a->op.capacity,
                                  .owner = a->owner,
                                  .other = other,
                                  .reach = reach_of(a)};
    asked.flags =
        (uint16_t)((a->claim.auto_renew ? H_RENEWS : 0) | (a->claim.max_hold ? H_BOUNDED : 0) |
                   (a->op.barging ? H_BARGES : 0) | (a->op.tokenless ? H_PASSES : 0) |
                   (w.owners && !a->several ? H_ENTERS : 0) | (adopts ? H_ADOPTS : 0) |
                   (strcmp(w.wake, "poll") == 0 ? H_POLLS : 0));
    asked.until = adopts ? H_NEVER : real_time(p, a->claim.deadline);
    /* An ask without wait, then a leave: each until silence counts as an answer, by a clock that
     * may be slow. */
    asked.slack = 2 * a->claim.sheet->t.answer / 100 * 101 + NANOS_OF_MS(1);
    tell_judge(asked);
    if (a->units != a->op.units)
        tell_judge((struct history_event){.what = H_RELIES, .who = id, .units = a->units});
}

/* Nobody may take what was got without a token for one. */
static uint64_t told_token(const struct attempt_of_user *a)
{
    return a->claim.token == NO_TOKEN ? 0 : a->claim.token;
}

/* Good until then, as the server said to a request sent at `asked_at`, by its process's clock. */
static void tell_grant(unsigned id, nanos asked_at, int flags)
{
    const struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    tell_judge((struct history_event){
        .what = H_GRANTED,
        .who = id,
        .token = told_token(a),
        .flags = (uint16_t)flags,
        .from = real_time(p, asked_at),
        .until = real_time(p, a->claim.valid_until),
        .slack = real_time(p, a->claim.granted_at + a->claim.sheet->t.stop)});
}

static void tell_belief(unsigned id, const struct engine_reply *yes)
{
    const struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    tell_judge((struct history_event){.what = H_BELIEVES,
                                      .who = id,
                                      .token = told_token(a),
                                      .from = yes ? real_time(p, yes->asked_at) : 0,
                                      .until = real_time(p, a->claim.valid_until)});
}

/* Its clock was changed: what its users rely on ends at another time. */
static void tell_beliefs(unsigned process)
{
    for (unsigned id = 0; id < w.attempts; id++)
        if (w.attempt[id].process == process && believes(&w.attempt[id]))
            tell_belief(id, NULL);
}

/* ---- What a claim's step shows ---- */

static void tell_hold(unsigned id, const struct claim *was, const struct claim_event *event,
                      const struct claim_move *move)
{
    const struct attempt_of_user *a = &w.attempt[id];
    bool was_held = was->state == CLAIM_HELD || was->state == CLAIM_EXTENDING;
    if (move->report == REPORT_GRANTED)
        tell_grant(id, event->reply->asked_at, 0);
    else if (was_held && is_held(a) && a->claim.valid_until != was->valid_until)
        tell_belief(id, a->claim.valid_until > was->valid_until ? event->reply : NULL);
    else if (was_held && !is_held(a))
        tell_judge((struct history_event){.what = move->report == REPORT_LOST ? H_LOST : H_ENDED,
                                          .who = id,
                                          .flags = a->forfeited ? H_WISHED : 0});
}

static void tell_step(unsigned id, const struct claim *was, const struct claim_event *event,
                      const struct claim_move *move)
{
    const struct attempt_of_user *a = &w.attempt[id];
    bool gave_up = was->state == CLAIM_RELEASING && event->in == INPUT_TIMER;
    /* others may have its text, so it goes on until the end that the server knows */
    bool is_left = was->is_text && move->report == REPORT_LOST && move->verb == OP_NONE;
    if (event->in == INPUT_QUEUED)
        tell_judge((struct history_event){.what = H_QUEUED, .who = id});
    if (a->claim.state == CLAIM_LEAVING && was->state != CLAIM_LEAVING)
        tell_judge((struct history_event){.what = H_LEAVES, .who = id});
    if (move->report == REPORT_GRANTED && a->claim.cancelled)
        fails("a%u was cancelled and is granted", id);
    if (move->report == REPORT_DENIED)
        tell_judge((struct history_event){.what = H_REFUSED, .who = id});
    tell_hold(id, was, event, move);
    if (a->claim.state == CLAIM_OVER && was->state != CLAIM_OVER)
        tell_judge((struct history_event){
            .what = H_OVER, .who = id, .flags = (gave_up ? H_DOUBT : 0) | (is_left ? H_LEFT : 0)});
}

/* ---- A store that remembers the highest token ---- */

/* Planted: it asks for its token when it needs it. */
static uint64_t token_of(struct attempt_of_user *a)
{
    if (w.options.plant != PLANT_LATE_TOKEN)
        return a->claim.token;
    if (!a->late_token)
        a->late_token = ++w.late_tokens;
    return a->late_token;
}

static void write_to_store(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    uint64_t *stored = &w.stored[a->name], token = token_of(a);
    bool admitted = token >= *stored;
    if (admitted)
        *stored = token;
    tell_judge((struct history_event){
        .what = H_WROTE, .who = id, .token = token, .flags = admitted ? H_ADMITTED : 0});
}

static void use_store(unsigned id)
{
    if (!believes(&w.attempt[id]) || !told_token(&w.attempt[id]))
        return;
    tally.stored++;
    write_to_store(id);
}

/* One that does not know yet that its time is over writes, too: that is what tokens are for. */
static void use_store_late(unsigned id)
{
    const struct attempt_of_user *a = &w.attempt[id];
    if (!a->decided || believes(a) || !told_token(a) || a->claim.state == CLAIM_OVER)
        return;
    tally.stored_late++;
    write_to_store(id);
}

/* ---- At rest ---- */

static void tell_left(enum history_thing thing, int attempt)
{
    if (attempt >= 0)
        tell_judge((struct history_event){
            .what = H_REST, .thing = (uint8_t)thing, .who = (uint32_t)attempt});
}

static void tell_key(const struct model_key *key)
{
    struct history_event left = {.what = H_REST, .thing = key->kind == 'l' ? H_INBOX : H_KEY};
    left.until = key->left_ms < 0 ? H_NEVER : NANOS_OF_MS(key->left_ms);
    if (left.until == H_NEVER && w.refused_seen)
        return; /* its PEXPIRE was refused: the next one who uses that name sets it */
    snprintf(left.text, sizeof left.text, "%.*s", (int)key->len, key->name);
    tell_judge(left);
}

static void tell_rest(void)
{
    struct model_key key;
    look(&w.sight);
    for (unsigned i = 0; i < w.sight.holds; i++)
        if (w.sight.hold[i].end_us > server_us())
            tell_left(H_PERMIT, w.sight.hold[i].attempt);
    for (unsigned i = 0; i < w.sight.places; i++)
        tell_left(H_WAITER, w.sight.place[i].attempt);
    for (unsigned slot = 0; model_look_next(model, &slot, &key);)
        tell_key(&key);
    history_finish(judge);
    hear_judge();
}
