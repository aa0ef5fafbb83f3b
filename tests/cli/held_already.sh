#!/usr/bin/env bash
# held_already.sh - a command under a lock that asks for the same lock would wait for itself: it is told so, with the
# token, and does not wait. Whoever else holds it is waited for.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

# itself NAME ARGUMENT...: the run exits with 75 and says that it holds it already, with the token of $name.
itself() {
    local name=$1
    shift
    exits "$name is 75, at once" 75 timeout 10 "$HOLDFAST" run --status-fd 3 "$@" 3>status
    like "and says that you hold it already, with the token" "$said" \
        "^holdfast: \"job\": you hold it already \(token $(jq -r 'select(.event == "granted" and .name == "job").token' status)\); --owner "
}
again=("$HOLDFAST" run job -- touch never)
itself "run under run" job -- "${again[@]}"
itself "with a wait" job -- "$HOLDFAST" run -w 1h job -- touch never
itself "without one" job -- "$HOLDFAST" run -n job -- touch never
itself "with another lock between them" job -- "$HOLDFAST" run other -- "${again[@]}"
itself "with a shell between them" job -- sh -c '"$0" run job -- touch never' "$HOLDFAST"
itself "acquire under run" job -- "$HOLDFAST" acquire job
itself "among several" -l a -l job -- "${again[@]}"
itself "several among several" -l a -l job -- "$HOLDFAST" run -l job -l b -- touch never
itself "a reader under a writer" -x job -- "$HOLDFAST" run -s job -- touch never
itself "a writer under a reader" -s job -- "$HOLDFAST" run -x job -- touch never
itself "another owner" --owner one job -- "$HOLDFAST" run --owner two job -- touch never
itself "more units than are left" --capacity 3 --units 2 job -- "$HOLDFAST" run --capacity 3 --units 2 job -- touch never
ok "no command was run" test ! -e never
ok "nothing is left behind" rows holder job 0
exits "-E changes the code" 9 "$HOLDFAST" run job -- timeout 10 "$HOLDFAST" run -E 9 job true
is "-q says nothing, and does not wait either" "$("$HOLDFAST" run job -- timeout 10 "$HOLDFAST" run -q job true 2>&1; echo $?)" 75
exits "the same owner enters" 0 "$HOLDFAST" run --owner me job -- timeout 10 "$HOLDFAST" run --owner me job true
exits "readers share" 0 "$HOLDFAST" run -s job -- timeout 10 "$HOLDFAST" run -s job true
exits "permits that are left are given" 0 "$HOLDFAST" run --capacity 2 job -- timeout 10 "$HOLDFAST" run --capacity 2 job true
exits "on another table it is another lock" 0 "$HOLDFAST" run job -- timeout 10 "$HOLDFAST" -u "local:$SCRATCH/elsewhere" run job true

# What is not held by the runs around us is waited for, whatever the environment says.
is "the variable has a line for each, outer ones first" \
    "$("$HOLDFAST" run 'a b' -- "$HOLDFAST" run -l c -l d -- sh -c 'echo "$HOLDFAST_HELD"' | sed 's/^[0-9]* //')" $'a b\nc\nd'
"$HOLDFAST" run --capacity 2 pool -- sh -c 'echo >permit; exec sleep 1000' &
holder=$!
eventually test -e permit
"$HOLDFAST" run --capacity 2 pool -- sh -c '"$0" run --capacity 2 pool -- touch third' "$HOLDFAST" 2>/dev/null &
waiter=$!
ok "a permit that another one has is waited for" eventually rows waiter pool 1
kill $holder
wait $holder
wait $waiter
is "and had" "$? $(ls third)" "0 third"
for text in "1 job" "x" $'\n\n' "99999999999999999999999999 job" "$(printf '%20000s' x)"; do
    exits "a variable that is not true is not believed: ${text:0:30}" 0 env HOLDFAST_HELD="$text" "$HOLDFAST" run job true
done
"$HOLDFAST" run job -- sh -c 'echo "$HOLDFAST_HELD" >held'
"$HOLDFAST" run job -- sh -c 'echo >held.again; exec sleep 1000' &
holder=$!
eventually test -e held.again
exits "a hold that is over is not ours: the next one's is waited for" 75 env HOLDFAST_HELD="$(cat held)" "$HOLDFAST" run -w 0.5 job true
like "and the message says who has it" "$said" '"job" is held by pid'
kill $holder
wait $holder

if why=$(missing_server redis); then
    result "redis: run under run # SKIP $why" 0
else
    start_redis || exit 70
    export HOLDFAST_URL=$REDIS_URL
    itself "redis: run under run" job -- "${again[@]}"
    itself "redis: several among several" -l a -l job -- "$HOLDFAST" run -l job -l b -- touch never
    ok "redis: nothing is left behind" rows waiter job 0
fi
done_testing
