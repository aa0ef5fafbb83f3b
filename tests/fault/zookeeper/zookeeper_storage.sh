#!/usr/bin/env bash
# zookeeper_storage.sh - one real server whose disk is slow (Z16), and whose clock steps (Z17): no hold is lost by either,
# and nobody gets in beside one.
. "$(dirname "$0")/../../lib/zookeeper.sh"
own_network "$@"
. "$(dirname "$0")/../../lib/cli_tap.sh"

if why=$(zookeeper_missing); then
    skip "a slow disk and a wrong clock" "$why"
    done_testing
    exit
fi
export HOLDFAST_URL=zk://127.0.0.1:2181 HOLDFAST_TTL=5s
# server NAME LIBRARY [JVM OPTION...]: one server, with a library in its process. $server is its process.
server() {
    mkdir -p "$1/data" && printf '%s\n' tickTime=500 dataDir="$PWD/$1/data" clientPort=2181 clientPortAddress=127.0.0.1 \
        admin.enableServer=false '4lw.commands.whitelist=*' >"$1/zoo.cfg"
    preload=$BUILD/tests/libtest-$2.so zookeeper_start "$1" "${@:3}"
    server=$!
    ok "$1: the server serves" eventually zookeeper_serves 1
}
# hold NAME: a command that holds until NAME.stop is there. Its process: $holding.
hold() {
    "$HOLDFAST" run -q "$1" -- sh -c 'echo $HOLDFAST_TOKEN >$0.token; until [ -e $0.stop ]; do sleep 0.05; done' "$1" &
    holding=$!
    ok "$1: a command holds the lock" eventually test -s "$1.token"
}
ends_well() {
    touch "$1.stop"
    wait $holding
    is "$1: the command ended by itself" $? 0
    "$HOLDFAST" run -q -w 60s "$1" -- sh -c 'echo $HOLDFAST_TOKEN' >"$1.next"
    ok "$1: the next one has a higher token" test "$(cat "$1.next")" -gt "$(cat "$1.token")"
}

# ---- Every write waits 300 ms for the disk ----

mkdir -p disk && echo 300 >disk/slow
server disk slow-disk -Dzookeeper.forceSync=yes
hold disk
before=$(wc -c <disk/synced)
synced() { [ "$(wc -c <disk/synced)" -ge $((before + 5)) ]; }
ok "disk: the disk was waited for, by renewals" eventually synced
exits "disk: nobody else gets in: 75" 75 "$HOLDFAST" run -q -w 5s disk -- true
ends_well disk
kill -KILL $server
eventually gone $server

# ---- The wall clock of the server steps by an hour, ahead and back, while a lock is held ----

# set_clock SECONDS: how far the server's wall clock is off from now on.
set_clock() {
    python3 -c 'import struct, sys
with open("clock/clock", "r+b") as file:
    file.seek(8)
    file.write(struct.pack("=q", int(sys.argv[1]) * 1000000))' "$1"
}
# made_at NAME: since when a new hold is, as the server sees it: in seconds, beside our clock.
made_at() {
    /usr/bin/python3 - "$1" <<'PYTHON'
import logging, sys, time
from kazoo.client import KazooClient
logging.disable(logging.CRITICAL)
client = KazooClient(hosts='127.0.0.1:2181')
client.start()
client.create(sys.argv[1], b'')
print(round((client.exists(sys.argv[1]).ctime / 1000 - time.time()) / 600))
client.stop()
PYTHON
}
server clock wrong-clock
for step in 3600 -3600; do
    name=clock$step
    hold "$name"
    set_clock $step
    if /usr/bin/python3 -c 'import kazoo' 2>/dev/null; then
        is "$name: the server's clock is an hour off" "$(made_at "/$name")" $((step / 600))
    else
        skip "$name: the server's clock is an hour off" "kazoo is not installed (Debian: python3-kazoo)"
    fi
    sleep 4 # it renews a few times
    exits "$name: nobody else gets in: 75" 75 "$HOLDFAST" run -q -w 5s "$name" -- true
    "$HOLDFAST" run -q -w 60s "$name" -- true &
    waiter=$!
    ends_well "$name"
    wait $waiter
    is "$name: one that waited had its turn" $? 0
    set_clock 0
done
kill -KILL $server
done_testing
