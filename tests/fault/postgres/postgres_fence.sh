#!/usr/bin/env bash
# postgres_fence.sh - the lock and the data commit together: fence() and within() on a real server, with a holder that stands
# still beyond its ttl in the middle of its transaction; and what a crash and a failover leave of leases.
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
start_postgres || exit 70
export HOLDFAST_URL=$PG_URL

# take NAME TTL [URL]: acquires and prints the token; the lease is in $SCRATCH/NAME.
take() {
    "$HOLDFAST" acquire -n --lease "$SCRATCH/$1" --ttl "$2" ${3:+--url "$3"} "$1" >/dev/null && jq -r .token "$SCRATCH/$1"
}

# busy NAME [URL]: succeeds while NAME cannot be had.
busy() {
    "$HOLDFAST" run -n ${2:+--url "$2"} "$1" -- true 2>/dev/null
    [ $? -eq 75 ]
}

# ---- fence()

sql "CREATE TABLE account (balance int); INSERT INTO account VALUES (100)"
token=$(take account 4s)
sql "BEGIN; SELECT holdfast.fence('account', $token); UPDATE account SET balance = balance - 10; SELECT pg_sleep(8); COMMIT" >/dev/null &
writer=$!
sleep 5 # beyond the ttl, in the middle of the transaction
ok "nobody gets the lock while a fenced transaction is open, though the lease is over" busy account
is "and its write is not to be seen yet" "$(sql 'SELECT balance FROM account')" 100
wait $writer
is "the next holder sees what the fenced transaction wrote" \
    "$("$HOLDFAST" run -w 20s account -- "$pg_bin/psql" -X -At -h 127.0.0.1 -p "$PG_PORT" -U postgres -c 'SELECT balance FROM account')" 90

like "a token that is over is refused" "$(sql "BEGIN; SELECT holdfast.fence('account', $token); COMMIT")" "is not held with token $token"
is "and nothing is written with it" "$(sql 'SELECT balance FROM account')" 90
token=$(take account 20s)
like "fence() refuses another isolation level" \
    "$(sql "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT holdfast.fence('account', $token); COMMIT")" "READ COMMITTED"
ok "an operator breaks it" "$HOLDFAST" break account --token "$token" --reason test
like "a lease that was broken is refused" "$(sql "SELECT holdfast.fence('account', $token)")" "is not held"

# A holder that was stopped before its transaction: its write comes too late and is refused.
token=$(take account 3s)
sleep 3.5
ok "another process has the lock meanwhile" "$HOLDFAST" run -n account -- true
like "the late write is refused" "$(sql "BEGIN; SELECT holdfast.fence('account', $token); UPDATE account SET balance = 0; COMMIT")" "is not held"
is "the balance is as the others left it" "$(sql 'SELECT balance FROM account')" 90

token=$(take pinned 60s)
sql "BEGIN; SELECT holdfast.fence('pinned', $token); SELECT pg_sleep(30); COMMIT" >/dev/null &
writer=$!
# awaits TRIES QUERY: succeeds as soon as the query returns t.
awaits() {
    local i
    for ((i = 0; i < $1; i++)); do
        [ "$(sql "$2")" != t ] || return 0
        sleep 0.1
    done
    return 1
}
awaits 100 "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
"$HOLDFAST" run -w 60s pinned -- true &
waiter=$!
awaits 100 "SELECT count(*) = 1 FROM holdfast.waiter WHERE name = 'pinned'"
due=$(sql "SELECT due FROM holdfast.waiter WHERE name = 'pinned'")
"$HOLDFAST" release --lease "$SCRATCH/pinned" >/dev/null
ok "behind a release within a fenced transaction the waiter asks again before its next poll" awaits 40 \
    "SELECT due <> $due AND holdfast.now_us() < $due - \"grace\" * 1000 FROM holdfast.waiter WHERE name = 'pinned'"
sql "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'" >/dev/null
wait $writer
wait $waiter
is "and gets the lock when the transaction has ended" $? 0

# ---- within()

sql "BEGIN; SELECT holdfast.within('report'); SELECT pg_sleep(1.5); COMMIT" >/dev/null &
writer=$!
sleep 0.6
ok "a lease cannot be had beside within()" busy report
wait $writer
token=$(take report 20s)
is "within() is false while a lease holds" "$(sql "SELECT holdfast.within('report')")" f
sql "BEGIN; SELECT holdfast.within('report'); SELECT pg_sleep(4); COMMIT" >"$SCRATCH/refused" &
writer=$!
sleep 1
"$HOLDFAST" release --lease "$SCRATCH/report" >/dev/null
ok "a transaction to which it was false keeps nobody out" "$HOLDFAST" run -n report -- true
ok "while it is open" kill -0 $writer
wait $writer
is "and true when it is free" "$(sql "SELECT holdfast.within('report')")" t

# ---- A crash

memory="$PG_URL?memory=1"
take durable 30s >/dev/null
take volatile 30s "$memory" >/dev/null
sql "UPDATE holdfast.setup SET grace_ms = 3000" "UPDATE holdfast_memory.setup SET grace_ms = 3000"
crash_postgres
launch_postgres || exit 70
ok "a durable hold survives a crash" busy durable
ok "its holder extends it" "$HOLDFAST" extend --lease "$SCRATCH/durable"
crashed=$(date +%s%N)
said=$("$HOLDFAST" run -n --connect-wait 1s --url "$memory" volatile -- true 2>&1)
like "after a crash a memory schema grants nothing for the grace" "$said" "may have lost data"
fails "and the holder is told that its lease is lost" "$HOLDFAST" extend --url "$memory" --lease "$SCRATCH/volatile"
ok "after the grace it grants again" "$HOLDFAST" run -w 10s --url "$memory" volatile -- true
ok "but not before" test $((($(date +%s%N) - crashed) / 1000000)) -ge 2500

# ---- A failover to a standby that lags

sql "UPDATE holdfast.setup SET grace_ms = 6000" # long enough for a slow machine to ask three times within it
primary_pid=$PG_PID primary_port=$PG_PORT
standby=$(mktemp -d /tmp/holdfast-postgres.XXXXXX)
[ "$(id -u)" -ne 0 ] || chown postgres "$standby"
"${pg_as[@]}" "$pg_bin/pg_basebackup" -h 127.0.0.1 -p "$PG_PORT" -U postgres -D "$standby/data" -R -X stream --checkpoint=fast --no-sync
PG_FOLDER=$standby PG_PORT=$((PG_PORT + 1))
launch_postgres || exit 70
both="postgres://postgres@127.0.0.1:$PG_PORT,127.0.0.1:$primary_port/postgres"

uuid() {
    printf '00000000-0000-0000-0000-%012d' "$1"
}
# attempt NAME KIND NUMBER [OWNER]: the attempt with that number asks for NAME and does not wait. Prints the reply of the server.
attempt() {
    local owner=NULL units=1 capacity=1048576
    [ -z "${4:-}" ] || owner="'$(uuid "$4")'"
    [ "$2" != w ] || units=$capacity
    [ "$2" != e ] || capacity=1
    sql "SELECT holdfast.acquire('$1', 0, 0, '$(uuid "$3")', 60000, 'b 1 h', '$2', $owner, $units, $capacity, false, false, 0, false,
        false, 0, NULL, 0, 0, '{500,5000,1000,10,5,100}')"
}
# convert NAME NUMBER TOKEN UP
convert() {
    sql "SELECT holdfast.convert('$1', '$(uuid "$2")', $3, $4)"
}
token_in() {
    cut -d, -f2 <<<"$1"
}

reader=$(PG_PORT=$primary_port attempt readers r 1)
PG_PORT=$primary_port attempt owned e 2 9 >/dev/null
writer=$(PG_PORT=$primary_port attempt downgraded w 3)
token=$(take replicated 60s "$both")
like "with the standby first in the URL the primary is found" "$token" '^[0-9]+$'
for _ in $(seq 100); do
    [ "$(sql "SELECT count(*) FROM holdfast.lock WHERE name = 'replicated'")" = 1 ] && break
    sleep 0.1
done
sql "ALTER SYSTEM SET primary_conninfo = ''" "SELECT pg_reload_conf()" >/dev/null
sleep 0.5
lost=$(take unreplicated 60s "$both")
like "a grant that no standby has" "$lost" '^[0-9]+$'
like "another reader that no standby has" "$(PG_PORT=$primary_port attempt readers r 4)" '^[{]1,'
PG_PORT=$primary_port sql "SELECT holdfast.release('owned', 0, 0, '$(uuid 2)', 0, 0, false, 'r', 0)" >/dev/null
like "the next holder behind an owner, that no standby has" "$(PG_PORT=$primary_port attempt owned e 5)" '^[{]1,'
like "a downgrade that no standby has" "$(PG_PORT=$primary_port convert downgraded 3 "$(token_in "$writer")" false)" '^[{]1,'
later=$(PG_PORT=$primary_port attempt downgraded r 6)
like "and a reader behind it" "$later" '^[{]1,'
kill -9 "$primary_pid"
"${pg_as[@]}" "$pg_bin/pg_ctl" promote -w -s -D "$standby/data"
like "no reader becomes the writer: another one may be lost" "$(convert readers 1 "$(token_in "$reader")" true)" '^[{]-6,'
like "no request joins a hold of its owner: its end may be lost" "$(attempt owned e 7 9)" '^[{]-6,'
like "after the failover nothing is granted for the grace" \
    "$("$HOLDFAST" run -n --connect-wait 1s --url "$both" unreplicated -- true 2>&1)" "may have lost data"
ok "a hold whose record arrived goes on" "$HOLDFAST" extend --url "$both" --lease "$SCRATCH/replicated"
fails "the holder of the lost one is told" "$HOLDFAST" extend --url "$both" --lease "$SCRATCH/unreplicated"
ok "after the grace the new primary grants" "$HOLDFAST" run -w 20s --url "$both" unreplicated -- true
like "a reader becomes the writer" "$(convert readers 1 "$(token_in "$reader")" true)" '^[{]1,'
upgraded=$(convert downgraded 3 "$(token_in "$writer")" true)
ok "with a token above that of a reader that was lost" test "$(token_in "$upgraded")" -gt "$(token_in "$later")"
rm -f "$SCRATCH/unreplicated"
next=$(take unreplicated 5s "$both")
ok "with a higher token" test "$next" -gt "$lost"
done_testing
