/* admin.h - the requests of administrators to an engine: list, break, resize, diagnose, and the
 * care for the library that the engine runs inside its servers. */
#pragma once
#include "base/name_page.h"
#include "core/engine_protocol.h"

enum list_scope {
    LIST_ONE,     /* one name */
    LIST_PREFIX,  /* all names that begin with it */
    LIST_HISTORY, /* past holds of one name */
    LIST_SERVERS, /* one name, as each server sees it */
};

/* The subject of a request. */
struct admin_target {
    enum list_scope which;
    const char *name;
    size_t len;
    nanos until; /* time limit, as in engine_op */
    /* LIST_PREFIX: the names to report; NULL: all. The client drops other rows, so an engine may
     * ignore this. An engine that stops early instead of reading everything reports end_of_page()
     * if further names exist. */
    const struct name_range *page;
};

/* Returns the row that ends an incomplete page: all names up to row->name were reported, and
 * further names exist. */
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
    ADMIN_LIST, /* reports the rows of `scope` */
    /* ends the hold of op.name with the token op.token; NOT_HELD: no such hold */
    ADMIN_BREAK,
    /* sets the capacity of op.name to op.capacity; NOT_HELD: the name is not in use */
    ADMIN_RESIZE,
    ADMIN_DIAGNOSE, /* reports findings about the server */
    ADMIN_INSTALL,  /* loads the library that runs inside the server, and reports findings */
    ADMIN_USES,     /* reports the libraries that clients of the server use, as text of a finding */
    /* removes the libraries of other releases that no client uses, and reports findings */
    ADMIN_PRUNE,
};

/* Stands in the text of ADMIN_USES and in admin_op.in_use if the library of some client is not
 * known. */
#define LIBRARY_UNKNOWN "?"

/* Returns true if the request goes to each server of the engine; false: it is about one lock or a
 * list. */
static inline bool admin_is_for_servers(enum admin_verb verb)
{
    return verb >= ADMIN_DIAGNOSE;
}

/* An op with the verb OP_ADMIN. */
struct admin_op {
    struct engine_op op;
    enum admin_verb verb;
    enum list_scope scope;         /* ADMIN_LIST */
    const struct name_range *page; /* ADMIN_LIST: as in admin_target */
    const char *in_use; /* ADMIN_PRUNE: libraries in use on any server, separated by blanks */
};

static inline const struct admin_op *admin_op_of(const struct engine_op *op)
{
    return (const struct admin_op *)(const void *)op;
}
