/* inside.h - the driver's own structs, and how it works: whoever waits, drives.
 *
 * The way through this folder: driver.c has the functions of the door that ask and look; waiting.c those that sleep:
 * callers park, the background thread attends; driving.c what they do meanwhile; lines.c has the connections; records.c
 * the mailbox of each ask; errands.c what is done for people: list, break, resize, watch.
 *
 * One lock, `io`, guards the engine, the lines and the records. The order of locks: a lease's (the caller has it), io,
 * the client's (the host's functions take it). Nobody holds io while he sleeps.
 *
 * An ask says by which lines its news may come (ask->lines): its stake. A caller that parks polls those of its lines
 * that nobody polls yet, reads for everybody, and tells others through their mailboxes; one whose lines are all driven
 * sleeps on a word. The background thread drives lines in which unattended asks have a stake and that nobody else
 * drives. So a cycle of one caller concerns no other thread, and one that waits in a queue, on a line of its own, slows
 * nobody. Who stops driving a line offers it to another that has a stake in it.
 *
 * Who drives one line, and has no stake in another, first dozes: a recv that sleeps costs half of a poll with a time
 * and a recv behind it. Nobody can rouse it, so it ends by itself after a moment; whatever it was to be roused for it
 * sees then, when it has the lock again. Only then does it poll, and can be kicked.
 *
 * Those who were roused together ask together: who asks and goes to sleep leaves the sending to one who is roused and
 * not yet back, and who leaves does, too; so the last of them sends, or somebody before when it is enough, or whoever
 * wakes by himself because it took too long.
 *
 * Each sleep ends at the latest when the engine wants to be ticked, as far as was known when it began. Whoever brings
 * that time forward is about to sleep himself, or makes sure that the background thread looks again. */
#pragma once
#include "spin.h"
#include "wire_driver.h"

#include "net/link.h"
#include "sys/entropy.h"
#include "sys/futex.h"
#include "sys/latch.h"

#include <pthread.h>

enum { HF_WIRE_BOX = 8, HF_WIRE_CHUNK = 32, HF_WIRE_LETTERS = 64, HF_WIRE_READ = 64 * 1024, HF_WIRE_WAKES = 64 };

/* A thread that waits in here: a parked caller (on its stack), or the background thread. While another thread has the
 * io lock, it polls or sleeps. */
struct hf_wire_waiter {
    struct hf_wire_waiter *next, *prev; /* among all parked callers */
    struct hf_wire_waiter *beside;      /* on the same record */
    struct hf_wire_record *record;      /* NULL: the background thread */
    uint32_t lines;                     /* that it drives */
    enum { HF_WIRE_AWAKE, HF_WIRE_POLLING, HF_WIRE_DOZING, HF_WIRE_SLEEPING } how;
    bool dozed;  /* in vain: from here on it polls */
    bool coming; /* roused from its sleep, and not yet back */
    bool woken;  /* by hf_wire_wake */
    int kick;    /* an eventfd that it polls with its lines */
    bool kicked; /* that was written to */
    hf_word word;
};

/* News that were told and not yet taken out. */
struct hf_wire_letter {
    struct hf_wire_letter *next;
    struct hf_news news;
    char *text;
};

/* What is kept of an ask while there may be news of it: from a submit until it was answered, and the answer taken out.
 * A hold with which nothing goes on has none. */
struct hf_wire_record {
    struct hf_ask *ask; /* NULL: free */
    uint32_t index, generation;
    uint32_t told;                 /* how many news there were, also those that gave way to later ones */
    uint32_t stake;                /* lines that it counts for in hf_wire.stakes */
    struct hf_wire_letter *oldest; /* of `count` unread ones */
    struct hf_wire_letter *empty;  /* for the next one, while it may come: it shall not fail for lack of memory */
    char *said;                    /* the text of the last one that was taken out */
    struct hf_wire_waiter *parked;
    struct hf_wire_record *next; /* touched, or free */
    uint16_t due;                /* answers that are yet to come, one for each submit */
    uint8_t count;
    bool attended; /* a caller parks; without one the news are nudged about */
    bool answered; /* there were news since the last submit */
    bool final;    /* the last of them needs none behind it */
    bool woken;    /* hf_wire_wake came while nobody was parked */
    bool touched;  /* stands in hf_wire.touched */
};

struct hf_wire_line {
    hf_nanos read_at;              /* when somebody last read from it */
    hf_nanos orphaned_at;          /* since when there have been answers due that no ask stands for */
    struct hf_link *link;          /* NULL: down */
    struct hf_link *corpse;        /* hung up while its driver polls it, who closes it */
    struct hf_wire_waiter *driver; /* NULL: nobody */
    short polled;                  /* what the driver waits for */
    bool up;                       /* the engine knows */
    bool stillborn;                /* there was no memory to dial */
    unsigned misses;               /* dials in a row that did not get through */
    int kick;                      /* an eventfd for whoever drives it, -1 before the first dial */
    struct hf_spin spin;           /* of those who drive it */
};

struct hf_wire {
    hf_latch io;
    const struct hf_wire_type *type;
    void *engine;
    struct hf_wire_host wire_host;
    const struct hf_host *host;
    struct hf_entropy entropy;

    struct hf_wire_line line[HF_WIRE_LINES];
    uint32_t open;                  /* lines that were dialled and are not down */
    uint32_t driven;                /* lines that have a driver */
    uint32_t dirty;                 /* lines that were sent to since the last flush */
    uint32_t dialled;               /* lines that were dialled since they were last offered */
    uint32_t stakes[HF_WIRE_LINES]; /* how many unattended asks count for each */
    uint32_t staked;                /* lines with such asks */
    uint32_t orphaned;              /* lines with answers that no ask stands for */
    hf_nanos background_until;      /* when the background thread looks again by itself */
    hf_nanos spin;                  /* how long callers look before they sleep; 0: there is no CPU to spare */

    struct hf_wire_record **chunk;
    uint32_t chunks;
    struct hf_wire_record *free, *touched;
    struct hf_wire_letter *letters; /* empty ones, */
    uint32_t letters_kept;          /* so many */

    uint64_t asked_slot;            /* what was last submitted, */
    hf_nanos asked_at;              /* and when: who parks for it next need not look at the clock again */
    struct hf_wire_waiter *waiters; /* callers that are parked, */
    uint32_t parked;                /* so many */
    uint32_t coming;                /* how many were roused from their sleep and are not yet back */
    uint32_t unsent;                /* pieces, mostly requests, since the last flush */
    hf_nanos read_at;               /* when somebody last read from any line */
    hf_word *wake[HF_WIRE_WAKES];   /* of sleepers that wake when the io lock is free: they would need it at once */
    uint32_t wakes;
    struct hf_wire_waiter background; /* its kick is the bell */
    pthread_t background_thread;
    bool entered; /* the background thread is inside */
    bool nudged;  /* the background thread has something to look at */
    _Atomic bool rung;
    char bytes[HF_WIRE_READ]; /* what was just read */
};

static inline uint32_t hf_wire_bit(unsigned line)
{
    return UINT32_C(1) << line;
}

/* Takes the lowest line out of a set that is not empty. */
static inline unsigned hf_wire_pop(uint32_t *lines)
{
    unsigned line = (unsigned)__builtin_ctz(*lines);
    *lines &= *lines - 1;
    return line;
}

static inline bool hf_wire_is_background(const struct hf_wire *wire)
{
    return wire->entered && pthread_equal(wire->background_thread, pthread_self());
}

static inline uint64_t hf_wire_slot_of(const struct hf_wire_record *record)
{
    return (uint64_t)record->generation << 32 | (record->index + 1);
}

/* NULL: forgotten. */
static inline struct hf_wire_record *hf_wire_record_at(const struct hf_wire *wire, uint64_t slot)
{
    uint32_t index = (uint32_t)slot - 1;
    if (!slot || index / HF_WIRE_CHUNK >= wire->chunks)
        return NULL;
    struct hf_wire_record *record = &wire->chunk[index / HF_WIRE_CHUNK][index % HF_WIRE_CHUNK];
    return record->ask && hf_wire_slot_of(record) == slot ? record : NULL;
}

static inline struct hf_wire_record *hf_wire_record_of(const struct hf_wire *wire, const struct hf_ask *ask)
{
    struct hf_wire_record *record = hf_wire_record_at(wire, ask->slot);
    return record && record->ask == ask ? record : NULL;
}

void hf_wire_unlock_and_wake(struct hf_wire *wire);
/* Gives the io lock up, and wakes those that were roused under it. */
static inline void hf_wire_unlock(struct hf_wire *wire)
{
    if (wire->wakes)
        hf_wire_unlock_and_wake(wire);
    else
        hf_latch_unlock(&wire->io);
}

/* All of these under the io lock. */

/* ---- records.c ---- */
struct hf_wire_record *hf_wire_record_make(struct hf_wire *wire, struct hf_ask *ask); /* NULL: no memory */
/* There will be room for news. False: no memory. */
bool hf_wire_record_expect(struct hf_wire *wire, struct hf_wire_record *record);
void hf_wire_record_drop(struct hf_wire *wire, struct hf_wire_record *record);
void hf_wire_records_free(struct hf_wire *wire);
/* Its text is copied. */
void hf_wire_record_put(struct hf_wire *wire, struct hf_wire_record *record, const struct hf_news *news);
/* The oldest unread news; false: none. Its text is good until the next one is taken. */
bool hf_wire_record_take(struct hf_wire *wire, struct hf_wire_record *record, struct hf_news *news);
/* Drops it if there is nothing that it could be told, or has yet to say. */
void hf_wire_record_rest(struct hf_wire *wire, struct hf_wire_record *record);
void hf_wire_record_touch(struct hf_wire *wire, struct hf_wire_record *record); /* to be settled */

/* ---- lines.c ---- */
void hf_wire_dial(void *wire, unsigned line, const struct hf_address *to);
bool hf_wire_send(void *wire, unsigned line, const void *bytes, size_t len);
void hf_wire_hang_up(void *wire, unsigned line);
void hf_wire_flush_dirty(struct hf_wire *wire);
static inline void hf_wire_flush_lines(struct hf_wire *wire)
{
    if (wire->dirty)
        hf_wire_flush_dirty(wire);
}
/* Leaves that to others who will be here in a moment, and ask for something, too: one send for several requests. */
void hf_wire_flush_or_leave(struct hf_wire *wire);
bool hf_wire_line_ready(const struct hf_wire_line *line);              /* there is work without polling */
void hf_wire_serve(struct hf_wire *wire, unsigned line, hf_nanos now); /* does what came up there */
/* What a doze on that line brought: bytes that have not filled the room, or what hf_link_doze() said. */
void hf_wire_take(struct hf_wire *wire, unsigned line, const char *bytes, size_t room, ssize_t came, hf_nanos now);
/* Reads what lines that nobody drives have had to say for a while: that they are closed, for one. */
void hf_wire_look_at_idle(struct hf_wire *wire, hf_nanos now);
void hf_wire_bury(struct hf_wire_line *line); /* its driver came back */
void hf_wire_lines_close(struct hf_wire *wire);

/* ---- driving.c ---- */
/* Drives those of the wanted lines that nobody else does, and no others. */
void hf_wire_choose_lines(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t wanted);
void hf_wire_leave_lines(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t lines);
void hf_wire_give_up(struct hf_wire *wire, struct hf_wire_waiter *me, uint32_t lines); /* and offers them */
/* Waits for something to happen on our lines, and does what follows from it. The time when that happened. */
hf_nanos hf_wire_drive(struct hf_wire *wire, struct hf_wire_waiter *me, hf_nanos now, hf_nanos until);

/* ---- waiting.c ---- */
void hf_wire_rouse(struct hf_wire *wire, struct hf_wire_waiter *waiter); /* ends its sleep */
void hf_wire_offer(struct hf_wire *wire, uint32_t lines);  /* those that nobody drives, to whoever has a stake */
void hf_wire_ring(struct hf_wire *wire);                   /* the background thread has something to look at */
hf_nanos hf_wire_tick(struct hf_wire *wire, hf_nanos now); /* and when again */
void hf_wire_settle(struct hf_wire *wire);                 /* due after every call of the engine */
void hf_wire_dismiss(struct hf_wire *wire, struct hf_wire_record *record); /* it was forgotten */

/* ---- errands.c ---- */
void hf_wire_row(void *wire, struct hf_ask *ask, const struct hf_row *row);
void hf_wire_stand(void *wire, struct hf_ask *ask, const struct hf_standing *standing);
void hf_wire_find(void *ctx, struct hf_ask *ask, const struct hf_finding *finding);
