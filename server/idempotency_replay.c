/* idempotency_replay.c - keeps the answer under an Idempotency-Key in the engine, so that it can
 * be repeated.
 *
 * Before a grant is answered, a note is written: a lease named after the record and its token,
 * whose label contains the exported text of the granted lease. A request that finds the note
 * acquires nothing. It answers with the lease of the note, or says that this lease has ended and
 * its key is used up. This works on every instance and every engine. */
#include "lease_id.h"
#include "lock_client.h"
#include "pending_acquires.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PACKED_BYTES                                                                               \
    (SHA256_DIGEST_LENGTH + 1 + 4 + 4 + 8 + 8 +                                                    \
     8) /* its parts: two ids, kind, units, capacity, ttl, token, time */
#define NOTE_BYTES sizeof(((struct replay_note *)0)->name)

static unsigned long long record_token(const struct wait *wait)
{
    return (unsigned long long)hf_lease_token(wait->idempotency.record);
}

static void print_note_name(const struct wait *wait, char name[NOTE_BYTES])
{
    snprintf(name, NOTE_BYTES, "%s/%llu", wait->record, record_token(wait));
}

/* ---- Exported text and label ---- */

/* Encrypts both ids with a pad that only the key yields: labels are shown to others, and an attempt
 * id is enough to release a lease. Applying it twice decrypts. */
static void cover(const struct wait *wait, unsigned char ids[SHA256_DIGEST_LENGTH])
{
    char text[HEX_BYTES + 32];
    unsigned char pad[SHA256_DIGEST_LENGTH];
    int len = snprintf(text, sizeof text, "note %s %llu", wait->key, record_token(wait));

    SHA256((const unsigned char *)text, (size_t)len, pad);
    for (size_t i = 0; i < sizeof pad; i++)
        ids[i] ^= pad[i];
}

static void read_hex(const char *hex, unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned byte = 0;
        (void)sscanf(hex + 2 * i, "%2x", &byte);
        bytes[i] = (unsigned char)byte;
    }
}

static void put_number(unsigned char **at, uint64_t number, size_t bytes)
{
    for (; bytes > 0; bytes--, number >>= 8)
        *(*at)++ = (unsigned char)number;
}

static uint64_t take_number(const unsigned char **at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t) * (*at)++ << 8 * i;
    return number;
}

/* Packs the exported text, without the name, and the time of the grant: as text they would not
 * fit into a label. */
static bool print_label(const struct wait *wait, const char *text, char label[HF_LABEL_MAX + 1])
{
    struct lease_facts facts;
    unsigned char packed[PACKED_BYTES], *at = packed + SHA256_DIGEST_LENGTH;

    if (!lease_text_read(text, &facts))
        return false;

    read_hex(facts.attempt, packed, LEASE_HEX / 2);
    read_hex(facts.owner, packed + LEASE_HEX / 2, LEASE_HEX / 2);
    cover(wait, packed);
    put_number(&at, facts.kind, 1);
    put_number(&at, facts.units, 4);
    put_number(&at, facts.capacity, 4);
    put_number(&at, (uint64_t)facts.ttl_ms, 8);
    put_number(&at, facts.token, 8);
    put_number(&at, (uint64_t)wait->granted_ms, 8);

    return base64url_print(packed, sizeof packed, label, HF_LABEL_MAX + 1);
}

static bool read_label(struct wait *wait, const char *label, char text[HF_EXPORT_MAX])
{
    unsigned char packed[PACKED_BYTES];
    const unsigned char *at = packed + SHA256_DIGEST_LENGTH;
    char ids[HEX_BYTES];
    size_t size;

    if (!base64url_read(label, strlen(label), packed, sizeof packed, &size) ||
        size != sizeof packed)
        return false;

    cover(wait, packed);
    hex_print(packed, ids);
    unsigned kind = (unsigned)take_number(&at, 1), units = (unsigned)take_number(&at, 4);
    unsigned capacity = (unsigned)take_number(&at, 4);
    int64_t ttl_ms = (int64_t)take_number(&at, 8);
    uint64_t token = take_number(&at, 8);
    wait->granted_ms = (int64_t)take_number(&at, 8);

    return snprintf(text, HF_EXPORT_MAX, "hf1 %.32s %s %u %u %u %" PRId64 " %" PRIu64 " %s", ids,
                    ids + LEASE_HEX, kind, units, capacity, ttl_ms, token,
                    wait->name) < HF_EXPORT_MAX;
}

/* ---- Writing ---- */

static bool describe(const struct wait *wait, char label[HF_LABEL_MAX + 1])
{
    char text[HF_EXPORT_MAX];
    bool fine = hf_lease_export(wait->granted, text, sizeof text) == HF_OK &&
                print_label(wait, text, label);
    explicit_bzero(text, sizeof text);
    return fine;
}

bool idempotency_replay_request(const struct wait *wait, struct replay_note *note)
{
    print_note_name(wait, note->name);
    if (!describe(wait, note->label))
        return false;

    note->request = idempotency_record_request(note->name, &wait->idempotency);
    note->request.label = note->label;
    return true;
}

/* ---- Repeating an answer ---- */

struct recall {
    struct job job;
    struct wait *wait;
    char label[HF_LABEL_MAX + 1]; /* label of the note; empty: nothing was granted yet */
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
    hf_client *client = lock_client_client(wait->leases->server->engine);
    char name[NOTE_BYTES], text[HF_EXPORT_MAX];

    print_note_name(wait, name);
    recall->status = hf_show(client, name, take_label, recall);
    if (recall->status == HF_OK && *recall->label)
        recall->status = read_label(wait, recall->label, text)
                             ? hf_lease_attach(client, text, &recall->lease)
                             : HF_NOT_HELD;
    bool has_ended = recall->status == HF_OK && recall->lease && !hf_lease_ok(recall->lease);
    if (has_ended)
        recall->status = HF_LOST;
    if (recall->status != HF_OK)
        snprintf(wait->message, sizeof wait->message, "%s", hf_error_text());
    explicit_bzero(text, sizeof text);
}

static void answer_ended(struct wait *wait)
{
    for (struct exchange *x; (x = wait_take_requester(wait));) {
        char message[400];
        const struct piece *key = request_head_field(&x->head, "idempotency-key");
        snprintf(message, sizeof message,
                 "Idempotency-Key %.*s: its lease has ended; a new lease needs a new key",
                 key ? (int)key->len : 0, key ? key->at : "");
        answer_problem(x, 410, "key_ended", message, NULL);
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
        wait->replayed = true;
        wait_granted(wait);
        wait_free(wait);
    } else {
        hf_lease_free(recall->lease);
        if (ended)
            answer_ended(wait);
        else if (recall->status == HF_OK && !wait->leases->server->stopping)
            idempotency_start_lock(wait);
        else
            wait_refused(wait);
    }

    free(recall);
}

void idempotency_replay(struct wait *wait)
{
    struct recall *recall = calloc(1, sizeof *recall);

    if (!recall) {
        wait->outcome = HF_NO_MEMORY;
        wait_refused(wait);
        return;
    }

    *recall = (struct recall){.job = {do_recall, after_recall, NULL}, .wait = wait};
    wait->leases->busy++;
    lock_client_do(wait->leases->server->engine, wait->leases->server->workers, &recall->job);
}
