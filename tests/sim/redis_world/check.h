/* check.h - the promises. Each says which faults suspend it.
 *
 * A belief is what a process may rely on: a claim that is held, by the process's own clock. Belief in a hold that the
 * server may have forgotten, ended early (loss of data, stale failover, step of its clock) or that was broken counts
 * again from the next request on that the server answers with yes: that is what "sure" says. */
#pragma once
#include "server.h"

static bool is_running(const struct attempt_of_user *a)
{
    return !w.process[a->process].dead && w.process[a->process].life == a->life;
}

static bool believes(const struct attempt_of_user *a)
{
    return is_running(a) && is_held(a) && local_time(&w.process[a->process], w.now) < a->claim.valid_until;
}

static bool was_broken(uint64_t token)
{
    for (unsigned i = 0; i < w.breaks; i++)
        if (w.broken[i] == token)
            return true;
    return false;
}

/* A hold may have got another token by an upgrade that whoever asked for it, or its owner's other attempts, have not
 * heard of. */
static bool is_broken(const struct attempt_of_user *a)
{
    for (unsigned i = 0; i < w.breaks; i++)
        if (w.broken_owner[i] == a->owner)
            return true;
    return was_broken(a->claim.token);
}

static bool is_sure(const struct attempt_of_user *a)
{
    return a->sure_from > w.lost_at && !is_broken(a);
}

/* Nothing went wrong around it that could excuse anything. */
static bool is_well(const struct attempt_of_user *a)
{
    bool replica_lags = w.strong && has_snapshot;
    return is_running(a) && !a->disturbed && w.now >= w.process[a->process].disturbed_until && !replica_lags;
}

static bool is_alone(const struct attempt_of_user *a)
{
    return a->name || (a->units == w.capacity && !w.resized);
}

/* ---- Exclusion: whoever believes, and may, never has more than there is. Suspended as said above. ---- */

static bool counts_on(const struct attempt_of_user *a)
{
    return believes(a) && is_sure(a);
}

/* An owner's units count once: with the one of its attempts that has the most, the first of those. */
static uint32_t believed_units(unsigned id)
{
    const struct attempt_of_user *a = &w.attempt[id];
    if (!counts_on(a))
        return 0;
    for (unsigned i = 0; w.owners && !a->several && i < w.attempts; i++) {
        const struct attempt_of_user *other = &w.attempt[i];
        bool more = other->units > a->units || (other->units == a->units && i < id);
        if (i != id && other->owner == a->owner && !other->several && more && counts_on(other))
            return 0;
    }
    return a->name ? 1 : a->units;
}

/* Another program cannot check what the server lost. */
static bool foreign_counts(void)
{
    return w.foreign_until > w.now && w.forgot_at < w.foreign_from;
}

static void check_beliefs_of(unsigned name)
{
    uint64_t units = !name && foreign_counts(), most = name ? 1 : w.capacity_most;
    char who[80];
    int len = 0;
    for (unsigned id = 0; id < w.attempts; id++)
        units += w.attempt[id].name == name ? believed_units(id) : 0;
    if (units <= most)
        return;
    for (unsigned id = 0; id < w.attempts && len < 60; id++)
        if (w.attempt[id].name == name && believed_units(id))
            len += snprintf(who + len, sizeof who - (size_t)len, " a%u", id);
    fails("%llu units are believed to be held of %llu:%s%s", (unsigned long long)units, (unsigned long long)most,
          len ? who : "", !name && foreign_counts() ? " and another program" : "");
}

static void check_beliefs(void)
{
    for (unsigned name = 0; name < NAMES; name++)
        check_beliefs_of(name);
}

/* ---- Tokens rise, and a store that remembers the highest never refuses whoever is alone. Suspended when data was lost
 * and the clock stepped back: then the server cannot know. ---- */

static bool tokens_count(const struct attempt_of_user *a)
{
    return is_sure(a) && !(w.wiped && w.stepped_back);
}

static void check_token(unsigned id)
{
    const struct attempt_of_user *a = &w.attempt[id];
    uint64_t token = a->claim.token, *highest = &w.highest_token[a->name];
    bool again = w.owners && w.highest_owner[a->name] == a->owner && token == *highest;
    if (!tokens_count(a))
        return;
    if (is_alone(a) && token <= *highest && !again)
        fails("a%u got token %llu after %llu", id, (unsigned long long)token, (unsigned long long)*highest);
    if (token > *highest) {
        *highest = token;
        w.highest_owner[a->name] = a->owner;
    }
}

/* Planted: it asks for its token when it needs it. */
static uint64_t token_of(struct attempt_of_user *a)
{
    if (w.options.plant != PLANT_LATE_TOKEN)
        return a->claim.token;
    if (!a->late_token)
        a->late_token = ++w.late_tokens;
    return a->late_token;
}

static void use_store(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    uint64_t *stored = &w.stored[a->name];
    if (!believes(a) || !tokens_count(a))
        return;
    uint64_t token = token_of(a);
    tally.stored++;
    if (is_alone(a) && token < *stored)
        fails("a%u is alone with token %llu, and the store refuses it for %llu", id, (unsigned long long)token,
              (unsigned long long)*stored);
    if (token > *stored)
        *stored = token;
}

/* One that does not know yet that its time is over writes, too: that is what tokens are for. */
static void use_store_late(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    uint64_t *stored = &w.stored[a->name];
    if (!a->decided || believes(a) || !a->sure_from || !tokens_count(a) || a->claim.state == HF_S_OVER)
        return;
    uint64_t token = token_of(a);
    tally.stored_late++;
    if (token > *stored)
        *stored = token;
}

/* ---- First come, first served, as users see it: whoever heard that it waits before another one asked has the lower
 * token. Suspended by any fault around it, by what the server forgot or was forced to, and for owners that enter
 * again. ---- */

static void check_order_told(unsigned id)
{
    const struct attempt_of_user *a = &w.attempt[id];
    if (!a->queued_at || !is_well(a) || w.owners || w.resized || w.breaks || a->started <= w.forgot_at)
        return;
    tally.orders++;
    for (unsigned i = 0; i < w.attempts; i++) {
        const struct attempt_of_user *other = &w.attempt[i];
        bool later_one = other->name == a->name && other->started > a->queued_at && !other->ask.barging;
        if (later_one && other->granted_token && other->granted_token < a->granted_token)
            fails("a%u waited when a%u asked, and was let in after it", id, i);
    }
}

/* ---- Every call returns by its deadline, once. ---- */

static void check_outcome(unsigned id, hf_nanos local)
{
    struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    hf_nanos woke = local_time(p, p->stalled_until);
    hf_nanos due = later(a->claim.deadline, woke);
    if (a->decided)
        fails("a%u has two outcomes", id);
    /* An ask without wait, then a leave: each until silence counts as an answer. */
    if (a->claim.deadline != HF_NEVER && local > due + 2 * a->claim.sheet->t.answer + HF_MS(1))
        fails("a%u ended %lld us after its deadline", id, (long long)(local - due) / 1000);
    a->decided = true;
}

/* ---- Nobody loses what was never in danger. Suspended by any fault around it, and for what was broken. ---- */

static void check_loss(unsigned id, hf_nanos local)
{
    const struct attempt_of_user *a = &w.attempt[id];
    const hf_nanos round_trip = HF_MS(3);
    tally.lost++;
    if (a->forfeited || is_broken(a) || !is_well(a) || a->claim.max_hold)
        return;
    if (a->claim.auto_renew)
        fails("a%u lost its lease although nothing went wrong", id);
    if (!a->adopted && local + round_trip < a->claim.granted_at + a->claim.sheet->t.stop)
        fails("a%u lost its lease before the ttl was over", id);
}

/* ---- The server's history ---------------------------------------------------------------------------------------- */

static const struct seen_hold *find_hold(const struct sight *s, int attempt)
{
    for (unsigned i = 0; i < s->holds; i++)
        if (s->hold[i].attempt == attempt)
            return &s->hold[i];
    return NULL;
}

static const struct seen_place *find_place(const struct sight *s, int attempt)
{
    for (unsigned i = 0; i < s->places; i++)
        if (s->place[i].attempt == attempt)
            return &s->place[i];
    return NULL;
}

static bool waits(const struct attempt_of_user *a)
{
    return a->claim.state == HF_S_ASKING || a->claim.state == HF_S_QUEUED || a->claim.state == HF_S_PAUSED;
}

static bool has_sibling(const struct sight *s, int id)
{
    for (unsigned i = 0; w.owners && i < s->holds; i++)
        if (s->hold[i].attempt >= 0 && s->hold[i].attempt != id &&
            w.attempt[s->hold[i].attempt].owner == w.attempt[id].owner)
            return true;
    return false;
}

/* First come, first served: whoever is let in passes nobody who is in the queue and has not let its time pass. For any
 * fault. */
static void check_order(const struct sight *was, const struct sight *is, int id)
{
    const struct seen_place *own = find_place(was, id);
    if (id < 0 || find_hold(was, id) || w.attempt[id].ask.barging || has_sibling(is, id))
        return;
    for (unsigned i = 0; i < was->places; i++) {
        const struct seen_place *other = &was->place[i];
        if (own && other->arrival >= own->arrival)
            return;
        const struct seen_place *still = find_place(is, other->attempt);
        if (other->attempt >= 0 && still && still->arrival == other->arrival && other->due_us > server_us())
            fails("a%d is let in before a%d, which waits for longer", id, other->attempt);
    }
}

/* Whoever let its time pass holds up nobody: it is let in by a request of its own only. For any fault. */
static void check_alive(const struct sight *was, int id)
{
    const struct seen_place *own = find_place(was, id);
    const struct attempt_of_user *a = &w.attempt[id];
    const struct link *link = w.served < 0 ? NULL : &links[w.served];
    bool asks_itself = link && link->process == a->process && link->life == a->life;
    if (own && own->due_us <= server_us() && !asks_itself)
        fails("a%d let its time pass, and is let in by somebody else", id);
}

/* Who holds does not wait. For any fault. */
static void check_apart(const struct sight *is)
{
    for (unsigned i = 0; i < is->places; i++) {
        int id = is->place[i].attempt;
        if (id >= 0 && find_hold(is, id))
            fails("a%d holds, and waits in the queue", id);
    }
}

/* A waiter that is well stays in the queue until it holds, and holds until it knows. */
static void check_turns(const struct sight *was, const struct sight *is)
{
    for (unsigned i = 0; i < was->places; i++) {
        int id = was->place[i].attempt;
        if (id < 0 || find_place(is, id) || find_hold(is, id) || !is_well(&w.attempt[id]) || !waits(&w.attempt[id]))
            continue;
        if (w.attempt[id].ask.kind == HF_WRITE && has_sibling(is, id))
            continue; /* its owner reads: it is told to upgrade */
        if (w.attempt[id].units <= is->capacity && !w.resized)
            fails("a%d lost its place in the queue although nothing went wrong", id);
    }
    for (unsigned i = 0; i < was->holds; i++) {
        int id = was->hold[i].attempt;
        if (id >= 0 && !find_hold(is, id) && is_well(&w.attempt[id]) && waits(&w.attempt[id]) &&
            !was_broken(was->hold[i].token))
            fails("a%d lost its turn although nothing went wrong", id);
    }
}

/* Nobody came, went or was given more time: it may have been a script that only looks. */
static bool is_unchanged(const struct sight *was, const struct sight *is)
{
    if (was->holds != is->holds || was->places != is->places)
        return false;
    for (unsigned i = 0; i < is->holds; i++)
        if (was->hold[i].attempt != is->hold[i].attempt || was->hold[i].end_us != is->hold[i].end_us)
            return false;
    for (unsigned i = 0; i < is->places; i++)
        if (was->place[i].attempt != is->place[i].attempt || was->place[i].due_us != is->place[i].due_us)
            return false;
    return true;
}

/* No request that changes anything ends with one at the head of the queue that fits. A plain lock that lapsed is given
 * on by the next ask. */
static void check_work(const struct sight *was, const struct sight *is)
{
    if (is_unchanged(was, is))
        return;
    for (unsigned i = 0; i < is->places; i++) {
        const struct seen_place *first = &is->place[i];
        bool given_back = was->holds && !is->there && was->hold[0].end_us > server_us() + 2000;
        if (first->attempt < 0 || first->due_us <= server_us())
            continue;
        const struct hf_ask *ask = &w.attempt[first->attempt].ask;
        if (given_back || (is->there && !is->plain && is->used + ask->units <= is->capacity))
            fails("a%d is first in line and fits, and nobody lets it in", first->attempt);
        return;
    }
}

/* Who is over has nothing in the server. Suspended where the server lost what it was told. */
static void check_leak(int id, const char *what)
{
    const struct attempt_of_user *a = id >= 0 ? &w.attempt[id] : NULL;
    if (a && is_running(a) && a->claim.state == HF_S_OVER && !a->disowned && !a->gave_up && a->started > w.forgot_at)
        fails("a%d is over and still %s", id, what);
}

/* What nobody wants any more ends in time: its last message may be 3 ttl late, then its time runs out. */
static void check_recovery(const struct seen_hold *hold)
{
    const struct attempt_of_user *a = hold->attempt >= 0 ? &w.attempt[hold->attempt] : NULL;
    if (!a || hold->end_us <= server_us() || (is_running(a) && !a->disowned))
        return;
    if (w.asked_since_loss == HF_NEVER)
        return; /* a hold that a step made longer is cut back by the first one who wants it */
    hf_nanos since = later(a->gone_at, w.asked_since_loss);
    if (w.stepped_back) /* a dead waiter may count as alive for as long as the step was, and gets its turn */
        since = later(since, a->let_in_at);
    hf_nanos bound = 3 * w.ttl + later(a->longest, w.refresh + w.turn) + w.refresh + w.turn + HF_MS(20);
    if (w.now > since + bound)
        fails("a%d is dead for %lld ms and still holds", hold->attempt, (long long)(w.now - since) / HF_MS(1));
}

/* Somebody asked, and waits. */
static bool saw_ask(const struct sight *was, const struct sight *is)
{
    for (unsigned i = 0; i < is->places; i++) {
        const struct seen_place *before_it = find_place(was, is->place[i].attempt);
        if (!before_it || before_it->due_us != is->place[i].due_us)
            return true;
    }
    return false;
}

static void check_history(const struct sight *was, const struct sight *is)
{
    if (w.asked_since_loss == HF_NEVER && saw_ask(was, is))
        w.asked_since_loss = w.now;
    for (unsigned i = 0; i < is->holds; i++) {
        int id = is->hold[i].attempt;
        if (id < 0)
            continue;
        if (!find_hold(was, id)) {
            tally.hand_overs += find_place(was, id) != NULL;
            w.attempt[id].let_in_at = w.now;
            check_order(was, is, id);
            check_alive(was, id);
        }
        if (is->hold[i].end_us > server_us())
            check_leak(id, "holds");
        check_recovery(&is->hold[i]);
    }
    for (unsigned i = 0; i < is->places; i++)
        check_leak(is->place[i].attempt, "waits in the queue");
    check_apart(is);
    check_turns(was, is);
    check_work(was, is);
}

/* ---- At rest ---------------------------------------------------------------------------------------------------- */

static void check_attempts_ended(void)
{
    for (unsigned id = 0; id < w.attempts; id++) {
        const struct attempt_of_user *a = &w.attempt[id];
        bool refused = a->claim.state == HF_S_NEW && a->disowned; /* there was nothing left to take up */
        if (is_running(a) && !refused && (a->claim.state != HF_S_OVER || !a->decided))
            fails("a%u never ended: %s", id, hf_state_name(a->claim.state));
    }
}

static void check_rest(void)
{
    struct model_key key;
    struct sight s;
    check_attempts_ended();
    look(&s);
    for (unsigned i = 0; i < s.holds; i++)
        if (s.hold[i].end_us > server_us())
            check_leak(s.hold[i].attempt, "holds at the end");
    for (unsigned i = 0; i < s.places; i++)
        check_leak(s.place[i].attempt, "waits at the end");
    for (unsigned slot = 0; model_look_next(model, &slot, &key);) {
        if (key.left_ms < 0)
            fails("the key %.*s has no end", (int)key.len, key.name);
        if (key.kind == 'l' && key.left_ms > 60000 && !w.stepped_back)
            fails("the inbox %.*s lives for %lld ms", (int)key.len, key.name, (long long)key.left_ms);
    }
}
