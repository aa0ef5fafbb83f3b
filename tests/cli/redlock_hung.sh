#!/usr/bin/env bash
# redlock_hung.sh - one of three servers hangs: run and list take no longer than on three healthy ones, also for a command
# that waited for its turn. In the moment in which it stops, commands that contend leave no gap and no hold on it (G39).
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
needs_server redis

all='' hung=
for _ in 1 2 3; do
    start_redis || exit 70
    all+=${all:+,}127.0.0.1:$REDIS_PORT hung=$REDIS_PID
done
export HOLDFAST_URL="redlock://$all?max_ttl=1s&ttl=1s"
ready() { [ "$("$HOLDFAST" show --json job | jq 'map(select(.counts)) | length')" = 3 ]; }
ok "three servers count" eventually ready

# least COMMAND...: the shortest of five times that it takes, in ms.
least() {
    local begin took least=100000
    for _ in 1 2 3 4 5; do
        begin=$(date +%s%3N)
        "$@" >/dev/null 2>&1 || least=0 # and then it is no time at all
        took=$(($(date +%s%3N) - begin))
        [ $took -ge $least ] || least=$took
    done
    echo "$least"
}
# turn: a command that waits behind another one.
turn() {
    "$HOLDFAST" run job -- sleep 0.3 &
    sleep 0.1
    "$HOLDFAST" run job -- true
    wait $!
}
alone=$(least "$HOLDFAST" run job -- true) listed=$(least "$HOLDFAST" list) turned=$(least turn)
kill -STOP "$hung"
# in_time WHAT MS BEFORE: it succeeded, and took at most 250 ms more than before; a reply that is waited for takes 500.
in_time() { result "$1: $2 ms, healthy $3 ms" $(($2 == 0 || $3 == 0 || $2 > $3 + 250)); }
in_time "a command" "$(least "$HOLDFAST" run job -- true)" "$alone"
in_time "a list" "$(least "$HOLDFAST" list)" "$listed"
in_time "a command that waited" "$(least turn)" "$turned"
kill -CONT "$hung"

# ---- A server that stops while five commands contend ----
hold='echo "B $EPOCHREALTIME" >>log; read -rt 0.02 <> <(:); echo "E $EPOCHREALTIME" >>log'
contend() { until [ -e over ]; do "$HOLDFAST" run job -- bash -c "$hold" 2>/dev/null || echo "failed $?" >>failed; done; }
# longest_gap: between the end of a hold and the next one, in ms.
longest_gap() { sort -k2 log | awk '$1 == "B" && last && $2 - last > gap { gap = $2 - last } $1 == "E" { last = $2 } END { printf "%d", gap * 1000 }'; }
# stop_once: five contenders, the server stops after a second and goes on when they are gone.
stop_once() {
    rm -f log over failed
    local pids=()
    for _ in 1 2 3 4 5; do contend & pids+=($!); done
    sleep 1
    kill -STOP "$hung"
    sleep 1
    touch over
    wait "${pids[@]}"
    kill -CONT "$hung"
}
for round in 1 2; do
    stop_once
    gap=$(longest_gap)
    result "round $round: $(grep -c B log) holds, the longest gap is $gap ms, the bar 200" $((gap > 200 || $(grep -c B log) < 20))
    result "round $round: no command failed" "$([ ! -e failed ]; echo $?)"
    ok "three servers count again" eventually ready
done

# ---- What a server that stopped was asked before ----
# The second command is granted by the two others. When the third goes on it executes both requests, the last one being
# the release; a hold that was not released there would last for nine seconds from then on.
# Both end before their connections are given up: after that no release could be sent.
export HOLDFAST_URL="redlock://$all?max_ttl=9s&ttl=9s&op_timeout=3s"
ok "three servers count for longer holds" eventually ready
"$HOLDFAST" run job -- sleep 0.3 &
first=$!
sleep 0.1
"$HOLDFAST" run -q job -- true &
second=$!
sleep 0.15
kill -STOP "$hung"
wait $first $second
kill -CONT "$hung"
left() { [ "$(redis_cli EXISTS lock:job)" != 0 ]; }
for ((i = 0; i < 300; i++)); do left || break; read -rt 0.01 <> <(:); done
ok "no hold is left on a server that had stopped" test $i -lt 300
done_testing
