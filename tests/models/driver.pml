/* driver.pml - threads that wait do the I/O: they share connections, and no thread stands between a
 * caller and its reply.
 *
 * It mirrors src/engines/io: io_park.c, io_background.c, io_poll.c, io_hand_on.c, io_batch.c and
 * io_recv_wait.c; io_internal.h has the rules. States and fields have the names that they have
 * there. Everything that the code does under its lock is one step here. Between the steps: a poll
 * that has returned and not yet got the lock; a futex word that is set before its sleeper sleeps;
 * io_background_wake(), which takes no lock; a request that was submitted and not flushed yet, also
 * because the flush was deferred.
 *
 * Sleeps have no end here, except where the code relies on it: a wait that is over, a recv() that
 * nobody can wake, unclaimed replies that the background thread reads after 20 ms. So a lost wake-up
 * is a thread that sleeps for ever, which spin finds as a deadlock; and when nothing moves any more,
 * every reply must have been read.
 *
 * A connection here is a group of connections there (engines/io/io_internal.h): a group is driven as a whole.
 * Left out: connections that break or are dialled, full sockets, lack of memory
 * (tests/unit/io_redial.c has those). */

#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* ops of each caller */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1 /* number of waits that end without a reply */
#endif
#define CONNECTIONS 2
#define OPS (CALLERS * ROUNDS)
#define THREADS (CALLERS + 1)
#define BACKGROUND CALLERS
#define NOBODY THREADS
#define BACKGROUND_FD CONNECTIONS /* eventfd of the background thread; those below are the connections' */

/* enum io_waiter_state; tests/lint/driver_states.sh compares both. */
mtype = { AWAKE, POLLING, RECEIVING, SLEEPING };
/* Where the request or the reply of an op is. */
mtype = { NONE, UNSENT, SENT, ARRIVED, READ };

/* ---- Ops */
mtype reply[OPS] = NONE;
byte connections[OPS]; /* mask of those by which its reply may come */
byte came_by[OPS];     /* connection by which its reply came */
bool has_caller[OPS];
bool forgotten[OPS]; /* no thread waits for its reply any more */
bool notified[OPS];  /* the client was notified and has not taken the reply yet */

/* ---- Threads, and connections */
mtype state[THREADS] = AWAKE;
byte parked[THREADS]; /* 1 + the op it waits for */
bool wake_fd_written[THREADS];
byte wake_fd[THREADS]; /* index of the eventfd that it polls */
bool word[THREADS];
bool woken[THREADS];
byte driver[CONNECTIONS] = NOBODY;
bool eventfd[CONNECTIONS + 1];
bool has_background_work, background_woken;
bool background_bounded; /* io->background_until: the background thread's poll ends by itself */
bool unclaimed; /* there were replies that no op waits for, after the last call of the engine */
byte callers_done, give_ups = GIVE_UPS;

byte k, n; /* room to compute in, empty between steps */

#define bit(l) (1 << (l))
#define is_interested(a, l) (reply[a] != READ && reply[a] != NONE && !forgotten[a] && (connections[a] & bit(l)))
#define is_unclaimed(a) (forgotten[a] && (reply[a] == UNSENT || reply[a] == SENT || reply[a] == ARRIVED))
#define readable(l) (readable_by(0, l) || readable_by(1, l) || readable_by(OPS - 2, l) || readable_by(OPS - 1, l))
#define readable_by(a, l) (reply[a] == ARRIVED && came_by[a] == (l))
#define drives(t) (driver[0] == (t) || driver[1] == (t))

inline wake_waiter(t)
{
    if
#ifndef NO_WAKE
    :: state[t] == POLLING && !wake_fd_written[t] -> wake_fd_written[t] = true; eventfd[wake_fd[t]] = true
#endif
    :: state[t] == SLEEPING -> word[t] = true
    :: else
    fi
}

/* Wakes one thread that is interested in a connection without a driver. */
inline offer(l)
{
#ifndef NO_OFFER
    if
    :: driver[l] == NOBODY ->
        n = 0;
        do
        :: n < CALLERS && parked[n] > 0 && state[n] != AWAKE && is_interested(parked[n] - 1, l) ->
#ifdef HAND_ON_OFF
            if
            :: state[BACKGROUND] != AWAKE -> wake_waiter(BACKGROUND)
            :: else -> wake_waiter(n)
            fi;
#else
            wake_waiter(n);
#endif
            break
        :: n < CALLERS && !(parked[n] > 0 && state[n] != AWAKE && is_interested(parked[n] - 1, l)) -> n++
        :: n == CALLERS ->
            for (k : 0 .. OPS - 1) {
                if
                :: (is_interested(k, l) && !has_caller[k]) || (is_unclaimed(k) && (connections[k] & bit(l)) && unclaimed) -> n++
                :: else
                fi
            }
            if
            :: n > CALLERS -> wake_waiter(BACKGROUND)
            :: else
            fi;
            break
        od
    :: else
    fi;
    n = 0;
    k = 0
#else
    skip
#endif
}

inline give_up(t, l)
{
    if
    :: driver[l] == t -> driver[l] = NOBODY; offer(l)
    :: else
    fi
}

/* Drives the wanted connections that nobody drives, and no others. */
inline choose(t, wanted, l)
{
    if
    :: (wanted & bit(l)) && driver[l] == NOBODY -> driver[l] = t
    :: !(wanted & bit(l)) && driver[l] == t -> give_up(t, l)
    :: else
    fi
}

/* All requests go out by connection 0. */
inline flush()
{
    for (k : 0 .. OPS - 1) {
        if
        :: reply[k] == UNSENT -> reply[k] = SENT
        :: else
        fi
    }
    k = 0
}

/* True if another caller was woken and is not yet back under the lock. That one flushes, or defers in turn. */
#define is_waking(t, me) ((t) != (me) && word[t])
#define others_waking(me) (is_waking(0, me) || is_waking(1, me) || is_waking(CALLERS - 1, me))

inline flush_or_defer(me)
{
    if
    :: others_waking(me)
    :: else -> flush()
    fi
}

/* After each call of the engine: the background thread reads unclaimed replies, after a while. */
inline note_unclaimed()
{
    n = 0;
    for (k : 0 .. OPS - 1) {
        n = n + (is_unclaimed(k) -> 1 : 0)
    }
#ifndef NO_ADOPT
    if
    :: n > 0 && !unclaimed && !background_bounded -> wake_waiter(BACKGROUND)
    :: else
    fi;
    unclaimed = (n > 0);
#endif
    n = 0;
    k = 0
}

inline announce(a)
{
    if
    :: forgotten[a]
    :: !forgotten[a] && !has_caller[a] ->
        notified[a] = true;
        has_background_work = true;
#ifndef NO_NOTIFY
        wake_waiter(BACKGROUND)
#endif
    :: else ->
        n = a / ROUNDS; /* its caller */
        if
        :: parked[n] == a + 1 -> wake_waiter(n)
        :: else
        fi;
        n = 0
    fi
}

/* Reads all replies that came by this connection, for all ops. */
inline serve(l)
{
    for (k : 0 .. OPS - 1) {
        if
        :: reply[k] == ARRIVED && came_by[k] == l -> reply[k] = READ; came_by[k] = 0; announce(k); connections[k] = 0; forgotten[k] = false
        :: else
        fi
    }
    k = 0;
    note_unclaimed()
}

/* The poll is over, and the thread has the lock. */
inline back_from_poll(t)
{
    state[t] = AWAKE;
    if
    :: wake_fd_written[t] || saw_wake_fd -> eventfd[wake_fd[t]] = false
    :: else
    fi;
#ifndef WRITTEN_STAYS
    wake_fd_written[t] = false;
#endif
    wake_fd[t] = (t == BACKGROUND -> BACKGROUND_FD : 0);
    saw_wake_fd = false;
    if
    :: saw & 1 -> serve(0)
    :: else
    fi;
    if
    :: saw & 2 -> serve(1)
    :: else
    fi;
    saw = 0
}

#define poll_returns(t) (eventfd[wake_fd[t]] || (driver[0] == t && readable(0)) || (driver[1] == t && readable(1)))
#define LOOK(t) \
    saw_wake_fd = eventfd[wake_fd[t]]; \
    saw = (driver[0] == t && readable(0) -> 1 : 0) + (driver[1] == t && readable(1) -> 2 : 0)

/* ---- A caller: submits, and parks until it has the reply, or is woken, or its wait is over */
proctype Caller(byte me)
{
    byte op, saw;
    bool saw_wake_fd, over;
    op = me * ROUNDS;
    do
    :: op < (me + 1) * ROUNDS ->
        d_step { reply[op] = UNSENT; connections[op] = 1 + 2 * (op & 1); has_caller[op] = true; parked[me] = op + 1 }
        do
        :: atomic { /* holds the lock */
            word[me] = false; /* it is back */
            if
            :: reply[op] == READ || woken[me] || over ->
                parked[me] = 0;
                give_up(me, 0);
                give_up(me, 1);
#ifndef OFFER_LOST /* a connection may have been offered to this thread while it was leaving */
                offer(0);
                offer(1);
#endif
#ifndef NEVER_FLUSHED
                flush_or_defer(me);
#endif
                break
            :: else ->
                choose(me, connections[op], 0);
                choose(me, connections[op], 1);
                if
                :: driver[0] == me && connections[op] == 1 -> flush(); state[me] = RECEIVING
                :: drives(me) ->
                    flush();
                    wake_fd[me] = (driver[0] == me -> 0 : 1);
                    state[me] = POLLING
                :: !drives(me) ->
                    flush_or_defer(me);
                    state[me] = SLEEPING
                fi
            fi
           }
           if
           :: state[me] == RECEIVING -> /* cannot be woken, ends by itself */
               if
               :: d_step { readable(0) -> saw = 1 }
               :: skip
               fi;
               d_step { back_from_poll(me) }
           :: state[me] == POLLING ->
               if
               :: d_step { poll_returns(me) -> LOOK(me) }
               :: d_step { give_ups > 0 -> give_ups--; over = true }
               fi;
               d_step { back_from_poll(me) }
           :: state[me] == SLEEPING ->
#ifdef LATE_WORD
               word[me] = false;
#endif
               if
               :: word[me]
               :: d_step { give_ups > 0 -> give_ups--; over = true }
               fi;
               state[me] = AWAKE /* its word still says that it is waking */
           fi
        od;
        /* No reply came: io_detach_caller() leaves it to the background thread, io_forget() to nobody. */
        if
        :: reply[op] == READ
        :: d_step { reply[op] != READ ->
            has_caller[op] = false;
#ifndef DETACH_ALONE
            offer(0);
            if
            :: connections[op] & 2 -> offer(1)
            :: else
            fi;
#endif
            flush()
           }
        :: d_step { reply[op] != READ -> forgotten[op] = true; note_unclaimed(); flush_or_defer(me) }
        fi;
        d_step {
            has_caller[op] = has_caller[op] && reply[op] != READ;
            over = false;
            woken[me] = false;
            op++
        }
    :: else -> break
    od;
    callers_done++
}

/* ---- The background thread */

inline wants()
{
    want = 0;
    for (k : 0 .. OPS - 1) {
        want = want | (!has_caller[k] && is_interested(k, 0) -> 1 : 0) | (!has_caller[k] && is_interested(k, 1) -> 2 : 0) |
               (adopt && is_unclaimed(k) -> connections[k] : 0)
    }
    k = 0;
#ifdef HAND_ON_OFF /* io_background_share() */
    for (n : 0 .. CALLERS - 1) {
        want = want | (state[n] == SLEEPING && parked[n] > 0 -> connections[parked[n] - 1] : 0)
    }
    n = 0
#endif
}

inline take_background_work()
{
    has_work = has_background_work || background_woken;
    has_background_work = false;
    background_woken = false
}

proctype Background()
{
    byte saw, want;
    bool saw_wake_fd, has_work, adopt;
    wake_fd[BACKGROUND] = BACKGROUND_FD;
    do
    :: d_step {
        take_background_work();
        if
        :: has_work -> /* the client takes the replies that it was notified of; then the thread parks again */
            give_up(BACKGROUND, 0);
            give_up(BACKGROUND, 1);
            offer(0);
            offer(1);
            for (k : 0 .. OPS - 1) {
                notified[k] = false
            }
            k = 0;
            has_work = false;
            adopt = false
        :: else ->
            wants();
            choose(BACKGROUND, want, 0);
            choose(BACKGROUND, want, 1);
            want = 0;
            background_bounded = unclaimed && !adopt;
            state[BACKGROUND] = POLLING
        fi
       }
       if
       :: state[BACKGROUND] == AWAKE
       :: else ->
end:       if
           :: d_step { poll_returns(BACKGROUND) -> LOOK(BACKGROUND) }
           :: d_step { background_bounded -> adopt = true } /* 20 ms later */
           fi;
           d_step { background_bounded = false; back_from_poll(BACKGROUND); adopt = adopt && unclaimed }
       fi
    od
}

/* ---- The server replies to each op, at any time; io_background_wake() without the lock; io_wake() */

#ifdef IN_QUEUE /* op 1 waits for the lock that op 0 gets: its reply comes after that of op 0 was read */
#define is_turn(a) ((a) != 1 || reply[0] == READ)
#else
#define is_turn(a) true
#endif

proctype Server(byte a)
{
    if
    :: d_step { reply[a] == SENT && is_turn(a) && (connections[a] & 1) -> reply[a] = ARRIVED; came_by[a] = 0 }
    :: d_step { reply[a] == SENT && is_turn(a) && (connections[a] & 2) -> reply[a] = ARRIVED; came_by[a] = 1 }
    fi
}

proctype Background_wake()
{
    bool was;
    d_step { was = background_woken; background_woken = true }
    if
    :: !was -> eventfd[BACKGROUND_FD] = true
    :: else
    fi
}

proctype Wake()
{
end:
    d_step { parked[0] > 0 -> woken[0] = true; wake_waiter(0) }
}

/* When nothing moves any more. */
proctype Rest()
{
    timeout;
    assert(callers_done == CALLERS); /* nobody sleeps for ever */
    for (k : 0 .. OPS - 1) {
        assert(reply[k] == READ && !notified[k]) /* every reply was read and delivered */
    }
    assert(driver[0] == NOBODY || driver[0] == BACKGROUND);
    assert(!background_woken)
}

init
{
    atomic {
        run Background();
        do
        :: k < CALLERS -> run Caller(k); k++
        :: else -> break
        od;
        k = 0;
        do
        :: k < OPS -> run Server(k); k++
        :: else -> break
        od;
        k = 0;
        run Background_wake();
#ifdef CANCELLED
        run Wake();
#endif
        run Rest()
    }
}
