#!/usr/bin/env bash
# cluster_newer.sh - failovers and moves of slots on servers that this Debian release does not have: those that move a slot
# in one step, and the one whose sentinels close the old primary before the new one opens.
#
#     cluster_newer.sh redis|valkey SUITE
#
# needs: fault/cluster_moves fault/cluster_failover fault/sentinel_failover fault/sentinel_operator
. "$(dirname "$0")/../../lib/cli_tap.sh"
kind=$1 suite=$2

folder=$BUILD/newer/cluster-$kind-$suite
if ! "$ROOT/tests/lib/newer-server" "$kind" "$suite" "$folder" 2>why; then
    echo "ok 1 - $kind of $suite # SKIP $(tail -n 1 why)"
    echo 1..1
    exit
fi
export PATH=$folder/bin:$PATH HF_TEST_SERVER=$kind
echo "# $("$kind-server" --version)"
run() {
    "$BUILD/tests/fault/$1" "${@:2}" 2>&1 | tee said
    result "$1" "${PIPESTATUS[0]}" "$(tail -n 30 said)"
}
run cluster_moves
run cluster_failover
run sentinel_failover
run sentinel_operator 4 '*under load*' # the library that gives servers another clock cannot be loaded into these
rm -rf "$folder"
done_testing
