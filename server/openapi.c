/* openapi.c - makes the OpenAPI document from three sources: the table of routes, the schemas in
 * docs/json-schema.json, and openapi_parts.json, which has parameters, tags and descriptions.
 * OpenAPI 3.1 takes JSON Schema as it is; only the paths of references change. */
#include "openapi.h"
#include "lock_client.h"
#include "routes.h"
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DEFINITIONS "#/$defs/"             /* where schemas are in docs/json-schema.json */
#define COMPONENTS "#/components/schemas/" /* where schemas are in the document */

/* What an operation is made from: its route and the parsed files. */
struct source {
    const struct route *route;
    json_t *parts, *definitions;
};

static json_t *part(const struct source *from, const char *group, const char *name)
{
    return json_object_get(json_object_get(from->parts, group), name);
}

static json_t *reference(const char *schema)
{
    return json_pack("{s:s+}", "$ref", DEFINITIONS, schema);
}

/* Returns the content of one media type. Takes over the reference of `schema`. */
static json_t *content(const char *type, json_t *schema)
{
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

/* Calls fn for each word of a text. */
static void each_word(const struct source *from, const char *text,
                      void (*fn)(const struct source *from, json_t *into, const char *word),
                      json_t *into)
{
    char *copy = strdup(text), *rest = NULL;
    for (char *word = copy ? strtok_r(copy, " ", &rest) : NULL; word;
         word = strtok_r(NULL, " ", &rest))
        fn(from, into, word);
    free(copy);
}

/* ---- Answers ---- */

/* Returns the content of the answer of success, or NULL if it has none. */
static json_t *success_content(const struct route *route)
{
    if (!*route->answer)
        return NULL;
    if (strchr(route->answer, '/'))
        return content(route->answer, json_object());
    return content("application/json", reference(route->answer));
}

/* Adds the answer with one status, or "default" for all others. */
static void add_response(const struct source *from, json_t *responses, const char *status)
{
    int number = atoi(status);
    bool succeeds = number >= 200 && number < 300;
    json_t *words = part(from, "statuses", status);
    json_t *response = json_object();
    json_t *body = succeeds ? success_content(from->route)
                            : content("application/problem+json", reference("Problem"));

    json_object_set_new(response, "description",
                        words ? json_incref(words) : json_string(http_reason(number)));
    if (body)
        json_object_set_new(response, "content", body);
    json_object_set_new(responses, status, response);
}

static json_t *responses_of(const struct source *from)
{
    json_t *responses = json_object();

    each_word(from, from->route->statuses, add_response, responses);
    add_response(from, responses, "default");
    return responses;
}

/* ---- Requests ---- */

static json_t *body_of(const struct source *from)
{
    json_t *schema = json_object_get(from->definitions, from->route->body);
    bool needed = json_object_get(schema, "required") != NULL;

    return json_pack("{s:b, s:o}", "required", (int)needed, "content",
                     content("application/json", reference(from->route->body)));
}

static void add_parameter(const struct source *from, json_t *parameters, const char *name,
                          const char *in, bool needed)
{
    json_t *parameter =
        json_pack("{s:s, s:s, s:b}", "name", name, "in", in, "required", (int)needed);

    json_object_update(parameter, part(from, "parameters", name));
    json_array_append_new(parameters, parameter);
}

/* Adds a parameter of the query; "!" behind its name marks a required one. */
static void add_query(const struct source *from, json_t *parameters, const char *word)
{
    char name[64];

    snprintf(name, sizeof name, "%s", word);
    char *mark = strchr(name, '!');
    if (mark)
        *mark = 0;
    add_parameter(from, parameters, name, "query", mark != NULL);
}

static json_t *parameters_of(const struct source *from)
{
    const struct route *route = from->route;
    json_t *parameters = json_array();

    for (const char *at = strchr(route->path, '{'); at; at = strchr(at + 1, '{')) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1, "}"), at + 1);
        add_parameter(from, parameters, name, "path", true);
    }

    each_word(from, route->query, add_query, parameters);
    if (strcmp(route->method, "POST") == 0 && strncmp(route->path, "/v1/", 4) == 0)
        add_parameter(from, parameters, "Idempotency-Key", "header", false);

    return parameters;
}

/* ---- Routes ---- */

static json_t *operation_of(const struct source *from)
{
    const struct route *route = from->route;
    char id[ROUTE_ID_BYTES];

    route_id(route, id);
    json_t *operation = json_pack("{s:s, s:[s], s:s, s:o, s:o}", "operationId", id, "tags",
                                  route->tag, "summary", route->summary, "parameters",
                                  parameters_of(from), "responses", responses_of(from));

    if (*route->body)
        json_object_set_new(operation, "requestBody", body_of(from));
    if (route->right)
        json_object_set_new(operation, "security", json_pack("[{}, {s:[]}]", "token"));

    return operation;
}

static void add_route(json_t *paths, const struct source *from)
{
    const struct route *route = from->route;
    char method[16];
    size_t len = 0;

    for (; route->method[len] && len + 1 < sizeof method; len++)
        method[len] = (char)tolower((unsigned char)route->method[len]);
    method[len] = 0;
    if (!json_object_get(paths, route->path))
        json_object_set_new(paths, route->path, json_object());
    json_object_set_new(json_object_get(paths, route->path), method, operation_of(from));
}

/* ---- What depends on this instance ---- */

/* The longest wait and the default ttl are settings. */
static void set_limits(json_t *schemas, const struct server *server)
{
    json_t *members = json_object_get(json_object_get(schemas, "LeaseRequest"), "properties");
    const hf_client *client = lock_client_client(server->engine);
    const char *source;
    int64_t ttl = 0;

    json_object_set_new(json_object_get(members, "waitMs"), "maximum",
                        json_integer(setting_number(&server->settings, SET_MAX_WAIT)));
    if (hf_client_setting(client, "ttl", &ttl, &source) == HF_OK)
        json_object_set_new(json_object_get(members, "ttlMs"), "default", json_integer(ttl));
}

/* ---- Schemas ---- */

static void use_components(json_t *value, json_t *schemas, json_t *definitions);

/* Copies the definition that a reference names into `schemas`, with all definitions that it needs.
 */
static void add_schema(const char *reference, json_t *schemas, json_t *definitions)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(reference, "/"), reference);
    if (json_object_get(schemas, name))
        return;

    json_t *schema = json_deep_copy(json_object_get(definitions, name));
    json_object_set_new(schemas, name, schema);
    use_components(schema, schemas, definitions);
}

/* Makes all references inside a value lead to `schemas`, and adds what they name there. */
static void use_components(json_t *value, json_t *schemas, json_t *definitions)
{
    const char *key, *reference = json_string_value(json_object_get(value, "$ref"));
    json_t *inner;
    size_t i;

    if (reference && strncmp(reference, DEFINITIONS, strlen(DEFINITIONS)) == 0) {
        reference += strlen(DEFINITIONS);
        add_schema(reference, schemas, definitions);
        json_object_set_new(value, "$ref", json_sprintf("%s%s", COMPONENTS, reference));
    }

    json_object_foreach(value, key, inner) use_components(inner, schemas, definitions);
    json_array_foreach(value, i, inner) use_components(inner, schemas, definitions);
}

static json_t *components(json_t *schemas)
{
    return json_pack("{s:O, s:{s:{s:s, s:s, s:s}}}", "schemas", schemas, "securitySchemes", "token",
                     "type", "http", "scheme", "bearer", "description",
                     "A token of --token-file. Not needed where the service has none.");
}

void route_openapi(struct exchange *x)
{
    json_t *parts = json_loadb((const char *)OPENAPI_PARTS, OPENAPI_PARTS_LEN, 0, NULL);
    json_t *file = json_loadb((const char *)JSON_SCHEMA, JSON_SCHEMA_LEN, 0, NULL);
    json_t *definitions = json_object_get(file, "$defs"), *info = json_object_get(parts, "info");
    json_t *paths = json_object(), *schemas = json_object();

    assert(definitions && info);
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        add_route(paths, &(struct source){&ROUTES[i], parts, definitions});
    use_components(paths, schemas, definitions);
    set_limits(schemas, server_of(x));
    json_object_set_new(info, "version", json_string(hf_version()));
    answer_json(x, 200,
                json_pack("{s:s, s:O, s:O, s:o, s:o}", "openapi", "3.1.0", "info", info, "tags",
                          json_object_get(parts, "tags"), "paths", paths, "components",
                          components(schemas)));
    json_decref(schemas);
    json_decref(file);
    json_decref(parts);
}
