# cli_tap.sh - what the suites of the command share: the TAP functions, a table of their own, waiting for conditions.
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"
TEST_BIN=${TEST_BIN:-$BUILD/tests/cli}
export HOLDFAST_URL=local:$SCRATCH/table
unset HOLDFAST_TTL HOLDFAST_WAIT HOLDFAST_GRACE HOLDFAST_MAX_HOLD NO_COLOR
cd "$SCRATCH" || exit 1

# needs_terminal: ends a script that cannot do without one, skipped with the reason.
needs_terminal() {
    local why
    why=$(missing_terminal) || return 0
    skip "a command on a terminal" "$why"
    done_testing
    exit
}

# exits NAME CODE COMMAND...: the command must exit with CODE; what it printed is in $said afterwards.
exits() {
    local name=$1 wanted=$2 code
    shift 2
    said=$("$@" 2>&1)
    code=$?
    [ "$code" -eq "$wanted" ]
    result "$name" $? "exit code $code, wanted $wanted: $*"$'\n'"$said"
}

# eventually COMMAND...: waits until the command succeeds, for 20 seconds at most.
eventually() {
    local end=$((SECONDS + 20))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        read -rt 0.01 <> <(:)
    done
    return 0
}

# lines FILE COUNT: succeeds if the file has at least so many lines.
lines() {
    [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]
}

# gone PID: succeeds if there is no such process, or if it is dead and not yet reaped.
gone() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    [[ $stat =~ \)\ [ZX] ]]
}

# rows ROLE NAME COUNT: succeeds if a name has that many holders or waiters.
rows() {
    [ "$("$HOLDFAST" show --json "$2" | grep -c "\"role\":\"$1\"")" -eq "$3" ]
}

# parent PID: prints the parent of a process.
parent() {
    sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$1/stat"
}
