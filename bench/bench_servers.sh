# shellcheck shell=bash
# bench_servers.sh - the servers of the bench, all on CPU 0: a single one, a primary with a replica, and a
# quorum of five. Sourced by bench/run after tests/lib/servers.sh.

MAX_TTL_MS=1000 # of the quorum: a server counts once it has run for this long

start_pinned() {
    start_redis --maxclients 9000 "$@" && taskset -acp 0 "$REDIS_PID" >/dev/null
}

start_servers() {
    local all=() i primary
    for i in 1 2 3 4 5 6 7; do
        start_pinned || return 1
        all+=("127.0.0.1:$REDIS_PORT")
        [ "$i" -ne 1 ] || HUNG_PID=$REDIS_PID
        [ "$i" -le 5 ] || stop_server "$REDIS_PID" KILL
    done
    QUORUM_URL=redlock://$(IFS=, && echo "${all[*]:0:5}")
    TWO_DEAD_URL=redlock://$(IFS=, && echo "${all[*]:0:3},${all[*]:5:2}")
    QUORUM_COUNTS_AT=$((SECONDS + MAX_TTL_MS / 1000 + 3))
    start_pinned || return 1
    REPLICATED_URL=$REDIS_URL
    primary=$REDIS_PORT
    start_pinned --replicaof 127.0.0.1 "$primary" || return 1
    start_pinned || return 1
    MAIN_PID=$REDIS_PID
}

# empty_server: removes all data and sets the counters of the last workload back to zero.
empty_server() {
    redis_cli FLUSHALL >/dev/null
    redis_cli CONFIG RESETSTAT >/dev/null
}

await_quorum() {
    while [ $SECONDS -lt "$QUORUM_COUNTS_AT" ]; do sleep 0.1; done
}
