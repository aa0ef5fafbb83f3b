/* redlock.pml - a lease on a majority of servers, with tokens that rise although the majorities differ.
 *
 * What it mirrors: src/engines/redlock/ballot.c (ask, raise, grant, release on every server; a yes that comes late is raised,
 * too; a server that is too young does not count) and what its scripts do with one key: ask proposes a token above its
 * counter and not below its clock, extend carries the agreed one back, release frees and, in doubt, leaves a tombstone.
 *
 * Each client makes one try. Requests to one server arrive in order or their connection breaks; then what was under way
 * arrives at any later time, or never. A restart empties a server and breaks its connections. Time runs to HORIZON and
 * stops; a tick may come between any two steps. A clock shows STEP tokens for each tick, plus the server's own error, which
 * is less than half of MAX_TTL to either side (0 to MAX_TTL - 1 here: only differences count).
 *
 * Left out: renewals and their repair, drift, hints to waiters, servers that are the same one. */

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
#define STEP 2
#define NOBODY CLIENTS

mtype = { ASK, RAISE, RELEASE };
mtype = { IDLE, ASKING, RAISING, HELD, RELEASING, OVER };
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
chan line[PAIRS] = [2] of { mtype, byte };            /* request, the agreed token */
chan answer[PAIRS] = [2] of { mtype, bool, byte };    /* to which, yes or no, the token */
bool late[PAIRS];   /* an ask of a connection that broke is still under way */
bool buried[PAIRS]; /* the tombstone */
bool doubt[PAIRS];
mtype vote[PAIRS] = OPEN;
byte proposed[PAIRS];
bool silent[PAIRS]; /* too young when it was asked */

/* ---- Clients */
mtype state[CLIENTS] = IDLE;
byte age[CLIENTS];   /* since before the first question */
byte good[CLIENTS];  /* for how long it believes that it holds */
byte token[CLIENTS];
byte highest;        /* token of any lease that was granted */
byte floor[CLIENTS]; /* that one, when this client began to ask */

byte k, p, yes, no, got; /* room to compute in, empty between steps */
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
    :: verb == ASK && !buried[PAIR(c, s)] && (holder[s] == NOBODY || holder[s] == c) ->
        if
        :: holder[s] == NOBODY ->
            holder[s] = c;
            counter[s] = max(counter[s] + 1, clock(s));
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
        buried[PAIR(c, s)] = doubt[PAIR(c, s)];
        if
#ifdef RELEASE_ANY
        :: true -> holder[s] = NOBODY; left[s] = 0
#else
        :: holder[s] == c -> holder[s] = NOBODY; left[s] = 0
#endif
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
    p = 0;
    yes = 0;
    no = 0
}

proctype Link(byte c; byte s)
{
end:
    do
    :: d_step { nempty(line[PAIR(c, s)]) && nfull(answer[PAIR(c, s)]) ->
        line[PAIR(c, s)]?verb, got;
        execute(c, s);
        answer[PAIR(c, s)]!verb, well, got;
        tidy()
       }
    :: d_step { late[PAIR(c, s)] ->
        late[PAIR(c, s)] = false;
        verb = ASK;
        execute(c, s);
        assert(state[c] != OVER || !well); /* G38: a try leaves nothing behind */
        tidy()
       }
    :: d_step { cuts > 0 && (len(line[PAIR(c, s)]) > 0 || len(answer[PAIR(c, s)]) > 0) ->
        cuts--;
        hang_up(c, s, true)
       }
    od
}

/* The connection breaks: whoever waits for an answer there hears that there will be none. */
inline hang_up(c, s, arrives)
{
    do
    :: len(line[PAIR(c, s)]) > 0 ->
        line[PAIR(c, s)]?verb, got;
        late[PAIR(c, s)] = late[PAIR(c, s)] || (arrives && verb == ASK);
        doubt[PAIR(c, s)] = true;
        again[PAIR(c, s)] = again[PAIR(c, s)] || verb == RELEASE
    :: else -> break
    od;
    do
    :: len(answer[PAIR(c, s)]) > 0 ->
        answer[PAIR(c, s)]?verb, well, got;
        again[PAIR(c, s)] = again[PAIR(c, s)] || verb == RELEASE
    :: else -> break
    od;
    if
    :: vote[PAIR(c, s)] == OPEN -> vote[PAIR(c, s)] = NO
    :: else
    fi;
    tidy()
}
