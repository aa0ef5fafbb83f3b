/* redis_diagnose.c - findings about the server for an operator: each says what it means for
 * locks and what to do about it. */
#include "redis.h"

#include "sys/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_PATIENCE NANOS_OF_MS(2000)
/* Tokens and ends of two servers cannot be compared if their clocks differ by more. */
#define CLOCK_APART_US 1000000

/* A service that only speaks the protocol may lack any of STEP_EVAL to STEP_WAIT. */
enum {
    STEP_INFO,
    STEP_WHOAMI,
    STEP_LIBRARY,
    STEP_CLUSTER,
    STEP_NODES,
    STEP_EVAL,       /* a script without keys */
    STEP_UNDECLARED, /* a script with a key that is not declared, as messages to inboxes use */
    STEP_POP,
    STEP_PUBLISH,
    STEP_SHARDED,
    STEP_WAIT,
    STEP_TIME,
    STEPS
};

/* ---- Questions ---- */

/* Writes the name of a channel on which this client, waiting on this server, could be notified. */
static void name_channel(const struct redis *r, char channel[REDIS_KEY_MAX + REDIS_ID_TEXT])
{
    char name[REDIS_KEY_MAX] = "?";
    struct redis_keys keys;
    size_t len = 0;
    if (r->cluster.is_on)
        redis_acl_name_in_slot(r, r->cluster.probe_slot, name, sizeof name);
    if (redis_keys_here(r, &keys, name, strlen(name)) == HF_OK) {
        keys.companion[keys.letter] = 'q';
        len = keys.companion_len;
        memcpy(channel, keys.companion, len);
    }
    memcpy(channel + len, r->self, REDIS_ID_TEXT + 1);
}

/* Writes the request of a step. None of them changes anything: nobody writes to that inbox, and
 * nobody listens to that channel. */
static void write_question(struct redis *r, int step)
{
    char own[sizeof r->box + REDIS_KEY_MAX], channel[REDIS_KEY_MAX + REDIS_ID_TEXT + 1];
    snprintf(own, sizeof own, "{%s}:inbox:%s?", r->prefix, r->self); /* no waiter has this inbox */
    name_channel(r, channel);
    const char *const questions[STEPS][7] = {
        [STEP_INFO] = {"INFO", "everything"},
        [STEP_WHOAMI] = {"ACL", "WHOAMI"},
        [STEP_LIBRARY] = {"FUNCTION", "LIST", "LIBRARYNAME", redis_library_name, "WITHCODE"},
        [STEP_CLUSTER] = {"CLUSTER", "INFO"},
        [STEP_NODES] = {"CLUSTER", "NODES"},
        [STEP_EVAL] = {"EVAL", "return 1", "0"},
        [STEP_UNDECLARED] = {"EVAL", "return redis.call('EXISTS', ARGV[1])", "0", own},
        [STEP_POP] = {"BLMPOP", "0.001", "1", own, "LEFT"},
        [STEP_PUBLISH] = {"PUBLISH", own, ""},
        [STEP_SHARDED] = {"SPUBLISH", channel, ""},
        [STEP_WAIT] = {"WAIT", "0", "1"},
        [STEP_TIME] = {"TIME"}};
    unsigned words = 0;
    while (words < 7 && questions[step][words])
        words++;

    resp_command_begin(&r->command, words);
    for (unsigned i = 0; i < words; i++)
        resp_command_text(&r->command, questions[step][i]);
}

/* Returns true if the question makes sense for this server. A script in a cluster uses no key
 * that is not declared, and messages there go by sharded channels. */
static bool is_asked(const struct redis *r, int step)
{
    switch (step) {
    case STEP_CLUSTER:
    case STEP_NODES:
    case STEP_SHARDED:
        return r->cluster.is_on;
    case STEP_UNDECLARED:
    case STEP_POP:
    case STEP_PUBLISH:
        return !r->cluster.is_on;
    default:
        return true;
    }
}

/* Sends all questions at once; the replies arrive in the same order. */
void redis_diagnose_begin(struct redis *r, struct redis_op *a, nanos now)
{
    assert(a->sent_op.verb == OP_ADMIN);
    struct redis_connection *connection = &r->connection[CONNECTION_COMMANDS];
    a->diagnose_replies = a->diagnose_lacks = 0;

    for (int i = 0; i < STEPS && connection->state == CONNECTION_UP; i++) {
        if (!is_asked(r, i))
            continue;
        write_question(r, i);
        struct request request = {
            .kind = REQ_STEP, .verb = ADMIN_DIAGNOSE, .op = a, .patience = STEP_PATIENCE};
        /* If a later question cannot be sent, the connection is broken, and has already replied for
         * the first one. */
        if (!redis_connection_send(r, connection, request, now) && i == 0) {
            redis_op_fail_with(r, a, connection, now);
            return;
        }
    }

    a->op->connections = redis_connection_bit(r, CONNECTION_COMMANDS);
}

/* ---- Findings ---- */

struct report {
    struct redis *r;
    struct redis_op *a;
};

void redis_find(struct redis *r, const struct redis_op *a, const char *what, hf_health health,
                const char *advice, const char *format, ...)
{
    char text[300];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = r->where,
                                 .what = what,
                                 .health = health,
                                 .text = text,
                                 .advice = advice ? advice : ""};
    r->host->find(r->host->ctx, a->op, &finding);
}

#define find(report, ...) redis_find((report)->r, (report)->a, __VA_ARGS__)

/* Copies a field of INFO, up to the end of its line; "": no such field. */
static const char *field(const char *info, const char *name, char out[64])
{
    const char *at = redis_greeting_info_field(info, name);
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
        field(info, "server_mode:", mode); /* Valkey calls the field server_mode since version 8 */
    find(report, "server", HF_HEALTH_OK, NULL, "%s %s, %s, up for %" PRId64 " s",
         is_valkey ? "Valkey" : "Redis",
         is_valkey ? valkey : field(info, "redis_version:", version), mode, uptime);

    if (uptime < 60)
        find(report, "uptime", HF_HEALTH_NOTE,
             "see why it restarted: without persistence a restart frees every lock",
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
             "append-only file: locks survive a restart, up to what was not yet synced "
             "(appendfsync)");
    else
        find(report, "persistence", HF_HEALTH_NOTE,
             "appendonly yes, where two holders after a restart would do harm; and check tokens "
             "(fencing)",
             "no append-only file: a restart frees locks that were taken since the last snapshot, "
             "if there is one");
}

static void find_replicas(const struct report *report, const char *info)
{
    int64_t replicas = number(info, "connected_slaves:"), wanted = report->r->replicas;
    if (replicas < wanted)
        find(report, "replicas", HF_HEALTH_BAD,
             "start or repair replicas, or ask for fewer (replicas=)",
             "%" PRId64 " connected, %" PRId64 " must acknowledge each grant: none will succeed",
             replicas, wanted);
    else if (replicas && !wanted)
        find(report, "replicas", HF_HEALTH_NOTE,
             "replicas=1 makes each grant wait for one; check tokens in any case",
             "%" PRId64 " connected; after a failover one that lags may know less of who holds",
             replicas);
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
        find(report, "eviction", HF_HEALTH_OK, NULL, "%s: nothing is dropped",
             most ? policy : "memory has no limit");

    if (most && used / 9 > most / 10)
        find(report, "memory", HF_HEALTH_WARN,
             "raise maxmemory: with full memory no lock can be taken",
             "%" PRId64 " of %" PRId64 " MiB are used", used >> 20, most >> 20);
}

static void find_connections(const struct report *report, const char *info)
{
    int64_t now = number(info, "connected_clients:"), most = number(info, "maxclients:");
    int64_t refused = number(info, "rejected_connections:");
    bool many = most && now >= most - most / 10;
    hf_health health = refused ? HF_HEALTH_NOTE : HF_HEALTH_OK;
    const char *advice =
        many || refused ? "raise maxclients, or use fewer clients: one serves any number of threads"
                        : NULL;

    find(report, "connections", many ? HF_HEALTH_WARN : health, advice,
         "%" PRId64 " of %" PRId64 ", %" PRId64 " were refused since the start", now, most,
         refused);
}

static void find_all(const struct report *report, const struct resp_reply *resp)
{
    if (resp->type != RESP_TEXT) {
        find(report, "server", HF_HEALTH_NOTE, "give the user +info to see more",
             "does not answer INFO: %.150s", resp->type == RESP_ERROR ? resp->text : "no text");
        return;
    }

    find_server(report, resp->text);
    find_persistence(report, resp->text);
    find_replicas(report, resp->text);
    find_memory(report, resp->text);
    find_connections(report, resp->text);
}

static void find_user(const struct report *report, const struct resp_reply *resp)
{
    if (resp->type == RESP_TEXT && strcmp(resp->text, "default") == 0)
        find(report, "user", HF_HEALTH_NOTE,
             "docs/redis-operations.md lists the rights that a user for locks needs",
             "default, which has every right unless it was changed");
    else if (resp->type == RESP_TEXT)
        find(report, "user", HF_HEALTH_OK, NULL, "%.100s", resp->text);
    else
        find(report, "user", HF_HEALTH_OK, NULL,
             "may not ask for its own name, which is not needed");
}

const struct resp_reply *redis_value_of(const struct resp_reply *list, const char *name)
{
    const struct resp_reply *at = list && list->type == RESP_LIST ? list->first : NULL;
    for (; at && at->next; at = at->next->next)
        if (at->type == RESP_TEXT && strcmp(at->text, name) == 0)
            return at->next;
    return NULL;
}

bool redis_is_our_library(const struct resp_reply *code)
{
    const char *head = redis_script_texts[SCRIPT_LIBRARY].head;
    size_t head_len = strlen(head);
    return code->type == RESP_TEXT && code->len == head_len + redis_script_body_len &&
           memcmp(code->text, head, head_len) == 0 &&
           memcmp(code->text + head_len, redis_script_body, redis_script_body_len) == 0;
}

/* Reports how verbs are called, and whether somebody changed the library. */
static void find_library(const struct report *report, const struct resp_reply *resp)
{
    const struct redis *r = report->r;
    const struct resp_reply *code = redis_value_of(resp_item(resp, 0), "library_code");

    if (r->by_scripts)
        find(report, "library", HF_HEALTH_NOTE,
             "give the user +fcall, and load the library as an administrator: holdfast doctor "
             "--install",
             "runs as scripts (EVALSHA), which cost the server more: %.120s", r->no_functions);
    else if (code && !redis_is_our_library(code))
        find(report, "library", HF_HEALTH_BAD, "holdfast doctor --install loads it again",
             "%s on the server is not the text of that name: somebody changed it",
             redis_library_name);
    else
        find(report, "library", HF_HEALTH_OK, NULL, "%s, as functions (FCALL)%s",
             redis_library_name, code ? "" : "; the user may not read its text");
}

/* Reads {seconds, microseconds}. */
static void find_clock(const struct report *report, const struct resp_reply *resp)
{
    int64_t seconds = resp_count(resp_item(resp, 0)), micro = resp_count(resp_item(resp, 1));
    if (seconds < 0 || micro < 0)
        return;

    int64_t ahead = seconds * 1000000 + micro - clock_wall_us();
    bool apart = ahead > CLOCK_APART_US || ahead < -CLOCK_APART_US;
    find(report, "clock", apart ? HF_HEALTH_WARN : HF_HEALTH_OK,
         apart ? "let ntp or chrony set it: locks end by this clock, and a step ends them early or "
                 "late"
               : NULL,
         "%" PRId64 " ms %s ours", (ahead < 0 ? -ahead : ahead) / 1000,
         ahead < 0 ? "behind" : "ahead of");
}

/* Reads CLUSTER INFO. */
static void find_cluster(const struct report *report, const struct resp_reply *resp)
{
    char state[64];
    if (resp->type != RESP_TEXT) {
        find(report, "cluster", HF_HEALTH_NOTE, "give the user +cluster|info to see more",
             "does not answer CLUSTER INFO: %.150s", resp->type == RESP_ERROR ? resp->text : "");
        return;
    }

    int64_t assigned = number(resp->text, "cluster_slots_assigned:");
    bool is_ok = strcmp(field(resp->text, "cluster_state:", state), "ok") == 0;
    find(report, "cluster", is_ok ? HF_HEALTH_OK : HF_HEALTH_BAD,
         is_ok ? NULL : "redis-cli --cluster check HOST:PORT names what is missing",
         "state %s, %" PRId64 " nodes, %" PRId64 " primaries with slots", state,
         number(resp->text, "cluster_known_nodes:"), number(resp->text, "cluster_size:"));

    if (assigned < CLUSTER_SLOTS)
        find(report, "slots", HF_HEALTH_BAD, "redis-cli --cluster fix HOST:PORT",
             "%" PRId64 " slots have no server: locks in them cannot be taken",
             CLUSTER_SLOTS - assigned);
}

/* The line of the server itself in CLUSTER NODES names slots that are being moved:
 * "[93->-NODE]" away, "[77-<-NODE]" here. */
static void find_moves(const struct report *report, const struct resp_reply *resp)
{
    const char *own = resp->type == RESP_TEXT ? strstr(resp->text, "myself") : NULL;
    char slots[120] = "";
    size_t len = 0;
    unsigned count = 0;
    if (!own)
        return;

    for (const char *at = own, *end = own + strcspn(own, "\n");
         (at = memchr(at, '[', (size_t)(end - at))); at++, count++)
        if (len + 8 < sizeof slots)
            len += (size_t)snprintf(slots + len, sizeof slots - len, " %d", atoi(at + 1));

    if (count)
        find(report, "moves", HF_HEALTH_WARN,
             "redis-cli --cluster fix HOST:PORT, unless the move is still going on",
             "%u slots are half moved, as%s: their locks can be renewed, but not taken", count,
             slots);
    else
        find(report, "moves", HF_HEALTH_OK, NULL, "no slot is half moved");
}

/* Returns true if this client, with the settings of its URL, needs what that step tried. */
static bool is_needed(const struct redis *r, int step)
{
    switch (step) {
    case STEP_EVAL:
        return r->by_scripts;
    case STEP_UNDECLARED:
    case STEP_POP:
        return r->box[0] == 'i' && !r->is_quorum_member;
    case STEP_PUBLISH:
        return r->box[0] == 'p' || r->is_quorum_member;
    case STEP_SHARDED:
        return r->box[0] == 's';
    default:
        return r->replicas > 0;
    }
}

/* Reports a command that the server refused, and the setting that avoids it. */
static void find_lack(const struct report *report, int step, const struct resp_reply *resp)
{
    static const char *const avoided[STEPS][2] = {
        [STEP_EVAL] = {"EVAL", "none is needed: the library runs as functions (FCALL)"},
        [STEP_UNDECLARED] = {"scripts with keys that are not declared",
                             "wake=pubsub, or wake=poll: messages to an inbox need this"},
        [STEP_POP] = {"BLMPOP", "wake=pubsub, or wake=poll: waiters read their inbox with it"},
        [STEP_PUBLISH] = {"PUBLISH", "wake=inbox, or wake=poll: do not set wake=pubsub"},
        [STEP_SHARDED] = {"SPUBLISH", "wake=poll: messages in a cluster go by sharded channels"},
        [STEP_WAIT] = {"WAIT", "leave out replicas=: a grant cannot wait for replicas here"}};
    bool is_refused = resp->type == RESP_ERROR;
    /* without EVAL the step cannot be tried; functions have the same rule as scripts */
    bool is_untried = step == STEP_UNDECLARED && report->a->diagnose_lacks & 1u << STEP_EVAL;
    if (!is_refused || is_untried)
        return;

    report->a->diagnose_lacks |= 1u << step;
    bool is_denied = strncmp(resp->text, "NOPERM", 6) == 0;
    hf_health other = is_denied ? HF_HEALTH_OK : HF_HEALTH_NOTE;
    hf_health health = is_needed(report->r, step) ? HF_HEALTH_BAD : other;
    find(report, "offers", health, health == HF_HEALTH_OK ? NULL : avoided[step][1],
         "%s: %s: %.120s", avoided[step][0],
         is_denied ? "the user may not use this" : "the server refuses this", resp->text);
}

static void find_offers(const struct report *report)
{
    if (!report->a->diagnose_lacks)
        find(report, "offers", HF_HEALTH_OK, NULL,
             report->r->cluster.is_on ? "EVAL, SPUBLISH and WAIT work"
                                      : "EVAL, keys that are not declared, BLMPOP, PUBLISH and "
                                        "WAIT work");
}

void redis_diagnose_answer(struct redis *r, const struct request *request,
                           const struct resp_reply *resp)
{
    assert(request->kind == REQ_STEP && request->verb == ADMIN_DIAGNOSE);
    struct report report = {.r = r, .a = request->op};
    while (!is_asked(r, (int)request->op->diagnose_replies))
        request->op->diagnose_replies++;

    unsigned step = request->op->diagnose_replies++;
    if (step >= STEP_EVAL && step <= STEP_WAIT)
        find_lack(&report, (int)step, resp);
    switch (step) {
    case STEP_INFO:
        find_all(&report, resp);
        break;
    case STEP_WHOAMI:
        find_user(&report, resp);
        break;
    case STEP_LIBRARY:
        find_library(&report, resp);
        break;
    case STEP_CLUSTER:
        find_cluster(&report, resp);
        break;
    case STEP_NODES:
        find_moves(&report, resp);
        break;
    case STEP_EVAL:
    case STEP_UNDECLARED:
    case STEP_POP:
    case STEP_PUBLISH:
    case STEP_SHARDED:
        break;
    case STEP_WAIT:
        find_offers(&report);
        break;
    default:
        find_clock(&report, resp);
        redis_op_reply(r, request->op,
                       &(struct engine_reply){.kind = REPLY_RELEASED,
                                              .asked_at = request->sent_at,
                                              .retry_at = TIME_NEVER});
    }
}
