#!/usr/bin/env bash
# suites.sh - the lists of suites name every test that lies in tests/, and nothing that is not there.
. "$(dirname "$0")/../lib/tap.sh"

cd "$ROOT/tests" || exit 70
lib/suites suites suites.nightly >"$SCRATCH/listed"
listed() {
    cat "$SCRATCH/listed"
}
# names TEXT: does a suite's command contain this word?
names() {
    listed | grep -qE "(^| )[^ ]*$1( |\$)"
}
# A program may also be there for a script that starts it, or to draw a page of docs/.
forgotten() {
    local source
    for source in {unit,fault/*,conformance,sim,cli,lint}/*.c fuzz/fuzz_*.c; do
        [[ ! -e $source || $source == */draw_* || $source == fault/*_fixture.c ]] || names "BUILD/tests/${source%%/*}/$(basename "$source" .c)" ||
            grep -qsE "(tests/cli|TEST_BIN)/$(basename "$source" .c)\>" cli/*.sh fault/*/*.sh || echo "tests/$source"
    done
    for source in {cli,fault/*,lint,package,server,sim}/*.sh; do
        [[ ! -e $source || $source == */tap.sh || $source == */serving.sh ]] || names "tests/$source" || echo "tests/$source"
    done
    for source in fuzz/fuzz_*.c; do
        source=${source#fuzz/fuzz_}
        listed | grep -q "tests/fuzz/search ${source%.c} " || echo "tests/fuzz/search ${source%.c}"
    done
}
is "every test is in tests/suites or tests/suites.nightly" "$(forgotten)" ""

# A program that a script starts is built only if the script has its path or names it behind "# needs:".
unknown() {
    local program source
    grep -rhoE '\$\{?BUILD\}?/tests/[a-z]+/[a-z0-9_]+|^# needs: .*' --include='*.sh' . lib/renew-counts |
        sed -E 's,^.*/tests/,,; s/^# needs: //' | tr ' ' '\n' | sort -u | while read -r program; do
        for source in ${program%/*}/${program##*/}.c ${program%/*}/*/${program##*/}.c; do
            [ -e "$source" ] && continue 2
        done
        echo "$program"
    done
}
is "every program that a script starts has a source" "$(unknown)" ""

# matrix_with SED day|night: the suites of a matrix that was changed so.
matrix_with() {
    mkdir -p "$SCRATCH/tests/lib" "$SCRATCH/tests/conformance"
    cp lib/suites "$SCRATCH/tests/lib/"
    sed "$1" conformance/matrix.def >"$SCRATCH/tests/conformance/matrix.def"
    echo "@matrix $2" >"$SCRATCH/tests/suites"
    "$SCRATCH/tests/lib/suites" "$SCRATCH/tests/suites" 2>&1
}
like "a new engine is one line: its suites are in the list" \
    "$(matrix_with '/^ENGINE(redlock,/{p;s/redlock/newcomer/}' day)" 'conform-newcomer-mutex [0-9]+ asan pair HF_TEST_ENGINES=newcomer'
like "a line of the matrix with a mark too few is refused" \
    "$(matrix_with '/^ENGINE(redlock,/s/d d/d/' day)" 'redlock has 16 marks for 17 suites'

# Of the lanes pair and beside two suites run at a time, side by side; the others follow alone.
budgets() {
    lib/suites suites | awk '{ sub(/-timed/, "", $4); sum[$4] += $2 } END {
        print (sum["pair"] > sum["beside"] ? sum["pair"] : sum["beside"]) / 2 + sum["alone"] }'
}
# A budget is what a suite may take on a machine with much else to do, five times and more of what it takes; what a run
# really takes stands at its end.
ok "a run in which every suite took its whole budget would end within 85 minutes" test "$(budgets | cut -d. -f1)" -lt 5100
done_testing
