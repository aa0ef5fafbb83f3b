/* members.h - the clients of a table: who lives, who watches whom, and the burial of the dead.
 *
 * Each client has a life word: a robust mutex held by its background thread. The clients form a ring; each watches the
 * life word of the next one. Whoever sees its neighbour die takes that life word over, frees what the dead one held and
 * waited for, takes it out of the ring and watches the next. Should it die meanwhile, the life word is marked again and
 * its own watcher comes to it. The ttl is the floor under all this. */
#pragma once
#include "table.h"

/* Joins, on the background thread, which will own the life word. */
hf_status hf_member_join(struct hf_table *t, int64_t pid, int64_t until, uint32_t *member);
/* Leaves, on the same thread, and frees what is left of this client. False: somebody sits in a part of the table; when
 * the thread ends, the others bury it. */
bool hf_member_leave(struct hf_table *t, uint32_t member);

/* The next one in the ring, 0 when alone, and the version of the ring that this was read from. */
hf_status hf_member_next(struct hf_table *t, uint32_t member, uint32_t *next, uint32_t *ring);

/* LATER: somebody sits in a part of the table; call again, on the same thread. NONE: it lives, or is gone already. */
enum hf_burial { HF_BURIAL_DONE, HF_BURIAL_LATER, HF_BURIAL_NONE };
enum hf_burial hf_member_bury(struct hf_table *t, uint32_t member);
bool hf_member_lives(struct hf_table *t, uint32_t member);

/* Puts a granted entry on its client's ready list and rings its bell. */
void hf_member_ready(struct hf_table *t, uint32_t member, uint32_t entry);
/* Lets the client of an entry look at everything it has. */
void hf_member_rescan(struct hf_table *t, uint32_t entry);
/* Lets a client ask whether what it holds is still its own. */
void hf_member_recheck(struct hf_table *t, uint32_t member);
void hf_member_ring_bell(struct hf_member *m);
void hf_members_ring_changed(struct hf_table *t);
