/* etcd_messages.c - the messages of etcd's API v3 that the engine sends and reads. */
#include "etcd_messages.h"

#include <assert.h>
#include <string.h>

/* ---- Requests ---- */

static void put_slice(struct pb_writer *to, unsigned field, struct slice slice)
{
    if (slice.len)
        pb_put_bytes(to, field, slice.at, slice.len);
}

void message_compare(struct pb_writer *to, struct slice key, struct slice range_end,
                     enum compare_target target, enum compare_relation relation, uint64_t revision)
{
    assert(key.len);
    unsigned field = target == COMPARE_CREATED ? 5 : 6;
    size_t compare = pb_begin(to, 1);
    pb_put_number(to, 1, relation);
    pb_put_number(to, 2, target);
    put_slice(to, 3, key);

    if (revision)
        pb_put_number(to, field, revision);
    else
        pb_put_zero(to, field);

    put_slice(to, 64, range_end);
    pb_end(to, compare);
}

void message_compare_value(struct pb_writer *to, struct slice key, struct slice value)
{
    assert(key.len && value.at);
    size_t compare = pb_begin(to, 1);
    pb_put_number(to, 2, 3);
    put_slice(to, 3, key);
    pb_put_bytes(to, 7, value.at, value.len);
    pb_end(to, compare);
}

void message_txn_put(struct pb_writer *to, enum txn_branch branch, struct slice key,
                     struct slice value, int64_t lease)
{
    assert(key.len);
    size_t op = pb_begin(to, branch), put = pb_begin(to, 2);
    put_slice(to, 1, key);
    put_slice(to, 2, value);
    pb_put_number(to, 3, (uint64_t)lease);
    pb_end(to, put);
    pb_end(to, op);
}

struct txn_inside message_txn_begin(struct pb_writer *to, enum txn_branch branch)
{
    struct txn_inside inside;
    inside.op = pb_begin(to, branch);
    inside.txn = pb_begin(to, 4);
    return inside;
}

void message_txn_end(struct pb_writer *to, struct txn_inside inside)
{
    pb_end(to, inside.txn);
    pb_end(to, inside.op);
}

void message_txn_delete(struct pb_writer *to, enum txn_branch branch, struct slice key)
{
    assert(key.len);
    size_t op = pb_begin(to, branch), deletion = pb_begin(to, 3);
    put_slice(to, 1, key);
    pb_end(to, deletion);
    pb_end(to, op);
}

void message_range(struct pb_writer *to, const struct range_request *range)
{
    assert(range->key.len);
    const uint64_t ascending = 1, by_creation = 2;
    put_slice(to, 1, range->key);
    put_slice(to, 2, range->range_end);
    pb_put_number(to, 3, range->limit);
    pb_put_number(to, 4, range->revision);

    if (range->range_end.len) {
        pb_put_number(to, 5, ascending);
        pb_put_number(to, 6, range->by_key ? 0 : by_creation);
    }

    pb_put_number(to, 7, range->serializable);
}

void message_txn_range(struct pb_writer *to, enum txn_branch branch,
                       const struct range_request *range)
{
    size_t op = pb_begin(to, branch), read = pb_begin(to, 1);
    message_range(to, range);
    pb_end(to, read);
    pb_end(to, op);
}

void message_lease_grant(struct pb_writer *to, int64_t seconds)
{
    assert(seconds > 0);
    pb_put_number(to, 1, (uint64_t)seconds);
}

void message_lease_id(struct pb_writer *to, int64_t lease)
{
    assert(lease);
    pb_put_number(to, 1, (uint64_t)lease);
}

void message_watch(struct pb_writer *to, int64_t watch_id, struct slice key, struct slice range_end,
                   bool deletes_only)
{
    static const char no_puts[] = {0};
    assert(watch_id > 0);
    size_t create = pb_begin(to, 1);
    put_slice(to, 1, key);
    put_slice(to, 2, range_end);
    if (deletes_only)
        pb_put_bytes(to, 5, no_puts, sizeof no_puts);
    pb_put_number(to, 7, (uint64_t)watch_id);
    pb_end(to, create);
}

void message_unwatch(struct pb_writer *to, int64_t watch_id)
{
    assert(watch_id > 0);
    size_t cancel = pb_begin(to, 2);
    pb_put_number(to, 1, (uint64_t)watch_id);
    pb_end(to, cancel);
}

void message_authenticate(struct pb_writer *to, const char *user, const char *password)
{
    assert(user && password);
    pb_put_bytes(to, 1, user, strlen(user));
    pb_put_bytes(to, 2, password, strlen(password));
}

/* ---- Replies ---- */

static struct slice slice_of(const struct pb_reader *inside)
{
    return (struct slice){inside->at, pb_len(inside)};
}

static bool read_header(struct reply_header *header, struct pb_reader from)
{
    struct pb_field field;
    while (pb_next(&from, &field)) {
        if (field.number == 1)
            header->cluster = field.value;
        else if (field.number == 2)
            header->member = field.value;
        else if (field.number == 3)
            header->revision = field.value;
        else if (field.number == 4)
            header->term = field.value;
    }

    return !from.bad;
}

/* Reads a field of a RangeResponse. `pairs` is set to the whole message; message_next_pair() finds
 * the pairs in it. */
static void read_range_field(struct message *m, const struct pb_field *field)
{
    if (field->number == 3)
        m->more = field->value;
    else if (field->number == 4)
        m->count = field->value;
}

static void read_field(struct message *m, enum message_kind kind, const struct pb_field *field)
{
    bool second = field->number == 2;
    switch (kind) {
    case MESSAGE_TXN:
        if (second)
            m->succeeded = field->value;
        break;
    case MESSAGE_RANGE:
        read_range_field(m, field);
        break;
    case MESSAGE_LEASE:
        if (second)
            m->lease = (int64_t)field->value;
        else if (field->number == 3)
            m->ttl = (int64_t)field->value;
        break;
    case MESSAGE_AUTH:
        if (second)
            m->token = slice_of(&field->inside);
        break;
    }
}

bool message_read(struct message *m, enum message_kind kind, const char *bytes, size_t len)
{
    assert(bytes || !len);
    struct pb_reader reader = pb_read(bytes, len);
    struct pb_field field;
    bool good = true;
    *m = (struct message){.responses = reader, .pairs = reader};

    while (pb_next(&reader, &field)) {
        if (field.number == 1)
            good &= read_header(&m->header, field.inside);
        else
            read_field(m, kind, &field);
    }

    return good && !reader.bad;
}

bool message_next_response(struct pb_reader *responses, struct message *read)
{
    struct pb_field field;
    *read = (struct message){0};
    while (pb_next(responses, &field)) {
        struct pb_field part;
        if (field.number != 3)
            continue;

        bool is_range = pb_next(&field.inside, &part) && part.number == 1;
        read->pairs = is_range ? part.inside : (struct pb_reader){0};
        for (struct pb_reader each = read->pairs; pb_next(&each, &part);)
            read_range_field(read, &part);
        return true;
    }

    return false;
}

static bool read_pair(struct key_value *pair, struct pb_reader from)
{
    struct pb_field field;
    *pair = (struct key_value){0};
    while (pb_next(&from, &field)) {
        if (field.number == 1)
            pair->key = slice_of(&field.inside);
        else if (field.number == 2)
            pair->created = field.value;
        else if (field.number == 3)
            pair->changed = field.value;
        else if (field.number == 5)
            pair->value = slice_of(&field.inside);
        else if (field.number == 6)
            pair->lease = (int64_t)field.value;
    }

    return !from.bad;
}

bool message_next_pair(struct pb_reader *pairs, struct key_value *pair)
{
    struct pb_field field;
    while (pb_next(pairs, &field))
        if (field.number == 2)
            return read_pair(pair, field.inside);
    return false;
}

bool message_read_watch(struct watch_message *m, const char *bytes, size_t len)
{
    assert(bytes || !len);
    struct pb_reader reader = pb_read(bytes, len);
    struct pb_field field;
    bool good = true;
    *m = (struct watch_message){.events = reader};

    while (pb_next(&reader, &field)) {
        if (field.number == 1)
            good &= read_header(&m->header, field.inside);
        else if (field.number == 2)
            m->watch_id = (int64_t)field.value;
        else if (field.number == 3)
            m->created = field.value;
        else if (field.number == 4)
            m->canceled = field.value;
        else if (field.number == 6)
            m->reason = slice_of(&field.inside);
    }

    return good && !reader.bad;
}

bool message_next_event(struct pb_reader *events, struct watch_event *event)
{
    struct pb_field field, part;
    while (pb_next(events, &field)) {
        if (field.number != 11)
            continue;
        *event = (struct watch_event){0};
        bool good = true;
        while (pb_next(&field.inside, &part)) {
            if (part.number == 1)
                event->deleted = part.value == 1;
            else if (part.number == 2)
                good &= read_pair(&event->pair, part.inside);
        }
        return good && !field.inside.bad;
    }

    return false;
}
