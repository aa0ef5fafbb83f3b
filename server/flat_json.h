/* flat_json.h - prints a JSON object of texts, numbers and truth values into a buffer of the
 * caller. A tree of values (jansson) for the answer to a grant took ten times the instructions, a
 * fifth of what the service spent on a grant and a release. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flat_json {
    char *text;
    size_t size, len;
    bool is_cut; /* the buffer was too small */
};

struct flat_json flat_json_begin(char *text, size_t size);

/* `key` and `value` are valid UTF-8. A key needs no escapes. */
void flat_json_text(struct flat_json *json, const char *key, const char *value);
void flat_json_number(struct flat_json *json, const char *key, int64_t value);
void flat_json_bool(struct flat_json *json, const char *key, bool value);

/* Returns the length of the whole text; 0 if the buffer was too small. */
size_t flat_json_end(struct flat_json *json);

enum { DIGITS_MAX = 21 };

/* Prints a number with its final NUL and returns its length. Ids, heads and bodies have many
 * numbers, and the general function parses its format each time. */
size_t digits_print(uint64_t number, char text[DIGITS_MAX]);
