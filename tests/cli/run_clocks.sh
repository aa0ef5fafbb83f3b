#!/usr/bin/env bash
# run_clocks.sh - `run` on a machine whose clocks step apart: only the one that goes on while the machine sleeps ends a
# lease. The command is the shipped one; a library that is preloaded gives it its clocks (tests/lib/wrong_clock.c).
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
trap 'end_servers; rm -rf "$SCRATCH"' EXIT
start_redis || exit 70
WALL=1 MONOTONIC=2 BOOTTIME=3 TOLD=4 # numbers of the file "clock"

# clock NUMBER [SECONDS]: shows what stands there, or sets it.
clock() {
    python3 - "$@" <<-'END'
	import struct, sys
	with open("clock", "r+b") as file:
	    file.seek(8 * int(sys.argv[1]))
	    if len(sys.argv) > 2:
	        file.write(struct.pack("<q", int(sys.argv[2]) * 1000000))
	    else:
	        print(struct.unpack("<q", file.read(8))[0])
	END
}

scripts_run() {
    redis_cli INFO commandstats | sed -n 's/^cmdstat_fcall:calls=\([0-9]*\),.*/\1/p'
}

# begin: a run of $job whose command works until there is a file "enough".
begin() {
    rm -f clock began enough
    LD_PRELOAD=$BUILD/tests/libtest-wrong-clock.so "$HOLDFAST" -u "$REDIS_URL" run --ttl 1s --grace 200ms --status-fd 3 job -- \
        env -u LD_PRELOAD bash -c 'touch began; until [ -e enough ]; do read -rt 0.01 <> <(:); done; exit 0' 3>status 2>said &
    job=$!
    eventually test -e began
}

# ends NAME WANTED: its exit code, and what it told.
ends() {
    wait $job
    is "$1" "$? $(jq -r .event status | tr '\n' ' ')" "$2 "
}

renewed_thrice() { [ "$(scripts_run)" -ge $((before + 3)) ]; }

for step in "$WALL 18000" "$WALL -18000" "$MONOTONIC 18000" "$MONOTONIC -18000"; do
    read -r which by <<<"$step"
    begin
    # shellcheck disable=SC2086
    clock $step
    before=$(scripts_run)
    ok "clock $which by $by s: renewals go on" eventually renewed_thrice
    touch enough
    ends "clock $which by $by s: the command ends by itself" "0 granted started exited released"
done
begin
clock $BOOTTIME 3600
ends "a machine that slept for an hour has lost its lease" "79 granted started lost exited released"
ok "that clock was told" test "$(clock $TOLD)" -gt 0
begin
clock $BOOTTIME 2
ends "two seconds are longer than the ttl, too" "79 granted started lost exited released"
exits "and others take the lock" 0 "$HOLDFAST" -u "$REDIS_URL" run -w 5 job true
done_testing
