/* pg_library.c - the functions of libpq that this engine calls. */
#include "pg_library.h"

#include "engines/kit/loaded_library.h"

struct libpq pq;

static const struct library_function functions[] = {
#define LIBPQ(name) {#name, &pq.name},
#include "libpq_calls.def"
#undef LIBPQ
};

static struct loaded_library library = {.file = "libpq.so.5",
                                        .package = "libpq5",
                                        .functions = functions,
                                        .count = sizeof functions / sizeof *functions,
                                        .lock = PTHREAD_MUTEX_INITIALIZER};

bool pg_library_load(void)
{
    return loaded_library_open(&library);
}

const char *pg_library_error(void)
{
    return library.error;
}
