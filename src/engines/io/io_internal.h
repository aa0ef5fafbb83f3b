/* io_internal.h - the structs of the I/O driver, and how it works: threads that wait do the I/O.
 *
 * Words. Connections i, i + 64, i + 128 ... are a *group* (connection_set in
 * core/engine_protocol.h); a client with up to 64 connections has one in each. A thread *drives* a
 * group while it polls and reads its connections; a group has at most one driver. An op is
 * *interested* in the groups by which a reply to it may come (op->connections). An op *has a
 * caller* if a thread parks for its reply; replies to other ops are notified to the client's
 * background thread. Where the text below says connection, it means its group.
 *
 * Rules. There is no I/O thread.
 * - A parked caller drives those of its connections that have no driver. It reads the replies to
 *   all ops, and puts each into the mailbox of its op. If all its connections have drivers, the
 *   caller sleeps on a futex word.
 * - The background thread drives connections without a driver if an op without a caller is
 *   interested in them, or if the server may speak on them unasked.
 * - The caller's own event loop, if it has one, reads replies to ops without a caller before the
 *   background thread does (io_loop.c). It never drives.
 * - A driver that leaves a connection hands it on to a thread that is interested.
 * So a cycle of one caller involves no other thread. A waiter in a server's queue listens on a
 * connection of its own and slows nobody.
 *
 * Locks. io->lock guards the engine, the connections and the mailboxes. Order: a lease's lock (held
 * by the caller), io->lock, the client's lock (taken by the host's functions). No thread sleeps
 * with io->lock.
 *
 * Times. A sleep ends at the latest when the engine wants its next tick, as known when the sleep
 * began. A thread whose call makes that time earlier parks right after it and so sees the new time,
 * or it wakes the background thread.
 *
 * Files. io_ops.c has the functions of engine.h that submit ops and take replies, io_park.c parked
 * callers, io_background.c the background thread, io_poll.c what both do while they wait,
 * io_settle.c what follows from a call of the engine, io_connections.c the connections, io_loop.c
 * the caller's own event loop, mailbox.c the mailboxes, io_admin.c the admin calls. The four
 * policies that make the driver fast have a file each, which says why and when: io_spin.c,
 * io_recv_wait.c, io_batch.c, io_hand_on.c.
 *
 * tests/models/driver.pml is a model of io_park.c, io_background.c, io_poll.c and io_hand_on.c, and
 * tests/models/loop.pml of io_loop.c. */
#pragma once
#include "io_driver.h"
#include "io_policy.h"
#include "io_spin.h"

#include "net/conn.h"
#include "sys/entropy.h"
#include "sys/futex.h"
#include "sys/small_mutex.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>

enum {
    IO_MAILBOX_ROOM = 8, /* most unread replies of an op */
    IO_CHUNK = 32,       /* number of mailboxes allocated at once */
    IO_MESSAGES_KEPT = 64,
    IO_READ_SIZE = 64 * 1024,
    IO_WAKES_MAX = 64
};

/* The background thread reads unclaimed replies after this time (io_background.c). */
#define IO_UNCLAIMED_AFTER NANOS_OF_MS(20)

/* What a waiting thread does while another thread has the lock. The same names are in
 * tests/models/driver.pml. */
enum io_waiter_state {
    IO_AWAKE,     /* runs, or waits for the lock */
    IO_POLLING,   /* in poll(), with its eventfd: can be woken */
    IO_RECEIVING, /* in recv(): cannot be woken, ends by itself */
    IO_SLEEPING   /* on its futex word: can be woken */
};

/* A thread that waits: a parked caller (on its stack), or the background thread. */
struct io_waiter {
    struct io_waiter *next, *prev; /* list io->waiters of parked callers */
    struct io_waiter *beside;      /* next caller that parks for the same op */
    struct io_mailbox *mailbox;    /* mailbox of the op it parks for; NULL: the background thread */
    connection_set connections;    /* groups that the thread drives */
    enum io_waiter_state state;
    bool recv_waited; /* the thread's last recv() ended without bytes: it polls from now on */
    bool waking;      /* woken from IO_SLEEPING, and does not have the lock again yet */
    bool woken;       /* io_wake() ended the park */
    int wake_fd;      /* eventfd that the thread polls together with its connections */
    /* another thread has written to wake_fd since this thread began to poll */
    bool wake_fd_written;
    futex_word word; /* 1 once another thread has woken it from IO_SLEEPING */
};

/* A reply that was not taken out yet. */
struct io_message {
    struct io_message *next;
    struct engine_reply reply;
    char *text;
    struct reply_holder *holder;
};

/* The replies to one op. An op has a mailbox from its submit until the last reply was taken out. A
 * hold without an op in flight has none. */
struct io_mailbox {
    struct engine_op *op; /* op that it belongs to; NULL: this mailbox is free */
    uint32_t index, generation;
    /* number of replies so far, including those that later ones replaced */
    uint32_t reply_count;
    connection_set interest;          /* groups in whose interest_count the op is counted */
    struct io_message *oldest;        /* list of `count` unread replies */
    struct io_message *spare;         /* message for the next reply, which then needs no memory */
    char *last_text;                  /* text of the reply that was taken out last */
    struct reply_holder *last_holder; /* the holder of that reply */
    struct io_waiter *parked;         /* list of callers */
    struct io_mailbox *next;          /* list io->touched or io->free */
    uint16_t due;                     /* number of submits that have no reply yet */
    uint8_t count;                    /* number of unread replies */
    bool has_caller;                  /* false: replies are notified to the background thread */
    bool answered;                    /* a reply has arrived since the last submit */
    /* the last reply was final: no other follows without a request */
    bool final;
    bool woken;   /* io_wake() was called while no thread was parked */
    bool touched; /* the mailbox is in the list io->touched */
};

struct io_connection {
    unsigned number;
    bool is_open;     /* the connection was dialled or adopted, and not hung up since */
    bool up;          /* the engine was told that the connection is up */
    bool dial_failed; /* there was no memory or descriptor to dial */
    bool in_loop;     /* the caller's loop polls it */
    /* the driver waits in poll() or recv() on this connection, or on `closing` */
    bool is_waited_on;
    short wanted;          /* events for which a library wants to be called */
    short polled;          /* events that the driver waits for */
    short happened;        /* events that its last poll returned */
    int adopted_fd;        /* descriptor that a library owns; -1: none, and `conn` counts */
    unsigned failed_dials; /* number of failed dials in a row */
    nanos read_at;         /* time when the connection was last read */
    struct conn *conn;     /* socket of the connection; NULL: down, or adopted */
    /* socket that was hung up while its driver waits on it; the driver frees it */
    struct conn *closing;
};

/* The connections whose numbers are the same modulo CONNECTION_GROUPS. */
struct io_group {
    struct io_waiter *driver; /* thread that drives the group; NULL: none */
    nanos unclaimed_at;       /* time since when a reply that no op waits for has been due */
    nanos interest_at;        /* time since when an op without a caller has been interested */
    unsigned open_count;      /* number of open connections */
    uint32_t interest_count;  /* number of interested ops without a caller */
    int wake_fd;              /* eventfd for the group's driver; -1 before the first dial */
    struct io_spin spin;      /* learns whether spinning pays */
};

/* One connection of each group. */
struct io_row {
    struct io_connection connection[CONNECTION_GROUPS];
};

struct io {
    small_mutex lock;
    struct io_policy policy;
    const struct wire_engine_type *type;
    void *engine;
    struct wire_engine_host wire_host;
    const struct engine_host *host;
    struct entropy entropy;

    struct io_row **row; /* connection i is in row i / CONNECTION_GROUPS */
    unsigned rows;
    struct io_group group[CONNECTION_GROUPS];
    connection_set open;         /* groups with a connection that was dialled and is not down */
    connection_set driven;       /* connections with a driver */
    connection_set dirty;        /* connections with bytes that were not flushed */
    connection_set dialled;      /* dialled, and not offered to a thread since */
    connection_set interest_set; /* groups whose interest_count is not 0 */
    connection_set unclaimed;    /* connections with replies due that no op waits for */
    connection_set listening;    /* connections on which servers speak unasked */
    /* time when the background thread's wait ends; 0: it does not wait */
    nanos background_until;
    int loop_fd;             /* epoll descriptor of the caller's loop; -1: it has none */
    connection_set loop_set; /* groups with a connection that the loop polls */
    nanos loop_at;           /* time when the loop read last, or when a first reply became due */
    nanos loop_read_at;      /* time when the loop read last */
    bool loop_ended;         /* the loop was closed, and reads no more */
    bool loop_reads;         /* the loop reads now, and then takes the replies itself */
    nanos spin;              /* time for which callers spin; 0: they do not */

    struct io_mailbox **chunk;
    uint32_t chunks;
    struct io_mailbox *free, *touched;
    struct io_message *messages; /* list of `messages_kept` empty messages */
    uint32_t messages_kept;

    uint64_t asked_slot;       /* slot of the op that was submitted last */
    nanos asked_at;            /* time of that submit, so that its caller need not read the clock */
    struct io_waiter *waiters; /* list of `parked` callers */
    uint32_t parked;           /* number of parked callers */
    uint32_t waking;           /* number of callers with `waking` set */
    uint32_t unsent;           /* number of sends by the engine since the last flush */
    nanos read_at;             /* time when any connection was last read */
    /* sleepers to wake once the lock is free, because each takes the lock */
    futex_word *wake[IO_WAKES_MAX];
    uint32_t wakes;              /* number of words in `wake` */
    struct io_waiter background; /* the background thread */
    pthread_t background_thread; /* valid if `entered` */
    bool entered;                /* the background thread is inside the engine */
    bool has_background_work;    /* the background thread must return to the client */
    /* like has_background_work, for a thread that does not have the lock */
    _Atomic bool background_woken;
    char bytes[IO_READ_SIZE]; /* buffer for one read */
};

/* ---- Sets of connections ---- */

/* Returns the lowest group of a set that is not empty. */
static inline unsigned io_lowest(connection_set set)
{
    return (unsigned)__builtin_ctzll(set);
}

static inline bool io_is_single(connection_set set)
{
    return set && !(set & (set - 1));
}

/* Takes the lowest group out of a set that is not empty. */
static inline unsigned io_pop(connection_set *set)
{
    unsigned group = io_lowest(*set);
    *set &= *set - 1;
    return group;
}

static inline struct io_connection *io_connection_at(const struct io *io, unsigned number)
{
    assert(number / CONNECTION_GROUPS < io->rows);
    return &io->row[number / CONNECTION_GROUPS]->connection[number % CONNECTION_GROUPS];
}

static inline struct io_group *io_group_of(struct io *io, const struct io_connection *connection)
{
    return &io->group[connection->number % CONNECTION_GROUPS];
}

/* Takes the next open connection out of a set. *row is 0 at first. Returns NULL when there is none
 * left. */
static inline struct io_connection *io_next_open(const struct io *io, connection_set *set,
                                                 unsigned *row)
{
    while (*set) {
        while (*row < io->rows) {
            struct io_connection *connection = &io->row[(*row)++]->connection[io_lowest(*set)];
            if (connection->is_open)
                return connection;
        }
        *row = 0;
        io_pop(set);
    }
    return NULL;
}

/* ---- Mailboxes by slot ---- */

static inline uint64_t io_slot_of(const struct io_mailbox *mailbox)
{
    return (uint64_t)mailbox->generation << 32 | (mailbox->index + 1);
}

/* Returns NULL if the op of that slot was forgotten, or if all its replies were taken out. */
static inline struct io_mailbox *io_mailbox_at(const struct io *io, uint64_t slot)
{
    uint32_t index = (uint32_t)slot - 1;
    if (!slot || index / IO_CHUNK >= io->chunks)
        return NULL;

    struct io_mailbox *mailbox = &io->chunk[index / IO_CHUNK][index % IO_CHUNK];
    return mailbox->op && io_slot_of(mailbox) == slot ? mailbox : NULL;
}

static inline struct io_mailbox *io_mailbox_of(const struct io *io, const struct engine_op *op)
{
    struct io_mailbox *mailbox = io_mailbox_at(io, op->slot);
    return mailbox && mailbox->op == op ? mailbox : NULL;
}

/* ---- The lock ---- */

void io_unlock_and_wake(struct io *io);

/* Releases the lock, then wakes the sleepers in io->wake. */
static inline void io_unlock(struct io *io)
{
    if (io->wakes)
        io_unlock_and_wake(io);
    else
        small_mutex_unlock(&io->lock);
}

/* All functions below are called with the lock held, unless they say otherwise. */

/* ---- mailbox.c ---- */

/* Returns NULL if there is no memory. */
struct io_mailbox *io_mailbox_make(struct io *io, struct engine_op *op);
/* Makes room for a reply. Returns false if there is no memory. */
bool io_mailbox_reserve(struct io *io, struct io_mailbox *mailbox);
void io_mailbox_drop(struct io *io, struct io_mailbox *mailbox);
void io_mailboxes_free(struct io *io);
/* Copies the reply's text and holder. */
void io_mailbox_put(struct io *io, struct io_mailbox *mailbox, const struct engine_reply *reply);
/* Takes the oldest unread reply out. Returns false if there is none. The text is valid until the
 * next one is taken out. */
bool io_mailbox_take(struct io *io, struct io_mailbox *mailbox, struct engine_reply *reply);
/* Drops the mailbox if no reply can come any more and all were taken out. */
void io_mailbox_rest(struct io *io, struct io_mailbox *mailbox);
/* Adds the mailbox to io->touched. */
void io_mailbox_touch(struct io *io, struct io_mailbox *mailbox);

/* ---- io_connections.c ---- */

/* Functions of struct wire_engine_host. */
bool io_reserve(void *io, unsigned count);
void io_dial(void *io, unsigned number, const struct endpoint *to);
bool io_send(void *io, unsigned number, const void *bytes, size_t len);
void io_start_tls(void *io, unsigned number);
void io_hang_up(void *io, unsigned number);
void io_adopt(void *io, unsigned number, int fd, unsigned interest);

void io_flush_dirty(struct io *io);
static inline void io_flush_connections(struct io *io)
{
    if (io->dirty)
        io_flush_dirty(io);
}

/* Sets connection->polled, and returns what poll() needs. */
struct pollfd io_connection_pollfd(struct io_connection *connection);
/* Returns true if there is work that poll() would not show. */
bool io_connection_ready(const struct io_connection *connection);
/* Continues the dial, or reads and writes what the socket allows. */
void io_serve(struct io *io, struct io_connection *connection, nanos now);
/* Handles the result of conn_recv_wait(), which had room for `room` bytes. */
void io_take_bytes(struct io *io, struct io_connection *connection, const char *bytes, size_t room,
                   ssize_t got, nanos now);
/* Reads connections that nobody has read for 1 s, mainly to notice that the server closed them. */
void io_read_idle(struct io *io, nanos now);
/* Called by the caller's loop: reads a connection that is up. Returns true if there were bytes. */
bool io_read_now(struct io *io, struct io_connection *connection, nanos now);
/* Called by the driver after its wait on that connection. Returns false if the connection was hung
 * up meanwhile: then the events of the wait belong to the old socket. */
bool io_end_wait(struct io_connection *connection);
void io_connections_close(struct io *io);

/* ---- io_poll.c ---- */

/* Drives the wanted connections that have no driver, and hands on all others. */
void io_choose_connections(struct io *io, struct io_waiter *me, connection_set wanted);
/* Waits until something happens on the connections that `me` drives, and handles it. Releases the
 * lock meanwhile. Returns the time at which the wait ended. */
nanos io_drive(struct io *io, struct io_waiter *me, nanos now, nanos until);

/* ---- io_park.c ---- */

void io_wake_waiter(struct io *io, struct io_waiter *waiter);
void io_write_wake_fd(int fd); /* May be called without the lock. */

/* ---- io_loop.c ---- */

/* Call io_loop_watch() when a connection came up, io_loop_unwatch() before it goes down. */
void io_loop_watch(struct io *io, struct io_connection *connection);
void io_loop_unwatch(struct io *io, struct io_connection *connection);
/* Returns the connections that the background thread leaves to the loop for now. */
connection_set io_left_to_loop(const struct io *io, nanos now);
/* Returns when the background thread must check again whether the loop reads: at most `until`. */
nanos io_loop_limit(const struct io *io, nanos now, nanos until);
/* Called when an op without a caller is the first to be interested in a group. */
void io_loop_expect(struct io *io, struct io_group *group);
/* A reply on one of these connections is due: tells the background thread when to check. */
void io_loop_announce(struct io *io, connection_set connections);

/* ---- io_background.c ---- */

/* Makes the background thread return to the client. */
void io_notify_background(struct io *io);
/* Returns true if replies that no op waits for have been unread in that group for
 * IO_UNCLAIMED_AFTER. */
bool io_is_neglected(const struct io *io, unsigned group, nanos now);

/* ---- io_settle.c ---- */

void io_settle(struct io *io);           /* Call it after every call of the engine. */
nanos io_tick(struct io *io, nanos now); /* Returns when the engine wants the next tick. */
/* The op was forgotten: wakes its callers and drops the mailbox. */
void io_drop_waiters(struct io *io, struct io_mailbox *mailbox);

/* ---- io_spin.c ---- */

/* Returns true if the thread may spin. Only called if io->spin is not 0. */
bool io_may_spin(struct io *io, const struct io_waiter *me);
/* Polls without the lock. Returns true if something happened before `until`. */
bool io_spin_poll(struct pollfd *fds, nfds_t count, nanos until);
/* Called without the lock. Returns the result of the last conn_recv_now(): -EAGAIN if nothing
 * arrived. */
ssize_t io_spin_recv(int fd, char *bytes, size_t size, nanos until);

/* ---- io_recv_wait.c ---- */

/* Returns the connection on which the thread may sleep in recv(); NULL: it must poll. */
struct io_connection *io_recv_wait_on(const struct io *io, const struct io_waiter *me, nanos now,
                                      nanos until);
/* Releases the lock while it waits. Returns the time at which the wait ended. */
nanos io_recv_wait(struct io *io, struct io_waiter *me, struct io_connection *connection);

/* ---- io_batch.c ---- */

/* Flushes, or leaves the flush to a caller that was woken and is not yet back. */
void io_flush_or_defer(struct io *io);
/* Returns the time at which a sleep must end: `until`, or sooner if bytes are unflushed. */
nanos io_sleep_limit(const struct io *io, nanos now, nanos until);

/* ---- io_hand_on.c ---- */

/* For each of these connections without a driver, wakes a thread that is interested in it, if
 * there is one. */
void io_offer(struct io *io, connection_set connections);
/* Returns the connections that the background thread drives for callers: none if the policy is on,
 * those of all sleeping callers if it is off. */
connection_set io_background_share(const struct io *io);
void io_leave_connections(struct io *io, struct io_waiter *me, connection_set connections);
void io_give_up(struct io *io, struct io_waiter *me,
                /* takes the connections from their driver and offers them */
                connection_set connections);

/* ---- io_admin.c ---- */

/* Functions of struct wire_engine_host. */
void io_admin_row(void *io, struct engine_op *op, const struct hf_row *row);
void io_admin_server_state(void *io, struct engine_op *op,
                           const struct hf_server_state *server_state);
void io_admin_finding(void *ctx, struct engine_op *op, const struct hf_finding *finding);
