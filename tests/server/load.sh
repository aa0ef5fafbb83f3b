#!/usr/bin/env bash
# load.sh - how much a lease over HTTP costs beside the library in the same run, and what a thousand slow-loris connections
# do to a good client. The numbers are printed; what is asserted has room for a busy machine.
. "$(dirname "$0")/serving.sh"
ulimit -n 8192
SECONDS_EACH=${SECONDS_EACH:-3}
start_redis || exit 70

# What the service asks of the kernel for a request, on an engine that answers at once: one read, one write, one wait.
PAIRS=300
costs() {
    serve "local:$SCRATCH/counted" --log none || exit 70
    : >attached
    strace -f -c -o calls -p "$SERVICE_PID" 2>>attached &
    local tracer=$!
    until_true 10 grep -q attached attached || { kill "$tracer" && wait "$tracer"; return 1; }
    python3 "$ROOT/tests/server/load.py" count "${BASE##*:}" $PAIRS
    kill -INT "$tracer" && wait "$tracer"
    stop_service
}
# calls NAME: how many of them for a request, in hundredths.
calls() {
    awk -v name="$1" -v requests=$((2 * PAIRS)) '$NF == name { count = $4 } END { printf "%d\n", count * 100 / requests }' calls
}
if costs; then
    echo "# hundredths of a call for a request: $(for name in epoll_wait readv writev epoll_ctl futex write read; do printf '%s %s  ' $name "$(calls $name)"; done)"
    ok "a request is read at once" test "$(calls readv)" -le 110
    ok "its answer is written at once" test "$(calls writev)" -le 105
    ok "the loop waits once for it" test "$(calls epoll_wait)" -le 150
    ok "nothing is set up to be waited for" test "$(calls epoll_ctl)" -le 5
    ok "no other thread has part in it" test "$(calls futex)" -le 10
else
    result "what a request costs # SKIP strace: $(tail -n 1 attached)" 0
fi
for url in "local:$SCRATCH/table" "$REDIS_URL"; do
    engine=${url%%:*}
    serve "$url" --log none || exit 70
    direct=$("$HOLDFAST" -u "$url" bench --duration "${SECONDS_EACH}s" --json | jq .cyclesPerSecond)
    http=$(python3 "$ROOT/tests/server/load.py" pairs "${BASE##*:}" "$SECONDS_EACH")
    echo "# $engine: $(jq -r --argjson direct "$direct" '"\(.perSecond | floor) pairs a second over one connection, library \($direct | floor), ratio \(.perSecond / $direct * 10000 | floor / 10000); p50 \(.p50Ms | . * 100 | floor / 100) ms, p99 \(.p99Ms | . * 100 | floor / 100) ms"' <<<"$http")"
    # Beside shared memory a round trip over TCP is what counts, beside a server it is one more of a few.
    least=$([ "$engine" = local ] && echo 0.0003 || echo 0.03)
    ok "a pair over HTTP costs no more than it must on $engine" jq -e --argjson direct "$direct" --argjson least "$least" \
        '.perSecond / $direct >= $least' <<<"$http"
    for try in 1 2 3; do
        loris=$(python3 "$ROOT/tests/server/load.py" loris "${BASE##*:}" 1000 "$SECONDS_EACH")
        echo "# $engine: p99 $(jq -r '"\(.alone.p99Ms * 100 | floor / 100) ms alone, \(.beside.p99Ms * 100 | floor / 100) ms beside 1,000 slow-loris connections, ratio \(.ratio * 100 | floor / 100)"' <<<"$loris")"
        jq -e '.ratio <= 2' <<<"$loris" >/dev/null && break
    done
    ok "a good client's p99 beside 1,000 slow-loris connections is at most twice its own on $engine" jq -e '.ratio <= 2' <<<"$loris"
    stop_service
    is "the service ends well" $? 0
done
done_testing
