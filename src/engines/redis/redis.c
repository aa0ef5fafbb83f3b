/* redis.c - the engine for one Redis or Valkey server: its door, and its URL. */
#include "redis.h"

#include "member.h"

#include "base/url.h"
#include "base/why.h"
#include "sys/process.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- The URL ---- */

static hf_status bad_url(const char *scheme, const char *what)
{
    return hf_why(HF_CONFIG, "%s: the URL: %s (it looks like %s://user:password@host:6379/0)", scheme, what, scheme);
}

/* A part of the URL, decoded. */
static hf_status take_part(const char *scheme, const char *what, const char *text, size_t len, char *out, size_t size)
{
    hf_status status = hf_url_decode(text, len, out, size);
    return status == HF_OK ? HF_OK : hf_why(status, "%s: the URL's %s: %s", scheme, what, hf_why_text());
}

static hf_status read_user(struct hf_redis *r, const char *scheme, const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);
    size_t user = colon ? (size_t)(colon - text) : len;
    hf_status status = take_part(scheme, "user", text, user, r->user, sizeof r->user);
    if (status == HF_OK && colon)
        status = take_part(scheme, "password", colon + 1, len - user - 1, r->password, sizeof r->password);
    return status;
}

/* host, host:port, [::1]:port. */
static hf_status read_host(struct hf_redis *r, const char *scheme, const char *text, size_t len)
{
    const char *end = text + len, *host = text, *host_end, *port;
    if (len && *text == '[') {
        host = text + 1;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end)
            return bad_url(scheme, "[ without ]");
        port = host_end + 1;
    } else {
        host_end = memchr(text, ':', len);
        host_end = host_end ? host_end : end;
        port = host_end;
    }
    hf_status status =
        take_part(scheme, "host", host, (size_t)(host_end - host), r->address.host, sizeof r->address.host);
    if (status != HF_OK)
        return status;
    if (!r->address.host[0])
        strcpy(r->address.host, "127.0.0.1");
    strcpy(r->address.port, "6379");
    if (port == end)
        return HF_OK;
    size_t digits = (size_t)(end - port) - 1;
    if (*port != ':' || digits < 1 || digits > 5 || strspn(port + 1, "0123456789") < digits || atoi(port + 1) < 1 ||
        atoi(port + 1) > 65535)
        return bad_url(scheme, "the port is not a number between 1 and 65535");
    snprintf(r->address.port, sizeof r->address.port, "%.*s", (int)digits, port + 1);
    return HF_OK;
}

static hf_status read_database(struct hf_redis *r, const char *scheme, const char *text)
{
    size_t len = strlen(text);
    if (len == 0)
        return HF_OK;
    if (len > 6 || strspn(text, "0123456789") < len)
        return bad_url(scheme, "behind the host stands the number of a database, and nothing else");
    r->db = atoi(text);
    return HF_OK;
}

/* redis://user:password@host:port/db, redis+unix://user:password@/path/of/socket */
static hf_status read_url(struct hf_redis *r, const struct hf_url *url)
{
    const char *body = url->body;
    bool is_unix = strstr(url->scheme, "+unix") != NULL;
    r->address.tls = strcmp(url->scheme, "rediss") == 0 || strcmp(url->scheme, "valkeys") == 0;
    if (strncmp(body, "//", 2) != 0)
        return bad_url(url->scheme, "// is missing");
    body += 2;
    size_t authority = strcspn(body, "/");
    const char *at = memrchr(body, '@', authority);
    hf_status status = at ? read_user(r, url->scheme, body, (size_t)(at - body)) : HF_OK;
    const char *host = at ? at + 1 : body, *rest = body + authority;
    if (status != HF_OK)
        return status;
    if (is_unix) {
        if (host != rest || !*rest)
            return hf_why(HF_CONFIG, "%s: the URL: a unix socket has a path and no host, as in %s:///run/redis.sock",
                          url->scheme, url->scheme);
        snprintf(r->where, sizeof r->where, "%.200s", rest);
        return take_part(url->scheme, "path", rest, strlen(rest), r->address.path, sizeof r->address.path);
    }
    status = read_host(r, url->scheme, host, (size_t)(rest - host));
    if (status == HF_OK)
        status = read_database(r, url->scheme, *rest ? rest + 1 : rest);
    bool six = strchr(r->address.host, ':') != NULL;
    snprintf(r->where, sizeof r->where, "%s%s%s:%s", six ? "[" : "", r->address.host, six ? "]" : "", r->address.port);
    return status;
}

/* ---- Settings ---- */

static hf_status read_password_file(struct hf_redis *r, const char *path)
{
    if (!*path)
        return HF_OK;
    struct stat st;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &st) != 0) {
        if (file)
            fclose(file);
        return hf_why(HF_CONFIG, "password_file=%s: cannot be read: %m", path);
    }
    bool private = (st.st_mode & 077) == 0;
    bool read = private && fgets(r->password, sizeof r->password, file);
    fclose(file);
    r->password[strcspn(r->password, "\r\n")] = 0;
    if (!private)
        return hf_why(HF_CONFIG, "password_file=%s: others may read it; chmod 600", path);
    return read && r->password[0] ? HF_OK : hf_why(HF_CONFIG, "password_file=%s: its first line is empty", path);
}

/* What a server, or a list, can show without trouble. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            *text = '-';
}

static void name_client(struct hf_redis *r, const char *wished)
{
    char host[65];
    snprintf(host, sizeof host, "%s", hf_host_name());
    make_printable(host);
    r->about_len =
        (size_t)snprintf(r->about, sizeof r->about, " %lld %s ", (long long)hf_process_id(), host[0] ? host : "-");
    if (*wished)
        snprintf(r->client_name, sizeof r->client_name, "%.100s", wished);
    else
        snprintf(r->client_name, sizeof r->client_name, "holdfast/%s/%lld", host, (long long)hf_process_id());
    make_printable(r->client_name);
}

/* "i" and a list (inbox), "p" and a channel (pubsub), "-" where nobody is told (poll). */
static void name_box(struct hf_redis *r, const char *wake)
{
    struct hf_id id;
    for (size_t i = 0; i < sizeof id.b; i += 4) {
        uint32_t random = r->host->random(r->host->ctx);
        memcpy(id.b + i, &random, 4);
    }
    hf_id_text(&id, r->self);
    if (strcmp(wake, "poll") == 0)
        strcpy(r->box, "-");
    else
        snprintf(r->box, sizeof r->box, "%c{%s}:inbox:%s", wake[0], r->prefix, r->self);
    for (char *at = r->box; *at; at++) /* a word of the waiter's record (common.lua), whatever the prefix is */
        *at = isspace((unsigned char)*at) ? '-' : *at;
}

static hf_status read_settings(struct hf_redis *r, const struct hf_settings *s)
{
    r->limits = (struct hf_limits)HF_REDIS_LIMITS;
    hf_timing_set_drift(&r->limits, s);
    r->wishes = hf_timing_wishes_of(s);
    r->connect_timeout = HF_MS(s->value[HF_SET_CONNECT_TIMEOUT]);
    r->replicas = s->value[HF_SET_REPLICAS];
    r->replica_timeout_ms = s->value[HF_SET_REPLICA_TIMEOUT];
    r->synced = s->value[HF_SET_FSYNC];
    r->strong = r->replicas || r->synced;
    r->history = s->value[HF_SET_HISTORY];
    r->history_age_ms = s->value[HF_SET_HISTORY_AGE];
    r->past = hf_words_of((const int64_t[]){r->history, r->history_age_ms}, 2);
    snprintf(r->prefix, sizeof r->prefix, "%.*s", HF_PREFIX_MAX, s->text[HF_SET_PREFIX]);
    snprintf(r->address.ca, sizeof r->address.ca, "%s", s->text[HF_SET_CA]);
    snprintf(r->address.cert, sizeof r->address.cert, "%s", s->text[HF_SET_CERT]);
    snprintf(r->address.key, sizeof r->address.key, "%s", s->text[HF_SET_KEY]);
    name_client(r, s->text[HF_SET_NAME]);
    name_box(r, s->text[HF_SET_WAKE]);
    hf_status status = hf_keys_check(r->prefix);
    return status == HF_OK ? read_password_file(r, s->text[HF_SET_PASSWORD_FILE]) : status;
}

/* ---- The door ---- */

static inline void rest(struct hf_redis *r)
{
    if (r->told)
        hf_attempts_rest(r);
}

static void close_redis(void *self)
{
    struct hf_redis *r = self;
    for (unsigned i = 0; i < LINES; i++) {
        if (r->line[i].state != LINE_DOWN)
            r->host->hang_up(r->host->ctx, i);
        hf_replies_close(r->line[i].replies);
        free(r->line[i].queue);
    }
    hf_look_close(r);
    hf_attempts_free(r);
    hf_command_free(&r->command);
    hf_heads_free(r);
    explicit_bzero(r->password, sizeof r->password);
    free(r);
}

static hf_status open_redis(void **self, const struct hf_url *url, const struct hf_settings *settings,
                            const struct hf_wire_host *host)
{
    *self = NULL;
    struct hf_redis *r = calloc(1, sizeof *r);
    if (!r)
        return hf_why(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);
    r->host = host;
    r->up_since = HF_NEVER;
    r->timing_ttl_ms = -1;
    for (unsigned i = 0; i < LINES; i++)
        r->line[i].number = i;
    hf_status status = read_url(r, url);
    if (status == HF_OK)
        status = read_settings(r, settings);
    if (status == HF_OK)
        *self = r;
    else
        close_redis(r);
    return status;
}

static void submit(void *self, struct hf_ask *ask, hf_nanos now)
{
    struct hf_redis *r = self;
    struct attempt *a = hf_attempt_meet(r, ask);
    r->told_at = now;
    if (a) {
        a->said = *ask;
        if (!a->first_ttl_ms)
            a->first_ttl_ms = ask->ttl_ms;
        hf_attempt_submit(r, a, now);
        rest(r);
        return;
    }
    struct hf_news news = {
        .cue = HF_N_FAILED, .asked_at = now, .retry_at = HF_NEVER, .status = HF_NO_MEMORY, .text = "no memory to ask"};
    r->host->tell(r->host->ctx, ask, &news);
}

static void forget(void *self, struct hf_ask *ask)
{
    struct hf_redis *r = self;
    hf_attempt_forget(r, ask);
    rest(r);
}

static void line_up(void *self, unsigned line, hf_nanos now)
{
    struct hf_redis *r = self;
    hf_line_up(r, &r->line[line], now);
    rest(r);
}

static void line_bytes(void *self, unsigned line, const char *bytes, size_t len, hf_nanos now)
{
    struct hf_redis *r = self;
    r->told_at = now;
    hf_line_bytes(r, &r->line[line], bytes, len, now);
    rest(r);
}

static void line_down(void *self, unsigned line, hf_status status, const char *why, hf_nanos now)
{
    struct hf_redis *r = self;
    hf_line_down(r, &r->line[line], status, why, now);
    rest(r);
}

static uint32_t lines(void *self)
{
    struct hf_redis *r = self;
    uint32_t all = 0;
#pragma GCC unroll 3
    for (unsigned i = 0; i < LINES; i++)
        all |= (uint32_t)(r->line[i].orphans > 0) << i;
    return all;
}

static hf_nanos tick(void *self, hf_nanos now)
{
    struct hf_redis *r = self;
    hf_nanos next = HF_NEVER;
    r->told_at = now;
    for (unsigned i = 0; i < LINES; i++) {
        if (r->line[i].state == LINE_DOWN && !r->queued && !r->ears) /* nobody listens, and who asks dials himself */
            continue;
        hf_nanos due = hf_line_tick(r, &r->line[i], now);
        next = due < next ? due : next;
    }
    rest(r);
    return next;
}

/* ---- One of a quorum ---- */

void hf_quorum_member_join(void *redis)
{
    struct hf_redis *r = redis;
    r->hints = true;
    strcpy(r->box, "-");
}

hf_nanos hf_quorum_member_up_since(const void *redis)
{
    return ((const struct hf_redis *)redis)->up_since;
}

const char *hf_quorum_member_where(const void *redis)
{
    return ((const struct hf_redis *)redis)->where;
}

const char *hf_quorum_member_run_id(const void *redis)
{
    return ((const struct hf_redis *)redis)->line[LINE_COMMANDS].run_id;
}

bool hf_quorum_member_is_unsent(const struct hf_ask *ask)
{
    const struct memo *memo = ask->engine_state;
    return memo && memo->awake && memo->awake->unsent;
}

const struct hf_wire_type hf_wire_redis = {
    .open = open_redis,
    .submit = submit,
    .forget = forget,
    .line_up = line_up,
    .line_bytes = line_bytes,
    .line_down = line_down,
    .lines = lines,
    .tick = tick,
    .close = close_redis,
};
