-- holdfast.lua - the protocol: everything that Holdfast does inside a Redis or Valkey server.
--
-- One text, two ways to load it (scripts.cmake puts a first line before it):
--
--   FUNCTION LOAD   the functions are made once, when the library is loaded. Clients use FCALL.
--   SCRIPT LOAD     where functions are not offered. The whole text runs at every EVALSHA, and
--                   the first argument names the verb.
--
-- Keys of a lock. Every verb gets them in this order:
--
--   1 lock     A plain exclusive hold is the string "id token ttl meta", which ends with its PX.
--              Any other string is foreign. Every other hold is in a hash:
--                @k class, @c capacity, @d capacity that was asked for, @u units in use,
--                id -> "units token ttl kind owner meta", +owner -> its ids,
--                @w "id client round": the upgrade that made its owner a writer, while no other
--                request relies on it.
--              The units of an owner are counted once.
--   2 counter  "N" or "~N until": the last number given out (tokens and arrivals). The ~ says
--              "look closer": somebody waits, or tombstones stand until then, or the name may be
--              missing in the index.
--   3 queue    sorted set: id -> arrival number
--   4 waiters  hash: id -> "due span grace ttl units capacity kind owner box meta". due: end of
--              the record, unless the waiter asks again. span: due minus its last request, in ms.
--              +owner -> its ids. !id -> end of a tombstone. In a cluster also
--              =client -> until when the client counts as alive by its last request.
--   5 ends     sorted set: id -> end of the hold, for holds in a hash
--   6 past     sorted set, only with history: token -> a note about that hold; +inf -> "N age"
--   7 places   only in a quorum: places.lua. Calls in a cluster name it too, where it never exists:
--              while a slot is moved, the server refuses calls with a key that is not there, so no
--              call runs half-way.
--
-- Two more keys are named by the record of a waiter: BOX, the inbox of its client, and BOX:alive,
-- which exists while that client says every 350 ms that it lives (presence.c). Two keys for all
-- locks with one prefix are the index of their names (name_index.lua). A cluster has none of these
-- four: a call may touch keys of its lock's slot alone.
--
-- kind: e exclusive, s semaphore, r reader, w writer. class: e, s, x (readers and writers). owner:
-- "-" if none was given. meta: "ticket flags pid host label"; ticket: the arrival number, 0 if it
-- did not wait; flags: d detached, b not, and the round of the request if it is not 0. Times are
-- microseconds of the server's clock; ttl, grace and PX are milliseconds. The ttl in a record is
-- the longest time that the hold was ever given. If it has more left, the clock stepped back.
--
-- Rounds: a client that revokes a grant, because it lacks replicas, thereby begins a new round. The
-- revoke may arrive late. So it names its round, and spares a hold of a later round.
--
-- Rules:
--
--   * A call keeps nothing in the interpreter. Its state is in locals, or in a table that
--     open_lock() makes anew. tests/lint/lua.sh proves that no function assigns an upvalue.
--   * A verb that writes ends with admit(), so that no waiter that fits is left waiting, and with
--     keep_counter(). A verb that leaves a plain hold behind needs no admit(): nobody fits.
--   * Any call may be refused (a right that was taken away, a full server), and what was written
--     before stays. So the order of writes matters: a number is in the counter before a hold has
--     it as its token. The end of a hold is stored before the hold, and removed after it. The
--     units of a hold and their sum change in one HSET. The client hears of the error and
--     releases what there is of its own. A waiter that lost its place asks again.
--   * The counter lives until an hour after the time that its number names (counter_life). So a
--     clock that jumps ahead cannot end it before the clock itself gives out higher numbers.

-- While the library is loaded, most globals (redis.call, math, string) are not there yet: functions
-- find them when they run. Numbers that commands get are texts: a number would be printed first.
local HOUR_MS, DAY_MS = '3600000', '90000000'
local ADMIT_MOST = 1000 -- waiters that one call lets in
local GATHER_MOST = 128 -- waiters of one owner that one call lets in together
local SLICE = 256 -- entries read at once
local DEAD_MOST = 4096 -- dead waiters, and dead holders, that one call removes
local PRESENCE_US = 850000 -- a waiter counts as alive so long after its last request
local STEP_US = 100000 -- steps back of the clock that are too short to matter
local SPREAD_MS = 1000 -- within this time all waiters ask again when a hold ends by itself

-- include name_index.lua
-- include straight.lua
-- include counter.lua
-- include hold_notes.lua
-- include holds.lua
-- include waiters.lua
-- include admit.lua
-- include acquire.lua
-- include release.lua
-- include extend.lua
-- include convert.lua
-- include operator.lua
-- include inspect.lua
-- include places.lua
-- include index_verbs.lua
-- include acl_check.lua
-- include verbs.lua
