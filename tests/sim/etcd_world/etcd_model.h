/* etcd_model.h - a model of etcd's API v3: keys with revisions, leases, transactions and watches.
 * It reads and writes the same messages as a server. */
#pragma once
#include "etcd_world.h"

enum { KEYS = 128, LEASES = 512, WATCHES = 256, TEXT = 440 };

struct pair {
    char key[96], value[TEXT];
    size_t key_len, len;
    uint64_t created, changed;
    int64_t lease;
};

struct lease {
    int64_t id, seconds;
    nanos ends_at;
};

struct watch {
    unsigned link;
    int32_t stream;
    int64_t id;
    char key[96], end[96];
    size_t key_len, end_len;
    bool deletes_only;
};

struct change {
    struct pair pair; /* as it is now, or was */
    bool deleted;
};

static struct {
    struct pair pair[KEYS];
    unsigned pairs;
    struct change change[KEYS]; /* of this revision */
    unsigned changes;
    struct lease lease[LEASES];
    unsigned leases;
    struct watch watch[WATCHES];
    unsigned watches;
    uint64_t revision, term;
    int64_t next_lease;
    bool delays;       /* the clients have lock_delay */
    bool inside_holds; /* see check_writes() */
    bool resizes;      /* the transaction in hand changes the capacity */
    uint32_t capacity; /* of the semaphore, in force */
} store;

static void send_message(unsigned link, int32_t stream, int code, const char *text,
                         const struct pb_writer *message, bool is_watch);

/* ---- Keys ---- */

static bool is_in(const char *key, size_t len, struct slice first, struct slice last)
{
    size_t shorter = len < first.len ? len : first.len;
    int order = memcmp(key, first.at, shorter);
    if (!last.len)
        return len == first.len && order == 0;
    if (order < 0 || (order == 0 && len < first.len))
        return false;
    shorter = len < last.len ? len : last.len;
    order = memcmp(key, last.at, shorter);
    return order < 0 || (order == 0 && len < last.len);
}

static struct pair *pair_of(struct slice key)
{
    for (unsigned i = 0; i < store.pairs; i++)
        if (is_in(store.pair[i].key, store.pair[i].key_len, key, SLICE_NONE))
            return &store.pair[i];
    return NULL;
}

static struct lease *lease_of(int64_t id)
{
    for (unsigned i = 0; i < store.leases; i++)
        if (store.lease[i].id == id)
            return &store.lease[i];
    return NULL;
}

/* Of a semaphore: how many units are marked as held? */
static uint32_t permits_of(const char *value, size_t len)
{
    char text[TEXT], flags[8] = "";
    unsigned units = 0;
    if (len < 6 || value[4] != 's')
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)len, value);
    bool is_semaphore = sscanf(text, "hf1 s %u %*u %*u %7s", &units, flags) == 2;
    return is_semaphore && strchr(flags, 'h') ? units : 0;
}

/* A hold of a semaphore is taken, or its capacity is changed. Whoever takes one must fit, whatever
 * it knew of the capacity. */
static void see_permits(struct slice key, struct slice value, const struct pair *before)
{
    unsigned capacity;
    char text[64];
    uint32_t held = permits_of(value.at, value.len);
    if (memmem(key.at, key.len, "/.m/", 4)) {
        snprintf(text, sizeof text, "%.*s", (int)value.len, value.at);
        if (sscanf(text, "hf1 %*u %u", &capacity) != 1)
            abort();
        store.capacity = capacity;
        sum.resizes++;
        history_add(judge,
                    &(struct history_event){.at = w.now, .what = H_RESIZED, .capacity = capacity});
    }
    bool is_taken =
        held && !store.resizes && before->len && !permits_of(before->value, before->len);
    for (unsigned i = 0; i < store.pairs && is_taken; i++)
        if (&store.pair[i] != before)
            held += permits_of(store.pair[i].value, store.pair[i].len);
    if (is_taken && held > store.capacity)
        flaw("%u units of %u are taken", held, store.capacity);
}

static void put(struct slice key, struct slice value, int64_t lease)
{
    struct pair *pair = pair_of(key);
    if (!pair) {
        if (store.pairs == KEYS || key.len >= sizeof pair->key || value.len >= TEXT)
            abort();
        pair = &store.pair[store.pairs++];
        pair->key_len = key.len;
        pair->created = store.revision;
        pair->len = 0;
        memcpy(pair->key, key.at, key.len);
    }
    see_permits(key, value, pair);
    bool is_epoch = memmem(key.at, key.len, "/.s/", 4) && pair->len == value.len;
    if (is_epoch && memcmp(value.at, pair->value, value.len) < 0)
        flaw("an epoch was lowered");
    if (value.len)
        memcpy(pair->value, value.at, value.len);
    pair->len = value.len;
    pair->changed = store.revision;
    pair->lease = lease;
    store.change[store.changes++] = (struct change){.pair = *pair};
}

static struct slice slice_of(const struct pb_field *field)
{
    return (struct slice){field->inside.at, pb_len(&field->inside)};
}

static void write_header(struct pb_writer *to, unsigned link)
{
    const struct member *member = &members[link];
    bool is_stale = member->stale_until > w.now;
    size_t header = pb_begin(to, 1);
    pb_put_number(to, 1, 77);
    pb_put_number(to, 2, 1 + links[link].client); /* clients have members of their own */
    pb_put_number(to, 3, store.revision);
    pb_put_number(to, 4, planted == PLANT_NO_TERM ? 1 : is_stale ? member->term : store.term);
    pb_end(to, header);
}

static void delete_pair(struct pair *pair)
{
    store.change[store.changes++] = (struct change){.pair = *pair, .deleted = true};
    if (memmem(pair->key, pair->key_len, "/.m/", 4))
        store.capacity = PERMITS;
    *pair = store.pair[--store.pairs];
}

static void write_pair(struct pb_writer *to, const struct pair *pair)
{
    size_t kv = pb_begin(to, 2);
    pb_put_bytes(to, 1, pair->key, pair->key_len);
    pb_put_number(to, 2, pair->created);
    pb_put_number(to, 3, pair->changed);
    if (pair->len)
        pb_put_bytes(to, 5, pair->value, pair->len);
    pb_put_number(to, 6, (uint64_t)pair->lease);
    pb_end(to, kv);
}

static void write_event(struct pb_writer *to, const struct change *change)
{
    size_t event = pb_begin(to, 11);
    pb_put_number(to, 1, change->deleted);
    if (change->deleted) {
        size_t kv = pb_begin(to, 2);
        pb_put_bytes(to, 1, change->pair.key, change->pair.key_len);
        pb_put_number(to, 3, store.revision);
        pb_end(to, kv);
    } else {
        write_pair(to, &change->pair);
    }
    pb_end(to, event);
}

static bool is_for(const struct watch *one, const struct change *change)
{
    struct slice first = {one->key, one->key_len}, end = {one->end, one->end_len};
    bool is_filtered = one->deletes_only || planted == PLANT_NO_CHANGES;
    return is_in(change->pair.key, change->pair.key_len, first, end) &&
           (change->deleted || !is_filtered);
}

/* A revision is over: each watch gets all that it changed, in one message. */
static void tell_changes(void)
{
    static struct pb_writer message;
    for (unsigned i = 0; i < store.watches && store.changes; i++) {
        const struct watch *one = &store.watch[i];
        unsigned events = 0;
        pb_clear(&message);
        write_header(&message, one->link);
        pb_put_number(&message, 2, (uint64_t)one->id);
        for (unsigned k = 0; k < store.changes; k++) {
            bool matches = is_for(one, &store.change[k]);
            events += matches;
            if (matches)
                write_event(&message, &store.change[k]);
        }
        if (events)
            send_message(one->link, one->stream, -1, "", &message, true);
    }
    store.changes = 0;
}

static void end_lease(struct lease *lease)
{
    int64_t id = lease->id;
    bool has_keys = false;
    *lease = store.lease[--store.leases];
    for (unsigned i = 0; i < store.pairs; i++)
        has_keys |= store.pair[i].lease == id;
    store.revision += has_keys;
    for (unsigned i = 0; i < store.pairs;) {
        if (store.pair[i].lease == id)
            delete_pair(&store.pair[i]);
        else
            i++;
    }
    tell_changes();
}

/* The lessor looks now and then. */
static void expire_leases(void)
{
    for (unsigned i = 0; i < store.leases;) {
        if (store.lease[i].ends_at <= w.now)
            end_lease(&store.lease[i]);
        else
            i++;
    }
}

/* A new leader gives every lease its whole time again. */
static void elect(void)
{
    store.term++;
    for (unsigned i = 0; i < store.leases; i++)
        store.lease[i].ends_at = w.now + NANOS_OF_MS(store.lease[i].seconds * 1000);
}

/* ---- Reads ---- */

struct range {
    struct slice key, end;
    uint64_t limit;
    bool by_creation;
};

static struct range read_range(struct pb_reader from)
{
    struct range range = {0};
    struct pb_field field;
    while (pb_next(&from, &field)) {
        if (field.number == 1)
            range.key = slice_of(&field);
        else if (field.number == 2)
            range.end = slice_of(&field);
        else if (field.number == 3)
            range.limit = field.value;
        else if (field.number == 6)
            range.by_creation = field.value == 2;
    }
    return range;
}

static int by_creation(const void *a, const void *b)
{
    const struct pair *x = *(const struct pair *const *)a, *y = *(const struct pair *const *)b;
    return x->created < y->created ? -1 : x->created > y->created;
}

static bool is_guard(const char *key, size_t len)
{
    return memmem(key, len, "/.d/", 4) != NULL;
}

static void answer_range(struct pb_writer *to, const struct range *range)
{
    const struct pair *found[KEYS];
    unsigned count = 0;
    for (unsigned i = 0; i < store.pairs; i++) {
        const struct pair *pair = &store.pair[i];
        bool is_hidden = planted == PLANT_NO_GUARD && is_guard(pair->key, pair->key_len);
        if (!is_hidden && is_in(pair->key, pair->key_len, range->key, range->end))
            found[count++] = pair;
    }
    qsort(found, count, sizeof *found, by_creation);
    unsigned shown = range->limit && range->limit < count ? (unsigned)range->limit : count;
    for (unsigned i = 0; i < shown; i++)
        write_pair(to, found[i]);
    pb_put_number(to, 3, shown < count);
    pb_put_number(to, 4, count);
}

/* ---- Transactions ---- */

struct compare {
    uint64_t relation, target, number;
    struct slice key, end, value;
};

static struct compare read_compare(struct pb_reader from)
{
    struct compare compare = {0};
    struct pb_field field;
    while (pb_next(&from, &field)) {
        if (field.number == 1)
            compare.relation = field.value;
        else if (field.number == 2)
            compare.target = field.value;
        else if (field.number == 3)
            compare.key = slice_of(&field);
        else if (field.number == 5 || field.number == 6)
            compare.number = field.value;
        else if (field.number == 7)
            compare.value = slice_of(&field);
        else if (field.number == 64)
            compare.end = slice_of(&field);
    }
    return compare;
}

static bool is_true_of(const struct compare *c, const struct pair *pair)
{
    bool is_epoch = memmem(c->key.at, c->key.len, "/.s/", 4);
    if (c->target == 3) /* a value */
        return planted == PLANT_NO_EPOCH ||
               (pair && pair->len == c->value.len && !memcmp(pair->value, c->value.at, pair->len));
    if (planted == PLANT_LATE_RAISE && is_epoch)
        return true;
    if (planted == PLANT_OLD_CAPACITY && memmem(c->key.at, c->key.len, "/.m/", 4))
        return true;
    uint64_t has = 0;
    if (pair)
        has = c->target == COMPARE_CREATED ? pair->created : pair->changed;
    bool is_bar = c->target == COMPARE_CREATED && c->number && !pair;
    if (c->relation == COMPARE_EQUAL)
        return has == c->number || (planted == PLANT_NO_BAR && is_bar);
    return c->relation == COMPARE_GREATER ? has > c->number : has < c->number;
}

/* Of a range: true of all keys in it, or there is none. */
static bool is_true(const struct compare *c)
{
    if (!c->end.len)
        return is_true_of(c, pair_of(c->key));
    for (unsigned i = 0; i < store.pairs; i++) {
        const struct pair *pair = &store.pair[i];
        if (is_in(pair->key, pair->key_len, c->key, c->end) && !is_true_of(c, pair))
            return false;
    }
    return true;
}

static bool holds_all(struct pb_reader txn)
{
    struct pb_field field;
    while (pb_next(&txn, &field))
        if (field.number == 1) {
            struct compare compare = read_compare(field.inside);
            if (!is_true(&compare))
                return false;
        }
    return true;
}

struct write {
    struct slice key, value;
    int64_t lease;
};

static struct write read_write(struct pb_reader from)
{
    struct write write = {0};
    struct pb_field field;
    while (pb_next(&from, &field)) {
        if (field.number == 1)
            write.key = slice_of(&field);
        else if (field.number == 2)
            write.value = slice_of(&field);
        else if (field.number == 3)
            write.lease = (int64_t)field.value;
    }
    return write;
}

/* Are there writes in the branch, and do all of their leases live? Notes whether the conditions of
 * the transaction inside it hold: they are about what was there before. */
static bool check_writes(struct pb_reader txn, unsigned branch, bool *writes)
{
    struct pb_field field, op;
    bool good = true;
    while (pb_next(&txn, &field)) {
        struct pb_reader inside = field.inside;
        if (field.number != branch || !pb_next(&inside, &op))
            continue;
        if (op.number == 4) {
            store.inside_holds = holds_all(op.inside);
            good &= !store.inside_holds || check_writes(op.inside, TXN_THEN, writes);
            continue;
        }
        struct write write = read_write(op.inside);
        *writes |= op.number == 2 || (op.number == 3 && pair_of(write.key));
        good &= op.number != 2 || !write.lease || lease_of(write.lease);
    }
    return good;
}

static void carry_out(struct pb_reader inside, struct pb_writer *to)
{
    struct pb_field op;
    if (!pb_next(&inside, &op))
        return;
    size_t response = pb_begin(to, 3);
    size_t body = pb_begin(to, op.number);
    if (op.number == 1) {
        struct range range = read_range(op.inside);
        answer_range(to, &range);
    } else if (op.number == 4) {
        struct pb_field field;
        while (store.inside_holds && pb_next(&op.inside, &field))
            if (field.number == TXN_THEN)
                carry_out(field.inside, to);
    } else {
        struct write write = read_write(op.inside);
        struct pair *pair = pair_of(write.key);
        if (op.number == 2)
            put(write.key, write.value, write.lease);
        else if (pair)
            delete_pair(pair);
    }
    pb_end(to, body);
    pb_end(to, response);
}

/* Only a resize compares the capacity's key first. */
static bool is_resize(struct pb_reader txn)
{
    struct pb_field field;
    if (!pb_next(&txn, &field) || field.number != 1)
        return false;
    struct compare compare = read_compare(field.inside);
    return memmem(compare.key.at, compare.key.len, "/.m/", 4);
}

static void answer_txn(unsigned link, int32_t stream, struct pb_reader txn)
{
    static struct pb_writer message;
    bool succeeded = holds_all(txn), writes = false;
    unsigned branch = succeeded ? TXN_THEN : TXN_ELSE;
    struct pb_field field;
    pb_clear(&message);
    if (!check_writes(txn, branch, &writes)) {
        send_message(link, stream, 5, "etcdserver: requested lease not found", &message, false);
        return;
    }
    store.revision += writes;
    store.resizes = writes && is_resize(txn);
    write_header(&message, link);
    pb_put_number(&message, 2, succeeded);
    while (pb_next(&txn, &field))
        if (field.number == branch)
            carry_out(field.inside, &message);
    tell_changes();
    send_message(link, stream, 0, "", &message, false);
}

/* ---- Leases, watches ---- */

static uint64_t first_number(struct pb_reader from)
{
    struct pb_field field;
    uint64_t number = 0;
    while (pb_next(&from, &field))
        number = field.number == 1 ? field.value : number;
    return number;
}

static void answer_lease(unsigned link, int32_t stream, uint64_t id, int64_t seconds)
{
    static struct pb_writer message;
    pb_clear(&message);
    write_header(&message, link);
    pb_put_number(&message, 2, id);
    pb_put_number(&message, 3, (uint64_t)seconds);
    send_message(link, stream, 0, "", &message, false);
}

static void grant(unsigned link, int32_t stream, int64_t seconds)
{
    if (store.leases == LEASES)
        abort();
    bool is_orphan = store.delays && seconds == LOCK_DELAY_MS / 1000;
    nanos length = NANOS_OF_MS(seconds * 1000);
    if (planted == PLANT_SHORT_DELAY && is_orphan)
        length = NANOS_OF_MS(1);
    store.lease[store.leases++] =
        (struct lease){.id = ++store.next_lease, .seconds = seconds, .ends_at = w.now + length};
    answer_lease(link, stream, (uint64_t)store.next_lease, seconds);
}

/* A leader that was replaced acknowledges what it has not done. */
static void keep_alive(unsigned link, int32_t stream, int64_t id)
{
    struct lease *lease = lease_of(id);
    bool is_stale = members[link].stale_until > w.now;
    sum.stale += is_stale;
    if (lease && !is_stale)
        lease->ends_at = w.now + NANOS_OF_MS(lease->seconds * 1000);
    answer_lease(link, stream, (uint64_t)id, is_stale ? 3 : lease ? lease->seconds : 0);
}

static void begin_watch(unsigned link, int32_t stream, struct pb_reader from)
{
    static struct pb_writer message;
    struct pb_field field, inside;
    if (!pb_next(&from, &field) || field.number != 1)
        return; /* the end of one: what comes of it is not looked at */
    if (store.watches == WATCHES)
        abort();
    struct watch *one = &store.watch[store.watches++];
    *one = (struct watch){.link = link, .stream = stream};
    while (pb_next(&field.inside, &inside)) {
        struct slice text = inside.number <= 2 ? slice_of(&inside) : SLICE_NONE;
        one->deletes_only |= inside.number == 5;
        if (inside.number == 1)
            memcpy(one->key, text.at, one->key_len = text.len);
        else if (inside.number == 2)
            memcpy(one->end, text.at, one->end_len = text.len);
        else if (inside.number == 7)
            one->id = (int64_t)inside.value;
    }
    pb_clear(&message);
    size_t header = pb_begin(&message, 1);
    pb_put_number(&message, 3, planted == PLANT_NO_LOOK ? 0 : store.revision);
    pb_end(&message, header);
    pb_put_number(&message, 2, (uint64_t)one->id);
    pb_put_number(&message, 3, 1);
    send_message(link, stream, -1, "", &message, true);
}

static void end_watches(unsigned link)
{
    for (unsigned i = 0; i < store.watches;) {
        if (store.watch[i].link == link)
            store.watch[i] = store.watch[--store.watches];
        else
            i++;
    }
}

/* ---- Requests ---- */

static void serve(unsigned link, int32_t stream, const char *path, struct pb_reader message)
{
    static struct pb_writer reply;
    expire_leases();
    if (strstr(path, "Txn")) {
        answer_txn(link, stream, message);
    } else if (strstr(path, "Range")) {
        struct range range = read_range(message);
        pb_clear(&reply);
        write_header(&reply, link);
        answer_range(&reply, &range);
        send_message(link, stream, 0, "", &reply, false);
    } else if (strstr(path, "LeaseGrant")) {
        grant(link, stream, (int64_t)first_number(message));
    } else if (strstr(path, "KeepAlive")) {
        keep_alive(link, stream, (int64_t)first_number(message));
    } else if (strstr(path, "Watch")) {
        begin_watch(link, stream, message);
    } else {
        abort();
    }
}
