/* visit.h - inside lease.c and asking.c: a verb visits the shard of its name. */
#pragma once
#include "lease.h"

/* What a verb finds once it is inside. */
struct hf_visit {
    struct hf_table *table;
    const struct hf_asker *who;
    struct hf_ask *ask;
    struct hf_entry *entry; /* the ask's own; NULL: there is none (any more) */
    uint32_t shard;
    uint64_t hash; /* of the name, if the ask has no cell yet */
    hf_nanos now;  /* when the mutex was got */
    struct hf_news *news;
};
typedef void hf_verb_fn(struct hf_visit *v);

/* Enters, lets the verb do its work and answer, leaves; or answers why it cannot enter. */
void hf_visit(struct hf_table *t, const struct hf_asker *who, struct hf_ask *ask, hf_nanos now, struct hf_news *news,
              hf_verb_fn *verb);

/* The state of the ask's cell. */
uint32_t hf_visit_state(const struct hf_visit *v);
/* Frees the ask's cell, if it has one. */
void hf_visit_drop(struct hf_visit *v);

void hf_visit_answer(struct hf_visit *v, enum hf_cue cue);
void hf_visit_fail(struct hf_visit *v, hf_status status); /* the text is hf_why's */
void hf_visit_hold(struct hf_visit *v, enum hf_cue cue);  /* GRANTED or EXTENDED: with time and token of the entry */
