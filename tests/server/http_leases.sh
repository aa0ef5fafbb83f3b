#!/usr/bin/env bash
# http_leases.sh - leases over HTTP, on each engine: every status, idempotency, several instances, death, leaving, stopping.
. "$(dirname "$0")/serving.sh"

# held_by NAME: the token of its holder, as the command sees it.
held_by() {
    "$HOLDFAST" -u "$URL" show --json "$1" | jq -r '.[] | select(.role == "holder") | .token'
}
is_free() {
    [ -z "$(held_by "$1")" ]
}

basics() {
    status "a free lock is granted" 201 POST /v1/locks/a%2Fb/leases '{"ttlMs":20000,"label":"me"}'
    LEASE=$(jq -r .leaseId <<<"$REPLY")
    said "the token is a text" '.token | type' string
    said "the name was decoded once" .name a/b
    ok "the time left is not more than the ttl" jq -e '.expiresInMs > 15000 and .expiresInMs <= 20000' <<<"$REPLY"
    like "Location names the lease" "$HEAD" "Location: /v1/leases/$LEASE"
    is "the engine has it under that token" "$(held_by a/b)" "$(jq -r .token <<<"$REPLY")"

    status "a held lock is 409" 409 POST /v1/locks/a%2Fb/leases '{"ttlMs":20000}'
    like "as problem+json" "$HEAD" 'Content-Type: application/problem\+json'
    said "with a code" .code busy
    said "the holder, with its address" .holder.label "me @ 127.0.0.1"
    said "the place that one would have" .place 1
    ok "Retry-After is retryAfterMs in whole seconds, rounded up" test \
        "$(sed -n 's/^Retry-After: //p' <<<"$HEAD")" = "$(jq '(.retryAfterMs + 999) / 1000 | floor' <<<"$REPLY")"
    said "and the id of the request" .requestId "$(sed -n 's/^X-Request-Id: //p' <<<"$HEAD")"
    local began=$EPOCHREALTIME
    status "a wait that is over is 409" 409 POST /v1/locks/a%2Fb/leases '{"ttlMs":20000,"waitMs":400}'
    ok "after waitMs" awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a >= 0.4 && b - a < 4) }'

    status "a lease can be asked" 200 GET "/v1/leases/$LEASE"
    said "it tells the name" .name a/b
    status "extended" 200 PATCH "/v1/leases/$LEASE" '{"ttlMs":40000}'
    ok "it lasts longer" jq -e '.expiresInMs > 30000' <<<"$REPLY"
    status "an extension never shortens" 200 PATCH "/v1/leases/$LEASE" '{"ttlMs":1000}'
    ok "it lasts as long as before" jq -e '.expiresInMs > 30000' <<<"$REPLY"
    status "released" 204 DELETE "/v1/leases/$LEASE"
    ok "then it is free" is_free a/b
    status "a second release is 410" 410 DELETE "/v1/leases/$LEASE"
    status "so is an extension" 410 PATCH "/v1/leases/$LEASE" '{}'
    status "and a question" 410 GET "/v1/leases/$LEASE"
    status "what is no id is 404" 404 GET /v1/leases/AAAAAAAAAAAA
    status "the name may stand in the body" 201 POST /v1/leases '{"name":"in body","ttlMs":20000}'
    said "there too it is taken as it is" .name "in body"
}

# retries NAME LOW HIGH: the time of the last refusal.
retries() {
    ok "$1" jq -e ".status == 409 and .retryAfterMs > $2 and .retryAfterMs <= $3" <<<"$REPLY"
}
# When to come again: when as many holds have ended as the request needs.
retry_after() {
    for ttl in 30000 20000 50000 40000; do acquire readers "{\"kind\":\"read\",\"ttlMs\":$ttl}"; done
    acquire readers '{"kind":"write","ttlMs":20000}'
    retries "a writer comes again when the last reader ends" 40000 50000
    like "in whole seconds as well" "$HEAD" 'Retry-After: (4[1-9]|50)'
    curl -s -m 25 -X POST "$BASE/v1/locks/readers/leases" --json '{"kind":"write","waitMs":19000}' >/dev/null &
    local writer=$!
    ok "a writer waits" until_true 5 waiters_are readers 1
    acquire readers '{"kind":"read","ttlMs":20000}'
    retries "behind a waiting writer a reader comes again then, too" 40000 50000
    kill $writer
    wait $writer 2>/dev/null
    for ttl in 40000 20000 30000; do acquire permits "{\"capacity\":6,\"units\":2,\"ttlMs\":$ttl}"; done
    acquire permits '{"capacity":6,"ttlMs":20000}'
    retries "one permit: when the first hold ends" 10000 20000
    acquire permits '{"capacity":6,"units":3,"ttlMs":20000}'
    retries "three of them: when the second does" 20000 30000
    acquire permits '{"capacity":6,"units":6,"ttlMs":20000}'
    retries "all: when the last does" 30000 40000
}

# depth NAME: how often its holder entered.
depth() {
    curl -s "$BASE/v1/locks/$1" | jq -c '[.holders[].depth]'
}
# The same owner is granted what it holds; each level has a lease of its own (G7).
nesting() {
    local mine='{"ttlMs":20000,"owner":"job 7"}' outer inner token third
    acquire nested "$mine"
    outer=$LEASE token=$(jq -r .token <<<"$REPLY")
    status "the same owner enters again" 201 POST /v1/locks/nested/leases "$mine"
    inner=$(jq -r .leaseId <<<"$REPLY")
    said "under the same token" .token "$token"
    fails "with another lease" test "$outer" = "$inner"
    BASE=$OTHER status "also through another instance" 201 POST /v1/locks/nested/leases "$mine"
    third=$(jq -r .leaseId <<<"$REPLY")
    is "which makes a depth of three" "$(depth nested)" '[3]'
    status "another owner does not" 409 POST /v1/locks/nested/leases '{"ttlMs":20000,"owner":"job 8"}'
    status "nor somebody without one" 409 POST /v1/locks/nested/leases '{"ttlMs":20000}'
    status "a level is released by its own lease" 204 DELETE "/v1/leases/$outer"
    status "once" 410 DELETE "/v1/leases/$outer"
    status "another one by another instance" 204 DELETE "/v1/leases/$third"
    is "the rest is held" "$(depth nested)" '[1]'
    status "so others wait" 409 POST /v1/locks/nested/leases '{"ttlMs":20000,"owner":"job 8"}'
    status "the last level" 204 DELETE "/v1/leases/$inner"
    ok "frees it" is_free nested
    # Units are counted once.
    acquire nested-units '{"capacity":3,"units":2,"ttlMs":20000,"owner":"a"}'
    acquire nested-units '{"capacity":3,"units":2,"ttlMs":20000,"owner":"a"}'
    status "permits of an owner are counted once" 201 POST /v1/locks/nested-units/leases '{"capacity":3,"ttlMs":20000}'
    status "and are as many as they were" 409 POST /v1/locks/nested-units/leases '{"capacity":3,"ttlMs":20000}'
    # An owner that waits twice is let in twice.
    acquire nested-wait
    local first second
    curl -s -m 20 -X POST "$BASE/v1/locks/nested-wait/leases" --json '{"waitMs":15000,"ttlMs":20000,"owner":"w"}' >one &
    first=$!
    curl -s -m 20 -X POST "$OTHER/v1/locks/nested-wait/leases" --json '{"waitMs":15000,"ttlMs":20000,"owner":"w"}' >two &
    second=$!
    ok "two requests of an owner wait" until_true 5 waiters_are nested-wait 2
    ask DELETE "/v1/leases/$LEASE"
    wait $first $second
    is "and get in together" "$(jq -r .token one)" "$(jq -r .token two)"
    is "as one holder" "$(depth nested-wait)" '[2]'
    # Each level is renewed and ended by itself.
    acquire nested-auto '{"ttlMs":900,"autoRenew":true,"owner":"r"}'
    outer=$LEASE
    acquire nested-auto '{"ttlMs":900,"owner":"r"}'
    status "the level that is renewed" 204 DELETE "/v1/leases/$outer"
    ok "leaves the other to its time" until_true 4 is_free nested-auto
}
nesting_keys() {
    local mine='{"ttlMs":20000,"owner":"job 7"}' lease
    keyed() { ask POST "/v1/locks/$1/leases" "$3" -H "Idempotency-Key: $2"; }
    keyed nested-key n1 "$mine"
    lease=$(jq -r .leaseId <<<"$REPLY")
    keyed nested-key n1 "$mine"
    is "an owner's request under the same key is the same lease" "$STATUS $(jq -r .leaseId <<<"$REPLY")" "201 $lease"
    BASE=$OTHER keyed nested-key n1 "$mine"
    is "at another instance, too" "$STATUS $(jq -r .leaseId <<<"$REPLY")" "201 $lease"
    is "it goes no deeper" "$(depth nested-key)" '[1]'
    keyed nested-key n1 '{"ttlMs":20000,"owner":"job 8"}'
    is "another owner is another request" "$STATUS $(jq -r .code <<<"$REPLY")" "422 key_reused"
    keyed nested-key n1 '{"ttlMs":20000}'
    is "none as well" "$STATUS $(jq -r .code <<<"$REPLY")" "422 key_reused"
    keyed nested-key n2 "$mine"
    is "another key of the owner goes deeper" "$STATUS $(depth nested-key)" "201 [2]"
    status "released" 204 DELETE "/v1/leases/$lease"
    keyed nested-key n1 "$mine"
    is "that key is used up, although its owner still holds" "$STATUS $(jq -r .code <<<"$REPLY")" "410 key_ended"
    is "and nothing was taken" "$(depth nested-key)" '[1]'
}

refusals() {
    local body
    while read -r code body; do
        status "$body is $code" "$code" POST /v1/locks/refused/leases "$body"
    done <<'END'
400 {"ttlMs":0}
400 {"ttlMs":"1000"}
400 {"ttlMs":1.5}
400 {"waitMs":-1}
400 {"waitMs":99999999999}
400 {"kind":"mutex"}
400 {"units":2}
400 {"units":0,"capacity":2}
400 {"autoRenew":1}
400 {"label":7}
400 {"owner":7}
400 {"owner":""}
400 {"owner":"12345678901234567890123456789012345678901234567890123456789012345"}
400 {"owner":"a\nb"}
400 {"owner":"a\u0000b"}
400 {"name":"other"}
400 {"unknown":1}
400 {"ttlMs":1000,"ttlMs":2000}
400 [1]
400 {
END
    status "a label that is too long is 400" 400 POST /v1/locks/refused/leases "{\"label\":\"$(printf '%097d' 0)\"}"
    said "and says how long it may be" .detail "label: must have at most 96 bytes"
    status "a NUL in the body is 400" 400 POST /v1/locks/refused/leases '{"label":"a\u0000b"}'
    fails "in words of the service" grep -q JSON_ <<<"$REPLY"
    status "more units than the capacity is 422" 422 POST /v1/locks/refused/leases \
        '{"kind":"semaphore","units":3,"capacity":2}'
    status "an empty name is 404" 404 POST /v1/locks//leases '{}'
    status "a control character in a name is 400" 400 POST /v1/locks/a%01b/leases '{}'
    status "a NUL is 400" 400 POST /v1/locks/a%00b/leases '{}'
    status "a broken escape is 400" 400 POST /v1/locks/a%zzb/leases '{}'
    status "what is not UTF-8 is 400" 400 POST /v1/locks/a%ff/leases '{}'
    status "another media type is 415" 415 POST /v1/locks/a/leases '' -d '{}' -H 'Content-Type: text/plain'
    status "another method is 405" 405 PUT /v1/locks/a/leases '{}'
    like "with what is allowed" "$HEAD" 'Allow: POST'
    status "another path is 404" 404 GET /v2/nothing
    status "another kind of a name in use is 409" 201 POST /v1/locks/kinds/leases '{"kind":"read","ttlMs":20000}'
    status "a mismatch" 409 POST /v1/locks/kinds/leases '{"kind":"semaphore","capacity":3,"ttlMs":20000}'
    said "is told from busy" .code mismatch
    status "names of the service's own are 403" 403 POST /v1/locks/holdfast.idempotency%2Fx/leases '{}'
}

idempotency() {
    local first
    acquire idem '{"ttlMs":20000,"kind":"semaphore","capacity":5}'
    ask POST /v1/locks/idem/leases '{"ttlMs":20000,"kind":"semaphore","capacity":5}' -H 'Idempotency-Key: one'
    first=$(jq -r .leaseId <<<"$REPLY")
    ask POST /v1/locks/idem/leases '{"capacity":5,"kind":"semaphore","ttlMs":20000}' -H 'Idempotency-Key: one'
    is "the same key and body is the same lease" "$(jq -r .leaseId <<<"$REPLY")" "$first"
    BASE=$OTHER ask POST /v1/locks/idem/leases '{"ttlMs":20000,"kind":"semaphore","capacity":5}' -H 'Idempotency-Key: one'
    is "through another instance, too" "$(jq -r .leaseId <<<"$REPLY")" "$first"
    is "no further permit was taken" "$(held_by idem | wc -l)" 2
    status "another body is 422" 422 POST /v1/locks/idem/leases '{"ttlMs":20001,"kind":"semaphore","capacity":5}' -H 'Idempotency-Key: one'
    status "another name is 422" 422 POST /v1/locks/idem2/leases '{"ttlMs":20000,"kind":"semaphore","capacity":5}' -H 'Idempotency-Key: one'
    BASE=$OTHER status "also in another instance" 422 POST /v1/locks/idem/leases '{"ttlMs":20001}' -H 'Idempotency-Key: one'
    status "another key is another permit" 201 POST /v1/locks/idem/leases '{"ttlMs":20000,"kind":"semaphore","capacity":5}' -H 'Idempotency-Key: two'
    is "which makes three" "$(held_by idem | wc -l)" 3
    ask GET '/v1/locks?prefix=holdfast'
    said "records are not listed" '.locks | length' 0
    status "an empty key is 400" 400 POST /v1/locks/idem/leases '{}' -H 'Idempotency-Key;'
    # Two that wait under one key are one waiter.
    acquire shared
    curl -s -m 20 -X POST "$BASE/v1/locks/shared/leases" --json '{"waitMs":15000}' -H 'Idempotency-Key: w' >one &
    local one=$!
    curl -s -m 20 -X POST "$BASE/v1/locks/shared/leases" --json '{"waitMs":15000}' -H 'Idempotency-Key: w' >two &
    local two=$!
    ok "two requests under one key are one waiter" until_true 5 waiters_are shared 1
    sleep 0.3
    is "and stay one" "$(waiters shared)" 1
    ask DELETE "/v1/leases/$LEASE"
    wait $one $two
    is "both get the same lease" "$(jq -r .leaseId one)" "$(jq -r .leaseId two)"
}

# A key names one lease for its life, on every engine and through every instance.
key_ends() {
    local body='{"ttlMs":20000,"waitMs":3000}' lease began
    keyed() { ask POST "/v1/locks/$1/leases" "$3" -H "Idempotency-Key: $2"; }
    keyed used used "$body"
    lease=$(jq -r .leaseId <<<"$REPLY")
    local grants counted
    grants=$(grep -c 'event=granted name="used"' "$SERVICE_LOG")
    counted=$(curl -s "$BASE/metrics" | awk '$1 == "holdfast_acquired_total" { print $2 }')
    keyed used used "$body"
    keyed used used "$body"
    is "a lease that is told again" "$(jq -r .leaseId <<<"$REPLY")" "$lease"
    is "is no grant" "$(grep -c 'event=granted name="used"' "$SERVICE_LOG")" "$grants"
    is "and not counted as one" "$(curl -s "$BASE/metrics" | awk '$1 == "holdfast_acquired_total" { print $2 }')" "$counted"
    ask DELETE "/v1/leases/$lease"
    began=${EPOCHREALTIME/./}
    keyed used used "$body"
    is "after its release the key is used up" "$STATUS $(jq -r .code <<<"$REPLY")" "410 key_ended"
    like "which names the key" "$REPLY" 'Idempotency-Key used: '
    ok "at once" test $((${EPOCHREALTIME/./} - began)) -lt 2500000
    ok "and nothing is taken" is_free used
    BASE=$OTHER keyed used used "$body"
    is "so it is at another instance" "$STATUS" 410
    status "another key is granted" 201 POST /v1/locks/used/leases "$body" -H 'Idempotency-Key: unused'
    keyed used used "$body"
    is "it is used up also while another one holds" "$STATUS" 410
    keyed used-short short '{"ttlMs":300}'
    is "a short lease under a key" "$STATUS" 201
    ok "ends by itself" until_true 3 is_free used-short
    keyed used-short short '{"ttlMs":300}'
    is "which uses its key up, too" "$STATUS" 410
    # A duplicate that is reset does not end what the first answer gave.
    keyed used-twice twice '{"ttlMs":20000}'
    lease=$(jq -r .leaseId <<<"$REPLY")
    python3 - "${BASE##*:}" <<'END'
import socket, struct, sys
for _ in range(20):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    body = b'{"ttlMs":20000}'
    s.sendall(b"POST /v1/locks/used-twice/leases HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: twice\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
END
    # Each of them has its turn before this one; 409 says so, and that it may be asked again.
    its_turn() { keyed used-twice twice '{"ttlMs":20000}' && [ "$STATUS" != 409 ]; }
    until_true 10 its_turn
    is "duplicates that are reset leave the lease alone" "$STATUS $(jq -r .leaseId <<<"$REPLY")" "201 $lease"
    keyed used-auto auto '{"ttlMs":2000,"autoRenew":true}'
    lease=$(jq -r .leaseId <<<"$REPLY")
    keyed used-auto auto '{"ttlMs":2000,"autoRenew":true}'
    said "where it is renewed, it says so again" '.leaseId + " \(.autoRenew)"' "$lease true"
    BASE=$OTHER keyed used-auto auto '{"ttlMs":2000,"autoRenew":true}'
    said "elsewhere it does not" '.leaseId + " \(.autoRenew)"' "$lease false"
    ask DELETE "/v1/leases/$lease"
}

# The records are in the engine: a new instance knows them.
key_outlives() {
    serve "$URL" || return
    acquire_under() { ask POST "/v1/locks/outlived/leases" '{"ttlMs":20000}' -H 'Idempotency-Key: outlived'; }
    acquire_under
    local lease
    lease=$(jq -r .leaseId <<<"$REPLY")
    stop_service
    serve "$URL" || return
    acquire_under
    is "after a restart the same key is the same lease" "$(jq -r .leaseId <<<"$REPLY")" "$lease"
    ask DELETE "/v1/leases/$lease"
    stop_service
    serve "$URL" || return
    acquire_under
    is "and after its release used up" "$STATUS $(jq -r .code <<<"$REPLY")" "410 key_ended"
}

instances() {
    local lease
    acquire several '{"ttlMs":20000}'
    lease=$LEASE
    BASE=$OTHER status "another instance extends" 200 PATCH "/v1/leases/$lease" '{"ttlMs":30000}'
    BASE=$OTHER status "another instance releases" 204 DELETE "/v1/leases/$lease"
    status "the first one knows" 410 GET "/v1/leases/$lease"
    acquire handed
    curl -s -m 20 -X POST "$OTHER/v1/locks/handed/leases" --json '{"waitMs":15000,"ttlMs":20000}' >granted &
    local waiter=$!
    ok "a waiter at another instance stands in the queue" until_true 5 waiters_are handed 1
    ask DELETE "/v1/leases/$LEASE"
    wait $waiter
    ok "and gets the lock on release" jq -e .leaseId granted
    ok "for the ttl that it asked for, not for the short time of a handoff" jq -e '.expiresInMs > 10000' granted
    # Seeing and breaking.
    ask GET '/v1/locks?prefix=handed&state=held'
    said "the list shows it" '.locks[0].name' handed
    local token
    token=$(jq -r .token granted)
    status "breaking without a reason is 400" 400 DELETE "/v1/locks/handed/holder?token=$token"
    status "with another token 412" 412 DELETE "/v1/locks/handed/holder?token=1&reason=x"
    status "with the token and a reason 204" 204 DELETE "/v1/locks/handed/holder?token=$token&reason=it%20hangs"
    ok "then it is free" is_free handed
    status "the holder is told" 410 PATCH "/v1/leases/$(jq -r .leaseId granted)" '{}'
    # Of three holders of a semaphore exactly the named one is broken.
    for i in 1 2 3; do acquire trio "{\"ttlMs\":20000,\"capacity\":3,\"label\":\"number $i\"}"; done
    ask GET /v1/locks/trio
    local trio=$REPLY query
    token=$(jq -r '.holders[] | select(.label | startswith("number 2")).token' <<<"$trio")
    query="token=$token&host=$(jq -r '.holders[0].host' <<<"$trio")"
    status "a hold of another pid is not broken" 412 DELETE "/v1/locks/trio/holder?$query&pid=1&reason=x"
    status "nor one of another host" 412 DELETE "/v1/locks/trio/holder?token=$token&host=elsewhere&reason=x"
    status "a bad pid is 400" 400 DELETE "/v1/locks/trio/holder?$query&pid=x&reason=x"
    ask GET /v1/locks/trio
    said "so all three still hold" '.holders | length' 3
    status "the second one is broken by token, host and pid" 204 DELETE \
        "/v1/locks/trio/holder?$query&pid=$(jq -r '.holders[0].pid' <<<"$trio")&reason=x"
    ask GET /v1/locks/trio
    said "and the two others hold on" '[.holders[].label[:8]] | sort | join(", ")' 'number 1, number 3'
    ask GET '/v1/locks/nobody'
    said "a free lock says so" .free true
    for i in 1 2 3; do acquire "page$i"; done
    ask GET '/v1/locks?prefix=page&limit=2'
    said "a page has as many as asked for" '.locks | length' 2
    ask GET "/v1/locks?prefix=page&limit=2&cursor=$(jq -r .cursor <<<"$REPLY")"
    said "and the cursor leads on" '[.locks[].name] | join(" ")' page3
    status "a bad limit is 400" 400 GET '/v1/locks?limit=x'
    status "a bad state is 400" 400 GET '/v1/locks?state=x'
    status "an unknown parameter is 400" 400 GET '/v1/locks?limit=1&bogus=1'
    like "and named" "$REPLY" 'bogus: no such parameter'
    status "one that stands there twice is 400" 400 GET '/v1/locks?limit=1&limit=2'
    like "and named, too" "$REPLY" 'limit: is given twice'
}

leaving() {
    acquire left
    curl -s -m 60 -X POST "$BASE/v1/locks/left/leases" --json '{"waitMs":50000}' >/dev/null &
    local waiter=$!
    ok "a client waits" until_true 5 waiters_are left 1
    kill -KILL $waiter
    wait $waiter 2>/dev/null
    ok "killed, it is out of the queue within a second" until_true 1 waiters_are left 0
    exec {half}<>"/dev/tcp/127.0.0.1/${BASE##*:}"
    local body='{"waitMs":20000}'
    printf 'POST /v1/locks/left/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&"$half"
    ok "a client waits on a socket of its own" until_true 5 waiters_are left 1
    exec {half}>&-
    ok "closed, it is out of the queue within a second" until_true 1 waiters_are left 0
    python3 - "${BASE##*:}" >half 2>&1 <<'END' &
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
body = b'{"waitMs":15000}'
s.sendall(b"POST /v1/locks/left/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
s.shutdown(socket.SHUT_WR)
data = b""
while True:
    more = s.recv(65536)
    if not more:
        break
    data += more
print(data.decode().replace("\r", ""))
END
    local half_pid=$!
    ok "a client that half-closed waits" until_true 5 waiters_are left 1
    sleep 1.5
    is "and stays" "$(waiters left)" 1
    ask DELETE "/v1/leases/$LEASE"
    wait $half_pid
    like "it gets its answer" "$(<half)" '201 Created'
    local token
    token=$(held_by left)
    ask DELETE "/v1/locks/left/holder?token=$token&reason=done"
    # A grant for a client that has gone is given back.
    acquire gone
    for i in 1 2 3 4 5; do
        curl -s -m 60 -X POST "$BASE/v1/locks/gone/leases" --json '{"waitMs":50000}' >/dev/null &
        kills[i]=$!
    done
    ok "five wait" until_true 5 waiters_are gone 5
    kill -KILL "${kills[@]}"
    wait "${kills[@]}" 2>/dev/null
    ask DELETE "/v1/leases/$LEASE"
    ok "the lock that all of them left is free at once" until_true 1 is_free gone
}

renewing() {
    acquire renewed '{"ttlMs":600,"autoRenew":true}'
    sleep 1.5
    status "a lease with autoRenew outlives its ttl" 200 GET "/v1/leases/$LEASE"
    status "and is released" 204 DELETE "/v1/leases/$LEASE"
    acquire expired '{"ttlMs":300}'
    sleep 0.6
    status "one without does not" 410 PATCH "/v1/leases/$LEASE" '{}'
}

death() {
    local -a leases
    local i ended=0 extended=0
    for i in $(seq 1 100); do
        acquire "dead$i" '{"ttlMs":600000}'
        leases[i]=$LEASE
    done
    kill -KILL "$SERVICE_PID"
    wait "$SERVICE_PID" 2>/dev/null
    BASE=$OTHER
    for i in $(seq 1 100); do
        ask PATCH "/v1/leases/${leases[i]}" '{"ttlMs":700000}'
        extended=$((extended + (STATUS == 200)))
        ask DELETE "/v1/leases/${leases[i]}"
        ended=$((ended + (STATUS == 204)))
    done
    is "after kill -9 the other instance extends all leases" $extended 100
    is "and releases them" $ended 100
}

stopping() {
    serve "$URL" || return
    acquire stop '{"ttlMs":20000}'
    local kept=$LEASE
    acquire auto '{"ttlMs":20000,"autoRenew":true}'
    curl -s -m 20 -o stopped -w '%{http_code}' -X POST "$BASE/v1/locks/stop/leases" --json '{"waitMs":15000}' >stop_status &
    local waiter=$! began
    ok "a client waits" until_true 5 waiters_are stop 1
    began=${EPOCHREALTIME/./}
    kill -TERM "$SERVICE_PID"
    wait $waiter
    ok "SIGTERM: who waits has an answer within a second" test $((${EPOCHREALTIME/./} - began)) -lt 1000000
    is "which is 503" "$(<stop_status)" 503
    wait "$SERVICE_PID"
    is "it ends with 0" $? 0
    ok "within ten seconds" test $((${EPOCHREALTIME/./} - began)) -lt 10000000
    ok "a lease with autoRenew is released" is_free auto
    BASE=$OTHER status "another one is still there" 200 GET "/v1/leases/$kept"
    serve "$URL" || return
    acquire hung-up '{"ttlMs":20000,"autoRenew":true}'
    kill -HUP "$SERVICE_PID"
    wait "$SERVICE_PID"
    is "SIGHUP ends it as well with 0" $? 0
    ok "and gives back what it renewed" is_free hung-up
}

# Everything, on one engine: two instances of the service.
on_engine() {
    URL=$2
    echo "# on $1"
    serve "$URL" && OTHER=$BASE && serve "$URL" || { result "the service starts on $1" 1 && return; }
    basics
    retry_after
    nesting
    nesting_keys
    refusals
    idempotency
    key_ends
    instances
    leaving
    renewing
    death
    stopping
    key_outlives
}

# A lease whose only ACQUIRE was answered is released without a tombstone, which made each release and the acquire after it
# four times as dear. A lease under an Idempotency-Key may be asked for again, so its release leaves one.
without_tombstones() {
    local i
    URL=$REDIS_URL
    serve "$URL" --log none || exit 70
    for i in 1 2 3; do
        [ "$i" = 1 ] || is "nothing is left of release $((i - 1)) but the counter" \
            "$(redis-cli -p "$REDIS_PORT" --raw keys '*lean*' | sort | xargs)" "{lock:lean}:t"
        redis-cli -p "$REDIS_PORT" config resetstat >reset
        status "lease $i is granted" 201 POST /v1/locks/lean/leases '{"ttlMs":20000}'
        status "and released" 204 DELETE "/v1/leases/$(jq -r .leaseId <<<"$REPLY")"
    done
    is "a pair is two calls, which do seven commands inside" \
        "$(redis-cli -p "$REDIS_PORT" info commandstats | tr -d '\r' | sed -n 's/^cmdstat_\(fcall\|del\|get\|set\|time\|h[a-z]*\|z[a-z]*\|exists\):calls=\([0-9]*\).*/\1 \2/p' | sort | xargs)" \
        "del 1 fcall 2 get 2 set 2 time 1"
    status "a lease under a key" 201 POST /v1/locks/keyed/leases '{"ttlMs":20000}' -H "Idempotency-Key: once and released"
    status "is released" 204 DELETE "/v1/leases/$(jq -r .leaseId <<<"$REPLY")"
    is "and its attempt is refused from then on" "$(redis-cli -p "$REDIS_PORT" hlen '{lock:keyed}:w')" 1
    "$HOLDFAST" -u "$URL" acquire --ttl 20s shell >shell.lease && "$HOLDFAST" -u "$URL" release <shell.lease
    is "so it is with a lease of the command" "$(redis-cli -p "$REDIS_PORT" exists '{lock:shell}:w')" 0
    stop_service
}

start_redis || exit 70
without_tombstones
for engine in ${HF_SERVE_ENGINES:-local redis}; do
    case $engine in
    local) on_engine local "local:$SCRATCH/table" ;;
    redis) on_engine redis "$REDIS_URL" ;;
    esac
done
done_testing
