/* redlock.pml - a lease on a majority of servers, with tokens that rise although the majorities differ.
 *
 * It mirrors src/engines/redlock/quorum_try.c: acquire, raise, grant, and release on every server. A yes that comes late is
 * raised, too. A server that started a moment ago does not count. It also mirrors what the scripts do with one key: acquire
 * proposes a token above the counter and not below the clock, extend writes the agreed token back, and release frees the key
 * and leaves a tombstone if a request may still arrive.
 *
 * Each client makes one try. Requests to one server arrive in order, or their connection breaks; then a request in flight
 * arrives at any later time, or never. A restart empties a server and breaks its connections. Time runs to HORIZON and
 * stops; a tick may come between any two steps. A clock shows STEP tokens for each tick, plus the server's own error, which
 * is less than half of MAX_TTL to either side (0 to MAX_TTL - 1 here: only differences count).
 *
 * A server and the client that reads its reply are one step: a request may be late, its reply is not. Left out: renewals and
 * repairs, drift, one server under two names, and the queue with its notifications, which only refuses more. */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#define SERVERS 3
#define MOST 2 /* a majority */
#ifndef TTL
#define TTL 2
#endif
#define MAX_TTL TTL
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef HORIZON
#define HORIZON 6
#endif
#ifndef ERROR
#define ERROR (MAX_TTL - 1) /* of a clock, in ticks */
#endif
#define STEP 4 /* so that a clock is ahead of the few grants within one tick */
#define NOBODY CLIENTS

mtype = { ACQUIRE, RAISE, RELEASE };
mtype = { IDLE, ACQUIRING, RAISING, HELD, RELEASING, OVER };
mtype = { OPEN, YES, NO, UNCOUNTED };

/* ---- Servers */
byte now;
byte err[SERVERS];     /* of its clock */
byte holder[SERVERS] = NOBODY;
byte left[SERVERS];    /* of the key */
byte counter[SERVERS]; /* the last token given out */
byte young[SERVERS];   /* until it counts again */
byte restarts = RESTARTS, cuts = CUTS;

/* ---- Each pair of client and server: PAIR(c, s) */
#define PAIR(c, s) ((c) * SERVERS + (s))
#define PAIRS (CLIENTS * SERVERS)
chan connection[PAIRS] = [2] of { mtype, byte };            /* request, the agreed token */
bool late[PAIRS];   /* an ACQUIRE of a broken connection is still in flight */
bool tombstone[PAIRS]; /* the tombstone */
bool may_be_in_flight[PAIRS];
mtype vote[PAIRS] = OPEN;
byte proposed[PAIRS];
bool freed[PAIRS];  /* it has confirmed the release */

/* ---- Clients */
mtype state[CLIENTS] = IDLE;
byte age[CLIENTS];   /* time since before the first request */
byte good[CLIENTS];  /* how long it believes to hold */
byte token[CLIENTS];
byte highest;        /* token of any lease that was granted */
byte floor[CLIENTS]; /* that token, when this client began its try */

byte k, n, yes, no, got; /* scratch variables, zero between steps */
mtype verb;
bool well;

#define max(a, b) ((a) > (b) -> (a) : (b))
#define less(a, b) ((a) > (b) -> (a) - (b) : 0)
#define clock(s) (STEP * (now + err[s]) + 1)

/* ---- A server and one request */

inline execute(c, s)
{
    well = false;
    if
    :: verb == ACQUIRE && !tombstone[PAIR(c, s)] && (holder[s] == NOBODY || holder[s] == c) ->
        if
        :: holder[s] == NOBODY ->
            holder[s] = c;
            counter[s] = max(counter[s] + 1, clock(s))
        :: else
        fi;
        left[s] = TTL;
        got = counter[s];
        well = true
    :: verb == RAISE && holder[s] == c ->
        left[s] = TTL;
        counter[s] = max(counter[s], got);
        well = true
    :: verb == RELEASE ->
#ifndef NO_TOMBSTONE
        tombstone[PAIR(c, s)] = may_be_in_flight[PAIR(c, s)];
#endif
        if
        :: holder[s] == c -> holder[s] = NOBODY; left[s] = 0
        :: else
        fi;
        well = true
    :: else
    fi
}

inline tidy()
{
    verb = 0;
    got = 0;
    well = false;
    k = 0;
    yes = 0;
    no = 0
}

/* The connection breaks; an ACQUIRE in flight may still arrive. The client learns that there will be no reply. */
inline cut_connection(c, s, arrives)
{
    do
    :: len(connection[PAIR(c, s)]) > 0 ->
        connection[PAIR(c, s)]?verb, got;
        late[PAIR(c, s)] = late[PAIR(c, s)] || (arrives && verb == ACQUIRE)
    :: else -> break
    od;
    may_be_in_flight[PAIR(c, s)] = true;
    if
    :: vote[PAIR(c, s)] == OPEN && (state[c] == ACQUIRING || state[c] == RAISING) -> vote[PAIR(c, s)] = NO
    :: else
    fi;
    tidy()
}

/* ---- A client and its try */

/* Releases on every server, also on those that never answered, after all earlier requests; but not on a server that refused
 * and has no request in flight. */
inline release_all(c)
{
    state[c] = RELEASING;
    good[c] = 0;
    age[c] = 0;
    token[c] = 0;
    floor[c] = 0;
    for (k : 0 .. SERVERS - 1) {
#ifdef RELEASE_BELIEVED
        freed[PAIR(c, k)] = (vote[PAIR(c, k)] != YES);
#else
        freed[PAIR(c, k)] = (vote[PAIR(c, k)] == NO && !may_be_in_flight[PAIR(c, k)] && len(connection[PAIR(c, k)]) == 0);
#endif
        if
        :: !freed[PAIR(c, k)] && len(connection[PAIR(c, k)]) < 2 -> connection[PAIR(c, k)]!RELEASE, 0
        :: else
        fi;
        vote[PAIR(c, k)] = OPEN;
        proposed[PAIR(c, k)] = 0
    }
    k = 0
}

inline grant(c)
{
#ifdef REPLY_TIME
    good[c] = TTL;
#else
    good[c] = less(TTL, age[c]); /* counted from before the first request */
#endif
    if
    :: good[c] > 0 ->
        state[c] = HELD;
        age[c] = 0;
        for (k : 0 .. CLIENTS - 1) {
            assert(k == c || good[k] == 0) /* G35: one holder */
        }
        assert(token[c] > floor[c]); /* G36: above every lease that was granted before this try began */
        highest = max(highest, token[c]);
        floor[c] = 0;
        for (k : 0 .. SERVERS - 1) {
            vote[PAIR(c, k)] = OPEN;
            proposed[PAIR(c, k)] = 0
        }
        k = 0
    :: else -> release_all(c)
    fi
}

inline count(c)
{
    yes = 0;
    no = 0;
    for (k : 0 .. SERVERS - 1) {
        yes = yes + (vote[PAIR(c, k)] == YES -> 1 : 0);
        no = no + (vote[PAIR(c, k)] == NO || vote[PAIR(c, k)] == UNCOUNTED -> 1 : 0)
    }
    k = 0
}

/* Writes the highest proposal to the servers that hold the key; a majority must confirm it. */
inline raise_tokens(c)
{
    for (k : 0 .. SERVERS - 1) {
        token[c] = max(token[c], (vote[PAIR(c, k)] == YES -> proposed[PAIR(c, k)] : 0))
    }
    no = 0;
    for (k : 0 .. SERVERS - 1) {
        no = no + (vote[PAIR(c, k)] == YES && proposed[PAIR(c, k)] == token[c] -> 1 : 0)
    }
    k = 0;
#ifdef NO_RAISE
    no = MOST;
#endif
    if
    :: no >= MOST -> grant(c)
    :: else ->
        state[c] = RAISING;
        for (k : 0 .. SERVERS - 1) {
            if
            :: vote[PAIR(c, k)] == YES || vote[PAIR(c, k)] == UNCOUNTED ->
                vote[PAIR(c, k)] = OPEN;
                connection[PAIR(c, k)]!RAISE, token[c]
            :: else
            fi
        }
        k = 0
    fi
}

inline judge(c)
{
    count(c);
    if
    :: state[c] == ACQUIRING && yes >= MOST -> raise_tokens(c)
    :: state[c] == RAISING && yes >= MOST -> grant(c)
    :: (state[c] == ACQUIRING || state[c] == RAISING) && yes < MOST && no > SERVERS - MOST -> release_all(c)
    :: else
    fi
}

#ifdef NO_UPTIME
#define TOO_YOUNG(s) false
#else
#define TOO_YOUNG(s) (young[s] > 0)
#endif

inline on_reply(c, s)
{
    if
    :: verb == RELEASE -> freed[PAIR(c, s)] = true
    :: verb == ACQUIRE && well && (state[c] == RAISING || (state[c] == HELD && got != token[c])) ->
        connection[PAIR(c, s)]!RAISE, token[c] /* this server gets the agreed token, too */
    :: verb == ACQUIRE && well && state[c] == ACQUIRING ->
        proposed[PAIR(c, s)] = got;
        vote[PAIR(c, s)] = (TOO_YOUNG(s) -> UNCOUNTED : YES)
    :: verb == RAISE && well && state[c] == RAISING -> vote[PAIR(c, s)] = (TOO_YOUNG(s) -> UNCOUNTED : YES)
    :: !well && (state[c] == ACQUIRING || state[c] == RAISING) -> vote[PAIR(c, s)] = NO
    :: else
    fi;
    judge(c);
    tidy()
}

proctype Link(byte c; byte s)
{
end:
    do
    :: d_step { len(connection[PAIR(c, s)]) > 0 -> connection[PAIR(c, s)]?verb, got; execute(c, s); on_reply(c, s) }
    /* It is carried out, and the connection breaks before the answer comes. */
    :: d_step { cuts > 0 && len(connection[PAIR(c, s)]) > 0 ->
        cuts--;
        connection[PAIR(c, s)]?verb, got;
        execute(c, s);
        cut_connection(c, s, true)
       }
    :: d_step { cuts > 0 && len(connection[PAIR(c, s)]) > 0 -> cuts--; cut_connection(c, s, true) }
    :: d_step { late[PAIR(c, s)] ->
        late[PAIR(c, s)] = false;
        verb = ACQUIRE;
        execute(c, s);
        assert(state[c] != OVER || !well); /* G38: a try leaves nothing behind */
        tidy()
       }
    od
}

proctype Client(byte me)
{
#ifdef IN_TURN /* the second begins when the first one has been granted: that is what tokens are about */
end_turn:
    me == 0 || highest > 0;
#endif
    d_step {
        state[me] = ACQUIRING;
        floor[me] = highest;
        for (k : 0 .. SERVERS - 1) {
            connection[PAIR(me, k)]!ACQUIRE, 0
        }
        k = 0
    }
end:
    do
    :: state[me] == OVER -> break
    /* The time of the round is over, the hold is given back, or it was lost. */
    :: d_step { state[me] == ACQUIRING || state[me] == RAISING || state[me] == HELD -> release_all(me); tidy() }
    /* Where the connection broke: again. */
    :: d_step { state[me] == RELEASING ->
        for (k : 0 .. SERVERS - 1) {
            if
            :: !freed[PAIR(me, k)] && len(connection[PAIR(me, k)]) == 0 -> connection[PAIR(me, k)]!RELEASE, 0
            :: else
            fi;
            yes = yes + (freed[PAIR(me, k)] -> 1 : 0)
        }
        if
        :: yes == SERVERS ->
            state[me] = OVER;
            for (k : 0 .. SERVERS - 1) {
                assert(holder[k] != me); /* G38: a try leaves nothing behind */
                freed[PAIR(me, k)] = false;
                may_be_in_flight[PAIR(me, k)] = false
            }
        :: else
        fi;
        tidy()
       }
    od
}

/* ---- Time, and servers that come back empty */

#define down(x) x = (x > 0 -> x - 1 : 0)

proctype World()
{
    byte i;
end:
    do
    :: d_step { now < HORIZON ->
        now++;
        for (i : 0 .. SERVERS - 1) {
            down(left[i]);
            holder[i] = (left[i] > 0 -> holder[i] : NOBODY);
            down(young[i])
        }
        for (i : 0 .. CLIENTS - 1) {
            down(good[i]);
            age[i] = ((state[i] == ACQUIRING || state[i] == RAISING) && age[i] < TTL -> age[i] + 1 : age[i])
        }
        i = 0
       }
    :: atomic { restarts > 0 ->
        i = 0;
        do
        :: i < SERVERS - 1 -> i++
        :: break
        od;
        d_step {
            restarts--;
            holder[i] = NOBODY;
            left[i] = 0;
            counter[i] = 0;
            young[i] = MAX_TTL + 1;
            for (n : 0 .. CLIENTS - 1) {
                cut_connection(n, i, false);
                late[PAIR(n, i)] = false;
                tombstone[PAIR(n, i)] = false
            }
            n = 0;
            i = 0
        }
       }
    od
}

init
{
    byte c, s;
    atomic {
        do
        :: s < SERVERS ->
            if
            :: s > 0 && err[s - 1] == 0 -> err[s] = 0 /* the servers are alike: those that are ahead come first */
            :: s == 0 || err[s - 1] > 0 -> err[s] = 0
            :: s == 0 || err[s - 1] > 0 -> err[s] = ERROR
            fi;
            s++
        :: else -> break
        od;
        run World();
        do
        :: c < CLIENTS ->
            run Client(c);
            s = 0;
            do
            :: s < SERVERS -> run Link(c, s); s++
            :: else -> break
            od;
            c++
        :: else -> break
        od
    }
}
