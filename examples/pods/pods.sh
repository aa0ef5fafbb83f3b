#!/usr/bin/env bash
# pods.sh - two pods of deployment.yaml without a cluster: each runs the entry point as PID 1 of a namespace of its own
# (that needs root), is asked whether it is ready, and is stopped as a kubelet would.
#
#     pods.sh URL
set -euo pipefail

here=$(realpath "$(dirname "$0")")
export HOLDFAST=${HOLDFAST:-holdfast} HOLDFAST_URL=${1:-${HOLDFAST_URL:-}} LOCK=mailer LOCK_TTL=2s LOCK_GRACE=500ms
scratch=$(mktemp -d)
declare -A pod # the process outside of each namespace
trap 'kill -KILL "${pod[@]}" 2>/dev/null || true; wait; rm -rf "$scratch"' EXIT
cd "$scratch"
fail() {
    echo "pods: $*" >&2
    cat ./*.log >&2
    exit 1
}
until_true() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        ! "$@" || return 0
        sleep 0.05
    done
    fail "waited in vain for: $*"
}

# start NAME: a pod.
start() {
    POD_NAME=$1 READY_FILE=$scratch/$1.ready unshare --pid --fork --kill-child --mount-proc \
        "$here/entrypoint.sh" "$here/worker.sh" >"$1.log" 2>&1 &
    pod[$1]=$!
}
# signal NAME SIGNAL: to its PID 1.
signal() {
    kill "-$2" "$(ps -o pid= --ppid "${pod[$1]}")"
}
ready() { [ -e "$1.ready" ]; }
waits() { [ -s "$1.log" ]; }

start mailer-1
until_true ready mailer-1
start mailer-2
until_true waits mailer-2 # it says for whom
! ready mailer-2 || fail "two pods are ready"
echo "mailer-1 is ready, mailer-2 waits: $(head -n 1 mailer-2.log)"

signal mailer-1 TERM
code=0
wait "${pod[mailer-1]}" || code=$?
[ $code -eq 0 ] || fail "the entry point of mailer-1 exits with $code"
grep -q 'mailer-1 puts its things away' mailer-1.log || fail "the worker was not asked to stop"
echo "SIGTERM to PID 1: $(tail -n 1 mailer-1.log), and the entry point exits with 0"
until_true ready mailer-2
echo "mailer-2 is ready"

start mailer-3
until_true waits mailer-3
signal mailer-2 KILL
wait "${pod[mailer-2]}" 2>/dev/null || true
until_true ready mailer-3
echo "SIGKILL to PID 1 of mailer-2 (its grace period was over): mailer-3 is ready"
signal mailer-3 TERM
wait "${pod[mailer-3]}" || fail "the entry point of mailer-3 failed"
echo "proved: as PID 1 it passed SIGTERM on and exited with 0; only the holder was ready; the next pod took over twice"
