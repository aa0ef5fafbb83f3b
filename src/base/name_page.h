/* name_page.h - a page of names: of all names behind a given one the first N in byte order. Memory
 * is reserved when the page is opened, so that adding a name never fails. */
#pragma once
#include "holdfast.h"

/* The names that a page may have, and their number. */
struct name_range {
    const char *after;  /* only names behind it in byte order; "": all */
    const char *except; /* leave out names with this prefix; "": leave out none */
    uint32_t most;      /* most names in a page; 0: all names, so there is only one page */
    bool foreign;       /* also locks of other programs that nobody here waits for */
};

struct name_page {
    struct name_range range;
    char (*slot)[HF_NAME_MAX + 1]; /* the names, in no particular order */
    uint32_t *order;               /* indexes into slot, sorted by name */
    uint32_t count;
    bool has_more; /* there are further names behind the last one */
};

bool name_range_has(const struct name_range *range, const char *name);

/* HF_NO_MEMORY: nothing was opened. The texts of the range must outlive the page. */
hf_status name_page_open(struct name_page *page, const struct name_range *range);
void name_page_free(struct name_page *page);

/* Takes a name of at most HF_NAME_MAX bytes into the page if it belongs there. A name that is
 * already there is not added again. */
void name_page_add(struct name_page *page, const char *name, size_t len);

/* Returns the name at that position, from 0. */
const char *name_page_at(const struct name_page *page, uint32_t place);

/* Returns the last name of a full page: everything up to it is there. NULL: no name follows. */
const char *name_page_end(const struct name_page *page);
