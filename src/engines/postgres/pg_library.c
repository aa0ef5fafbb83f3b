/* pg_library.c - loads libpq and looks up its functions. */
#include "pg_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define FILE_NAME "libpq.so.5"

struct libpq pq;
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
        snprintf(error, sizeof error, "%.150s (Debian: libpq5)", dlerror());
        return;
    }

    is_loaded = true;
#define LIBPQ(name) is_loaded = is_loaded && find(library, #name, &pq.name);
#include "libpq_calls.def"
#undef LIBPQ
}

bool pg_library_load(void)
{
    pthread_once(&once, load);
    return is_loaded;
}

const char *pg_library_error(void)
{
    return error;
}
