/* readwrite.pml - the queue of readers and writers: who enters with whom, and that the counted units stay right.
 *
 * What it mirrors: src/engines/redis/scripts (common.lua: reap, admit, hold, drop_hold; ask, extend, release, convert) for
 * the class of readers and writers. A reader has one unit, a writer all of them.
 *
 * A client and its script are one step here: messages that are late or lost are in handoff.pml, and the rules are the
 * same for all kinds. What remains: clients that wait, hold, renew, leave, convert, stand still or die at any moment, for
 * ever, each as reader or writer as it likes. A client that stands still keeps its belief for TTL ticks and no longer; the
 * record in the server lives as long. A tick lowers all countdowns at once. Of the tokens only the order is kept. */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef TTL
#define TTL 2
#endif
#define GRACE 1
#define ALL CLIENTS /* the capacity: so many readers would fit */
#define NOBODY CLIENTS

mtype = { IDLE, WAITING, HELD, DEAD };

/* ---- The server */
byte used;            /* units that are held, as the server counts them */
byte units[CLIENTS];  /* of each hold; 0: none */
byte ends[CLIENTS];   /* how long the hold still lasts */
byte place[CLIENTS];  /* in the queue; 0: not in it */
byte wanted[CLIENTS]; /* how many units that waiter asks for */
byte alive[CLIENTS];  /* for how long it counts as alive */

byte owed[CLIENTS];   /* how long it may last at most, by what its own client asked for; only checked */

/* ---- The clients */
mtype state[CLIENTS] = IDLE;
byte good[CLIENTS]; /* for how long it believes that it holds, */
byte mine[CLIENTS]; /* and how many units */
byte deaths = DEATHS;

/* Room to compute in, empty between steps */
byte k, first, sum, span;
bool passed;

#define believes(i) (good[i] > 0)
#define max(a, b) ((a) > (b) -> (a) : (b))
#define down(x) x = (x > 0 -> x - 1 : 0)

/* ---- The promises, checked after every script */

inline check()
{
    sum = 0;
    for (k : 0 .. CLIENTS - 1) {
        sum = sum + (believes(k) -> mine[k] : 0)
    }
    assert(sum <= ALL); /* G5: readers share, writers are alone */
    sum = 0;
    for (k : 0 .. CLIENTS - 1) {
        sum = sum + units[k];
        assert(ends[k] <= owed[k]) /* G17: what a dead client holds ends by its own time */
    }
    assert(sum == used && used <= ALL); /* G6: every unit has an owner, and is counted once */
    find_first();
    assert(first == NOBODY || used + wanted[first] > ALL); /* G3: nobody who is first and fits waits */
    first = 0;
    sum = 0;
    k = 0
}

/* ---- The scripts */

inline find_first()
{
    first = NOBODY;
    for (k : 0 .. CLIENTS - 1) {
        if
        :: place[k] == 1 -> first = k
        :: else
        fi
    }
    k = 0
}

inline leave_queue(id)
{
    if
    :: place[id] > 0 ->
        for (k : 0 .. CLIENTS - 1) {
            if
            :: place[k] > place[id] -> place[k]--
            :: else
            fi
        }
        place[id] = 0;
        alive[id] = 0;
        wanted[id] = 0;
        k = 0
    :: else
    fi
}

inline hold(id, so_many) /* for `span` */
{
    units[id] = so_many;
    ends[id] = span;
    owed[id] = span;
    span = 0;
    used = used + so_many
}

inline drop_hold(id)
{
    used = used - units[id];
    units[id] = 0;
    ends[id] = 0;
    owed[id] = 0
}

inline reap()
{
    for (k : 0 .. CLIENTS - 1) {
        if
        :: units[k] > 0 && ends[k] == 0 -> drop_hold(k)
        :: else
        fi
    }
    k = 0
}

/* As long as the first in line fits: who is dead is dropped, all others get until their next look plus a grace. */
inline admit()
{
    find_first();
    do
    :: first != NOBODY && alive[first] == 0 -> leave_queue(first); find_first()
    :: first != NOBODY && alive[first] > 0 && used + wanted[first] <= ALL ->
        span = max(alive[first], GRACE);
        hold(first, wanted[first]);
        leave_queue(first);
        find_first()
    :: else -> break
    od;
    first = 0
}

/* Would one of so many units pass somebody who came before it and is alive? */
inline look_for_earlier(id)
{
    passed = false;
    for (k : 0 .. CLIENTS - 1) {
        passed = passed || (k != id && place[k] > 0 && alive[k] > 0 && (place[id] == 0 || place[k] < place[id]))
    }
    k = 0
}

/* Acquire and refresh. The answer is in units[id]: 0 is queued. */
inline ask(id, so_many)
{
    reap();
    if
    :: units[id] > 0 -> ends[id] = max(ends[id], TTL); owed[id] = ends[id] /* the same grant again */
    :: else ->
        if
        :: place[id] > 0 -> alive[id] = max(alive[id], 1) /* who asks is alive */
        :: else
        fi;
#ifdef BARGE
        if
        :: used + so_many <= ALL -> look_for_earlier(id); assert(!passed); leave_queue(id); span = TTL; hold(id, so_many)
        :: else
        fi;
#endif
        admit();
        look_for_earlier(id);
        if
        :: units[id] > 0 -> ends[id] = TTL; owed[id] = TTL
        :: units[id] == 0 && !passed && used + so_many <= ALL -> leave_queue(id); span = TTL; hold(id, so_many)
        :: else ->
            if
            :: place[id] == 0 ->
                for (k : 0 .. CLIENTS - 1) {
                    place[id] = max(place[id], (k == id -> 0 : place[k]))
                }
                k = 0;
                place[id]++
            :: else
            fi;
            wanted[id] = so_many;
            alive[id] = 1 + GRACE /* the next look, and a grace */
        fi;
        passed = false
    fi;
    admit();
    check()
}

inline extend(id)
{
    reap();
    if
    :: units[id] > 0 ->
#ifdef ONE_EXPIRY
        for (k : 0 .. CLIENTS - 1) {
            ends[k] = (units[k] > 0 -> TTL : 0) /* whoever renews renews for all */
        }
        k = 0
#else
        ends[id] = max(ends[id], TTL);
        owed[id] = ends[id]
#endif
    :: else
    fi;
    admit()
}

inline release(id)
{
    reap();
    leave_queue(id);
    if
    :: units[id] > 0 -> drop_hold(id)
    :: else ->
#ifdef NEGATIVE
        used = (used > 0 -> used - 1 : 0)
#else
#ifdef RELEASE_OTHER
        for (k : 0 .. CLIENTS - 1) {
            if
            :: units[k] == ALL -> drop_hold(k)
            :: else
            fi
        }
        k = 0
#else
        skip
#endif
#endif
    fi;
#ifndef LEAVE_ALONE
    admit();
#endif
    check()
}

inline upgrade(id)
{
    reap();
    if
#ifdef UPGRADE_AMONG
    :: units[id] == 1 -> used = used + ALL - 1; units[id] = ALL
#else
    :: units[id] == 1 && used == 1 -> used = ALL; units[id] = ALL
#endif
    :: else
    fi;
    admit()
}

inline downgrade(id)
{
    reap();
    if
    :: units[id] == ALL -> used = 1; units[id] = 1
    :: else
    fi;
#ifndef DOWNGRADE_ALONE
    admit()
#endif
}

/* ---- The clients */

/* It believes what the server says, from when it asked; here that is the same moment. */
inline believe(c)
{
    if
    :: units[c] > 0 -> state[c] = HELD; good[c] = ends[c]; mine[c] = units[c]
    :: else -> good[c] = 0; mine[c] = 0
    fi
}

inline end_belief(c)
{
    state[c] = IDLE;
    good[c] = 0;
    mine[c] = 0
}

inline lose(c)
{
    if
    :: units[c] == 0 -> end_belief(c)
    :: else
    fi
}

proctype Client(byte me)
{
end:
    do
    :: d_step { state[me] == IDLE -> state[me] = WAITING; ask(me, 1); believe(me); check() }
    :: d_step { state[me] == IDLE -> state[me] = WAITING; ask(me, ALL); believe(me); check() }
    /* Its own look, or a message; both end with an ask. */
    :: d_step { state[me] == WAITING && units[me] > 0 -> ask(me, units[me]); believe(me); check() }
    :: d_step { state[me] == WAITING && units[me] == 0 && wanted[me] > 0 -> ask(me, wanted[me]); believe(me); check() }
    :: d_step { state[me] == WAITING && units[me] == 0 && wanted[me] == 0 -> ask(me, 1); believe(me); check() } /* it was dropped */
    /* The wait is over: unless it has been granted, it leaves. */
    :: d_step { state[me] == WAITING -> release(me); end_belief(me) }
    :: d_step { state[me] == HELD && good[me] > 0 -> extend(me); believe(me); check(); lose(me) }
    :: d_step { state[me] == HELD && good[me] > 0 && mine[me] == 1 -> upgrade(me); believe(me); check(); lose(me) }
    /* A belief becomes smaller before the record does. */
    :: d_step { state[me] == HELD && good[me] > 0 && mine[me] == ALL -> mine[me] = 1; downgrade(me); believe(me); check(); lose(me) }
    :: d_step { state[me] == HELD -> end_belief(me); release(me) } /* in time, or late */
    :: d_step { deaths > 0 && state[me] != DEAD -> deaths--; state[me] = DEAD; good[me] = 0; mine[me] = 0 }
    od
}

proctype Time()
{
    byte i;
end:
    do
    :: d_step {
        for (i : 0 .. CLIENTS - 1) {
            down(ends[i]);
            down(owed[i]);
            down(alive[i]);
            down(good[i]);
            mine[i] = (good[i] > 0 -> mine[i] : 0)
        }
        i = 0
       }
    od
}

init
{
    atomic {
        run Time();
        do
        :: first < CLIENTS -> run Client(first); first++
        :: else -> break
        od;
        first = 0
    }
}
