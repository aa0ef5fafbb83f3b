/* etcd_resize.c - the capacity of a semaphore that was resized.
 *
 * It is a key of its own: PREFIX .m/ NAME, with the capacity that requests declare and the one that
 * is in force instead. The key has no lease. A release that leaves no entry of the name deletes the
 * key in the same transaction; so does a request that finds no other entry.
 *
 * A larger capacity lets waiters in: waiting clients watch the key and read the list again. A
 * smaller capacity could end holds that clients already know of. So the resize is written on
 * condition that all holders and the first waiter are as the list showed them. The same transaction
 * marks each holder's entry; a marked entry holds at any capacity. A waiter that takes its hold
 * writes the same mark on condition that the capacity's key is unchanged, so an old capacity lets
 * nobody in. */
#include "etcd_admin.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A transaction of etcd has at most 128 parts. */
enum { RESIZE_KEY_MAX = ETCD_PREFIX_MAX + 3 * HF_NAME_MAX + 8, HOLDERS_MAX = 100, TRIES_MAX = 8 };

/* ---- The key ---- */

/* Writes the capacity's key for a name in its encoded form. Returns the length of the key. */
static size_t write_key(const struct etcd *e, struct slice name, char key[RESIZE_KEY_MAX])
{
    assert(name.len <= 3 * HF_NAME_MAX);
    memcpy(key, e->prefix, e->prefix_len);
    memcpy(key + e->prefix_len, ".m/", 3);
    if (name.len)
        memcpy(key + e->prefix_len + 3, name.at, name.len);
    return e->prefix_len + 3 + name.len;
}

static size_t key_of(const struct etcd *e, const struct etcd_name *name, char key[RESIZE_KEY_MAX])
{
    size_t len = name->base_len - e->prefix_len - 1;
    return write_key(e, (struct slice){name->base + e->prefix_len, len}, key);
}

void etcd_resize_read(struct etcd *e, const struct etcd_name *name, enum txn_branch branch)
{
    char key[RESIZE_KEY_MAX];
    struct range_request range = {.key = {key, key_of(e, name, key)}};
    message_txn_range(&e->message, branch, &range);
}

void etcd_resize_compare(struct etcd *e, const struct etcd_name *name)
{
    char key[RESIZE_KEY_MAX];
    struct slice at = {key, key_of(e, name, key)};
    message_compare(&e->message, at, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL,
                    name->resize_changed);
}

void etcd_resize_watch(struct etcd *e, const struct etcd_name *name)
{
    char key[RESIZE_KEY_MAX];
    struct slice at = {key, key_of(e, name, key)};
    message_watch(&e->message, name->resize_watch, at, SLICE_NONE, false);
}

/* Adds the condition that there is no entry from `first` up to `last`. */
static void compare_none(struct etcd *e, struct slice first, struct slice last)
{
    message_compare(&e->message, first, last, COMPARE_CREATED, COMPARE_EQUAL, 0);
}

void etcd_resize_drop(struct etcd *e, const struct etcd_name *name, struct slice own)
{
    char key[RESIZE_KEY_MAX], behind[ETCD_PREFIX_MAX + 3 * HF_NAME_MAX + ETCD_ID_TEXT + 4];
    struct slice first = {name->first, name->base_len + 1}, last = {name->last, name->base_len + 1};
    struct txn_inside inside = message_txn_begin(&e->message, TXN_THEN);
    if (own.len) {
        assert(own.len < sizeof behind);
        memcpy(behind, own.at, own.len);
        behind[own.len] = '\0'; /* the next key in order */
        compare_none(e, first, own);
        compare_none(e, (struct slice){behind, own.len + 1}, last);
    } else {
        compare_none(e, first, last);
    }
    message_txn_delete(&e->message, TXN_THEN, (struct slice){key, key_of(e, name, key)});
    message_txn_end(&e->message, inside);
}

static bool read_pair(const struct key_value *pair, struct queue_resize *out)
{
    char text[64];
    size_t len = pair->value.len < sizeof text ? pair->value.len : sizeof text - 1;
    if (len)
        memcpy(text, pair->value.at, len);
    text[len] = '\0';
    *out = (struct queue_resize){0};
    bool is_read =
        sscanf(text, "hf1 %10" SCNu32 " %10" SCNu32, &out->declared, &out->capacity) == 2;
    return is_read && out->declared && out->capacity;
}

void etcd_resize_take(struct etcd_name *name, struct pb_reader responses, uint64_t revision)
{
    struct message last;
    struct key_value pair;
    bool is_read = false;
    for (struct message one; message_next_response(&responses, &one); is_read = true)
        last = one;
    if (!is_read || revision < name->resize_at)
        return;

    name->resize_at = revision;
    name->resize = (struct queue_resize){0};
    name->resize_changed = 0;
    if (!message_next_pair(&last.pairs, &pair))
        return;

    name->resize_changed = pair.changed;
    if (!read_pair(&pair, &name->resize))
        name->resize = (struct queue_resize){0};
}

bool etcd_resize_is_too_big(const struct etcd_name *name, const struct queue_entry *entry)
{
    return entry->kind == HF_SEMAPHORE && !entry->confirmed && !entry->foreign &&
           entry_order_need(entry) > entry_order_capacity(entry, name->resize);
}

/* ---- In lists ---- */

void etcd_resize_read_range(struct etcd *e, struct slice name, bool one)
{
    char first[RESIZE_KEY_MAX], last[RESIZE_KEY_MAX];
    size_t len = write_key(e, name, first), last_len = len;
    memcpy(last, first, len);
    while (!one && last_len > 1 && (unsigned char)last[last_len - 1] == 0xff)
        last_len--;
    if (!one)
        last[last_len - 1]++;

    struct range_request range = {.key = {first, len}, .by_key = true};
    if (!one)
        range.range_end = (struct slice){last, last_len};
    message_txn_range(&e->message, TXN_THEN, &range);
}

/* Returns true if this is the key of the capacity of the row's name. */
static bool is_of(const struct etcd *e, struct slice key, const struct admin_row *row)
{
    const char *name = row->key + e->prefix_len;
    const char *slash = memchr(name, '/', row->key_len - e->prefix_len);
    size_t len = slash ? (size_t)(slash - name) : 0, before = e->prefix_len + 3;
    return len && key.len == before + len && memcmp(key.at + before, name, len) == 0;
}

void etcd_resize_note_rows(const struct etcd *e, struct etcd_admin *admin, struct message *read)
{
    struct key_value pair;
    struct queue_resize resize;
    while (message_next_pair(&read->pairs, &pair)) {
        bool is_read = read_pair(&pair, &resize);
        for (size_t i = 0; i < admin->count; i++) {
            if (!is_of(e, pair.key, &admin->row[i]))
                continue;
            admin->row[i].resize = is_read ? resize : (struct queue_resize){0};
            admin->row[i].resize_changed = pair.changed;
        }
    }
}

/* ---- Resizing ---- */

static bool is_semaphore(const struct admin_row *row)
{
    return row->value.queue.kind == HF_SEMAPHORE && !row->value.queue.foreign;
}

/* Adds the condition that holders and first waiter are as in the rows, and marks the holders. */
static void guard_holders(struct etcd *e, const struct etcd_admin *admin)
{
    bool has_waiter = false;
    for (size_t i = 0; i < admin->count; i++) {
        const struct admin_row *row = &admin->row[i];
        struct slice key = {row->key, row->key_len};
        if (row->value.queue.holds)
            message_compare(&e->message, key, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL,
                            row->changed);
        else if (!has_waiter)
            message_compare(&e->message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL,
                            row->created);
        has_waiter |= !row->value.queue.holds;
    }
    if (!has_waiter) {
        const struct admin_row *row = &admin->row[0];
        const char *slash = memchr(row->key + e->prefix_len, '/', row->key_len - e->prefix_len);
        char first[RESIZE_KEY_MAX], last[RESIZE_KEY_MAX];
        size_t len = (size_t)(slash - row->key) + 1;
        memcpy(first, row->key, len);
        memcpy(last, row->key, len);
        first[len] = '0';
        last[len] = 'p';
        message_compare(&e->message, (struct slice){first, len + 1}, (struct slice){last, len + 1},
                        COMPARE_CHANGED, COMPARE_LESS, admin->revision + 1);
    }

    for (size_t i = 0; i < admin->count; i++) {
        const struct admin_row *row = &admin->row[i];
        struct etcd_value value = row->value;
        char text[ETCD_VALUE_MAX];
        if (!value.queue.holds)
            continue;
        value.queue.confirmed = true;
        size_t len = etcd_value_print(&value, text);
        message_txn_put(&e->message, TXN_THEN, (struct slice){row->key, row->key_len},
                        (struct slice){text, len}, row->lease);
    }
}

static size_t count_holders(const struct etcd_admin *admin)
{
    size_t holders = 0;
    for (size_t i = 0; i < admin->count; i++)
        holders += admin->row[i].value.queue.holds;
    return holders;
}

static void send_resize(struct etcd *e, struct etcd_admin *admin, bool shrinks, nanos now)
{
    const struct admin_row *first = &admin->row[0];
    const char *name = first->key + e->prefix_len;
    const char *slash = memchr(name, '/', first->key_len - e->prefix_len);
    char key[RESIZE_KEY_MAX], text[64];
    size_t len = write_key(e, (struct slice){name, (size_t)(slash - name)}, key);
    int text_len =
        snprintf(text, sizeof text, "hf1 %u %u", first->value.queue.capacity, admin->op->capacity);

    pb_clear(&e->message);
    message_compare(&e->message, (struct slice){key, len}, SLICE_NONE, COMPARE_CHANGED,
                    COMPARE_EQUAL, first->resize_changed);
    message_txn_put(&e->message, TXN_THEN, (struct slice){key, len},
                    (struct slice){text, (size_t)text_len}, 0);
    if (shrinks)
        guard_holders(e, admin);
    admin->changes = true;
    etcd_admin_call(e, admin, "/etcdserverpb.KV/Txn", now);
}

void etcd_resize_rows(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    assert(admin->op && admin_op_of(admin->op)->verb == ADMIN_RESIZE);
    const struct admin_row *first = admin->row;
    if (admin->count == 0) {
        etcd_admin_reply(e, admin, REPLY_NOT_HELD, HF_OK, NULL);
        return;
    }
    if (!is_semaphore(first)) {
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_MISMATCH, "is not a semaphore");
        return;
    }

    bool shrinks = admin->op->capacity < entry_order_capacity(&first->value.queue, first->resize);
    if (shrinks && count_holders(admin) > HOLDERS_MAX)
        etcd_admin_reply(e, admin, REPLY_FAILED, HF_UNSUPPORTED,
                         "a semaphore with more than 100 holders cannot be made smaller in etcd");
    else
        send_resize(e, admin, shrinks, now);
}

bool etcd_resize_may_retry(struct etcd_admin *admin)
{
    return admin_op_of(admin->op)->verb == ADMIN_RESIZE && ++admin->tries < TRIES_MAX;
}
