/* loop.pml - an event loop that is awake reads its own replies; the background thread reads them if
 * the loop does not.
 *
 * It mirrors src/engines/io/io_loop.c and the part of src/client/background.c behind hf_process. One
 * connection, ops without a caller: those of the loop, and a renewal of the background thread. What
 * the code does under its lock is one step here.
 *
 * The loop may be blocked for ever, between two calls of hf_process or inside a callback. Then every
 * reply must still be read, because a renewal is one of them. If it is not blocked, every callback
 * must have run when nothing moves any more, and its descriptor must not be readable for nothing.
 *
 * `fresh`: the loop read the connection, or the first of its replies became due, less than 20 ms ago.
 * That time may be over at any moment. */

#ifndef OPS
#define OPS 3 /* the last one is the background thread's */
#endif
#define RENEWAL (OPS - 1)

/* Where the request or the reply of an op is. */
mtype = { NONE, SENT, ARRIVED, READ };
mtype = { AWAKE, POLLING };

mtype reply[OPS] = NONE;
bool notified[OPS]; /* the client has not taken the reply yet */
bool due[OPS];      /* its callback has not run yet */

bool fresh;
mtype background = AWAKE;
bool background_drives;  /* it polls the connection */
bool background_bounded; /* its poll ends by itself, 20 ms later */
bool background_fd;      /* its eventfd is readable */

bool loop_fd;           /* the eventfd of the loop is readable */
byte writes, seen;      /* how often it was written, and how often when the loop emptied it last */
byte writing;           /* threads between the write and its count */
bool may_block, blocked; /* the loop never comes back */
bool called_for_nothing;

byte k;

#define is_due(a) (reply[a] == SENT || reply[a] == ARRIVED)
#define interest (is_due(0) || is_due(1) || is_due(RENEWAL))
#define readable (reply[0] == ARRIVED || reply[1] == ARRIVED || reply[RENEWAL] == ARRIVED)
#define any_due (due[0] || due[1] || due[RENEWAL])

/* A request is written. The first one whose reply is due leaves the connection to the loop for a
 * while, and the background thread must know when that ends. */
inline submit(a)
{
    if
    :: !interest -> fresh = true
    :: else
    fi;
    reply[a] = SENT;
#ifndef NO_EXPECT
    if
    :: background == POLLING && !background_drives && !background_bounded -> background_fd = true
    :: else
    fi
#endif
}

inline read_all()
{
    for (k : 0 .. OPS - 1) {
        if
        :: reply[k] == ARRIVED -> reply[k] = READ; notified[k] = true
        :: else
        fi
    }
    k = 0
}

/* The claims take their replies. Only the loop's ops have a callback. */
inline take_notified()
{
    for (k : 0 .. OPS - 1) {
        if
        :: notified[k] -> notified[k] = false; due[k] = (k != RENEWAL)
        :: else
        fi
    }
    k = 0
}

/* ---- The loop: submits, polls its descriptor, calls hf_process */
proctype Loop()
{
    byte next, count;
    bool was_readable, did;
end:
    do
    :: next < RENEWAL -> d_step { submit(next); next++ }
    :: atomic { loop_fd || readable -> was_readable = readable; did = false }
#ifndef RESET_LATE
        count = writes;
        if
        :: count != seen -> d_step { loop_fd = false; seen = count; did = true }
        :: else
        fi;
#endif
        d_step { /* with the lock */
            did = did || readable;
            fresh = true;
            read_all()
        }
        d_step {
            take_notified();
            did = did || any_due
        }
        do /* callbacks: any of them may block for ever, or submit */
        :: d_step { due[0] -> due[0] = false }
            if
            :: may_block -> blocked = true; goto gone
            :: skip
            fi
        :: d_step { due[1] -> due[1] = false }
        :: next < RENEWAL -> d_step { submit(next); next++ }
        :: !due[0] && !due[1] -> break
        od;
#ifdef RESET_LATE
        skip;
        atomic { loop_fd = false; seen = writes; did = true };
#endif
        /* Called although nothing was there, and nothing was on its way: the loop would spin. */
        called_for_nothing = !did && !was_readable && !writing && loop_fd && writes == seen;
        assert(!called_for_nothing)
    :: may_block -> blocked = true; goto gone
    od;
gone:
    skip
}

/* ---- The background thread: takes replies, wakes the loop for their callbacks, polls */
proctype Background()
{
    bool wakes, renewed;
    do
    :: background == AWAKE ->
        d_step {
            wakes = !any_due;
            take_notified();
            wakes = wakes && any_due
        }
        if
#ifndef NO_CALLBACK_WAKE
        :: wakes ->
#ifdef COUNT_FIRST
            writes++;
            loop_fd = true;
#else
            d_step { loop_fd = true; writing++ }
            d_step { writes++; writing-- }
#endif
#endif
        :: else
        fi;
        if
        :: !renewed -> d_step { submit(RENEWAL); renewed = true }
        :: skip
        fi;
        d_step {
            if
            :: notified[0] || notified[1] || notified[RENEWAL] || background_fd -> background_fd = false
            :: else ->
#ifdef LEFT_FOR_EVER
                background_drives = false;
#else
                background_drives = interest && !fresh;
#endif
                background_bounded = fresh;
                background = POLLING
            fi
        }
    :: background == POLLING ->
end:    if
        :: d_step { background_fd || (background_drives && readable) ->
            background_fd = false;
            if
            :: background_drives -> read_all()
            :: else
            fi
           }
        :: background_bounded /* 20 ms later */
        :: !renewed /* its timer */
        fi;
        d_step { background = AWAKE; background_drives = false; background_bounded = false; wakes = false }
    od
}

proctype Server(byte a)
{
end:
    d_step { reply[a] == SENT -> reply[a] = ARRIVED }
}

proctype Clock()
{
end:
    do
    :: fresh -> fresh = false
    od
}

/* When nothing moves any more. */
proctype Rest()
{
    timeout;
    for (k : 0 .. OPS - 1) {
        assert(!is_due(k) && !notified[k]); /* also if the loop is blocked */
        assert(blocked || !due[k])
    }
    assert(blocked || !loop_fd)
}

init
{
    atomic {
        if
        :: may_block = true
        :: skip
        fi;
        run Loop();
        run Background();
        run Clock();
        do
        :: k < OPS -> run Server(k); k++
        :: else -> break
        od;
        k = 0;
        run Rest()
    }
}
