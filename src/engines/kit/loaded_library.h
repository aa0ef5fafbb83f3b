/* loaded_library.h - a shared library that is loaded when the first client needs it.
 *
 * A program that uses another engine then needs no such library, and does not pay for its start. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct library_function {
    const char *name;
    void *pointer; /* address of the function pointer that is set */
};

struct loaded_library {
    const char *file;    /* name of the file, as in "libpq.so.5" */
    const char *package; /* Debian package, for the error */
    const struct library_function *functions;
    size_t count;
    /* zero at first, as all fields below */
    pthread_mutex_t lock;
    bool is_tried, is_loaded;
    char error[200];
};

/* Loads the library and finds its functions, once in the life of the process. Returns false if that
 * fails: library->error says why. The functions are valid after true. May be called by any thread.
 */
bool loaded_library_open(struct loaded_library *library);
