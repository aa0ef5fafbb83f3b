#!/usr/bin/env bash
# postgres_storage.sh - what a server's clock, disk and dead row versions do to leases: the clock steps (P14), the disk with the
# log is full (P15), and an old snapshot keeps every version of a busy lock's row (P8).
#
#     postgres_storage.sh [CYCLES]     so many cycles under the snapshot
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
cycles=${1:-6000}
library=$BUILD/tests/libtest-wrong-clock.so

# held NAME: succeeds as soon as somebody holds NAME.
held() {
    for _ in $(seq 500); do
        "$HOLDFAST" list 2>/dev/null | grep -q "^$1 " && return
        sleep 0.02
    done
    return 1
}
since() {
    echo $((($(date +%s%N) - $1) / 1000000))
}
token_of() {
    "$HOLDFAST" run -w 20s "$1" -- sh -c 'echo $HOLDFAST_TOKEN'
}

# stop_postgres: a clean end.
stop_postgres() {
    kill -INT "$PG_PID"
    wait "$PG_PID" 2>/dev/null
}

# ---- P14: the server's clock steps; only the server has the library, and its processes share the file "clock"

# shift_clock SECONDS: how far the wall clock is off from now on.
shift_clock() {
    python3 -c 'import struct, sys
with open(sys.argv[1], "r+b") as file:
    file.seek(8)
    file.write(struct.pack("<q", int(sys.argv[2]) * 1000000))' "$PG_FOLDER/clock" "$1"
}
cd "$SCRATCH" || exit 70
start_postgres || exit 70
stop_postgres
cd "$PG_FOLDER" || exit 70
as_before=("${pg_as[@]}")
pg_as+=(env "LD_PRELOAD=$library")
launch_postgres || exit 70
pg_as=("${as_before[@]}")
cd "$SCRATCH" || exit 70
export HOLDFAST_URL=$PG_URL

first=$(token_of clock)
shift_clock 3600
ok "P14: the server has the clock of the test" test "$(sql "SELECT clock_timestamp() > to_timestamp($(($(date +%s) + 3000)))")" = t
shift_clock 0
"$HOLDFAST" run --ttl 3s clock -- sh -c 'until [ -e enough ]; do sleep 0.05; done' &
holder=$!
held clock
shift_clock -3600
"$HOLDFAST" run -n clock -- true 2>/dev/null
is "P14: after a step back of an hour the holder holds" $? 75
sleep 3.5
"$HOLDFAST" run -n clock -- true 2>/dev/null
is "P14: beyond its ttl, too, because it renews" $? 75
touch enough
wait $holder
is "P14: and its command ran to its end" $? 0
second=$(token_of clock)
ok "P14: the next token is higher, though the clock is behind" test "$second" -gt "$first"
"$HOLDFAST" run --ttl 2s clock -- sleep 60 2>/dev/null &
holder=$!
held clock
shift_clock -7200
kill -9 $holder
wait $holder 2>/dev/null
begun=$(date +%s%N)
ok "P14: a hold of a dead process does not live an hour longer" "$HOLDFAST" run -w 30s clock -- true
ok "P14: but its ttl at most" test "$(since "$begun")" -lt 8000

"$HOLDFAST" run --ttl 4s clock -- sleep 60 2>/dev/null &
holder=$!
held clock
shift_clock 3600
third=$(token_of clock)
ok "P14: a step ahead ends holds early, as docs/postgres.md says" test "$third" -gt "$second"
wait $holder
is "P14: and the holder is told: 79" $? 79
shift_clock 0
ok "P14: tokens rise over all steps" test "$(token_of clock)" -gt "$third"
end_postgres
pg_started=()

# ---- P15: no room for the log

disk=$(namespaces -m)
if [ -z "$disk" ] || [ "$(id -u)" -ne 0 ]; then
    skip "P15: a full disk" "$(why_not)"
else
    start_postgres min_wal_size=2MB max_wal_size=2MB wal_recycle=off restart_after_crash=off || exit 70
    stop_postgres
    # A process whose mounts the servers share. In them the log has a small disk of its own.
    $disk setpriv --pdeathsig KILL sleep 600 &
    keeper=$!
    sleep 0.3
    inside=(nsenter -m -t $keeper)
    mv "$PG_FOLDER/data/pg_wal" "$PG_FOLDER/wal"
    mkdir "$PG_FOLDER/data/pg_wal"
    "${inside[@]}" mount -t tmpfs -o size=12m,mode=0700,uid="$(id -u postgres)" tmpfs "$PG_FOLDER/data/pg_wal"
    "${inside[@]}" cp -a "$PG_FOLDER/wal/." "$PG_FOLDER/data/pg_wal/"
    as_before=("${pg_as[@]}")
    pg_as=("${inside[@]}" "${as_before[@]}") # until the end of this part
    launch_postgres || exit 70
    export HOLDFAST_URL=$PG_URL
    before=$(token_of full)
    "$HOLDFAST" acquire -n --ttl 60s --lease lease kept >/dev/null
    "$HOLDFAST" run --ttl 40s --connect-wait 40s full -- sleep 6 2>said &
    holder=$!
    held full
    "${inside[@]}" sh -c "head -c 64m /dev/zero >$PG_FOLDER/data/pg_wal/filler" 2>/dev/null
    sql "CREATE TABLE filling AS SELECT generate_series(1, 300000)" >filling 2>&1
    for _ in $(seq 100); do kill -0 "$PG_PID" 2>/dev/null || break && sleep 0.1; done
    fails "P15: a server without room for its log ends" kill -0 "$PG_PID"
    "$HOLDFAST" run -n --connect-wait 500ms full -- true 2>/dev/null
    is "P15: then locks are unavailable, not free" $? 69
    "${inside[@]}" rm "$PG_FOLDER/data/pg_wal/filler"
    rm -f "$PG_FOLDER/data/postmaster.pid"
    launch_postgres || exit 70
    "$HOLDFAST" run -n kept -- true 2>/dev/null
    is "P15: with room again holds go on" $? 75
    ok "P15: and are extended" "$HOLDFAST" extend --lease lease
    wait $holder
    is "P15: a holder that renews lived through it" $? 0
    ok "P15: and the next token is higher" test "$(token_of full)" -gt "$before"
    kill $keeper
    pg_as=("${as_before[@]}")
fi
end_postgres
pg_started=()

# ---- P8: a snapshot that is older than all that a lock went through

if ! /usr/bin/python3 -c 'import psycopg2' 2>/dev/null; then
    skip "P8: an old snapshot" "python3-psycopg2 is not installed"
else
    start_postgres || exit 70
    HOLDFAST_URL=$PG_URL "$HOLDFAST" run -n first -- true
    said=$("$ROOT/tests/fault/postgres/postgres_snapshot.py" "host=127.0.0.1 port=$PG_PORT user=postgres dbname=postgres" "$cycles")
    echo "$said" | sed 's/^/# /'
    part=$(sed -n 's/^the rate at the end is \([0-9]*\) %.*/\1/p' <<<"$said")
    ok "P8: $cycles cycles under an old snapshot cost the server less than twice as much at the end" test "${part:-0}" -gt 50
fi
done_testing
