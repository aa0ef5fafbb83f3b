/* zk_diagnose.c - findings about the ensemble: servers, sessions, speed of a quorum write, access.
 */
#include "zk_admin.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

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

static void judge_servers(struct zk *zk, struct zk_admin *admin)
{
    assert(admin->op && admin->at <= admin->names);
    unsigned count = zk->endpoints.count;
    if (count == 1)
        find(zk, admin, "servers", HF_HEALTH_WARN,
             "name all servers of the ensemble: zookeeper://A,B,C",
             "the URL names one server: a client that it loses is lost with it");
    else
        find(zk, admin, "servers", count % 2 ? HF_HEALTH_OK : HF_HEALTH_NOTE,
             count % 2 ? "" : "an odd number tolerates as many failures with fewer servers",
             "the URL names %u servers", count);
}

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

static void judge_write(struct zk *zk, struct zk_admin *admin, const struct zk_header *header,
                        nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    long long ms = (long long)((now - admin->sent_at) / NANOS_OF_MS(1));
    bool is_slow = ms > 100;
    if (header->error && header->error != ZK_NO_NODE)
        find(zk, admin, "quorum write", HF_HEALTH_BAD, "look at the logs of the servers",
             "a quorum write failed: %s", zk_error_text(header->error));
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

void zk_diagnose_begin(struct zk *zk, struct zk_admin *admin, nanos now)
{
    admin->step = STEP_DIAGNOSE;
    admin->sent_at = now;
    zk_put_quorum_check(&zk->message, zk_call_begin(admin->session), zk->root);
    zk_admin_call(zk, admin, now);
}

void zk_diagnose_on_reply(struct zk *zk, struct zk_admin *admin, const struct zk_header *header,
                          nanos now)
{
    assert(admin->op && admin->at <= admin->names);
    judge_servers(zk, admin);
    judge_session(zk, admin);
    judge_write(zk, admin, header, now);
    judge_access(zk, admin);
    zk_admin_reply(zk, admin, REPLY_RELEASED, HF_OK, NULL);
}
