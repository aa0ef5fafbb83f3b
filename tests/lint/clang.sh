#!/usr/bin/env bash
# clang.sh - the other compiler builds everything that is installed without a warning, and the job of the demo runs.
. "$(dirname "$0")/../lib/tap.sh"

CC=clang ok "clang is found" cmake -S "$ROOT" -B "$SCRATCH/build"
ok "it builds without a warning" cmake --build "$SCRATCH/build"
is "what it built runs a job" "$("$SCRATCH/build/holdfast" -u "local:$SCRATCH/table" run job -- echo done)" "done"
done_testing
