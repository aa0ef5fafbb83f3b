# shellcheck shell=bash
# node_tap.sh - tests written with node:test, as lines of TAP; sourced behind tap.sh.

# node_app PACKAGE TESTS: makes a folder NODE_APP that has the package installed and a copy of the
# tests.
node_app() {
    NODE_APP=$SCRATCH/app
    mkdir -p "$NODE_APP/node_modules"
    ln -s "$1" "$NODE_APP/node_modules/holdfast"
    cp -r "$2" "$NODE_APP/test"
}

# node_test FILE: runs each test of the file as one of ours; what node prints about a failure
# becomes comments.
node_test() {
    local line name
    node --test-reporter=tap "$1" >"$SCRATCH/node.out" 2>"$SCRATCH/node.err"
    # At least one test, and the plan that node printed at the end.
    result "$(basename "$1"): every test was run" "$(grep -qE '^1\.\.[1-9]' "$SCRATCH/node.out"; echo $?)" "$(cat "$SCRATCH/node.err")"
    while IFS= read -r line; do
        case $line in
        "ok "*) name=${line#ok * - } && result "${name}" 0 ;;
        "not ok "*) name=${line#not ok * - } && result "${name}" 1 "$(sed -n "/^not ok .* - ${name//\//.}/,/^# Subtest/p" "$SCRATCH/node.out" | head -n 40)" ;;
        esac
    done < <(grep -E '^(not )?ok [0-9]+ - ' "$SCRATCH/node.out")
}
