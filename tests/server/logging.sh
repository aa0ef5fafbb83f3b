#!/usr/bin/env bash
# logging.sh - the service's log on each engine: every line has a level, and the line of an end says whose request it was,
# how long the lease was held, and which lease.
. "$(dirname "$0")/serving.sh"

# lines EVENT NAME: the lines of an event of a lock, as JSON.
lines() {
    grep '^{' "$SERVICE_LOG" | jq -c --arg event "$1" --arg name "$2" 'select(.event == $event and .name == $name)'
}
has_line() {
    [ -n "$(lines "$1" "$2")" ]
}
# line TITLE EVENT NAME FILTER WANTED: there is exactly one such line, and jq finds this in it.
line() {
    until_true 3 has_line "$2" "$3"
    is "$1" "$(lines "$2" "$3" | jq -r "$4")" "$5"
}
# held TITLE EVENT NAME LOW HIGH: heldMs of that line is in between.
held() {
    ok "$1" jq -es "length == 1 and .[0].heldMs >= $4 and .[0].heldMs < $5" <<<"$(lines "$2" "$3")"
}
ALL='"\(.level) \(.token) \(.ttlMs) \(.outcome) \(.correlationId)"'

ends() {
    local token
    ask POST /v1/locks/ended/leases '{"ttlMs":20000}' -H 'X-Correlation-Id: taker'
    LEASE=$(jq -r .leaseId <<<"$REPLY") token=$(jq -r .token <<<"$REPLY")
    sleep 0.5
    ask PATCH "/v1/leases/$LEASE" '{"ttlMs":40000}' -H 'X-Correlation-Id: extender'
    line "an extension has a line" extended ended "$ALL" "info $token 40000 OK extender"
    held "which says how long it has been held" extended ended 500 5000
    ask DELETE "/v1/leases/$LEASE" '' -H 'X-Correlation-Id: giver'
    line "the line of a release has the id of the caller who released" released ended "$ALL" "info $token 20000 OK giver"
    held "and the time since the grant" released ended 500 5000
    is "the answer's request is named there" "$(lines released ended | jq -r .requestId)" \
        "$(sed -n 's/^X-Request-Id: //p' <<<"$HEAD")"
    ask DELETE "/v1/leases/$LEASE"
    is "a second release has none" "$(lines released ended | wc -l)" 1

    ask POST /v1/locks/silent/leases '{"ttlMs":20000}' -H 'X-Correlation-Id: taker'
    ask DELETE "/v1/leases/$(jq -r .leaseId <<<"$REPLY")"
    line "a caller who says no id is known by that of the grant" released silent .correlationId taker

    ask POST /v1/locks/renewed/leases '{"ttlMs":20000,"autoRenew":true}' -H 'X-Correlation-Id: taker'
    LEASE=$(jq -r .leaseId <<<"$REPLY") token=$(jq -r .token <<<"$REPLY")
    sleep 0.3
    ask DELETE "/v1/leases/$LEASE" '' -H 'X-Correlation-Id: giver'
    line "so it is with autoRenew, in one line" released renewed "$ALL" "info $token 20000 OK giver"
    held "with the time since the grant" released renewed 300 5000
}

expires() {
    local token
    ask POST /v1/locks/late/leases '{"ttlMs":300}' -H 'X-Correlation-Id: taker'
    LEASE=$(jq -r .leaseId <<<"$REPLY") token=$(jq -r .token <<<"$REPLY")
    sleep 0.9
    ask DELETE "/v1/leases/$LEASE" '' -H 'X-Correlation-Id: giver'
    line "a release that comes too late is a warning" expired_before_release late "$ALL" "warn $token 300 LOST giver"
    held "it was held until its end" expired_before_release late 200 301
    ask DELETE "/v1/leases/$LEASE"
    is "said once" "$(lines expired_before_release late | wc -l)" 1
}

breaks() {
    local token
    ask POST /v1/locks/taken/leases '{"ttlMs":20000}' -H 'X-Correlation-Id: taker'
    LEASE=$(jq -r .leaseId <<<"$REPLY") token=$(jq -r .token <<<"$REPLY")
    sleep 0.4
    ask DELETE "/v1/locks/taken/holder?token=$token&reason=it%20hangs" '' -H 'X-Correlation-Id: operator'
    line "the line of a break has the operator's id" broken taken "$ALL + .text" "warn $token 20000 OK operatorit hangs"
    held "and how long it was held" broken taken 400 5000
    ask DELETE "/v1/leases/$LEASE"
    is "its holder's release is 410, and not called expired" "$STATUS $(lines expired_before_release taken | wc -l)" "410 0"
}

# What another instance granted, or this one before a restart, is told with the time that the lease's id carries.
elsewhere() {
    local first=$BASE before=$SERVICE_LOG token lease
    ask POST /v1/locks/elsewhere/leases '{"ttlMs":20000}' -H 'Idempotency-Key: elsewhere'
    lease=$(jq -r .leaseId <<<"$REPLY") token=$(jq -r .token <<<"$REPLY")
    sleep 0.5
    serve "$URL" --log json || return
    ask POST /v1/locks/elsewhere/leases '{"ttlMs":20000}' -H 'Idempotency-Key: elsewhere'
    is "a lease that is told again has the same id" "$(jq -r .leaseId <<<"$REPLY")" "$lease"
    ask DELETE "/v1/leases/$lease" '' -H 'X-Correlation-Id: other'
    line "another instance tells of its release as well" released elsewhere "$ALL" "info $token 20000 OK other"
    held "with the time since the grant" released elsewhere 500 9000
    stop_service
    BASE=$first SERVICE_LOG=$before
}

# forge TEXT: the last lease's id with another time in it.
forge() {
    python3 -c 'import base64, sys
text = base64.urlsafe_b64decode(sys.argv[2] + "=" * (-len(sys.argv[2]) % 4)).decode().split(" ", 1)[1]
print(base64.urlsafe_b64encode((sys.argv[1] + text).encode()).decode().rstrip("="))' "$1" "$LEASE"
}
# The time in an id comes from the client: whatever it is, the lease is what counts.
forged() {
    local time i=0
    for time in '-9223372036854775808 ' '9223372036854775807 ' '99999999999999999999 ' '0 ' ''; do
        acquire "forged-$((++i))"
        status "an id with the time \"$time\" releases" 204 DELETE "/v1/leases/$(forge "$time")"
        line "with a line" released "forged-$i" '.heldMs // 0 | . < 5000' true
    done
    acquire forged
    status "what is no text of a lease is 404" 404 DELETE "/v1/leases/$(forge '1 x')"
}

# without_level: lines of the log that have none.
without_level() {
    grep '^{' "$SERVICE_LOG" | jq -c 'select(.level | IN("error", "warn", "info") | not)'
}

# undocumented: keys of the log that docs/json.md does not have, or has with another type.
undocumented() {
    local table
    table=$(awk '$0 == "## serve --log json" { inside = 1; next } /^## / { inside = 0 }
        inside && /^\| [a-zA-Z]+ \| (string|number) \|/ { print $2, $4 }' "$ROOT/docs/json.md")
    grep '^{' "$SERVICE_LOG" | jq -r 'to_entries[] | "\(.key) \(.value | type)"' | sort -u | grep -vxF "$table"
}

on_engine() {
    URL=$2
    echo "# on $1"
    serve "$URL" --log json --operation gone=/no/such/command || { result "the service starts on $1" 1 && return; }
    ends
    expires
    breaks
    elsewhere
    forged
    ask POST /v1/locks/held/leases "$STANDARD"
    ask POST /v1/locks/held/leases "$STANDARD"
    ask POST /api/locks/simple/job '{"operation":"gone"}'
    line "a command that cannot be started is an error" operation_failed job .level error
    line "a refusal is information" rejected held .level info
    is "every line has a level" "$(without_level)" ""
    is "every key is documented" "$(undocumented)" ""
    fails "no id of a lease is in it" grep -qF "$LEASE" "$SERVICE_LOG"
    stop_service
    serve "$URL" || return
    acquire text
    ask DELETE "/v1/leases/$LEASE"
    is "so has every line of text" "$(grep '^time=' "$SERVICE_LOG" | grep -vc '^time=[^ ]* level=\(error\|warn\|info\) event=')" 0
}

start_redis || exit 70
on_engine local "local:$SCRATCH/table"
on_engine redis "$REDIS_URL"
done_testing
