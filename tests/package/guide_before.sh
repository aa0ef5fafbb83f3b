#!/usr/bin/env bash
# guide_before.sh - what the guide says its readers wrote before is true, too: the commands of etcd and Consul run, and
# the JavaScript of node-redlock, each against servers of its own.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
trap 'kill "${daemons[@]}" 2>/dev/null; end_servers; wait; rm -rf "$SCRATCH"' EXIT
daemons=()
printf '#!/bin/sh\nexit 0\n' >job
chmod +x job

# wrote FILE WORD: what stands between backticks in the left column of its table and begins with that word.
wrote() {
    awk -F'|' '/^\| `/ { print $2 }' "$ROOT/docs/$1" | grep -oE '`[^`]*`' | tr -d '`' | grep "^$2"
}
# free_ports COUNT
free_ports() {
    python3 -c 'import socket, sys
all = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in all))' "$1"
}
skip() {
    result "$1 # SKIP $2" 0
}
as_written() {
    exits "$1" 0 timeout 20 bash -c "$1"
}

# ---- etcd ----

# Held by the line that holds until it is interrupted, while the others look at it and take it away.
etcd_held() {
    local holder
    $(wrote from-etcdctl.md 'etcdctl lock job$') >holder 2>&1 &
    holder=$!
    ok "etcdctl lock job: holds" eventually grep -q '^job/' holder
    like "etcdctl get --prefix job: shows the holder" "$($(wrote from-etcdctl.md 'etcdctl get'))" '^job/[0-9a-f]+'
    ok "its key has a create revision" jq -e '.kvs[0].create_revision > 0' <(etcdctl get --prefix job -w json)
    exits "etcdctl lease revoke ID: takes it away" 0 $(wrote from-etcdctl.md 'etcdctl lease revoke' |
        sed "s/ID/$(etcdctl lease list | tail -n 1)/")
    is "and it is free" "$(etcdctl get --prefix job)" ""
    kill -INT $holder
    wait $holder
}

if ! start_etcd; then
    skip "the commands of etcd" "etcd-server and etcd-client are not installed"
else
    while IFS= read -r line; do as_written "$line"; done < <(wrote from-etcdctl.md 'etcdctl lock .*\./job')
    etcd_held
fi

# ---- Consul ----

start_consul() {
    local http lan server
    read -r http lan server <<<"$(free_ports 3)"
    export CONSUL_HTTP_ADDR=127.0.0.1:$http
    printf '{"ports": {"http": %d, "serf_lan": %d, "server": %d, "dns": -1, "grpc": -1, "serf_wan": -1}}' "$http" "$lan" "$server" >consul.json
    consul agent -dev -bind 127.0.0.1 -client 127.0.0.1 -config-file consul.json >consul.log 2>&1 &
    daemons+=($!)
    eventually consul kv put ready yes
}

if ! consul=$("$ROOT/tests/lib/fetch-consul" 2>why); then
    skip "the commands of Consul" "$(tail -n 1 why)"
else
    PATH=$PATH:$(dirname "$consul")
    start_consul
    while IFS= read -r line; do as_written "$line"; done < <(wrote from-etcdctl.md consul)
    exits "consul lock exits with 0 whatever the command says" 0 consul lock job 'exit 7'
    exits "and with 2 under -child-exit-code" 2 consul lock -child-exit-code job 'exit 7'
fi

# ---- node-redlock ----

# The lines of the guide, in the order in which a program has them.
write_program() {
    cat <<END
const Redlock = require("redlock").default, Client = require("ioredis");
const [a, b, c] = process.argv.slice(2).map((port) => new Client(Number(port)));
const must = (fine, what) => { if (!fine) throw new Error(what); };
(async () => {
    const redlock = $(wrote from-redlock.md 'new Redlock');
    let lock = $(wrote from-redlock.md 'await redlock.acquire(\["job"\]');
    must(await a.exists("job") === 1, "not held");
    must(!("token" in lock), "it has a token");
    lock = $(wrote from-redlock.md 'await lock.extend');
    $(wrote from-redlock.md 'await lock.release');
    must(await a.exists("job") === 0, "not released");
    await $(wrote from-redlock.md redlock.using | sed 's/\.\.\./must(!signal.aborted, "aborted")/');
    lock = await redlock.$(wrote from-redlock.md 'acquire(\["a", "b"\]');
    must(await b.exists("a", "b") === 2, "not both");
    await lock.release();
    for (const name of "$(wrote from-redlock.md 'retry\|driftFactor' | xargs)".split(" "))
        must(name in redlock.settings, "no setting " + name);
    console.log("proved");
    process.exit(0);
})().catch((error) => { console.log(error); process.exit(1); });
END
}
if ! command -v npm >/dev/null; then
    skip "the JavaScript of from-redlock.md" "npm is not installed"
elif ! npm install --no-audit --no-fund --silent redlock@^5.0.0-beta ioredis >npm.log 2>&1; then
    skip "the JavaScript of from-redlock.md" "npm cannot install redlock here"
else
    ports=()
    for _ in a b c; do start_redis || exit 70; ports+=("$REDIS_PORT"); done
    write_program >program.cjs
    is "the JavaScript of from-redlock.md runs" "$(timeout 20 node program.cjs "${ports[@]}" 2>&1)" proved
fi
done_testing
