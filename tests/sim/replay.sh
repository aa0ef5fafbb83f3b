#!/usr/bin/env bash
# replay.sh - a failing schedule is shrunk, drawn as a table, and its command replays it: the same promise is broken, and
# the trace has the same hash. The bugs are planted: in a script, around the engine, around the claim, with a replica.
. "$(dirname "$0")/../lib/tap.sh"

sim=$BUILD/tests/sim/redis_sim
# The line that the simulator ends a table with: "# WHAT IS BROKEN; hash HASH; again with: redis --trace WORDS".
last_line='^# (.*); hash ([0-9a-f]{16}); again with: redis (--trace .*)$'

# replay LINE: runs its command; says what differs from what the line says.
replay() {
    [[ $1 =~ $last_line ]] || { echo "no command: $1"; return; }
    local broken=${BASH_REMATCH[1]} hash=${BASH_REMATCH[2]} words=${BASH_REMATCH[3]} outcome
    # shellcheck disable=SC2086 # it is meant to be typed as it stands
    outcome=$("$sim" $words | tail -1)
    [[ $outcome == "not ok 1 - seed "*" $broken (hash $hash)" ]] || printf '%s\n%s\n' "$1" "$outcome"
}

# longest_table FILE: the lines of the longest one, its head and its last line included.
longest_table() {
    awk '/^# seed /{ lines = 0; next } /^#/{ lines++ } /again with/{ if (lines > most) most = lines } END { print most }' "$1"
}

examine() { # PLANT WORDS...: schedules with that bug, until a few have failed
    local out=$SCRATCH/$1.out line differences=
    "$sim" --plant "$1" --schedules 1500 "${@:2}" >"$out"
    ok "$1: schedules fail" grep -q '; again with: ' "$out"
    while read -r line; do
        differences+=$(replay "$line")
    done < <(grep '; again with: ' "$out")
    is "$1: each command breaks the same promise in the same way" "$differences" ""
    ok "$1: no table is longer than 30 lines" test "$(longest_table "$out")" -le 30
}

examine revive
examine push-start
examine late-grant
examine upgrade-keeps --converts
examine wait-left --replicas
like "what does not matter is left out of the command" "$(grep -h 'again with' "$SCRATCH"/*.out)" '--processes [12] '
like "and so are the faults" "$(grep -h 'again with' "$SCRATCH"/*.out)" '--faults [a-z,-]{4,30} '
done_testing
