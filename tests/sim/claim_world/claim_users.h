/* claim_users.h - the users behind the claims: what they wish, what they rely on, what they must
 * never hear; and the bugs that are planted around the claim's step function. Included once, by
 * claims.c. */
#pragma once
#include "claim_world.h"

#include "core/claim_actions.h"

static bool tracing;

/* ---- The claim, its user, and the bugs around it ---- */

static void schedule_wish(unsigned id, enum claim_input wish, nanos after)
{
    schedule((struct occurrence){.at = w.now + after, .what = WISHED, .actor = id, .wish = wish});
}

static void end_round(struct actor *actor)
{
    if (actor->ended)
        return;
    actor->ended = true;
    schedule((struct occurrence){
        .at = w.now + draw_time(w.ttl / 2), .what = NEXT_ROUND, .actor = actor->process});
}

static void check_outcome(unsigned id, nanos local)
{
    struct actor *actor = &w.actors[id];
    const struct process *process = &w.processes[actor->process];
    nanos woke = local_time(process, process->stalled_until), op = actor->claim.sheet->t.op_timeout;
    nanos due = actor->claim.deadline > woke ? actor->claim.deadline : woke;
    if (actor->decided)
        server_fails(&w.server, "attempt %u has two outcomes", id);
    /* An ask without wait, then a leave: two op_timeouts each until silence counts as an answer. */
    if (actor->claim.deadline != TIME_NEVER && local > due + 4 * op + NANOS_OF_MS(1))
        server_fails(&w.server, "attempt %u ended %lld us after its deadline", id,
                     (long long)(local - due) / 1000);
    actor->decided = true;
}

/* Who is alone has a higher token than anybody was ever told; an owner that came in again has its
 * own. */
static void check_token(unsigned id)
{
    const struct actor *actor = &w.actors[id];
    bool again =
        actor->level && w.highest_owner == actor->owner && actor->claim.token == w.highest_token;
    if (actor->units == w.server.capacity && actor->claim.token <= w.highest_token && !again)
        server_fails(&w.server, "attempt %u got token %llu after %llu", id,
                     (unsigned long long)actor->claim.token, (unsigned long long)w.highest_token);
    if (actor->claim.token > w.highest_token) {
        w.highest_token = actor->claim.token;
        w.highest_owner = actor->owner;
    }
}

static void ask_again_inside(const struct actor *outer);

static void user_got_it(unsigned id)
{
    struct actor *actor = &w.actors[id];
    const struct hold *hold = find_hold(&w.server, id);
    actor->birth = hold && hold->token == actor->claim.token ? hold->birth : UINT64_MAX;
    actor->units = actor->asked_units;
    check_token(id);
    w.tally.grants++;
    w.tally.reentries += actor->level > 0;
    if (!draw(4))
        schedule_wish(id, INPUT_EXTEND, draw_time(w.ttl));
    if (!draw(20))
        schedule_wish(id, INPUT_FORFEIT, draw_time(w.ttl));
    for (unsigned i = actor->fidgets ? 1 : draw(4); i && w.shared; i--)
        schedule_wish(id, INPUT_CONVERT, draw_time(actor->hold_for));
    if (!draw(8))
        schedule((struct occurrence){.at = w.now + draw_time(w.ttl),
                                     .what = NEWS,
                                     .actor = id,
                                     .reply = {.kind = REPLY_NOTIFY}});
    schedule_wish(id, INPUT_RELEASE, actor->hold_for);
    if (w.nested && actor->level < 2 && draw(4))
        ask_again_inside(actor);
}

/* Mostly what makes sense, and sometimes two at a time, or an extend right behind. */
static void wish_to_convert(unsigned id)
{
    struct actor *actor = &w.actors[id];
    enum op_verb sensible = actor->units < w.server.capacity ? OP_UPGRADE : OP_DOWNGRADE;
    enum op_verb other = sensible == OP_UPGRADE ? OP_DOWNGRADE : OP_UPGRADE;
    if (actor->claim.state != CLAIM_HELD && actor->claim.state != CLAIM_EXTENDING)
        return;
    if (actor->fidgets)
        schedule_wish(id, INPUT_CONVERT, w.ttl / 40);
    if (!actor->fidgets && !draw(3))
        schedule_wish(id, INPUT_EXTEND, draw_time(NANOS_OF_MS(2)));
    if (!actor->fidgets && !draw(3))
        schedule_wish(id, INPUT_CONVERT, draw_time(NANOS_OF_MS(2)));
    actor->wants = draw(6) ? sensible : other;
    if (actor->wants == OP_DOWNGRADE)
        actor->units = 1; /* who asks for it writes no more */
    apply(id, (struct claim_event){.in = INPUT_CONVERT, .verb = actor->wants});
}

static void hear_conversion(unsigned id, hf_status status)
{
    struct actor *actor = &w.actors[id];
    enum op_verb wanted = actor->wants;
    actor->wants = OP_NONE;
    actor->upgrade_doubt |= status != HF_OK && status != HF_BUSY;
    if (wanted == OP_NONE || status != HF_OK)
        return;
    w.tally.upgrades += wanted == OP_UPGRADE;
    w.tally.downgrades += wanted == OP_DOWNGRADE;
    bool fresh = wanted == OP_UPGRADE && actor->units < w.server.capacity && !actor->upgrade_doubt;
    actor->units = wanted == OP_UPGRADE ? w.server.capacity : 1;
    if (fresh)
        check_token(id);
}

/* Nobody loses what was never in danger, nor what the server never let go, nor before the ttl is
 * over; give or take a round trip, because the time counts from the request. */
static void hear_loss(unsigned id, nanos local, bool was_valid)
{
    const struct actor *actor = &w.actors[id];
    const nanos round_trip = NANOS_OF_MS(40);
    const struct hold *hold = find_hold(&w.server, id);
    w.tally.lost++;
    if (actor->forfeited)
        return;
    if (!actor->disturbed && actor->claim.auto_renew && !actor->claim.max_hold)
        server_fails(&w.server, "attempt %u lost its lease although nothing went wrong", id);
    if (!actor->disturbed && !actor->claim.max_hold &&
        local + round_trip < actor->claim.granted_at + actor->claim.sheet->t.stop)
        server_fails(&w.server, "attempt %u lost its lease before the ttl was over", id);
    if (was_valid && hold && hold->birth == actor->birth)
        server_fails(&w.server, "attempt %u gave up a lease that the server never let go", id);
}

static void hear_report(unsigned id, const struct claim_move *move, nanos local, bool was_valid)
{
    struct actor *actor = &w.actors[id];
    if (move->report == REPORT_GRANTED || move->report == REPORT_DENIED)
        check_outcome(id, local);
    if (move->report == REPORT_GRANTED && actor->claim.cancelled)
        server_fails(&w.server, "attempt %u was cancelled and is granted", id);
    if (move->report == REPORT_GRANTED)
        user_got_it(id);
    if (move->report == REPORT_EXTENDED)
        hear_conversion(id, move->status);
    if (move->report == REPORT_LOST)
        hear_loss(id, local, was_valid);
    w.tally.denied += move->report == REPORT_DENIED;
    if (move->report == REPORT_DENIED || move->report == REPORT_LOST ||
        move->report == REPORT_RELEASED)
        end_round(actor);
}

/* What a planted bug makes of an event. False: the claim never hears of it. */
static bool spoil_event(const struct actor *actor, struct claim_event *event,
                        struct engine_reply *reply)
{
    bool good = reply && (reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED);
    if (w.plant == PLANT_ARRIVAL && reply && reply->kind == REPLY_GRANTED)
        reply->asked_at = event->now;
    if (w.plant == PLANT_SHORT_CHANGED && good)
        reply->brief = false;
    if (w.plant == PLANT_NO_DRIFT && good)
        reply->good = (reply->good + NANOS_OF_MS(w.limits.drift_ms)) /
                      (1000000 - w.limits.drift_ppm) * 1000000;
    if (w.plant == PLANT_LATE_GRANT && actor->claim.state == CLAIM_LEAVING &&
        event->in == INPUT_GRANTED)
        event->in = INPUT_RELEASED;
    if (w.plant == PLANT_STALE_ANSWER && actor->claim.in_flight && event->in == INPUT_EXTENDED)
        reply->asked_at = actor->claim.asked_at;
    return w.plant != PLANT_DEAF_TO_END || actor->claim.state != CLAIM_EXTENDING ||
           event->in != INPUT_TIMER;
}

/* What a planted bug makes of a step that was taken. */
static void spoil_step(struct claim *claim, const struct claim *before,
                       const struct claim_event *event, struct claim_move *move)
{
    if (w.plant == PLANT_NO_DOUBT)
        claim->may_be_in_flight = move->may_be_in_flight = false;
    if (w.plant == PLANT_TIED_TOKEN && event->in == INPUT_UNKNOWN &&
        before->in_flight == OP_UPGRADE)
        claim->token_may_rise = false;
    if (w.plant == PLANT_LATE_DOWNGRADE)
        claim->downgrade_unknown_until = 0;
    if (w.plant == PLANT_MIXED_OUTCOME && move->verb == OP_EXTEND)
        move->report = REPORT_NONE;
    if (w.plant == PLANT_PUT_OFF && event->in == INPUT_EXTENDED && before->in_flight != OP_EXTEND &&
        claim->valid_until)
        claim_believe(claim, event->reply->asked_at, claim->valid_until);
}

static void trace_step(unsigned id, unsigned from, enum claim_input in,
                       const struct claim_move *move)
{
    static const char *const verbs[] = {"",
                                        " sends ACQUIRE",
                                        " sends LEAVE",
                                        " sends EXTEND",
                                        " sends CHECK",
                                        " sends RELEASE",
                                        " sends UPGRADE",
                                        " sends DOWNGRADE"};
    static const char *const reports[] = {"",
                                          " reports GRANTED",
                                          " reports DENIED",
                                          " reports QUEUED",
                                          " reports EXTENDED",
                                          " reports WARN",
                                          " reports LOST",
                                          " reports RELEASED"};
    printf("# %10.3f ms attempt %u: %s, %s -> %s%s%s%s\n", (double)w.now / 1e6, id,
           claim_input_name(in), claim_state_name(from), claim_state_name(w.actors[id].claim.state),
           verbs[move->verb], move->verb && move->may_be_in_flight ? " with doubt" : "",
           reports[move->report]);
}

static void follow_move(unsigned id, const struct claim_move *move, nanos local, bool was_valid)
{
    struct actor *actor = &w.actors[id];
    hear_report(id, move, local, was_valid);
    actor->timer++;
    if (move->wake_at != TIME_NEVER) {
        nanos at = real_time(&w.processes[actor->process], move->wake_at);
        schedule((struct occurrence){
            .at = at > w.now ? at : w.now, .what = TIMER_DUE, .actor = id, .serial = actor->timer});
    }
    if (w.plant == PLANT_NO_LEAVE && move->verb == OP_LEAVE)
        tell(id, (struct engine_reply){.kind = REPLY_RELEASED});
    else if (move->verb)
        submit(id, move->verb, move->may_be_in_flight, move->ttl);
}

static void apply(unsigned id, struct claim_event event)
{
    struct actor *actor = &w.actors[id];
    const struct process *process = &w.processes[actor->process];
    struct engine_reply reply;
    event.now = local_time(process, w.now);
    event.random = draw(UINT32_MAX);
    if (event.reply) {
        reply = *event.reply;
        event.reply = &reply;
    }
    if (!spoil_event(actor, &event, event.reply ? &reply : NULL))
        return;
    struct claim before = actor->claim;
    bool was_valid = claim_valid(&before, event.now), had_ended = before.valid_until && !was_valid;
    actor->forfeited |= event.in == INPUT_FORFEIT;
    covered[before.state][event.in]++;
    struct claim_move move = claim_step(&actor->claim, &event);
    if (had_ended && claim_valid(&actor->claim, event.now))
        server_fails(&w.server, "attempt %u came back to life", id);
    if (tracing)
        trace_step(id, before.state, event.in, &move);
    if (move.status == HF_INTERNAL)
        server_fails(&w.server, "attempt %u: %s in %s cannot be", id, claim_input_name(event.in),
                     claim_state_name(actor->claim.state));
    spoil_step(&actor->claim, &before, &event, &move);
    follow_move(id, &move, event.now, was_valid);
}

static void make_claim(unsigned id)
{
    struct actor *actor = &w.actors[id];
    const struct process *process = &w.processes[actor->process];
    nanos waits[] = {0, draw_time(w.ttl / 4), draw_time(7 * w.ttl), TIME_NEVER};
    nanos wait = waits[draw(4)];
    struct claim_terms terms = {.auto_renew = draw(3) > 0};
    struct timing_overrides no_wishes = {0};
    terms.max_hold_ms = draw(6) ? 0 : draw(2000);
    terms.deadline = wait == TIME_NEVER ? TIME_NEVER : local_time(process, w.now) + wait;
    timing_sheet_fill(&actor->sheet, w.ttl / NANOS_OF_MS(1), &w.limits, &no_wishes);
    claim_init(&actor->claim, &terms, &actor->sheet);
    if (wait == TIME_NEVER || !draw(8))
        schedule_wish(id, INPUT_CANCEL, draw_time(12 * w.ttl));
    apply(id, (struct claim_event){.in = INPUT_START});
}

static void start_round(unsigned p)
{
    if (w.processes[p].rounds++ == ROUNDS)
        return;
    unsigned id = w.actor_count++;
    struct actor *actor = &w.actors[id];
    *actor = (struct actor){.process = p, .owner = id, .asked_units = 1};
    actor->hold_for = draw_time(draw(3) ? w.ttl / 2 : 3 * w.ttl);
    if (w.shared && !draw(3))
        actor->asked_units = w.server.capacity;
    actor->fidgets = w.shared && !draw(6);
    make_claim(id);
}

/* The next level: another attempt of the same owner, with a life of its own. */
static void ask_again_inside(const struct actor *outer)
{
    unsigned id = w.actor_count++;
    w.actors[id] =
        (struct actor){.process = outer->process, .owner = outer->owner, .level = outer->level + 1};
    w.actors[id].asked_units = outer->asked_units;
    w.actors[id].hold_for = draw_time(w.ttl);
    w.actors[id].ended = true; /* the next round follows the outermost level */
    make_claim(id);
}
