#!/usr/bin/env bash
# runner.sh - the runner itself: whatever goes wrong with a suite, it is counted red and the reason is said.
. "$(dirname "$0")/../lib/tap.sh"

# with LINES [PATTERN]: runs a list of suites; its output is in `said`, its exit status in `status`, its last line in
# `closing`. `options` are passed on.
options=()
with() {
    printf '%s\n' "$1" >"$SCRATCH/list"
    said=$("$ROOT/tests/run" "${options[@]}" "$SCRATCH/list" "$SCRATCH/logs" "${2:-*}" 2>&1)
    status=$?
    closing=${said##*$'\n'}
}

# red NAME LINE CLOSING REASON: the runner must fail with this closing line and say this reason.
red() {
    with "$2"
    is "$1: the closing line counts it" "$closing" "$3"
    is "$1: the runner exits with 1" $status 1
    like "$1: the reason is said" "$said" "$4"
}

with "good 5 plain pair printf '1..2\nok 1 - a\nok 2 - b\n'"
is "a suite that passes is counted" "$closing" "2 passed, 0 failed"
is "the runner exits with 0 when all passed" $status 0

with "skips 5 plain pair printf '1..2\nok 1 - a\nok 2 - b # SKIP no server\n'"
is "a skipped test is counted apart" "$closing" "1 passed, 0 failed, 1 skipped"
like "and its reason is said" "$said" $'skipped, and why:\n     1  no server\n'
with "skips 5 plain pair printf '1..2\nok 1 - a\n# skipped: no mounts\nnot ok 2 # SKIP a sentence\n'"
like "so is one of cmocka's, from its comment" "$said" $'skipped, and why:\n     1  no mounts\n'

deep=$SCRATCH/$(printf 'a-folder/%.0s' {1..12})
mkdir -p "$deep"
TMPDIR=$deep with "deep 5 plain pair printf '1..1\nok 1 - a\n# %s %s\n' \"\${#TMPDIR}\" \"\$(realpath \"\$TMPDIR\")\""
is "a suite's TMPDIR leaves room for the path of a socket" \
    "$(sed -n 's/^# \([0-9]*\) .*/\1/p' "$SCRATCH/logs/deep.out" | awk '{ print ($1 <= 40) }')" 1
is "and leads to the folder that was given" "$(sed -n 's/^# [0-9]* //p' "$SCRATCH/logs/deep.out")" "$(realpath "$deep")"

with "groups 5 plain pair printf '1..1\nok 1 - a\n1..2\nok 1 - b\nok 2 - c\n'"
is "the plans of several groups add up" "$closing" "3 passed, 0 failed"

red "a failing test" "x 5 plain pair printf '1..2\nok 1 - a\nnot ok 2 - the moon is cheese\n'; exit 1" \
    "1 passed, 1 failed" "not ok 2 - the moon is cheese"
red "a failing test in a suite that exits with 0" "x 5 plain pair printf '1..1\nnot ok 1 - b\n'" \
    "0 passed, 1 failed" "not ok 1 - b"
red "a suite that exits with an error" "x 5 plain pair printf '1..1\nok 1 - a\n'; exit 3" \
    "1 passed, 1 failed" "exit status 3 although no test failed"
red "a suite that crashes" "x 5 plain pair printf '1..2\nok 1 - a\n'; kill -SEGV \$\$" \
    "1 passed, 1 failed" "planned 2 tests and ran 1, exit status 139"
red "a suite that prints nothing" "x 5 plain pair true" "0 passed, 1 failed" "printed no test, exit status 0"
red "a suite that is not there" "x 5 plain pair ./no-such-suite" "0 passed, 1 failed" "printed no test, exit status 127"
red "a suite without a plan" "x 5 plain pair echo ok 1 - a" "1 passed, 1 failed" "ended without a plan"
red "a suite with fewer tests than planned" "x 5 plain pair printf '1..3\nok 1 - a\n'" \
    "1 passed, 1 failed" "planned 3 tests and ran 1"
red "a suite that hangs" "x 1 plain pair printf '1..2\nok 1 - a\n'; sleep 7654320" \
    "1 passed, 1 failed" "over 3 times its budget of 1 s, killed"
with "slow 1 plain pair sleep 1.5; printf '1..1\nok 1 - a\n'"
is "a suite that ends behind its budget is no failure" "$closing" "1 passed, 0 failed"
like "and is named" "$said" 'over their budget, .*: slow \([0-9.]+ s of 1 s\)'
red "a suite that hangs in another session and ignores SIGTERM" \
    "x 1 plain pair printf '1..1\nok 1 - a\n'; trap '' TERM; setsid -w sleep 7654321" \
    "1 passed, 1 failed" "over 3 times its budget of 1 s, killed"
with "x 5 plain pair printf '1..1\n'; sh -c 'kill -INT \$\$'; [ \$? -eq 130 ] && echo ok 1 || echo not ok 1"
is "the signals of the keyboard are not ignored in a suite" "$closing" "1 passed, 0 failed"
red "a suite that leaves a process behind" "x 5 plain pair sleep 7654322 & printf '1..1\nok 1 - a\n'" \
    "1 passed, 1 failed" "left processes behind"
red "a suite that leaves a process behind in another session" \
    "x 5 plain pair setsid -f sleep 7654323; printf '1..1\nok 1 - a\n'" "1 passed, 1 failed" "left processes behind"
red "a suite that leaves a process behind without its environment" \
    "x 5 plain pair env -i sleep 7654324 & printf '1..1\nok 1 - a\n'" "1 passed, 1 failed" "left processes behind"

printf '%s\n' "x 60 plain pair sleep 7654325" "y 60 plain pair setsid sleep 7654326" "z 60 plain pair true" >"$SCRATCH/list"
"$ROOT/tests/run" "$SCRATCH/list" "$SCRATCH/logs" >"$SCRATCH/said" 2>&1 &
runner=$!
until [ "$(pgrep -cfx 'sleep 765432[56]')" -eq 2 ]; do sleep 0.02; done
kill -TERM $runner
wait $runner
is "a runner that is interrupted says so by its exit status" $? 130
is "nothing of all that is still running" "$(pgrep -fx 'sleep 765432[0-6]')" ""

# Each of a pair ends only when it has seen the other begin; those alone leave time to be seen.
begin="echo begin >>$SCRATCH/order"
end="echo end >>$SCRATCH/order; printf '1..1\nok 1 - a\n'"
both="until [ \$(grep -c begin $SCRATCH/order) = 2 ]; do sleep 0.02; done"
with "left 8 plain pair $begin; $both; $end"$'\n'"right 8 plain pair $begin; $both; $end"
is "two suites marked pair run at the same time" "$closing" "2 passed, 0 failed"
rm "$SCRATCH/order"
with "left 8 plain alone $begin; sleep 0.3; $end"$'\n'"right 8 plain alone $begin; sleep 0.3; $end"
is "two suites marked alone run one after the other" "$(tr '\n' ' ' <"$SCRATCH/order")" "begin end begin end "

rm "$SCRATCH/order"
four="until [ \$(grep -c begin $SCRATCH/order) = 4 ]; do sleep 0.02; done"
with "$(for name in a b; do echo "$name 8 plain pair $begin; $four; $end"; done)"$'\n'"$(
    for name in c d; do echo "$name 8 plain beside $begin; $four; $end"; done)"
is "two suites marked beside run beside two that compute" "$closing" "4 passed, 0 failed"
like "what that gained is said" "$said" '4 suites took .* gained'

# A list whose results are kept. The version of the tree is made up: that of a real one changes.
git() {
    [ "$1" != rev-parse ] || echo 0123456789
}
export -f git
options=(--results "$SCRATCH/results")
with "good 5 plain pair printf '1..1\n# 7 schedules\nok 1 - a\n'"$'\n'"bad 5 plain pair printf '1..1\nnot ok 1 - a\n'"
is "results are kept: suite, commit, outcome, what was counted" "$(cut -f 1,3-6,8 "$SCRATCH/results" | sort | tr '\t\n' ' ;')" \
    "bad 0123456789 0 1 0 ;good 0123456789 1 0 0 7 schedules;"
options+=(--since-last)
with "good 5 plain pair printf '1..1\nok 1 - a\n'"$'\n'"bad 5 plain pair printf '1..1\nok 1 - a\n'"
is "since the last time only what has not passed on this commit runs" "$closing$(grep -c '^ok    good' <<<"$said")" "1 passed, 0 failed0"
with "good 5 plain pair printf '1..1\nok 1 - a\n'"
is "when everything has passed, that is said" "$status $closing" "0 every suite has passed on 0123456789"
git() {
    [ "$1" != rev-parse ] || echo 1123456789
}
with "good 5 plain pair printf '1..1\nok 1 - a\n'"
is "on another commit everything runs" "$closing" "1 passed, 0 failed"
git() {
    case $1 in
    rev-parse) echo 1123456789 ;;
    status) echo " M src/lease.c" ;;
    esac
}
with "good 5 plain pair printf '1..1\nok 1 - a\n'"
is "and with changes that are in no commit, too" "$closing" "1 passed, 0 failed"
unset -f git
options=()

# page FILE: the page that is made of these results, of which each line names a suite of the night.
page() {
    "$ROOT/tests/lib/results-page" "$1" "$SCRATCH/page.md" && cat "$SCRATCH/page.md"
}
: >"$SCRATCH/none.tsv"
touch "$SCRATCH/page.md"
like "a page without results says that no suite ran" "$(page "$SCRATCH/none.tsv")" 'was begun, [1-9][0-9]* suites:.*`model-whole`'
printf 'model-whole\t2026-01-31T04:00Z\t0123456789\t5\t0\t0\t61.2\t7 states\n' >"$SCRATCH/one.tsv"
like "a suite that ran has its line" "$(page "$SCRATCH/one.tsv")" '\| `model-whole` \| 2026-01-31 04:00 \| 0123456789 \| 5 \| 0 \| 0 \| 61.2 \| 7 states \|'
is "and is not among those that never ran" "$(sed '1,/^Not run/d' "$SCRATCH/page.md" | grep -c model-whole)" 0

# Suites that measure time. at_second NAME: red at first, green then; both leave a line in NAME.runs.
at_second="runs; printf '1..1\n'; [ \$(wc -l <\$f) -ge 2 ] && echo ok 1 - in time || echo not ok 1 - the clock said no"
never="runs; printf '1..1\nnot ok 1 - the clock said never\n'"
timed() {
    echo "$1 8 plain $2 f=$SCRATCH/$1.runs; runs() { echo run >>\$f; }; $3"
}
with "$(timed late pair-timed "$at_second; echo ERROR: LeakSanitizer: detected memory leaks >&2")"
is "a timed suite that is red beside others and green alone has passed" "$closing" "1 passed, 0 failed"
is "and the runner exits with 0" $status 0
like "it is named at the end" "$said" $'\nlooked at twice: late, red beside others, green alone\n\n1 passed, 0 failed$'
like "both runs are shown" "$said" $'FAIL  late .*\nok    late .*---- FAIL  late[^\n]*\\(first run\\)\n1\\.\\.1\nnot ok 1 - the clock said no'
like "the first run's log is kept" "$(cat "$SCRATCH/logs/late.out.first")" "not ok 1 - the clock said no"

with "$(timed slow alone-timed "$at_second")"
like "one that was alone already is looked at twice too" "$said" "looked at twice: slow, red the first time, green alone"
rm "$SCRATCH"/*.runs
with "$(timed bad pair-timed "$never")"
is "one that stays red is red, once" "$closing" "0 passed, 1 failed"
is "and the runner exits with 1 then" $status 1
like "that is said too" "$said" "looked at twice: bad, red beside others, red alone"
like "and both of its runs are shown" "$said" '---- FAIL  bad.*first run.*---- FAIL  bad'
is "there is no third run" "$(wc -l <"$SCRATCH/bad.runs")" 2

rm "$SCRATCH"/*.runs
with "$(for name in a b c; do timed $name pair-timed "$at_second"; done)"$'\n'"$(timed truth pair "$at_second")"
is "three are looked at twice, and nothing that is not timed" "$closing" "3 passed, 1 failed"
fails "which is not named as if it were" grep -q 'looked at twice: truth' <<<"$said"
rm "$SCRATCH"/*.runs
with "$(for name in a b c d; do timed $name pair-timed "$at_second"; done)"
is "when four are red all stay red" "$closing" "0 passed, 4 failed"
like "and it is said why" "$said" "not looked at twice: more than 3 suites that measure time are red: a b c d"
is "none of them ran again" "$(cat "$SCRATCH"/?.runs | wc -l)" 4

rm "$SCRATCH"/*.runs
with "$(timed crash pair-timed "runs; printf '1..2\nok 1 - a\n'; kill -SEGV \$\$")"$'\n'"$(
    timed race pair-timed "$at_second; echo WARNING: ThreadSanitizer: data race >&2")"
is "what crashes, or what a sanitizer complains about, is not looked at twice" "$(cat "$SCRATCH"/{crash,race}.runs | wc -l)" 2
is "and is red" "$closing" "1 passed, 2 failed"
with "$(timed long pair-timed 'runs; [ $(wc -l <$f) -ge 2 ] || sleep 7654327; printf "1..1\nok 1 - a\n"' | sed 's/ 8 / 1 /')"
is "what took longer than its budget is" "$closing" "1 passed, 0 failed"

rm -f "$SCRATCH"/*.runs "$SCRATCH/order"
apart="$begin; sleep 0.2; echo end >>$SCRATCH/order; $never"
with "$(timed left pair-timed "$apart")"$'\n'"$(timed right pair-timed "$apart")"
is "second runs are alone" "$(tail -n 4 "$SCRATCH/order" | tr '\n' ' ')" "begin end begin end "

with "a-one 5 plain pair printf '1..1\nok 1\n'"$'\n'"b-two 5 plain pair printf '1..1\nok 1\n'" 'a-*'
is "a pattern picks suites by name" "$closing" "1 passed, 0 failed"
with "x 5 plain pair true" 'y*'
is "a pattern that fits no suite is an error" $status 64
with "x five plain pair true"
is "a line that cannot be read is an error" $status 64
like "a line that cannot be read is shown" "$said" "cannot read the line: x five plain pair true"
with "x 5 plain pair true"$'\n'"x 5 plain pair true"
is "two suites of one name are an error" $status 64
done_testing
