#!/usr/bin/env bash
# run_stop.sh - all processes of a run are stopped beyond the ttl: another one holds, and the old command never goes on.
. "$(dirname "$0")/../lib/cli_tap.sh"

# G27
"$HOLDFAST" run --ttl 500ms job -- bash -c 'echo "$$ $HOLDFAST_TOKEN" >old; while :; do echo >>steps; read -rt 0.005 <> <(:); done' 2>said &
front=$!
eventually test -s old
read -r command token <old
guard=$(parent "$command")
is "front, guard and command are parent and child" "$(parent "$guard")" "$front"
eventually lines steps 3
kill -STOP "$command" "$guard" "$front"
eventually grep -q ') T' "/proc/$guard/stat"
"$HOLDFAST" run -w 20 job -- sh -c 'echo $HOLDFAST_TOKEN >new' 2>/dev/null
is "after the ttl the next one holds" $? 0
ok "with a higher token" test "$(cat new)" -gt "$token"
steps=$(wc -l <steps)
kill -CONT "$guard" "$front"
wait $front
is "continued, run exits with 79" $? 79
ok "the command is gone" gone "$command"
is "without having done another step" "$(wc -l <steps)" "$steps"
like "the message says why" "$(cat said)" 'the lease on "job" was lost; the command was stopped'

"$HOLDFAST" run --ttl 500ms job -- sh -c 'echo $$ >all; exec sleep 1000' 2>/dev/null &
front=$!
eventually test -s all
command=$(cat all)
guard=$(parent "$command")
kill -STOP "$command" "$guard" "$front"
"$HOLDFAST" run -w 20 job true 2>/dev/null
kill -CONT "$command" "$guard" "$front"
wait $front
is "the same when the command is continued too" $? 79
ok "the command is gone then too" gone "$command"

"$HOLDFAST" run --ttl 500ms job -- sh -c 'echo $$ >stopped; exec sleep 1000' 2>/dev/null &
front=$!
eventually test -s stopped
kill -STOP "$front"
first=$(date +%s%N)
is "while only the front is stopped the lease is kept" "$("$HOLDFAST" run -w 1.2 job true 2>/dev/null; echo $?)" 75
ok "for longer than its ttl" test $(($(date +%s%N) - first)) -gt 1000000000
kill -CONT "$front"
kill -TERM "$front"
wait $front
is "and the signal that came meanwhile is delivered" $? 143
done_testing
