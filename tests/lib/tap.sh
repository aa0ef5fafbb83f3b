# shellcheck shell=bash
# tap.sh - what a test written in bash needs: sourced at its top, prints TAP. A script ends with `done_testing`; one
# that dies before it has no plan, and the runner counts that as a failure.
set -u

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
HOLDFAST=${HOLDFAST:-$BUILD/holdfast}
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-test.XXXXXX")
trap 'rm -rf "$SCRATCH"' EXIT
tests_done=0

# result NAME STATUS [TEXT]: one line of TAP; TEXT is shown when it failed.
result() {
    tests_done=$((tests_done + 1))
    if [ "$2" -eq 0 ]; then
        echo "ok $tests_done - $1"
        return
    fi
    echo "not ok $tests_done - $1"
    [ -z "${3:-}" ] || sed 's/^/# /' <<<"$3"
}

# ok NAME COMMAND...: the test passes if the command succeeds.
ok() {
    local name=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    result "$name" $status "$output"
}

# fails NAME COMMAND...: the test passes if the command fails.
fails() {
    local name=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    result "$name" $((status == 0)) "it succeeded: $*"$'\n'"$output"
}

# is NAME GOT WANTED: the test passes if both texts are the same.
is() {
    [ "$2" = "$3" ]
    result "$1" $? "got:    $2"$'\n'"wanted: $3"
}

# like NAME TEXT REGEX: the test passes if the text matches the extended regular expression.
like() {
    [[ $2 =~ $3 ]]
    result "$1" $? "text:   $2"$'\n'"wanted: $3"
}

# skip NAME REASON: notes a test that cannot be made here.
skip() {
    result "$1 # SKIP $2" 0
}

# namespaces OPTION...: prints the unshare command with these options, as root or in a user namespace. Fails where the
# machine does not allow it (no root, no user namespaces, / is no mount point); `why_not` says why.
namespaces() {
    local command=(unshare "$@")
    [ "$(id -u)" -eq 0 ] || command=(unshare --map-root-user "$@")
    "${command[@]}" true 2>"$SCRATCH/why_not" && echo "${command[*]}"
}
why_not() {
    echo "needs root or user namespaces: $(tail -n 1 "$SCRATCH/why_not")"
}

# missing_terminal: succeeds where no pseudo terminal can be made, as in a chroot, and says why.
missing_terminal() {
    ! script -qec true /dev/null </dev/null >/dev/null 2>"$SCRATCH/no_terminal" &&
        echo "needs a pseudo terminal: $(tail -n 1 "$SCRATCH/no_terminal")"
}

done_testing() {
    echo "1..$tests_done"
}
