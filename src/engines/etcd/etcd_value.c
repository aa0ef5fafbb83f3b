/* etcd_value.c - keys and values of entries.
 *
 * A value is one line: hf1 KIND UNITS CAPACITY TTL_MS FLAGS TOKEN AT_MS PID HOST LABEL. KIND is e,
 * s, r or w. FLAGS are d (detached) and h (confirmed), or "-". TOKEN is "-" if it was not noted,
 * "=" for the revision of the entry's last change, or digits. AT_MS is the client's wall clock at
 * the time of the request; it is only shown. The label comes last because it may contain blanks. */
#include "etcd.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kind_letters[] = "esrw"; /* indexed by hf_kind */

void etcd_value_id(const struct id *id, char text[ETCD_ID_TEXT + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        text[2 * i] = digits[id->b[i] >> 4];
        text[2 * i + 1] = digits[id->b[i] & 15];
    }
    text[ETCD_ID_TEXT] = '\0';
}

struct slice etcd_value_key(const struct etcd_entry *entry)
{
    assert(entry->name->base[entry->name->base_len - 1] == '/');
    const struct etcd_name *name = entry->name;
    memcpy(name->base + name->base_len, entry->id, ETCD_ID_TEXT);
    return (struct slice){name->base, name->base_len + ETCD_ID_TEXT};
}

/* Escapes "/", "%" and a leading ".". Keys of the engine itself begin with a dot. */
size_t etcd_value_encode_name(char *out, const char *name, size_t len)
{
    assert(len <= HF_NAME_MAX);
    size_t to = 0;
    for (size_t i = 0; i < len; i++) {
        bool escaped = name[i] == '/' || name[i] == '%' || (i == 0 && name[i] == '.');
        if (escaped)
            to += (size_t)sprintf(out + to, "%%%02X", (unsigned char)name[i]);
        else
            out[to++] = name[i];
    }

    return to;
}

size_t etcd_value_decode_name(char *out, size_t size, const char *name, size_t len)
{
    assert(size);
    size_t to = 0;
    for (size_t i = 0; i < len && to + 1 < size; i++) {
        char digits[3] = "";
        bool escaped = name[i] == '%' && i + 2 < len && isxdigit((unsigned char)name[i + 1]) &&
                       isxdigit((unsigned char)name[i + 2]);
        if (!escaped) {
            out[to++] = name[i];
            continue;
        }
        memcpy(digits, name + i + 1, 2);
        out[to++] = (char)strtoul(digits, NULL, 16);
        i += 2;
    }

    out[to] = '\0';
    return to;
}

size_t etcd_value_write(const struct etcd *e, const struct etcd_entry *entry,
                        struct etcd_state state, char out[ETCD_VALUE_MAX], nanos now)
{
    const struct engine_op *op = &entry->sent;
    char token[24] = "-";
    if (entry->token)
        snprintf(token, sizeof token, "%" PRIu64, entry->token);
    bool has_flags = op->detached || state.confirmed;
    int len =
        snprintf(out, ETCD_VALUE_MAX, "hf1 %c %u %u %" PRId64 " %s%s%s %s %" PRId64 " %s %.*s",
                 kind_letters[state.kind], op->units, op->capacity, op->ttl_ms,
                 op->detached ? "d" : "", state.confirmed ? "h" : "", has_flags ? "" : "-",
                 state.new_token ? "=" : token, now / NANOS_OF_MS(1) + e->wall_offset_ms, e->about,
                 (int)op->label_len, op->label ? op->label : "");
    assert(len > 0 && len < ETCD_VALUE_MAX);
    return (size_t)len;
}

size_t etcd_value_print(const struct etcd_value *value, char out[ETCD_VALUE_MAX])
{
    const struct queue_entry *q = &value->queue;
    char token[24] = "-";
    if (value->token)
        snprintf(token, sizeof token, "%" PRIu64, value->token);
    bool has_flags = value->detached || q->confirmed;
    int len = snprintf(out, ETCD_VALUE_MAX,
                       "hf1 %c %u %u %" PRId64 " %s%s%s %s %" PRId64 " %" PRId64 " %s %s",
                       kind_letters[q->kind], q->units, q->capacity, value->ttl_ms,
                       value->detached ? "d" : "", q->confirmed ? "h" : "", has_flags ? "" : "-",
                       token, value->at_ms, value->pid, value->host, value->label);
    assert(len > 0 && len < ETCD_VALUE_MAX);
    return (size_t)len;
}

static bool is_own_tail(struct slice tail)
{
    if (tail.len != ETCD_ID_TEXT)
        return false;

    for (size_t i = 0; i < tail.len; i++)
        if (!isdigit((unsigned char)tail.at[i]) && (tail.at[i] < 'a' || tail.at[i] > 'f'))
            return false;
    return true;
}

/* Takes the next word, up to a blank or the end, from the text. An empty word stays empty. */
static struct slice take_word(struct slice *text)
{
    if (!text->len)
        return SLICE_NONE;

    const char *end = memchr(text->at, ' ', text->len);
    struct slice word = {text->at, end ? (size_t)(end - text->at) : text->len};
    size_t taken = word.len + (end != NULL);
    text->at += taken;
    text->len -= taken;
    return word;
}

/* Reads a word of decimal digits. Returns false if it is no number of at most `digits` digits. */
static bool take_number(struct slice *text, size_t digits, uint64_t *number)
{
    struct slice word = take_word(text);
    *number = 0;
    for (size_t i = 0; i < word.len; i++) {
        if (!isdigit((unsigned char)word.at[i]))
            return false;
        *number = *number * 10 + (uint64_t)(word.at[i] - '0');
    }

    return word.len > 0 && word.len <= digits;
}

static bool take_small_number(struct slice *text, uint32_t *number)
{
    uint64_t wide;
    bool done = take_number(text, 10, &wide) && wide <= UINT32_MAX;
    *number = done ? (uint32_t)wide : 0;
    return done;
}

static bool take_signed_number(struct slice *text, int64_t *number)
{
    uint64_t wide;
    bool done = take_number(text, 18, &wide);
    *number = done ? (int64_t)wide : 0;
    return done;
}

/* Reads TOKEN. */
static bool take_token(struct slice *text, uint64_t changed, uint64_t *token)
{
    bool is_own_change = text->len && text->at[0] == '=';
    bool is_none = text->len && text->at[0] == '-';
    *token = is_own_change ? changed : 0;
    if (is_own_change || is_none)
        return take_word(text).len == 1;
    return take_number(text, 20, token);
}

/* Copies at most size - 1 characters, and ends them. */
static void copy_text(char *to, size_t size, struct slice from)
{
    size_t len = from.len < size ? from.len : size - 1;
    if (len)
        memcpy(to, from.at, len);
    to[len] = '\0';
}

static bool read_text(struct etcd_value *value, struct slice text, uint64_t changed)
{
    struct queue_entry *q = &value->queue;
    struct slice version = take_word(&text), kind = take_word(&text);
    bool has_head = version.len == 3 && memcmp(version.at, "hf1", 3) == 0 && kind.len == 1;
    const char *letter = has_head ? memchr(kind_letters, kind.at[0], 4) : NULL;
    bool has_size = letter && take_small_number(&text, &q->units) &&
                    take_small_number(&text, &q->capacity) &&
                    take_signed_number(&text, &value->ttl_ms);
    if (!has_size)
        return false;

    struct slice flags = take_word(&text);
    bool has_origin = flags.len && take_token(&text, changed, &value->token) &&
                      take_signed_number(&text, &value->at_ms) &&
                      take_signed_number(&text, &value->pid);
    struct slice host = has_origin ? take_word(&text) : SLICE_NONE;
    if (!host.len)
        return false;

    q->kind = (hf_kind)(letter - kind_letters);
    q->confirmed = memchr(flags.at, 'h', flags.len);
    value->detached = memchr(flags.at, 'd', flags.len);
    copy_text(value->host, sizeof value->host, host);
    copy_text(value->label, sizeof value->label, text);
    return true;
}

bool etcd_value_read(struct etcd_value *value, const struct key_value *pair, struct slice tail)
{
    assert(tail.at || !tail.len);
    *value = (struct etcd_value){.queue.arrival = pair->created};
    if (memchr(tail.at, '/', tail.len))
        return false;

    /* A key that this engine cannot read, or that somebody has overwritten, still counts as an
     * entry. */
    bool readable = is_own_tail(tail) && read_text(value, pair->value, pair->changed);

    if (!readable) {
        *value = (struct etcd_value){.queue.arrival = pair->created};
        value->queue.foreign = true;
        value->queue.units = value->queue.capacity = 1;
    }

    return true;
}
