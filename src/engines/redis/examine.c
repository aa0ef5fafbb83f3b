/* examine.c - what the server says of itself, for people who look for trouble: each finding with what it means for
 * locks and what to do about it. */
#include "redis.h"

#include "sys/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_PATIENCE HF_MS(2000)
#define CLOCK_APART_US 1000000 /* further apart, tokens and ends of several servers stop being comparable */
enum { STEP_INFO, STEP_WHOAMI, STEP_TIME, STEPS };

/* ---- Questions ---- */

void hf_examine_begin(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    static const char *const questions[STEPS][2] = {{"INFO", "everything"}, {"ACL", "WHOAMI"}, {"TIME", NULL}};
    struct line *line = &r->line[LINE_COMMANDS];
    a->examined = 0;
    for (int i = 0; i < STEPS && line->state == LINE_UP; i++) {
        hf_command_begin(&r->command, questions[i][1] ? 2 : 1);
        hf_command_text(&r->command, questions[i][0]);
        if (questions[i][1])
            hf_command_text(&r->command, questions[i][1]);
        struct request request = {.kind = REQ_STEP, .verb = HF_V_EXAMINE, .attempt = a, .patience = STEP_PATIENCE};
        if (!hf_line_send(r, line, request, now) && i == 0) { /* a later one: the first was told of */
            hf_attempt_fail_with(r, a, line, now);
            return;
        }
    }
    a->ask->lines = 1u << LINE_COMMANDS;
}

/* ---- Findings ---- */

struct report {
    struct hf_redis *r;
    struct attempt *a;
};

__attribute__((format(printf, 5, 6))) static void find(const struct report *report, const char *what, hf_health health,
                                                       const char *advice, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = report->r->where,
                                 .what = what,
                                 .health = health,
                                 .text = text,
                                 .advice = advice ? advice : ""};
    report->r->host->find(report->r->host->ctx, report->a->ask, &finding);
}

/* A field of INFO as text, cut at the line's end; "" where it is not. */
static const char *field(const char *info, const char *name, char out[64])
{
    const char *at = hf_line_info_field(info, name);
    snprintf(out, 64, "%.*s", at ? (int)strcspn(at, "\r\n") : 0, at ? at : "");
    return out;
}

static int64_t number(const char *info, const char *name)
{
    char text[64];
    return atoll(field(info, name, text));
}

static void find_server(const struct report *report, const char *info)
{
    char version[64], valkey[64], mode[64];
    int64_t uptime = number(info, "uptime_in_seconds:");
    bool is_valkey = field(info, "valkey_version:", valkey)[0] != 0;
    if (!field(info, "redis_mode:", mode)[0])
        field(info, "server_mode:", mode); /* as Valkey calls it since 8 */
    find(report, "server", HF_HEALTH_OK, NULL, "%s %s, %s, up for %" PRId64 " s", is_valkey ? "Valkey" : "Redis",
         is_valkey ? valkey : field(info, "redis_version:", version), mode, uptime);
    if (uptime < 60)
        find(report, "uptime", HF_HEALTH_NOTE, "see why it restarted: without persistence a restart frees every lock",
             "started %" PRId64 " s ago", uptime);
}

static void find_persistence(const struct report *report, const char *info)
{
    char save[64], aof[64];
    bool appends = number(info, "aof_enabled:") == 1;
    if (strcmp(field(info, "rdb_last_bgsave_status:", save), "err") == 0 ||
        strcmp(field(info, "aof_last_write_status:", aof), "err") == 0)
        find(report, "persistence", HF_HEALTH_BAD, "make room on its disk, or look into its log",
             "the server cannot write its data; it may refuse every write (MISCONF)");
    else if (appends)
        find(report, "persistence", HF_HEALTH_OK, NULL,
             "append-only file: locks survive a restart, up to what was not yet synced (appendfsync)");
    else
        find(report, "persistence", HF_HEALTH_NOTE,
             "appendonly yes, where two holders after a restart would do harm; and check tokens (fencing)",
             "no append-only file: a restart frees locks that were taken since the last snapshot, if there is one");
}

static void find_replicas(const struct report *report, const char *info)
{
    int64_t replicas = number(info, "connected_slaves:"), wanted = report->r->replicas;
    if (replicas < wanted)
        find(report, "replicas", HF_HEALTH_BAD, "start or repair replicas, or ask for fewer (replicas=)",
             "%" PRId64 " connected, %" PRId64 " must acknowledge each grant: none will succeed", replicas, wanted);
    else if (replicas && !wanted)
        find(report, "replicas", HF_HEALTH_NOTE, "replicas=1 makes each grant wait for one; check tokens in any case",
             "%" PRId64 " connected; after a failover one that lags may know less of who holds", replicas);
    else
        find(report, "replicas", HF_HEALTH_OK, NULL, "%" PRId64 " connected", replicas);
}

static void find_memory(const struct report *report, const char *info)
{
    char policy[64];
    int64_t used = number(info, "used_memory:"), most = number(info, "maxmemory:"),
            gone = number(info, "evicted_keys:");
    field(info, "maxmemory_policy:", policy);
    bool evicts = strcmp(policy, "noeviction") != 0;
    if (most && evicts)
        find(report, "eviction", gone ? HF_HEALTH_BAD : HF_HEALTH_WARN,
             "maxmemory-policy noeviction, or a server of its own for locks",
             "%s: when its memory is full the server may drop locks that are held; %" PRId64
             " keys were dropped so far",
             policy, gone);
    else
        find(report, "eviction", HF_HEALTH_OK, NULL, "%s: nothing is dropped", most ? policy : "memory has no limit");
    if (most && used / 9 > most / 10)
        find(report, "memory", HF_HEALTH_WARN, "raise maxmemory: with full memory no lock can be taken",
             "%" PRId64 " of %" PRId64 " MiB are used", used >> 20, most >> 20);
}

static void find_connections(const struct report *report, const char *info)
{
    int64_t now = number(info, "connected_clients:"), most = number(info, "maxclients:");
    int64_t refused = number(info, "rejected_connections:");
    bool many = most && now >= most - most / 10;
    find(report, "connections",
         many      ? HF_HEALTH_WARN
         : refused ? HF_HEALTH_NOTE
                   : HF_HEALTH_OK,
         many || refused ? "raise maxclients, or use fewer clients: one serves any number of threads" : NULL,
         "%" PRId64 " of %" PRId64 ", %" PRId64 " were refused since the start", now, most, refused);
}

static void find_all(const struct report *report, const struct hf_reply *reply)
{
    if (reply->type != HF_REPLY_TEXT) {
        find(report, "server", HF_HEALTH_NOTE, "give the user +info to see more", "does not answer INFO: %.150s",
             reply->type == HF_REPLY_ERROR ? reply->text : "no text");
        return;
    }
    find_server(report, reply->text);
    find_persistence(report, reply->text);
    find_replicas(report, reply->text);
    find_memory(report, reply->text);
    find_connections(report, reply->text);
}

static void find_user(const struct report *report, const struct hf_reply *reply)
{
    if (reply->type == HF_REPLY_TEXT && strcmp(reply->text, "default") == 0)
        find(report, "user", HF_HEALTH_NOTE, "docs/redis-operations.md lists the rights that a user for locks needs",
             "default, which has every right unless it was changed");
    else if (reply->type == HF_REPLY_TEXT)
        find(report, "user", HF_HEALTH_OK, NULL, "%.100s", reply->text);
    else
        find(report, "user", HF_HEALTH_OK, NULL, "may not ask for its own name, which is not needed");
}

/* {seconds, microseconds}. */
static void find_clock(const struct report *report, const struct hf_reply *reply)
{
    int64_t seconds = hf_reply_count(hf_reply_item(reply, 0)), micro = hf_reply_count(hf_reply_item(reply, 1));
    if (seconds < 0 || micro < 0)
        return;
    int64_t ahead = seconds * 1000000 + micro - hf_clock_wall_us();
    bool apart = ahead > CLOCK_APART_US || ahead < -CLOCK_APART_US;
    find(report, "clock", apart ? HF_HEALTH_WARN : HF_HEALTH_OK,
         apart ? "let ntp or chrony set it: locks end by this clock, and a step ends them early or late" : NULL,
         "%" PRId64 " ms %s ours", (ahead < 0 ? -ahead : ahead) / 1000, ahead < 0 ? "behind" : "ahead of");
}

void hf_examine_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply)
{
    struct report report = {.r = r, .a = request->attempt};
    switch (request->attempt->examined++) {
    case STEP_INFO:
        find_all(&report, reply);
        break;
    case STEP_WHOAMI:
        find_user(&report, reply);
        break;
    default:
        find_clock(&report, reply);
        hf_attempt_tell(r, request->attempt,
                        &(struct hf_news){.cue = HF_N_RELEASED, .asked_at = request->sent_at, .retry_at = HF_NEVER});
    }
}
