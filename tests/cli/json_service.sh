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
fits "the answer to an acquire" Lease .
lease=$(jq -r .leaseId <<<"$REPLY")
curl -s -m 20 -X POST "$BASE/v1/locks/job/leases" --json '{"waitMs":10000}' >waited &
waiter=$!
ok "a second one waits" until_true 5 waits job
ask GET /v1/locks/job
fits "a lock" Lock .
fits "the holder of a lock" Row '.holders[]'
fits "its waiter" Row '.waiters[]'
service=$(jq -cS '(.holders + .waiters)[] | del(.leftMs, .sinceMs)' <<<"$REPLY")
is "are the rows that the command prints" "$service" \
    "$("$HOLDFAST" -u "local:$SCRATCH/table" show --json job | jq -cS '.[] | del(.leftMs, .sinceMs)')"
ask GET /v1/locks
fits "the list of locks" LockList .
fits "its rows" Row '.locks[] | (.holders + .waiters)[]'
ask DELETE "/v1/leases/$lease"
wait $waiter
ok "the waiter gets it" jq -e '.leaseId' waited
ask GET /v1/locks/job/history
fits "the history of a lock" History .
fits "past holds" Hold '.holds[]'
service=$(jq -cS '.holds[] | del(.endedMs)' <<<"$REPLY")
is "are those that the command prints" "$service" \
    "$("$HOLDFAST" -u "local:$SCRATCH/table" history --json job | jq -cS '.[] | del(.endedMs)')"
ask GET /health
fits "the answer of /health" Health .
ask GET /readyz
fits "that of /readyz" Ready .
ask GET /livez
fits "that of /livez" Live .
ask GET /version
fits "that of /version" Version .
is "its engines are those that the command prints" "$(jq -c .engines <<<"$REPLY")" "$("$HOLDFAST" version --json | jq -c .engines)"
ask GET /v1/patterns
fits "that of /v1/patterns" Patterns .
ask GET /v1/leases/none
fits "a refusal" Problem .
ask GET /openapi.json
is "every schema of the OpenAPI document is one of docs/json-schema.json" "$(jq -S --slurpfile all "$ROOT/docs/json-schema.json" '
    .components.schemas | to_entries[] | (.value | walk(if type == "object" and has("$ref") then
        ."$ref" |= sub("#/components/schemas/"; "#/$defs/") else . end) | del(.properties.waitMs.maximum, .properties.ttlMs.default)) as $found
    | ($all[0]."$defs"[.key] | del(.properties.waitMs.maximum, .properties.ttlMs.default)) as $wanted
    | select($found != $wanted) | .key' <<<"$REPLY")" ""
REPLY=$(grep '^{' "$SERVICE_LOG")
fits "every line of the log" ServiceLogLine .
done_testing
