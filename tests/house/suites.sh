#!/usr/bin/env bash
# suites.sh - the lists of suites name every test that lies in tests/, and nothing that is not there.
. "$(dirname "$0")/../tap.sh"

cd "$ROOT/tests" || exit 70
listed() {
    grep -hv '^#' suites suites.nightly
}
# names TEXT: does a suite's command contain this word?
names() {
    listed | grep -qE "(^| )[^ ]*$1( |\$)"
}
# A program may also be there for a script that starts it, or to draw a page of docs/.
forgotten() {
    local source
    for source in {unit,fault,conformance,sim,cli,house}/*.c fuzz/fuzz_*.c; do
        [[ ! -e $source || $source == */draw_* ]] || names "BUILD/tests/${source%.c}" ||
            grep -qsE "(tests/cli|TEST_BIN)/$(basename "$source" .c)\>" cli/*.sh || echo "tests/$source"
    done
    for source in {cli,fault,house,package,server,sim}/*.sh; do
        [[ ! -e $source || $source == */tap.sh || $source == */serving.sh ]] || names "tests/$source" || echo "tests/$source"
    done
    for source in fuzz/fuzz_*.c; do
        source=${source#fuzz/fuzz_}
        listed | grep -q "tests/fuzz/search ${source%.c} " || echo "tests/fuzz/search ${source%.c}"
    done
}
is "every test is in tests/suites or tests/suites.nightly" "$(forgotten)" ""

budgets() {
    awk '!/^#/ && NF { sum += $4 ~ /^pair/ ? $2 / 2 : $2 } END { print sum }' suites
}
# A budget is what a suite may take on a machine with much else to do, five times and more of what it takes; what a run
# really takes stands at its end. The ten minutes beyond an hour are for the conformance suite, which is run on local:,
# redis:, redlock: and once more as the user with the least rights.
ok "a run in which every suite took its whole budget would end within 70 minutes" test "$(budgets | cut -d. -f1)" -lt 4200
done_testing
