#!/usr/bin/env bash
# numbers.sh - what the service says about the past is true: every lease that it granted is counted once as released, lost or
# held, also if the service slept over its end or its release got no answer, a client that never comes back is logged, the page's past has exact times, and a holder is its client, not the service.
. "$(dirname "$0")/serving.sh"

metric() { curl -s -m 5 "$BASE/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
lost() { curl -s -m 5 "$BASE/metrics" | awk '/^holdfast_lost_total/ { sum += $2 } END { print sum }'; }
held() { curl -s -m 5 "$BASE/v1/locks?limit=1000" | jq '[.locks[].holders[]] | length'; }
lines() { grep '^{' "$SERVICE_LOG" | jq -c --arg event "$1" --arg name "$2" 'select(.event == $event and .name == $name)'; }
# past NAME: the changes of a lock that a new page is sent.
past() { timeout 1 curl -sN "$BASE/v1/events" | sed -n 's/^data: \({"changes.*\)/\1/p' | head -n 1 | jq -c --arg name "$1" '.changes[] | select(.name == $name)'; }

# Clients that release, extend, come too late, never come back, are broken, or are renewed by the service, in any order.
mixed() {
    local i body name
    RANDOM=$1
    for i in $(seq 120); do
        name=mixed-$((RANDOM % 90))
        body="{\"ttlMs\":$((200 + RANDOM % 500)),\"autoRenew\":$([ $((RANDOM % 6)) = 0 ] && echo true || echo false)}"
        acquire $name "$body"
        [ -n "$LEASE" ] || continue
        case $((RANDOM % 6)) in
            0 | 1) ask DELETE "/v1/leases/$LEASE" ;;
            2) ask PATCH "/v1/leases/$LEASE" '{"ttlMs":700}' ;;
            3) ask DELETE "/v1/locks/$name/holder?token=$(jq -r .token <<<"$REPLY")&reason=x" ;;
            4) echo "$LEASE" >>late ;;
        esac
    done
    while read -r lease; do ask DELETE "/v1/leases/$lease"; done <late
    ask POST /api/locks/simple/mixed-run '{"durationMs":20}'
}
sums_up() {
    local acquired released lost leases held elsewhere
    acquired=$(metric holdfast_acquired_total) released=$(metric holdfast_released_total) lost=$(lost) held=$(held)
    elsewhere=$(metric holdfast_ended_elsewhere_total) leases=$(metric holdfast_leases)
    echo "# $acquired acquired, $released released, $lost lost, $leases held, $held of them in the engine, $elsewhere ended elsewhere" >sum
    [ "$acquired" = $((released + lost + leases)) ] && [ "$leases" = "$held" ] && [ "$elsewhere" = 0 ]
}
# The service does not run while two leases end: one that nobody touches, and one whose client comes too late.
sleeps_over_ends() {
    acquire overslept '{"ttlMs":300}'
    acquire overslept-late '{"ttlMs":300}'
    kill -STOP "$SERVICE_PID"
    sleep 0.8
    kill -CONT "$SERVICE_PID"
    ask DELETE "/v1/leases/$LEASE"
    is "a lease whose end the service slept over has a line" "$(until_true 3 eval '[ -n "$(lines expired overslept)" ]' && echo yes)" yes
    is "and so has one whose client came late" "$(lines expired overslept-late | wc -l)" 1
}
# The server does not answer a release, and carries it out later.
releases_unanswered() {
    acquire unanswered '{"ttlMs":3000,"autoRenew":true}'
    kill -STOP "$REDIS_PID"
    status "a release without an answer is in doubt" 504 DELETE "/v1/leases/$LEASE"
    kill -CONT "$REDIS_PID"
    freed() { [ "$(waiters unanswered)" = 0 ] && [ "$(held)" = 0 ]; }
    ok "the lock is free once the server answers" until_true 2 freed
}

on_engine() {
    local token
    echo "# on $1"
    rm -f late
    serve "$2" --log json || { result "the service starts on $1" 1 && return; }
    ask POST /v1/locks/abandoned/leases '{"ttlMs":1000,"label":"a cook"}' -H 'X-Correlation-Id: taker'
    token=$(jq -r .token <<<"$REPLY")
    ask GET /v1/locks/abandoned
    said "a holder is shown as its client" '.holders[0].label' 'a cook @ 127.0.0.1'
    expired() { [ -n "$(lines expired abandoned)" ]; }
    ok "a lease whose client never comes back has a line" until_true 3 expired
    is "with its client" "$(lines expired abandoned | jq -r '"\(.level) \(.token) \(.label) \(.caller) \(.correlationId) \(.outcome)"')" "warn $token a cook 127.0.0.1 taker LOST"
    ok "and how long it was held" jq -e '.heldMs >= 600 and .heldMs <= 1020' <<<"$(lines expired abandoned)"
    is "and is counted" "$(metric 'holdfast_lost_total{cause="expired"}')" 1

    # A lease that another instance releases or extends is not lost.
    local mine=$BASE log=$SERVICE_LOG
    serve "$2" || return
    local other=$BASE
    BASE=$mine
    acquire elsewhere '{"ttlMs":2500}'
    BASE=$other
    ask DELETE "/v1/leases/$LEASE"
    BASE=$mine
    acquire longer '{"ttlMs":2500}'
    BASE=$other
    ask PATCH "/v1/leases/$LEASE" '{"ttlMs":5000}'
    stop_service
    BASE=$mine SERVICE_LOG=$log
    elsewhere() { [ "$(metric holdfast_ended_elsewhere_total)" = 1 ]; }
    ok "a release through another instance is counted as such" until_true 4 elsewhere
    is "it is no loss" "$(lines expired elsewhere)" ""
    ok "nor is what another instance extended" until_true 9 eval '[ -n "$(lines expired longer)" ]'
    ok "until its own end" jq -e '.heldMs >= 4800' <<<"$(lines expired longer)"
    end_services
    services=()

    serve "$2" --log json || return
    mixed "$3"
    sleeps_over_ends
    [ "$1" != redis ] || releases_unanswered
    ok "acquired = released + lost + held, after leases that ended in every way" until_true 9 sums_up
    cat sum

    for i in 1 2 3 4; do
        acquire "exact" '{"ttlMs":20000,"label":"baker"}'
        sleep 0.3
        ask DELETE "/v1/leases/$LEASE"
    done
    is "without a viewer no hold is missed" "$(past exact | jq -s '[.[] | select(.event == "released")] | length')" 4
    ok "and each is as long as it was" jq -es 'all(.[] | select(.event == "released"); .heldMs >= 300 and .heldMs < 3000 and .sampled == false)' <<<"$(past exact)"
    is "with its client" "$(past exact | jq -r 'select(.event == "released").label' | sort -u)" "baker @ 127.0.0.1"
    ask GET /v1/locks/exact/history
    said "the history says how a hold ended" '.holds[0].outcome' released
    ok "how long it was" jq -e '.holds[0].heldMs >= 300 and .holds[0].heldMs < 2000' <<<"$REPLY"
    ok "and when it ended" jq -e '.holds[0].endedMs >= 0 and .holds[0].endedMs < 20000' <<<"$REPLY"
    said "and for whom" '.holds[0].label' "baker @ 127.0.0.1"

    # While a page is open, what others do is seen too, and marked.
    curl -sN -m 8 "$BASE/v1/events" >stream &
    ok "a page is open" until_true 5 grep -q '^event: snapshot' stream
    sleep 0.3
    "$HOLDFAST" -u "$2" run --label other by-others -- sleep 0.3
    ok "others' holds are marked as sampled" until_true 3 grep -qE '"event":"released","name":"by-others"[^}]*"sampled":true' stream
    acquire ours
    ask DELETE "/v1/leases/$LEASE"
    sleep 0.7
    is "our own are there once" "$(grep -oE '"event":"(granted|released)","name":"ours"[^}]*"sampled":(true|false)' stream | sed 's/"token.*"sampled"/sampled/' | sort | tr '\n' ' ')" \
        '"event":"granted","name":"ours",sampled:false "event":"released","name":"ours",sampled:false '
    stop_service
}

start_redis || exit 70
on_engine local "local:$SCRATCH/table?history=5" 7
on_engine redis "$REDIS_URL?history=5&op_timeout=500ms" 11
done_testing
