# shellcheck shell=bash
# servers.sh - Redis, Valkey and etcd servers for tests in bash; sourced behind tap.sh. Each has a folder in $SCRATCH, a free
# loopback port and a Unix socket; they end with the script, even if it is killed. Start them in the script itself, not
# in a subshell, whose end would be theirs.
#
#     start_redis --maxclients 50 || ...
#     "$HOLDFAST" --url "$REDIS_URL" ...
#     redis_cli FLUSHALL
#     stop_server
servers_started=()
trap 'end_servers; rm -rf "$SCRATCH"' EXIT

# missing_server redis|valkey: succeeds where there is no such server, and says why: for "# SKIP $(missing_server ...)".
missing_server() {
    ! command -v "$1-server" >/dev/null && echo "$1-server is not installed"
}

# needs_server redis|valkey: ends a script that cannot do without one, skipped with the reason.
needs_server() {
    local why
    why=$(missing_server "$1") || return 0
    result "this needs a $1-server # SKIP $why" 0
    done_testing
    exit
}

# start_redis [OPTION...]: starts one and waits until it answers. REDIS_PID, REDIS_PORT, REDIS_SOCKET, REDIS_FOLDER and
# REDIS_URL are those of the last one that was started. Fails, with its log on stderr, when it does not start.
start_redis() {
    start_server redis "$@"
}

start_valkey() {
    start_server valkey "$@"
}

# start_server KIND [OPTION...]: tries another port if another program took the first one meanwhile.
start_server() {
    local tries
    missing_server "$1" >&2 && return 1
    for ((tries = 0; tries < 20; tries++)); do
        REDIS_PORT=$((12000 + RANDOM % 10000))
        REDIS_FOLDER=$SCRATCH/server.$REDIS_PORT
        [ ! -e "$REDIS_FOLDER" ] || continue
        launch_server "$@" && return 0
        grep -q 'Address already in use' "$REDIS_FOLDER/log" || break
    done
    cat "$REDIS_FOLDER/log" >&2
    return 1
}

# launch_server KIND [OPTION...]: starts a server on $REDIS_PORT. Its title stays as it is: a title
# of its own would overwrite the mark in the environment by which the runner finds processes that
# are left over.
launch_server() {
    local program
    program=$(command -v "$1-server") && mkdir -p "$REDIS_FOLDER" || return 1
    shift
    REDIS_SOCKET=$REDIS_FOLDER/socket
    # shellcheck disable=SC2034
    REDIS_URL=redis://127.0.0.1:$REDIS_PORT/0
    env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} setpriv --pdeathsig KILL "$program" --port "$REDIS_PORT" --bind 127.0.0.1 \
        --unixsocket "$REDIS_SOCKET" --dir "$REDIS_FOLDER" --save '' --set-proc-title no --repl-ping-replica-period 1 \
        --repl-diskless-sync-delay 0 "$@" </dev/null >>"$REDIS_FOLDER/log" 2>&1 &
    REDIS_PID=$!
    servers_started+=("$REDIS_PID")
    await_server
}

# await_server: waits until the server answers; fails if it has ended.
await_server() {
    local end=$((SECONDS + 10))
    until redis_cli PING 2>/dev/null | grep -qx -e PONG -e 'NOAUTH.*'; do
        kill -0 "$REDIS_PID" 2>/dev/null && [ $SECONDS -lt $end ] || return 1
        sleep 0.01
    done
}

# redis_cli ARGUMENT...: asks the server that was started last.
redis_cli() {
    redis-cli -s "$REDIS_SOCKET" "$@"
}

# start_etcd: starts one node and waits until it is healthy. ETCD_URL is its address for the command; etcdctl finds it by
# its own variables. Fails where etcd and etcdctl are not installed, or with the log on stderr.
start_etcd() {
    local tries peer
    command -v etcd >/dev/null && command -v etcdctl >/dev/null || return 1
    export ETCDCTL_API=3 ETCDCTL_ENDPOINTS
    for ((tries = 0; tries < 5; tries++)); do
        ETCDCTL_ENDPOINTS=http://127.0.0.1:$((12000 + RANDOM % 10000)) peer=http://127.0.0.1:$((12000 + RANDOM % 10000))
        # shellcheck disable=SC2034
        ETCD_URL=etcd://${ETCDCTL_ENDPOINTS#http://}
        env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} setpriv --pdeathsig KILL etcd --name s1 --data-dir "$SCRATCH/etcd.$tries" \
            --listen-client-urls "$ETCDCTL_ENDPOINTS" --advertise-client-urls "$ETCDCTL_ENDPOINTS" --listen-peer-urls "$peer" \
            --initial-advertise-peer-urls "$peer" --initial-cluster "s1=$peer" </dev/null >"$SCRATCH/etcd.log" 2>&1 &
        servers_started+=($!)
        eventually etcdctl endpoint health 2>/dev/null && return 0
    done
    cat "$SCRATCH/etcd.log" >&2
    return 1
}

# stop_server [PID [SIGNAL]]: ends a server (default: the last one, with TERM) and waits for its
# end.
stop_server() {
    local pid=${1:-$REDIS_PID}
    kill "-${2:-TERM}" "$pid" && kill -CONT "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    return 0
}

end_servers() {
    local pid
    for pid in "${servers_started[@]}"; do
        kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
}
