/* zk_admin.h - the struct of an admin op, shared by list, break and diagnose. */
#pragma once
#include "zookeeper.h"

/* A place of the name that is being read. */
struct admin_row {
    char *node; /* name of the node */
    struct zk_place place;
    struct zk_data data;
    struct zk_stat stat;
    bool is_gone; /* the place was deleted before its data could be read */
};

enum admin_step { STEP_NAMES, STEP_PLACES, STEP_DATA, STEP_DELETE, STEP_DIAGNOSE };

struct zk_admin {
    struct zk_admin *next;
    struct engine_op *op;
    struct zk_session *session;
    nanos asked_at, sent_at;
    bool begun;
    enum admin_step step;
    char **name; /* names of locks, in byte order */
    size_t names, at;
    uint32_t shown;        /* number of names with rows */
    struct admin_row *row; /* places of the name that is being read */
    size_t count, read, sent;
    uint64_t used;
    /* STEP_DIAGNOSE */
    unsigned awaited;    /* number of answers that have not come */
    nanos write_took;    /* how long the quorum write took */
    int32_t write_error; /* error of the quorum write */
    bool has_settings;   /* the server told its settings: zk->words.text */
    /* numbers of voting and of other servers in /zookeeper/config; 0: not known */
    unsigned voters, observers;
};

void zk_admin_reply(struct zk *zk, struct zk_admin *admin, enum reply_kind kind, hf_status status,
                    const char *text);
/* Sends zk->message. If that fails, it replies, frees the admin op and returns NULL. */
struct zk_call *zk_admin_call(struct zk *zk, struct zk_admin *admin, nanos now);

/* ---- zk_diagnose.c ---- */

void zk_diagnose_begin(struct zk *zk, struct zk_admin *admin, nanos now);
void zk_diagnose_on_reply(struct zk *zk, struct zk_admin *admin, const struct zk_call *call,
                          const struct zk_header *header, struct jute_reader *body, nanos now);
void zk_diagnose_on_words(struct zk *zk, struct zk_admin *admin);

/* ---- zk_words.c ---- */

/* Sends the question. zk_diagnose_on_words() gets the answer. Returns false if it cannot be sent
 * now. */
bool zk_words_begin(struct zk *zk, struct zk_admin *admin, nanos now);
void zk_words_abandon(struct zk *zk, const struct zk_admin *admin);
/* Returns a number in the newest answer, by its name. Returns false if it is not there. */
bool zk_words_number(const struct zk *zk, const char *name, long long *value);
