/* claim_driver.c - passes events to the claim, and carries out its moves: submits to the engine,
 * timers, reports. */
#include "client.h"

#include "base/error.h"
#include "base/status.h"
#include "sys/clock.h"

#include <string.h>
#include <unistd.h>

/* ---- Reports ---- */

static void count(struct hf_client *client, enum counter_id what)
{
    atomic_fetch_add_explicit(&client->count[what], 1, memory_order_relaxed);
}

static enum counter_id count_of_denial(hf_status status)
{
    assert(status != HF_OK);

    switch (status) {
    case HF_BUSY:
        return COUNT_BUSY;
    case HF_TIMEOUT:
        return COUNT_TIMED_OUT;
    case HF_CANCELLED:
    case HF_CLOSED:
        return COUNT_CANCELLED;
    default:
        return COUNT_FAILED;
    }
}

static void make_readable(int fd)
{
    static const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) {
        /* The write fails only if the counter is at its maximum; the eventfd is readable then. */
    }
}

/* Handles that the acquire has its outcome: wakes a blocked caller, and makes a `done` callback
 * due. */
static void decide(struct hf_lease *lease, hf_status outcome)
{
    lease->decided = true;
    lease->outcome = outcome;
    lease->caller_drives = false;
    count(lease->client, outcome == HF_OK ? COUNT_GRANTED : count_of_denial(outcome));
    if (lease->callbacks && lease->callbacks->has_outcome_fd)
        make_readable(lease->callbacks->outcome_fd);
    if (lease->callbacks && lease->callbacks->done.fn)
        callbacks_due(lease, CALLBACK_DONE);
}

static void lose(struct hf_lease *lease, hf_status why)
{
    assert(lease->decided && lease->lost_status == HF_OK && why != HF_OK);

    lease->lost_status = why;
    count(lease->client, COUNT_LOST);
    int fd = atomic_load(&lease->lost_fd);
    if (fd >= 0)
        make_readable(fd);

    bool has_callback = lease->callbacks && lease->callbacks->on_lost;
    if (has_callback && !lease->muted)
        callbacks_due(lease, CALLBACK_LOST);
    if (lease_group_of(lease))
        background_lose_group(lease);
}

static void answer(struct pending_call *call, hf_status status)
{
    call->over = true;
    call->status = status;
}

/* Ends an extend or a conversion. Its caller is blocked, or gets a callback. */
static void answer_change(struct hf_lease *lease, hf_status status)
{
    struct callbacks *callbacks = lease->callbacks;
    answer(&lease->change, status);
    if (!callbacks || !callbacks->change_calls_back)
        return;

    lease->change.open = false;
    callbacks->change_calls_back = false;
    if (callbacks->converts && status == HF_OK)
        lease->op.kind = callbacks->converted_kind;
    callbacks->converts = false;
    callbacks->extended_status = status;
    callbacks_due(lease, CALLBACK_EXTENDED);
}

static void answer_release(struct hf_lease *lease, hf_status status)
{
    struct callbacks *callbacks = lease->callbacks;
    answer(&lease->release, status);
    if (!callbacks || !callbacks->release_calls_back)
        return;

    lease->release.open = false;
    callbacks->release_calls_back = false;
    callbacks->released_status = status;
    callbacks_due(lease, CALLBACK_RELEASED);
}

static inline void wake_callers(struct hf_lease *lease)
{
    /* No atomic addition: the word changes under the lease's lock only. */
    uint32_t word = atomic_load_explicit(&lease->outcome_word, memory_order_relaxed);
    atomic_store_explicit(&lease->outcome_word, word + 1, memory_order_release);

    if (lease->sleepers)
        futex_wake(&lease->outcome_word, INT32_MAX);
    if (lease->parked)
        lease->client->type->wake(lease->client->engine, lease->parked);
}

static void report(struct hf_lease *lease, struct claim_effect effect, nanos now)
{
    switch (effect.report) {
    case REPORT_NONE:
        return;
    case REPORT_GRANTED:
        decide(lease, HF_OK);
        break;
    case REPORT_DENIED:
        decide(lease, effect.status);
        break;
    case REPORT_QUEUED:
        count(lease->client, COUNT_QUEUED);
        break;
    case REPORT_EXTENDED:
        if (effect.status == HF_OK)
            count(lease->client, COUNT_EXTENDED);
        answer_change(lease, effect.status);
        break;
    case REPORT_WARN:
        break;
    case REPORT_LOST:
        lose(lease, effect.status);
        answer_change(lease, HF_LOST);
        break;
    case REPORT_RELEASED:
        if (effect.status == HF_OK)
            count(lease->client, COUNT_RELEASED);
        answer_release(lease, effect.status);
        break;
    }
    if (lease->client->on_log)
        event_log_report(lease, effect.report, effect.status, now);
    wake_callers(lease);
}

/* A release by one thread ends the extend for which another thread waits. The claim has no
 * report for that. */
static inline void end_change_unheld(struct hf_lease *lease)
{
    bool is_pending = lease->change.open && !lease->change.over;
    if (!is_pending || lease_is_held(lease))
        return;
    answer_change(lease, HF_NOT_HELD);
    wake_callers(lease);
}

/* ---- Carrying out what the claim asks for ---- */

/* A sleeping caller wakes at the time that was set when it fell asleep, so it must be woken if the
 * new time is earlier. */
static inline void arm(struct hf_lease *lease, nanos when)
{
    bool earlier = when < lease->wake_at;
    lease->wake_at = when;
    if (earlier && (lease->sleepers || lease->parked))
        wake_callers(lease);
    if (!lease->caller_drives &&
        when < atomic_load_explicit(&lease->timer.key, memory_order_relaxed))
        background_timer(lease, when);
}

/* The claim is over: wakes hf_close if it waits for that. */
static void settle(struct hf_lease *lease)
{
    if (lease->awaited && atomic_fetch_sub(&lease->client->awaited, 1) == 1)
        futex_wake(&lease->client->awaited, INT32_MAX);
    lease->awaited = false;
}

static bool lives(const struct hf_lease *lease)
{
    return lease->claim.state != CLAIM_OVER && lease->claim.state != CLAIM_NEW;
}

/* Keeps the lease as long as its claim is not over, even without a handle. Called after every
 * step: the engine must also forget an op that starts and ends in one step. */
static inline void keep_alive(struct hf_lease *lease)
{
    bool alive = lives(lease);
    if (alive == lease->alive)
        return;

    lease->alive = alive;
    if (alive) {
        lease_ref(lease);
    } else {
        lease->client->type->forget(lease->client->engine, &lease->op);
        settle(lease);
        lease_unref(lease); /* never the last reference: the driving thread has one, too */
    }
}

static inline bool submit(struct hf_lease *lease, struct claim_effect effect, nanos now,
                          struct engine_reply *reply)
{
    struct engine_op *op = &lease->op;
    op->verb = effect.verb;
    op->may_be_in_flight = effect.may_be_in_flight;
    op->is_renewal = effect.is_renewal;
    op->lost = lease->lost_status != HF_OK;
    op->in_background = !lease->callers;
    bool is_background = background_is_me(lease->client);
    op->batched = is_background || client_batches(lease->client);
    op->until =
        now + (is_background ? lease->claim.sheet->t.patience : lease->claim.sheet->t.op_timeout);
    if (effect.verb == OP_EXTEND)
        op->ttl_ms = effect.ttl / NANOS_OF_MS(1);

    return lease->client->type->submit(lease->client->engine, op, now, reply);
}

/* Returns a number that differs between leases and between the tries of one lease. */
static uint32_t jitter(const struct hf_lease *lease)
{
    uint32_t random;
    memcpy(&random, &lease->op.attempt, sizeof random);
    return (random ^ lease->claim.tries * 0x9e3779b9u) * 0x85ebca6bu;
}

/* Returns true if the reply says which hold is in the way, or at least until when. */
static bool tells_holder(const struct engine_reply *reply)
{
    return reply->holder || (reply->kind == REPLY_BUSY && reply->retry_at != TIME_NEVER);
}

/* The text for an outcome is that of the last failure, unless a better reply came since. A release
 * in the background, which no caller asked for, does not change the text of the wait or the loss
 * before it. */
static void note_failure_text(struct hf_lease *lease, const struct engine_reply *reply)
{
    assert(reply->kind < REPLY_KINDS);

    const struct claim *claim = &lease->claim;
    bool is_unasked = claim->state == CLAIM_RELEASING && !claim->asked_release;
    if (claim->state == CLAIM_OVER || is_unasked)
        return;

    if (reply->text)
        lease_set_error(lease, reply->text);
    else if (reply->kind == REPLY_UNKNOWN)
        lease_set_error(lease, status_row(HF_IN_DOUBT)->text);
    else if (reply->kind == REPLY_FAILED)
        lease_set_error(lease, status_row(reply->status)->text);
    else if (reply->kind <= REPLY_EXTENDED)
        lease_set_error(lease, NULL);

    if (tells_holder(reply))
        lease_set_holder(lease, reply->holder, reply->retry_at);
}

static inline bool changes_failure_text(const struct hf_lease *lease,
                                        const struct engine_reply *reply)
{
    return lease->failure || reply->text || reply->kind == REPLY_UNKNOWN ||
           reply->kind == REPLY_FAILED || reply->kind == REPLY_BUSY || reply->holder;
}

/* Returns when the reported event happened. A released hold ended when the caller released it,
 * however long the reply took. */
static inline nanos time_of(const struct hf_lease *lease, struct claim_effect effect, nanos now)
{
    return effect.report == REPORT_LOST || effect.report == REPORT_RELEASED ? lease->claim.ended_at
                                                                            : now;
}

void claim_driver_step(struct hf_lease *lease, const struct claim_event *event)
{
    /* Filled in field by field: copying it whole would stall on the fields just written. */
    struct claim_event next;
    struct engine_reply reply;

    for (;;) {
        nanos now = event->now;
        if (event->in >= INPUT_GRANTED && changes_failure_text(lease, event->reply))
            note_failure_text(lease, event->reply);
        struct claim_effect effect = claim_act(&lease->claim, event);
        if (effect.report != REPORT_NONE)
            report(lease, effect, time_of(lease, effect, now));
        end_change_unheld(lease);
        keep_alive(lease);
        if (effect.verb == OP_NONE || !submit(lease, effect, now, &reply)) {
            arm(lease, claim_wake_at(&lease->claim));
            return;
        }
        next.in = claim_input_of_reply(reply.kind);
        /* the engine may have read a later clock */
        next.now = reply.asked_at > now ? reply.asked_at : now;
        next.reply = &reply;
        next.ttl_ms = 0, next.verb = OP_NONE, next.status = HF_OK;
        next.random = jitter(lease);
        event = &next;
    }
}

void claim_driver_input(struct hf_lease *lease, enum claim_input in, hf_status why)
{
    struct claim_event event = {
        .in = in, .now = clock_boot(), .status = why, .random = jitter(lease)};
    claim_driver_step(lease, &event);
}

void claim_driver_cancel(struct hf_lease *lease, hf_status why)
{
    bool is_new = lease->claim.state == CLAIM_NEW;
    if (is_new && !lease->op.is_ahead)
        return;
    if (is_new)
        count(lease->client, COUNT_ASKED);
    claim_driver_input(lease, INPUT_CANCEL, why);
}

/* ---- Waiting for replies ---- */

/* Handles that a caller stops waiting. If other callers wait, one of them must park in its place.
 * If it was the last caller, the background thread takes the replies from now on. */
void claim_driver_wait_pass(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (lease->callers) {
        wake_callers(lease);
        return;
    }

    if (client->type->detach_caller)
        client->type->detach_caller(client->engine, &lease->op);
    if (lease->claim.state != CLAIM_HELD)
        background_flush(client);
}

/* One caller parks in the engine; the others sleep until it has passed the reply to the claim.
 * An engine that replies inside submit() replies again only to an op in its queue, so for other ops
 * nobody parks. */
nanos claim_driver_park(struct hf_lease *lease, nanos until)
{
    struct hf_client *client = lease->client;
    bool parks =
        !lease->parked && (client_replies_later(client) || lease->claim.state == CLAIM_QUEUED);
    uint64_t slot = parks ? lease->op.slot : 0;
    uint32_t seen = slot ? lease->op.seen : atomic_load(&lease->outcome_word);

    until = until < lease->wake_at ? until : lease->wake_at;
    if (slot)
        lease->parked = slot;
    else
        lease->sleepers++;

    client_stay_open(client); /* counted before hf_close can get the lease's lock */
    small_mutex_unlock(&lease->lock);
    nanos now = 0;

    if (slot)
        now = client->type->park(client->engine, slot, seen, until);
    else
        futex_wait(&lease->outcome_word, seen, until);
    if (!small_mutex_try(&lease->lock)) {
        small_mutex_wait(&lease->lock);
        now = 0; /* `now` is too old: the lock's previous owner may have acted after it */
    }

    client_exit(client);
    if (slot)
        lease->parked = 0;
    else
        lease->sleepers--;
    return now ? now : clock_boot();
}

void claim_driver_take_replies(struct hf_lease *lease, nanos now)
{
    struct hf_client *client = lease->client;
    bool later = client_replies_later(client);
    struct engine_reply reply;

    do {
        /* if false, the engine has forgotten the op */
        bool is_known = later ? lease->alive : !lease->decided;
        if (!is_known || !client->type->take_reply(client->engine, &lease->op, now, &reply))
            return;
        struct claim_event event = {.in = claim_input_of_reply(reply.kind),
                                    .now = now,
                                    .reply = &reply,
                                    .random = jitter(lease)};
        claim_driver_step(lease, &event);
    } while (later);
}

/* ---- Exported holds ---- */

/* Sends a CHECK outside of any claim. Returns false if no reply arrived in time. */
static bool send_check(struct hf_lease *lease, nanos now, struct engine_reply *reply)
{
    assert(lease->callers > 0);

    struct hf_client *client = lease->client;
    struct claim_effect check = {.verb = OP_CHECK};
    nanos until = now + timing_sheet_answer(lease->claim.sheet);
    if (submit(lease, check, now, reply))
        return true;

    while (!client->type->take_reply(client->engine, &lease->op, now, reply)) {
        if (now >= until)
            return false;
        now = claim_driver_park(lease, until);
    }
    return true;
}

static hf_status refuse_adoption(const struct hf_lease *lease, const struct engine_reply *reply,
                                 uint64_t token)
{
    hf_status status = reply->kind == REPLY_FAILED ? reply->status : HF_IN_DOUBT;
    if (reply->kind == REPLY_FAILED || reply->kind == REPLY_UNKNOWN)
        return error_set(status, "%s: %s", lease->op.name,
                         reply->text ? reply->text : status_row(status)->text);
    return error_set(HF_LOST, "%s: the hold with token %llu has ended", lease->op.name,
                     (unsigned long long)token);
}

static hf_status adopt(struct hf_lease *lease, uint64_t token, bool is_settled)
{
    assert(lease->claim.state == CLAIM_NEW);

    struct engine_reply reply;
    if (!send_check(lease, clock_boot(), &reply))
        return error_set(HF_UNAVAILABLE, "%s: no answer within %lld ms", lease->op.name,
                         (long long)(timing_sheet_answer(lease->claim.sheet) / NANOS_OF_MS(1)));
    if (reply.kind != REPLY_EXTENDED || reply.token != token)
        return refuse_adoption(lease, &reply, token);

    nanos until = reply.asked_at + reply.good - timing_drift(&lease->client->limits, reply.good);
    claim_adopt(&lease->claim, reply.asked_at, until, token, is_settled);
    keep_alive(lease);
    arm(lease, lease->claim.act_at < until ? lease->claim.act_at : until);
    return HF_OK;
}

/* Makes a lease for a hold that was acquired elsewhere. It is held once the engine confirms the
 * hold with that token. */
hf_status claim_driver_adopt(struct hf_lease *lease, uint64_t token, bool is_settled)
{
    claim_driver_wait_begin(lease);
    hf_status status = adopt(lease, token, is_settled);
    if (status != HF_OK)
        lease->client->type->forget(lease->client->engine, &lease->op);
    claim_driver_wait_end(lease);
    return status;
}

/* As claim_driver_adopt, but takes the hold for granted without asking the engine. */
void claim_driver_assume(struct hf_lease *lease, uint64_t token, bool is_settled)
{
    assert(lease->claim.state == CLAIM_NEW);

    nanos now = clock_boot(), until = now + lease->claim.sheet->t.ttl;
    claim_adopt(&lease->claim, now, until, token, is_settled);
    lease->claim.is_assumed = true;
    keep_alive(lease);
    arm(lease, lease->claim.act_at < until ? lease->claim.act_at : until);
}

/* Gives the hold up without ending it. If the grant was shorter than its ttl, the rest is
 * requested first; no call waits for that reply. */
void claim_driver_disown(struct hf_lease *lease)
{
    assert(lease_is_held(lease));

    if (lease->claim.brief && lease->claim.state == CLAIM_HELD)
        claim_driver_input(lease, INPUT_EXTEND, HF_OK);
    if (!lease_is_held(lease))
        return;

    claim_disown(&lease->claim);
    end_change_unheld(lease);
    arm(lease, TIME_NEVER);
    keep_alive(lease);
}
