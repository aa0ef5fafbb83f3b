/* driver.c - the functions of the door that ask and look; what the engine behind it may touch. */
#include "inside.h"

#include "base/settings.h"
#include "base/why.h"
#include "sys/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- What the engine says ---- */

static void tell(void *ctx, struct hf_ask *ask, const struct hf_news *news)
{
    struct hf_wire *wire = ctx;
    struct hf_wire_record *record = hf_wire_record_of(wire, ask);
    if (!record)
        return;
    record->answered = true;
    if (news->cue != HF_N_HINT && record->due)
        record->due--;
    hf_wire_record_put(wire, record, news);
    hf_wire_record_touch(wire, record);
}

static void recheck(void *ctx)
{
    struct hf_wire *wire = ctx;
    wire->host->recheck(wire->host->ctx);
    hf_wire_ring(wire);
}

static uint32_t draw(void *ctx)
{
    struct hf_wire *wire = ctx;
    uint32_t number;
    hf_entropy_take(&wire->entropy, &number, sizeof number);
    return number;
}

/* ---- Opening and closing ---- */

static void free_wire(struct hf_wire *wire)
{
    hf_wire_lines_close(wire);
    hf_wire_records_free(wire);
    if (wire->background.kick >= 0)
        close(wire->background.kick);
    free(wire);
}

static hf_status open_parts(struct hf_wire *wire, const struct hf_url *url, const struct hf_settings *settings)
{
    int error = hf_entropy_seed(&wire->entropy);
    if (!error && (wire->background.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        error = errno;
    if (error)
        return hf_why(HF_NO_MEMORY, "no memory for connections: %s", strerror(error));
    wire->wire_host = (struct hf_wire_host){
        .ctx = wire,
        .dial = hf_wire_dial,
        .send = hf_wire_send,
        .hang_up = hf_wire_hang_up,
        .tell = tell,
        .row = hf_wire_row,
        .stand = hf_wire_stand,
        .find = hf_wire_find,
        .recheck = recheck,
        .random = draw,
    };
    return wire->type->open(&wire->engine, url, settings, &wire->wire_host);
}

hf_status hf_wire_open(void **self, const struct hf_url *url, const struct hf_settings *settings,
                       const struct hf_host *host, const struct hf_wire_type *type)
{
    *self = NULL;
    struct hf_wire *wire = calloc(1, sizeof *wire);
    if (!wire)
        return hf_why(HF_NO_MEMORY, "no memory for connections");
    wire->type = type;
    wire->host = host;
    wire->spin = hf_machine_cpus() > 1 ? 1000 * settings->value[HF_SET_SPIN] : 0;
    wire->background.kick = -1;
    for (unsigned i = 0; i < HF_WIRE_LINES; i++)
        wire->line[i].kick = -1;
    hf_status status = open_parts(wire, url, settings);
    if (status == HF_OK)
        *self = wire;
    else
        free_wire(wire);
    return status;
}

void hf_wire_close(void *self)
{
    struct hf_wire *wire = self;
    wire->type->close(wire->engine);
    free_wire(wire);
}

hf_status hf_wire_enter(void *self)
{
    struct hf_wire *wire = self;
    hf_latch_lock(&wire->io);
    wire->background_thread = pthread_self();
    wire->entered = true;
    hf_wire_unlock(wire);
    return HF_OK;
}

void hf_wire_leave(void *self)
{
    struct hf_wire *wire = self;
    hf_latch_lock(&wire->io);
    wire->entered = false;
    hf_wire_unlock(wire);
}

/* ---- Asking ---- */

/* What was sent goes out, unless more follows, and somebody reads what an unattended ask waits for. The background
 * thread does both itself, once for all, when it attends. */
static void see_off(struct hf_wire *wire, const struct hf_ask *unattended)
{
    if (hf_wire_is_background(wire))
        return;
    if (!unattended) {
        hf_wire_flush_or_leave(wire);
        return;
    }
    if (!unattended->batched)
        hf_wire_flush_lines(wire);
    hf_wire_offer(wire, unattended->lines);
    if (!unattended->lines || unattended->lines & ~wire->open)
        hf_wire_rouse(wire, &wire->background); /* only a tick opens that line, perhaps sooner than it knows */
}

static bool submit(struct hf_wire *wire, struct hf_wire_record *record, hf_nanos now, struct hf_news *news)
{
    struct hf_ask *ask = record->ask;
    uint32_t unread = record->count;
    record->attended = !ask->bell;
    record->answered = false;
    record->due++;
    wire->asked_slot = ask->slot;
    wire->asked_at = now;
    wire->type->submit(wire->engine, ask, now);
    bool at_once = unread == 0 && record->count == 1 && hf_wire_record_take(wire, record, news);
    if (record->stake || record->count || !record->attended)
        hf_wire_record_touch(wire, record);
    hf_wire_settle(wire);
    if (ask->bell || at_once) /* else the caller parks, and sends */
        see_off(wire, ask->bell && (!at_once || ask->lines) ? ask : NULL);
    return at_once;
}

bool hf_wire_submit(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_wire *wire = self;
    hf_latch_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_of(wire, ask);
    if (!record)
        record = hf_wire_record_make(wire, ask);
    bool answered = true;
    hf_wire_look_at_idle(wire, now);
    if (record && hf_wire_record_expect(wire, record)) {
        answered = submit(wire, record, now, news);
        hf_wire_record_rest(wire, record);
    } else {
        *news = (struct hf_news){.cue = HF_N_FAILED,
                                 .asked_at = now,
                                 .retry_at = HF_NEVER,
                                 .status = HF_NO_MEMORY,
                                 .text = "no memory for another ask"};
    }
    hf_wire_unlock(wire);
    return answered;
}

bool hf_wire_peek(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_wire *wire = self;
    (void)now;
    if (!ask->slot) /* it rests: only a submit changes that, and the caller has the lease's lock */
        return false;
    hf_latch_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_of(wire, ask);
    bool unread = record && hf_wire_record_take(wire, record, news);
    if (record)
        hf_wire_record_rest(wire, record);
    hf_wire_unlock(wire);
    return unread;
}

void hf_wire_unattend(void *self, struct hf_ask *ask)
{
    struct hf_wire *wire = self;
    if (!ask->slot)
        return;
    hf_latch_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_of(wire, ask);
    if (record && record->attended) {
        record->attended = false;
        hf_wire_record_touch(wire, record);
        hf_wire_settle(wire);
        see_off(wire, record->answered && !ask->lines ? NULL : ask); /* a cycle of one caller wakes nobody */
    }
    hf_wire_unlock(wire);
}

void hf_wire_flush(void *self)
{
    struct hf_wire *wire = self;
    hf_latch_lock(&wire->io);
    hf_wire_flush_lines(wire);
    hf_wire_unlock(wire);
}

void hf_wire_forget(void *self, struct hf_ask *ask)
{
    struct hf_wire *wire = self;
    hf_latch_lock(&wire->io);
    struct hf_wire_record *record = hf_wire_record_of(wire, ask);
    wire->type->forget(wire->engine, ask);
    if (record)
        hf_wire_dismiss(wire, record);
    else
        hf_wire_settle(wire);
    see_off(wire, NULL);
    hf_wire_unlock(wire);
}
