/* zk_diagnose.c - findings about the ensemble: servers, sessions, speed of a quorum write, access.
 */
#include "zk_admin.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 6, 7))) static void find(struct zk *zk, struct zk_admin *admin,
                                                       const char *what, hf_health health,
                                                       const char *advice, const char *format, ...)
{
    assert(admin->op && admin->at <= admin->names);
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = admin->session->where,
                                 .what = what,
                                 .health = health,
                                 .text = text,
                                 .advice = advice};
    zk->host->find(zk->host->ctx, admin->op, &finding);
}

/* ---- The ensemble ---- */

static void judge_servers(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    unsigned named = zk->endpoints.count, all = admin->voters + admin->observers;
    if (named == 1 && all != 1)
        find(zk, admin, "servers", HF_HEALTH_WARN,
             "name all servers of the ensemble: zookeeper://A,B,C",
             "the URL names one server: a client that it loses is lost with it");
    else if (all > named)
        find(zk, admin, "servers", HF_HEALTH_NOTE, "name all of them",
             "the URL names %u servers of %u", named, all);
    else
        find(zk, admin, "servers", HF_HEALTH_OK, "", "the URL names %u servers", named);
}

static void judge_ensemble(struct zk *zk, struct zk_admin *admin)
{
    unsigned voters = admin->voters, observers = admin->observers;
    if (!voters)
        find(zk, admin, "ensemble", HF_HEALTH_NOTE,
             "let everybody read /zookeeper/config, or count the servers yourself",
             "the server does not tell who belongs to its ensemble: it runs alone, or forbids it");
    else if (voters == 1)
        find(zk, admin, "ensemble", HF_HEALTH_WARN, "use three servers",
             "one server alone: locks are not to be had while it is away");
    else
        find(zk, admin, "ensemble", voters % 2 ? HF_HEALTH_OK : HF_HEALTH_NOTE,
             voters % 2 ? "" : "an odd number tolerates as many failures with fewer servers",
             "%u servers vote: %u may fail", voters, (voters - 1) / 2);
    if (observers)
        find(zk, admin, "observers", HF_HEALTH_NOTE,
             "leave observers out of the URL, if they are far away",
             "%u observers do not vote: holds through them are renewed by way of the leader",
             observers);
}

/* The config has a line "server.N=HOST:PORT:PORT:ROLE" for each server. */
static void read_config(struct zk_admin *admin, struct jute_bytes config)
{
    static const char prefix[] = "server.", observer[] = ":observer";
    const char *at = config.at, *end = at + config.len;
    while (at < end) {
        const char *row_end = memchr(at, '\n', (size_t)(end - at));
        row_end = row_end ? row_end : end;
        size_t len = (size_t)(row_end - at);
        bool is_server = len > sizeof prefix - 1 && memcmp(at, prefix, sizeof prefix - 1) == 0;
        if (is_server && memmem(at, len, observer, sizeof observer - 1))
            admin->observers++;
        else if (is_server)
            admin->voters++;
        at = row_end + 1;
    }
}

/* ---- Sessions and settings ---- */

static void judge_session(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    const struct zk_session *s = admin->session;
    long long longest = (long long)zk_session_ttl_max(s);
    bool is_cut = s->timeout_ms < s->wanted_ms, is_short = longest < zk->default_ttl_ms;
    find(zk, admin, "sessions", is_short ? HF_HEALTH_WARN : HF_HEALTH_OK,
         is_short ? "raise maxSessionTimeout of the ensemble, or use a shorter ttl" : "",
         "a session of %d ms was asked for, and the ensemble gave %d ms: a ttl of %lld ms is %s",
         s->wanted_ms, s->timeout_ms, longest, is_cut ? "the longest" : "possible");
}

/* Without `minSessionTimeout` of two ticks a follower may report a session too late (G50). */
static void judge_bounds(struct zk *zk, struct zk_admin *admin)
{
    long long least, most, tick;
    bool is_known = admin->has_settings && zk_words_number(zk, "minSessionTimeout", &least) &&
                    zk_words_number(zk, "maxSessionTimeout", &most) &&
                    zk_words_number(zk, "tickTime", &tick);
    if (!is_known)
        find(zk, admin, "bounds", HF_HEALTH_NOTE, "add conf to 4lw.commands.whitelist",
             "the server does not tell its settings");
    else if (least < 2 * tick)
        find(zk, admin, "bounds", HF_HEALTH_BAD, "leave minSessionTimeout at two ticks or more",
             "minSessionTimeout is %lld ms, and a tick %lld ms: a follower may report a session "
             "after its end, and then two clients hold at once",
             least, tick);
    else
        find(zk, admin, "bounds", HF_HEALTH_OK, "",
             "sessions last from %lld to %lld ms: a ttl is at most %lld ms, and the lock of a dead "
             "process stays for %lld ms at least",
             least, most, most * 3 / 4, least);
}

static void judge_room(struct zk *zk, struct zk_admin *admin)
{
    enum { FEW = 60, GIGABYTE = 1 << 30 };
    long long most, size;
    if (admin->has_settings && zk_words_number(zk, "maxClientCnxns", &most)) {
        bool is_few = most > 0 && most <= FEW;
        if (most == 0)
            find(zk, admin, "connections", HF_HEALTH_OK, "",
                 "maxClientCnxns is 0: a host may have any number of connections");
        else
            find(zk, admin, "connections", is_few ? HF_HEALTH_NOTE : HF_HEALTH_OK,
                 is_few ? "raise maxClientCnxns if more processes than that run on one host" : "",
                 "maxClientCnxns is %lld: each client has a connection for each ttl, and one for "
                 "each detached hold that is in use",
                 most);
    }
    if (admin->has_settings && zk_words_number(zk, "dataDirSize", &size)) {
        bool is_big = size > GIGABYTE;
        find(zk, admin, "snapshots", is_big ? HF_HEALTH_WARN : HF_HEALTH_OK,
             is_big ? "set autopurge.purgeInterval and autopurge.snapRetainCount" : "",
             "snapshots take %lld MB", size >> 20);
    }
}

static void judge_write(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    long long ms = (long long)(admin->write_took / NANOS_OF_MS(1));
    bool is_slow = ms > 100;
    if (admin->write_error && admin->write_error != ZK_NO_NODE)
        find(zk, admin, "quorum write", HF_HEALTH_BAD, "look at the logs of the servers",
             "a quorum write failed: %s", zk_error_text(admin->write_error));
    else
        find(zk, admin, "quorum write", is_slow ? HF_HEALTH_WARN : HF_HEALTH_OK,
             is_slow ? "give the transaction log a disk of its own" : "",
             "a quorum write took %lld ms", ms);
}

static void judge_access(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    if (!zk->endpoints.user[0])
        find(zk, admin, "auth", HF_HEALTH_NOTE, "give a user: zookeeper://user:password@host",
             "no user is given: whoever reaches ZooKeeper can take and break locks");
    if (!zk->endpoints.one[0].tls)
        find(zk, admin, "tls", HF_HEALTH_NOTE, "use zookeepers://",
             "the connection is not encrypted");
}

/* ---- Asking ---- */

enum { QUESTION_WRITE, QUESTION_CONFIG };

static bool send_question(struct zk *zk, struct zk_admin *admin, uint32_t question, nanos now)
{
    int32_t xid = zk_call_begin(admin->session);
    if (question == QUESTION_WRITE)
        zk_put_quorum_check(&zk->message, xid, zk->root);
    else
        zk_put_get_data(&zk->message, xid, "/zookeeper/config", false);
    admin->awaited++;
    struct zk_call *call = zk_admin_call(zk, admin, now);
    if (call)
        call->index = question;
    return call;
}

void zk_diagnose_begin(struct zk *zk, struct zk_admin *admin, nanos now)
{
    admin->step = STEP_DIAGNOSE;
    admin->sent_at = now;
    if (send_question(zk, admin, QUESTION_WRITE, now))
        send_question(zk, admin, QUESTION_CONFIG, now);
}

/* Counts an answer, and reports once all answers have come. */
static void take_answer(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->awaited);
    if (--admin->awaited)
        return;
    judge_servers(zk, admin);
    judge_ensemble(zk, admin);
    judge_session(zk, admin);
    judge_bounds(zk, admin);
    judge_room(zk, admin);
    judge_write(zk, admin);
    judge_access(zk, admin);
    zk_admin_reply(zk, admin, REPLY_RELEASED, HF_OK, NULL);
}

void zk_diagnose_on_reply(struct zk *zk, struct zk_admin *admin, const struct zk_call *call,
                          const struct zk_header *header, struct jute_reader *body, nanos now)
{
    struct jute_bytes config;
    struct zk_stat stat;
    if (call->index == QUESTION_WRITE) {
        admin->write_took = now - admin->sent_at;
        admin->write_error = header->error;
    } else if (!header->error && zk_read_data(body, &config, &stat)) {
        read_config(admin, config);
    }
    take_answer(zk, admin);
}

void zk_diagnose_on_words(struct zk *zk, struct zk_admin *admin)
{
    long long tick;
    admin->has_settings = zk_words_number(zk, "tickTime", &tick);
    if (admin->step == STEP_DIAGNOSE)
        take_answer(zk, admin);
    else
        admin->awaited--;
}
