/* zk_place.c - names and data of places.
 *
 * The name of a place is hf1.KIND UNITS.CAPACITY.ATTEMPT-lock-NUMBER: so a list of names is enough
 * to decide who holds. KIND is e, s, r or w. Its data is one line for lists: hf1 TTL_MS FLAGS
 * SESSION PASSWORD AT_MS PID HOST LABEL. FLAGS are d (detached) or "-". SESSION and PASSWORD are
 * those of a private session in hexadecimal, or "-"; any program that may read them may also delete
 * the place. AT_MS is the client's wall clock; it is only shown. The label comes last because it
 * may contain blanks. */
#include "zookeeper.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kind_letters[] = "esrw"; /* indexed by hf_kind */

enum { DIGITS = 10 }; /* digits of a sequence number; a sign may stand before them */

/* ---- Names ---- */

void zk_id_text(const struct id *id, char text[ZK_ID_TEXT + 1])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id->b[i]);
}

static bool is_plain(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("_.:+@=~-", c));
}

/* A node cannot be called "." or "..", so a name that consists of dots is escaped. */
size_t zk_name_encode(char *out, const char *name, size_t len)
{
    size_t to = 0;
    bool dots = len == strspn(name, ".") && len > 0;
    for (size_t i = 0; i < len; i++) {
        if (is_plain(name[i]) && !dots)
            out[to++] = name[i];
        else
            to += (size_t)sprintf(out + to, "%%%02X", (unsigned char)name[i]);
    }

    return to;
}

size_t zk_name_decode(char *out, size_t size, const char *text, size_t len)
{
    size_t to = 0;
    for (size_t i = 0; i < len && to + 1 < size; i++) {
        char digits[3] = "";
        bool escaped = text[i] == '%' && i + 2 < len && isxdigit((unsigned char)text[i + 1]) &&
                       isxdigit((unsigned char)text[i + 2]);
        if (!escaped) {
            out[to++] = text[i];
            continue;
        }
        memcpy(digits, text + i + 1, 2);
        out[to++] = (char)strtoul(digits, NULL, 16);
        i += 2;
    }

    out[to] = '\0';
    return to;
}

char *zk_place_path(const struct zk *zk, const struct zk_entry *entry)
{
    assert(entry->lock);
    const struct engine_op *op = &entry->sent;
    char *path;
    int len = asprintf(&path, "%s/hf1.%c%u.%u.%s%s", entry->lock->path, kind_letters[op->kind],
                       op->units, op->capacity, entry->id, zk->joint);
    return len < 0 ? NULL : path;
}

/* Reads the sequence number at the end of a name: ten characters, the first of which may be a
 * sign. It is a signed counter of the server, which wraps. */
static bool read_number(struct jute_bytes name, int32_t *number)
{
    char text[DIGITS + 2];
    size_t len = DIGITS;
    if (name.len <= DIGITS)
        return false;

    /* a negative number of ten digits has eleven characters */
    bool is_long = name.len > DIGITS + 1 && name.at[name.len - DIGITS - 1] == '-' &&
                   !isdigit((unsigned char)name.at[name.len - DIGITS - 2]);
    if (is_long && name.at[name.len - DIGITS - 2] == '-')
        len = DIGITS + 1;
    memcpy(text, name.at + name.len - len, len);
    text[len] = '\0';
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || isspace((unsigned char)text[0]) || value < INT32_MIN || value > INT32_MAX)
        return false;

    *number = (int32_t)value;
    return true;
}

static bool read_own(struct zk_place *place, const char *text)
{
    struct queue_entry *q = &place->queue;
    char kind;
    int end = 0;
    int fields = sscanf(text, "hf1.%c%10" SCNu32 ".%10" SCNu32 ".%32[0-9a-f]%n", &kind, &q->units,
                        &q->capacity, place->id, &end);
    const char *letter = fields == 4 && kind ? strchr(kind_letters, kind) : NULL;
    bool has_joint = letter && end > 0 && (text[end] == '-' || text[end] == '_');
    if (!has_joint || strlen(place->id) != ZK_ID_TEXT)
        return false;

    q->kind = (hf_kind)(letter - kind_letters);
    return true;
}

bool zk_place_read(struct zk_place *place, struct jute_bytes name)
{
    char text[160];
    *place = (struct zk_place){0};
    if (!read_number(name, &place->sequence))
        return false;

    size_t len = name.len < sizeof text ? name.len : sizeof text - 1;
    memcpy(text, name.at, len);
    text[len] = '\0';

    if (!read_own(place, text)) {
        place->id[0] = '\0';
        place->queue = (struct queue_entry){.foreign = true, .units = 1, .capacity = 1};
    }

    return true;
}

/* Converts a number that wraps into an order: of two numbers less than 2^31 apart it is known
 * which came first. */
uint64_t zk_place_arrival(int32_t sequence, int32_t from)
{
    uint32_t distance = (uint32_t)sequence - (uint32_t)from;
    return (uint64_t)(INT64_C(1) << 32) + (uint64_t)(int64_t)(int32_t)distance;
}

/* ---- Data ---- */

static void write_password(const struct zk_session *session, char text[2 * ZK_PASSWORD_MAX + 1])
{
    for (size_t i = 0; i < session->password_len; i++)
        sprintf(text + 2 * i, "%02x", (unsigned char)session->password[i]);
}

size_t zk_data_write(const struct zk *zk, const struct zk_entry *entry, char out[ZK_DATA_MAX],
                     nanos now)
{
    const struct engine_op *op = &entry->sent;
    const struct zk_session *session = entry->lock->session;
    char id[24] = "-", password[2 * ZK_PASSWORD_MAX + 1] = "-";
    if (session->base.is_private) {
        snprintf(id, sizeof id, "%" PRIx64, (uint64_t)session->id);
        write_password(session, password);
    }

    int len =
        snprintf(out, ZK_DATA_MAX, "hf1 %" PRId64 " %s %s %s %" PRId64 " %s %.*s", op->ttl_ms,
                 op->detached ? "d" : "-", id, password, now / NANOS_OF_MS(1) + zk->wall_offset_ms,
                 zk->about, (int)op->label_len, op->label ? op->label : "");
    assert(len > 0 && len < ZK_DATA_MAX);
    return (size_t)len;
}

size_t zk_data_with_ttl(struct jute_bytes data, int64_t ttl_ms, char out[ZK_DATA_MAX])
{
    static const char head[] = "hf1 ";
    size_t head_len = sizeof head - 1;
    if (data.len <= head_len || memcmp(data.at, head, head_len) != 0)
        return 0;
    const char *rest = memchr(data.at + head_len, ' ', data.len - head_len);
    if (!rest)
        return 0;

    int len = snprintf(out, ZK_DATA_MAX, "%s%" PRId64 "%.*s", head, ttl_ms,
                       (int)(data.at + data.len - rest), rest);
    return len > 0 && len < ZK_DATA_MAX ? (size_t)len : 0;
}

static void read_password(struct zk_data *data, const char *text)
{
    for (; isxdigit((unsigned char)text[0]) && isxdigit((unsigned char)text[1]); text += 2) {
        char digits[3] = {text[0], text[1], '\0'};
        if (data->password_len == ZK_PASSWORD_MAX)
            break;
        data->password[data->password_len++] = (char)strtoul(digits, NULL, 16);
    }
}

bool zk_data_read(struct zk_data *data, struct jute_bytes bytes)
{
    char text[ZK_DATA_MAX], flags[8], session[24], password[2 * ZK_PASSWORD_MAX + 1];
    int label_at = 0;
    *data = (struct zk_data){0};
    size_t len = bytes.len < sizeof text ? bytes.len : sizeof text - 1;
    if (len)
        memcpy(text, bytes.at, len);
    text[len] = '\0';

    int fields = sscanf(text, "hf1 %18" SCNd64 " %7s %23s %64s %18" SCNd64 " %18" SCNd64 " %64s%n",
                        &data->ttl_ms, flags, session, password, &data->at_ms, &data->pid,
                        data->host, &label_at);
    if (fields != 7) {
        *data = (struct zk_data){0};
        return false;
    }

    data->detached = strchr(flags, 'd');
    data->session = session[0] == '-' ? 0 : (int64_t)strtoull(session, NULL, 16);
    read_password(data, password);
    snprintf(data->label, sizeof data->label, "%s", text[label_at] ? text + label_at + 1 : "");
    return true;
}
