#!/usr/bin/env bash
# admin_http.sh - health, metrics, the OpenAPI document, the event stream, the page, the routes that run an operation, and an
# engine that falls silent.
. "$(dirname "$0")/serving.sh"

start_redis || exit 70
serve "$REDIS_URL?op_timeout=300ms&history=5" --operation "date=/bin/sh -c env>$SCRATCH/ran" --operation fails=/bin/false \
    --operation gone=/no/such/command --metrics-depth 1 || exit 70

status "health" 200 GET /health
said "says what it is" '.status + " " + .service' 'ok distributed-lock'
status "livez" 200 GET /livez
status "readyz" 200 GET /readyz
status "readyz?verbose" 200 GET '/readyz?verbose'
said "has more" '.engine' answers
status "version" 200 GET /version
said "is that of the command" .version "$("$HOLDFAST" version --json | jq -r .version)"

# ---- The classic routes ----
status "an operation runs under a lock" 200 POST /api/locks/simple/printer '{"durationMs":100}'
said "and the answer is as it always was" 'tojson' '{"success":true,"resourceId":"printer","durationMs":100}'
curl -s -m 20 -X POST "$BASE/api/locks/simple/printer" --json '{"durationMs":1500}' >slow &
slow=$!
is_held() { [ "$(curl -s "$BASE/v1/locks/$1" | jq '.holders | length')" = 1 ]; }
ok "while it runs the lock is held" until_true 5 is_held printer
status "so that another one is 409" 409 POST /api/locks/simple/printer '{"durationMs":100}'
said "with the old words" .error 'Resource locked'
ok "and when to come again" jq -e '.retryAfterMs > 0' <<<"$REPLY"
like "also as a field" "$HEAD" 'Retry-After: [1-9]'
wait $slow
ok "the first one is done" jq -e .success slow
fails "and the lock is free" is_held printer
curl -s -m 20 -X POST "$BASE/api/locks/simple/left" --json '{"durationMs":15000}' >/dev/null &
slow=$!
ok "an operation runs" until_true 5 is_held left
kill -KILL $slow
wait $slow 2>/dev/null
is_free() { ! is_held "$1"; }
ok "its client gone, the sleep ends and the lock is free" until_true 2 is_free left
status "a command of the configuration runs" 200 POST /api/locks/simple/job '{"operation":"date"}'
like "with the token in its environment" "$(<ran)" 'HOLDFAST_TOKEN=[0-9]+'
status "one that fails is 502" 502 POST /api/locks/simple/job '{"operation":"fails"}'
said "with its exit code" .exitCode 1
status "one that is not there, too" 502 POST /api/locks/simple/job '{"operation":"gone"}'
status "one that the configuration does not have is 422" 422 POST /api/locks/simple/job '{"operation":"/bin/sh"}'
status "a bad duration is 400" 400 POST /api/locks/simple/job '{"durationMs":-1}'
status "without servers for Redlock that route is 501" 501 POST /api/locks/redlock/job '{}'

# ---- Metrics ----
acquire team%2Fx
acquire handed
curl -s -m 10 -X POST "$BASE/v1/locks/handed/leases" --json '{"waitMs":8000}' >handed &
waiter=$!
ok "one waits" until_true 5 waiters_are handed 1
ask DELETE "/v1/leases/$LEASE"
wait $waiter
acquire taken '{"ttlMs":900,"autoRenew":true}'
ask DELETE "/v1/locks/taken/holder?token=$(jq -r .token <<<"$REPLY")&reason=it%20hangs"
acquire late '{"ttlMs":200}'
sleep 0.7
ask DELETE "/v1/leases/$LEASE"
ask DELETE "/v1/leases/$LEASE"
ask GET /metrics
like "metrics are text of Prometheus" "$HEAD" 'text/plain; version=0.0.4'
metric() { awk -v name="$1" '$1 == name { print $2 }' <<<"$REPLY"; }
ok "grants are counted" test "$(metric holdfast_acquired_total)" -ge 5
is "the engine is up" "$(metric holdfast_engine_up)" 1
is "a hand-over is measured" "$(metric holdfast_hand_off_seconds_count)" 1
is "a lease that was taken away is lost by that cause" "$(metric 'holdfast_lost_total{cause="broken"}')" 1
is "one that ran out before its release, by another, once" "$(metric 'holdfast_lost_total{cause="expired"}')" 1
is "what ran out before its release has a line" "$(grep -c 'level=warn event=expired_before_release name="late" token=' "$SERVICE_LOG")" 1
is "what was taken away has one" "$(grep -c 'event=broken name="taken".*text="it hangs"' "$SERVICE_LOG")" 1
fails "without a quorum nothing is said of its servers" grep -q quorum_servers_up <<<"$REPLY"
is "a name's first part is a label when asked for" "$(metric 'holdfast_acquired_by_prefix_total{prefix="team"}')" 1
fails "and its rest is none" grep -q 'team/x' <<<"$REPLY"
malformed() {
    grep -vE '^# (HELP|TYPE) [a-z_]+ .+$|^[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+-]+$' <<<"$REPLY"
}
is "every line is well formed" "$(malformed)" ""
untyped() {
    awk '/^# TYPE/ { type[$3] = 1; next } /^#/ { next } { name = $1; sub(/\{.*/, "", name); base = name
        sub(/_(bucket|sum|count)$/, "", base); if (!type[name] && !type[base]) print name }' <<<"$REPLY"
}
is "every metric has a type" "$(untyped)" ""
if command -v promtool >/dev/null; then
    ok "promtool finds nothing wrong" promtool check metrics <<<"$REPLY"
    ok "nor with the rules" promtool check rules "$ROOT/packaging/serve/alerts.yml"
    sed "s|RULES|$ROOT/packaging/serve/alerts.yml|" "$ROOT/tests/server/alerts.yml" >alerts.test.yml
    ok "and they fire when they should" promtool test rules alerts.test.yml
else
    result "promtool finds nothing wrong # SKIP promtool is not installed" 0
fi
metrics_of_rules() {
    grep -ohE 'holdfast_[a-z_]+' "$ROOT"/packaging/serve/{alerts.yml,grafana.json} | sed -E 's/_bucket$//' | sort -u |
        while read -r name; do grep -q "^# TYPE $name " <<<"$REPLY" || echo "$name"; done
}
is "rules and board name only what is there, and what a quorum has" "$(metrics_of_rules)" holdfast_quorum_servers_up
for file in alerts.yml grafana.json; do
    ok "$file looks at the servers of a quorum" grep -q holdfast_quorum_servers_up "$ROOT/packaging/serve/$file"
done
acquire renewed '{"ttlMs":900,"autoRenew":true}'
renewals() {
    ask GET /metrics
    metric "holdfast_$1"
}
more_renewals() { [ "$(renewals renew_slack_seconds_count)" -ge 2 ]; }
ok "renewals of our own are measured as well" until_true 5 more_renewals
ok "with what was left of the ttl" awk -v sum="$(renewals renew_slack_seconds_sum)" -v count="$(renewals renew_slack_seconds_count)" \
    'BEGIN { exit !(sum / count > 0.2 && sum / count < 0.85) }'
# The library reports a renewal at once, and the service sees the new end within 100 ms.
counted_alike() { [ "$(renewals renewed_total)" = "$(renewals renew_slack_seconds_count)" ]; }
ok "and counted" until_true 5 counted_alike
ask DELETE "/v1/leases/$LEASE"

# ---- The past ----
acquire past
ask DELETE "/v1/leases/$LEASE"
status "past holds are there with an engine that keeps them" 200 GET /v1/locks/past/history
said "with their tokens" '.holds | length' 1
(
    serve "local:$SCRATCH/kept?history=5" || exit 70
    acquire past
    ask DELETE "/v1/leases/$LEASE"
    ask GET /v1/locks/past/history
    echo "$STATUS $(jq -r '.holds | length' <<<"$REPLY")"
    ask POST /api/locks/simple/printer '{"durationMs":50}'
    echo "$STATUS $REPLY"
    acquire printer
    ask POST /api/locks/simple/printer '{"durationMs":50}'
    echo "$STATUS $(jq -r .error <<<"$REPLY")"
    stop_service
) >on_local
is "on local, too" "$(sed -n 1p on_local)" "200 1"
is "so is an operation that runs under a lock" "$(sed -n 2p on_local)" '200 {"success":true,"resourceId":"printer","durationMs":50}'
is "and the refusal of a second one" "$(sed -n 3p on_local)" '409 Resource locked'

# ---- The OpenAPI document ----
ask GET /openapi.json
printf '%s' "$REPLY" >openapi.json
said "the document is OpenAPI 3" .openapi 3.1.0
wrong_paths() {
    jq -r '.paths | to_entries[] | .key as $path | .value | to_entries[] | [.key, $path] | @tsv' openapi.json |
        while IFS=$'\t' read -r method path; do
            ask "${method^^}" "$(sed 's/{[a-zA-Z]*}/x/g' <<<"$path")" '' -m 1
            [[ $STATUS != 404 || $path == */leases/* || $path == /assets/* ]] && [ "$STATUS" != 405 ] || echo "$method $path: $STATUS"
        done
}
is "every route of the document is there" "$(wrong_paths)" ""
is "every parameter of a path is described" "$(jq -r '.paths | to_entries[] | .key as $p | .value[] | . as $o | ($p | [scan("{([a-zA-Z]*)}")[0]]) - [$o.parameters[] | select(.in == "path").name] | .[]' openapi.json)" ""
is "operation ids are unique" "$(jq -r '[.paths[][].operationId] | group_by(.)[] | select(length > 1)[0]' openapi.json)" ""
# without_handler: operation ids whose handler, route_ID in snake case, is in no file of the service.
without_handler() {
    jq -r '.paths[][].operationId' openapi.json | while read -r id; do
        grep -q "^void route_$(sed 's/[A-Z]/_\L&/g' <<<"$id")(struct exchange \*x)\$" "$ROOT"/server/*.c || echo "$id"
    done
}
is "every operation id names its handler" "$(without_handler)" ""
is "the codes of problems are those of docs/serve.md" "$(jq -r '.components.schemas.Problem.properties.code.enum[]' openapi.json | sort)" \
    "$(sed -n '/^## Errors/,/^## Who/s/^| [0-9][0-9, ]* | \([a-z_, ]*\) |.*/\1/p' "$ROOT/docs/serve.md" | tr -s ', ' '\n' | sort -u)"
# off_limits: bounds of the document that the service does not have: one more or one less is not refused, or the bound is.
off_limits() {
    local request member low high body
    jq -r '. as $all | def resolved: if has("$ref") then ."$ref" | ltrimstr("#/") | split("/") as $p | $all | getpath($p) else . end;
        .components.schemas | to_entries[] | select(.key | endswith("Request")) | .key as $request | .value.properties | to_entries[] |
        .value |= resolved | select(.value.type == "integer") | [$request, .key, .value.minimum, .value.maximum] | @tsv' openapi.json |
        while IFS=$'\t' read -r request member low high; do
            for value in $((low - 1)) "$low" "$high" $((high + 1)); do
                body="{\"$member\":$value}"
                case $request in
                LeaseRequest) ask POST /v1/locks/bounds/leases "$body" ;;
                NamedLeaseRequest) ask POST /v1/leases "{\"name\":\"bounds\",${body#?}" ;;
                ExtendRequest) ask PATCH /v1/leases/x "$body" ;;
                OperationRequest) ask POST /api/locks/simple/bounds "$body" -m 0.3 ;;
                esac
                if [ "$value" -ge "$low" ] && [ "$value" -le "$high" ]; then
                    ! grep -q "$member: must be" <<<"$REPLY" || echo "$request: $body is refused"
                else
                    grep -q "$member: must be" <<<"$REPLY" || echo "$request: $body is not refused"
                fi
                [ "$STATUS" != 201 ] || ask DELETE "/v1/leases/$(jq -r .leaseId <<<"$REPLY")"
            done
        done
}
is "the bounds of the document are those of the service" "$(off_limits)" ""
is "every reference leads somewhere" "$(jq -r '. as $all | [.. | ."$ref"? // empty] | unique[] | ltrimstr("#/") | split("/") as $p | select($all | getpath($p) == null)' openapi.json)" ""

# table SECTION: "key type" lines of a table of docs/json.md.
table() {
    awk -v title="## $1" '$0 == title { inside = 1; next } /^## / { inside = 0 }
        inside && /^\| [a-zA-Z_]+ \| (string|number|boolean) \|/ { print $2, $4 }' "$ROOT/docs/json.md" | sort
}
is "the members of an acquire are those of docs/json.md" "$(table 'serve, body of an acquire')" \
    "$(jq -r '.components.schemas.LeaseRequest.properties |
        to_entries[] | "\(.key) \(.value.type | sub("integer"; "number"))"' openapi.json | sort)"
acquire described
is "so is its answer" "$(jq -r 'to_entries[] | "\(.key) \(.value | type)"' <<<"$REPLY" | sort)" "$(table 'serve, answer to an acquire')"
ask GET /health
is "and that of health" "$(jq -r 'to_entries[] | "\(.key) \(.value | type)"' <<<"$REPLY" | sort)" \
    "$(table 'serve, answer of /health' | grep -v '^redlock ')"

# ---- The event stream ----
is "HEAD of the stream has an end, and no body" "$(printf 'HEAD /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' |
    timeout 5 python3 -c 'import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(sys.stdin.buffer.read())
data = b""
while more := s.recv(65536):
    data += more
print(data.split(b" ")[1].decode(), len(data.split(b"\r\n\r\n", 1)[1]))' "${BASE##*:}")" "200 0"
curl -sN -m 15 "$BASE/v1/events" >stream &
stream=$!
ok "the stream begins with what is there" until_true 5 grep -q '^event: snapshot' stream
acquire seen
ok "a new lock is there within a second" until_true 1 grep -q '"event":"granted","name":"seen"' stream
ask DELETE "/v1/leases/$LEASE"
ok "its release too" until_true 1 grep -q '"event":"released","name":"seen"' stream
acquire short '{"ttlMs":1500}'
ok "one that runs out is told apart" until_true 5 grep -q '"event":"expired","name":"short"' stream
"$HOLDFAST" -u "$REDIS_URL" run --label cli by-command -- sleep 2 &
ok "what others take is seen as well" until_true 2 grep -q '"name":"by-command"' stream
wait $!
status "patterns" 200 GET /v1/patterns
said "have losses" '.lossesPerDay[-1].lost >= 1' true

(
    serve "local:$SCRATCH/patterns" --max-patterns 2 --refresh 100ms || exit 70
    curl -sN -m 15 "$BASE/v1/events" >/dev/null &
    pattern_of() { curl -s "$BASE/v1/patterns" | jq -e --arg name "$1" 'any(.locks[]; .name == $name)'; }
    for name in one two three; do
        acquire $name
        curl -s -m 10 -X POST "$BASE/v1/locks/$name/leases" --json '{"waitMs":8000}' >/dev/null &
        until_true 5 pattern_of $name >/dev/null
        ask DELETE "/v1/leases/$LEASE"
        wait $!
    done
    ask GET /v1/patterns
    jq -c '[(.locks | length), .dropped, any(.locks[]; .name == "three")]' <<<"$REPLY"
    curl -s "$BASE/metrics" | grep '^holdfast_patterns_dropped_total'
    stop_service
) >bounded
is "a name more than --max-patterns takes the place of another, and is counted" "$(sed -n 1p bounded)" '[2,1,true]'
is "also for Prometheus" "$(sed -n 2p bounded)" 'holdfast_patterns_dropped_total 1'

# ---- The page ----
status "the page" 200 GET /
like "is HTML" "$HEAD" 'text/html; charset=utf-8'
for file in "$ROOT"/server/web/*.{css,js,svg}; do
    curl -s "$BASE/assets/${file##*/}" >asset
    ok "${file##*/} is that of the tree" cmp asset "$file"
done
curl -s "$BASE/" >page
is "the page takes nothing from elsewhere" "$(grep -oE '(src|href)="[^"]*"' page | grep -vE '"(/assets/|#)')" ""
fails "and has no script or style of its own in it" grep -qE '<style|style=|onclick|<script>' page
status "another asset is 404" 404 GET /assets/nothing.js

# ---- An engine that does not answer: what was sent is in doubt ----
answers() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/health")" = 200 ]; }
# doubted NAME METHOD PATH [BODY]: 504 while the server is stopped. 503 is right, too, if the connection was just being
# dialled again: then nothing was sent, and it is tried once more.
doubted() {
    local name=$1
    shift
    for _ in 1 2 3; do
        kill -STOP "$REDIS_PID"
        ask "$@"
        kill -CONT "$REDIS_PID"
        until_true 10 answers || result "it comes back" 1
        [ "$STATUS" = 503 ] || break
    done
    is "$name" "$STATUS $(jq -r .code <<<"$REPLY")" "504 in_doubt"
}
acquire doubted '{"ttlMs":60000}'
doubted "an acquire without an answer is 504" POST /v1/locks/in-doubt/leases '{"ttlMs":20000}'
doubted "so is an extension" PATCH "/v1/leases/$LEASE" '{}'
doubted "a question" GET "/v1/leases/$LEASE"
doubted "taking away" DELETE "/v1/locks/doubted/holder?token=1&reason=x"
doubted "and a release" DELETE "/v1/leases/$LEASE"
redis-cli -p "$REDIS_PORT" config set maxmemory 1 >/dev/null
status "a server without memory is 507" 507 POST /v1/locks/full/leases '{"ttlMs":20000}'
said "with a code" .code full
redis-cli -p "$REDIS_PORT" config set maxmemory 0 >/dev/null

# ---- An engine that falls silent ----
acquire renewed '{"ttlMs":900,"autoRenew":true}'
kill -STOP "$REDIS_PID"
# A machine with much else to do may be late once; a service that waits for the engine is late each time.
silent_in_time() {
    local took
    took=$(milliseconds curl -s -m 5 "$BASE/health")
    [ "$took" -ge 200 ] && [ "$took" -lt 800 ]
}
ok "a silent engine: health has its answer after op_timeout" until_true 5 silent_in_time
status "which is 503" 503 GET /health
status "asking who holds is 503 or 504, never free" 503 GET /v1/locks/seen
status "livez is not concerned" 200 GET /livez
ask POST /v1/locks/silent/leases '{}'
like "an acquire is 503 or 504" "$STATUS" '^50[34]$'
fails "and no address is told" grep -q "$REDIS_PORT" <<<"$REPLY"
ok "the stream says so within two seconds" until_true 2 grep -q '^event: silence' stream
ok "what cannot be renewed ends meanwhile" until_true 5 grep -q 'event=lost name="renewed"' "$SERVICE_LOG"
kill -CONT "$REDIS_PID"
ok "it comes back by itself" until_true 10 answers
ask GET /metrics
is "a lease that could not be renewed is lost by the engine" "$(metric 'holdfast_lost_total{cause="engine"}')" 1
kill $stream
wait $stream 2>/dev/null
kill -KILL "$REDIS_PID"
wait "$REDIS_PID" 2>/dev/null
status "a dead engine is 503" 503 GET /health
stop_service
is "without an engine it still stops" $? 0

# ---- The unit ----
mkdir units
for unit in service socket; do
    sed "s|/usr/bin/holdfast|$HOLDFAST|" "$ROOT/packaging/serve/holdfast-serve.$unit" >"units/holdfast-serve.$unit"
done
verify() { systemd-analyze verify --man=no --recursive-errors=no "$SCRATCH/units/holdfast-serve.service" 2>&1; }
is "systemd finds nothing to complain about in the unit" "$(verify; echo $?)" 0
done_testing
