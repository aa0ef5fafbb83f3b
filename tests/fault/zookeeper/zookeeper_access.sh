#!/usr/bin/env bash
# zookeeper_access.sh - one real ZooKeeper: users and access lists, TLS, a bound on sessions, and kazoo's locks beside ours.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/zookeeper.sh"

skip_all() {
    skip "access to ZooKeeper" "$1"
    done_testing
    exit
}
command -v java >/dev/null || skip_all "java is not installed"
[ -r /usr/share/java/zookeeper.jar ] || skip_all "ZooKeeper is not installed (Debian: libzookeeper-java)"
[ -r /usr/share/java/netty-codec.jar ] || skip_all "netty is not installed (Debian: libnetty-java)"

# port: one that nobody listens on, below those that the kernel gives to clients.
port() {
    local port
    for _ in {1..100}; do
        port=$((12000 + RANDOM % 10000))
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port && return; }
    done
}
"$ROOT/tests/lib/certificates" "$PWD" || exit 70
openssl pkcs8 -topk8 -nocrypt -in server.key -out server.pem && cat server.crt >>server.pem
plain=$(port) secure=$(port)
printf '%s\n' tickTime=500 dataDir="$PWD/data" clientPort="$plain" clientPortAddress=127.0.0.1 secureClientPort="$secure" \
    secureClientPortAddress=127.0.0.1 admin.enableServer=false '4lw.commands.whitelist=*' maxSessionTimeout=12000 \
    serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory ssl.keyStore.location="$PWD/server.pem" \
    ssl.trustStore.location="$PWD/ca.pem" ssl.clientAuth=none >zoo.cfg
cp ca.crt ca.pem
env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} setpriv --pdeathsig KILL java -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dzookeeper.jmx.log4j.disable=true -Dzookeeper.forceSync=no \
    -cp ".:/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar$(printf ':%s' /usr/share/java/netty-*[a-z].jar)" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg >log 2>&1 &
server=$!
serves() { (exec 3<>"/dev/tcp/127.0.0.1/$plain" && printf srvr >&3 && timeout 2 cat <&3) 2>/dev/null | grep -q Mode:; }
ok "the server serves" eventually serves || { tail -n 20 log >&2; }
export HOLDFAST_TTL=5s

# ---- Users ----

url() { echo "zk://${1:+$1@}127.0.0.1:$plain/$2"; }
is "without a user everybody may" "$("$HOLDFAST" -u "$(url '' open)" run -w 20s job -- echo in)" in
is "a user makes nodes of its own" "$("$HOLDFAST" -u "$(url ann:secret anns)" run -w 20s job -- echo in)" in
exits "nobody else may take its locks: 77" 77 "$HOLDFAST" -u "$(url '' anns)" run -w 20s job -- true
like "and the message names the reason" "$said" 'access list'
exits "not even with a wrong password: 77" 77 "$HOLDFAST" -u "$(url ann:wrong anns)" run -w 20s job -- true
exits "nor look at them: 77" 77 "$HOLDFAST" -u "$(url bob:secret anns)" show job
is "the user itself may, again and again" "$("$HOLDFAST" -u "$(url ann:secret anns)" run -w 20s job -- echo in)" in

# ---- TLS ----

is "a known authority serves" "$("$HOLDFAST" -u "zookeepers://127.0.0.1:$secure/tls?ca=$PWD/ca.crt" run -q -w 20s job -- echo in)" in
exits "an unknown one is 78" 78 "$HOLDFAST" -u "zookeepers://127.0.0.1:$secure/tls" run -q -w 20s job -- true
refused() { ! "$HOLDFAST" -u "$1" run -n job -- true >/dev/null 2>&1; }
ok "TLS on the plain port is refused" refused "zookeepers://127.0.0.1:$plain/tls?ca=$PWD/ca.crt"
ok "plain text on the TLS port is refused" refused "zk://127.0.0.1:$secure/tls"

# ---- Bounds ----

exits "a ttl that no session here can have is refused: 64" 64 "$HOLDFAST" -u "$(url '' open)" run -w 20s --ttl 30s job -- true
like "with both numbers" "$said" '30000 ms.*12000 ms.*9000 ms'
is "the longest one serves" "$("$HOLDFAST" -u "$(url '' open)" run -w 20s --ttl 9s job -- echo in)" in
exits "a path that no node can have is 78" 78 "$HOLDFAST" -u "zk://127.0.0.1:$plain/a//b" run -w 20s job -- true

# ---- What the doctor says ----

doctor=$("$HOLDFAST" -u "$(url '' open)" doctor)
like "the doctor knows the bounds of sessions" "$doctor" 'sessions last from 1000 to 12000 ms: a ttl is at most 9000 ms'
like "and how many connections a host may have" "$doctor" 'maxClientCnxns is 60'
like "and the size of the snapshots" "$doctor" 'snapshots take [0-9]+ MB'

# ---- kazoo ----

# kazoo PATH WAIT FILE: tries for WAIT seconds; holds until FILE is there, "": not at all.
kazoo() {
    /usr/bin/python3 - "127.0.0.1:$plain" "$@" <<'PYTHON'
import logging, os, sys, time
from kazoo.client import KazooClient
logging.disable(logging.CRITICAL)
hosts, path, wait, until = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
client = KazooClient(hosts=hosts)
client.start()
lock = client.Lock(path, 'kazoo')
try:
    print('held' if lock.acquire(timeout=wait) else 'busy', flush=True)
    while until and not os.path.exists(until):
        time.sleep(0.05)
    lock.release()
except Exception as error:
    print(type(error).__name__)
client.stop()
PYTHON
}
if /usr/bin/python3 -c 'import kazoo' 2>/dev/null; then
    export HOLDFAST_URL="$(url '' mixed)?interop=kazoo"
    is "kazoo does not get a lock that ours holds" "$("$HOLDFAST" run -w 20s job -- bash -c "$(declare -f kazoo); plain=$plain kazoo /mixed/job 1 ''")" \
        LockTimeout
    kazoo /mixed/job 20 kazoo.let >kazoo.out &
    peer=$!
    ok "kazoo holds it" eventually grep -q held kazoo.out
    exits "then ours is busy: 75" 75 "$HOLDFAST" run -w 5s job -- true
    like "and shows it as foreign" "$("$HOLDFAST" show --json job | jq -c '.[0] | [.role, .foreign]')" '"holder",true'
    "$HOLDFAST" run -w 60s job -- echo in >ours.out 2>ours.said &
    ours=$!
    ok "ours waits for it" eventually rows waiter job 1
    touch kazoo.let
    wait $ours
    is "and gets it from kazoo" "$(cat ours.out)" in
    wait $peer
else
    skip "kazoo's locks beside ours" "kazoo is not installed (Debian: python3-kazoo)"
fi

# ---- Curator ----

curator() { java -Xmx64m -cp "$PWD$CURATOR_JARS" CuratorPeer "127.0.0.1:$plain" "$@" 2>curator.err; }
if javac -cp "${CURATOR_JARS#:}" -d . "$ROOT/tests/fault/zookeeper/CuratorPeer.java" 2>javac.err; then
    HOLDFAST_URL=$(url '' app)
    export HOLDFAST_URL
    "$HOLDFAST" run -w 20s job -- sh -c 'touch ours; until [ -e stop ]; do sleep 0.05; done' &
    holding=$!
    ok "ours holds a lock of Curator's" eventually test -e ours
    is "Curator does not get it" "$(curator /app/job try 500 -)" busy
    touch stop
    wait $holding
    curator /app/job try 20000 curator.let >curator.out &
    peer=$!
    ok "Curator holds it" eventually grep -q held curator.out
    exits "then ours is busy: 75" 75 "$HOLDFAST" run -w 5s job -- true
    like "and shows it as foreign" "$("$HOLDFAST" show --json job | jq -c '.[0] | [.role, .foreign]')" '"holder",true'
    "$HOLDFAST" run -w 60s job -- echo in >ours.out 2>ours.said &
    ours=$!
    ok "ours waits for it" eventually rows waiter job 1
    touch curator.let
    wait $ours
    is "and gets it from Curator" "$(cat ours.out)" in
    wait $peer
else
    skip "Curator's locks beside ours" "it or javac is not installed (Debian: libcurator-recipes-java, default-jdk-headless)"
fi
kill -KILL $server
done_testing
