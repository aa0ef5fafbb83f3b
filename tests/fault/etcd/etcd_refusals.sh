#!/usr/bin/env bash
# etcd_refusals.sh - a real etcd that refuses: a full database, tokens of users that expire, a permission that is taken away,
# TLS with a client certificate, and the wrong server.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

for program in etcd etcdctl; do
    command -v $program >/dev/null || { skip "refusals" "$program is not installed" && done_testing; exit; }
done
export ETCDCTL_API=3
port() {
    local port
    for _ in {1..100}; do
        port=$((12000 + RANDOM % 10000))
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port && return; }
    done
}
# node NAME SCHEME [OPTION...]: one node; sets url_NAME, its host and port, and pid_NAME.
node() {
    local name=$1 scheme=$2 client peer
    client=$(port) peer=http://127.0.0.1:$(port)
    shift 2
    env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} setpriv --pdeathsig KILL etcd --name "$name" --data-dir "$name" \
        --listen-client-urls "$scheme://127.0.0.1:$client" --advertise-client-urls "$scheme://127.0.0.1:$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "$name=$peer" "$@" >"$name.log" 2>&1 &
    eval "pid_$name=$! at_$name=127.0.0.1:$client"
}
healthy() { etcdctl --endpoints "$@" endpoint health 2>&1 | grep -q 'is healthy'; }

# ---- A full database (E6)

node full http --quota-backend-bytes 6000000
ok "a node with little room is up" eventually healthy "http://$at_full"
export HOLDFAST_URL=etcd://$at_full
ctl() { etcdctl --endpoints "http://$at_full" "$@"; }
"$HOLDFAST" acquire -q --ttl 60s --lease held.lease held
ok "a lock is held before" test -s held.lease
head -c 60000 /dev/zero | tr '\0' x >block
for i in {1..130}; do ctl put "block$i" <block >/dev/null 2>&1 || break; done
like "the database is full" "$(ctl alarm list)" NOSPACE
said=$("$HOLDFAST" run -n --ttl 5s job -- true 2>&1)
code=$?
is "a new lock is refused" "$((code != 0))" 1
like "because of that" "$said" 'space|full'
ok "what is held can be released" "$HOLDFAST" release --lease held.lease
like "doctor says so" "$("$HOLDFAST" doctor 2>&1)" 'alarm is raised'
ctl del --prefix block >/dev/null
revision=$(ctl get x -w fields | sed -n 's/^"Revision" : //p')
ctl compact "$revision" >/dev/null && ctl defrag >/dev/null && ctl alarm disarm >/dev/null
is "after the alarm is disarmed locks are granted" "$("$HOLDFAST" run -w 10s --ttl 5s job -- echo in)" in
kill -KILL "$pid_full"

# ---- Users (E7)

node user http --auth-token simple --auth-token-ttl 3
ok "a node with users is up" eventually healthy "http://$at_user"
ctl() { etcdctl --endpoints "http://$at_user" "$@"; }
ctl user add root:secret && ctl user grant-role root root && ctl role add locker &&
    ctl role grant-permission --prefix locker readwrite lock/ && ctl user add locker:word && ctl user grant-role locker locker &&
    ctl auth enable
# Logging in costs the node a bcrypt hash, which takes longer than the usual op_timeout on a busy machine.
export HOLDFAST_URL=etcd://locker:word@$at_user?op_timeout=2s
is "a hold outlives the token of its user, which expires after 3 s" \
    "$("$HOLDFAST" run --ttl 4s job -- sh -c 'sleep 9; echo in')" in
"$HOLDFAST" run -q --ttl 4s job -- sh -c 'echo >taken; sleep 20' 2>lost &
holder=$!
eventually test -e taken
ctl --user root:secret role revoke-permission --prefix locker lock/ >/dev/null
wait $holder
is "a permission that is taken away costs the hold, and the command is stopped: 79" $? 79
exits "a new lock is 77" 77 "$HOLDFAST" run -n job -- true
kill -KILL "$pid_user"

# ---- TLS (E8)

"$ROOT/tests/lib/certificates" "$PWD" || exit 70
node tls https --cert-file server.crt --key-file server.key --client-cert-auth --trusted-ca-file ca.crt
eventually healthy "https://$at_tls" --cacert ca.crt --cert client.crt --key client.key
base="etcds://$at_tls?ca=$PWD/ca.crt"
said=$(HOLDFAST_URL=$base "$HOLDFAST" run -n job -- true 2>&1)
code=$?
result "no client certificate is refused" "$((code != 78 && code != 69))" "$code: $said"
like "with the cause" "$said" 'certificate'
is "with one it serves" "$(HOLDFAST_URL="$base&cert=$PWD/client.crt&key=$PWD/client.key" "$HOLDFAST" run -n job -- echo in)" in
fails "a plain connection to it is refused" env HOLDFAST_URL="etcd://$at_tls" "$HOLDFAST" run -n job -- true
kill -KILL "$pid_tls"

# ---- Another server

start_redis || exit 70
exits "a server that is no etcd is 78" 78 env HOLDFAST_URL="etcd://127.0.0.1:$REDIS_PORT" "$HOLDFAST" run -n job -- true
done_testing
