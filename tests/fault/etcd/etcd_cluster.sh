#!/usr/bin/env bash
# etcd_cluster.sh - three real nodes of etcd: a node that dies takes no lock with it. And one node with TLS, and users.
. "$(dirname "$0")/../../lib/cli_tap.sh"

for program in etcd etcdctl; do
    command -v $program >/dev/null || { skip "the cluster" "$program is not installed" && done_testing; exit; }
done
export ETCDCTL_API=3

# port: one that nobody listens on, below those that the kernel gives to clients.
port() {
    local port
    for _ in {1..100}; do
        port=$((12000 + RANDOM % 10000))
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port && return; }
    done
}
# etcd_start NAME CLIENT-URL PEER-PORT CLUSTER [OPTION...]: in the background; pid_NAME is its process.
etcd_start() {
    local name=$1 url=$2 peer=http://127.0.0.1:$3 cluster=$4
    shift 4
    env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} setpriv --pdeathsig KILL etcd --name "$name" --data-dir "$name" --listen-client-urls "$url" \
        --advertise-client-urls "$url" --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
        --initial-cluster "$cluster" --heartbeat-interval 50 --election-timeout 500 "$@" >"$name.log" 2>&1 &
    eval "pid_$name=$!"
}
healthy() { etcdctl --endpoints "$1" "${@:2}" endpoint health 2>&1 | grep -q 'is healthy'; }

# ---- Three nodes ----

cluster='' hosts=''
for i in 1 2 3; do
    client[i]=$(port) peer[i]=$(port)
    cluster+=${cluster:+,}n$i=http://127.0.0.1:${peer[i]} hosts+=${hosts:+,}127.0.0.1:${client[i]}
done
for i in 1 2 3; do etcd_start n$i "http://127.0.0.1:${client[i]}" "${peer[i]}" "$cluster"; done
for i in 1 2 3; do ok "node $i is up" eventually healthy "127.0.0.1:${client[i]}"; done
export HOLDFAST_URL=etcd://$hosts
is "a lock on the cluster" "$("$HOLDFAST" run -w 20s job -- echo in)" in
"$HOLDFAST" run --ttl 5s job -- sh -c 'echo $HOLDFAST_TOKEN >first; sleep 4' &
holder=$!
ok "a command holds it" eventually test -s first
"$HOLDFAST" run -q -w 30s --ttl 5s job -- sh -c 'echo $HOLDFAST_TOKEN >second' &
waiter=$!
waits() { "$HOLDFAST" show --json job | jq -e 'map(select(.role == "waiter")) | length == 1'; }
ok "another one waits" eventually waits
kill -KILL "$pid_n1"
wait $holder
is "the node that both talk to dies: the command ends as if nothing had happened" $? 0
wait $waiter
is "and the one that waits is next" $? 0
ok "with a higher token" test "$(cat second)" -gt "$(cat first)"
is "two of three nodes are enough" "$("$HOLDFAST" run -w 20s job -- echo in)" in
kill -KILL "$pid_n2"
exits "one of three is not: 69" 69 "$HOLDFAST" run -n job -- true
kill -KILL "$pid_n3"

# ---- TLS, and users ----

"$ROOT/tests/lib/certificates" "$PWD" || exit 70
client=$(port) peer=$(port) tls=(--cacert ca.crt)
etcd_start one "https://127.0.0.1:$client" "$peer" "one=http://127.0.0.1:$peer" --cert-file server.crt --key-file server.key
ok "a node with TLS is up" eventually healthy "https://127.0.0.1:$client" "${tls[@]}"
export HOLDFAST_URL=etcds://127.0.0.1:$client/lock/
exits "an unknown authority is 78" 78 "$HOLDFAST" run -w 20s job -- true
is "a known one serves" "$(HOLDFAST_URL="$HOLDFAST_URL?ca=$PWD/ca.crt" "$HOLDFAST" run -w 20s job -- echo in)" in
ctl() { etcdctl --endpoints "https://127.0.0.1:$client" "${tls[@]}" "$@" >>ctl 2>&1; }
ctl user add root:secret && ctl user grant-role root root && ctl role add locker &&
    ctl role grant-permission --prefix locker readwrite lock/ && ctl user add locker:word && ctl user grant-role locker locker &&
    ctl auth enable
ok "users are asked for a password now" test $? = 0
url() { echo "etcds://${1:+$1@}127.0.0.1:$client/$2?ca=$PWD/ca.crt"; }
exits "nobody is 77" 77 env HOLDFAST_URL="$(url '' lock/)" "$HOLDFAST" run -w 20s job -- true
exits "a wrong password is 77" 77 env HOLDFAST_URL="$(url locker:wrong lock/)" "$HOLDFAST" run -w 20s job -- true
is "a user with the prefix serves" "$(HOLDFAST_URL="$(url locker:word lock/)" "$HOLDFAST" run -w 20s job -- echo in)" in
exits "another prefix is 77" 77 env HOLDFAST_URL="$(url locker:word other/)" "$HOLDFAST" run -w 20s job -- true
kill -KILL "$pid_one"
done_testing
