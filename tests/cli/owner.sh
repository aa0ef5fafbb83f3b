#!/usr/bin/env bash
# owner.sh - --owner of run and acquire: who holds a lock enters it again, each hold is released by itself, and everybody
# else is kept out. On every engine that is here.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

# depth NAME: how many holds of one owner stand there; 0 when nobody holds it.
depth() {
    "$HOLDFAST" show --json "$1" | jq 'map(select(.role == "holder") | .depth) | add // 0'
}

# deep NAME COUNT: that is its depth. On redlock it takes a moment until a majority has the last word.
deep() {
    [ "$(depth "$1")" = "$2" ]
}

# enters ENGINE: the whole story on $HOLDFAST_URL.
enters() {
    local outer inner
    exits "$1: the same owner enters what it holds" 7 timeout 20 "$HOLDFAST" run -n --ttl 5s --owner backup job -- \
        "$HOLDFAST" run -n --ttl 5s --owner backup job -- sh -c 'exit 7'
    ok "$1: after which the lock is free" eventually deep job 0
    read -r outer inner < <("$HOLDFAST" run -n --ttl 5s --owner backup job -- sh -c 'echo $HOLDFAST_TOKEN $("$0" run -n --ttl 5s \
        --owner backup job -c "echo \$HOLDFAST_TOKEN")' "$HOLDFAST")
    is "$1: both levels have one token" "$inner" "$outer"
    "$HOLDFAST" run --ttl 5s --owner backup job -- sh -c '"$0" run -n --ttl 5s --owner backup job true && "$0" run -n --ttl 5s --owner other job true' \
        "$HOLDFAST" 2>said
    is "$1: another owner is kept out, also after the inner level was released" $? 75
    exits "$1: so is who gives no owner" 75 "$HOLDFAST" run --ttl 5s --owner backup job -- "$HOLDFAST" run -n --ttl 5s job true
    eventually deep job 0
    "$HOLDFAST" acquire --ttl 5s --owner script job >first && "$HOLDFAST" acquire -n --ttl 5s --owner script job >second
    is "$1: acquire enters too" "$? $(jq .token first)" "0 $(jq .token second)"
    ok "$1: each has a lease of its own" "$HOLDFAST" release <first
    exits "$1: so the lock is held until the last one is released" 75 "$HOLDFAST" run -n --ttl 5s job true
    ok "$1: which releases it" "$HOLDFAST" release <second
    ok "$1: then it is free" eventually deep job 0
}

enters local
exits "an empty owner is 64" 64 "$HOLDFAST" run --owner '' job true
like "the message names it" "$said" 'owner: 0 bytes'
exits "one that is too long is 64" 64 "$HOLDFAST" acquire --owner "$(printf '%065d' 1)" job
exits "to enter as another kind is 78" 78 "$HOLDFAST" run --owner x job -- "$HOLDFAST" run -n -s --owner x job true
"$HOLDFAST" run --owner who --log log shown -- "$HOLDFAST" run --owner who --log log shown -- "$HOLDFAST" show --json shown >shown.json
is "show counts the levels" "$(jq '.[0].depth' shown.json)" 2
fails "nobody is shown the owner" grep -q who shown.json log
"$HOLDFAST" run --owner alive both -- sh -c '"$0" run --owner alive both -- sh -c "echo >inside; exec sleep 1000" & exec sleep 1000' "$HOLDFAST" 2>/dev/null &
front=$!
eventually test -e inside
kill -KILL $front
wait $front 2>/dev/null
ok "a killed outer level takes the inner one along, and the lock is free" eventually deep both 0

if why=$(missing_server redis); then
    result "redis: an owner enters again # SKIP $why" 0
    result "redlock: an owner enters again # SKIP $why" 0
    done_testing
    exit
fi
start_redis || exit 70
HOLDFAST_URL=$REDIS_URL enters redis
quorum=127.0.0.1:$REDIS_PORT
for _ in 2 3; do
    start_redis || exit 70
    quorum+=,127.0.0.1:$REDIS_PORT
done
export HOLDFAST_URL="redlock://$quorum?max_ttl=5s"
ok "three servers are old enough to count" eventually "$HOLDFAST" run -n --ttl 5s ready true
enters redlock
done_testing
