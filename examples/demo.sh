#!/usr/bin/env bash
# demo.sh - Holdfast in ten seconds: two jobs take turns, a holder is killed, a third one does not want to wait.
set -eu

HOLDFAST=$(realpath "${HOLDFAST:-$(dirname "$0")/../build/holdfast}")
say() { printf '%s\n' "$*"; }
bold='' plain=''
[ ! -t 1 ] || [ -n "${NO_COLOR:-}" ] || bold=$'\033[1m' plain=$'\033[0m'
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
micros() { echo "${EPOCHREALTIME/[.,]/}"; }
# stamp WHO WHAT: a line with the time since the demo began.
stamp() {
    local passed=$(($(micros) - BEGAN))
    printf '  %2d.%03d s  %-4s  %s\n' $((passed / 1000000)) $((passed / 1000 % 1000)) "$1" "$2"
}

# What `holdfast run` starts while it holds the lock: this script again, as one turn of a job.
if [ "${1:-}" = turn ]; then
    echo "begin $2" >>"$SCRATCH/turns"
    stamp "$2" "prints page $3   (token $HOLDFAST_TOKEN)"
    sleep 0.4
    echo "end $2" >>"$SCRATCH/turns"
    exit
fi
if [ "${1:-}" = next ]; then
    micros >"$SCRATCH/next"
    exit
fi

export BEGAN SCRATCH HOLDFAST_URL
BEGAN=$(micros)
SCRATCH=$(mktemp -d)
HOLDFAST_URL=local:$SCRATCH/table # a table of its own: the demo meets nobody else's locks

finish() {
    local status=$?
    trap - EXIT
    jobs -p | xargs -r kill 2>/dev/null || true
    wait
    if [ $status -ne 0 ]; then
        say "demo: something went wrong (exit $status); the commands said:"
        cat "$SCRATCH"/*.log
    fi >&2
    rm -rf "$SCRATCH"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# until_listed LABEL: waits until `holdfast list` shows it, in its last column.
until_listed() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        "$HOLDFAST" list >"$SCRATCH/list" 2>"$SCRATCH/list.log" || return
        ! grep -q " $1\$" "$SCRATCH/list" || return 0
        sleep 0.02
    done
    say "demo: '$1' never appeared in: holdfast list" >&2
    return 1
}
show_list() {
    say "  \$ holdfast list"
    sed 's/^/  | /' "$SCRATCH/list"
}

say "$("$HOLDFAST" version | head -n 1): locks on this machine, no server, nothing to configure."

title '1. Two jobs, one printer. Each runs:  holdfast run printer -- ./print-a-page'
job() {
    local page
    for page in 1 2 3; do
        "$HOLDFAST" run --label "$1" printer -- "$0" turn "$1" $page
    done 2>"$SCRATCH/$1.log"
}
job anna &
anna=$!
until_listed anna
job ben &
ben=$!
until_listed ben
show_list
wait $anna
wait $ben
# Whoever begins must end before the next one begins.
awk '{ if ($1 != (NR % 2 ? "begin" : "end")) exit 1; last = $0 } END { exit NR != 12 }' "$SCRATCH/turns" ||
    { say "demo: two jobs had the printer at the same time" >&2 && exit 1; }
say '  They took turns in the order of their asking; the token rises with every turn.'

title '2. A job hangs with the printer in its hands, and another one waits.'
"$HOLDFAST" run --label clumsy printer -- sleep 60 2>"$SCRATCH/clumsy.log" &
clumsy=$!
until_listed clumsy
"$HOLDFAST" run --label next printer -- "$0" next 2>"$SCRATCH/next.log" &
next=$!
until_listed next
show_list
status=0
"$HOLDFAST" run -n printer -- true 2>"$SCRATCH/busy.log" || status=$?
say "  Somebody who will not wait:  holdfast run -n printer -- true   exits with $status (busy)."
[ $status -eq 75 ]

title '3. kill -9 of the one that hangs.'
killed=$(micros)
{ kill -KILL $clumsy && wait $clumsy; } 2>/dev/null || true # the shell would announce the death
wait $next
later=$(($(<"$SCRATCH/next") - killed))
later=$((later / 1000)).$((later / 100 % 10))
say "  The next one had the lock and its command was running $later ms later."
"$HOLDFAST" list >"$SCRATCH/list"
! grep -q printer "$SCRATCH/list"
say '  Nobody holds it now: `holdfast list` does not show it any more.'

title 'Now yours:  build/holdfast run my-job -- sleep 30   here and in a second terminal.'
