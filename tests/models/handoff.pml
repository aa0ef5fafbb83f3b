/* handoff.pml - the queue of an exclusive lock on one server: hand-over, lost messages, time-out, death, late requests.
 *
 * What it mirrors: src/engines/redis/scripts (ask, extend, release with its verbs r and l), notifications.c (when a message may
 * begin a hold), and the claim's rule that a belief ends when the release is sent. One attempt for each client.
 *
 * Time has no end here. Every time is a countdown, and a tick lowers all of them at once; it may come between any two
 * steps, so every client may stand still and every message may be late for as long as it likes. What a client computes
 * from its own clock becomes a difference: of s + (E - T), with s when it asked, T the server's time in the answer and E
 * the end in the message, only T - s stays (`lag`), and the message counts down by itself.
 *
 * Left out: drift and stepped clocks, lost data, foreign clients (the simulator has them); tokens (redlock.pml); a
 * tombstone's own ends_in; the refresh that grows with the place (it is RP for all). A client's line is a queue in both
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
#define LONGEST (TTL > RP + GRACE -> TTL : RP + GRACE) /* no interval is longer */

mtype = { ASK, EXTEND, RELEASE, LEAVE };            /* requests */
mtype = { GRANTED, QUEUED, REFUSED, GONE, FREED };  /* answers; LEAVE is answered GRANTED or FREED */
mtype = { IDLE, ASKING, WAITING, HELD, LEAVING, RELEASING, OVER, DEAD };

/* ---- The server */
byte holder = NOBODY;
byte ends_in;            /* how long the hold still lasts */
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
byte age[CLIENTS];   /* since the newest request was sent; stops counting at the longest */
byte lag[CLIENTS];   /* T - s of the newest answer */
byte due[CLIENTS];   /* until our own next look */
byte good[CLIENTS];  /* for how long we believe that we hold */
bool doubt[CLIENTS]; /* a request went unanswered */
bool asked[CLIENTS]; /* one is in flight */
byte cuts = CUTS, deaths = DEATHS;

/* Room to compute in, empty between steps */
byte k, first, left, span;
mtype verb, reply;
bool doubted, was_before;

#define believes(i) (state[i] == HELD && good[i] > 0)
#define max(a, b) ((a) > (b) -> (a) : (b))
#define less(a, b) ((a) > (b) -> (a) - (b) : 0)

inline alone(c)
{
    for (k : 0 .. CLIENTS - 1) {
        assert(k == c || !believes(k)) /* G1: one holder */
    }
    k = 0
}

inline forget_request()
{
    verb = 0;
    doubted = false
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
inline admit(c)
{
    find_first();
    do
    :: holder == NOBODY && first != NOBODY ->
        if
        :: alive[first] == 0 && first != c -> leave_queue(first)
        :: else ->
            holder = first;
            if
            :: first == c -> ends_in = TTL
            :: else ->
#ifdef SHORT_TURN
                ends_in = GRACE;
#else
                ends_in = max(alive[first], GRACE);
#endif
                told[first] = (state[first] == ASKING || state[first] == WAITING); /* else nobody listens */
                told_left[first] = (told[first] -> ends_in : 0)
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
    :: verb == ASK && !buried[id] && holder == id -> ends_in = max(ends_in, TTL); reply = GRANTED
    :: verb == ASK && !buried[id] && holder != id ->
#ifdef BARGE
        if
        :: holder == NOBODY -> holder = id; ends_in = TTL; leave_queue(id)
        :: else
        fi;
#endif
        for (k : 0 .. CLIENTS - 1) {
            was_before = was_before || (k != id && place[k] > 0 && alive[k] > 0 && (place[id] == 0 || place[k] < place[id]))
        }
        k = 0;
        if
        :: holder == NOBODY -> admit(id)
        :: else
        fi;
        if
        :: holder == NOBODY -> holder = id; ends_in = TTL
        :: else
        fi;
        assert(!(was_before && holder == id)); /* G2: first come, first served */
        was_before = false;
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
        ends_in = TTL;
#else
        ends_in = max(ends_in, TTL);
#endif
        reply = GRANTED
    :: verb == EXTEND && holder != id ->
#ifdef REVIVE
        holder = id; ends_in = TTL; reply = GRANTED
#else
        skip
#endif
    :: verb == LEAVE && holder == id -> reply = GRANTED; left = ends_in
    :: verb == RELEASE || (verb == LEAVE && holder != id) ->
        leave_queue(id);
#ifndef NO_TOMBSTONE
        buried[id] = buried[id] || doubted;
#endif
        if
#ifdef RELEASE_ANY
        :: verb == RELEASE -> holder = NOBODY; ends_in = 0
#else
        :: verb == RELEASE && holder == id -> holder = NOBODY; ends_in = 0
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
    :: heard && state[id] != DEAD -> answer[id]!reply, left
    :: else
    fi;
    forget_request();
    reply = 0;
    left = 0
}

/* One for each client, so that their requests come in any order. */
proctype Server(byte me)
{
end:
    do
    :: d_step { nempty(line[me]) && nfull(answer[me]) -> line[me]?verb, doubted; serve(me, verb, doubted, true) }
    :: d_step { nempty(ghost[me]) -> ghost[me]?verb, doubted; serve(me, verb, doubted, false) }
    :: d_step { nempty(ghost[me]) -> ghost[me]?verb, doubted; forget_request() } /* it never arrives */
    :: d_step { told[me] -> told[me] = false; told_left[me] = 0 }                 /* the message is lost */
    od
}

/* ---- The client */

#ifdef REPLY_TIME
#define COUNTED_FROM_ASKING TTL
#else
#define COUNTED_FROM_ASKING less(TTL, age[c])
#endif
#ifdef PUSH_START
#define BY_MESSAGE max(RP + GRACE, GRACE)
#else
#define BY_MESSAGE less(told_left[me], lag[me])
#endif

inline send(c, request)
{
    line[c]!request, doubt[c];
    age[c] = 0;
    asked[c] = true
}

/* It holds from now on, for `span`. */
inline begin(c)
{
    good[c] = max(good[c], span);
    if
    :: good[c] > 0 -> state[c] = HELD
    :: else
    fi;
    span = 0;
    if
    :: believes(c) -> alone(c)
    :: else
    fi
}

inline hears_no_message(c)
{
    told[c] = false;
    told_left[c] = 0;
    due[c] = 0;
    lag[c] = 0
}

inline give_back(c)
{
    state[c] = RELEASING; /* the belief ends when the release is sent */
    good[c] = 0;
    hears_no_message(c);
    send(c, RELEASE)
}

/* What was under way may still arrive, or not; no answer comes. */
inline cut(c)
{
    cuts--;
    do
    :: len(line[c]) > 0 -> line[c]?verb, doubted; ghost[c]!verb, doubted
    :: else -> break
    od;
    do
    :: len(answer[c]) > 0 -> answer[c]?reply, left
    :: else -> break
    od;
    doubt[c] = doubt[c] || asked[c];
    hears_no_message(c);
    asked[c] = false;
    forget_request();
    reply = 0;
    left = 0;
    if
    :: state[c] == ASKING || state[c] == WAITING -> state[c] = ASKING; send(c, ASK)
    :: state[c] == LEAVING || state[c] == RELEASING -> give_back(c)
    :: else
    fi
}

inline hear(c)
{
    asked[c] = (len(answer[c]) + len(line[c]) > 0);
    if
    :: state[c] == ASKING && reply == GRANTED ->
        span = COUNTED_FROM_ASKING;
        begin(c);
        hears_no_message(c);
        if
        :: state[c] == ASKING -> send(c, ASK) /* it came too late */
        :: else
        fi
    :: state[c] == ASKING && reply == QUEUED ->
        state[c] = WAITING;
        lag[c] = left;
        due[c] = less(RP, age[c])
    :: state[c] == HELD && reply == GRANTED && good[c] > 0 -> span = COUNTED_FROM_ASKING; begin(c)
    :: state[c] == HELD && (reply != GRANTED || good[c] == 0) -> give_back(c) /* lost; nothing revives it */
    :: state[c] == LEAVING && !asked[c] && reply == GRANTED ->
#ifdef LATE_GRANT
        state[c] = OVER
#else
        span = less(left, age[c]); begin(c);
        if
        :: state[c] == LEAVING -> give_back(c)
        :: else
        fi
#endif
    :: (state[c] == LEAVING || state[c] == RELEASING) && !asked[c] && reply != GRANTED -> state[c] = OVER
    :: else /* overtaken by what was sent since */
    fi;
    age[c] = (asked[c] -> age[c] : 0);
    if
    :: state[c] == OVER ->
        assert(holder != c && place[c] == 0); /* G4: nothing is left behind */
        hears_no_message(c)
    :: else
    fi;
    reply = 0;
    left = 0
}

proctype Client(byte me)
{
    d_step { state[me] = ASKING; send(me, ASK) }
    do
    :: state[me] == OVER || state[me] == DEAD -> break
    :: d_step { answer[me]?reply, left -> hear(me) }
    /* The message of a hand-over: begin with it if it carries, and claim the rest of the ttl; else ask. */
    :: d_step { state[me] == WAITING && told[me] ->
        if
        :: due[me] > 0 -> span = BY_MESSAGE; begin(me)
        :: else
        fi;
        hears_no_message(me);
        if
        :: state[me] == HELD -> send(me, EXTEND)
        :: else -> state[me] = ASKING; send(me, ASK)
        fi
       }
#ifndef LOST_PUSH /* such a waiter never looks for itself, and is to wait for ever */
    :: d_step { state[me] == WAITING && due[me] == 0 -> state[me] = ASKING; send(me, ASK) }
    /* The wait is over, at any time. */
    :: d_step { (state[me] == ASKING || state[me] == WAITING) && nfull(line[me]) ->
        state[me] = LEAVING;
        hears_no_message(me);
        send(me, LEAVE)
       }
#endif
    :: d_step { state[me] == HELD && !asked[me] && good[me] > 0 -> send(me, EXTEND) }
    :: d_step { state[me] == HELD && nfull(line[me]) -> give_back(me) }
    :: d_step { cuts > 0 && state[me] != OVER && len(ghost[me]) + len(line[me]) <= 2 -> cut(me) }
    :: d_step { deaths > 0 ->
        deaths--;
        state[me] = DEAD;
        good[me] = 0;
        age[me] = 0;
        asked[me] = false;
        hears_no_message(me);
        do
        :: len(answer[me]) > 0 -> answer[me]?reply, left
        :: else -> break
        od;
        reply = 0;
        left = 0
       }
    od
}

/* ---- Time */

#define down(x) x = less(x, 1)
#define RUNS(i) (alive[i] + told_left[i] + due[i] + good[i] > 0 || AGES(i))
#define AGES(i) (asked[i] && state[i] != RELEASING && age[i] < LONGEST)

proctype Time()
{
    byte i;
end:
    do
    :: d_step {
        RUNS(0) || RUNS(1) || RUNS(CLIENTS - 1) || ends_in > 0 -> /* else nothing would change */
        if
        :: ends_in > 0 ->
            ends_in--;
            if
            :: ends_in == 0 ->
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
            age[i] = (AGES(i) -> age[i] + 1 : age[i])
        }
        i = 0
       }
    od
}

init
{
    atomic {
        first = 0;
        run Time();
        do
        :: first < CLIENTS -> run Server(first); run Client(first); first++
        :: else -> break
        od;
        first = 0
    }
}
