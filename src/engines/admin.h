/* admin.h - what administrators ask of an engine: list, break, resize, diagnose. */
#pragma once
#include "base/name_page.h"
#include "core/engine_protocol.h"

enum list_scope {
    LIST_ONE,     /* one name */
    LIST_PREFIX,  /* all names that begin with it */
    LIST_HISTORY, /* past holds of one name */
    LIST_SERVERS, /* one name, as each server sees it */
};

/* What a request is about. */
struct admin_target {
    enum list_scope which;
    const char *name;
    size_t len;
    nanos until; /* as in engine_op */
    /* LIST_PREFIX: only these names; NULL: all. An engine may ignore it: the client cuts what it
     * gets. One that does not, so that it need not read all, reports an end_of_page() if names
     * follow. */
    const struct name_range *page;
};

/* The last row of a page that others follow: all names up to row->name were reported. */
static inline struct hf_row end_of_page(const char *name)
{
    return (struct hf_row){.size = sizeof(struct hf_row), .name = name, .host = "", .label = ""};
}

static inline bool is_end_of_page(const struct hf_row *row)
{
    return row->depth == 0;
}

/* The reply to each is RELEASED (done), NOT_HELD or FAILED. */
enum admin_verb {
    ADMIN_LIST,     /* rows of `scope` */
    ADMIN_BREAK,    /* ends the hold of op.name with op.token; NOT_HELD: nobody holds with it */
    ADMIN_RESIZE,   /* op.name to op.capacity; NOT_HELD: the name is not in use */
    ADMIN_DIAGNOSE, /* findings about the server */
};

/* An op with the verb OP_ADMIN. */
struct admin_op {
    struct engine_op op;
    enum admin_verb verb;
    enum list_scope scope;         /* ADMIN_LIST */
    const struct name_range *page; /* ADMIN_LIST; as in admin_target */
};

static inline const struct admin_op *admin_op_of(const struct engine_op *op)
{
    return (const struct admin_op *)(const void *)op;
}
