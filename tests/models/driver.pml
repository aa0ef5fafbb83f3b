/* driver.pml - whoever waits, drives: threads that share connections without a thread between them and their answers.
 *
 * What it mirrors: src/engines/wire (inside.h says how; waiting.c: park, attend, offer, rouse; driving.c: choose_lines,
 * give_up, doze, poll; driver.c: submit, unattend, forget). Everything that the real code does under its one mutex is one step here. Between the steps: a
 * poll that has returned and not yet got the mutex, a futex word that is set before its sleeper sleeps, a bell that is
 * rung without the mutex; what was asked and is not sent yet, also because another one who was roused will send it.
 *
 * Sleeps have no end here, except where the code counts on it (a wait that is over; a doze, which nobody can wake; answers
 * that nobody stands for, which the background thread looks after in 20 ms). So a wake-up that is lost is a thread that
 * sleeps for ever, and spin finds it as a deadlock; and when nothing moves any more, every answer must have been read.
 *
 * Left out: connections that break or are dialled, full sockets, memory that is short (tests/unit/wire_lines.c has those). */

#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* asks of each caller */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1 /* how many waits end without an answer */
#endif
#define LINES 2
#define ASKS (CALLERS * ROUNDS)
#define THREADS (CALLERS + 1)
#define BACKGROUND CALLERS
#define NOBODY THREADS
#define BELL LINES /* the eventfd of the background thread; those before it belong to the lines */

mtype = { AWAKE, POLLING, DOZING, SLEEPING };
mtype = { NONE, UNSENT, SENT, ARRIVED, READ };

/* ---- Asks */
mtype answer[ASKS] = NONE;
byte lines[ASKS];     /* by which its answer may come: bit 0, bit 1 */
byte came[ASKS];      /* by which it came */
bool attended[ASKS];  /* a caller parks */
bool forgotten[ASKS]; /* nobody stands for it any more */
bool nudged_about[ASKS];

/* ---- Threads, and lines */
mtype how[THREADS] = AWAKE;
byte parked[THREADS]; /* 1 + the ask it waits for */
bool kicked[THREADS];
byte kick[THREADS];   /* the eventfd that it polls */
bool word[THREADS];
bool woken[THREADS];
byte driver[LINES] = NOBODY;
bool eventfd[LINES + 1];
bool nudged, rung;
bool bounded; /* the background thread's poll ends by itself */
bool orphans; /* there were answers that nobody stands for, at the last look */
byte callers_done, give_ups = GIVE_UPS;

byte k, n; /* room to compute in, empty between steps */

#define bit(l) (1 << (l))
#define has_stake(a, l) (answer[a] != READ && answer[a] != NONE && !forgotten[a] && (lines[a] & bit(l)))
#define is_orphan(a) (forgotten[a] && (answer[a] == UNSENT || answer[a] == SENT || answer[a] == ARRIVED))
#define readable(l) (readable_by(0, l) || readable_by(1, l) || readable_by(ASKS - 2, l) || readable_by(ASKS - 1, l))
#define readable_by(a, l) (answer[a] == ARRIVED && came[a] == (l))
#define drives(t) (driver[0] == (t) || driver[1] == (t))

inline rouse(t)
{
    if
#ifndef NO_KICK
    :: how[t] == POLLING && !kicked[t] -> kicked[t] = true; eventfd[kick[t]] = true
#endif
    :: how[t] == SLEEPING -> word[t] = true
    :: else
    fi
}

/* A line that nobody drives, to one thread that has a stake in it. */
inline offer(l)
{
#ifndef NO_OFFER
    if
    :: driver[l] == NOBODY ->
        n = 0;
        do
        :: n < CALLERS && parked[n] > 0 && how[n] != AWAKE && has_stake(parked[n] - 1, l) -> rouse(n); break
        :: n < CALLERS && !(parked[n] > 0 && how[n] != AWAKE && has_stake(parked[n] - 1, l)) -> n++
        :: n == CALLERS ->
            for (k : 0 .. ASKS - 1) {
                if
                :: (has_stake(k, l) && !attended[k]) || (is_orphan(k) && (lines[k] & bit(l)) && orphans) -> n++
                :: else
                fi
            }
            if
            :: n > CALLERS -> rouse(BACKGROUND)
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

/* Drives the wanted lines that nobody drives, and no others. */
inline choose(t, wanted, l)
{
    if
    :: (wanted & bit(l)) && driver[l] == NOBODY -> driver[l] = t
    :: !(wanted & bit(l)) && driver[l] == t -> give_up(t, l)
    :: else
    fi
}

/* Everything goes out by line 0. */
inline flush()
{
    for (k : 0 .. ASKS - 1) {
        if
        :: answer[k] == UNSENT -> answer[k] = SENT
        :: else
        fi
    }
    k = 0
}

/* Was another caller roused, who is not yet back under the mutex? Then he sends, or the one whom he leaves it to. */
#define is_coming(t, me) ((t) != (me) && word[t])
#define others_come(me) (is_coming(0, me) || is_coming(1, me) || is_coming(CALLERS - 1, me))

inline flush_or_leave(me)
{
    if
    :: others_come(me)
    :: else -> flush()
    fi
}

/* After each call of the engine: answers that nobody stands for are looked after by the background thread, later. */
inline adopt_orphans()
{
    n = 0;
    for (k : 0 .. ASKS - 1) {
        n = n + (is_orphan(k) -> 1 : 0)
    }
#ifndef NO_ADOPT
    if
    :: n > 0 && !orphans && !bounded -> rouse(BACKGROUND)
    :: else
    fi;
    orphans = (n > 0);
#endif
    n = 0;
    k = 0
}

inline announce(a)
{
    if
    :: forgotten[a]
    :: !forgotten[a] && !attended[a] ->
        nudged_about[a] = true;
        nudged = true;
#ifndef NO_RING
        rouse(BACKGROUND)
#endif
    :: else ->
        n = a / ROUNDS; /* its caller */
        if
        :: parked[n] == a + 1 -> rouse(n)
        :: else
        fi;
        n = 0
    fi
}

/* Reads everything that came by this line, for everybody. */
inline serve(l)
{
    for (k : 0 .. ASKS - 1) {
        if
        :: answer[k] == ARRIVED && came[k] == l -> answer[k] = READ; came[k] = 0; announce(k); lines[k] = 0; forgotten[k] = false
        :: else
        fi
    }
    k = 0;
    adopt_orphans()
}

/* The poll is over, and the mutex is ours. */
inline back_from_poll(t)
{
    how[t] = AWAKE;
    if
    :: kicked[t] || saw_kick -> eventfd[kick[t]] = false
    :: else
    fi;
#ifndef KICKED_STAYS
    kicked[t] = false;
#endif
    kick[t] = (t == BACKGROUND -> BELL : 0);
    saw_kick = false;
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

#define poll_returns(t) (eventfd[kick[t]] || (driver[0] == t && readable(0)) || (driver[1] == t && readable(1)))
#define LOOK(t) \
    saw_kick = eventfd[kick[t]]; \
    saw = (driver[0] == t && readable(0) -> 1 : 0) + (driver[1] == t && readable(1) -> 2 : 0)

/* ---- A caller: asks, and parks until there are news, or it is woken, or its wait is over */
proctype Caller(byte me)
{
    byte ask, saw;
    bool saw_kick, over;
    ask = me * ROUNDS;
    do
    :: ask < (me + 1) * ROUNDS ->
        d_step { answer[ask] = UNSENT; lines[ask] = 1 + 2 * (ask & 1); attended[ask] = true; parked[me] = ask + 1 }
        do
        :: atomic { /* holds the mutex */
            word[me] = false; /* from here on it is back */
            if
            :: answer[ask] == READ || woken[me] || over ->
                parked[me] = 0;
                give_up(me, 0);
                give_up(me, 1);
#ifndef OFFER_LOST /* one may have been offered to us while we were on our way out */
                offer(0);
                offer(1);
#endif
#ifndef LEFT_UNSENT
                flush_or_leave(me);
#endif
                break
            :: else ->
                choose(me, lines[ask], 0);
                choose(me, lines[ask], 1);
                if
                :: driver[0] == me && lines[ask] == 1 -> flush(); how[me] = DOZING
                :: drives(me) ->
                    flush();
                    kick[me] = (driver[0] == me -> 0 : 1);
                    how[me] = POLLING
                :: !drives(me) ->
                    flush_or_leave(me);
                    how[me] = SLEEPING
                fi
            fi
           }
           if
           :: how[me] == DOZING -> /* nobody can rouse it: it ends by itself */
               if
               :: d_step { readable(0) -> saw = 1 }
               :: skip
               fi;
               d_step { back_from_poll(me) }
           :: how[me] == POLLING ->
               if
               :: d_step { poll_returns(me) -> LOOK(me) }
               :: d_step { give_ups > 0 -> give_ups--; over = true }
               fi;
               d_step { back_from_poll(me) }
           :: how[me] == SLEEPING ->
#ifdef LATE_WORD
               word[me] = false;
#endif
               if
               :: word[me]
               :: d_step { give_ups > 0 -> give_ups--; over = true }
               fi;
               how[me] = AWAKE /* its word still says that it is coming */
           fi
        od;
        /* Without an answer: the background thread is to hear it, or nobody. */
        if
        :: answer[ask] == READ
        :: d_step { answer[ask] != READ ->
            attended[ask] = false;
#ifndef UNATTEND_ALONE
            offer(0);
            if
            :: lines[ask] & 2 -> offer(1)
            :: else
            fi;
#endif
            flush()
           }
        :: d_step { answer[ask] != READ -> forgotten[ask] = true; adopt_orphans(); flush_or_leave(me) }
        fi;
        d_step {
            attended[ask] = attended[ask] && answer[ask] != READ;
            over = false;
            woken[me] = false;
            ask++
        }
    :: else -> break
    od;
    callers_done++
}

/* ---- The background thread */

inline wants()
{
    want = 0;
    for (k : 0 .. ASKS - 1) {
        want = want | (!attended[k] && has_stake(k, 0) -> 1 : 0) | (!attended[k] && has_stake(k, 1) -> 2 : 0) |
               (adopt && is_orphan(k) -> lines[k] : 0)
    }
    k = 0
}

inline is_called()
{
    called = nudged || rung;
    nudged = false;
    rung = false
}

proctype Background()
{
    byte saw, want;
    bool saw_kick, called, adopt;
    kick[BACKGROUND] = BELL;
    do
    :: d_step {
        is_called();
        if
        :: called -> /* back in the client, which takes what it was told about; then it attends again */
            give_up(BACKGROUND, 0);
            give_up(BACKGROUND, 1);
            for (k : 0 .. ASKS - 1) {
                nudged_about[k] = false
            }
            k = 0;
            called = false;
            adopt = false
        :: else ->
            wants();
            choose(BACKGROUND, want, 0);
            choose(BACKGROUND, want, 1);
            want = 0;
            bounded = orphans && !adopt;
            how[BACKGROUND] = POLLING
        fi
       }
       if
       :: how[BACKGROUND] == AWAKE
       :: else ->
end:       if
           :: d_step { poll_returns(BACKGROUND) -> LOOK(BACKGROUND) }
           :: d_step { bounded -> adopt = true } /* 20 ms later */
           fi;
           d_step { bounded = false; back_from_poll(BACKGROUND); adopt = adopt && orphans }
       fi
    od
}

/* ---- The server answers each ask, at any time; somebody rings the bell without the mutex; and cancels a wait */

#ifdef IN_QUEUE /* the second one waits for what the first one has: no answer before that one had its own */
#define is_turn(a) ((a) != 1 || answer[0] == READ)
#else
#define is_turn(a) true
#endif

proctype Server(byte a)
{
    if
    :: d_step { answer[a] == SENT && is_turn(a) && (lines[a] & 1) -> answer[a] = ARRIVED; came[a] = 0 }
    :: d_step { answer[a] == SENT && is_turn(a) && (lines[a] & 2) -> answer[a] = ARRIVED; came[a] = 1 }
    fi
}

proctype Ringer()
{
    bool was;
    d_step { was = rung; rung = true }
    if
    :: !was -> eventfd[BELL] = true
    :: else
    fi
}

proctype Canceller()
{
end:
    d_step { parked[0] > 0 -> woken[0] = true; rouse(0) }
}

/* When nothing moves any more. */
proctype Rest()
{
    timeout;
    assert(callers_done == CALLERS); /* nobody sleeps for ever */
    for (k : 0 .. ASKS - 1) {
        assert(answer[k] == READ && !nudged_about[k]) /* every answer was read, and told to whom it concerns */
    }
    assert(driver[0] == NOBODY || driver[0] == BACKGROUND);
    assert(!rung)
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
        :: k < ASKS -> run Server(k); k++
        :: else -> break
        od;
        k = 0;
        run Ringer();
#ifdef CANCELLED
        run Canceller();
#endif
        run Rest()
    }
}
