/* keys.h - how names and ids are written in the server.
 *
 * A lock is the key prefix + name, as everybody in this field does it. Its companions are {KEY}:x, which share its slot
 * in a cluster; a key with a } in it would end that tag early, so there they are ~x:KEY. No key of a lock may begin
 * with { or ~ (hf_keys_check), so a lock is never another one's companion. */
#pragma once
#include "core/message.h"

enum { HF_ID_TEXT = 22, HF_PREFIX_MAX = 128, HF_KEY_MAX = HF_PREFIX_MAX + HF_NAME_MAX + 8, HF_KEYS = 6 };

/* The keys of one lock in the order of the scripts' KEYS: the lock itself, t counter, q queue, w waiters, h ends of
 * holds, p past. They differ in one letter, so one text serves for all companions. */
struct hf_keys {
    char lock[HF_KEY_MAX];
    char companion[HF_KEY_MAX];
    size_t lock_len, companion_len;
    size_t letter; /* its place in `companion` */
};

/* HF_CONFIG: keys with that prefix could be taken for companions. */
hf_status hf_keys_check(const char *prefix);
/* HF_INVALID: without a prefix that name would be taken for a companion. */
hf_status hf_keys_of(struct hf_keys *keys, const char *prefix, const char *name, size_t len);
/* The name that a key stands for; NULL: it is no lock's. */
const char *hf_keys_name(const char *prefix, const char *key, size_t len);

/* The channel on which those who wait for the lock of a quorum hear that it is free. */
const char *hf_keys_channel(const struct hf_keys *keys, char channel[HF_KEY_MAX]);

/* 22 letters, digits, - and _. */
void hf_id_text(const struct hf_id *id, char text[HF_ID_TEXT + 1]);
bool hf_id_read(const char text[HF_ID_TEXT], struct hf_id *id); /* false: it is no such text */

/* `prefix` as a glob pattern that matches itself and whatever follows. */
void hf_keys_pattern(const char *prefix, size_t len, char *pattern, size_t size);
