/* sentinel_query.c - asks a sentinel which server is the primary. */
#include "sentinel.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Questions ---- */

static bool send_question(struct sentinel *s, struct sentinel_node *node,
                          enum sentinel_request request)
{
    assert(request != SENTINEL_REQ_AUTH && request != SENTINEL_REQ_EVENTS);
    static const char *const words[] = {[SENTINEL_REQ_MASTER] = "MASTER",
                                        [SENTINEL_REQ_ADDRESS] = "GET-MASTER-ADDR-BY-NAME",
                                        [SENTINEL_REQ_NAMES] = "MASTERS"};
    bool has_name = request != SENTINEL_REQ_NAMES;

    resp_command_begin(&s->command, has_name ? 3 : 2);
    resp_command_text(&s->command, "SENTINEL");
    resp_command_text(&s->command, words[request]);
    if (has_name)
        resp_command_text(&s->command, s->name);
    return sentinel_connection_send(s, &node->query);
}

static void send_next(struct sentinel *s, struct sentinel_node *node, enum sentinel_request request,
                      nanos now)
{
    node->query.next = request;
    if (!send_question(s, node, request))
        sentinel_query_failed(s, node, HF_UNAVAILABLE, "cannot send on this connection", now);
}

void sentinel_query_up(struct sentinel *s, struct sentinel_node *node, nanos now)
{
    assert(node->query.state == SENTINEL_UP);
    bool has_login = s->user[0] || s->password[0];
    node->query.next = has_login ? SENTINEL_REQ_AUTH : SENTINEL_REQ_MASTER;
    bool is_sent =
        sentinel_connection_log_in(s, &node->query) && send_question(s, node, SENTINEL_REQ_MASTER);
    if (!is_sent)
        sentinel_query_failed(s, node, HF_UNAVAILABLE, "cannot send on this connection", now);
}

/* ---- Answers ---- */

void sentinel_query_failed(struct sentinel *s, struct sentinel_node *node, hf_status status,
                           const char *why, nanos now)
{
    assert(status != HF_OK);
    node->status = status;
    snprintf(node->why, sizeof node->why, "%s", why);
    sentinel_connection_fail(s, &node->query, now);
}

/* Returns the value of a field in a list of names and values; NULL: no such field. */
static const char *field(const struct resp_reply *list, const char *name)
{
    for (const struct resp_reply *key = list->first; key && key->next; key = key->next->next) {
        bool is_text = key->type == RESP_TEXT && key->next->type == RESP_TEXT;
        if (is_text && strcmp(key->text, name) == 0)
            return key->next->text;
    }
    return NULL;
}

static bool is_port(const char *text)
{
    size_t digits = strlen(text);
    return digits >= 1 && digits <= 5 && strspn(text, "0123456789") == digits && atoi(text) >= 1 &&
           atoi(text) <= 65535;
}

/* Fills in an answer. Returns false if host or port are invalid. */
static bool read_server(struct sentinel_answer *answer, const char *host, const char *port)
{
    bool is_server = host && port && host[0] && strlen(host) < sizeof answer->host && is_port(port);
    if (!is_server)
        return false;
    snprintf(answer->host, sizeof answer->host, "%s", host);
    snprintf(answer->port, sizeof answer->port, "%s", port);
    return true;
}

static void answered(struct sentinel *s, struct sentinel_node *node,
                     const struct sentinel_answer *answer, nanos now)
{
    assert(answer->host[0]);
    node->status = HF_OK;
    node->why[0] = 0;
    node->query.failures = 0;
    sentinel_connection_close(s, &node->query);
    s->first = (unsigned)(node - s->node);
    primary_on_answer(s, answer, now);
}

static void on_master(struct sentinel *s, struct sentinel_node *node, const struct resp_reply *resp,
                      nanos now)
{
    struct sentinel_answer answer = {0};
    const char *epoch = field(resp, "config-epoch"), *flags = field(resp, "flags");
    bool is_failing_over = flags && strstr(flags, "failover_in_progress");
    answer.epoch = epoch ? strtoull(epoch, NULL, 10) : 0;

    /* The sentinel that leads a failover names the old primary with the new epoch until all
     * replicas follow the new primary. So the address belongs to the epoch before. */
    if (is_failing_over && answer.epoch > 0)
        answer.epoch--;

    if (read_server(&answer, field(resp, "ip"), field(resp, "port")))
        answered(s, node, &answer, now);
    else
        sentinel_query_failed(s, node, HF_UNAVAILABLE, "it names no address for the primary", now);
}

static void on_address(struct sentinel *s, struct sentinel_node *node,
                       const struct resp_reply *resp, nanos now)
{
    struct sentinel_answer answer = {0};
    const struct resp_reply *host = resp_item(resp, 0), *port = resp_item(resp, 1);
    bool has_both = host && port && host->type == RESP_TEXT && port->type == RESP_TEXT;
    if (has_both && read_server(&answer, host->text, port->text))
        answered(s, node, &answer, now);
    else
        sentinel_query_failed(s, node, HF_UNAVAILABLE, "it names no address for the primary", now);
}

/* Reads the names that the sentinel knows, for the message. */
static void on_names(struct sentinel *s, struct sentinel_node *node, const struct resp_reply *resp,
                     nanos now)
{
    char text[SENTINEL_WHY_MAX];
    int len = snprintf(text, sizeof text, "it watches no primary named \"%.100s\"", s->name);
    const char *before = "; it watches ";

    for (const struct resp_reply *one = resp->first; one; one = one->next) {
        const char *name = one->type == RESP_LIST ? field(one, "name") : NULL;
        if (!name || (size_t)len + strlen(before) + strlen(name) >= sizeof text)
            continue;
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%s", before, name);
        before = ", ";
    }

    sentinel_query_failed(s, node, HF_CONFIG, text, now);
}

static hf_status status_of(const char *error)
{
    bool is_login = strncmp(error, "NOAUTH", 6) == 0 || strncmp(error, "WRONGPASS", 9) == 0 ||
                    strncmp(error, "ERR AUTH", 8) == 0;
    return is_login || strncmp(error, "NOPERM", 6) == 0 ? HF_DENIED : HF_UNAVAILABLE;
}

static void on_error(struct sentinel *s, struct sentinel_node *node, const char *error, nanos now)
{
    bool lacks_right = node->query.next == SENTINEL_REQ_MASTER && strncmp(error, "NOPERM", 6) == 0;
    if (lacks_right) {
        send_next(s, node, SENTINEL_REQ_ADDRESS, now);
        return;
    }

    if (strncmp(error, "ERR No such master", 18) == 0) {
        send_next(s, node, SENTINEL_REQ_NAMES, now);
        return;
    }

    if (strncmp(error, "ERR unknown command 'SENTINEL'", 30) == 0) {
        sentinel_query_failed(s, node, HF_CONFIG,
                              "it is a Redis server and no sentinel, whose usual port is 26379",
                              now);
        return;
    }

    char text[SENTINEL_WHY_MAX];
    hf_status status = status_of(error);
    snprintf(text, sizeof text, "%s%.200s",
             status == HF_DENIED ? "sentinel_user, sentinel_password_file: " : "", error);
    sentinel_query_failed(s, node, status, text, now);
}

void sentinel_query_reply(struct sentinel *s, struct sentinel_node *node,
                          const struct resp_reply *resp, nanos now)
{
    enum sentinel_request request = node->query.next;
    assert(request != SENTINEL_REQ_EVENTS);
    if (resp->type == RESP_ERROR) {
        on_error(s, node, resp->text, now);
        return;
    }

    if (request == SENTINEL_REQ_AUTH)
        node->query.next = SENTINEL_REQ_MASTER;
    else if (request == SENTINEL_REQ_ADDRESS && resp->type == RESP_NIL)
        send_next(s, node, SENTINEL_REQ_NAMES, now);
    else if (resp->type != RESP_LIST)
        sentinel_query_failed(s, node, HF_UNAVAILABLE, "it is no sentinel", now);
    else if (request == SENTINEL_REQ_MASTER)
        on_master(s, node, resp, now);
    else if (request == SENTINEL_REQ_ADDRESS)
        on_address(s, node, resp, now);
    else
        on_names(s, node, resp, now);
}

nanos sentinel_query_tick(struct sentinel *s, struct sentinel_node *node, nanos now)
{
    if (node->query.state == SENTINEL_DOWN)
        return TIME_NEVER;

    nanos due = node->query.since + s->connect_timeout;
    if (now < due)
        return due;

    char why[64];
    snprintf(why, sizeof why, "no answer within %lld ms",
             (long long)(s->connect_timeout / NANOS_OF_MS(1)));
    sentinel_query_failed(s, node, HF_UNAVAILABLE, why, now);
    return TIME_NEVER;
}
