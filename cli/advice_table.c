/* advice_table.c - the table of stories and the lock that fits each. docs/choosing.md has every
 * line of this table; add a new line in both places. An advice is left out if another one has
 * all of its traits and more, so that a pair of traits can have an answer of its own. */
#include "advice_table.h"

#define PERMITS_WHY                                                                                \
    "The permit bounds the load; its token must not reach a fence, because permits are valid at "  \
    "once with different "                                                                         \
    "tokens. Each PIECE of data has an exclusive lock of its own, inside, and HOLDFAST_TOKEN is "  \
    "that lock's."
#define READERS_WHY                                                                                \
    "Only writers write, so only their tokens reach the fence. A reader's token says nothing "     \
    "about the data."

const struct advice ADVICE[] = {
    {0, "one at a time, the others wait for their turn", "holdfast run NAME -- CMD",
     "A mutex with a queue: first come, first served. The lock ends with the command, even if that "
     "is killed."},
    {SKIP, "a cron job that must not run twice at once", "holdfast run -n -E 0 NAME -- CMD",
     "Busy is an answer: without -E it is exit code 75."},
    {MANY, "at most N jobs at once", "holdfast run --capacity N NAME -- CMD",
     "A semaphore: every unit has an owner and comes back by itself when its owner dies."},
    {MANY | SKIP, "at most N jobs at once, further ones are dropped",
     "holdfast run -n --capacity N NAME -- CMD", "A semaphore that nobody waits for."},
    {MANY | WEIGHTS, "jobs of different sizes share N units",
     "holdfast run --capacity N --units K NAME -- CMD",
     "A weighted semaphore. The queue keeps its order, so small jobs do not overtake a big one for "
     "ever."},
    {READERS, "many may read while nobody writes",
     "holdfast run -s NAME -- READ; holdfast run -x NAME -- WRITE",
     "A read-write lock: readers enter together, and neither side starves."},
    {SCRIPT, "a script takes the lock in one step and releases it in another",
     "holdfast acquire --lease FILE --ttl 10m NAME; holdfast release --lease FILE",
     "A detached lease: nobody renews it, so its ttl must outlast the work. `advise "
     "--from-history` says which does."},
    {OPEN_ENDED, "nobody knows how long the work takes", "holdfast run --max-hold 2h NAME -- CMD",
     "`run` renews the lease while the command runs, so the ttl need not outlast the work. "
     "--max-hold bounds a command that hangs."},
    {SCRIPT | OPEN_ENDED, "a script in several steps of unknown length",
     "holdfast acquire --lease FILE --ttl 10m NAME; holdfast extend --lease FILE --ttl 10m; "
     "holdfast release --lease FILE",
     "Nobody renews a detached lease: extend it before each step, and stop if that fails. One "
     "`run` around all steps is simpler."},
    {NESTED, "a function that holds the lock calls another that takes it",
     "holdfast run --owner ID NAME -- CMD, at every level",
     "Reentrant: each level has its own lease, and the last release frees the lock. Without an "
     "owner the inner call waits for the outer one. In C and over HTTP: the same owner in every "
     "request."},
    {SEVERAL, "two accounts must be locked together", "holdfast run -l NAME -l OTHER -- CMD",
     "All or nothing, in one order for everybody, so that two callers cannot deadlock. In C: "
     "hf_acquire_many."},
    {CORRECT, "two writers would destroy data", "holdfast run NAME -- CMD, and holdfast fence sql",
     "A paused process can wake up after its lease ended, and write. Send HOLDFAST_TOKEN with each "
     "write, and have older tokens refused where the data is."},
    {MANY | CORRECT, "at most N jobs at once, and two writers would destroy data",
     "holdfast run --capacity N NAME -- holdfast run PIECE -- CMD, and holdfast fence sql",
     PERMITS_WHY},
    {READERS | CORRECT, "many may read while nobody writes, and a late writer would destroy data",
     "holdfast run -s NAME -- READ; holdfast run -x NAME -- WRITE, and holdfast fence sql",
     READERS_WHY},
    {MACHINES, "the jobs run on several machines",
     "holdfast -u URL run NAME -- CMD, with the URL of a server that all reach",
     "local: is for one machine. `holdfast version` says which engines are built in."},
    {MACHINES | FAILOVER, "the lock must survive the loss of its server",
     "holdfast -u 'redis://HOST/0?replicas=1' run NAME -- CMD",
     "replicas=K counts a grant when K replicas have it; let K be all that may be promoted. "
     "redis+sentinel://S1,S2,S3/NAME follows the primary that sentinels watch. redlock://A,B,C "
     "survives the loss of a minority, for exclusive locks only. redis+cluster://N1,N2 has "
     "each lock on one primary of a cluster, and follows the replica that takes its place."},
    {MACHINES | CORRECT, "two writers on different machines would destroy data",
     "holdfast -u 'redis://HOST/0?replicas=1' run NAME -- CMD, and holdfast fence sql",
     "replicas=K survives the loss of the server, redlock://A,B,C that of a minority. Only the "
     "token stops a writer that was paused: have older tokens refused where the data is."},
    {MANY | MACHINES | CORRECT,
     "at most N jobs at once on several machines, and two writers would destroy data",
     "holdfast -u URL run --capacity N NAME -- holdfast -u URL run PIECE -- CMD, and holdfast "
     "fence sql",
     PERMITS_WHY},
    {READERS | MACHINES | CORRECT,
     "many machines read while nobody writes, and a late writer would destroy data",
     "holdfast -u URL run -s NAME -- READ; holdfast -u URL run -x NAME -- WRITE, and holdfast "
     "fence sql",
     READERS_WHY},
    {MACHINES | CORRECT | STRICT,
     "no clock that jumps and no server that loses its data may let a second holder in",
     "holdfast -u etcd://A,B,C run NAME -- CMD, and holdfast fence sql",
     "etcd decides by consensus. Its leader may end live leases after it stood still, and a paused "
     "holder writes late whatever granted its lock, so the token must be checked."},
    {MANY | MACHINES | CORRECT | STRICT,
     "at most N jobs at once, and neither a clock nor lost data may let a second writer in",
     "holdfast -u etcd://A,B,C run --capacity N NAME -- holdfast -u etcd://A,B,C run PIECE -- CMD, "
     "and holdfast fence sql",
     PERMITS_WHY},
    {READERS | MACHINES | CORRECT | STRICT,
     "many may read, and neither a clock nor lost data may let a second writer in",
     "holdfast -u etcd://A,B,C run -s NAME -- READ; holdfast -u etcd://A,B,C run -x NAME -- WRITE, "
     "and holdfast fence sql",
     READERS_WHY},
    {DATABASE, "everything that must be protected is in one database",
     "no lock: a transaction, SELECT ... FOR UPDATE, or UNIQUE",
     "The database excludes and remembers in one place, and cannot disagree with itself. A lock "
     "beside it can."},
    {QUEUE, "each piece of work must be done, by anybody, once",
     "no lock: a queue, and work that may be done twice",
     "A lock says who works now, not what is done. A queue remembers; a key for each piece makes "
     "doing it twice harmless."},
    {RATE, "not more than so many calls a second", "no lock: a rate limiter",
     "A semaphore bounds how many work at once, not how often they come."},
};
const size_t ADVICE_COUNT = sizeof ADVICE / sizeof ADVICE[0];

int64_t story_completed(int64_t story)
{
    if (story & WEIGHTS)
        story |= MANY;
    if (story & STRICT)
        story |= CORRECT;
    if (story & (FAILOVER | STRICT))
        story |= MACHINES;
    return story;
}

static bool within(int64_t part, int64_t whole)
{
    return (part & ~whole) == 0;
}

bool advice_fits(const struct advice *advice, int64_t story)
{
    bool partial = advice->traits != 0 && within(advice->traits, story);

    if (!partial)
        return advice->traits == story;

    for (size_t i = 0; i < ADVICE_COUNT; i++) {
        int64_t other = ADVICE[i].traits;
        bool says_more = other != advice->traits && within(advice->traits, other);
        if (says_more && within(other, story))
            return false;
    }

    return true;
}
