#!/usr/bin/env bash
# load.sh - how much a lease over HTTP costs beside the library in the same run, and what a thousand slow-loris connections
# do to a good client. The numbers are printed; what is asserted has room for a busy machine.
. "$(dirname "$0")/serving.sh"
ulimit -S -n 8192
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
    echo "# hundredths of a call for a request: $(for name in epoll_wait recvfrom ioctl writev epoll_ctl futex write read; do printf '%s %s  ' $name "$(calls $name)"; done)"
    ok "a request is read at once" test "$(calls recvfrom)" -le 110
    ok "nobody asks first how many bytes there are" test "$(calls ioctl)" -le 5
    ok "its answer is written at once" test "$(calls writev)" -le 105
    ok "the loop waits once for it" test "$(calls epoll_wait)" -le 150
    ok "nothing is set up to be waited for" test "$(calls epoll_ctl)" -le 5
    ok "no other thread has part in it" test "$(calls futex)" -le 10
else
    result "what a request costs # SKIP strace: $(tail -n 1 attached)" 0
fi
# 64 connections on a server, all asking at once: what one turn of the loop reads is sent together.
together() {
    serve "$REDIS_URL" --log none || exit 70
    : >attached
    strace -f -c -o calls -p "$SERVICE_PID" 2>>attached &
    local tracer=$!
    until_true 10 grep -q attached attached || { kill "$tracer" && wait "$tracer"; return 1; }
    python3 "$ROOT/tests/server/load.py" count "${BASE##*:}" 1280 64
    kill -INT "$tracer" && wait "$tracer"
    stop_service
}
if together; then
    total=$(awk '$NF == "total" { print $4 }' calls)
    echo "# $((total * 100 / 2560)) hundredths of a system call for a request of 64 connections on Redis"
    ok "at 64 connections on Redis a request is at most six system calls" test "$total" -le $((6 * 2560))
else
    result "what a request of 64 connections costs # SKIP strace: $(tail -n 1 attached)" 0
fi

# Waiting clients: what an open wait costs in memory.
WAITS=10000
if ulimit -n $((WAITS + 500)) 2>limit; then
    serve "$REDIS_URL" --log none --max-connections 12000 --max-per-address 12000 --max-waits $WAITS --max-waits-per-name $WAITS || exit 70
    waits=$(python3 "$ROOT/tests/server/load.py" waits "${BASE##*:}" $WAITS "$SERVICE_PID")
    echo "# $(jq -r '"\(.waiters) open waits: \(.megabytes | floor) MB"' <<<"$waits")"
    ok "10,000 open waits take less than 150 MB" jq -e --argjson all $WAITS '.waiters == $all and .megabytes < 150' <<<"$waits"
    stop_service
else
    result "10,000 open waits # SKIP the limit of open files: $(<limit)" 0
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
