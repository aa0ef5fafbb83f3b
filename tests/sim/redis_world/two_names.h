/* two_names.h - users who want two names, as client/acquire_many.c takes them: one after the other
 * in the order of their bytes, all or none, lost together (G8). */
#pragma once
#include "redis_history.h"

/* The one that is taken first: the same for all. Planted: whichever its user named first. */
static unsigned first_name(void)
{
    return w.options.plant == PLANT_UNORDERED ? draw(NAMES) : 0;
}

static bool make_other(unsigned id)
{
    int second = make_attempt(w.attempt[id].process, w.attempt[id].user);
    if (second < 0)
        return false;
    struct attempt_of_user *a = &w.attempt[second];
    w.attempt[id].other = second;
    a->other = (int)id;
    a->several = a->ended = true;
    a->name = !w.attempt[id].name;
    tally.several++;
    return true;
}

/* Says which name comes next, so that the engine may ask for both at once. */
static void name_other(unsigned id)
{
    bool joins = w.options.faults & FAULT_JOINT && draw(2);
    if (!joins || !make_other(id))
        return;
    tally.joint++;
    prepare((unsigned)w.attempt[id].other, true);
    w.attempt[id].op.next = &w.attempt[w.attempt[id].other].op;
    w.attempt[id].op.of_several = w.attempt[w.attempt[id].other].op.of_several = true;
}

/* Is this the first name of both, and was the second not asked for yet? */
static bool wants_other(const struct attempt_of_user *a)
{
    return a->several && (a->other < 0 || w.attempt[a->other].claim.state == CLAIM_NEW);
}

/* Whoever has the first one asks for the second, by the same deadline. */
static void ask_other_name(unsigned id)
{
    if (w.attempt[id].other >= 0)
        start((unsigned)w.attempt[id].other);
    else if (make_other(id))
        begin((unsigned)w.attempt[id].other);
    else
        plan_wish(id, INPUT_RELEASE, 0);
}

/* What happened to one of both happens to the other. */
static void end_other_name(unsigned id, enum claim_report report)
{
    const struct attempt_of_user *a = &w.attempt[id];
    if (a->other < 0 || !is_running(&w.attempt[a->other]))
        return;
    if (w.options.plant == PLANT_HALF_KEPT && report == REPORT_LOST)
        return;
    const struct attempt_of_user *other = &w.attempt[a->other];
    enum claim_input wish = report == REPORT_LOST && other->decided ? INPUT_FORFEIT
                            : other->decided                        ? INPUT_RELEASE
                                                                    : INPUT_CANCEL;
    if (claim_legal(other->claim.state, wish))
        plan_wish((unsigned)a->other, wish, 0);
}
