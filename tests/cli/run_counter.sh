#!/usr/bin/env bash
# run_counter.sh - many runs that change one file without any other care lose nothing.
. "$(dirname "$0")/../lib/cli_tap.sh"

RUNS=${RUNS:-200}
echo 0 >f
"$TEST_BIN/barrage" "$RUNS" "$HOLDFAST" run counter -- sh -c 'n=$(cat f); echo $((n+1)) >f' >codes 2>/dev/null
is "$RUNS concurrent runs all succeed" "$(sort codes | uniq -c | tr -s ' ')" " $RUNS 0"
is "$RUNS concurrent increments leave $RUNS" "$(cat f)" "$RUNS"
is "nothing is held or waited for afterwards" "$("$HOLDFAST" list --json)" "[]"
done_testing
