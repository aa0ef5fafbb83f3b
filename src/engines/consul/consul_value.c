/* consul_value.c - keys and values of entries.
 *
 * A value is one line: hf1 KIND UNITS CAPACITY TTL_MS FLAGS TOKEN AT_MS PID HOST LABEL. KIND is e,
 * s, r or w. FLAGS are d (detached) and h (confirmed), or "-". TOKEN is "=" for the index of the
 * last change, or digits if the keys were written once more. AT_MS is the client's wall clock at
 * the time of the request; it is only shown. The label comes last because it may contain blanks.
 * The value of .lock is the attempt, a blank, and the same line. */
#include "consul.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kind_letters[] = "esrw"; /* indexed by hf_kind */

void consul_value_id(const struct id *id, char text[CONSUL_ID_TEXT + 1])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id->b[i]);
}

struct slice consul_value_key(const struct consul_name *name, const char *tail)
{
    size_t len = strlen(tail);
    assert(len <= CONSUL_ID_TEXT);
    memcpy(name->base + name->base_len, tail, len);
    return (struct slice){name->base, name->base_len + len};
}

/* Escapes "/", "%", a leading "." (keys of the engine itself begin with one), and everything
 * that is not ASCII, because keys are text in JSON. */
size_t consul_value_encode_name(char *out, const char *name, size_t len)
{
    size_t to = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)name[i];
        bool escaped =
            byte == '/' || byte == '%' || byte < ' ' || byte > '~' || (i == 0 && byte == '.');
        if (escaped)
            to += (size_t)sprintf(out + to, "%%%02X", byte);
        else
            out[to++] = (char)byte;
    }

    return to;
}

size_t consul_value_decode_name(char *out, size_t size, const char *name, size_t len)
{
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

/* Writes the value. The write that gives a shared hold its token also confirms it. */
size_t consul_value_write(const struct consul *c, const struct consul_entry *entry,
                          char out[CONSUL_VALUE_MAX + 1], nanos now)
{
    const struct engine_op *op = &entry->sent;
    char token[24] = "=", flags[4] = "";
    bool is_rewritten = entry->token && entry->stage == ENTRY_HELD;
    bool confirms = op->kind == HF_SEMAPHORE && entry->is_granted;
    if (is_rewritten)
        snprintf(token, sizeof token, "%" PRIu64, entry->token);
    snprintf(flags, sizeof flags, "%s%s", op->detached ? "d" : "",
             confirms || (is_rewritten && op->kind == HF_SEMAPHORE) ? "h" : "");
    int len =
        snprintf(out, CONSUL_VALUE_MAX + 1, "hf1 %c %u %u %" PRId64 " %s %s %" PRId64 " %s %.*s",
                 kind_letters[op->kind], op->units, op->capacity, op->ttl_ms,
                 flags[0] ? flags : "-", token, now / NANOS_OF_MS(1) + c->wall_offset_ms, c->about,
                 (int)op->label_len, op->label ? op->label : "");
    assert(len > 0 && len <= CONSUL_VALUE_MAX - CONSUL_ID_TEXT - 1);
    return (size_t)len;
}

size_t consul_value_lock(char out[CONSUL_VALUE_MAX + 1], const char *attempt, const char *value)
{
    int len = snprintf(out, CONSUL_VALUE_MAX + 1, "%s %s", attempt, value);
    assert(len > 0);
    return len <= CONSUL_VALUE_MAX ? (size_t)len : CONSUL_VALUE_MAX;
}

bool consul_value_is_lock(struct slice tail)
{
    return tail.len == sizeof CONSUL_LOCK_TAIL - 1 &&
           memcmp(tail.at, CONSUL_LOCK_TAIL, tail.len) == 0;
}

bool consul_value_is_own(struct slice tail)
{
    if (tail.len != CONSUL_ID_TEXT)
        return false;

    for (size_t i = 0; i < tail.len; i++)
        if (!isdigit((unsigned char)tail.at[i]) && (tail.at[i] < 'a' || tail.at[i] > 'f'))
            return false;
    return true;
}

static bool read_text(struct consul_value *value, const char *text, uint64_t changed)
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
    if (fields != 9 || !letter || !*letter)
        return false;

    q->kind = (hf_kind)(letter - kind_letters);
    q->confirmed = strchr(flags, 'h');
    value->detached = strchr(flags, 'd');
    value->token = token[0] == '=' ? changed : strtoull(token, NULL, 10);
    snprintf(value->label, sizeof value->label, "%s", text[label_at] ? text + label_at + 1 : "");
    return true;
}

/* Reads a pair. Two kinds of key are not entries: one that no session has locked, and one below
 * a further "/", which belongs to another program. A locked key that this engine cannot read counts
 * as a holder of another program. */
bool consul_value_read(struct consul_value *value, const struct consul_pair *pair,
                       struct slice tail)
{
    *value = (struct consul_value){.queue.arrival = pair->created};
    if (!pair->session[0] || memchr(tail.at, '/', tail.len) || consul_value_is_lock(tail))
        return false;

    bool readable = consul_value_is_own(tail) && read_text(value, pair->value, pair->changed);
    if (!readable) {
        *value = (struct consul_value){.queue.arrival = pair->created};
        value->queue.foreign = true;
        value->queue.units = value->queue.capacity = 1;
    }

    return true;
}

struct view_lock consul_value_read_lock(const struct consul_pair *pair, struct consul_value *value)
{
    struct consul_value unused;
    struct consul_value *into = value ? value : &unused;
    struct view_lock lock = {
        .exists = true, .is_held = pair->session[0] != '\0', .changed = pair->changed};
    struct slice attempt = {pair->value, CONSUL_ID_TEXT};
    *into = (struct consul_value){.queue.foreign = true, .queue.units = 1, .queue.capacity = 1};
    memcpy(lock.session, pair->session, strlen(pair->session) + 1);

    bool ours = pair->value_len > CONSUL_ID_TEXT + 1 && consul_value_is_own(attempt) &&
                read_text(into, pair->value + CONSUL_ID_TEXT + 1, pair->changed);
    if (ours && lock.is_held) {
        memcpy(lock.attempt, attempt.at, attempt.len);
        lock.token = into->token;
    }
    return lock;
}
