/* etcd_admin.h - the struct of an admin op, shared by list, break and diagnose. */
#pragma once
#include "etcd.h"

/* leases whose remaining time a list asks for; others show -1 */
enum { ADMIN_LEASES_MAX = 256 };

struct admin_row {
    char *name, *key;
    size_t key_len;
    struct etcd_value value;
    uint64_t created, changed;
    struct queue_resize resize; /* capacity in force, and revision of the last change of its key */
    uint64_t resize_changed;
    int64_t lease, left_s; /* id of the lease, and its remaining seconds; -1: not known */
    uint32_t used;
    bool asked;
};

struct etcd_admin {
    struct etcd_admin *next;
    struct engine_op *op;
    nanos asked_at;
    bool begun;
    bool changes;      /* a transaction that breaks or resizes is in flight */
    uint64_t revision; /* revision of the rows */
    unsigned tries;    /* ADMIN_RESIZE: transactions whose conditions were not true */
    unsigned step;     /* ADMIN_DIAGNOSE: number of replies so far */
    int64_t lease;     /* lease whose remaining time was asked for; 0: none */
    unsigned leases_read;
    struct admin_row *row;
    size_t count, room;
};

void etcd_admin_drop(struct etcd *e, struct etcd_admin *admin);
/* Replies, and frees the admin op. */
void etcd_admin_reply(struct etcd *e, struct etcd_admin *admin, enum reply_kind kind,
                      hf_status status, const char *text);
/* Sends e->message. If that fails, replies, frees the admin op and returns NULL. */
struct etcd_call *etcd_admin_call(struct etcd *e, struct etcd_admin *admin, const char *path,
                                  nanos now);
/* Adds a read of the capacities of one name, or of all names that begin with it, to the transaction
 * in e->message. */
void etcd_resize_read_range(struct etcd *e, struct slice name, bool one);
/* Writes the capacities that were read into the rows. */
void etcd_resize_note_rows(const struct etcd *e, struct etcd_admin *admin, struct message *read);
/* ADMIN_RESIZE: goes on once the rows were read and judged. */
void etcd_resize_rows(struct etcd *e, struct etcd_admin *admin, nanos now);
/* ADMIN_RESIZE: called when the transaction's conditions were not true. Returns true if the rows
 * are to be read once more. */
bool etcd_resize_may_retry(struct etcd_admin *admin);
void etcd_diagnose_on_reply(struct etcd *e, struct etcd_admin *admin, const char *bytes, size_t len,
                            nanos now);
