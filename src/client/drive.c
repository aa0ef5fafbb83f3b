/* drive.c - turns an event into moves of the claim, and the moves into submits, timers, reports. */
#include "client.h"

#include "base/why.h"
#include "sys/clock.h"

#include <string.h>
#include <unistd.h>

/* ---- Reports ---- */

static void count(struct hf_client *client, enum hf_count what)
{
    atomic_fetch_add_explicit(&client->count[what], 1, memory_order_relaxed);
}

static enum hf_count count_of_denial(hf_status status)
{
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

/* The acquire has its outcome: a blocked caller sees it, another one's callback is due. */
static void decide(struct hf_lease *lease, hf_status outcome)
{
    lease->decided = true;
    lease->outcome = outcome;
    lease->caller_drives = false;
    count(lease->client, outcome == HF_OK ? COUNT_GRANTED : count_of_denial(outcome));
    if (lease->done)
        hf_keeper_call(lease, HF_CB_DONE);
}

static void lose(struct hf_lease *lease, hf_status why)
{
    static const uint64_t one = 1;
    lease->lost_status = why;
    count(lease->client, COUNT_LOST);
    int fd = atomic_load(&lease->lost_fd);
    if (fd >= 0 && write(fd, &one, sizeof one) < 0) {
        /* An eventfd refuses only when it is already as readable as can be. */
    }
    if (lease->on_lost)
        hf_keeper_call(lease, HF_CB_LOST);
    if (lease->group)
        hf_keeper_call(lease, HF_CB_GROUP);
}

static void end_call(struct hf_lease *lease, hf_status status)
{
    lease->call_over = true;
    lease->call_status = status;
}

static void wake_callers(struct hf_lease *lease)
{
    atomic_fetch_add(&lease->news, 1);
    if (lease->sleepers)
        hf_futex_wake(&lease->news, INT32_MAX);
    if (lease->parked)
        lease->client->type->wake(lease->client->engine, lease->parked);
}

static void report(struct hf_lease *lease, const struct hf_move *move, hf_nanos now)
{
    switch (move->report) {
    case HF_R_NONE:
        return;
    case HF_R_GRANTED:
        decide(lease, HF_OK);
        break;
    case HF_R_DENIED:
        decide(lease, move->status);
        break;
    case HF_R_QUEUED:
        count(lease->client, COUNT_QUEUED);
        break;
    case HF_R_EXTENDED:
        if (move->status == HF_OK)
            count(lease->client, COUNT_EXTENDED);
        end_call(lease, move->status);
        break;
    case HF_R_WARN:
        break;
    case HF_R_LOST:
        lose(lease, move->status);
        end_call(lease, HF_LOST);
        break;
    case HF_R_RELEASED:
        if (move->status == HF_OK)
            count(lease->client, COUNT_RELEASED);
        end_call(lease, move->status);
        break;
    }
    hf_journal_report(lease, move->report, move->status, now);
    wake_callers(lease);
}

/* ---- Moves ---- */

static void publish(struct hf_lease *lease)
{
    const struct hf_claim *claim = &lease->claim;
    bool held = claim->state == HF_S_HELD || claim->state == HF_S_EXTENDING;
    atomic_store_explicit(&lease->token, claim->token, memory_order_relaxed);
    atomic_store_explicit(&lease->valid_until, held ? claim->valid_until : 0, memory_order_relaxed);
    atomic_store_explicit(&lease->ok, held, memory_order_release);
}

static void arm(struct hf_lease *lease, hf_nanos when)
{
    lease->wake_at = when;
    if (!lease->caller_drives)
        hf_keeper_timer(lease, when);
}

/* A claim that is not over needs its lease, whether or not the caller still has the handle. */
static void keep_alive(struct hf_lease *lease)
{
    bool alive = lease->claim.state != HF_S_OVER && lease->claim.state != HF_S_NEW;
    if (alive == lease->alive)
        return;
    lease->alive = alive;
    if (alive) {
        hf_lease_ref(lease);
    } else {
        lease->client->type->forget(lease->client->engine, &lease->ask);
        hf_lease_unref(lease); /* never the last one: whoever drives has one too */
    }
}

static bool submit(struct hf_lease *lease, const struct hf_move *move, hf_nanos now, struct hf_news *news)
{
    struct hf_ask *ask = &lease->ask;
    ask->verb = move->verb;
    ask->doubt = move->doubt;
    ask->until = now + (hf_keeper_is_me(lease->client) ? lease->claim.t.patience : lease->claim.t.op_timeout);
    if (move->verb == HF_V_EXTEND)
        ask->ttl_ms = move->ttl / HF_MS(1);
    return lease->client->type->submit(lease->client->engine, ask, now, news);
}

/* Jitter for this lease: unlike its neighbours', and unlike its last. */
static uint32_t jitter(const struct hf_lease *lease)
{
    uint32_t random;
    memcpy(&random, &lease->ask.attempt, sizeof random);
    return (random ^ lease->claim.tries * 0x9e3779b9u) * 0x85ebca6bu;
}

void hf_drive(struct hf_lease *lease, const struct hf_event *first)
{
    struct hf_event event = *first;
    struct hf_news news;
    for (;;) {
        if (event.in >= HF_I_GRANTED && event.news->text)
            hf_lease_words(lease, event.news->text);
        hf_nanos believed = lease->claim.valid_until;
        struct hf_move move = hf_claim_step(&lease->claim, &event);
        publish(lease);
        /* What is lost by time was lost when the time was over, however late that was noticed. */
        report(lease, &move, move.report == HF_R_LOST && believed < event.now ? believed : event.now);
        arm(lease, move.wake_at);
        keep_alive(lease);
        if (move.verb == HF_V_NONE || !submit(lease, &move, event.now, &news))
            return;
        event = (struct hf_event){
            .in = hf_input_of_cue(news.cue),
            .now = news.asked_at > event.now ? news.asked_at : event.now, /* later only if the engine took its time */
            .news = &news,
            .random = jitter(lease),
        };
    }
}

void hf_drive_input(struct hf_lease *lease, enum hf_input in, hf_status why)
{
    struct hf_event event = {.in = in, .now = hf_clock_boot(), .status = why, .random = jitter(lease)};
    hf_drive(lease, &event);
}

/* A lease whose hold was made elsewhere: held from here on if the engine says that it is, with that token. */
hf_status hf_drive_adopt(struct hf_lease *lease, uint64_t token)
{
    struct hf_news answer, *news = &answer;
    hf_nanos now = hf_clock_boot();
    struct hf_move check = {.verb = HF_V_CHECK};
    if (!submit(lease, &check, now, news))
        return hf_why(HF_UNSUPPORTED, "%s: this engine cannot attach", lease->name);
    if (news->cue == HF_N_FAILED)
        return hf_why(news->status, "%s: %s", lease->name, news->text ? news->text : "");
    if (news->cue != HF_N_EXTENDED || news->token != token)
        return hf_why(HF_LOST, "%s: the hold with token %llu has ended", lease->name, (unsigned long long)token);
    hf_nanos until = news->asked_at + news->good - hf_timing_drift(&lease->client->limits, news->good);
    hf_claim_adopt(&lease->claim, news->asked_at, until, token);
    publish(lease);
    keep_alive(lease);
    arm(lease, lease->claim.renew_at < until ? lease->claim.renew_at : until);
    return HF_OK;
}

void hf_drive_disown(struct hf_lease *lease)
{
    hf_claim_disown(&lease->claim);
    publish(lease);
    arm(lease, HF_NEVER);
    keep_alive(lease);
}

void hf_drive_peek(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    struct hf_news news;
    hf_nanos now = hf_clock_boot();
    if (lease->decided || !client->type->peek(client->engine, &lease->ask, now, &news))
        return;
    struct hf_event event = {.in = hf_input_of_cue(news.cue), .now = now, .news = &news, .random = jitter(lease)};
    hf_drive(lease, &event);
}
