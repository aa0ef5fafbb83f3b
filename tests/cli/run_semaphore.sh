#!/usr/bin/env bash
# run_semaphore.sh - a thousand attempts on five permits at once: five hold, the others are told, none is lost.
. "$(dirname "$0")/../lib/cli_tap.sh"

ATTEMPTS=${ATTEMPTS:-1000}

# storm COUNT: so many attempts at the same moment; those that are granted hold until all the others were answered.
storm() {
    rm -f gate granted codes
    mkfifo gate
    "$TEST_BIN/barrage" "$1" "$HOLDFAST" run -n --capacity 5 --ttl 120s pool -- sh -c 'echo >>granted; read -r go <gate; exit 0' \
        >codes 2>/dev/null &
    local storm=$!
    eventually_answered "$1"
    held=$("$HOLDFAST" show --json pool | jq '[.[] | select(.role == "holder") | .units] | add')
    exec 8>gate
    exec 8>&-
    wait $storm
}

# All but five have been told, or so many that fewer than five can hold.
eventually_answered() {
    local end=$((SECONDS + 120))
    until [ "$(wc -l <codes)" -ge $(($1 - 5)) ] && lines granted 5; do
        [ $SECONDS -lt $end ] || return 1
        read -rt 0.05 <> <(:)
    done
    return 0
}

codes() {
    sort -n codes | uniq -c | awk '{ print $2 ":" $1 }' | tr '\n' ' '
}

: >codes
storm "$ATTEMPTS"
is "of $ATTEMPTS simultaneous attempts exactly 5 are granted, the others answer 75" "$(codes)" "0:5 75:$((ATTEMPTS - 5)) "
is "5 units were held meanwhile" "$held" 5
is "the command ran 5 times" "$(wc -l <granted)" 5
exits "afterwards all 5 are free" 0 "$HOLDFAST" run -n --units 5 --capacity 5 pool true
storm 12
is "and not more than 5" "$(codes)" "0:5 75:7 "
done_testing
