/* consul_admin.h - the struct of an admin op, shared by list, break and diagnose. */
#pragma once
#include "consul.h"

struct admin_row {
    char *name, *key;
    struct consul_value value;
    uint64_t created, changed;
    uint64_t token; /* token of the hold; 0: no hold, or not known */
    uint32_t used;
    bool is_lock; /* the row is the key .lock */
    /* attempt id in the value of .lock; "": another program has it */
    char attempt[CONSUL_ID_TEXT + 1];
};

struct consul_admin {
    struct consul_admin *next;
    struct engine_op *op;
    nanos asked_at;
    bool begun, breaks;
    unsigned step; /* ADMIN_DIAGNOSE: number of replies so far */
    struct admin_row *row;
    size_t count, room;
};

/* Replies, and frees the admin op. */
void consul_admin_reply(struct consul *c, struct consul_admin *admin, enum reply_kind kind,
                        hf_status status, const char *text);
/* Sends the request in c->head and c->body. If that fails, it replies and frees the admin op. */
void consul_admin_call(struct consul *c, struct consul_admin *admin, nanos now);
void consul_diagnose_begin(struct consul *c, struct consul_admin *admin, nanos now);
void consul_diagnose_on_reply(struct consul *c, struct consul_admin *admin,
                              const struct consul_reply *reply, nanos now);
