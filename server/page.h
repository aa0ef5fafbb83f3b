/* page.h - the files of the page, which are part of the program (made from web/ by web.cmake). */
#pragma once
#include <stddef.h>

struct asset {
    const char *name, *type;
    const unsigned char *text;
    size_t len;
};

extern const struct asset ASSETS[]; /* ends with a name NULL; the first one is the page itself */
