/* json_library.c - loads jansson and looks up its functions. */
#define JSON_LIBRARY_LOADER
#include "json_library.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define FILE_NAME "libjansson.so.4"

struct json_library consul_json;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_loaded;
static char error[200];

static bool find(void *library, const char *name, void *to)
{
    void *function = dlsym(library, name);
    *(void **)to = function;
    if (!function)
        snprintf(error, sizeof error, FILE_NAME " has no %s: it is too old", name);
    return function != NULL;
}

static void load(void)
{
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(error, sizeof error, "%.150s (Debian: libjansson4)", dlerror());
        return;
    }

    is_loaded = true;
#define JANSSON(name) is_loaded = is_loaded && find(library, #name, &consul_json.name);
#include "jansson_calls.def"
#undef JANSSON
}

bool consul_json_load(void)
{
    pthread_once(&once, load);
    return is_loaded;
}

const char *consul_json_error(void)
{
    return error;
}

void consul_json_free(json_t *json)
{
    /* true, false and null are shared values without a count */
    bool is_counted = json && json->refcount != (size_t)-1;
    assert(is_loaded || !json);
    if (is_counted && --json->refcount == 0)
        consul_json.json_delete(json);
}
