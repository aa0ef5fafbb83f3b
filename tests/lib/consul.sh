# shellcheck shell=bash
# consul.sh - agents of Consul for scripts; sourced behind tap.sh. They live as long as the script, in the folder that it
# runs in.
#
#     CONSUL=$("$ROOT/tests/lib/fetch-consul") || ...
#     http=$(free_port)
#     consul_agent one "$http" "$(free_port)" "$(free_port)" '' -server -bootstrap-expect 1
#     eventually consul_ready "$http"

# free_port: prints a port that nobody listens on, below the range from which the kernel serves
# clients.
free_port() {
    local port
    for _ in {1..100}; do
        port=$((12000 + RANDOM % 10000))
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port && return; }
    done
}

# consul_agent NAME HTTP-PORT SERF-PORT SERVER-PORT SETTINGS [OPTION...]: starts an agent in the
# background; pid_NAME is its process. SETTINGS are more fields of JSON, behind a comma; or ''.
consul_agent() {
    local name=$1
    printf '{"ports": {"http": %d, "serf_lan": %d, "server": %d, "dns": -1, "grpc": -1, "serf_wan": -1}, "session_ttl_min": "1s",
        "performance": {"raft_multiplier": 1}, "disable_update_check": true%s}' "$2" "$3" "$4" "$5" >"$name.json"
    env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} setpriv --pdeathsig KILL "$CONSUL" agent -node "$name" -bind 127.0.0.1 \
        -client 127.0.0.1 -config-file "$name.json" "${@:6}" >"$name.log" 2>&1 &
    eval "pid_$name=$!"
}

# consul_servers [SETTINGS]: starts three servers of one cluster, n1 to n3, with ports http, serf
# and rpc; `hosts` is their list for a URL.
consul_servers() {
    local i join=()
    hosts=
    for i in 1 2 3; do
        http[i]=$(free_port) serf[i]=$(free_port) rpc[i]=$(free_port) join+=(-retry-join "127.0.0.1:${serf[i]}")
    done
    for i in 1 2 3; do
        consul_agent n$i "${http[i]}" "${serf[i]}" "${rpc[i]}" "${1:-}" -data-dir "$PWD/n$i" -server -bootstrap-expect 3 \
            -retry-interval 1s "${join[@]}"
        hosts+=${hosts:+,}127.0.0.1:${http[i]}
    done
}

# consul_leader NUMBER: prints the number of the leader that server NUMBER knows; fails if it knows
# none.
consul_leader() {
    local leader i
    leader=$(curl -s -m 3 "http://127.0.0.1:${http[$1]}/v1/status/leader" | tr -d '"')
    for i in 1 2 3; do [ "$leader" != "127.0.0.1:${rpc[i]}" ] || { echo $i && return; }; done
    return 1
}

# consul_ready PORT [TOKEN]: succeeds if the agent takes sessions.
consul_ready() {
    curl -sf -m 3 -X PUT ${2:+-H "X-Consul-Token: $2"} -d '{"TTL": "10s"}' "http://127.0.0.1:$1/v1/session/create" | grep -q ID
}
