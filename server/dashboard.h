/* dashboard.h - the files of the page, embedded in the program (from web/, by web.cmake). */
#pragma once
#include <stddef.h>

struct asset {
    const char *name, *type;
    const unsigned char *text;
    size_t len;
};

extern const struct asset ASSETS[]; /* ends with a NULL name; the first one is the page itself */
