/* openapi.c - the OpenAPI document, made from the table of routes. */
#include "routes.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static json_t *schema_of(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

/* Calls fn for each word of a text. */
static void each_word(const char *text, void (*fn)(json_t *into, const char *word), json_t *into)
{
    char *copy = strdup(text), *rest = NULL;
    for (char *word = copy ? strtok_r(copy, " ", &rest) : NULL; word; word = strtok_r(NULL, " ", &rest))
        fn(into, word);
    free(copy);
}

static void add_response(json_t *responses, const char *status)
{
    int number = atoi(status);
    json_t *response = json_pack("{s:s}", "description", http_reason(number));
    if (number >= 400)
        json_object_set_new(
            response, "content",
            json_pack("{s:{s:{s:s}}}", "application/problem+json", "schema", "$ref", "#/components/schemas/Problem"));
    json_object_set_new(responses, status, response);
}

/* "name:type", with "!" behind the name of what is needed. */
static void add_member(json_t *schema, const char *word)
{
    char name[64];
    const char *type = strchr(word, ':');
    snprintf(name, sizeof name, "%.*s", (int)(type - word), word);
    char *mark = strchr(name, '!');
    if (mark)
        *mark = 0;
    if (mark && !json_object_get(schema, "required"))
        json_object_set_new(schema, "required", json_array());
    if (mark)
        json_array_append_new(json_object_get(schema, "required"), json_string(name));
    json_object_set_new(json_object_get(schema, "properties"), name, schema_of(type + 1));
}

static json_t *body_of(const struct route *route)
{
    json_t *schema = json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
    each_word(route->body, add_member, schema);
    bool needed = json_object_get(schema, "required") != NULL;
    return json_pack("{s:b, s:{s:{s:o}}}", "required", (int)needed, "content", "application/json", "schema", schema);
}

static void add_parameter(json_t *parameters, const char *name, const char *in, bool needed)
{
    json_array_append_new(parameters, json_pack("{s:s, s:s, s:b, s:{s:s}}", "name", name, "in", in, "required",
                                                (int)needed, "schema", "type", "string"));
}

static void add_query(json_t *parameters, const char *word)
{
    char name[64];
    snprintf(name, sizeof name, "%s", word);
    char *mark = strchr(name, '!');
    if (mark)
        *mark = 0;
    add_parameter(parameters, name, "query", mark != NULL);
}

static json_t *parameters_of(const struct route *route)
{
    json_t *parameters = json_array();
    for (const char *at = strchr(route->path, '{'); at; at = strchr(at + 1, '{')) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1, "}"), at + 1);
        add_parameter(parameters, name, "path", true);
    }
    each_word(route->query, add_query, parameters);
    if (strcmp(route->method, "POST") == 0 && strncmp(route->path, "/v1/", 4) == 0)
        add_parameter(parameters, "Idempotency-Key", "header", false);
    return parameters;
}

static json_t *operation_of(const struct route *route)
{
    json_t *operation = json_pack("{s:s, s:s, s:o, s:{}}", "operationId", route->id, "summary", route->summary,
                                  "parameters", parameters_of(route), "responses");
    if (*route->body)
        json_object_set_new(operation, "requestBody", body_of(route));
    if (route->right)
        json_object_set_new(operation, "security", json_pack("[{}, {s:[]}]", "token"));
    each_word(route->statuses, add_response, json_object_get(operation, "responses"));
    return operation;
}

static void add_route(json_t *paths, const struct route *route)
{
    char method[16];
    size_t len = 0;
    for (; route->method[len] && len + 1 < sizeof method; len++)
        method[len] = (char)tolower((unsigned char)route->method[len]);
    method[len] = 0;
    if (!json_object_get(paths, route->path))
        json_object_set_new(paths, route->path, json_object());
    json_object_set_new(json_object_get(paths, route->path), method, operation_of(route));
}

static json_t *components(void)
{
    return json_pack("{s:{s:{s:s, s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}}}, s:{s:{s:s, s:s}}}",
                     "schemas", "Problem", "type", "object", "properties", "type", "type", "string", "title", "type",
                     "string", "status", "type", "integer", "detail", "type", "string", "code", "type", "string",
                     "requestId", "type", "string", "securitySchemes", "token", "type", "http", "scheme", "bearer");
}

void openapi_get(struct exchange *x)
{
    json_t *paths = json_object();
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        add_route(paths, &ROUTES[i]);
    answer_json(x, 200,
                json_pack("{s:s, s:{s:s, s:s}, s:o, s:o}", "openapi", "3.0.3", "info", "title", "Holdfast", "version",
                          hf_version(), "paths", paths, "components", components()));
}
