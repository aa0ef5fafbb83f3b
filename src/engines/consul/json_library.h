/* json_library.h - jansson, loaded when the first client of a Consul is opened.
 *
 * A program that uses another engine needs no jansson. The package for Node must not depend on
 * libraries of the system, yet it has this engine. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct json_library {
#define JANSSON(name) __typeof__(name) *name;
#include "jansson_calls.def"
#undef JANSSON
};

/* Valid after consul_json_load() has returned true. */
extern struct json_library consul_json;

/* Loads jansson, once in the life of the process. Returns false if it cannot be loaded:
 * consul_json_error() says why. */
bool consul_json_load(void);
const char *consul_json_error(void);
/* Like json_decref(), for values that this engine has parsed and that have no other owner. */
void consul_json_free(json_t *json);

#ifndef JSON_LIBRARY_LOADER
#define json_array_get consul_json.json_array_get
#define json_array_size consul_json.json_array_size
#define json_integer_value consul_json.json_integer_value
#define json_loadb consul_json.json_loadb
#define json_object_get consul_json.json_object_get
#define json_string_length consul_json.json_string_length
#define json_string_value consul_json.json_string_value
#endif
