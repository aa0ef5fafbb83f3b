#!/usr/bin/env bash
# postgres_trouble.sh - what administrators and networks do to a database with locks: a standby that never answers, sessions that
# are ended, rows and tables that others have locked, a pooler with one session, timeouts and isolation of the role, crashes
# between a release and the grant that follows, and a schema that is dropped under a holder.
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
start_postgres wal_writer_delay=10s || exit 70
export HOLDFAST_URL=$PG_URL
"$HOLDFAST" run -n first -- true || exit 70 # makes the schema

# held NAME: succeeds as soon as somebody holds NAME.
held() {
    local i
    for ((i = 0; i < 300; i++)); do
        "$HOLDFAST" list 2>/dev/null | grep -q "^$1 " && return
        sleep 0.02
    done
    return 1
}
since() {
    echo $((($(date +%s%N) - $1) / 1000000))
}

# ---- P5: a commit that waits for a standby, and is cancelled, is no grant

sql "ALTER ROLE postgres SET client_min_messages = 'error'" # the warning about the commit is needed all the same
sql "ALTER SYSTEM SET synchronous_standby_names = 'nobody'" "SELECT pg_reload_conf()" >/dev/null
for _ in $(seq 100); do
    [ "$(sql "SHOW synchronous_standby_names")" = nobody ] && break
    sleep 0.05
done
for _ in $(seq 60); do
    sql "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'" >/dev/null
    sleep 0.05
done &
canceller=$!
"$HOLDFAST" run -w 2s --connect-wait 2s synchronous -- touch "$SCRATCH/granted" 2>"$SCRATCH/said"
code=$?
wait $canceller
ok "P5: no grant is believed that no standby confirmed" test ! -e "$SCRATCH/granted"
like "P5: the exit code says that the server is at fault" $code '^(69|75)$'
sql "ALTER SYSTEM RESET synchronous_standby_names" "SELECT pg_reload_conf()" "ALTER ROLE postgres RESET client_min_messages" >/dev/null
ok "P5: without that setting locks are granted again" "$HOLDFAST" run -w 20s synchronous -- true

# ---- P6: sessions that are ended

"$HOLDFAST" run --ttl 20s ended -- sleep 2 &
holder=$!
held ended
"$HOLDFAST" run -w 20s ended -- touch "$SCRATCH/next" &
waiter=$!
sleep 0.4
for _ in 1 2 3; do
    sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'holdfast/%'" >/dev/null
    sleep 0.3
done
wait $holder
is "P6: a holder whose session is ended goes on" $? 0
wait $waiter
is "P6: a waiter whose session is ended gets its turn" "$?$(test -e "$SCRATCH/next" && echo ' ran')" "0 ran"

# ---- P7: somebody's transaction has the row

ok "a lock with a row" "$HOLDFAST" run -n row -- true
sql "BEGIN; SELECT name FROM holdfast.lock WHERE name = 'row' FOR UPDATE; SELECT pg_sleep(3); COMMIT" >/dev/null &
blocker=$!
sleep 0.5
"$HOLDFAST" run -n --connect-wait 1s row -- true 2>"$SCRATCH/said"
is "P7: a lock whose row is blocked is unavailable, not busy" $? 69
begun=$(date +%s%N)
ok "P7: other names go on" "$HOLDFAST" run -n other -- true
echo "# another name took $(since "$begun") ms"
wait $blocker
ok "P7: and the blocked one afterwards" "$HOLDFAST" run -w 10s row -- true

# ---- P12: timeouts of the role

sql "CREATE ROLE impatient LOGIN" "ALTER ROLE impatient SET statement_timeout = '300ms'" "ALTER ROLE impatient SET lock_timeout = '100ms'" \
    "ALTER ROLE impatient SET idle_in_transaction_session_timeout = '100ms'" "ALTER ROLE impatient SET idle_session_timeout = '500ms'" \
    "GRANT USAGE ON SCHEMA holdfast TO impatient" "GRANT SELECT ON holdfast.setup TO impatient" \
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO impatient" >/dev/null
impatient=postgres://impatient@127.0.0.1:$PG_PORT/postgres
"$HOLDFAST" run -u "$impatient" --ttl 5s timeouts -- sleep 2.5 &
holder=$!
held timeouts
ok "P12: a waiter whose role has short timeouts gets its turn" "$HOLDFAST" run -u "$impatient" -w 20s timeouts -- true
wait $holder
is "P12: and the holder kept its lease" $? 0

# ---- P13 and a pooler with one session: many in a row, each alone

# crowd NAME URL ROUNDS: three processes take turns; nobody may meet another.
crowd() {
    local name=$1 url=$2 rounds=$3 i j pids=()
    rm -rf "$SCRATCH/inside" "$SCRATCH/overlap" "$SCRATCH/turns"
    for i in 1 2 3; do
        for ((j = 0; j < rounds; j++)); do
            "$HOLDFAST" run -u "$url" -w 60s --connect-wait 60s --ttl 10s "$name" -- bash -c '
                mkdir "$0/inside" 2>/dev/null || echo >>"$0/overlap"
                sleep 0.01
                rmdir "$0/inside"
                echo >>"$0/turns"' "$SCRATCH"
        done &
        pids+=($!)
    done
    wait "${pids[@]}"
    [ ! -e "$SCRATCH/overlap" ] && [ "$(wc -l <"$SCRATCH/turns")" -eq $((3 * rounds)) ]
}
sql "CREATE ROLE strict LOGIN SUPERUSER" "ALTER ROLE strict SET default_transaction_isolation = 'serializable'" >/dev/null
ok "P13: a role whose transactions are serializable excludes, too" crowd strict "postgres://strict@127.0.0.1:$PG_PORT/postgres" 5

# ---- P17: notifications that nobody sent, and statements that are cancelled, at any time

while :; do
    sql "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'holdfast/%'" \
        "SELECT pg_notify(channel, x) FROM holdfast.waiter, (VALUES (''), ('x'), ('0 0 0 0'), (repeat('1 ', 999)),
            (id || ' 9223372036854775807 9223372036854775807 1')) forged (x) WHERE channel IS NOT NULL" >/dev/null
    sleep 0.03
done &
disturber=$!
crowd disturbed "$PG_URL" 12
result "P17: three processes take turns while their statements are cancelled and notifications are forged" $? \
    "$(wc -l <"$SCRATCH/turns") turns$([ ! -e "$SCRATCH/overlap" ] || echo ', and two at once')"
kill $disturber
wait $disturber 2>/dev/null

if [ -x /usr/sbin/pgbouncer ]; then
    pooler_port=$((PG_PORT + 1000))
    cat >"$PG_FOLDER/pooler.ini" <<END
[databases]
postgres = host=127.0.0.1 port=$PG_PORT user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $pooler_port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 1
END
    chmod 644 "$PG_FOLDER/pooler.ini"
    "${pg_as[@]}" setpriv --pdeathsig KILL /usr/sbin/pgbouncer "$PG_FOLDER/pooler.ini" >"$SCRATCH/pooler.log" 2>&1 &
    pooler=$!
    for _ in $(seq 100); do
        "$pg_bin/pg_isready" -q -h 127.0.0.1 -p $pooler_port && break
        sleep 0.05
    done
    pooled=postgres://postgres@127.0.0.1:$pooler_port/postgres
    ok "P10: three processes behind a pooler with one session take turns" crowd pooled "$pooled" 4
    is "P10: and leave no advisory lock in it" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")" 0
    said=$("$HOLDFAST" run -n -u "$pooled?interop=hashtext" job -- true 2>&1)
    is "P10: interop= is refused behind a pooler" $? 78
    like "P10: with its reason" "$said" "pooler"
    kill "$pooler"
    wait "$pooler" 2>/dev/null
else
    skip "P10: a pooler" "PgBouncer is not installed"
fi

# ---- P2: a crash between a release and the grant that follows; the WAL of lazy commits is lost

overlaps=0
for round in 1 2 3; do
    rm -rf "$SCRATCH/inside" "$SCRATCH/overlap"
    for i in 1 2 3; do
        "$HOLDFAST" run -w 30s --ttl 3s "crash$round" -- bash -c '
            mkdir "$0/inside" 2>/dev/null || echo >>"$0/overlap"
            sleep 0.2
            rmdir "$0/inside"' "$SCRATCH" 2>/dev/null &
        pids[i]=$!
    done
    sleep 0.$((RANDOM % 5 + 2))
    crash_postgres
    launch_postgres || exit 70
    wait "${pids[@]}"
    [ ! -e "$SCRATCH/overlap" ] || overlaps=$((overlaps + 1))
done
is "P2: three crashes during handoffs, and nobody met another" $overlaps 0

# ---- P16: tables that are locked, and a schema that is dropped

sql "BEGIN; LOCK TABLE holdfast.lock; SELECT pg_sleep(2); COMMIT" >/dev/null &
blocker=$!
sleep 0.4
"$HOLDFAST" run -n --connect-wait 500ms table -- true 2>/dev/null
is "P16: LOCK TABLE makes locks unavailable" $? 69
wait $blocker
ok "P16: and then they are there again" "$HOLDFAST" run -w 10s table -- true
sql "VACUUM FULL holdfast.lock" >/dev/null
ok "P16: as after VACUUM FULL" "$HOLDFAST" run -w 10s table -- true
"$HOLDFAST" run --ttl 2s dropped -- sleep 15 2>/dev/null &
holder=$!
held dropped
sql "DROP SCHEMA holdfast CASCADE" >/dev/null
wait $holder
is "P16: the holder of a lock whose schema is dropped is stopped" $? 79
ok "P16: the next client makes the schema again" "$HOLDFAST" run -n dropped -- true
done_testing
