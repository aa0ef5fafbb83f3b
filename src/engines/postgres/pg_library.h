/* pg_library.h - libpq, loaded when the first client of a database is opened.
 *
 * Programs that use another engine do not load libpq. Linked, libpq and the 20 libraries that it
 * needs would cost every start 4 ms and 3.8 MB. */
#pragma once
#include <libpq-fe.h>
#include <stdbool.h>

struct libpq {
#define LIBPQ(name) __typeof__(name) *name;
#include "libpq_calls.def"
#undef LIBPQ
};

/* Valid after pg_library_load() has returned true. */
extern struct libpq pq;

/* Loads libpq, once in the life of the process. Returns false if it cannot be loaded:
 * pg_library_error() says why. */
bool pg_library_load(void);
const char *pg_library_error(void);
