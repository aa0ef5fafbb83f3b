#!/usr/bin/env bash
# redis_newer.sh - the whole conformance suite on a server that this Debian release does not have, as its user with all
# rights and as the one with the least; and what its own commands for compare-and-delete would save.
#
#     redis_newer.sh redis|valkey SUITE
#
# needs: conformance/* fault/redis_replicas fault/redis_notifications fault/redis_acl
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
kind=$1 suite=$2

folder=$BUILD/newer/$kind-$suite
if ! "$ROOT/tests/lib/newer-server" "$kind" "$suite" "$folder" 2>why; then
    echo "ok 1 - $kind of $suite # SKIP $(tail -n 1 why)"
    echo 1..1
    exit
fi
PATH=$folder/bin:$PATH
start_server "$kind" || exit 70
info=$(redis_cli INFO server | tr -d '\r')
version=$(sed -n 's/^valkey_version://p' <<<"$info")
version=${version:-$(sed -n 's/^redis_version://p' <<<"$info")}
echo "# $kind $version"
newer() { [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]; }
ok "it is newer than what the other suites run on" newer "$version" "$([ "$kind" = redis ] && echo 7.1 || echo 8.1)"

# ---- What the server itself compares: found by asking, not by its version
knows() { [ -n "$(redis_cli COMMAND INFO "$1")" ]; }
native=
knows delifeq && native="DELIFEQ lock:job"
knows delex && native="DELEX lock:job IFEQ"
redis_cli SET lock:job mine >/dev/null
sets=$(redis_cli SET lock:job ours IFEQ mine PX 9000 2>&1)
[[ $sets != OK ]] || is "SET IFEQ does not touch what is another's" "$(redis_cli SET lock:job theirs IFEQ mine PX 9000)$(redis_cli GET lock:job)" ours
echo "# $kind $version: SET IFEQ: $sets; compare and delete: ${native:-only by a script}"
redis_cli DEL lock:job >/dev/null

# ---- What it would save: the server's own time, by its own statistics, for a lock that nobody waits for
# The library's name; the warm-up brings it to the server.
library=$(sed -n 's/^#!lua name=//p' "$BUILD/lua/library.lua")
"$HOLDFAST" -u "redis://127.0.0.1:$REDIS_PORT" run -n warm-up -- true || exit 70
# costs NAME STAT COMMAND BEFORE: sets $cost to the microseconds that the server takes for COMMAND, with BEFORE (if not
# empty) sent ahead of each; the least of five times twenty thousand, because the machine may have other things to do.
costs() {
    local name=$1 stat=$2 command=$3 before=$4 lines=$((20000 * (1 + (${#4} > 0)))) errors=0
    for _ in 1 2 3 4 5; do
        redis_cli CONFIG RESETSTAT >/dev/null
        yes "${before:+$before$'\r\n'}$command"$'\r' | head -n $lines | redis_cli --pipe >piped 2>&1
        grep -q "errors: 0, replies: $lines" piped || errors=1
        redis_cli INFO commandstats | sed -n "s/^cmdstat_$stat:.*usec_per_call=\([0-9.]*\),.*/\1/p"
    done >each
    result "$name" $errors "$(cat piped)"
    cost=$(sort -n each | head -n 1)
}
# compare WHAT STAT SCRIPT COMMAND [BEFORE]: what a script costs and what the server's own command would.
compare() {
    local by_script
    costs "$1 by the library" fcall "$3" "${5:-}"
    by_script=$cost
    [ -n "$4" ] || { echo "# $kind $version: $1 takes $by_script us of the server by the script" && return; }
    costs "$1 by ${4%% *}" "$2" "$4" "${5:-}"
    echo "# $kind $version: $1 takes $by_script us of the server by the script, $cost us by ${4%% *}"
    result "what that would save is little beside a round trip" \
        "$(awk -v script="$by_script" -v command="$cost" 'BEGIN { print !(command > 0 && script - command < 50) }')" "$by_script us, $cost us"
}
keys="lock:job {lock:job}:t {lock:job}:q {lock:job}:w {lock:job}:h {lock:job}:p"
id=AAAAAAAAAAAAAAAAAAAAAA
value="\"$id 1700000000000000 9000 0 b 4711 host \""
put="SET lock:job $value PX 9000"
redis_cli SET '{lock:job}:t' 1700000000000000 >/dev/null
compare "a release" "$(tr '[:upper:]' '[:lower:]' <<<"${native%% *}")" "FCALL ${library}_release 6 $keys $id" "${native:+$native $value}" "$put"
is "each of them released it" "$(redis_cli EXISTS lock:job)" 0
echo "$put" | redis_cli >/dev/null
[ "$sets" = OK ] && own="SET lock:job $value IFEQ $value PX 9000" || own=
compare "a renewal" set "FCALL ${library}_extend 6 $keys $id 9000" "$own"
is "and it is still held" "$(redis_cli EXISTS lock:job)" 1
stop_server

# ---- All rows, and what a server may do in its own way: replicas, wake-ups, rights
locker=$([ "$kind" = redis ] && echo locker || echo locker-valkey)
for source in "$ROOT"/tests/conformance/*.c; do
    program=$(basename "$source" .c)
    argument=
    [ "$program" != several_names ] || argument=5
    # shellcheck disable=SC2086
    HF_TEST_ENGINES="$kind $locker" "$BUILD/tests/conformance/$program" $argument
    result "$program" $?
done
for program in redis_replicas redis_notifications redis_acl; do
    "$BUILD/tests/fault/$program"
    result "$program" $?
done
rm -rf "$folder"
done_testing
