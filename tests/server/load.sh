#!/usr/bin/env bash
# load.sh - how much a lease over HTTP costs beside the library in the same run, and what a thousand slow-loris connections
# do to a good client. The numbers are printed; what is asserted has room for a busy machine.
. "$(dirname "$0")/serving.sh"
ulimit -n 8192
SECONDS_EACH=${SECONDS_EACH:-3}
start_redis || exit 70
for url in "local:$SCRATCH/table" "$REDIS_URL"; do
    engine=${url%%:*}
    serve "$url" --log none || exit 70
    direct=$("$HOLDFAST" -u "$url" bench --duration "${SECONDS_EACH}s" --json | jq .cycles_per_second)
    http=$(python3 "$ROOT/tests/server/load.py" pairs "${BASE##*:}" "$SECONDS_EACH")
    echo "# $engine: $(jq -r --argjson direct "$direct" '"\(.perSecond | floor) pairs a second over one connection, library \($direct | floor), ratio \(.perSecond / $direct * 10000 | floor / 10000); p50 \(.p50Ms | . * 100 | floor / 100) ms, p99 \(.p99Ms | . * 100 | floor / 100) ms"' <<<"$http")"
    ok "pairs over HTTP on $engine" jq -e '.perSecond > 100' <<<"$http"
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
