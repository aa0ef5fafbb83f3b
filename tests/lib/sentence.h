/* sentence.h - cmocka with tests that are named as sentences. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above. */
#include <cmocka.h>

/* One line of a group: const struct CMUnitTest tests[] = {SENTENCE("an empty heap has no first",
 * test_empty)}; */
#define SENTENCE(text, function)                                                                   \
    {                                                                                              \
        .name = text, .test_func = function                                                        \
    }
