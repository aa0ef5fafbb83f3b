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
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id->b[i]);
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

static bool read_text(struct etcd_value *value, const char *text, uint64_t changed)
{
    char kind, flags[8], token[24];
    int label_at = 0;
    struct queue_entry *q = &value->queue;
    int fields = sscanf(text,
                        "hf1 %c %10" SCNu32 " %10" SCNu32 " %18" SCNd64 " %7s %23s %18" SCNd64
                        " %18" SCNd64 " %64s%n",
                        &kind, &q->units, &q->capacity, &value->ttl_ms, flags, token, &value->at_ms,
                        &value->pid, value->host, &label_at);
    const char *letter = fields >= 1 ? strchr(kind_letters, kind) : NULL;
    if (fields != 9 || !letter)
        return false;

    q->kind = (hf_kind)(letter - kind_letters);
    q->confirmed = strchr(flags, 'h');
    value->detached = strchr(flags, 'd');
    value->token = token[0] == '=' ? changed : strtoull(token, NULL, 10);
    snprintf(value->label, sizeof value->label, "%s", text[label_at] ? text + label_at + 1 : "");
    return true;
}

bool etcd_value_read(struct etcd_value *value, const struct key_value *pair, struct slice tail)
{
    assert(tail.at || !tail.len);
    char text[ETCD_VALUE_MAX];
    *value = (struct etcd_value){.queue.arrival = pair->created};
    if (memchr(tail.at, '/', tail.len))
        return false;

    size_t len = pair->value.len < sizeof text ? pair->value.len : sizeof text - 1;
    if (len)
        memcpy(text, pair->value.at, len);
    text[len] = '\0';
    /* A key that this engine cannot read, or that somebody has overwritten, still counts as an
     * entry. */
    bool readable = is_own_tail(tail) && read_text(value, text, pair->changed);

    if (!readable) {
        *value = (struct etcd_value){.queue.arrival = pair->created};
        value->queue.foreign = true;
        value->queue.units = value->queue.capacity = 1;
    }

    return true;
}
