#!/usr/bin/env bash
# quiet.sh - run and acquire without a word: with -q, and where busy was asked to be a success, for cron sends mail about
# any output. Errors are told in each case.
. "$(dirname "$0")/../lib/cli_tap.sh"

"$HOLDFAST" run busy -- sh -c 'echo >held; exec sleep 1000' &
holder=$!
eventually test -e held

# silent NAME CODE ARGUMENT...: exits with CODE and writes nothing.
silent() {
    local name=$1 wanted=$2
    shift 2
    is "$name" "$("$HOLDFAST" "$@" 2>&1; echo $?)" "$wanted"
}
silent "-q: busy is 75 without a word" 75 run -q -n busy true
silent "--quiet: so is a wait that is over" 75 run --quiet -w 0.5 busy true
silent "-q of acquire" 75 acquire -q -n busy
silent "-q for several locks" 75 run -q -w 0.5 -l a -l busy true
silent "-q with another code" 9 run -nqE9 busy true
silent "-E 0 with -n needs no -q" 0 run -n -E 0 busy false
silent "-E 0 with -w neither, however long it waits" 0 run -w 0.5 -E 0 busy false
silent "nor where the wait comes from the environment" 0 run -E 0 --ttl 20s -u "$HOLDFAST_URL?wait=500ms" busy false
silent "nor does acquire" 0 acquire -w 0.5 -E 0 busy
exits "another code is told" 4 "$HOLDFAST" run -n -E 4 busy true
like "who holds it is said" "$said" '"busy" is held by pid'
"$HOLDFAST" run -E 0 busy -- true 2>endless &
endless=$!
"$HOLDFAST" run -q busy -- true 2>quiet &
quiet=$!
eventually lines endless 1
like "a wait without an end is told of, whatever -E says" "$(cat endless)" 'waiting: "busy" is held'
eventually rows waiter busy 2
kill $holder
wait $holder
wait $endless $quiet
is "but not with -q" "$? $(cat quiet)" "0 "

is "what the command writes is passed on" "$("$HOLDFAST" run -q -n -E 0 busy -- sh -c 'echo out; echo err >&2' 2>&1)" $'out\nerr'
is "acquire prints its lease" "$("$HOLDFAST" acquire -q -n -E 0 leased | jq -r .name)" leased
exits "a command that is not found is told of" 127 "$HOLDFAST" run -q -n -E 0 busy -- ./nowhere
like "with its name" "$said" nowhere
exits "a bad configuration is told of" 78 "$HOLDFAST" -u carrier-pigeon:// run -q -n -E 0 busy true
like "with its name" "$said" carrier-pigeon
exits "an engine that cannot be reached is told of, and not 0" 69 "$HOLDFAST" -u redis://127.0.0.1:1 run -q -n -E 0 busy true
like "with its place" "$said" 127.0.0.1:1
"$HOLDFAST" run -q --ttl 900ms --max-hold 50ms busy -- sleep 1000 2>said
is "a loss is told of" "$? $(grep -c 'could not be kept' said)" "79 1"
done_testing
