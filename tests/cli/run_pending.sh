#!/usr/bin/env bash
# run_pending.sh - a signal that comes after the grant and before the exec of CMD is honoured: CMD is not run. strace makes
# that moment long, before and after the process is made that is to become CMD.
. "$(dirname "$0")/tap.sh"

LONG_US=2000000

# stretch CALL enter|exit: starts a run for whose processes a system call takes long, before or after it is done, and
# returns when its guard holds.
stretch() {
    rm -f front ran status
    strace -f -qq -o calls -e "trace=$1" -e "inject=$1:delay_$2=$LONG_US" \
        env --default-signal sh -c 'echo $$ >front; exec "$0" run --status-fd 3 job -- touch ran 3>status' "$HOLDFAST" 2>said &
    tracer=$!
    eventually rows holder job 1
    guard=$("$HOLDFAST" show --json job | jq '.[0].pid')
}

# honoured CODE: what must be true once the signal was sent.
honoured() {
    wait $tracer
    is "it exits with 128+N" $? "$1"
    ok "the command was not run" test ! -e ran
    is "the name is free" "$("$HOLDFAST" show job)" '"job" is free'
    is "and it was released, not lost" "$(jq -r 'select(.event == "released").status' status)" OK
}

# G30
for number in TERM INT; do
    stretch clone enter
    kill -$number "$(cat front)"
    is "SIG$number came after the grant and before there was a process for the command" "$(pgrep -P "$guard")" ""
    honoured $((128 + $(kill -l $number)))
done

stretch clone exit
eventually pgrep -P "$guard"
kill -TERM "$(cat front)"
fails "SIGTERM came when the process was there, and before the guard knew" grep -q started status
honoured 143

# The guard tells its front of the new process, which has time enough to become CMD meanwhile.
stretch sendto enter
eventually grep -q started status
kill -TERM "$guard"
ok "the command had not begun when SIGTERM came for the guard" test ! -e ran
honoured 143

stretch clone enter
kill -WINCH "$(cat front)"
wait $tracer
is "a signal that ends nothing does not keep the command from running" "$? $(ls ran)" "0 ran"
done_testing
