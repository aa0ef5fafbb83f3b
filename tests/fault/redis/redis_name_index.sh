#!/usr/bin/env bash
# redis_name_index.sh - a list reads an index of names, whatever else the server keeps, and the index heals: it is made anew
# when it is lost, holds what is in use, forgets what nobody uses, and has an end.
#
#     redis_name_index.sh [redis|valkey]
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
kind=${1:-redis}
needs_server "$kind"
start_server "$kind" || exit 70
# A list of 100,000 names takes longer than the usual time of a request where the machine is busy.
export HOLDFAST_URL=$REDIS_URL?op_timeout=5s

# scans: how many SCAN the server has seen.
scans() { redis_cli INFO commandstats | sed -n 's/^cmdstat_scan:calls=\([0-9]*\),.*/\1/p' | grep . || echo 0; }
names() { "$HOLDFAST" list --format name "$@" | sort -u | xargs; }
indexed() { redis_cli ZRANGE '{lock:}:names' 0 -1 | xargs; }
has_end() { [ "$(redis_cli PTTL "$1")" -gt 0 ]; }

redis_cli EVAL 'for i = 1, 100000 do redis.call("SET", "other:" .. i, "x") end' 0 >/dev/null
"$HOLDFAST" acquire --ttl 5m job >job
"$HOLDFAST" acquire --ttl 5m --capacity 3 pool >pool
"$HOLDFAST" acquire --ttl 5m -s page >page
"$HOLDFAST" acquire --ttl 5m --owner me nested >nested
is "a list has every kind of lock" "$(names)" "job nested page pool"
before=$(scans)
ok "the first one has scanned the keys" test "$before" -ge 20
is "the next one has them too" "$(names)" "job nested page pool"
"$HOLDFAST" acquire --ttl 5m 'odd }{ name' >odd
"$HOLDFAST" acquire --ttl 5m later >later
is "so has it locks that were taken since" "$(names)" "job later nested odd }{ name page pool"
is "a list of a prefix has its names alone" "$(names p)" "page pool"
is "one of a name that nobody has is empty" "$(names zzz)" ""
is "none of them scanned" "$(scans)" "$before"

timeout 3 "$HOLDFAST" watch >watched
like "watch tells what is there" "$(<watched)" 'granted +job'
"$HOLDFAST" serve --listen 127.0.0.1:0 >served 2>&1 & service=$!
eventually grep -q 'serving on' served
address=http://$(grep -o '127[0-9.:]*' served | head -n 1)
is "a page of /v1/locks has them" "$(curl -s "$address/v1/locks?limit=2" | jq -r '.locks[].name' | sort -u | xargs)" "job later"
sleep 1
kill "$service" && wait "$service"
is "neither watch nor the service scans" "$(scans)" "$before"

"$HOLDFAST" release <later
is "a lock that is free is not listed" "$(names l)" ""
is "its name is kept as long as its counter" "$(indexed)" "job later nested odd }{ name page pool"
redis_cli DEL '{lock:later}:t' >/dev/null
names >/dev/null
is "and then forgotten" "$(indexed)" "job nested odd }{ name page pool"
"$HOLDFAST" acquire --ttl 5m later >later
is "when it is taken again, it is back" "$(names l)" later
# What is left of a lock whose counter ended while it was held.
redis_cli DEL '{lock:job}:t' >/dev/null
is "a lock that is held longer than its counter lives stays listed" "$(names j)" job
"$HOLDFAST" extend --ttl 5m <job
is "also when it was extended" "$(names j)" job

"$HOLDFAST" run idle -- true
"$HOLDFAST" run 'id}le' -- true
redis_cli DEL '{lock:}:names' '{lock:}:names:whole' >/dev/null
is "an index that is lost is made anew, of every kind of lock" "$(names)" "job later nested odd }{ name page pool"
ok "by scanning" test "$(scans)" -gt "$before"
is "with the names of counters, and without keys of other programs" "$(indexed)" "idle id}le job later nested odd }{ name page pool"
"$HOLDFAST" acquire --ttl 5m idle >idle
is "so a name that was free then is listed when it is taken" "$(names i)" idle
"$HOLDFAST" release <idle
ok "the index has an end" has_end '{lock:}:names'
ok "so has the mark that it is whole, which makes a list scan once an hour" has_end '{lock:}:names:whole'

redis_cli SET lock:theirs somebody PX 60000 >/dev/null
is "another program's lock is not listed" "$(names t)" ""
is "but with --foreign" "$(names --foreign t)" theirs
like "doctor --scan compares both" "$("$HOLDFAST" doctor --scan)" 'ok +scan +the list has every lock that a search finds; 1 locks of other programs'
redis_cli ZREM '{lock:}:names' pool >/dev/null
like "and finds what the list lacks" "$("$HOLDFAST" doctor --scan)" 'warn +scan +"pool" is held and not listed'
exits "who asks for another program's lock is told" 75 "$HOLDFAST" run -n theirs -- true
is "and finds it in the list from then on" "$(names t)" theirs

redis_cli EVAL 'for i = 1, 100000 do redis.call("ZADD", KEYS[1], 0, "used-" .. i) end' 1 '{lock:}:names' >/dev/null
"$HOLDFAST" acquire --ttl 5m beyond >beyond
is "a full index takes no more names, and is not whole" "$(redis_cli EXISTS '{lock:}:names:whole') $(redis_cli ZCARD '{lock:}:names' | awk '{ print $1 < 100020 }')" "0 1"
is "a list finds what it lacks" "$(names b)" beyond
is "and a whole list has them all" "$(names)" "beyond job later nested odd }{ name page pool theirs"
ok "and forgets what nobody uses" test "$(redis_cli ZCARD '{lock:}:names')" -lt 20

redis_cli ACL SETUSER reader reset on '>word' '~*' '&*' +@all -zadd >/dev/null
redis_cli DEL '{lock:}:names' '{lock:}:names:whole' >/dev/null
is "a user who may not write the index has a list all the same" \
    "$("$HOLDFAST" -u "redis://reader:word@127.0.0.1:$REDIS_PORT/0" list --format name j)" job
is "and marks nothing" "$(redis_cli EXISTS '{lock:}:names:whole')" 0
without_end() { redis_cli KEYS '*lock:*' | while read -r key; do has_end "$key" || echo "$key"; done; }
is "every key has an end" "$(without_end)" ""
done_testing
