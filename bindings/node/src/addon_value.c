/* addon_value.c - texts, numbers, requests and rows: from JavaScript to C and back. */
#include "addon.h"

#include <stdio.h>

#include <string.h>

napi_value addon_error(napi_env env, hf_status status, const char *text)
{
    napi_value error = NULL;

    napi_create_error(env, addon_text(env, hf_status_name(status)), addon_text(env, text), &error);
    return error;
}

void addon_read_holder(struct addon_holder *holder)
{
    holder->row = (struct hf_row){.size = sizeof holder->row};
    holder->is_known = hf_error_holder(&holder->row);
    if (!holder->is_known)
        return;
    snprintf(holder->name, sizeof holder->name, "%s", holder->row.name);
    snprintf(holder->host, sizeof holder->host, "%s", holder->row.host);
    snprintf(holder->label, sizeof holder->label, "%s", holder->row.label);
}

napi_value addon_holder_value(napi_env env, struct addon_holder *holder)
{
    napi_value undefined = NULL;

    napi_get_undefined(env, &undefined);
    if (!holder->is_known)
        return undefined;
    holder->row.name = holder->name;
    holder->row.host = holder->host;
    holder->row.label = holder->label;
    return addon_row(env, &holder->row);
}

napi_value addon_throw(napi_env env, hf_status status, const char *text)
{
    napi_value error = addon_error(env, status, text);
    struct addon_holder holder;

    if (status == HF_BUSY || status == HF_TIMEOUT) {
        addon_read_holder(&holder);
        addon_set(env, error, "holder", addon_holder_value(env, &holder));
    }
    napi_throw(env, error);
    return NULL;
}

/* ---- From JavaScript ---- */

void addon_arguments(napi_env env, napi_callback_info info, size_t count, napi_value *values)
{
    napi_get_cb_info(env, info, &count, values, NULL, NULL);
}

void *addon_external(napi_env env, napi_value value)
{
    void *data = NULL;

    if (napi_get_value_external(env, value, &data) != napi_ok || !data)
        addon_throw(env, HF_INVALID, "not a handle of this addon");
    return data;
}

int64_t addon_integer(napi_env env, napi_value value, int64_t otherwise)
{
    int64_t number;

    return napi_get_value_int64(env, value, &number) == napi_ok ? number : otherwise;
}

char *addon_string(napi_env env, napi_value value, char *buffer, size_t size)
{
    size_t length;
    napi_status status = napi_get_value_string_utf8(env, value, buffer, size, &length);

    return status == napi_ok ? buffer : NULL;
}

/* ---- To JavaScript ---- */

napi_value addon_number(napi_env env, double value)
{
    napi_value number = NULL;

    napi_create_double(env, value, &number);
    return number;
}

napi_value addon_text(napi_env env, const char *text)
{
    napi_value string = NULL;

    napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &string);
    return string;
}

napi_value addon_boolean(napi_env env, bool value)
{
    napi_value boolean = NULL;

    napi_get_boolean(env, value, &boolean);
    return boolean;
}

void addon_set(napi_env env, napi_value object, const char *name, napi_value value)
{
    napi_set_named_property(env, object, name, value);
}

/* ---- Requests ---- */

enum field {
    FIELD_NAME,
    FIELD_TTL,
    FIELD_WAIT,
    FIELD_FLAGS,
    FIELD_KIND, /* from here on only if one of them is not the default */
    FIELD_UNITS,
    FIELD_CAPACITY,
    FIELD_MAX_HOLD,
    FIELD_OWNER,
    FIELD_LABEL,
    FIELD_CORRELATION_ID,
    FIELDS
};

static void read_rare_fields(napi_env env, const napi_value *field, struct hf_request *request,
                             struct addon_texts *texts)
{
    request->kind = (hf_kind)addon_integer(env, field[FIELD_KIND], 0);
    request->units = (uint32_t)addon_integer(env, field[FIELD_UNITS], 0);
    request->capacity = (uint32_t)addon_integer(env, field[FIELD_CAPACITY], 0);
    request->max_hold_ms = addon_integer(env, field[FIELD_MAX_HOLD], 0);
    request->owner = addon_string(env, field[FIELD_OWNER], texts->owner, sizeof texts->owner);
    request->label = addon_string(env, field[FIELD_LABEL], texts->label, sizeof texts->label);
    request->correlation_id = addon_string(env, field[FIELD_CORRELATION_ID], texts->correlation_id,
                                           sizeof texts->correlation_id);
}

/* An array is cheaper to read than an object with ten names. JavaScript has checked the types. */
void addon_read_request(napi_env env, napi_value array, struct hf_request *request,
                        struct addon_texts *texts)
{
    napi_value field[FIELDS];
    uint32_t count = 0;

    napi_get_array_length(env, array, &count);
    count = count < FIELDS ? count : FIELDS;
    for (uint32_t i = 0; i < count; i++)
        napi_get_element(env, array, i, &field[i]);

    *request = (struct hf_request){.size = sizeof *request};
    request->name = addon_string(env, field[FIELD_NAME], texts->name, sizeof texts->name);
    request->ttl_ms = addon_integer(env, field[FIELD_TTL], 0);
    request->wait_ms = addon_integer(env, field[FIELD_WAIT], HF_WAIT_DEFAULT);
    request->flags = (uint32_t)addon_integer(env, field[FIELD_FLAGS], 0);
    if (count == FIELDS)
        read_rare_fields(env, field, request, texts);
}

/* ---- Rows ---- */

napi_value addon_row(napi_env env, const struct hf_row *row)
{
    napi_value object = NULL;
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"token", (double)row->token},       {"leftMs", (double)row->left_ms},
        {"sinceMs", (double)row->since_ms},  {"ttlMs", (double)row->ttl_ms},
        {"capacity", (double)row->capacity}, {"units", (double)row->units},
        {"depth", (double)row->depth},       {"place", (double)row->place},
        {"pid", (double)row->pid},
    };

    napi_create_object(env, &object);
    addon_set(env, object, "name", addon_text(env, row->name));
    addon_set(env, object, "role", addon_text(env, row->role == HF_HOLDER ? "holder" : "waiter"));
    addon_set(env, object, "kind", addon_text(env, hf_kind_name(row->kind)));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        addon_set(env, object, numbers[i].name, addon_number(env, numbers[i].value));
    addon_set(env, object, "host", addon_text(env, row->host));
    addon_set(env, object, "label", addon_text(env, row->label));
    addon_set(env, object, "foreign", addon_boolean(env, row->foreign));
    return object;
}
