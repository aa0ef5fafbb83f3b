#!/usr/bin/env bash
# run_pending.sh - signals that come at the worst moment, which strace makes long: one that comes after the grant and
# before the exec of CMD is honoured, CMD is not run; a stop that is taken back before it was carried out lasts no longer.
. "$(dirname "$0")/../lib/cli_tap.sh"

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

# stopped PID, goes_on PID: the process is stopped, or is not.
stopped() { grep -q ') T' "/proc/$1/stat"; }
goes_on() { ! stopped "$1"; }

# A job of its own, or nobody could continue it. The front tells its guard of Ctrl-Z and stops then; the shell's SIGCONT
# comes in between.
set -m
strace -qq -o calls -e trace=sendto -e "inject=sendto:delay_exit=1000000" \
    sh -c 'echo $$ >front; exec "$0" run job -- sh -c "echo \$\$ >command; exec sleep 1000"' "$HOLDFAST" 2>said &
tracer=$!
set +m
eventually test -s command
front=$(cat front) command=$(cat command)
kill -TSTP "$front"
ok "Ctrl-Z stops the command at once" eventually stopped "$command"
kill -CONT "$front"
ok "a stop that the shell took back before the front had stopped lasts no longer" eventually goes_on "$command"
kill -TERM "$front"
ok "and the front is there to hear the next signal" eventually gone "$front"
kill -KILL $tracer 2>/dev/null
wait $tracer 2>/dev/null
done_testing
