/* row_json.c - one object for each row. Tokens are strings: some languages cannot hold such
 * large numbers exactly. */
#include "row_json.h"
#include <inttypes.h>
#include <stdio.h>

json_t *text_json(const char *text)
{
    json_t *json = json_string(text ? text : "");
    return json ? json : json_string("");
}

static json_t *token_json(uint64_t token)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, token);
    return token ? json_string(text) : json_null();
}

json_t *row_json(const struct hf_row *row)
{
    bool holder = row->role == HF_HOLDER;
    json_t *json = json_object();

    json_object_set_new(json, "name", text_json(row->name));
    json_object_set_new(json, "role", json_string(holder ? "holder" : "waiter"));
    json_object_set_new(json, "kind", json_string(hf_kind_name(row->kind)));
    json_object_set_new(json, "capacity", json_integer(row->capacity));
    json_object_set_new(json, "used", json_integer(row->used));
    json_object_set_new(json, "units", json_integer(row->units));
    json_object_set_new(json, "depth", json_integer(row->depth));
    json_object_set_new(json, "place", holder ? json_null() : json_integer(row->place));
    json_object_set_new(json, "token", token_json(row->token));
    json_object_set_new(json, "leftMs", holder ? json_integer(row->left_ms) : json_null());
    json_object_set_new(json, "sinceMs", json_integer(row->since_ms));
    json_object_set_new(json, "ttlMs", json_integer(row->ttl_ms));
    json_object_set_new(json, "pid", json_integer(row->pid));
    json_object_set_new(json, "host", text_json(row->host));
    json_object_set_new(json, "label", text_json(row->label));
    json_object_set_new(json, "detached", json_boolean(row->detached));
    json_object_set_new(json, "ticket", token_json(row->ticket));
    json_object_set_new(json, "foreign", json_boolean(row->foreign));
    json_object_set_new(json, "servers", row->servers ? json_integer(row->servers) : json_null());

    return json;
}

json_t *hold_json(const struct hf_row *row)
{
    json_t *json = json_object();

    json_object_set_new(json, "name", text_json(row->name));
    json_object_set_new(json, "kind", json_string(hf_kind_name(row->kind)));
    json_object_set_new(json, "units", json_integer(row->units));
    json_object_set_new(json, "capacity", json_integer(row->capacity));
    json_object_set_new(json, "token", token_json(row->token));
    json_object_set_new(json, "outcome", json_string(row->ended == HF_OK ? "released" : "lost"));
    json_object_set_new(json, "heldMs", json_integer(row->since_ms));
    json_object_set_new(json, "endedMs", json_integer(row->ended_ms));
    json_object_set_new(json, "ttlMs", json_integer(row->ttl_ms));
    json_object_set_new(json, "pid", json_integer(row->pid));
    json_object_set_new(json, "host", text_json(row->host));
    json_object_set_new(json, "label", text_json(row->label));

    return json;
}

void hold_json_append(void *array, const struct hf_row *row)
{
    json_array_append_new(array, hold_json(row));
}

void row_json_append(void *array, const struct hf_row *row)
{
    json_array_append_new(array, row_json(row));
}
