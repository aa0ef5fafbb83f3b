#!/usr/bin/env bash
# crowd.sh - 1,000 waiting clients, a third of which vanishes, and thousands of names, on each engine. With a sanitizer
# (HF_ROUGH) it is that one which looks for leaks, at the end; without, the service counts its heap.
. "$(dirname "$0")/serving.sh"
ulimit -n 8192
start_redis || exit 70
live=
if [ -z "${HF_ROUGH:-}" ]; then
    live=$SCRATCH/live
    printf '#!/bin/sh\nLD_PRELOAD=%q HF_LIVE_BYTES=%q exec %q "$@"\n' "$BUILD/tests/libtest-live-bytes.so" "$live" "$HOLDFAST" >counted
    chmod +x counted
    HOLDFAST=$SCRATCH/counted
fi
for url in "local:$SCRATCH/table" "$REDIS_URL"; do
    serve "$url" --log none || exit 70
    echo "# on ${url%%:*}"
    python3 -B "$ROOT/tests/server/crowd.py" "${BASE##*:}" "${CLIENTS:-1000}" "$SERVICE_PID" ${live:+"$live"} >crowd.tap 2>&1
    tests_done=$((tests_done + $(grep -cE '^(not )?ok ' crowd.tap)))
    grep -v '^1\.\.' crowd.tap
    is "it ran to its end on ${url%%:*}" "$(grep -c '^1\.\.' crowd.tap)" 1
    [ -z "$live" ] || include "$ROOT/tests/server/names.py" "${BASE##*:}" "$live"
    stop_service
    is "the service ends well on ${url%%:*}" $? 0
done
done_testing
