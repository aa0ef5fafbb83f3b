#!/usr/bin/env bash
# soak.sh - mixed load on the service for SECONDS (20): its memory, descriptors, threads and its server's keys stay flat.
#
#     soak.sh [SECONDS [CURVES [STEPS]]]     CURVES: a file for the samples; STEPS: a second, as many as it can without
. "$(dirname "$0")/serving.sh"
needs_server redis

start_redis || exit 70
serve "$REDIS_URL" --max-patterns 200 || exit 70
output=$(python3 -B "$ROOT/tests/server/soak.py" "${BASE#http://}" "$SERVICE_PID" "$REDIS_SOCKET" "${1:-20}" "${2:-$SCRATCH/curves}" ${3:+"$3"} 2>&1)
result "what the service and its server keep does not grow" $? "$output"
grep '^# ' <<<"$output"
done_testing
