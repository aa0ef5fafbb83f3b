/* heads.c - how calls of scripts begin: which script, and the keys of one lock.
 *
 * What follows from the name alone is kept as it goes to the wire, for names that were lately asked for: a release
 * comes behind its ask, and most handles are used for the same name again. */
#include "redis.h"

#include "base/why.h"

#include <string.h>

enum { CALL_MOST = 80 };

/* "EVALSHA", the script, and how many keys follow. */
static char *put_call(char *to, enum hf_script script, unsigned keys)
{
    static const char before[] = "$7\r\nEVALSHA\r\n$40\r\n", behind[] = "\r\n$1\r\n?\r\n";
    enum { BEFORE = sizeof before - 1, SHA = 40, BEHIND = sizeof behind - 1 };
    _Static_assert(BEFORE + SHA + BEHIND <= CALL_MOST, "room for it");
    memcpy(to, before, BEFORE);
    memcpy(to + BEFORE, hf_scripts[script].sha, SHA);
    memcpy(to + BEFORE + SHA, behind, BEHIND);
    to[BEFORE + SHA + BEHIND - 3] = (char)('0' + keys);
    return to + BEFORE + SHA + BEHIND;
}

/* They differ in one letter: the first one is written, and copied for the others. */
static void add_companions(struct hf_command *c, const struct hf_keys *keys)
{
    static const char letters[] = "tqwhp";
    char *first = hf_command_room(c, (sizeof letters - 1) * (keys->companion_len + HF_FRAME_MOST));
    if (!first)
        return;
    char *end = hf_put_word(first, keys->companion, keys->companion_len);
    size_t len = (size_t)(end - first), letter = len - 2 - keys->companion_len + keys->letter;
    first[letter] = letters[0];
    for (int i = 1; letters[i]; i++, end += len) {
        memcpy(end, first, len);
        end[letter] = letters[i];
    }
    hf_command_end(c, end);
}

static void add_call(struct hf_command *c, enum hf_script script, unsigned keys, unsigned arguments)
{
    hf_command_begin(c, 3 + keys + arguments);
    char *to = hf_command_room(c, CALL_MOST);
    if (to)
        hf_command_end(c, put_call(to, script, keys));
}

bool hf_attempt_script(struct hf_redis *r, enum hf_script script, const struct hf_keys *keys, unsigned arguments)
{
    add_call(&r->command, script, HF_KEYS, arguments);
    hf_command_word(&r->command, keys->lock, keys->lock_len);
    add_companions(&r->command, keys);
    return !r->command.failed;
}

/* ---- Those that are kept ---- */

static bool is_for(const struct head *head, const char *name, size_t len)
{
    return head->words.len && head->name_len == len && memcmp(head->words.bytes + head->name_at, name, len) == 0;
}

static hf_status write_head(const struct hf_redis *r, struct head *head, const char *name, size_t len)
{
    struct hf_keys keys;
    struct hf_command *c = &head->words;
    hf_status status = hf_keys_of(&keys, r->prefix, name, len);
    c->len = 0;
    if (status != HF_OK)
        return status;
    hf_command_word(c, keys.lock, keys.lock_len);
    head->lock_len = c->len;
    add_companions(c, &keys);
    head->two_len = head->lock_len + (c->len - head->lock_len) / (HF_KEYS - 1);
    if (c->failed) {
        hf_command_free(c);
        return hf_why(HF_NO_MEMORY, "no memory to send");
    }
    head->name_at = head->lock_len - 2 - len;
    head->name_len = len;
    return HF_OK;
}

hf_status hf_head_of(struct hf_redis *r, const char *name, size_t len, const struct head **out)
{
    struct head *head = &r->head[(uintptr_t)name / 64 % HEADS]; /* a handle keeps its text where it is */
    *out = head;
    return is_for(head, name, len) ? HF_OK : write_head(r, head, name, len);
}

void hf_head_script(struct hf_redis *r, enum hf_script script, const struct head *head, unsigned arguments)
{
    add_call(&r->command, script, HF_KEYS, arguments);
    hf_command_words(&r->command, head->words.bytes, head->words.len);
}

void hf_head_script_of_two(struct hf_redis *r, enum hf_script script, const struct head *head, unsigned arguments)
{
    add_call(&r->command, script, 2, arguments);
    hf_command_words(&r->command, head->words.bytes, head->two_len);
}

void hf_heads_free(struct hf_redis *r)
{
    for (int i = 0; i < HEADS; i++)
        hf_command_free(&r->head[i].words);
}
