/* etcd_admin.h - the struct of an admin op, shared by list, break and diagnose. */
#pragma once
#include "etcd.h"

/* leases whose remaining time a list asks for; others show -1 */
enum { ADMIN_LEASES_MAX = 256 };

struct admin_row {
    char *name, *key;
    size_t key_len;
    struct etcd_value value;
    uint64_t created;
    int64_t lease, left_s; /* id of the lease, and its remaining seconds; -1: not known */
    uint32_t used;
    bool asked;
};

struct etcd_admin {
    struct etcd_admin *next;
    struct engine_op *op;
    nanos asked_at;
    bool begun, breaks;
    unsigned step; /* ADMIN_DIAGNOSE: number of replies so far */
    int64_t lease; /* lease whose remaining time was asked for; 0: none */
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
void etcd_diagnose_on_reply(struct etcd *e, struct etcd_admin *admin, const char *bytes, size_t len,
                            nanos now);
