/* kit_loaded_library.c - libraries that are loaded when they are needed. */
#include "engines/kit/loaded_library.h"
#include "lib/sentence.h"

#include <string.h>

static double (*cosine)(double);
static void *nothing;

static void test_found(void **state)
{
    (void)state;
    const struct library_function functions[] = {{"cos", &cosine}};
    struct loaded_library library = {.file = "libm.so.6",
                                     .package = "libc6",
                                     .functions = functions,
                                     .count = 1,
                                     .lock = PTHREAD_MUTEX_INITIALIZER};
    assert_true(loaded_library_open(&library));
    assert_true(cosine(0) == 1);
    assert_true(loaded_library_open(&library));
}

static void test_old(void **state)
{
    (void)state;
    const struct library_function functions[] = {{"cos", &cosine}, {"no_such_call", &nothing}};
    struct loaded_library library = {.file = "libm.so.6",
                                     .package = "libc6",
                                     .functions = functions,
                                     .count = 2,
                                     .lock = PTHREAD_MUTEX_INITIALIZER};
    assert_false(loaded_library_open(&library));
    assert_string_equal(library.error, "libm.so.6 has no no_such_call: it is too old");
    assert_false(loaded_library_open(&library));
}

static void test_missing(void **state)
{
    (void)state;
    const struct library_function functions[] = {{"cos", &cosine}};
    struct loaded_library library = {.file = "libnowhere.so.1",
                                     .package = "libnowhere1",
                                     .functions = functions,
                                     .count = 1,
                                     .lock = PTHREAD_MUTEX_INITIALIZER};
    assert_false(loaded_library_open(&library));
    assert_non_null(strstr(library.error, "libnowhere.so.1"));
    assert_non_null(strstr(library.error, "(Debian: libnowhere1)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a library is loaded once and its functions are found", test_found),
        SENTENCE("a library that lacks a function is refused by that name", test_old),
        SENTENCE("a library that is not there is named with its package", test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
