/* records.c - what is kept of each ask: a mailbox of news that were told and not yet taken out.
 *
 * Records lie in chunks that stay where they are until the wire is closed: a slot that was forgotten can be looked up
 * without harm. An ask has one, and the record its letters, only while there are news, or may be: a client may have
 * very many holds, and asks for few at a time. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- Letters ---- */

static struct hf_wire_letter *take_letter(struct hf_wire *wire)
{
    struct hf_wire_letter *letter = wire->letters;
    if (!letter)
        return malloc(sizeof *letter);
    wire->letters = letter->next;
    wire->letters_kept--;
    return letter;
}

static void give_letter(struct hf_wire *wire, struct hf_wire_letter *letter)
{
    if (!letter)
        return;
    if (wire->letters_kept == HF_WIRE_LETTERS) {
        free(letter);
        return;
    }
    letter->next = wire->letters;
    wire->letters = letter;
    wire->letters_kept++;
}

/* ---- Making and dropping ---- */

static bool add_chunk(struct hf_wire *wire)
{
    struct hf_wire_record **chunk = realloc(wire->chunk, (wire->chunks + 1) * sizeof *chunk);
    if (!chunk)
        return false;
    wire->chunk = chunk;
    struct hf_wire_record *records = calloc(HF_WIRE_CHUNK, sizeof *records);
    if (!records)
        return false;
    for (uint32_t i = 0; i < HF_WIRE_CHUNK; i++) {
        records[i].index = wire->chunks * HF_WIRE_CHUNK + i;
        records[i].next = i + 1 < HF_WIRE_CHUNK ? &records[i + 1] : NULL;
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
    ask->slot = hf_wire_slot_of(record);
    ask->seen = 0;
    return record;
}

static void empty(struct hf_wire *wire, struct hf_wire_record *record)
{
    for (; record->count; record->count--) {
        struct hf_wire_letter *letter = record->oldest;
        record->oldest = letter->next;
        free(letter->text);
        give_letter(wire, letter);
    }
    give_letter(wire, record->empty);
    free(record->said);
    record->empty = NULL;
    record->said = NULL;
}

void hf_wire_record_drop(struct hf_wire *wire, struct hf_wire_record *record)
{
    empty(wire, record);
    record->ask->slot = 0;
    record->ask = NULL;
    record->next = wire->free;
    wire->free = record;
}

void hf_wire_records_free(struct hf_wire *wire)
{
    for (uint32_t i = 0; i < wire->chunks; i++) {
        for (uint32_t k = 0; k < HF_WIRE_CHUNK; k++)
            empty(wire, &wire->chunk[i][k]);
        free(wire->chunk[i]);
    }
    free(wire->chunk);
    while (wire->letters)
        free(take_letter(wire));
}

/* ---- The mailbox ---- */

bool hf_wire_record_expect(struct hf_wire *wire, struct hf_wire_record *record)
{
    if (!record->empty)
        record->empty = take_letter(wire);
    return record->empty;
}

/* A later one may stand for it. */
static bool is_final(const struct hf_news *news)
{
    return news->cue != HF_N_HINT && news->cue != HF_N_QUEUED;
}

/* Takes out the oldest that this one may stand for: a hint, or a place in the queue. But no hint stands for an answer:
 * whoever asked would wait for it for ever. */
static struct hf_wire_letter *least_needed(struct hf_wire_record *record, const struct hf_news *by)
{
    bool hints = by->cue == HF_N_HINT;
    struct hf_wire_letter **at = &record->oldest;
    while (*at && (hints ? (*at)->news.cue != HF_N_HINT : is_final(&(*at)->news)))
        at = &(*at)->next;
    if (!*at && !hints)
        at = &record->oldest;
    struct hf_wire_letter *letter = *at;
    if (letter) {
        *at = letter->next;
        free(letter->text);
        record->count--;
    }
    return letter;
}

/* NULL: no room, where nothing was expected but a hint. */
static struct hf_wire_letter *find_room(struct hf_wire *wire, struct hf_wire_record *record, const struct hf_news *news)
{
    struct hf_wire_letter *letter = NULL;
    if (record->count < HF_WIRE_BOX && hf_wire_record_expect(wire, record)) {
        letter = record->empty;
        record->empty = NULL;
    }
    return letter ? letter : least_needed(record, news);
}

void hf_wire_record_put(struct hf_wire *wire, struct hf_wire_record *record, const struct hf_news *news)
{
    struct hf_wire_letter *letter = find_room(wire, record, news), **end = &record->oldest;
    record->final = is_final(news);
    record->told++;
    if (!letter)
        return;
    letter->text = news->text ? strdup(news->text) : NULL; /* without memory the words are lost, the news are not */
    letter->news = *news;
    letter->news.text = letter->text;
    letter->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = letter;
    record->count++;
}

bool hf_wire_record_take(struct hf_wire *wire, struct hf_wire_record *record, struct hf_news *news)
{
    struct hf_wire_letter *letter = record->oldest;
    if (letter) {
        *news = letter->news;
        free(record->said);
        record->said = letter->text;
        record->oldest = letter->next;
        record->count--;
        give_letter(wire, letter);
    }
    record->ask->seen = record->told - record->count;
    if (!record->count && record->final && !record->ask->lines) { /* nothing more will come */
        give_letter(wire, record->empty);
        record->empty = NULL;
    } else {
        hf_wire_record_expect(wire, record);
    }
    return letter;
}

/* Words that were taken out may still be read: with them it stays until the next submit, or until it is forgotten. */
void hf_wire_record_rest(struct hf_wire *wire, struct hf_wire_record *record)
{
    bool told_all = record->final && !record->due && !record->count && !record->said;
    bool unused = !record->parked && !record->touched && !record->stake && !record->ask->lines;
    if (told_all && unused)
        hf_wire_record_drop(wire, record);
}

void hf_wire_record_touch(struct hf_wire *wire, struct hf_wire_record *record)
{
    if (record->touched)
        return;
    record->touched = true;
    record->next = wire->touched;
    wire->touched = record;
}
