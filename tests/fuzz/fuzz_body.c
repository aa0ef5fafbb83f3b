/* fuzz_body.c - whole requests, head and JSON body, through what the handlers read them with: each
 * is either understood within its limits, or answered with one refusal, which is itself JSON. */
#include "fuzz.h"

#include "server.h"
#include <stdarg.h>

const char *const fuzz_seeds[] = {
    "POST /v1/leases?name=a%2Fb HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n{\"ttlMs\":30000}",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n{\"ttlMs\":1.5}",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n{\"name\":\"\\ud8\"}",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
    "POST /?name=%00&name=x HTTP/1.1\r\nHost: a\r\ntraceparent: 00-ab\r\nContent-Length: "
    "2\r\n\r\n[]",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 27\r\n\r\n{\"name\":\"a\\u0000b\",\"name\":1}",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\r\n{\"ttlMs\":9223372036854776}",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n[[[[[[[[",
    "GET /?name HTTP/1.1\r\nHost: a\r\nX-Correlation-Id: one\r\n\r\n",
    NULL};
unsigned long fuzz_accepted, fuzz_refused;

enum { LOW = 1, HIGH = 86400000 };
static int answers;

/* ---- In place of connections ---- */

void exchange_field(struct exchange *x, const char *name, const char *value)
{
    (void)x;
    MUST(name && value);
}

void exchange_answer(struct exchange *x, int status, const char *type, const void *body, size_t len)
{
    json_t *problem = json_loadb(body, len, 0, NULL);
    (void)x;
    MUST(status >= 400 && status < 500 && strcmp(type, "application/problem+json") == 0);
    MUST(json_is_object(problem) &&
         json_integer_value(json_object_get(problem, "status")) == status);
    json_decref(problem);
    answers++;
}

const char *http_reason(int status)
{
    return status == 400 ? "Bad Request" : "Other";
}

void *http_arg(const struct http *http)
{
    (void)http;
    return NULL;
}

/* ---- What a handler does ---- */

static bool read_members(struct exchange *x, json_t *body)
{
    static const char *const known[] = {"name", "ttlMs", NULL};
    int64_t ttl = 0;
    const char *name = NULL;
    if (!check_members(x, body, known) || !read_whole(x, body, "ttlMs", LOW, HIGH, LOW, &ttl) ||
        !read_text(x, body, "name", &name))
        return false;
    MUST(ttl >= LOW && ttl <= HIGH && json_object_size(body) <= 2);
    MUST(!name || strlen(name) == json_string_length(json_object_get(body, "name")));
    return true;
}

static void read_around(struct exchange *x)
{
    char text[HF_CORRELATION_MAX + 1], name[HF_NAME_MAX + 1];
    char *query = query_text(x, "name");
    MUST(!query || strlen(query) <= x->head.query.len);
    free(query);
    correlation_of(x, text);
    MUST(strlen(text) <= HF_CORRELATION_MAX);
    for (const char *c = text; *c; c++)
        MUST(*c >= 0x20 && *c < 0x7f);
    x->arguments[0] = (struct piece){x->head.path.at + 1, x->head.path.len - 1};
    int before = answers;
    bool fine = read_name(x, 0, RIGHT_READ, name);
    MUST(fine ? answers == before && strlen(name) <= HF_NAME_MAX : answers == before + 1);
}

static void handle(struct exchange *x)
{
    answers = 0;
    json_t *body = read_body(x);
    bool fine = body && read_members(x, body);
    MUST(answers == (fine ? 0 : 1));
    json_decref(body);
    fine ? fuzz_accepted++ : fuzz_refused++;
    read_around(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* with the NUL that stands behind every body */
    struct exchange x = {.id = "0123456789abcdef0123456789abcdef"};
    const char *why;
    MUST(text);
    memcpy(text, data, size);
    text[size] = 0;
    size_t end = request_head_end(text, size);
    if (end > 0 && request_head_read(&x.head, text, end, &why) == 0) {
        x.body = text + end;
        x.body_len =
            size -
            end; /* whatever is there: the length that was announced is the connection's affair */
        handle(&x);
    } else {
        fuzz_refused++;
    }
    free(text);
    return 0;
}
