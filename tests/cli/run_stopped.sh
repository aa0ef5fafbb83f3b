#!/usr/bin/env bash
# run_stopped.sh - `run` says that the command was stopped if it was, and what became of it otherwise: it ended by itself,
# it was asked to end and did, or it was never started. The exit code tells of the loss in each case.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

# lose WORD SCRIPT: a run whose lease is not renewed; the grace begins 0.9 s after the grant and SIGKILL comes after 1.44 s.
lose() {
    "$HOLDFAST" run --ttl 1500ms --grace 600ms --max-hold 50ms --on-lost "$1" job -- bash -c "$2" 2>said
    code=$?
}

lose kill 'sleep 1000'
is "killed: it was stopped" "$code $(cat said)" '79 holdfast: the lease on "job" could not be kept; the command was stopped'
lose stop 'exec sleep 1000'
is "died of SIGTERM: it was stopped" "$code $(cat said)" '79 holdfast: the lease on "job" could not be kept; the command was stopped'
lose stop 'trap "exit 5" TERM; while :; do read -rt 0.01 <> <(:); done'
is "ended after SIGTERM: it was asked, and ended" "$code $(cat said)" \
    '79 holdfast: the lease on "job" could not be kept; the command was sent SIGTERM and ended with exit code 5'
lose signal:USR1 '(trap "" USR1; exec sleep 1000) & trap "exit 6" USR1; while :; do read -rt 0.01 <> <(:); done'
is "what it left running was stopped" "$code $(cat said)" \
    '79 holdfast: the lease on "job" could not be kept; the command was sent SIGUSR1 and ended with exit code 6; the processes that it had left running were stopped'
lose kill 'read -rn1 -u $HOLDFAST_LOST_FD; exit 3'
is "ended in the grace although nobody asked it to: by itself" "$code $(cat said)" \
    '79 holdfast: the lease on "job" could not be kept; the command ended by itself with exit code 3'
lose kill 'read -rn1 -u $HOLDFAST_LOST_FD; kill -SEGV $$'
is "the same with a signal" "$code $(cat said)" \
    '79 holdfast: the lease on "job" could not be kept; the command died of signal 11'
"$HOLDFAST" run job -- sh -c 'exec "$0" break --token $HOLDFAST_TOKEN --reason test job' "$HOLDFAST" 2>said
is "a lease that was lost as the command ended: no exit code but 79" $? 79
like "and one of two ends, as it came" "$(cat said)" 'the lease on "job" was lost; the command (was stopped|ended by itself with exit code 0)$'

# strace makes the fork last longer than the lease: the process is there, the command was not begun.
strace -f -qq -o calls -e trace=clone -e inject=clone:delay_exit=2000000 \
    "$HOLDFAST" run --ttl 900ms --max-hold 1ms --status-fd 3 job -- touch ran 3>status 2>said
is "a lease that ended before the command began is 79" $? 79
is "and says so" "$(cat said)" 'holdfast: the lease on "job" ended before the command was started'
ok "it did not begin" test ! -e ran

# The guard is killed.
"$HOLDFAST" run job -- sh -c 'echo >held; exec sleep 1000' 2>said &
front=$!
eventually test -e held
kill -KILL "$("$HOLDFAST" show --json job | jq '.[0].pid')"
wait $front
is "a guard that is killed while the command runs: it was stopped" "$? $(cat said)" \
    "70 holdfast: the guard process was killed by signal 9; the command was stopped"
rm -f held
"$HOLDFAST" run job -- sh -c 'echo >held; exec sleep 1000' &
holder=$!
eventually test -e held
"$HOLDFAST" run --status-fd 3 job -- true 2>said 3>status &
waiter=$!
eventually rows waiter job 1
kill -KILL "$("$HOLDFAST" show --json job | jq '.[1].pid')"
wait $waiter
is "while it waits: the command was not started" "$? $(grep -v waiting: said)" \
    "70 holdfast: the guard process was killed by signal 9 before the command was started"
is "nor was a signal sent" "$(jq -c 'select(.event == "lost") | .signal' status)" null
kill $holder
wait $holder

needs_server redis
start_redis || exit 70
export HOLDFAST_URL=$REDIS_URL
"$HOLDFAST" run job -- sh -c '"$0" break --token $HOLDFAST_TOKEN --reason test job; exit 3' "$HOLDFAST" 2>said
is "redis: a loss that is found when the command has ended" "$? $(cat said)" \
    '79 holdfast: the lease on "job" was lost; the command ended by itself with exit code 3'
"$HOLDFAST" run --status-fd 3 slow -- sh -c "kill -STOP $REDIS_PID" 2>said 3>status &
front=$!
eventually grep -q started status
command=$(jq 'select(.event == "started").pid' status)
ok "redis: the command has ended" eventually gone "$command"
guard=$(pgrep -P $front)
# Reaped: the guard knows, and waits for a server that says nothing.
eventually test ! -e "/proc/$command"
kill -KILL "$guard"
wait $front
is "redis: a guard that is killed after the command ended" "$? $(cat said)" \
    "70 holdfast: the guard process was killed by signal 9 after the command had ended"
kill -CONT "$REDIS_PID"
done_testing
