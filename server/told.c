/* told.c - what was answered under an Idempotency-Key, kept in the engine so that it can be told again.
 *
 * Before a lease is answered, a note of it is written: a lease of its own, named after the record and its token, whose
 * label is the text of the lease. A request that finds the note asks for nothing: the lease of the note is told again,
 * or has ended, and then its key is used up. Whatever instance it is, and whatever engine. */
#include "engine.h"
#include "waits.h"
#include <stdlib.h>
#include <string.h>

#define ID_HEX 32
#define NOTE_BYTES sizeof(((struct told_note *)0)->name)

static unsigned long long record_token(const struct wait *wait)
{
    return (unsigned long long)hf_lease_token(wait->keyed.record);
}

static void print_note_name(const struct wait *wait, char name[NOTE_BYTES])
{
    snprintf(name, NOTE_BYTES, "%s/%llu", wait->record, record_token(wait));
}

/* ---- Text and label ---- */

/* Labels are shown to others, and who knows an attempt can release: a pad that only the key gives lies over it. Putting
 * it on twice takes it off. */
static bool cover(const struct wait *wait, char hex[ID_HEX + 1])
{
    char text[HEX_BYTES + 32];
    unsigned char pad[SHA256_DIGEST_LENGTH];
    int len = snprintf(text, sizeof text, "note %s %llu", wait->key, record_token(wait));
    SHA256((const unsigned char *)text, (size_t)len, pad);
    for (size_t i = 0; i < ID_HEX / 2; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        unsigned byte;
        if (sscanf(digits, "%2x", &byte) != 1)
            return false;
        snprintf(digits, sizeof digits, "%02x", byte ^ pad[i]);
        memcpy(hex + 2 * i, digits, 2);
    }
    return true;
}

/* The text has its version, the attempt, the owner, which is the attempt again, what was asked for, and the name. */
static bool print_label(const struct wait *wait, const char *text, char label[HF_LABEL_MAX + 1])
{
    char version[8], attempt[ID_HEX + 1], owner[ID_HEX + 1];
    int rest = 0;
    size_t len = strlen(text), name = strlen(wait->name) + 1;
    if (sscanf(text, "%7s %32s %32s %n", version, attempt, owner, &rest) != 3 || strcmp(attempt, owner) != 0 ||
        strlen(attempt) != ID_HEX || len < (size_t)rest + name || !cover(wait, attempt))
        return false;
    return snprintf(label, HF_LABEL_MAX + 1, "%s %s %.*s", version, attempt, (int)(len - name - (size_t)rest),
                    text + rest) <= HF_LABEL_MAX;
}

static bool read_label(const struct wait *wait, const char *label, char text[HF_EXPORT_MAX])
{
    char version[8], attempt[ID_HEX + 1];
    int rest = 0;
    if (sscanf(label, "%7s %32s %n", version, attempt, &rest) != 2 || strlen(attempt) != ID_HEX ||
        !cover(wait, attempt))
        return false;
    return snprintf(text, HF_EXPORT_MAX, "%s %s %s %s %s", version, attempt, attempt, label + rest, wait->name) <
           HF_EXPORT_MAX;
}

/* ---- Writing ---- */

static bool describe(const struct wait *wait, char label[HF_LABEL_MAX + 1])
{
    char text[HF_EXPORT_MAX];
    bool fine = hf_lease_export(wait->granted, text, sizeof text) == HF_OK && print_label(wait, text, label);
    explicit_bzero(text, sizeof text);
    return fine;
}

bool told_request(const struct wait *wait, struct told_note *note)
{
    print_note_name(wait, note->name);
    if (!describe(wait, note->label))
        return false;
    note->request = keyed_record_request(note->name, &wait->keyed);
    note->request.label = note->label;
    return true;
}

/* ---- Telling again ---- */

struct recall {
    struct job job;
    struct wait *wait;
    char label[HF_LABEL_MAX + 1]; /* empty: nothing was told yet */
    hf_lease *lease;
    hf_status status;
};

static void take_label(void *arg, const struct hf_row *row)
{
    struct recall *recall = arg;
    if (row->role == HF_HOLDER && row->label)
        snprintf(recall->label, sizeof recall->label, "%s", row->label);
}

static void do_recall(struct job *job)
{
    struct recall *recall = (struct recall *)(void *)job;
    struct wait *wait = recall->wait;
    hf_client *client = engine_client(wait->leases->server->engine);
    char name[NOTE_BYTES], text[HF_EXPORT_MAX];
    print_note_name(wait, name);
    recall->status = hf_show(client, name, take_label, recall);
    if (recall->status == HF_OK && *recall->label)
        recall->status =
            read_label(wait, recall->label, text) ? hf_lease_attach(client, text, &recall->lease) : HF_NOT_HELD;
    if (recall->status == HF_OK && recall->lease && !hf_lease_ok(recall->lease))
        recall->status = HF_LOST;
    if (recall->status != HF_OK)
        snprintf(wait->words, sizeof wait->words, "%s", hf_error_text());
    explicit_bzero(text, sizeof text);
}

static void answer_ended(struct wait *wait)
{
    for (struct exchange *x; (x = wait_take_asker(wait));) {
        char words[400];
        const struct piece *key = head_field(&x->head, "idempotency-key");
        snprintf(words, sizeof words, "Idempotency-Key %.*s: its lease has ended; a new lease needs a new key",
                 key ? (int)key->len : 0, key ? key->at : "");
        answer_problem(x, 410, "key_ended", words, NULL);
    }
    wait_free(wait);
}

static void after_recall(struct job *job)
{
    struct recall *recall = (struct recall *)(void *)job;
    struct wait *wait = recall->wait;
    bool ended = recall->status == HF_LOST || recall->status == HF_NOT_HELD;
    wait->leases->busy--;
    wait->outcome = recall->status;
    if (recall->status == HF_OK && recall->lease) {
        wait->lease = recall->lease;
        wait->told = true;
        wait_granted(wait);
        wait_free(wait);
    } else {
        hf_lease_free(recall->lease);
        if (ended)
            answer_ended(wait);
        else if (recall->status == HF_OK && !wait->leases->server->stopping)
            keyed_start_lock(wait);
        else
            wait_refused(wait);
    }
    free(recall);
}

void told_recall(struct wait *wait)
{
    struct recall *recall = calloc(1, sizeof *recall);
    if (!recall) {
        wait->outcome = HF_NO_MEMORY;
        wait_refused(wait);
        return;
    }
    *recall = (struct recall){.job = {do_recall, after_recall, NULL}, .wait = wait};
    wait->leases->busy++;
    engine_ask(wait->leases->server->engine, wait->leases->server->workers, &recall->job);
}
