#!/usr/bin/env bash
# leaving.sh - clients that go away or ask again at the worst moment, on each engine with a queue, at two instances.
. "$(dirname "$0")/serving.sh"
start_redis || exit 70
for url in "local:$SCRATCH/table" "$REDIS_URL"; do
    echo "# on ${url%%:*}"
    serve "$url" && OTHER=$BASE && serve "$url" || exit 70
    include "$ROOT/tests/server/leaving.py" "${BASE##*:}" "${OTHER##*:}" "$SERVICE_PID"
    is "no turn of a key is left over" "$("$HOLDFAST" -u "$url" list --json holdfast.idempotency/ | jq '[.[] | select(.name | endswith("/turn"))] | length')" 0
    stop_service
    is "the service ends well" $? 0
done
done_testing
