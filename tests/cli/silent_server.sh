#!/usr/bin/env bash
# silent_server.sh [STEP_MS] - a server that does not answer is 69 and never 75, whatever the wait, the connect_timeout and the
# op_timeout are, by hf_acquire, by hf_acquire_start and by the command; against four kinds of silence, and on other engines.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
needs_server redis
STEP=${1:-250}
silent=()
trap 'kill "${silent[@]}" 2>/dev/null; kill -CONT "$stopped" 2>/dev/null; end_servers; rm -rf "$SCRATCH"' EXIT

# silence KIND [ARGUMENT]: starts such a server; SILENT_PORT is its port.
silence() {
    python3 "$ROOT/tests/lib/silent_server.py" "$@" >"port.$1" &
    silent+=($!)
    eventually test -s "port.$1" || return 1
    SILENT_PORT=$(cat "port.$1")
}

WAITS=(0 50ms 450ms 500ms 1950ms 2s 2050ms 3s)
names=()

# begin NAME URL [STEP_MS]: everything that is tried with this server, at once and beside that of the others.
begin() {
    local folder=${#names[@]} wait
    names+=("$1")
    mkdir "$folder"
    echo "${3:-$STEP}" >"$folder/step"
    "$TEST_BIN/silent_waits" "$2" "${3:-$STEP}" 5000 >"$folder/waits" &
    for wait in "${WAITS[@]}"; do
        { "$HOLDFAST" -u "$2" run -q -w "$wait" silent -- true 2>/dev/null; echo "run -w $wait: $?" >"$folder/run.$wait"; } &
    done
    { "$HOLDFAST" -u "$2" run -n silent -- true 2>/dev/null; echo "run -n: $?" >"$folder/run.n"; } &
    { "$HOLDFAST" -u "$2" acquire -n silent 2>/dev/null; echo "acquire -n: $?" >"$folder/acquire.n"; } &
}

# judge: every wait from 0 to 5 s ended with a status whose exit code is 69, by both calls; and so did the command.
judge() {
    local i step
    for i in "${!names[@]}"; do
        step=$(cat "$i/step")
        is "${names[i]}: waits from 0 to 5 s in steps of $step ms were tried" "$(wc -l <"$i/waits")" $((5000 / step + 1))
        is "${names[i]}: each is unavailable or in doubt" \
            "$(awk '$2 !~ /^(UNAVAILABLE|IN_DOUBT)$/ || $4 !~ /^(UNAVAILABLE|IN_DOUBT)$/' "$i/waits")" ""
        is "${names[i]}: none lasts longer than its wait and one op_timeout" "$(awk '$3 > $1 + 2500 || $5 > $1 + 2500' "$i/waits")" ""
        is "${names[i]}: the command was tried with and without a wait" "$(cat "$i"/*run.* "$i"/acquire.n | wc -l)" $((${#WAITS[@]} + 2))
        is "${names[i]}: it exits with 69" "$(grep -v ': 69$' "$i"/run.* "$i"/acquire.n)" ""
    done
}

start_redis || exit 70
stopped=$REDIS_PID stopped_port=$REDIS_PORT
start_redis || exit 70
kill -STOP "$stopped"
begin "a stopped server" "redis://127.0.0.1:$stopped_port/0"
silence mute || exit 70
begin "a server that accepts and says nothing" "redis://127.0.0.1:$SILENT_PORT/0"
for engine in $("$HOLDFAST" version | sed -n 's/^engines: //p' | grep -owE 'postgres|etcd|consul|zookeeper'); do
    begin "$engine: a server that accepts and says nothing" "$engine://127.0.0.1:$SILENT_PORT" 1000
done
begin "a connect_timeout below the waits" "redis://127.0.0.1:$SILENT_PORT/0?connect_timeout=500ms&op_timeout=1s" 500
silence full || exit 70
begin "a full backlog" "redis://127.0.0.1:$SILENT_PORT/0"
silence cut "$REDIS_PORT" || exit 70
begin "a connection that is cut after the greeting" "redis://127.0.0.1:$SILENT_PORT/0"
tried() { [ "$(cat ./*/run.* ./*/acquire.n 2>/dev/null | wc -l)" -eq $((${#names[@]} * (${#WAITS[@]} + 2))) ]; }
whole() { [ "$(cat ./*/waits | wc -l)" -eq "$(awk '{ sum += int(5000 / $1) + 1 } END { print sum }' ./*/step)" ]; }
eventually tried
eventually whole
judge

# A server that answers and whose lock is held is still 75.
"$HOLDFAST" -u "$REDIS_URL" acquire -q --ttl 60s silent >held
exits "a held lock on a live server is 75" 75 "$HOLDFAST" -u "$REDIS_URL" run -q -w 50ms silent -- true
exits "without a wait too" 75 "$HOLDFAST" -u "$REDIS_URL" run -n silent -- true
done_testing
