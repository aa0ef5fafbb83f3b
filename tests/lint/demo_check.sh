#!/usr/bin/env bash
# demo_check.sh - the first thing that a person sees works, is quick, and shows what README says that it shows.
. "$(dirname "$0")/../lib/tap.sh"

started=$EPOCHREALTIME
said=$(HOLDFAST=$HOLDFAST TMPDIR=$SCRATCH "$ROOT/examples/demo.sh" 2>"$SCRATCH/err")
status=$?
ended=$EPOCHREALTIME
is "the demo succeeds" "$status$(cat "$SCRATCH/err")" 0
is "the demo takes less than ten seconds" "$(awk -v a="$started" -v b="$ended" 'BEGIN { print (b - a < 10) }')" 1
turns=$(grep -oE '(anna|ben) +prints page [123]' <<<"$said" | tr -s ' ' | paste -sd,)
is "the two jobs take turns" "$turns" \
    "anna prints page 1,ben prints page 1,anna prints page 2,ben prints page 2,anna prints page 3,ben prints page 3"
tokens=$(grep -oE 'token [0-9]+' <<<"$said")
is "their tokens rise" "$tokens" "$(sort -k2,2n -u <<<"$tokens")"
like "the list shows the holder and the one that waits" "$said" 'holder .*waiter 1 '
like "who will not wait is told that it is busy" "$said" 'exits with 75 \(busy\)'
like "the next one has the lock of the killed one" "$said" 'was running [0-9.]+ ms later'
is "the demo leaves no file behind" "$(ls "$SCRATCH")" err
done_testing
