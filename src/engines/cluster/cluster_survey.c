/* cluster_survey.c - list, diagnose, and installing or pruning the Lua library: one request to
 * every primary, one reply to the client.
 *
 * If a primary fails, the rows of the others are reported, and the reply names the primary that is
 * missing.
 */
#include "cluster.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part {
    struct admin_op op;
    bool is_out; /* the part was submitted to the engine of its shard */
    bool is_due; /* the reply to this part is awaited */
};

struct cluster_survey {
    struct cluster_survey *next;
    struct engine_op *op; /* op of the client */
    bool has_begun;       /* true: the requests were sent; false: the survey waits for the map */
    nanos asked_at;
    hf_status status; /* status of the first part that failed */
    char why[CLUSTER_WHY_MAX];
    bool has_end; /* some shard has more names: those behind `end` are incomplete */
    char end[HF_NAME_MAX + 1];
    struct part *part; /* indexed by shard */
    unsigned parts;
};

bool survey_is_needed(const struct engine_op *op)
{
    if (op->verb != OP_ADMIN)
        return false;

    const struct admin_op *asked = admin_op_of(op);
    bool lists = asked->verb == ADMIN_LIST && asked->scope == LIST_PREFIX;
    return lists || admin_is_for_servers(asked->verb);
}

struct cluster_survey *survey_of_part(const struct cluster *c, const struct engine_op *op)
{
    uintptr_t at = (uintptr_t)op;
    struct cluster_survey *survey = c->surveys;

    while (survey &&
           (at < (uintptr_t)survey->part || at >= (uintptr_t)(survey->part + survey->parts)))
        survey = survey->next;
    return survey;
}

static bool is_due(const struct cluster_survey *survey)
{
    for (unsigned i = 0; i < survey->parts; i++)
        if (survey->part[i].is_due)
            return true;
    return false;
}

/* ---- What the shards say ---- */

void survey_on_reply(struct cluster_survey *survey, struct engine_op *part_op,
                     const struct engine_reply *reply)
{
    struct part *part = (struct part *)(void *)part_op;
    assert(part->is_out && survey->has_begun);

    part->is_due = false;
    if (reply->kind == REPLY_RELEASED || survey->status != HF_OK)
        return;
    survey->status = reply->kind == REPLY_FAILED ? reply->status : HF_UNAVAILABLE;
    snprintf(survey->why, sizeof survey->why, "%s", reply->text ? reply->text : "no reply");
}

/* If the page of a shard ends early, the whole page must end at the lowest such name. */
static void note_end(struct cluster_survey *survey, const char *name)
{
    if (!survey->has_end || strcmp(name, survey->end) < 0)
        snprintf(survey->end, sizeof survey->end, "%s", name);
    survey->has_end = true;
}

/* Reports a row. During a move a key may be found on two servers: only the row from the owner of
 * its slot counts. */
void survey_on_row(struct cluster *c, struct cluster_survey *survey,
                   const struct cluster_shard *shard, const struct hf_row *row)
{
    if (is_end_of_page(row)) {
        note_end(survey, row->name);
        return;
    }

    unsigned slot = redis_cluster_slot(c->prefix, row->name, strlen(row->name));
    if (c->owner[slot] == shard->index)
        c->host->row(c->host->ctx, survey->op, row);
}

void survey_on_finding(struct cluster *c, const struct cluster_survey *survey,
                       const struct hf_finding *finding)
{
    c->host->find(c->host->ctx, survey->op, finding);
}

/* ---- From the beginning to the end ---- */

void survey_begin(struct cluster *c, struct engine_op *op, nanos now)
{
    struct cluster_survey *survey = calloc(1, sizeof *survey);
    assert(survey_is_needed(op));

    if (!survey) {
        c->host->on_reply(c->host->ctx, op,
                          &(struct engine_reply){.kind = REPLY_FAILED,
                                                 .asked_at = now,
                                                 .retry_at = TIME_NEVER,
                                                 .status = HF_NO_MEMORY,
                                                 .text = "no memory for a request"});
        return;
    }

    survey->op = op;
    survey->asked_at = now;
    survey->next = c->surveys;
    c->surveys = survey;
}

static void find_replicas(struct cluster *c, const struct cluster_survey *survey)
{
    char text[160], without[80] = "";
    unsigned shards = 0, alone = 0;
    size_t len = 0;
    for (unsigned i = 0; i < c->shards; i++) {
        const struct cluster_shard *shard = c->shard[i];
        if (!shard->redis || !shard->is_named)
            continue;

        shards++;
        alone += !shard->replicas;
        if (!shard->replicas && len + 40 < sizeof without)
            len += (size_t)snprintf(without + len, sizeof without - len, " %.30s:%s",
                                    shard->primary.host, shard->primary.port);
    }

    snprintf(text, sizeof text, "%u primaries, %u without a replica%s%s", shards, alone,
             alone ? ":" : "", without);
    struct hf_finding finding = {
        .size = sizeof finding,
        .where = "the cluster",
        .what = "shards",
        .health = alone ? HF_HEALTH_NOTE : HF_HEALTH_OK,
        .text = text,
        .advice = alone ? "add replicas: when such a primary dies, its locks cannot be taken" : ""};
    c->host->find(c->host->ctx, survey->op, &finding);
}

static void query_shards(struct cluster *c, struct cluster_survey *survey, nanos now)
{
    const struct admin_op *asked = admin_op_of(survey->op);
    assert(c->is_mapped && !survey->has_begun && !survey->part);

    survey->has_begun = true;
    if (asked->verb == ADMIN_DIAGNOSE)
        find_replicas(c, survey);

    survey->part = calloc(c->shards, sizeof *survey->part);
    if (!survey->part) {
        survey->status = HF_NO_MEMORY;
        snprintf(survey->why, sizeof survey->why, "no memory for a request");
        return;
    }

    survey->parts = c->shards;
    for (unsigned i = 0; i < survey->parts; i++) {
        struct part *part = &survey->part[i];
        if (!c->shard[i]->redis || !c->shard[i]->is_named)
            continue;

        part->op = *asked;
        part->op.op.engine_state = NULL;
        part->op.op.slot = 0;
        part->is_out = part->is_due = true;
        shards_need(c->shard[i]);
        redis_wire_engine.submit(c->shard[i]->redis, &part->op.op, now);
    }
}

static void drop(struct cluster *c, struct cluster_survey *survey)
{
    struct cluster_survey **at = &c->surveys;

    for (unsigned i = 0; i < survey->parts; i++)
        if (survey->part[i].is_out && c->shard[i]->redis)
            redis_wire_engine.forget(c->shard[i]->redis, &survey->part[i].op.op);

    while (*at != survey)
        at = &(*at)->next;
    *at = survey->next;

    free(survey->part);
    free(survey);
}

static void end(struct cluster *c, struct cluster_survey *survey)
{
    bool is_ok = survey->status == HF_OK;
    char why[CLUSTER_WHY_MAX];
    struct engine_op *op = survey->op;
    struct engine_reply reply = {.kind = is_ok ? REPLY_RELEASED : REPLY_FAILED,
                                 .asked_at = survey->asked_at,
                                 .retry_at = TIME_NEVER,
                                 .status = survey->status,
                                 .text = is_ok ? NULL : why};
    assert(survey->has_begun && !is_due(survey));

    memcpy(why, survey->why, sizeof why);
    if (survey->has_end) {
        struct hf_row row = end_of_page(survey->end);
        c->host->row(c->host->ctx, op, &row);
    }

    drop(c, survey);
    op->connections = 0;
    c->host->on_reply(c->host->ctx, op, &reply);
}

bool survey_forget(struct cluster *c, const struct engine_op *op)
{
    for (struct cluster_survey *survey = c->surveys; survey; survey = survey->next)
        if (survey->op == op) {
            survey->op->connections = 0;
            drop(c, survey);
            return true;
        }
    return false;
}

bool surveys_wait(const struct cluster *c)
{
    for (const struct cluster_survey *survey = c->surveys; survey; survey = survey->next)
        if (!survey->has_begun)
            return true;
    return false;
}

void surveys_fail(struct cluster *c, hf_status status, const char *why)
{
    for (struct cluster_survey *survey = c->surveys; survey; survey = survey->next) {
        if (survey->has_begun)
            continue;

        survey->has_begun = true;
        survey->status = status;
        snprintf(survey->why, sizeof survey->why, "%s", why);
    }
}

static void set_connections(const struct cluster *c, struct cluster_survey *survey)
{
    survey->op->connections = survey->has_begun ? 0 : map_query_connections(c);

    for (unsigned i = 0; i < survey->parts; i++)
        if (survey->part[i].is_due)
            survey->op->connections |= survey->part[i].op.op.connections;
}

void surveys_settle(struct cluster *c, nanos now)
{
    for (struct cluster_survey *survey = c->surveys, *next; survey; survey = next) {
        next = survey->next;
        if (!survey->has_begun && c->is_mapped)
            query_shards(c, survey, now);

        if (survey->has_begun && !is_due(survey))
            end(c, survey);
        else
            set_connections(c, survey);
    }
}

void surveys_close(struct cluster *c)
{
    while (c->surveys)
        drop(c, c->surveys);
}
