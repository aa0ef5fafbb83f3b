/* consul_diagnose.c - findings about the agent and its servers: version, leader, peers, access. */
#include "consul_admin.h"
#include "json_library.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const paths[] = {"/v1/agent/self", "/v1/status/leader", "/v1/status/peers"};
enum { STEP_SELF, STEP_LEADER, STEP_PEERS, STEPS };

__attribute__((format(printf, 6, 7))) static void find(struct consul *c, struct consul_admin *admin,
                                                       const char *what, hf_health health,
                                                       const char *advice, const char *format, ...)
{
    assert(admin->op && admin->count <= admin->room);
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = c->where,
                                 .what = what,
                                 .health = health,
                                 .text = text,
                                 .advice = advice};
    c->host->find(c->host->ctx, admin->op, &finding);
}

static const char *text_in(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Judges the agent's report about itself. A token without the right to read that report is not a
 * fault. */
static void judge_self(struct consul *c, struct consul_admin *admin,
                       const struct consul_reply *reply)
{
    assert(admin->op && admin->count <= admin->room);
    const json_t *config = json_object_get(reply->json, "Config");
    const json_t *debug = json_object_get(reply->json, "DebugConfig");
    const char *shortest = text_in(debug, "SessionTTLMin");
    if (!config) {
        find(c, admin, "agent", HF_HEALTH_NOTE, "agent_prefix \"\" { policy = \"read\" }",
             "the token may not read the agent's configuration");
        return;
    }

    find(c, admin, "version", HF_HEALTH_NOTE, "keep the machine of the leader from pausing",
         "Consul %s: a leader that stood still for more than two ttl may end live sessions later; "
         "the holder is told at once, and tokens rise; lock_delay closes the gap",
         text_in(config, "Version"));
    find(c, admin, "sessions", HF_HEALTH_OK, "",
         "the servers keep sessions for %s or longer; session_min is %" PRId64 "s",
         shortest[0] && strcmp(shortest, "0s") != 0 ? shortest : "10s",
         c->limits.ttl_min_ms / 1000);
    const json_t *most = json_object_get(debug, "HTTPMaxConnsPerClient");

    if (json_is_integer(most) && json_integer_value(most) > 0)
        find(c, admin, "connections", HF_HEALTH_OK, "",
             "the agent takes %" JSON_INTEGER_FORMAT
             " connections of one address (http_max_conns_per_client); a client that waits has two",
             json_integer_value(most));
}

static void judge_leader(struct consul *c, struct consul_admin *admin,
                         const struct consul_reply *reply)
{
    assert(admin->op && admin->count <= admin->room);
    const char *leader = json_string_value(reply->json);
    bool known = reply->status == 200 && leader && leader[0];
    find(c, admin, "leader", known ? HF_HEALTH_OK : HF_HEALTH_BAD,
         known ? "" : "look at the logs of the servers",
         known ? "the servers have a leader" : "the servers have no leader: no lock can be taken");
}

static void judge_peers(struct consul *c, struct consul_admin *admin,
                        const struct consul_reply *reply)
{
    assert(admin->op && admin->count <= admin->room);
    size_t servers = json_array_size(reply->json);
    if (servers == 1)
        find(c, admin, "servers", HF_HEALTH_WARN, "run three servers on three machines",
             "there is one server: locks are as available as its machine");
    else if (servers > 1)
        find(c, admin, "servers", servers % 2 ? HF_HEALTH_OK : HF_HEALTH_NOTE,
             servers % 2 ? "" : "an odd number tolerates as many failures with fewer servers",
             "there are %zu servers", servers);
}

static void judge_access(struct consul *c, struct consul_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    if (!c->endpoints.password[0])
        find(c, admin, "acl", HF_HEALTH_NOTE,
             "enable ACLs, and give a token with write on the prefix",
             "no token is given: whoever reaches the agent can take and break locks");

    if (!c->endpoint->tls)
        find(c, admin, "tls", HF_HEALTH_NOTE, "use consuls://", "the connection is not encrypted");
}

void consul_diagnose_begin(struct consul *c, struct consul_admin *admin, nanos now)
{
    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "GET %s", paths[admin->step]);
    consul_admin_call(c, admin, now);
}

void consul_diagnose_on_reply(struct consul *c, struct consul_admin *admin,
                              const struct consul_reply *reply, nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    if (admin->step == STEP_SELF)
        judge_self(c, admin, reply);
    else if (admin->step == STEP_LEADER)
        judge_leader(c, admin, reply);
    else
        judge_peers(c, admin, reply);

    if (++admin->step < STEPS) {
        consul_diagnose_begin(c, admin, now);
        return;
    }

    judge_access(c, admin);
    consul_admin_reply(c, admin, REPLY_RELEASED, HF_OK, NULL);
}
