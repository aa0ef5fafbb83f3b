#!/usr/bin/env bash
# deadlock_watch.sh - the service finds real deadlocks of processes and of owners: metric, log, event stream. What only
# looks like one is none.
. "$(dirname "$0")/serving.sh"
pids=()

# hold FIRST SECOND: a process that holds FIRST and, once `go` exists, waits for SECOND.
hold() {
    "$HOLDFAST" -u "$URL" run "$1" -- sh -c "echo >held.$1; until [ -e go ]; do sleep 0.05; done; exec $HOLDFAST -u '$URL' run -q $2 -- true" 2>>said &
    pids+=($!)
    until_true 10 test -e "held.$1"
}
over() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done; rm -f go held.*; pids=(); }
deadlocks() { curl -s -m 5 "$BASE/metrics" | awk '$1 == "holdfast_deadlocks" { print $2 }'; }
deadlocks_are() { [ "$(deadlocks)" = "$1" ]; }
lines() { grep -c 'event=deadlock' "$SERVICE_LOG"; }
# snapshot: the last state that the event stream tells within a second and a half.
snapshot() { curl -sN -m 1.5 "$BASE/v1/events" | sed -n '/^event: snapshot/{n;s/^data: //p}' | tail -n 1; }
# later NAME BODY: a request that waits.
later() {
    curl -s -m 30 -X POST "$BASE/v1/locks/$1/leases" --json "$2" >/dev/null &
    pids+=($!)
}

on_engine() {
    echo "# on $1"
    URL=$2
    serve "$URL" --refresh 200ms || exit 70
    hold a b
    hold b c
    "$HOLDFAST" -u "$URL" run c -- sh -c 'echo >held.c; exec sleep 1000' 2>>said &
    pids+=($!)
    until_true 10 test -e held.c
    echo >go
    until_true 10 waiters_are c 1
    until_true 10 waiters_are b 1
    snapshot >seen
    is "$1: the stream says who waits for whom" "$(jq -c '[.rows[] | select(.waitsFor) | [.name, .waitsFor]]' seen)" '[["a",["b"]],["b",["c"]]]'
    is "$1: a chain with an end is no deadlock" "$(jq -c .deadlocks seen)" '[]'
    over

    hold a b
    hold b a
    echo >go
    ok "$1: a deadlock of two processes is in the metrics" until_true 15 deadlocks_are 1
    is "$1: and in the log, once" "$(lines)" 1
    curl -sN "$BASE/v1/events" >/dev/null & # from now on the engine is polled for a page
    local page=$!
    like "$1: with both holders" "$(grep event=deadlock "$SERVICE_LOG")" 'level=warn.*the holder of .*a.* \(token [0-9]+\) waits for .*b.*the holder of .*b.* waits for .*a'
    is "$1: and in the stream" "$(snapshot | jq -c .deadlocks)" '[["a","b"]]'
    sleep 1
    is "$1: the log does not repeat it" "$(lines)" 1
    ask GET /v1/locks/a
    status "$1: one hold is broken" 204 DELETE "/v1/locks/a/holder?token=$(jq -r '.holders[0].token' <<<"$REPLY")&reason=deadlock"
    ok "$1: then there is none" until_true 15 deadlocks_are 0
    over

    hold a b
    hold b c
    hold c a
    echo >go
    ok "$1: a deadlock of three processes" until_true 15 deadlocks_are 1
    is "$1: has all three" "$(snapshot | jq -c .deadlocks)" '[["a","b","c"]]'
    over
    ok "$1: their end is its end" until_true 15 deadlocks_are 0

    # Clients of the service are told apart by their owner.
    acquire x '{"ttlMs":30000,"owner":"one"}'
    acquire y '{"ttlMs":30000,"owner":"two"}'
    later y '{"ttlMs":30000,"waitMs":25000,"owner":"one"}'
    later x '{"ttlMs":30000,"waitMs":25000,"owner":"two"}'
    ok "$1: two owners that wait for each other are a deadlock" until_true 15 deadlocks_are 1
    over
    ok "$1: until one of them leaves" until_true 15 deadlocks_are 0

    acquire p
    acquire q
    later p '{"ttlMs":30000,"waitMs":25000}'
    later q '{"ttlMs":30000,"waitMs":25000}'
    until_true 10 waiters_are q 1
    until_true 10 waiters_are p 1
    snapshot >seen
    is "$1: strangers behind one service are none" "$(jq -c '[.deadlocks, [.rows[].waitsFor // empty]]' seen)" '[[],[]]'
    "$HOLDFAST" -u "$URL" why p >why.txt
    is "$1: the command says the same" $? 0
    over
    kill $page && wait $page 2>/dev/null
    stop_service
}

on_engine local "local:$SCRATCH/table"
if why=$(missing_server redis); then
    skip "on Redis" "$why"
else
    start_redis || exit 70
    on_engine redis "$REDIS_URL"
fi
done_testing
