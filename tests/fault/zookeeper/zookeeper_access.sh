#!/usr/bin/env bash
# zookeeper_access.sh - one real ZooKeeper: users and access lists, TLS, a bound on sessions, and kazoo's locks beside ours.
. "$(dirname "$0")/../../lib/cli_tap.sh"

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
is "without a user everybody may" "$("$HOLDFAST" -u "$(url '' open)" run -n job -- echo in)" in
is "a user makes nodes of its own" "$("$HOLDFAST" -u "$(url ann:secret anns)" run -n job -- echo in)" in
exits "nobody else may take its locks: 77" 77 "$HOLDFAST" -u "$(url '' anns)" run -n job -- true
like "and the message names the reason" "$said" 'access list'
exits "not even with a wrong password: 77" 77 "$HOLDFAST" -u "$(url ann:wrong anns)" run -n job -- true
exits "nor look at them: 77" 77 "$HOLDFAST" -u "$(url bob:secret anns)" show job
is "the user itself may, again and again" "$("$HOLDFAST" -u "$(url ann:secret anns)" run -n job -- echo in)" in

# ---- TLS ----

is "a known authority serves" "$("$HOLDFAST" -u "zookeepers://127.0.0.1:$secure/tls?ca=$PWD/ca.crt" run -q -w 20s job -- echo in)" in
exits "an unknown one is 78" 78 "$HOLDFAST" -u "zookeepers://127.0.0.1:$secure/tls" run -q -w 20s job -- true
refused() { ! "$HOLDFAST" -u "$1" run -n job -- true >/dev/null 2>&1; }
ok "TLS on the plain port is refused" refused "zookeepers://127.0.0.1:$plain/tls?ca=$PWD/ca.crt"
ok "plain text on the TLS port is refused" refused "zk://127.0.0.1:$secure/tls"

# ---- Bounds ----

exits "a ttl that no session here can have is refused: 64" 64 "$HOLDFAST" -u "$(url '' open)" run -n --ttl 30s job -- true
like "with both numbers" "$said" '30000 ms.*12000 ms.*9000 ms'
is "the longest one serves" "$("$HOLDFAST" -u "$(url '' open)" run -n --ttl 9s job -- echo in)" in
exits "a path that no node can have is 78" 78 "$HOLDFAST" -u "zk://127.0.0.1:$plain/a//b" run -n job -- true

# ---- kazoo ----

kazoo() {
    /usr/bin/python3 - "127.0.0.1:$plain" "$@" <<'PYTHON'
import logging, sys, time
from kazoo.client import KazooClient
logging.disable(logging.CRITICAL)
hosts, path, wait, hold = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
client = KazooClient(hosts=hosts)
client.start()
lock = client.Lock(path, 'kazoo')
try:
    print('held' if lock.acquire(timeout=wait) else 'busy', flush=True)
    time.sleep(hold)
    lock.release()
except Exception as error:
    print(type(error).__name__)
client.stop()
PYTHON
}
if /usr/bin/python3 -c 'import kazoo' 2>/dev/null; then
    export HOLDFAST_URL="$(url '' mixed)?interop=kazoo"
    is "kazoo does not get a lock that ours holds" "$("$HOLDFAST" run -n job -- bash -c "$(declare -f kazoo); plain=$plain kazoo /mixed/job 1 0")" \
        LockTimeout
    kazoo /mixed/job 5 3 >kazoo.out &
    peer=$!
    ok "kazoo holds it" eventually grep -q held kazoo.out
    exits "then ours is busy: 75" 75 "$HOLDFAST" run -n job -- true
    like "and shows it as foreign" "$("$HOLDFAST" show --json job | jq -c '.[0] | [.role, .foreign]')" '"holder",true'
    is "ours waits for it" "$("$HOLDFAST" run -w 20s job -- echo in)" in
    wait $peer
else
    skip "kazoo's locks beside ours" "kazoo is not installed (Debian: python3-kazoo)"
fi
kill -KILL $server
done_testing
