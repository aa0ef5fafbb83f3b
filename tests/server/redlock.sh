#!/usr/bin/env bash
# redlock.sh - the service on a majority of servers: leases, what the engine cannot do, and what happens without a majority.
. "$(dirname "$0")/serving.sh"

servers=()
for i in 1 2 3; do
    start_redis || exit 70
    servers[i]=$REDIS_PID ports[i]=$REDIS_PORT
    quorum=${quorum:+$quorum,}127.0.0.1:$REDIS_PORT
done
URL="redlock://$quorum?max_ttl=5s"
serve "local:$SCRATCH/table" --redlock-url "$URL" && BESIDE=$BASE || exit 70
serve "$URL" || exit 70
OTHER=$BASE
serve "$URL" || exit 70
# granted LOCK: servers tell their age in whole seconds, so instances that asked at different times count them from
# different moments on.
granted() {
    acquire "$1" '{"ttlMs":4500}'
    [ "$STATUS" = 201 ]
}
BASE=$OTHER until_true 30 granted other
result "servers that are old enough grant" $? "$REPLY"
until_true 30 granted first
result "at each instance by its own count" $? "$REPLY"
status "held by another is 409" 409 POST /v1/locks/first/leases '{"ttlMs":4500}'
status "extended" 200 PATCH "/v1/leases/$LEASE" '{"ttlMs":4500}'
BASE=$OTHER status "through another instance, too" 200 PATCH "/v1/leases/$LEASE" '{"ttlMs":4500}'
BASE=$OTHER status "and released there" 204 DELETE "/v1/leases/$LEASE"
status "then it is lost" 410 PATCH "/v1/leases/$LEASE" '{}'
acquire waited '{"ttlMs":4500}'
status "a wait ends with the lock, when that runs out" 201 POST /v1/locks/waited/leases '{"ttlMs":4500,"waitMs":10000}'
status "a semaphore is 501" 501 POST /v1/locks/permits/leases '{"ttlMs":4500,"kind":"semaphore","capacity":2}'
like "with the reason" "$REPLY" 'not offered by the engine redlock'
# An owner enters again (G7).
acquire owned '{"ttlMs":4500,"owner":"o"}'
token=$(jq -r .token <<<"$REPLY")
BASE=$OTHER status "an owner enters again" 201 POST /v1/locks/owned/leases '{"ttlMs":4500,"owner":"o"}'
said "under the same token" .token "$token"
status "another one does not" 409 POST /v1/locks/owned/leases '{"ttlMs":4500,"owner":"p"}'
status "a longer ttl than max_ttl is 400" 400 POST /v1/locks/long/leases '{"ttlMs":50000}'
ask POST /v1/locks/keyed/leases '{"ttlMs":4500}' -H 'Idempotency-Key: k'
is "a lease under a key" "$STATUS" 201
first=$(jq -r .leaseId <<<"$REPLY")
BASE=$OTHER ask POST /v1/locks/keyed/leases '{"ttlMs":4500}' -H 'Idempotency-Key: k'
is "is the same at another instance" "$(jq -r .leaseId <<<"$REPLY")" "$first"
status "another body is 422" 422 POST /v1/locks/keyed/leases '{"ttlMs":800}' -H 'Idempotency-Key: k'
ask DELETE "/v1/leases/$first"
BASE=$OTHER status "after its release the key is used up" 410 POST /v1/locks/keyed/leases '{"ttlMs":4500}' -H 'Idempotency-Key: k'
acquire contended '{"ttlMs":500}'
ask POST /v1/locks/contended/leases '{"ttlMs":4500,"waitMs":5000}' -H 'Idempotency-Key: waited'
first=$(jq -r .leaseId <<<"$REPLY")
ask POST /v1/locks/contended/leases '{"ttlMs":4500,"waitMs":5000}' -H 'Idempotency-Key: waited'
is "one that was waited for is told again, too" "$STATUS $(jq -r .leaseId <<<"$REPLY")" "201 $first"
status "past holds are asked for, too" 200 GET /v1/locks/first/history
status "the redlock route" 200 POST /api/locks/redlock/r '{"durationMs":100}'
BASE=$BESIDE status "also beside another engine" 200 POST /api/locks/redlock/r2 '{"durationMs":100}'
status "health" 200 GET /health
BASE=$BESIDE status "health of a service with a quorum beside its engine" 200 GET /health
said "tells of both" '.engine + " " + .redlock' "answers answers"
said "and for how many seconds it has run" '.uptime > 0 and .uptime < 600' true
uptime=$(jq .uptime <<<"$REPLY")
BASE=$BESIDE ask GET /health
said "which grows" ".uptime > $uptime" true
servers_up() { [ "$(curl -s "$BASE/metrics" | awk '$1 == "holdfast_quorum_servers_up" { print $2 }')" = "$1" ]; }
ok "the servers that are up are counted" servers_up 3

# ---- A service that is killed

acquire renewed '{"ttlMs":600,"autoRenew":true}'
acquire dead '{"ttlMs":4500}'
kill -KILL "$SERVICE_PID"
BASE=$OTHER status "after kill -9 the other instance extends its lease" 200 PATCH "/v1/leases/$LEASE" '{"ttlMs":4500}'
BASE=$OTHER status "and releases it" 204 DELETE "/v1/leases/$LEASE"
wait "$SERVICE_PID" 2>/dev/null
BASE=$OTHER status "what the dead one renewed is free when its ttl is over" 201 POST /v1/locks/renewed/leases '{"ttlMs":4500,"waitMs":3000}'
serve "$URL" || exit 70

# ---- Servers that fail

for i in 1 2 3; do redis-cli -p "${ports[i]}" config set maxmemory 1 >/dev/null; done
status "servers without memory make no majority" 503 POST /v1/locks/full/leases '{"ttlMs":4500}'
said "with a code" .code no_quorum
for i in 1 2 3; do redis-cli -p "${ports[i]}" config set maxmemory 0 >/dev/null; done
kill "${servers[1]}" && wait "${servers[1]}"
granted_again() {
    acquire "again$RANDOM" '{"ttlMs":4500}'
    [ "$STATUS" = 201 ]
}
ok "with two of three it goes on" until_true 20 granted_again
ok "one server less is seen" until_true 20 servers_up 2
kill "${servers[2]}" && wait "${servers[2]}"
is_down() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/health")" = 503 ]; }
ok "without a majority health is 503" until_true 20 is_down
BASE=$BESIDE until_true 20 is_down
result "so it is where the quorum stands beside the engine" $?
BASE=$BESIDE ask GET /health
said "which tells of whom" '.code + ": " + .engine' "redlock_silent: answers"
said "and has the uptime, too" '.uptime > 0' true
BASE=$BESIDE status "other requests may still be sent there" 200 GET /readyz
status "so is the redlock route" 503 POST /api/locks/redlock/r '{"durationMs":100}'
said "in its old words" .error 'Quorum not reached'
status "an acquire is 503 then" 503 POST /v1/locks/none/leases '{"ttlMs":4500}'
said "with a code" .code no_quorum
status "and asking who holds: never free" 503 GET /v1/locks/none
fails "no address of a server is in the answer" grep -q 127.0.0.1 <<<"$REPLY"
stop_service
is "it stops without a majority" $? 0
done_testing
