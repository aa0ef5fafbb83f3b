/* drive.c - turns an event into moves of the claim, and the moves into submits, timers, reports. */
#include "client.h"

#include "base/status.h"
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
    if (lease->hooks && lease->hooks->done)
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
    if (lease->hooks && lease->hooks->on_lost && !lease->muted)
        hf_keeper_call(lease, HF_CB_LOST);
    if (hf_lease_group(lease))
        hf_keeper_call(lease, HF_CB_GROUP);
}

static void answer(struct hf_pending_call *call, hf_status status)
{
    call->over = true;
    call->status = status;
}

static inline void wake_callers(struct hf_lease *lease)
{
    uint32_t news = atomic_load_explicit(&lease->news, memory_order_relaxed); /* changes under its lock alone */
    atomic_store_explicit(&lease->news, news + 1, memory_order_release);
    if (lease->sleepers)
        hf_futex_wake(&lease->news, INT32_MAX);
    if (lease->parked)
        lease->client->type->wake(lease->client->engine, lease->parked);
}

static void report(struct hf_lease *lease, struct hf_deed deed, hf_nanos now)
{
    switch (deed.report) {
    case HF_R_NONE:
        return;
    case HF_R_GRANTED:
        decide(lease, HF_OK);
        break;
    case HF_R_DENIED:
        decide(lease, deed.status);
        break;
    case HF_R_QUEUED:
        count(lease->client, COUNT_QUEUED);
        break;
    case HF_R_EXTENDED:
        if (deed.status == HF_OK)
            count(lease->client, COUNT_EXTENDED);
        answer(&lease->change, deed.status);
        break;
    case HF_R_WARN:
        break;
    case HF_R_LOST:
        lose(lease, deed.status);
        answer(&lease->change, HF_LOST);
        break;
    case HF_R_RELEASED:
        if (deed.status == HF_OK)
            count(lease->client, COUNT_RELEASED);
        answer(&lease->release, deed.status);
        break;
    }
    if (lease->client->on_log)
        hf_journal_report(lease, deed.report, deed.status, now);
    wake_callers(lease);
}

/* A release by one thread ends the extend that another one waits for; the claim has no report for that. */
static inline void end_change_unheld(struct hf_lease *lease)
{
    if (!lease->change.open || lease->change.over || hf_lease_held(lease))
        return;
    answer(&lease->change, HF_NOT_HELD);
    wake_callers(lease);
}

/* ---- Moves ---- */

/* Callers sleep until the time that was set when they began to: an earlier one is news for them. */
static inline void arm(struct hf_lease *lease, hf_nanos when)
{
    bool earlier = when < lease->wake_at;
    lease->wake_at = when;
    if (earlier && (lease->sleepers || lease->parked))
        wake_callers(lease);
    if (!lease->caller_drives && when < atomic_load_explicit(&lease->timer.key, memory_order_relaxed))
        hf_keeper_timer(lease, when);
}

/* It has its last answer; hf_close may wait for that. */
static void settle(struct hf_lease *lease)
{
    if (lease->awaited && atomic_fetch_sub(&lease->client->awaited, 1) == 1)
        hf_futex_wake(&lease->client->awaited, INT32_MAX);
    lease->awaited = false;
}

static bool lives(const struct hf_lease *lease)
{
    return lease->claim.state != HF_S_OVER && lease->claim.state != HF_S_NEW;
}

/* A claim that is not over needs its lease, whether or not the caller still has the handle. Looked at after every step:
 * the engine must also forget an ask that begins and ends in one go. */
static inline void keep_alive(struct hf_lease *lease)
{
    bool alive = lives(lease);
    if (alive == lease->alive)
        return;
    lease->alive = alive;
    if (alive) {
        hf_lease_ref(lease);
    } else {
        lease->client->type->forget(lease->client->engine, &lease->ask);
        settle(lease);
        hf_lease_unref(lease); /* never the last one: whoever drives has one too */
    }
}

static inline bool submit(struct hf_lease *lease, struct hf_deed deed, hf_nanos now, struct hf_news *news)
{
    struct hf_ask *ask = &lease->ask;
    ask->verb = deed.verb;
    ask->doubt = deed.doubt;
    ask->lost = lease->lost_status != HF_OK;
    ask->bell = !lease->callers;
    ask->batched = hf_keeper_is_me(lease->client);
    ask->until = now + (ask->batched ? lease->claim.sheet->t.patience : lease->claim.sheet->t.op_timeout);
    if (deed.verb == HF_V_EXTEND)
        ask->ttl_ms = deed.ttl / HF_MS(1);
    return lease->client->type->submit(lease->client->engine, ask, now, news);
}

/* Jitter for this lease: unlike its neighbours', and unlike its last. */
static uint32_t jitter(const struct hf_lease *lease)
{
    uint32_t random;
    memcpy(&random, &lease->ask.attempt, sizeof random);
    return (random ^ lease->claim.tries * 0x9e3779b9u) * 0x85ebca6bu;
}

/* The words for an outcome are those of the last failure, unless something better was heard since. Whatever becomes of
 * a release in the background does not change what is said of the end before it. */
static void note_words(struct hf_lease *lease, const struct hf_news *news)
{
    const struct hf_claim *claim = &lease->claim;
    if (claim->state == HF_S_OVER || (claim->state == HF_S_RELEASING && !claim->asked_release))
        return;
    if (news->text)
        hf_lease_words(lease, news->text);
    else if (news->cue == HF_N_CUT)
        hf_lease_words(lease, hf_status_row(HF_IN_DOUBT)->text);
    else if (news->cue == HF_N_FAILED)
        hf_lease_words(lease, hf_status_row(news->status)->text);
    else if (news->cue <= HF_N_EXTENDED)
        hf_lease_words(lease, NULL);
}

static inline bool has_words(const struct hf_lease *lease, const struct hf_news *news)
{
    return lease->words || news->text || news->cue == HF_N_CUT || news->cue == HF_N_FAILED;
}

/* When what is reported happened. What is given back was not held from the moment of the wish on, however long the
 * answer took. */
static inline hf_nanos time_of(const struct hf_lease *lease, struct hf_deed deed, hf_nanos now)
{
    return deed.report == HF_R_LOST || deed.report == HF_R_RELEASED ? lease->claim.ended_at : now;
}

void hf_drive(struct hf_lease *lease, const struct hf_event *event)
{
    struct hf_event next; /* filled in piece by piece: copied as a whole it would have to wait for the pieces */
    struct hf_news news;
    for (;;) {
        hf_nanos now = event->now;
        if (event->in >= HF_I_GRANTED && has_words(lease, event->news))
            note_words(lease, event->news);
        struct hf_deed deed = hf_claim_act(&lease->claim, event);
        if (deed.report != HF_R_NONE)
            report(lease, deed, time_of(lease, deed, now));
        end_change_unheld(lease);
        keep_alive(lease);
        if (deed.verb == HF_V_NONE || !submit(lease, deed, now, &news)) {
            arm(lease, hf_claim_wake_at(&lease->claim));
            return;
        }
        next.in = hf_input_of_cue(news.cue);
        next.now = news.asked_at > now ? news.asked_at : now; /* later only if the engine took its time */
        next.news = &news;
        next.ttl_ms = 0, next.verb = HF_V_NONE, next.status = HF_OK;
        next.random = jitter(lease);
        event = &next;
    }
}

void hf_drive_input(struct hf_lease *lease, enum hf_input in, hf_status why)
{
    struct hf_event event = {.in = in, .now = hf_clock_boot(), .status = why, .random = jitter(lease)};
    hf_drive(lease, &event);
}

/* ---- Waiting for news ---- */

/* The last one out leaves what is under way to the keeper; another one must take its place and park. */
void hf_drive_hand_on(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (lease->callers) {
        wake_callers(lease);
        return;
    }
    if (client->type->unattend)
        client->type->unattend(client->engine, &lease->ask);
    if (lease->claim.state != HF_S_HELD)
        hf_keeper_flush(client);
}

/* One caller parks in the engine, the others sleep on what that one makes of the news. An engine that answers at once
 * has news of its own for those in its queue only. */
hf_nanos hf_drive_sleep(struct hf_lease *lease, hf_nanos until)
{
    struct hf_client *client = lease->client;
    bool parks = !lease->parked && (hf_client_hears_later(client) || lease->claim.state == HF_S_QUEUED);
    uint64_t slot = parks ? lease->ask.slot : 0;
    uint32_t seen = slot ? lease->ask.seen : atomic_load(&lease->news);
    until = until < lease->wake_at ? until : lease->wake_at;
    if (slot)
        lease->parked = slot;
    else
        lease->sleepers++;
    hf_client_stay(client); /* before hf_close can have the lock */
    hf_latch_unlock(&lease->lock);
    hf_nanos now = 0;
    if (slot)
        now = client->type->park(client->engine, slot, seen, until);
    else
        hf_futex_wait(&lease->news, seen, until);
    if (!hf_latch_try(&lease->lock)) {
        hf_latch_wait(&lease->lock);
        now = 0; /* whoever had it may have acted later than that */
    }
    hf_client_exit(client);
    if (slot)
        lease->parked = 0;
    else
        lease->sleepers--;
    return now ? now : hf_clock_boot();
}

void hf_drive_peek(struct hf_lease *lease, hf_nanos now)
{
    struct hf_client *client = lease->client;
    bool later = hf_client_hears_later(client);
    struct hf_news news;
    do {
        bool has_news = later ? lease->alive : !lease->decided; /* what is over was forgotten */
        if (!has_news || !client->type->peek(client->engine, &lease->ask, now, &news))
            return;
        struct hf_event event = {.in = hf_input_of_cue(news.cue), .now = now, .news = &news, .random = jitter(lease)};
        hf_drive(lease, &event);
    } while (later);
}

/* ---- Holds that come from a text and go into one ---- */

/* The one answer to a check that no claim is behind. False: none came in time. */
static bool hear_check(struct hf_lease *lease, hf_nanos now, struct hf_news *news)
{
    struct hf_client *client = lease->client;
    struct hf_deed check = {.verb = HF_V_CHECK};
    hf_nanos until = now + lease->claim.sheet->t.answer;
    if (submit(lease, check, now, news))
        return true;
    while (!client->type->peek(client->engine, &lease->ask, now, news)) {
        if (now >= until)
            return false;
        now = hf_drive_sleep(lease, until);
    }
    return true;
}

static hf_status refuse_adoption(const struct hf_lease *lease, const struct hf_news *news, uint64_t token)
{
    hf_status status = news->cue == HF_N_FAILED ? news->status : HF_IN_DOUBT;
    if (news->cue == HF_N_FAILED || news->cue == HF_N_CUT)
        return hf_why(status, "%s: %s", lease->ask.name, news->text ? news->text : hf_status_row(status)->text);
    return hf_why(HF_LOST, "%s: the hold with token %llu has ended", lease->ask.name, (unsigned long long)token);
}

static hf_status adopt(struct hf_lease *lease, uint64_t token)
{
    struct hf_news news;
    if (!hear_check(lease, hf_clock_boot(), &news))
        return hf_why(HF_UNAVAILABLE, "%s: no answer within %lld ms", lease->ask.name,
                      (long long)(lease->claim.sheet->t.answer / HF_MS(1)));
    if (news.cue != HF_N_EXTENDED || news.token != token)
        return refuse_adoption(lease, &news, token);
    hf_nanos until = news.asked_at + news.good - hf_timing_drift(&lease->client->limits, news.good);
    hf_claim_adopt(&lease->claim, news.asked_at, until, token);
    keep_alive(lease);
    arm(lease, lease->claim.act_at < until ? lease->claim.act_at : until);
    return HF_OK;
}

/* A lease whose hold was made elsewhere: held from here on if the engine says that it is, with that token. */
hf_status hf_drive_adopt(struct hf_lease *lease, uint64_t token)
{
    hf_drive_attend(lease);
    hf_status status = adopt(lease, token);
    if (status != HF_OK)
        lease->client->type->forget(lease->client->engine, &lease->ask);
    hf_drive_unattend(lease);
    return status;
}

/* What a brief grant still lacks of its ttl is asked for on the way out; nobody waits for the answer. */
void hf_drive_disown(struct hf_lease *lease)
{
    if (lease->claim.brief && lease->claim.state == HF_S_HELD)
        hf_drive_input(lease, HF_I_EXTEND, HF_OK);
    if (!hf_lease_held(lease))
        return;
    hf_claim_disown(&lease->claim);
    end_change_unheld(lease);
    arm(lease, HF_NEVER);
    keep_alive(lease);
}
