#!/usr/bin/env bash
# deadlocks.sh - `why` follows who waits for whom, and finds real deadlocks of two and of three processes.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
valid() { python3 "$ROOT/tests/lib/json_valid.py" "$ROOT/docs/json-schema.json" Why; }
pids=()

# hold FIRST SECOND: a process that holds FIRST and, once `go` exists, waits for SECOND.
hold() {
    "$HOLDFAST" run --label "has $1" "$1" -- sh -c "echo >held.$1; until [ -e go ]; do sleep 0.05; done; exec $HOLDFAST run -q $2 -- true" \
        2>>said &
    pids+=($!)
    eventually test -e "held.$1"
}
waits() { [ "$("$HOLDFAST" list --json | jq '[.[] | select(.role == "waiter")] | length')" -eq "$1" ]; }
over() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done; rm -f go held.*; pids=(); }

on_engine() {
    echo "# on $1"
    exits "$1: a lock that nobody holds is 0" 0 "$HOLDFAST" why a
    is "$1: which is said" "$said" '"a" is not held'
    is "$1: as JSON it is free" "$("$HOLDFAST" why --json a | jq -c '[.state, .circle, .chain]')" '["free",[],[]]'

    hold a b
    hold b c
    exits "$1: a held lock is 0" 0 "$HOLDFAST" why a
    like "$1: the holder is named, and that it waits for nothing" "$said" 'held by pid [0-9]+ on .* \(has a\), token [0-9]+, for .*which waits for nothing'
    "$HOLDFAST" run c -- sh -c 'echo >held.c; exec sleep 1000' 2>>said &
    pids+=($!)
    eventually test -e held.c
    echo >go
    ok "$1: two of three wait" eventually waits 2
    exits "$1: a chain with an end is no deadlock" 0 "$HOLDFAST" why a
    is "$1: it is followed to its end" "$("$HOLDFAST" why --json a | jq -c '[.chain[] | [.holder.name, .waitsFor]]')" \
        '[["a",["b"]],["b",["c"]],["c",[]]]'
    over

    hold a b
    hold b a
    echo >go
    ok "$1: two processes wait for each other" eventually waits 2
    exits "$1: a deadlock of two is 80" 80 "$HOLDFAST" why a
    like "$1: and is told" "$said" 'deadlock: the holder of "a" waits for "b", the holder of "b" waits for "a"'
    "$HOLDFAST" why --json b >why.json
    ok "$1: its JSON fits the schema" valid <why.json
    is "$1: and names the circle" "$(jq -c '[.state, .circle]' why.json)" '["deadlock",["b","a"]]'
    token=$("$HOLDFAST" show --json a | jq -r '.[0].token')
    exits "$1: one of the holds is revoked" 0 "$HOLDFAST" break a --token "$token" --reason deadlock
    like "$1: which break tells" "$said" "^revoked \"a\", token $token: pid [0-9]+ on .* \(has a\) had held it for "
    free_again() { "$HOLDFAST" why b; }
    ok "$1: then the others go on" eventually free_again
    over

    hold a b
    hold b c
    hold c a
    echo >go
    ok "$1: three processes wait in a circle" eventually waits 3
    exits "$1: a deadlock of three is 80" 80 "$HOLDFAST" why c
    is "$1: with all three in the circle" "$("$HOLDFAST" why --json c | jq -c .circle)" '["c","a","b"]'
    "$HOLDFAST" run -q c -- true 2>/dev/null &
    pids+=($!)
    ok "$1: one more waits from outside" eventually waits 4
    is "$1: it is not part of the circle" "$("$HOLDFAST" why --json a | jq -c '.circle | sort')" '["a","b","c"]'
    over
}

on_engine local
if why=$(missing_server redis); then
    result "on Redis # SKIP $why" 0
else
    start_redis || exit 70
    HOLDFAST_URL=$REDIS_URL
    on_engine redis
fi

# A semaphore whose other holder can go on is no deadlock.
HOLDFAST_URL=local:$SCRATCH/permits
"$HOLDFAST" run --capacity 2 pool -- sh -c "echo >held.p; until [ -e go ]; do sleep 0.05; done; exec $HOLDFAST run -q x -- true" &
pids+=($!)
eventually test -e held.p
"$HOLDFAST" run --capacity 2 pool -- sh -c 'echo >held.q; exec sleep 1000' &
pids+=($!)
eventually test -e held.q
"$HOLDFAST" run x -- sh -c "echo >held.x; until [ -e go ]; do sleep 0.05; done; exec $HOLDFAST run -q --capacity 2 pool -- true" &
pids+=($!)
eventually test -e held.x
echo >go
ok "both wait" eventually waits 2
exits "a permit that comes back breaks the circle: 0" 0 "$HOLDFAST" why pool
over
done_testing
