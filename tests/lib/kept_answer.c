/* kept_answer.c - in place of connections: an exchange is made of texts, its answer is kept. */
#include "kept_answer.h"

#include "sentence.h"
#include <string.h>

struct kept_answer kept_answer;

static struct exchange exchange;
static struct server *server;

void __wrap_exchange_field(struct exchange *x, const char *name, const char *value)
{
    size_t full = strlen(kept_answer.fields);
    (void)x;
    snprintf(kept_answer.fields + full, sizeof kept_answer.fields - full, "%s: %s\n", name, value);
}

void __wrap_exchange_answer(struct exchange *x, int status, const char *type, const void *body,
                            size_t len)
{
    assert_ptr_equal(x, &exchange);
    kept_answer.count++;
    kept_answer.status = status;
    snprintf(kept_answer.type, sizeof kept_answer.type, "%s", type);
    json_decref(kept_answer.body);
    kept_answer.body = json_loadb(body, len, 0, NULL);
}

void *__wrap_http_arg(const struct http *http)
{
    (void)http;
    return server;
}

struct exchange *kept_request(const char *head, const char *body, struct server *of)
{
    const char *why;
    json_decref(kept_answer.body);
    kept_answer = (struct kept_answer){0};
    exchange = (struct exchange){.body = body, .body_len = strlen(body), .id = "request-1"};
    server = of;
    if (request_head_read(&exchange.head, head, strlen(head), &why) != 0)
        fail_msg("%s: %s", head, why);
    return &exchange;
}

const char *kept_member(const char *name)
{
    const char *text = json_string_value(json_object_get(kept_answer.body, name));
    return text ? text : "";
}
