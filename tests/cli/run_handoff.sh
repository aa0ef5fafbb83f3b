#!/usr/bin/env bash
# run_handoff.sh - on a server a hold that is handed over lasts only briefly until it is renewed: a command that waited
# for its turn is not stopped for that, and runs as long as it likes.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

if reason=$(missing_server redis); then
    echo "ok 1 # SKIP $reason"
    echo 1..1
    exit 0
fi
start_redis || exit 70

# waits_behind SECONDS OPTION...: the code of one that waits behind another one which holds for so long.
waits_behind() {
    local seconds=$1 first
    shift
    "$HOLDFAST" -u "$REDIS_URL" run "$@" job sh -c "echo >held; sleep $seconds" &
    first=$!
    eventually test -e held
    "$HOLDFAST" -u "$REDIS_URL" run "$@" job sh -c 'echo >ran; sleep 0.2; exit 7' 2>said
    code=$?
    wait $first
    rm -f held
}

# runs_after SECONDS OPTION...
runs_after() {
    waits_behind "$@"
    shift
    result "run ${*:-with the default ttl}: the command that waited runs to its end" $((code != 7)) "exit code $code: $(cat said)"
}

runs_after 3 # of the seven seconds for which a waiter's place is good four are left: less than the grace
runs_after 0.3 --ttl 30s --grace 14s
runs_after 0.3 --ttl 1s
done_testing
