#!/usr/bin/env bash
# json_service.sh - the service prints the same objects as the command: its answers and its log fit docs/json-schema.json.
. "$(dirname "$0")/../server/serving.sh"

# fits NAME DEFINITION FILTER: what the filter takes out of the last answer fits the definition.
fits() {
    local wrong
    wrong=$(jq -c "$3" <<<"$REPLY" | python3 "$ROOT/tests/lib/json_valid.py" "$ROOT/docs/json-schema.json" "$2" 2>&1)
    result "$1" $? "$wrong"$'\n'"$REPLY"
}

waits() { [ "$(curl -s "$BASE/v1/locks/$1" | jq '.waiters | length')" = 1 ]; }

serve "local:$SCRATCH/table?history=5" --log json || exit 70
ask POST /v1/locks/job/leases '{"ttlMs":20000,"label":"a \"label\""}'
fits "the answer to an acquire" acquireAnswer .
lease=$(jq -r .leaseId <<<"$REPLY")
curl -s -m 20 -X POST "$BASE/v1/locks/job/leases" --json '{"waitMs":10000}' >waited &
waiter=$!
ok "a second one waits" until_true 5 waits job
ask GET /v1/locks/job
fits "the holder of a lock" row '.holders[]'
fits "its waiter" row '.waiters[]'
service=$(jq -cS '(.holders + .waiters)[] | del(.leftMs, .sinceMs)' <<<"$REPLY")
is "are the rows that the command prints" "$service" \
    "$("$HOLDFAST" -u "local:$SCRATCH/table" show --json job | jq -cS '.[] | del(.leftMs, .sinceMs)')"
ask GET /v1/locks
fits "the list" row '.locks[] | (.holders + .waiters)[]'
ask DELETE "/v1/leases/$lease"
wait $waiter
ok "the waiter gets it" jq -e '.leaseId' waited
ask GET /v1/locks/job/history
fits "past holds" hold '.holds[]'
service=$(jq -cS '.holds[] | del(.endedMs)' <<<"$REPLY")
is "are those that the command prints" "$service" \
    "$("$HOLDFAST" -u "local:$SCRATCH/table" history --json job | jq -cS '.[] | del(.endedMs)')"
ask GET /health
fits "the answer of /health" health .
REPLY=$(grep '^{' "$SERVICE_LOG")
fits "every line of the log" serviceLogLine .
done_testing
