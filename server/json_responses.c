/* json_responses.c - answers in JSON, problems, and reading body and query of a request. */
#include "server.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_JSON "application/json"
#define TYPE_PROBLEM "application/problem+json"

static void answer_with(struct exchange *x, int status, const char *type, json_t *json)
{
    /* prints 1.1, not 1.1000000000000001 */
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(json);
    exchange_field(x, "Cache-Control", "no-store");
    exchange_answer(x, status, type, text ? text : "{}", text ? strlen(text) : 2);
    free(text);
}

void answer_flat_json(struct exchange *x, int status, struct flat_json *json)
{
    size_t len = flat_json_end(json);
    exchange_field(x, "Cache-Control", "no-store");
    exchange_answer(x, status, TYPE_JSON, len ? json->text : "{}", len ? len : 2);
}

void answer_json(struct exchange *x, int status, json_t *json)
{
    answer_with(x, status, TYPE_JSON, json);
}

void answer_problem(struct exchange *x, int status, const char *code, const char *detail,
                    json_t *extra)
{
    json_t *problem =
        json_pack("{s:s, s:s, s:i, s:s, s:s}", "type", "about:blank", "title", http_reason(status),
                  "status", status, "code", code, "requestId", x->id);
    json_t *message = json_string(detail);
    json_object_set_new(problem, "detail", message ? message : json_string(http_reason(status)));
    if (extra)
        json_object_update(problem, extra);
    json_decref(extra);
    if (status == 401)
        exchange_field(x, "WWW-Authenticate", "Bearer");
    answer_with(x, status, TYPE_PROBLEM, problem);
}

/* Returns true if the library's message may be sent to a client. Messages about the engine could
 * contain its address or path; for those only the general text is sent. */
static bool may_reveal(hf_status status)
{
    switch (status) {
    case HF_INVALID:
    case HF_TOO_BIG:
    case HF_MISMATCH:
    case HF_UNSUPPORTED:
    case HF_BUSY:
    case HF_TIMEOUT:
    case HF_LOST:
    case HF_NOT_HELD:
        return true;
    default:
        return false;
    }
}

void answer_status(struct exchange *x, hf_status status, const char *message, json_t *extra)
{
    char code[32];
    size_t len = 0;

    for (const char *c = hf_status_name(status); *c && len + 1 < sizeof code; c++)
        code[len++] = (char)tolower((unsigned char)*c);
    code[len] = 0;
    int http = hf_status_http(status);
    bool reveal = message && *message && may_reveal(status);
    bool may_retry = http == 503 || http == 504 || http == 507;
    if (may_retry)
        exchange_field(x, "Retry-After", "1");
    answer_problem(x, http, code, reveal ? message : hf_status_text(status), extra);
}

static bool is_json(const struct exchange *x)
{
    const struct piece *type = request_head_field(&x->head, "content-type");

    if (!type)
        return true;

    struct piece media = {type->at, 0};
    while (media.len < type->len && type->at[media.len] != ';' && type->at[media.len] != ' ')
        media.len++;
    return piece_is_caseless(media, TYPE_JSON);
}

json_t *read_body(struct exchange *x)
{
    json_error_t error;

    if (x->body_len == 0)
        return json_object();
    if (!is_json(x)) {
        answer_problem(x, 415, "unsupported_media_type", "the body must be application/json", NULL);
        return NULL;
    }

    json_t *body = json_loadb(x->body, x->body_len, JSON_REJECT_DUPLICATES, &error);
    if (body && json_is_object(body))
        return body;

    const char *why = json_error_code(&error) == json_error_null_character ||
                              json_error_code(&error) == json_error_null_byte_in_key
                          ? "a string in the body contains a NUL"
                          : error.text;
    answer_problem(x, 400, "invalid", body ? "the body is not a JSON object" : why, NULL);
    json_decref(body);

    return NULL;
}

bool check_members(struct exchange *x, json_t *body, const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach(body, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (known[i])
            continue;
        char message[160];
        snprintf(message, sizeof message, "%.64s: no such member", key);
        answer_problem(x, 400, "invalid", message, NULL);
        return false;
    }

    return true;
}

bool read_whole(struct exchange *x, json_t *body, const char *name, int64_t low, int64_t high,
                int64_t standard, int64_t *value)
{
    char message[160];
    json_t *given = json_object_get(body, name);

    *value = standard;
    if (!given || json_is_null(given))
        return true;
    *value = json_integer_value(given);
    bool is_valid = json_is_integer(given) && *value >= low && *value <= high;
    if (is_valid)
        return true;

    snprintf(message, sizeof message, "%s: must be a whole number between %lld and %lld", name,
             (long long)low, (long long)high);
    answer_problem(x, 400, "invalid", message, NULL);

    return false;
}

bool read_text(struct exchange *x, json_t *body, const char *name, const char **value)
{
    char message[160];
    json_t *given = json_object_get(body, name);

    *value = json_string_value(given);
    if (!given || json_is_null(given))
        return true;
    if (*value && strlen(*value) == json_string_length(given))
        return true;

    snprintf(message, sizeof message, "%s: must be a string", name);
    answer_problem(x, 400, "invalid", message, NULL);

    return false;
}

char *query_text(const struct exchange *x, const char *name)
{
    const char *at = x->head.query.at, *end = at + x->head.query.len;
    size_t wanted = strlen(name);

    while (at < end) {
        const char *next = memchr(at, '&', (size_t)(end - at));
        size_t len = next ? (size_t)(next - at) : (size_t)(end - at);
        bool ours =
            len >= wanted && memcmp(at, name, wanted) == 0 && (len == wanted || at[wanted] == '=');
        if (ours) {
            struct piece value = {at + wanted + (len > wanted), len - wanted - (len > wanted)};
            char *text = malloc(value.len + 1);
            size_t decoded;
            if (text && piece_decode(value, text, value.len + 1, &decoded))
                return text;
            free(text);
            return NULL;
        }
        at += len + 1;
    }

    return NULL;
}

bool read_name(struct exchange *x, size_t argument, unsigned right, char name[HF_NAME_MAX + 1])
{
    size_t len;

    if (!piece_decode(x->arguments[argument], name, HF_NAME_MAX + 1, &len)) {
        answer_problem(x, 400, "invalid", "the name is too long or has a bad escape", NULL);
        return false;
    }
    if (auth_allows(x->caller, right, name))
        return true;

    answer_problem(x, 403, "forbidden", "the token may not use this name", NULL);

    return false;
}

bool correlation_given(const struct exchange *x, char text[HF_CORRELATION_MAX + 1])
{
    static const char *const fields[] = {"x-correlation-id", "x-request-id", "traceparent"};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct piece *value = request_head_field(&x->head, fields[i]);
        if (!value || value->len == 0)
            continue;
        size_t len = 0;
        for (; len < value->len && len < HF_CORRELATION_MAX; len++)
            text[len] = value->at[len] >= 0x20 && value->at[len] < 0x7f ? value->at[len] : '?';
        text[len] = 0;
        return true;
    }

    return false;
}

void correlation_of(const struct exchange *x, char text[HF_CORRELATION_MAX + 1])
{
    if (!correlation_given(x, text))
        memcpy(text, x->id, sizeof x->id);
}

struct server *server_of(const struct exchange *x)
{
    return http_arg(x->http);
}
