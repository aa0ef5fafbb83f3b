/* loaded_library.c - loads a shared library and looks up its functions. */
#include "loaded_library.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>

static bool find(struct loaded_library *library, void *handle, const struct library_function *one)
{
    void *function = dlsym(handle, one->name);
    *(void **)one->pointer = function;
    if (!function)
        snprintf(library->error, sizeof library->error, "%s has no %s: it is too old",
                 library->file, one->name);
    return function != NULL;
}

/* The library stays loaded until the process ends. */
static bool load(struct loaded_library *library)
{
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(library->error, sizeof library->error, "%.150s (Debian: %s)", dlerror(),
                 library->package);
        return false;
    }

    for (size_t i = 0; i < library->count; i++)
        if (!find(library, handle, &library->functions[i]))
            return false;
    return true;
}

bool loaded_library_open(struct loaded_library *library)
{
    assert(library->file && library->count > 0);
    pthread_mutex_lock(&library->lock);
    if (!library->is_tried)
        library->is_loaded = load(library);
    library->is_tried = true;
    bool is_loaded = library->is_loaded;
    pthread_mutex_unlock(&library->lock);
    return is_loaded;
}
