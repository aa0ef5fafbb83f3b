/* seeing.c - for people: who holds and who waits, who held before, taking a hold away, changing a capacity.
 *
 * Each is a job of one or more steps. A list walks through the keys with SCAN and looks at each with one script; SCAN
 * may show a key twice, so the job remembers the names it has met. */
#include "redis.h"

#include "base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN_COUNT = 200, PAGE = 2000 };
#define SCANS SIZE_MAX /* a step that looks at no name */
#define STEP_PATIENCE HF_MS(2000)

struct job {
    char cursor[24]; /* where the next SCAN goes on; "": it has seen all */
    uint32_t steps;  /* in flight */
    char **names;    /* in the order of the looks that were sent */
    size_t count, room;
    size_t *table; /* the same by hash: index + 1; 0: empty */
    size_t table_size;
};

void hf_job_free(struct attempt *a)
{
    struct job *job = a->job;
    if (!job)
        return;
    for (size_t i = 0; i < job->count; i++)
        free(job->names[i]);
    free(job->names);
    free(job->table);
    free(job);
    a->job = NULL;
}

static void finish(struct hf_redis *r, struct attempt *a, const struct request *request, enum hf_cue cue)
{
    hf_job_free(a);
    hf_attempt_tell(r, a, &(struct hf_news){.cue = cue, .asked_at = request->sent_at, .retry_at = HF_NEVER});
}

/* Sends the command that was written as the job's next step. False: the job is over, and that was told. */
static bool send_step(struct hf_redis *r, struct attempt *a, size_t look, size_t from, hf_nanos now)
{
    struct request request = {.kind = REQ_STEP, .verb = (uint8_t)a->said.verb, .attempt = a, .patience = STEP_PATIENCE};
    request.look = look;
    request.from = from;
    a->job->steps++;
    a->ask->lines = 1u << LINE_COMMANDS;
    if (hf_line_send(r, &r->line[LINE_COMMANDS], request, now))
        return true;
    if (a->job) /* the steps before it have been told of; this was the first */
        hf_attempt_fail_with(r, a, &r->line[LINE_COMMANDS], now);
    return false;
}

/* ---- Names ---- */

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 1469598103934665603u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 1099511628211u;
    return hash ^ hash >> 32;
}

static bool place_name(struct job *job, size_t index)
{
    for (size_t at = hash_name(job->names[index]);; at++) {
        size_t *cell = &job->table[at & (job->table_size - 1)];
        if (*cell == 0) {
            *cell = index + 1;
            return true;
        }
        if (strcmp(job->names[*cell - 1], job->names[index]) == 0)
            return false;
    }
}

static bool grow_names(struct job *job)
{
    size_t room = job->room ? job->room * 2 : 256;
    char **names = realloc(job->names, room * sizeof *names);
    if (names)
        job->names = names;
    size_t *table = names ? calloc(room * 2, sizeof *table) : NULL;
    if (!table)
        return false;
    free(job->table);
    job->table = table;
    job->table_size = room * 2;
    job->room = room;
    for (size_t i = 0; i < job->count; i++)
        place_name(job, i);
    return true;
}

/* 1: new, 0: met before, -1: no memory. */
static int meet_name(struct job *job, const char *name, size_t len)
{
    if (job->count == job->room && !grow_names(job))
        return -1;
    if (!(job->names[job->count] = strndup(name, len)))
        return -1;
    if (!place_name(job, job->count)) {
        free(job->names[job->count]);
        return 0;
    }
    job->count++;
    return 1;
}

/* ---- Steps ---- */

/* A long queue is looked at in pages. */
static bool look_at(struct hf_redis *r, struct attempt *a, size_t look, size_t from, hf_nanos now)
{
    struct hf_keys keys;
    const char *name = a->job->names[look];
    if (hf_keys_of(&keys, r->prefix, name, strlen(name)) != HF_OK) {
        hf_attempt_fail(r, a, now, HF_INVALID, hf_why_text());
        return false;
    }
    hf_attempt_script(r, HF_SCRIPT_INSPECT, &keys, 3);
    hf_command_text(&r->command, a->said.see == HF_SEE_PAST ? "p" : "n");
    hf_command_number(&r->command, (int64_t)from);
    hf_command_number(&r->command, PAGE);
    return send_step(r, a, look, from, now);
}

static bool scan(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    char key[HF_KEY_MAX], pattern[2 * HF_KEY_MAX];
    int len = snprintf(key, sizeof key, "%s%.*s", r->prefix, (int)a->said.name_len, a->said.name);
    hf_keys_pattern(key, (size_t)len, pattern, sizeof pattern);
    struct hf_command *c = &r->command;
    hf_command_begin(c, 6);
    hf_command_text(c, "SCAN");
    hf_command_text(c, a->job->cursor);
    hf_command_text(c, "MATCH");
    hf_command_text(c, pattern);
    hf_command_text(c, "COUNT");
    hf_command_number(c, SCAN_COUNT);
    return send_step(r, a, SCANS, 0, now);
}

static enum hf_script script_of(enum hf_verb verb)
{
    return verb == HF_V_BREAK ? HF_SCRIPT_BREAK : verb == HF_V_RESIZE ? HF_SCRIPT_RESIZE : HF_SCRIPT_INSPECT;
}

static void act(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    const struct hf_ask *ask = &a->said;
    struct hf_keys keys;
    if (hf_keys_of(&keys, r->prefix, ask->name, ask->name_len) != HF_OK) {
        hf_attempt_fail(r, a, now, HF_INVALID, hf_why_text());
        return;
    }
    bool breaks = ask->verb == HF_V_BREAK;
    hf_attempt_script(r, script_of(ask->verb), &keys, breaks ? 3 : 1);
    hf_command_number(&r->command, breaks ? (int64_t)ask->token : ask->capacity);
    if (breaks) {
        hf_command_number(&r->command, r->history);
        hf_command_number(&r->command, r->history_age_ms);
    }
    send_step(r, a, SCANS, 0, now);
}

/* The script is loaded before a list begins: in its midst it could not begin again. */
void hf_job_begin(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    const struct hf_ask *ask = &a->said;
    a->job = calloc(1, sizeof *a->job);
    if (!a->job) {
        hf_attempt_fail(r, a, now, HF_NO_MEMORY, "no memory to list");
        return;
    }
    hf_line_load_script(r, &r->line[LINE_COMMANDS], script_of(ask->verb), now);
    if (ask->verb != HF_V_LIST) {
        act(r, a, now);
    } else if (ask->see == HF_SEE_PREFIX) {
        strcpy(a->job->cursor, "0");
        scan(r, a, now);
    } else if (meet_name(a->job, ask->name, ask->name_len) == 1) {
        look_at(r, a, 0, 0, now);
    } else {
        hf_attempt_fail(r, a, now, HF_NO_MEMORY, "no memory to list");
    }
}

/* ---- Rows ---- */

/* "ticket flags pid host label" at the end of a row. */
static void read_meta(struct hf_row *row, char *meta)
{
    char flags = '-';
    int host_at = 0, host_end = 0, label_at = 0;
    row->host = row->label = "";
    if (sscanf(meta, "%" SCNu64 " %c %" SCNd64 " %n%*s%n %n", &row->ticket, &flags, &row->pid, &host_at, &host_end,
               &label_at) < 3 ||
        !host_end)
        return;
    row->detached = flags == 'd';
    row->host = meta + host_at;
    row->label = meta[host_end] ? meta + host_end + 1 : "";
    meta[host_end] = 0;
}

static hf_kind read_kind(char letter)
{
    return letter == 's' ? HF_SEMAPHORE : letter == 'r' ? HF_READ : letter == 'w' ? HF_WRITE : HF_EXCLUSIVE;
}

static int64_t ms_since(int64_t now, int64_t then)
{
    return then < now ? (now - then) / 1000 : 0;
}

/* One row of inspect.lua, n. False: not one of ours. */
static bool read_row(char *text, int64_t now, uint32_t *place, struct hf_row *row)
{
    int meta_at = 0;
    char kind = 'e';
    if (text[0] == 'f') {
        row->foreign = true;
        row->count = row->units = 1;
        row->host = row->label = "";
        return sscanf(text, "f %" SCNd64, &row->left_ms) == 1;
    }
    if (text[0] == 'd')
        return false;
    if (text[0] == 'w') {
        row->role = HF_WAITER;
        row->place = ++*place;
        row->count = 1;
        uint64_t arrival = 0;
        if (sscanf(text, "w %" SCNu64 " %u %" SCNd64 " %c %n", &arrival, &row->units, &row->ttl_ms, &kind, &meta_at) !=
                4 ||
            !meta_at)
            return false;
        read_meta(row, text + meta_at);
        row->ticket = arrival;
        row->since_ms = ms_since(now, (int64_t)arrival);
    } else {
        if (sscanf(text, "h %" SCNd64 " %u %u %" SCNu64 " %" SCNd64 " %c %n", &row->left_ms, &row->count, &row->units,
                   &row->token, &row->ttl_ms, &kind, &meta_at) != 6 ||
            !meta_at)
            return false;
        read_meta(row, text + meta_at);
        row->since_ms = row->token > HF_NO_TOKEN ? ms_since(now, (int64_t)row->token) : row->ttl_ms - row->left_ms;
    }
    row->kind = read_kind(kind);
    return true;
}

/* The number of waiters that were looked at. Holders are shown with the first page. */
static size_t show_now(struct hf_redis *r, struct attempt *a, const struct request *request,
                       const struct hf_reply *reply)
{
    const struct hf_reply *item = reply->first;
    const char *name = a->job->names[request->look];
    int64_t now = hf_reply_count(item);
    uint32_t place = (uint32_t)request->from;
    size_t looked = 0;
    int64_t capacity = hf_reply_count(hf_reply_item(reply, 2)), used = hf_reply_count(hf_reply_item(reply, 3));
    for (size_t i = 0; item; item = item->next, i++) {
        struct hf_row row = {.size = sizeof row, .name = name, .capacity = (uint32_t)capacity, .used = (uint32_t)used};
        char *copy = i >= 4 && item->type == HF_REPLY_TEXT ? strdup(item->text) : NULL;
        looked += copy && (copy[0] == 'w' || copy[0] == 'd');
        if (copy && read_row(copy, now, &place, &row) && (row.role == HF_WAITER || !request->from))
            r->host->row(r->host->ctx, a->ask, &row);
        free(copy);
    }
    return looked;
}

/* When it ended is known if somebody ended it. What ended by time did so when it was due, at the latest when the next
 * one began. */
static size_t show_past(struct hf_redis *r, struct attempt *a, const char *name, const struct hf_reply *reply)
{
    const struct hf_reply *item = reply->first;
    int64_t now = hf_reply_count(item), next_start = now;
    for (item = item ? item->next : NULL; item; item = item->next) {
        struct hf_row row = {.size = sizeof row, .name = name, .count = 1};
        int64_t start, until, ended;
        char why, kind;
        int meta_at = 0;
        char *copy = item->type == HF_REPLY_TEXT ? strdup(item->text) : NULL;
        if (copy && sscanf(copy, "%" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %c %u %c %" SCNd64 " %n", &row.token,
                           &start, &until, &ended, &why, &row.units, &kind, &row.ttl_ms, &meta_at) == 8) {
            if (!ended)
                ended = until < next_start ? until : next_start;
            read_meta(&row, copy + meta_at);
            row.ticket = 0;
            row.detached = false;
            row.kind = read_kind(kind);
            row.ended = why == 'r' ? HF_OK : HF_LOST;
            row.ended_ms = ms_since(now, ended);
            row.since_ms = ms_since(ended, start);
            next_start = start;
            r->host->row(r->host->ctx, a->ask, &row);
        }
        free(copy);
    }
    return 0;
}

/* ---- Answers ---- */

/* {cursor, {key ...}}. False: the job is over. */
static bool read_scan(struct hf_redis *r, struct attempt *a, const struct hf_reply *reply, hf_nanos now)
{
    const struct hf_reply *cursor = hf_reply_item(reply, 0), *keys = hf_reply_item(reply, 1);
    struct job *job = a->job;
    if (!keys || cursor->type != HF_REPLY_TEXT || cursor->len >= sizeof job->cursor || keys->type != HF_REPLY_LIST) {
        hf_attempt_fail(r, a, now, HF_UNAVAILABLE, "the server's answer to SCAN makes no sense");
        return false;
    }
    strcpy(job->cursor, strcmp(cursor->text, "0") == 0 ? "" : cursor->text);
    for (const struct hf_reply *key = keys->first; key; key = key->next) {
        const char *name = key->type == HF_REPLY_TEXT ? hf_keys_name(r->prefix, key->text, key->len) : NULL;
        int met = name ? meet_name(job, name, key->len - (size_t)(name - key->text)) : 0;
        if (met < 0) {
            hf_attempt_fail(r, a, now, HF_NO_MEMORY, "no memory to list");
            return false;
        }
        if (met && !look_at(r, a, job->count - 1, 0, now))
            return false;
    }
    return true;
}

static void answer_list(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct attempt *a = request->attempt;
    struct job *job = a->job;
    if (request->look == SCANS) {
        if (!read_scan(r, a, reply, now))
            return;
    } else if (reply->type == HF_REPLY_LIST) { /* an error is what somebody else keeps under that key */
        const char *name = job->names[request->look];
        size_t shown = a->said.see == HF_SEE_PAST ? show_past(r, a, name, reply) : show_now(r, a, request, reply);
        if (shown == PAGE && !look_at(r, a, request->look, request->from + PAGE, now))
            return;
    }
    if (job->steps)
        return;
    if (job->cursor[0])
        scan(r, a, now);
    else
        finish(r, a, request, HF_N_RELEASED);
}

/* How many were broken; for a resize 1 done, 0 not in use, -1 no semaphore. */
static void answer_act(struct hf_redis *r, const struct request *request, const struct hf_reply *reply)
{
    struct attempt *a = request->attempt;
    if (reply->type != HF_REPLY_NUMBER || (reply->number < 0 && request->verb == HF_V_BREAK))
        hf_attempt_fail(r, a, request->sent_at, HF_UNAVAILABLE, "the server's answer makes no sense");
    else if (reply->number < 0) {
        hf_why(HF_MISMATCH, "%s: is not a semaphore", a->ask->name);
        hf_attempt_fail(r, a, request->sent_at, HF_MISMATCH, hf_why_text());
    } else
        finish(r, a, request, reply->number ? HF_N_RELEASED : HF_N_GONE);
}

void hf_job_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct attempt *a = request->attempt;
    if (!a->job)
        return; /* an earlier step ended it */
    a->job->steps--;
    bool one_of_many = a->said.verb == HF_V_LIST && a->said.see == HF_SEE_PREFIX;
    if (reply->type == HF_REPLY_ERROR && !(one_of_many && strncmp(reply->text, "WRONGTYPE", 9) == 0)) {
        struct refusal refusal = hf_refusal(r, reply);
        hf_attempt_fail(r, a, request->sent_at, refusal.status, refusal.text);
    } else if (a->said.verb == HF_V_LIST) {
        answer_list(r, request, reply, now);
    } else {
        answer_act(r, request, reply);
    }
}
