/* line.c - one connection to the server: dialling, greeting, the requests that await their answers, and its end.
 *
 * Answers come in the order of the requests; there is nothing else that ties them together. So an answer that makes no
 * sense, or one too many, means that nothing on this connection can be believed any more: it is dropped, and whoever
 * waits for an answer is told that there will be none. */
#include "redis.h"

#include "core/retry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD_FOR HF_MS(1000)                          /* a connection that lasted this long was no failure */
enum { ANSWER_MOST = 1 << 20, LIST_MOST = 64 << 20 }; /* bytes */
#define VERSION_LEAST 7                               /* scripts with flags, BLMPOP */

/* ---- The end ---- */

static hf_nanos back_off(struct hf_redis *r, const struct line *line)
{
    struct hf_timing t;
    hf_timing_fill(&t, 1000, &r->limits, &r->wishes);
    return hf_retry_pause(&t, line->failures, r->host->random(r->host->ctx));
}

static void tell_cut(struct hf_redis *r, const struct line *line, const struct request *request)
{
    struct attempt *a = request->attempt;
    if (a)
        a->in_flight[line->number]--;
    if (!a || request->kind == REQ_WAIT)
        return;
    if (request->kind == REQ_STEP) {
        if (a->job || request->verb == HF_V_EXAMINE) /* one of several: they fail together */
            hf_attempt_fail(r, a, request->sent_at, HF_UNAVAILABLE, line->why);
        return;
    }
    bool asked = request->kind == REQ_VERB && request->verb == HF_V_ACQUIRE;
    a->asking -= asked;
    a->cut |= asked;
    hf_attempt_tell(
        r, a,
        &(struct hf_news){.cue = HF_N_CUT, .asked_at = request->sent_at, .retry_at = HF_NEVER, .text = line->why});
}

/* Whoever relied on that connection: what was measured by it counts no more. */
static void tell_everybody(struct hf_redis *r, struct line *line, hf_nanos now)
{
    struct request request;
    while (line->count) {
        request = line->queue[line->first];
        line->first = (line->first + 1) & (line->room - 1);
        line->count--;
        tell_cut(r, line, &request);
    }
    line->orphans = line->loads = 0;
    if (line->number == LINE_STRONG) /* also those whose WAIT could not be sent */
        hf_strong_cut(r, line->why);
    bool for_good = line->trouble == HF_DENIED || line->trouble == HF_CONFIG;
    for (struct attempt *a = r->attempts; a; a = a->next) {
        a->pair.set = a->push.set = false;
        if (a->unsent && hf_attempt_line(r, a, a->said.verb) == line) {
            a->unsent = false;
            hf_attempt_fail_with(r, a, line, now);
        } else if (line->number == LINE_WAKE && for_good && a->queued && a->said.verb == HF_V_ACQUIRE && !r->hints) {
            hf_attempt_fail_with(r, a, line, now);
        }
    }
}

static void fall(struct hf_redis *r, struct line *line, hf_status status, hf_nanos now)
{
    bool lasted = line->state == LINE_UP && now - line->since >= GOOD_FOR;
    line->state = LINE_DOWN;
    line->trouble = status;
    if (line->number == LINE_WAKE)
        r->subscribed = false;
    line->failures = lasted ? 0 : line->failures + 1;
    line->dial_at = lasted ? now : now + back_off(r, line);
    hf_replies_close(line->replies);
    line->replies = NULL;
    tell_everybody(r, line, now);
}

void hf_line_drop(struct hf_redis *r, struct line *line, hf_status status, hf_nanos now, const char *format, ...)
{
    if (line->state == LINE_DOWN)
        return;
    va_list args;
    va_start(args, format);
    int len = snprintf(line->why, sizeof line->why, "%.100s: ", r->where);
    vsnprintf(line->why + len, sizeof line->why - (size_t)len, format, args);
    va_end(args);
    r->host->hang_up(r->host->ctx, line->number);
    fall(r, line, status, now);
}

/* The other side, or the way to it, ended it. `why` names the server already. */
void hf_line_down(struct hf_redis *r, struct line *line, hf_status status, const char *why, hf_nanos now)
{
    if (line->state == LINE_DOWN)
        return;
    bool unheard = line->state == LINE_GREETING && line->answered_at < line->since && !r->address.tls;
    snprintf(line->why, sizeof line->why, "%s%s", why, unheard ? ": is this a port for TLS?" : "");
    fall(r, line, status, now);
}

/* ---- The beginning ---- */

bool hf_line_need(struct hf_redis *r, struct line *line, hf_nanos now)
{
    if (line->state != LINE_DOWN)
        return true;
    if (now < line->dial_at)
        return false;
    line->state = LINE_DIALLING;
    line->since = now;
    r->host->dial(r->host->ctx, line->number, &r->address);
    return true;
}

static bool add_request(struct line *line, const struct request *request)
{
    if (line->count == line->room) {
        uint32_t room = line->room ? line->room * 2 : 16;
        struct request *queue = malloc(room * sizeof *queue);
        if (!queue)
            return false;
        for (uint32_t i = 0; i < line->count; i++)
            queue[i] = line->queue[(line->first + i) & (line->room - 1)];
        free(line->queue);
        line->queue = queue;
        line->room = room;
        line->first = 0;
    }
    line->queue[(line->first + line->count++) & (line->room - 1)] = *request;
    if (request->attempt)
        request->attempt->in_flight[line->number]++;
    line->orphans += request->kind == REQ_UNDO;
    line->loads += request->kind == REQ_LOAD;
    return true;
}

bool hf_line_send(struct hf_redis *r, struct line *line, struct request request, hf_nanos now)
{
    struct hf_command *c = &r->command;
    bool written = !c->failed;
    bool whole = line->state != LINE_DOWN && written && r->host->send(r->host->ctx, line->number, c->bytes, c->len);
    c->len = 0;
    c->failed = false;
    request.sent_at = now;
    if (whole && add_request(line, &request))
        return true;
    if (written && !whole)
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "the connection takes nothing any more");
    else
        hf_line_drop(r, line, HF_NO_MEMORY, now, "no memory to send");
    return false;
}

static void greet(struct hf_redis *r, struct line *line, enum request_kind kind, hf_nanos now)
{
    if (line->state == LINE_GREETING)
        hf_line_send(r, line, (struct request){.kind = kind, .patience = r->connect_timeout}, now);
}

static void load_script(struct hf_redis *r, struct line *line, enum hf_script script, enum request_kind kind,
                        hf_nanos now)
{
    hf_command_begin(&r->command, 3);
    hf_command_text(&r->command, "SCRIPT");
    hf_command_text(&r->command, "LOAD");
    hf_command_word(&r->command, hf_scripts[script].text, hf_scripts[script].len);
    hf_line_send(r, line, (struct request){.kind = kind, .patience = r->connect_timeout}, now);
}

/* They are long, and nearly always there. */
static void ask_for_scripts(struct hf_redis *r, struct line *line, hf_nanos now)
{
    hf_command_begin(&r->command, 2 + HF_SCRIPTS);
    hf_command_text(&r->command, "SCRIPT");
    hf_command_text(&r->command, "EXISTS");
    for (int i = 0; i < HF_SCRIPTS; i++)
        hf_command_text(&r->command, hf_scripts[i].sha);
    greet(r, line, REQ_KNOWN, now);
}

static bool is_known(const struct hf_reply *known, size_t script)
{
    const struct hf_reply *answer = known && known->type == HF_REPLY_LIST ? hf_reply_item(known, script) : NULL;
    return answer && answer->type == HF_REPLY_NUMBER && answer->number == 1;
}

/* `known`: the server's answer, good until the line is down. Where it says nothing of the kind (a right that the user
 * lacks, a proxy that knows no such command) all are loaded. */
static void load_missing(struct hf_redis *r, struct line *line, const struct hf_reply *known, hf_nanos now)
{
    for (int i = 0; i < HF_SCRIPTS && line->state != LINE_DOWN; i++)
        if (!is_known(known, (size_t)i))
            load_script(r, line, (enum hf_script)i, REQ_LOAD, now);
}

void hf_line_load_scripts(struct hf_redis *r, struct line *line, hf_nanos now)
{
    if (!line->loads) /* else for another request that was in flight when the server forgot them */
        load_missing(r, line, NULL, now);
}

void hf_line_load_script(struct hf_redis *r, struct line *line, enum hf_script script, hf_nanos now)
{
    load_script(r, line, script, REQ_LOAD_ONE, now);
}

/* All of it goes out at once; what the server lacks follows when it has said so. */
void hf_line_up(struct hf_redis *r, struct line *line, hf_nanos now)
{
    struct hf_command *c = &r->command;
    line->state = LINE_GREETING;
    line->heard_at = now;
    line->run_id[0] = 0; /* it may not be ours to ask: then every message of a hand-over is confirmed first */
    if (line->number == LINE_COMMANDS)
        r->up_since = HF_NEVER; /* what another process said of itself says nothing of this one */
    line->replies = hf_replies_open();
    if (!line->replies) {
        hf_line_drop(r, line, HF_NO_MEMORY, now, "no memory for a connection");
        return;
    }
    if (r->password[0] || r->user[0]) { /* a user may need none; without AUTH it would be another one, "default" */
        hf_command_begin(c, r->user[0] ? 3 : 2);
        hf_command_text(c, "AUTH");
        if (r->user[0])
            hf_command_text(c, r->user);
        hf_command_text(c, r->password);
        greet(r, line, REQ_AUTH, now);
    }
    if (r->db) {
        hf_command_begin(c, 2);
        hf_command_text(c, "SELECT");
        hf_command_number(c, r->db);
        greet(r, line, REQ_SELECT, now);
    }
    hf_command_begin(c, 3);
    hf_command_text(c, "CLIENT");
    hf_command_text(c, "SETNAME");
    hf_command_text(c, r->client_name);
    greet(r, line, REQ_SETNAME, now);
    hf_command_begin(c, 3);
    hf_command_text(c, "INFO");
    hf_command_text(c, "server");
    hf_command_text(c, "replication");
    greet(r, line, REQ_INFO, now);
    if (line->number != LINE_WAKE)
        ask_for_scripts(r, line, now);
}

const char *hf_line_info_field(const char *info, const char *field)
{
    size_t len = strlen(field);
    for (const char *at = info; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (strncmp(at, field, len) == 0)
            return at + len;
    return NULL;
}

static void read_info(struct hf_redis *r, struct line *line, const struct hf_reply *reply, hf_nanos now)
{
    if (reply->type != HF_REPLY_TEXT)
        return;
    const char *run_id = hf_line_info_field(reply->text, "run_id:"), *role = hf_line_info_field(reply->text, "role:");
    const char *version = hf_line_info_field(reply->text, "redis_version:"),
               *uptime = hf_line_info_field(reply->text, "uptime_in_seconds:");
    if (line->number == LINE_COMMANDS && uptime)
        r->up_since = now - hf_timing_nanos(atoi(uptime) * INT64_C(1000));
    if (run_id)
        snprintf(line->run_id, sizeof line->run_id, "%.*s", (int)strcspn(run_id, "\r\n"), run_id);
    if (version && atoi(version) < VERSION_LEAST)
        hf_line_drop(r, line, HF_CONFIG, now, "Redis %.*s is too old: Holdfast needs %d.0",
                     (int)strcspn(version, "\r\n"), version, VERSION_LEAST);
    else if (role && strncmp(role, "master", 6) != 0)
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "the server is a replica, which takes no locks");
}

/* Messages may have been lost: those who wait ask. */
void hf_line_hint_all(struct hf_redis *r)
{
    for (struct attempt *a = r->attempts; a; a = a->next)
        if (a->listens || (a->queued && !hf_attempt_flies(a) && !a->unsent))
            hf_attempt_tell(r, a, &(struct hf_news){.cue = HF_N_HINT, .retry_at = HF_NEVER});
}

static void finish_greeting(struct hf_redis *r, struct line *line, hf_nanos now)
{
    line->state = LINE_UP;
    line->since = now;
    if (line->ups++) { /* holds may have been lost, too */
        r->host->recheck(r->host->ctx);
        hf_line_hint_all(r);
    }
    if (line->number == LINE_WAKE)
        hf_wake_listen(r, now);
    else
        hf_attempt_send_unsent(r, line, now);
}

/* ---- Answers ---- */

struct refusal hf_refusal(const struct hf_redis *r, const struct hf_reply *error)
{
    static const struct {
        const char *words;
        hf_status status;
        bool leave;
        const char *text;
    } rows[] = {
#define HF_REFUSAL(words, status, leave, text) {words, status, leave, text},
#include "refusals.def"
#undef HF_REFUSAL
    };
    size_t i = 0;
    while (strncmp(error->text, rows[i].words, strlen(rows[i].words)) != 0)
        i++;
    struct refusal refusal = {.status = rows[i].status, .leave = rows[i].leave};
    char right[HF_RIGHT_MAX] = "";
    if (refusal.status == HF_DENIED)
        hf_right_lacking(r, error->text, right);
    snprintf(refusal.text, sizeof refusal.text, "%s%s%s (%.80s: %.120s)", rows[i].text, right[0] ? ": " : "", right,
             r->where, error->text);
    return refusal;
}

/* An answer to what we say first. Which name we have is of no importance; whoever may not ask goes on without. */
static void hear_greeting(struct hf_redis *r, struct line *line, enum request_kind kind, const struct hf_reply *reply,
                          hf_nanos now)
{
    if (reply->type == HF_REPLY_ERROR) {
        struct refusal refusal = hf_refusal(r, reply);
        bool asks = kind == REQ_SETNAME || kind == REQ_INFO || kind == REQ_KNOWN;
        if (!asks || refusal.leave) {
            line->state = LINE_GREETING; /* scripts may be loaded again later on */
            hf_line_drop(r, line, refusal.status, now, "%s", refusal.text);
            return;
        }
    }
    if (kind == REQ_INFO)
        read_info(r, line, reply, now);
    else if (kind == REQ_KNOWN)
        load_missing(r, line, reply, now);
}

static bool is_refused(struct hf_redis *r, struct line *line, const struct hf_reply *reply, hf_nanos now)
{
    if (reply->type != HF_REPLY_ERROR)
        return false;
    struct refusal refusal = hf_refusal(r, reply);
    hf_line_drop(r, line, refusal.status, now, "%s", refusal.text);
    return true;
}

static void hear_pop(struct hf_redis *r, struct line *line, const struct hf_reply *reply, hf_nanos now)
{
    if (!is_refused(r, line, reply, now))
        hf_wake_popped(r, reply, now);
}

static void hear_listening(struct hf_redis *r, struct line *line, const struct hf_reply *reply, hf_nanos now)
{
    if (!is_refused(r, line, reply, now))
        hf_wake_listens(r, reply, now);
}

static void hear(struct hf_redis *r, struct line *line, const struct hf_reply *reply, hf_nanos now)
{
    struct request request = line->queue[line->first];
    line->first = (line->first + 1) & (line->room - 1);
    line->count--;
    line->answered_at = now;
    line->loads -= request.kind == REQ_LOAD;
    if (request.attempt)
        request.attempt->in_flight[line->number]--;
    switch (request.kind) {
    case REQ_VERB:
        if (request.attempt)
            hf_attempt_answer(r, &request, reply, now);
        break;
    case REQ_STEP:
        if (request.attempt && request.verb == HF_V_EXAMINE)
            hf_examine_answer(r, &request, reply);
        else if (request.attempt)
            hf_job_answer(r, &request, reply, now);
        break;
    case REQ_WAIT:
        line->orphans -= !request.attempt;
        hf_strong_answer(r, reply, now);
        break;
    case REQ_POP:
        hear_pop(r, line, reply, now);
        break;
    case REQ_TAKE_BACK:
        if (request.attempt)
            hf_strong_taken_back(r, &request, reply, now);
        break;
    case REQ_UNDO:
        line->orphans--;
        break;
    case REQ_LISTEN:
        hear_listening(r, line, reply, now);
        break;
    default:
        hear_greeting(r, line, request.kind, reply, now);
    }
    if (line->state == LINE_GREETING && line->count == 0)
        finish_greeting(r, line, now);
}

/* Only a list that somebody asked for may be long: all who hold a name, or held it. */
static size_t most_of_an_answer(const struct line *line)
{
    bool list = line->count && line->queue[line->first].kind == REQ_STEP;
    return list ? (size_t)LIST_MOST : (size_t)ANSWER_MOST;
}

void hf_line_bytes(struct hf_redis *r, struct line *line, const char *bytes, size_t len, hf_nanos now)
{
    const char *error = NULL;
    if (line->state != LINE_GREETING && line->state != LINE_UP)
        return;
    line->heard_at = now;
    if (!hf_replies_feed(line->replies, bytes, len, most_of_an_answer(line))) {
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "an answer of more than %zu MB", most_of_an_answer(line) >> 20);
        return;
    }
    for (const struct hf_reply *reply; line->replies && (reply = hf_replies_next(line->replies, &error));) {
        if (line->number == LINE_WAKE && hf_wake_published(r, reply, now))
            continue;
        if (!line->count && is_refused(r, line, reply, now))
            return;
        if (!line->count) {
            hf_line_drop(r, line, HF_UNAVAILABLE, now, "an answer that nobody asked for");
            return;
        }
        hear(r, line, reply, now);
    }
    if (error && line->state != LINE_DOWN)
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "not the protocol of Redis: %.100s", error);
}

/* ---- Time ---- */

static hf_nanos later(hf_nanos a, hf_nanos b)
{
    return a > b ? a : b;
}

/* A silent server has that much time. One from which bytes come has more; but they must become an answer some time. */
static hf_nanos patience_ends(const struct hf_redis *r, const struct line *line, const struct request *request)
{
    hf_nanos silence = later(line->heard_at, request->sent_at) + request->patience;
    hf_nanos nonsense = later(line->answered_at, request->sent_at) + 2 * later(request->patience, r->connect_timeout);
    return silence < nonsense ? silence : nonsense;
}

/* Behind what may take its time (a list, say) stand those that may not: no lease waits for that. Where replicas are
 * waited for, each waits for those before it. */
static const struct request *most_impatient(const struct hf_redis *r, const struct line *line)
{
    const struct request *first = &line->queue[line->first], *request = first;
    if (line->number == LINE_STRONG)
        return first;
    for (uint32_t i = 1; i < line->count && request->kind != REQ_VERB; i++) {
        request = &line->queue[(line->first + i) & (line->room - 1)];
        if (patience_ends(r, line, request) < patience_ends(r, line, first))
            first = request;
    }
    return first;
}

hf_nanos hf_line_tick(struct hf_redis *r, struct line *line, hf_nanos now)
{
    hf_nanos due = HF_NEVER;
    if (line->state == LINE_DIALLING || line->state == LINE_GREETING) {
        due = line->since + r->connect_timeout;
        if (now < due)
            return due;
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "no connection within %lld ms%s",
                     (long long)(r->connect_timeout / HF_MS(1)),
                     r->address.tls && line->state == LINE_DIALLING ? ": is this a port for TLS?" : "");
    } else if (line->state == LINE_UP && line->count) {
        const struct request *first = most_impatient(r, line);
        hf_nanos patience = first->patience;
        due = patience_ends(r, line, first);
        if (now < due)
            return due;
        hf_line_drop(r, line, HF_UNAVAILABLE, now, "no answer for %lld ms", (long long)(patience / HF_MS(1)));
    }
    return line->number == LINE_WAKE ? hf_wake_tick(r, now) : HF_NEVER;
}

void hf_line_forget(struct line *line, const struct attempt *attempt)
{
    for (uint32_t i = 0; i < line->count; i++) {
        struct request *request = &line->queue[(line->first + i) & (line->room - 1)];
        if (request->attempt == attempt) {
            request->attempt = NULL;
            if (request->kind != REQ_WAIT) /* that may be for others, too */
                request->kind = REQ_UNDO;
            line->orphans++;
        }
    }
}
