#!/usr/bin/env bash
# servers_sh_check.sh - what tests/lib/servers.sh promises of the servers that tests in bash are run on.
. "$(dirname "$0")/../lib/tap.sh"
. "$(dirname "$0")/../lib/servers.sh"
cd "$ROOT" || exit 70

# gone PID: no such process, or one that is dead and not yet reaped.
gone() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    [[ $stat =~ \)\ [ZX] ]]
}

# becomes_gone PID: within ten seconds.
becomes_gone() {
    local end=$((SECONDS + 10))
    until gone "$1"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.01
    done
}

for kind in redis valkey; do
    if why=$(missing_server $kind); then
        result "a $kind starts and answers # SKIP $why" 0
        continue
    fi
    start_$kind --maxclients 77
    result "a $kind starts" $?
    is "$kind: it answers on its socket" "$(redis_cli PING)" PONG
    is "$kind: it answers at its URL" "$(redis-cli -u "$REDIS_URL" PING)" PONG
    is "$kind: options reach it" "$(redis_cli CONFIG GET maxclients | tail -n 1)" 77
    first=$REDIS_PID
    start_$kind
    result "a second $kind starts beside it" $?
    stop_server
    ok "$kind: the second one is gone when it was stopped" gone "$REDIS_PID"
    fails "$kind: the first one is not" gone "$first"
    kill -STOP "$first"
    stop_server "$first"
    ok "$kind: one that stands still is stopped too" gone "$first"
done

if why=$(missing_server redis); then
    result "a server that does not start says why # SKIP $why" 0
    result "servers end with their script # SKIP $why" 0
else
    said=$(start_redis --no-such-option 1 2>&1)
    is "a server that does not start is a failure" $? 1
    like "it says why" "$said" "no-such-option"
    mkfifo "$SCRATCH/said" "$SCRATCH/never"
    for signal in TERM KILL; do
        # A script that starts a server, says which it is, and waits to be killed.
        TMPDIR=$SCRATCH NEVER=$SCRATCH/never bash -c \
            '. tests/lib/tap.sh; . tests/lib/servers.sh; start_redis; echo $REDIS_PID; read -r <>"$NEVER"' >"$SCRATCH/said" &
        script=$!
        read -r pid <"$SCRATCH/said"
        fails "the server of a script lives while the script does" gone "$pid"
        kill -$signal $script
        wait $script 2>/dev/null
        ok "it ends with a script that gets SIG$signal" becomes_gone "$pid"
    done
fi
done_testing
