#!/usr/bin/env bash
# postgres_interop.sh - programs that use pg_advisory_lock and leases with interop= exclude each other on a real server: in both
# directions, in a crowd, and when a session ends under a lease.
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
start_postgres || exit 70
url="$PG_URL?interop=hashtext&op_timeout=5s"
export HOLDFAST_URL=$url

# foreign KEY SECONDS: another program's session has the advisory lock of that expression for so long.
foreign() {
    sql "SELECT pg_advisory_lock($1); SELECT pg_sleep($2)" >/dev/null &
    foreign_pid=$!
    for _ in $(seq 200); do
        [ "$(sql "SELECT pg_try_advisory_lock($1)")" = f ] && return
        sleep 0.02
    done
}

# ---- One direction and the other

foreign "hashtext('job')" 3
"$HOLDFAST" run -n job -- true 2>/dev/null
is "a lock that a foreign session has is busy" $? 75
is "and no lease is left behind" "$("$HOLDFAST" list --json | jq length 2>/dev/null || "$HOLDFAST" list --json | wc -l)" 0
begun=$(date +%s%N)
ok "a waiter gets it when the foreign session ends" "$HOLDFAST" run -w 10s job -- true
wait $foreign_pid
ok "within half a second" test $((($(date +%s%N) - begun) / 1000000)) -lt 4000

"$HOLDFAST" run job -- sleep 1.5 &
holder=$!
for _ in $(seq 200); do
    [ "$("$HOLDFAST" list 2>/dev/null | grep -c job)" -gt 0 ] && break
    sleep 0.02
done
is "a foreign session does not get what a lease holds" "$(sql "SELECT pg_try_advisory_lock(hashtext('job'))")" f
is "and gets other locks" "$(sql "SELECT pg_try_advisory_lock(hashtext('other'))")" t
wait $holder
is "after the release it does" "$(sql "SELECT pg_try_advisory_lock(hashtext('job'))")" t

foreign "hashtext('job')" 4
"$HOLDFAST" run -w 300ms job -- true 2>/dev/null
is "a wait that is over leaves with 75" $? 75
"$HOLDFAST" run -w 9s job -- true &
patient=$!
sleep 0.3
"$HOLDFAST" run -n job -- true 2>/dev/null
is "the lease of one that waits for the advisory lock excludes others" $? 75
wait $patient
is "and it gets both" $? 0
wait $foreign_pid
is "no advisory lock is left" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = (hashtext('job')::bigint & 4294967295)::oid")" 0

# ---- The other keys

foreign "hashtextextended('job', 0)" 3
"$HOLDFAST" run -n -u "$PG_URL?interop=hashtextextended&op_timeout=5s" job -- true 2>/dev/null
is "hashtextextended: busy" $? 75
wait $foreign_pid
ok "hashtextextended: free" "$HOLDFAST" run -n -u "$PG_URL?interop=hashtextextended&op_timeout=5s" job -- true
foreign "4711" 3
"$HOLDFAST" run -n -u "$PG_URL?interop=number&op_timeout=5s" 4711 -- true 2>/dev/null
is "number: busy" $? 75
ok "number: another number is free" "$HOLDFAST" run -n -u "$PG_URL?interop=number&op_timeout=5s" 4712 -- true
wait $foreign_pid
foreign "-3, 8" 3
"$HOLDFAST" run -n -u "$PG_URL?interop=number&op_timeout=5s" -- -3,8 true 2>/dev/null
is "number: two of them, busy" $? 75
wait $foreign_pid
ok "number: two of them, free" "$HOLDFAST" run -n -u "$PG_URL?interop=number&op_timeout=5s" -- -3,8 true
for name in job 007 7,08 7, 99999999999999999999 3000000000,1; do
    "$HOLDFAST" run -n -u "$PG_URL?interop=number&op_timeout=5s" "$name" -- true 2>/dev/null
    is "number: $name is refused" $? 64
done

# ---- What cannot be promised is refused

said=$("$HOLDFAST" run -n --capacity 3 job -- true 2>&1)
is "semaphores are refused: 78" $? 78
like "and it says why" "$said" "only exclusive locks"
said=$("$HOLDFAST" acquire -n --lease "$SCRATCH/lease" job 2>&1)
is "detached leases are refused: 78" $? 78
"$HOLDFAST" run -n -u "$PG_URL?interop=md5" job -- true 2>/dev/null
is "an unknown key is refused: 78" $? 78

# ---- A session that ends takes the advisory lock with it

"$HOLDFAST" run --ttl 30s job -- sleep 20 2>/dev/null &
holder=$!
for _ in $(seq 200); do
    [ "$(sql "SELECT pg_try_advisory_lock(hashtext('job'))")" = f ] && break
    sleep 0.02
done
begun=$(date +%s%N)
sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'holdfast/%'" >/dev/null
wait $holder
is "the command is stopped when its session ends: 79" $? 79
took=$((($(date +%s%N) - begun) / 1000000))
echo "# stopped after $took ms"
ok "long before the ttl" test $took -lt 8000

# ---- A crowd of both kinds: a folder that only one may make at a time

crowd=$SCRATCH/crowd
mkdir "$crowd"
cat >"$crowd/turn" <<'END'
#!/bin/bash
cd "$(dirname "$0")" || exit
mkdir inside 2>/dev/null || echo overlap >>overlaps
sleep 0.00$((RANDOM % 9 + 1))
rmdir inside 2>/dev/null
echo "$1" >>turns
END
chmod +x "$crowd/turn"
end=$((SECONDS + 8)) workers=()
for _ in 1 2 3; do
    while [ $SECONDS -lt $end ]; do "$HOLDFAST" run -w 20s --ttl 10s crowd -- "$crowd/turn" lease; done 2>>"$SCRATCH/crowd.err" &
    workers+=($!)
done
# Foreign sessions wait in PostgreSQL's own queue, which a lease cannot enter: without their pauses it would hardly get in.
for pause in 0.2 0.3; do
    while [ $SECONDS -lt $end ]; do
        # The session is psql's: it has the lock while the shell command runs.
        "$pg_bin/psql" -X -q -At -h 127.0.0.1 -p "$PG_PORT" -U postgres -d postgres -c "SELECT pg_advisory_lock(hashtext('crowd'))" \
            -c "\\! $crowd/turn foreign" >/dev/null 2>>"$SCRATCH/crowd.err"
        sleep $pause
    done &
    workers+=($!)
done
wait "${workers[@]}"
lease=$(grep -c lease "$crowd/turns") foreigners=$(grep -c foreign "$crowd/turns")
echo "# $lease turns under leases, $foreigners under pg_advisory_lock"
ok "both kinds had turns" test "$lease" -gt 5 -a "$foreigners" -gt 5
ok "no two were inside at once" test ! -e "$crowd/overlaps"
done_testing
