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
token=$(take account 600ms)
sql "BEGIN; SELECT holdfast.fence('account', $token); UPDATE account SET balance = balance - 10; SELECT pg_sleep(2.5); COMMIT" >/dev/null &
writer=$!
sleep 1.2 # beyond the ttl, in the middle of the transaction
ok "nobody gets the lock while a fenced transaction is open, though the lease is over" busy account
is "and its write is not to be seen yet" "$(sql 'SELECT balance FROM account')" 100
wait $writer
is "the next holder sees what the fenced transaction wrote" \
    "$("$HOLDFAST" run -w 5s account -- "$pg_bin/psql" -X -At -h 127.0.0.1 -p "$PG_PORT" -U postgres -c 'SELECT balance FROM account')" 90

like "a token that is over is refused" "$(sql "BEGIN; SELECT holdfast.fence('account', $token); COMMIT")" "is not held with token $token"
is "and nothing is written with it" "$(sql 'SELECT balance FROM account')" 90
token=$(take account 20s)
like "fence() refuses another isolation level" \
    "$(sql "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT holdfast.fence('account', $token); COMMIT")" "READ COMMITTED"
ok "an operator breaks it" "$HOLDFAST" break account --token "$token" --reason test
like "a lease that was broken is refused" "$(sql "SELECT holdfast.fence('account', $token)")" "is not held"

# A holder that was stopped before its transaction: its write comes too late and is refused.
token=$(take account 500ms)
sleep 0.7
ok "another process has the lock meanwhile" "$HOLDFAST" run -n account -- true
like "the late write is refused" "$(sql "BEGIN; SELECT holdfast.fence('account', $token); UPDATE account SET balance = 0; COMMIT")" "is not held"
is "the balance is as the others left it" "$(sql 'SELECT balance FROM account')" 90

# ---- within()

sql "BEGIN; SELECT holdfast.within('report'); SELECT pg_sleep(1.5); COMMIT" >/dev/null &
writer=$!
sleep 0.6
ok "a lease cannot be had beside within()" busy report
wait $writer
token=$(take report 20s)
is "within() is false while a lease holds" "$(sql "SELECT holdfast.within('report')")" f
"$HOLDFAST" release --lease "$SCRATCH/report" >/dev/null
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

primary_pid=$PG_PID primary_port=$PG_PORT
standby=$(mktemp -d /tmp/holdfast-postgres.XXXXXX)
[ "$(id -u)" -ne 0 ] || chown postgres "$standby"
"${pg_as[@]}" "$pg_bin/pg_basebackup" -h 127.0.0.1 -p "$PG_PORT" -U postgres -D "$standby/data" -R -X stream --checkpoint=fast --no-sync
PG_FOLDER=$standby PG_PORT=$((PG_PORT + 1))
launch_postgres || exit 70
both="postgres://postgres@127.0.0.1:$PG_PORT,127.0.0.1:$primary_port/postgres"
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
kill -9 "$primary_pid"
"${pg_as[@]}" "$pg_bin/pg_ctl" promote -w -s -D "$standby/data"
like "after the failover nothing is granted for the grace" \
    "$("$HOLDFAST" run -n --connect-wait 1s --url "$both" unreplicated -- true 2>&1)" "may have lost data"
ok "a hold whose record arrived goes on" "$HOLDFAST" extend --url "$both" --lease "$SCRATCH/replicated"
fails "the holder of the lost one is told" "$HOLDFAST" extend --url "$both" --lease "$SCRATCH/unreplicated"
ok "after the grace the new primary grants" "$HOLDFAST" run -w 10s --url "$both" unreplicated -- true
rm -f "$SCRATCH/unreplicated"
next=$(take unreplicated 5s "$both")
ok "with a higher token" test "$next" -gt "$lost"
done_testing
