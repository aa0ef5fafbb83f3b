/* etcd_diagnose.c - findings about the cluster: version, members, alarms, access. */
#include "etcd_admin.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const paths[] = {"/etcdserverpb.Maintenance/Status",
                                    "/etcdserverpb.Cluster/MemberList",
                                    "/etcdserverpb.Maintenance/Alarm"};
enum { STEPS = sizeof paths / sizeof *paths };

__attribute__((format(printf, 6, 7))) static void find(struct etcd *e, struct etcd_admin *admin,
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
                                 .where = e->where,
                                 .what = what,
                                 .health = health,
                                 .text = text,
                                 .advice = advice};
    e->host->find(e->host->ctx, admin->op, &finding);
}

/* A leader that was hung for longer than the ttl and resumes ends leases that were renewed at
 * its successor. 3.4.31 and 3.5.13 do so more rarely. */
static void judge_version(struct etcd *e, struct etcd_admin *admin, const char *version)
{
    assert(admin->op && admin->count <= admin->room);
    unsigned major = 0, minor = 0, patch = 0;
    sscanf(version, "%u.%u.%u", &major, &minor, &patch);
    bool old = major < 3 || (major == 3 && minor < 4) || (minor == 4 && patch < 31) ||
               (minor == 5 && patch < 13);
    find(e, admin, "version", old ? HF_HEALTH_WARN : HF_HEALTH_NOTE,
         old ? "update to 3.4.31, 3.5.13 or later; keep the machine of the leader from pausing"
             : "keep the machine of the leader from pausing",
         "etcd %s: a leader that stood still for longer than a ttl may end live leases; the holder "
         "is told at once, and tokens rise",
         version);
}

static void judge_status(struct etcd *e, struct etcd_admin *admin, struct pb_reader reader)
{
    assert(admin->op && admin->count <= admin->room);
    struct pb_field field;
    char version[32] = "?";
    uint64_t leader = 0, size = 0;

    while (pb_next(&reader, &field)) {
        if (field.number == 2)
            snprintf(version, sizeof version, "%.*s", (int)pb_len(&field.inside), field.inside.at);
        else if (field.number == 3)
            size = field.value;
        else if (field.number == 4)
            leader = field.value;
    }

    judge_version(e, admin, version);
    find(e, admin, "leader", leader ? HF_HEALTH_OK : HF_HEALTH_BAD,
         leader ? "" : "look at the logs of the members",
         leader ? "the cluster has a leader" : "the cluster has no leader: no lock can be taken");
    bool large = size > UINT64_C(1600) << 20;
    find(e, admin, "database", large ? HF_HEALTH_WARN : HF_HEALTH_OK,
         large ? "compact and defragment; see --auto-compaction-retention" : "",
         "the database has %llu MB; by default etcd stops at 2048 MB",
         (unsigned long long)(size >> 20));
}

static void judge_members(struct etcd *e, struct etcd_admin *admin, struct pb_reader reader)
{
    assert(admin->op && admin->count <= admin->room);
    struct pb_field field;
    unsigned members = 0;
    while (pb_next(&reader, &field))
        members += field.number == 2;

    if (members == 1)
        find(e, admin, "members", HF_HEALTH_WARN, "run three members on three machines",
             "the cluster has one member: locks are as available as its machine");
    else
        find(e, admin, "members", members % 2 ? HF_HEALTH_OK : HF_HEALTH_NOTE,
             members % 2 ? "" : "an odd number tolerates as many failures with fewer members",
             "the cluster has %u members", members);
}

static void judge_alarms(struct etcd *e, struct etcd_admin *admin, struct pb_reader reader)
{
    assert(admin->op && admin->count <= admin->room);
    struct pb_field field;
    unsigned alarms = 0;
    while (pb_next(&reader, &field))
        alarms += field.number == 2;
    find(e, admin, "alarms", alarms ? HF_HEALTH_BAD : HF_HEALTH_OK,
         alarms ? "etcdctl alarm list" : "",
         alarms ? "an alarm is raised: etcd refuses writes, so no lock can be taken"
                : "no alarm is raised");
}

static void judge_access(struct etcd *e, struct etcd_admin *admin)
{
    assert(admin->op && admin->count <= admin->room);
    if (!e->endpoints.user[0])
        find(e, admin, "auth", HF_HEALTH_NOTE, "etcdctl auth enable, and a user for the prefix",
             "no user is given: whoever reaches etcd can take and break locks");
    if (!e->endpoint->tls)
        find(e, admin, "tls", HF_HEALTH_NOTE, "use etcds://", "the connection is not encrypted");
}

static void send_step(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    pb_clear(&e->message);
    etcd_admin_call(e, admin, paths[admin->step], now);
}

void etcd_diagnose_begin(struct etcd *e, struct etcd_admin *admin, nanos now)
{
    send_step(e, admin, now);
}

void etcd_diagnose_on_reply(struct etcd *e, struct etcd_admin *admin, const char *bytes, size_t len,
                            nanos now)
{
    assert(admin->op && admin->count <= admin->room);
    struct pb_reader reader = pb_read(bytes, len);
    if (admin->step == 0)
        judge_status(e, admin, reader);
    else if (admin->step == 1)
        judge_members(e, admin, reader);
    else
        judge_alarms(e, admin, reader);

    if (++admin->step < STEPS) {
        send_step(e, admin, now);
        return;
    }

    judge_access(e, admin);
    etcd_admin_reply(e, admin, REPLY_RELEASED, HF_OK, NULL);
}
