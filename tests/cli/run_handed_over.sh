#!/usr/bin/env bash
# run_handed_over.sh - on a server a hold that is handed over lasts only briefly until it is renewed: a command that waited
# for its turn is not stopped for that, and runs as long as it likes.
. "$(dirname "$0")/tap.sh"
. "$ROOT/tests/servers.sh"

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

for options in "" "--ttl 5s" "--ttl 1s" "--ttl 30s --grace 14s"; do
    # The words of $options are options.
    waits_behind 0.7 $options
    result "run ${options:-with the default ttl}: the command that waited runs to its end" $((code != 7)) "exit code $code: $(cat said)"
done
done_testing
