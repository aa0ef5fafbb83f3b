-- holdfast.lua - the protocol: everything that Holdfast does inside a Redis or Valkey server.
--
-- One text, two ways to load it (scripts.cmake puts a first line before it):
--
--   FUNCTION LOAD   makes the functions once. Clients call them with FCALL.
--   SCRIPT LOAD     for servers that offer no functions. The whole text runs at every EVALSHA, and
--                   the first argument names the verb.
--
-- The keys of a lock, in the order of KEYS. The call of a client with an inbox names the first two
-- alone: each further one would cost 0.1 us. The others follow from the first (name_index.lua). All
-- other calls name all.
--
--   1 lock     A plain exclusive hold is the string "id token ttl meta", which expires at the end
--              of the hold. Any other string belongs to another program. All other holds of a name
--              are fields of one hash:
--                @k class, @c capacity, @d capacity that requests declare, @u units in use,
--                id -> "units token ttl kind owner meta",
--                +owner -> the ids of that owner. Its units are counted once,
--                @w "id client round": the upgrade that made its owner a writer, as long as no
--                other request relies on it.
--   2 counter  "N" or "~N until". N is the last number given out, as token or as arrival number. ~
--              means "look closer", for one of three reasons: somebody waits; there are tombstones,
--              the last of which stands until `until`; the name may be missing in the index.
--   3 queue    sorted set: id -> arrival number
--   4 waiters  hash:
--                id -> "due span grace ttl units capacity kind owner box meta". due: end of the
--                record, unless the waiter asks again. span: due minus the time of the waiter's
--                last request, in ms,
--                +owner -> the ids of that owner, !id -> end of a tombstone,
--                =client -> in a cluster: time until which the client counts as alive.
--   5 ends     sorted set: id -> end of the hold, for holds in a hash
--   6 past     sorted set, only with history: token -> a note about that hold; +inf -> "N age"
--   7 places   only in a quorum: places.lua. In a cluster, calls name this key although it never
--              exists: while a slot is being moved, the server refuses every call that names an
--              absent key, so no call is stopped half-way.
--
-- Further keys: BOX, the inbox of a client, and BOX:alive, its presence key, which the client
-- renews every 350 ms while it waits (presence.c); and the index of names, two keys for all locks
-- with one prefix (name_index.lua). A cluster has none of these, because a call may only use keys
-- in the slot of its lock.
--
-- Words in the records. kind: e exclusive, s semaphore, r reader, w writer. class: e, s, or x for
-- readers and writers. owner: "-" if the request names none. meta: "ticket flags pid host label".
-- ticket: the arrival number; 0: it did not wait. flags: d detached, b not, and then the round of
-- the request if it is not 0. Times are microseconds of the server's clock, but ttl, grace and PX
-- are milliseconds. The ttl in a record is the longest time that the hold was ever given: if more
-- time is left, the clock stepped back.
--
-- Rounds. A client revokes a grant that too few replicas acknowledged. Each revoke ends a round,
-- and the client's next request begins a new one. Because the revoke may arrive late, it names its
-- round, and spares a hold of a later round.
--
-- Rules.
--
--   * A call keeps nothing in the interpreter. Its state is in locals, or in a table that
--     open_lock() makes anew. tests/lint/lua.sh proves that no function assigns an upvalue.
--   * A verb that writes ends with admit(), so that no waiter that fits is left waiting, and with
--     keep_counter(). A verb that leaves a plain hold behind needs no admit(), because nobody fits.
--   * The server may refuse any command (a right was taken away, the memory is full), and earlier
--     writes of the call remain. So the order of writes matters: a number is in the counter before
--     a hold has it as its token. The end of a hold is stored before the hold, and removed after
--     it. The units of a hold and their sum change in one HSET. After an error the client releases
--     whatever the call has left of its request. A waiter that lost its place asks again.
--   * The counter lives until an hour after the time that its number stands for (counter_life). So
--     if the clock jumps ahead and back, the counter does not expire before the clock itself gives
--     out higher numbers.

-- While the library is being loaded, most globals (redis.call, math, string) do not exist yet, so
-- functions look them up when they run. Numbers that are arguments of commands are written as texts
-- here: Lua would have to print a number each time.
local HOUR_MS, DAY_MS = '3600000', '90000000'
local ADMIT_MOST = 1000 -- most waiters that one call grants the lock to
local GATHER_MOST = 128 -- most waiters of one owner that one call grants the lock to together
local SLICE = 256 -- number of entries that are read at once
local DEAD_MOST = 4096 -- most dead waiters, and most ended holds, that one call removes
local PRESENCE_US = 850000 -- time after its last request for which a waiter counts as alive
local STEP_US = 100000 -- a step back of the clock that is shorter does not matter
local SPREAD_MS = 1000 -- if a hold ends by itself, its waiters ask again within this time

-- include name_index.lua
-- include straight.lua
-- include counter.lua
-- include hold_notes.lua
-- include holds.lua
-- include waiters.lua
-- include admit.lua
-- include acquire.lua
-- include acquire_several.lua
-- include release.lua
-- include extend.lua
-- include convert.lua
-- include operator.lua
-- include inspect.lua
-- include places.lua
-- include index_verbs.lua
-- include acl_check.lua
-- include verbs.lua
