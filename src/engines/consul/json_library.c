/* json_library.c - the functions of jansson that this engine calls. */
#define JSON_LIBRARY_LOADER
#include "json_library.h"

#include "engines/kit/loaded_library.h"

#include <assert.h>

struct json_library consul_json;

static const struct library_function functions[] = {
#define JANSSON(name) {#name, &consul_json.name},
#include "jansson_calls.def"
#undef JANSSON
};

static struct loaded_library library = {.file = "libjansson.so.4",
                                        .package = "libjansson4",
                                        .functions = functions,
                                        .count = sizeof functions / sizeof *functions,
                                        .lock = PTHREAD_MUTEX_INITIALIZER};

bool consul_json_load(void)
{
    return loaded_library_open(&library);
}

const char *consul_json_error(void)
{
    return library.error;
}

void consul_json_free(json_t *json)
{
    /* true, false and null are shared values without a count */
    bool is_counted = json && json->refcount != (size_t)-1;
    assert(library.is_loaded || !json);
    if (is_counted && --json->refcount == 0)
        consul_json.json_delete(json);
}
