/* flat_json.c - see flat_json.h. */
#include "flat_json.h"
#include <string.h>

static void put(struct flat_json *json, const char *bytes, size_t len)
{
    if (len > json->size - json->len) {
        json->is_cut = true;
        return;
    }
    memcpy(json->text + json->len, bytes, len);
    json->len += len;
}

static void put_key(struct flat_json *json, const char *key)
{
    put(json, json->len > 1 ? ",\"" : "\"", json->len > 1 ? 2 : 1);
    put(json, key, strlen(key));
    put(json, "\":", 2);
}

/* Quotation marks, backslashes and control characters must be escaped; \u fits each of them. */
static void put_escape(struct flat_json *json, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    const char plain[] = {'\\', (char)c},
               coded[] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    bool is_control = c < 0x20;
    put(json, is_control ? coded : plain, is_control ? sizeof coded : sizeof plain);
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

struct flat_json flat_json_begin(char *text, size_t size)
{
    struct flat_json json = {.text = text, .size = size};
    put(&json, "{", 1);
    return json;
}

void flat_json_text(struct flat_json *json, const char *key, const char *value)
{
    put_key(json, key);
    put(json, "\"", 1);
    while (*value) {
        size_t len = 0;
        while (value[len] && is_plain((unsigned char)value[len]))
            len++;
        put(json, value, len);
        value += len;
        if (*value)
            put_escape(json, (unsigned char)*value++);
    }
    put(json, "\"", 1);
}

void flat_json_number(struct flat_json *json, const char *key, int64_t value)
{
    char digits[DIGITS_MAX];
    size_t len = digits_print(value < 0 ? -(uint64_t)value : (uint64_t)value, digits);

    put_key(json, key);
    put(json, "-", value < 0);
    put(json, digits, len);
}

void flat_json_bool(struct flat_json *json, const char *key, bool value)
{
    put_key(json, key);
    put(json, value ? "true" : "false", value ? 4 : 5);
}

size_t flat_json_end(struct flat_json *json)
{
    put(json, "}", 1);
    return json->is_cut ? 0 : json->len;
}

size_t digits_print(uint64_t number, char text[DIGITS_MAX])
{
    char reversed[DIGITS_MAX];
    size_t len = 0;

    do
        reversed[len++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    for (size_t i = 0; i < len; i++)
        text[i] = reversed[len - 1 - i];
    text[len] = 0;

    return len;
}
