#!/usr/bin/env bash
# other_locks.sh - the failures of other locks that docs/failures.md tells, each provoked with the real tool; and what
# Holdfast does in the same place.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/postgres.sh"

# ---- flock ----

flock job.lock sh -c 'sleep 60 & echo $! >child'
exits "flock: a child left in the background keeps the lock after its command has ended" 1 flock -n job.lock true
kill "$(cat child)"
ok "and gives it up only when it ends" eventually flock -n job.lock true
"$HOLDFAST" run job sh -c 'sleep 60 & echo $! >child' </dev/null
exits "holdfast run: the lock is free when its command has ended" 0 "$HOLDFAST" run -n job true
ok "although the child still runs" kill -0 "$(cat child)"
kill "$(cat child)"

# ---- pg_advisory_lock ----

needs_postgres
start_postgres || exit 70
program=$(cat <<'END'
SELECT pg_advisory_lock(7);
\! touch holds; while [ ! -e go ]; do sleep 0.05; done; touch worked
END
)
psql -X -q -h 127.0.0.1 -p "$PG_PORT" -U postgres -d postgres >/dev/null 2>&1 <<<"$program" &
worker=$!
ok "pg_advisory_lock: a program holds the lock and works" eventually test -e holds
is "its connection is cut" "$(sql "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'")" 1
free() { [ "$(sql "SELECT pg_try_advisory_lock(7)")" = t ]; }
ok "the next session has the lock" eventually free
touch go
wait $worker
ok "and the first program worked on, because nothing told it" test -e worked

rm -f holds go worked
HOLDFAST_URL=$PG_URL "$HOLDFAST" run --ttl 3s --grace 1s job sh -c \
    'touch holds; while [ ! -e go ]; do sleep 0.05; done; touch worked' 2>/dev/null &
worker=$!
ok "holdfast run on the same server: a program holds the lock and works" eventually test -e holds
token=$("$HOLDFAST" -u "$PG_URL" list --json | jq -r '.[0].token')
exits "its hold is taken away" 0 "$HOLDFAST" -u "$PG_URL" break job --token "$token" --reason test
wait $worker
is "its command is stopped (exit code 79)" $? 79
is "and it did not work on" "$(ls worked 2>/dev/null)" ""
done_testing
