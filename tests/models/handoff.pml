/* handoff.pml - the queue of an exclusive lock on one server: hand-over, lost messages, time-out, death, late requests.
 *
 * What it mirrors: src/engines/redis/scripts (ask, extend, release with its verbs r and l), waking.c (when a message may
 * begin a hold), and the claim's rule that a belief ends when the release is sent. One attempt for each client.
 *
 * Time has no end here. Every time is a countdown, and a tick lowers all of them at once; it may come between any two
 * steps, so every client may stand still and every message may be late for as long as it likes. What a client computes
 * from its own clock becomes a difference: of s + (E - T), with s when it asked, T the server's time in the answer and E
 * the end in the message, only T - s stays (`lag`), and the message counts down by itself.
 *
 * Left out: drift and stepped clocks, lost data, foreign clients (the simulator has them); tokens (redlock.pml); a
 * tombstone's own end; the refresh that grows with the place (it is RP for all). A client's line is a queue in both
 * directions; a cut loses the answers, and lets what was under way arrive at any later time, or never. */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef CUTS
#define CUTS 1 /* how many connections are cut */
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef RP
#define RP 2 /* a waiter looks by itself after so long */
#endif
#ifndef GRACE
#define GRACE 1
#endif
#define NOBODY CLIENTS

mtype = { ASK, EXTEND, RELEASE, LEAVE };            /* requests */
mtype = { GRANTED, QUEUED, REFUSED, GONE, FREED };  /* answers; LEAVE is answered GRANTED or FREED */
mtype = { IDLE, ASKING, WAITING, HELD, LEAVING, RELEASING, OVER, DEAD };

/* ---- The server */
byte holder = NOBODY;
byte end;            /* how long the hold still lasts */
byte place[CLIENTS]; /* in the queue; 0: not in it */
byte alive[CLIENTS]; /* for how long that waiter counts as alive */
bool buried[CLIENTS];

/* ---- What is under way */
chan line[CLIENTS] = [2] of { mtype, bool };    /* request, doubt */
chan ghost[CLIENTS] = [2] of { mtype, bool };   /* of a connection that was cut */
chan answer[CLIENTS] = [2] of { mtype, byte };  /* and its lag, or the time left */
bool told[CLIENTS];                             /* the message of a hand-over, */
byte told_left[CLIENTS];                        /* and how long the end in it is away */

/* ---- The clients */
mtype state[CLIENTS] = IDLE;
byte age[CLIENTS];   /* since the newest request was sent; stops counting at TTL */
byte lag[CLIENTS];   /* T - s of the newest answer */
byte due[CLIENTS];   /* until our own next look */
byte good[CLIENTS];  /* for how long we believe that we hold */
bool doubt[CLIENTS]; /* a request went unanswered */
bool asked[CLIENTS]; /* one is in flight */
byte cuts = CUTS, deaths = DEATHS;

#define believes(i) (state[i] == HELD && good[i] > 0)
#define max(a, b) ((a) > (b) -> (a) : (b))
#define less(a, b) ((a) > (b) -> (a) - (b) : 0)

inline alone(me)
{
    for (k : 0 .. CLIENTS - 1) {
        assert(k == me || !believes(k)) /* G1: one holder */
    }
    k = 0
}

/* ---- The scripts: each runs in one step, and ends with admit() */

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
        k = 0
    :: else
    fi
}

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

/* The first in line that is alive becomes the holder until its own next look plus a grace; `me`, who asks, for its ttl. */
inline admit(me)
{
    find_first();
    do
    :: holder == NOBODY && first != NOBODY ->
        if
        :: alive[first] == 0 && first != me -> leave_queue(first)
        :: else ->
            holder = first;
            if
            :: first == me -> end = TTL
            :: else ->
#ifdef SHORT_TURN
                end = GRACE;
#else
                end = max(alive[first], GRACE);
#endif
                told[first] = true; /* it may get lost: see Network */
                told_left[first] = end
            fi;
            leave_queue(first)
        fi;
        find_first()
    :: else -> break
    od;
    first = 0
}

inline nobody_waits_for_nothing()
{
    for (k : 0 .. CLIENTS - 1) {
        assert(holder != NOBODY || place[k] == 0) /* G3: no script ends with somebody in line for a free lock */
    }
    k = 0
}

/* `heard`: the answer goes to a client that listens. */
inline serve(id, verb, doubted, heard)
{
    reply = GONE;
    left = 0;
    if
    :: verb == ASK && buried[id] -> leave_queue(id); reply = REFUSED
    :: verb == ASK && !buried[id] && holder == id -> end = max(end, TTL); reply = GRANTED
    :: verb == ASK && !buried[id] && holder != id ->
#ifdef BARGE
        if
        :: holder == NOBODY -> holder = id; end = TTL; leave_queue(id)
        :: else
        fi;
#endif
        for (k : 0 .. CLIENTS - 1) {
            was_before = was_before || (k != id && place[k] > 0 && alive[k] > 0 && (place[id] == 0 || place[k] < place[id]))
        }
        k = 0;
        was_free = (holder == NOBODY);
        if
        :: holder == NOBODY -> admit(id)
        :: else
        fi;
        if
        :: holder == NOBODY -> holder = id; end = TTL
        :: else
        fi;
        assert(!(was_before && holder == id)); /* G2: first come, first served */
        was_before = false;
        was_free = false;
        if
        :: holder == id -> reply = GRANTED
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
            alive[id] = RP + GRACE;
            reply = QUEUED;
            left = age[id] /* T - s, if this is the newest request; else nobody looks at it */
        fi
    :: verb == EXTEND && holder == id ->
#ifdef SHORTEN
        end = TTL;
#else
        end = max(end, TTL);
#endif
        reply = GRANTED
    :: verb == EXTEND && holder != id ->
#ifdef REVIVE
        holder = id; end = TTL; reply = GRANTED
#else
        skip
#endif
    :: verb == LEAVE && holder == id -> reply = GRANTED; left = end
    :: verb == RELEASE || (verb == LEAVE && holder != id) ->
        leave_queue(id);
#ifndef NO_TOMBSTONE
        buried[id] = buried[id] || doubted;
#endif
        if
#ifdef RELEASE_ANY
        :: verb == RELEASE -> holder = NOBODY; end = 0
#else
        :: verb == RELEASE && holder == id -> holder = NOBODY; end = 0
#endif
        :: else
        fi;
        reply = FREED
    fi;
#ifdef LEAVE_ALONE
    if
    :: verb != LEAVE -> admit(NOBODY)
    :: else
    fi;
#else
    admit(NOBODY);
#endif
    nobody_waits_for_nothing();
    assert(state[id] != OVER || holder != id); /* G4, G38: what was given back is not granted again */
    if
    :: heard -> answer[id]!reply, left
    :: else
    fi;
    reply = 0;
    left = 0
}

/* One for each client, so that their requests come in any order. */
proctype Server(byte me)
{
end:
    do
    :: d_step { nfull(answer[me]) && line[me]?verb, doubted -> serve(me, verb, doubted, true) }
    :: d_step { nempty(ghost[me]) -> ghost[me]?verb, doubted; serve(me, verb, doubted, false) }
    :: d_step { nempty(ghost[me]) -> ghost[me]?verb, doubted; forget_request() } /* it never arrives */
    :: d_step { told[me] -> told[me] = false; told_left[me] = 0 }                 /* the message is lost */
    od
}

/* ---- The client */

inline send(me, request)
{
    line[me]!request, doubt[me];
    age[me] = 0;
    asked[me] = true
}

/* It holds from now on, for so long. */
inline begin(me, for_so_long)
{
    good[me] = max(good[me], for_so_long);
    state[me] = (good[me] > 0 -> HELD : state[me]);
    if
    :: state[me] == HELD -> alone(me)
    :: else
    fi
}

inline give_back(me)
{
    state[me] = RELEASING; /* the belief ends when the release is sent */
    good[me] = 0;
    due[me] = 0;
    doubt[me] = doubt[me] || asked[me];
    send(me, RELEASE)
}

inline forget_request()
{
    verb = 0;
    doubted = false
}

/* What was under way may still arrive, or not; no answer comes. */
inline cut(me)
{
    cuts--;
    do
    :: nempty(line[me]) -> line[me]?verb, doubted; ghost[me]!verb, doubted
    :: else -> break
    od;
    do
    :: nempty(answer[me]) -> answer[me]?reply, left
    :: else -> break
    od;
    told[me] = false;
    told_left[me] = 0;
    doubt[me] = doubt[me] || asked[me];
    lag[me] = 0;
    asked[me] = false;
    forget_request();
    reply = 0;
    left = 0;
    if
    :: state[me] == ASKING || state[me] == WAITING -> state[me] = ASKING; due[me] = 0; send(me, ASK)
    :: state[me] == LEAVING || state[me] == RELEASING -> give_back(me)
    :: else
    fi
}

inline hear(me)
{
    asked[me] = (len(answer[me]) + len(line[me]) > 0);
    if
    :: state[me] == ASKING && reply == GRANTED ->
        begin(me, COUNTED_FROM_ASKING);
        if
        :: state[me] == ASKING -> send(me, ASK) /* it came too late */
        :: else
        fi
    :: state[me] == ASKING && reply == QUEUED ->
        state[me] = WAITING;
        lag[me] = left;
        due[me] = less(RP, age[me])
    :: state[me] == HELD && reply == GRANTED -> begin(me, COUNTED_FROM_ASKING)
    :: state[me] == HELD && reply != GRANTED -> give_back(me) /* lost */
    :: state[me] == LEAVING && !asked[me] && reply == GRANTED ->
#ifdef LATE_GRANT
        state[me] = OVER
#else
        begin(me, less(left, age[me]));
        if
        :: state[me] == LEAVING -> give_back(me)
        :: else
        fi
#endif
    :: (state[me] == LEAVING || state[me] == RELEASING) && !asked[me] && reply != GRANTED -> state[me] = OVER
    :: else /* overtaken by what was sent since */
    fi;
    if
    :: state[me] == OVER ->
        assert(holder != me && place[me] == 0); /* G4: nothing is left behind */
        lag[me] = 0;
        age[me] = 0
    :: else
    fi;
    reply = 0;
    left = 0
}

#ifdef REPLY_TIME
#define COUNTED_FROM_ASKING TTL
#else
#define COUNTED_FROM_ASKING less(TTL, age[me])
#endif
#ifdef PUSH_START
#define BY_MESSAGE max(RP + GRACE, GRACE)
#else
#define BY_MESSAGE less(told_left[me], lag[me])
#endif

proctype Client(byte me)
{
    d_step { state[me] = ASKING; send(me, ASK) }
    do
    :: state[me] == OVER || state[me] == DEAD -> break
    :: d_step { answer[me]?reply, left -> hear(me) }
    /* The message of a hand-over: begin with it if it carries, and claim the rest of the ttl; else ask. */
    :: d_step { state[me] == WAITING && told[me] ->
        if
        :: due[me] > 0 -> begin(me, BY_MESSAGE)
        :: else
        fi;
        told[me] = false;
        told_left[me] = 0;
        due[me] = 0;
        if
        :: state[me] == HELD -> send(me, EXTEND)
        :: else -> state[me] = ASKING; send(me, ASK)
        fi
       }
#ifndef LOST_PUSH
    :: d_step { state[me] == WAITING && due[me] == 0 -> state[me] = ASKING; send(me, ASK) }
#endif
    /* The wait is over, at any time. */
    :: d_step { (state[me] == ASKING || state[me] == WAITING) && nfull(line[me]) ->
        doubt[me] = doubt[me] || false;
        state[me] = LEAVING;
        due[me] = 0;
        send(me, LEAVE)
       }
    :: d_step { state[me] == HELD && !asked[me] && good[me] > 0 -> send(me, EXTEND) }
    :: d_step { state[me] == HELD && nfull(line[me]) -> give_back(me) }
    :: d_step { cuts > 0 && state[me] != OVER && len(ghost[me]) + len(line[me]) <= 2 -> cut(me) }
    :: d_step { deaths > 0 ->
        deaths--;
        state[me] = DEAD;
        good[me] = 0;
        due[me] = 0;
        age[me] = 0;
        lag[me] = 0
       }
    od
}

/* ---- Time */

#define down(x) x = less(x, 1)

proctype Time()
{
    byte i;
end:
    do
    :: d_step {
        something_runs() ->
        if
        :: end > 0 ->
            end--;
            if
            :: end == 0 ->
                assert(!(state[holder] == WAITING && due[holder] > 1)); /* a lost message costs nobody its turn */
                holder = NOBODY
            :: else
            fi
        :: else
        fi;
        for (i : 0 .. CLIENTS - 1) {
            down(alive[i]);
            down(told_left[i]);
            down(due[i]);
            down(good[i]);
            age[i] = (asked[i] && age[i] < TTL -> age[i] + 1 : age[i])
        }
        i = 0
       }
    od
}
