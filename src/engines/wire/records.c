/* records.c - what is kept of each ask: a mailbox of news that were told and not yet taken out.
 *
 * Records lie in chunks that stay where they are until the wire is closed: a slot that was forgotten can be looked up
 * without harm. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 32 };

/* ---- Finding ---- */

static uint64_t slot_of(const struct hf_wire_record *record)
{
    return (uint64_t)record->generation << 32 | (record->index + 1);
}

struct hf_wire_record *hf_wire_record_at(const struct hf_wire *wire, uint64_t slot)
{
    uint32_t index = (uint32_t)slot - 1;
    if (!slot || index / CHUNK >= wire->chunks)
        return NULL;
    struct hf_wire_record *record = &wire->chunk[index / CHUNK][index % CHUNK];
    return record->ask && slot_of(record) == slot ? record : NULL;
}

struct hf_wire_record *hf_wire_record_of(const struct hf_wire *wire, const struct hf_ask *ask)
{
    struct hf_wire_record *record = hf_wire_record_at(wire, ask->slot);
    return record && record->ask == ask ? record : NULL;
}

/* ---- Making and dropping ---- */

static bool add_chunk(struct hf_wire *wire)
{
    struct hf_wire_record **chunk = realloc(wire->chunk, (wire->chunks + 1) * sizeof *chunk);
    if (!chunk)
        return false;
    wire->chunk = chunk;
    struct hf_wire_record *records = calloc(CHUNK, sizeof *records);
    if (!records)
        return false;
    for (uint32_t i = 0; i < CHUNK; i++) {
        records[i].index = wire->chunks * CHUNK + i;
        records[i].next = i + 1 < CHUNK ? &records[i + 1] : NULL;
    }
    wire->chunk[wire->chunks++] = wire->free = records;
    return true;
}

struct hf_wire_record *hf_wire_record_make(struct hf_wire *wire, struct hf_ask *ask)
{
    if (!wire->free && !add_chunk(wire))
        return NULL;
    struct hf_wire_record *record = wire->free;
    wire->free = record->next;
    *record = (struct hf_wire_record){.ask = ask, .index = record->index, .generation = record->generation + 1};
    ask->slot = slot_of(record);
    ask->seen = 0;
    return record;
}

static void empty(struct hf_wire_record *record)
{
    for (; record->count; record->count--) {
        free(record->box[record->first].text);
        record->first = (record->first + 1) % HF_WIRE_BOX;
    }
    free(record->said);
    record->said = NULL;
}

void hf_wire_record_drop(struct hf_wire *wire, struct hf_wire_record *record)
{
    empty(record);
    record->ask->slot = 0;
    record->ask = NULL;
    record->next = wire->free;
    wire->free = record;
}

void hf_wire_records_free(struct hf_wire *wire)
{
    for (uint32_t i = 0; i < wire->chunks; i++) {
        for (uint32_t k = 0; k < CHUNK; k++)
            empty(&wire->chunk[i][k]);
        free(wire->chunk[i]);
    }
    free(wire->chunk);
}

/* ---- The mailbox ---- */

/* The place in the ring of the n-th unread one. */
static uint32_t place(const struct hf_wire_record *record, uint32_t n)
{
    return (record->first + n) % HF_WIRE_BOX;
}

/* The oldest that a later one may stand for: a hint, or a place in the queue. */
static uint32_t least_needed(const struct hf_wire_record *record)
{
    for (uint32_t n = 0; n < record->count; n++) {
        enum hf_cue cue = record->box[place(record, n)].news.cue;
        if (cue == HF_N_HINT || cue == HF_N_QUEUED)
            return n;
    }
    return 0;
}

static void make_room(struct hf_wire_record *record)
{
    uint32_t n = least_needed(record);
    free(record->box[place(record, n)].text);
    for (record->count--; n < record->count; n++)
        record->box[place(record, n)] = record->box[place(record, n + 1)];
}

void hf_wire_record_put(struct hf_wire_record *record, const struct hf_news *news)
{
    if (record->count == HF_WIRE_BOX)
        make_room(record);
    uint32_t at = place(record, record->count++);
    char *text = news->text ? strdup(news->text) : NULL; /* without memory the words are lost, the news are not */
    record->box[at].news = *news;
    record->box[at].news.text = record->box[at].text = text;
    record->told++;
}

bool hf_wire_record_take(struct hf_wire_record *record, struct hf_news *news)
{
    bool unread = record->count > 0;
    if (unread) {
        *news = record->box[record->first].news;
        free(record->said);
        record->said = record->box[record->first].text;
        record->first = place(record, 1);
        record->count--;
    }
    record->ask->seen = record->told - record->count;
    return unread;
}

void hf_wire_record_touch(struct hf_wire *wire, struct hf_wire_record *record)
{
    if (record->touched)
        return;
    record->touched = true;
    record->next = wire->touched;
    wire->touched = record;
}
