#!/usr/bin/env bash
# dead_waits.sh - a service that is killed while 200 requests wait in it keeps a free lock from nobody.
. "$(dirname "$0")/serving.sh"
needs_server redis
start_redis || exit 70
WAITS=200

# await_queue COUNT: until that many wait for the lock `l`, dead ones included.
await_queue() {
    local end=$((SECONDS + 15))
    until [ "$(redis_cli ZCARD '{lock:l}:q')" = "$1" ]; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# wait_in_service: requests that wait until the service is gone.
wait_in_service() {
    python3 -B - "${BASE##*:}" "$WAITS" <<'END'
import socket, sys
body = b'{"ttlMs":30000,"waitMs":600000}'
request = b"POST /v1/locks/l/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
lines = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for line in lines:
    line.sendall(request)
for line in lines:
    try:
        while line.recv(4096):
            pass
    except ConnectionError:
        pass
END
}

serve "$REDIS_URL" --log none || exit 70
"$HOLDFAST" -u "$REDIS_URL" acquire --ttl 60s --lease held.lease l || exit 70
wait_in_service &
crowd=$!
ok "$WAITS requests wait in the service" await_queue "$WAITS"
(
    "$HOLDFAST" -u "$REDIS_URL" acquire --lease living.lease l && now_ms >held_at
) &
living=$!
ok "another process waits behind them" await_queue $((WAITS + 1))
sleep 1.2 # so long that only their client vouches for them
kill -KILL "$SERVICE_PID"
wait "$SERVICE_PID" "$crowd" 2>/dev/null
sleep 0.3
released_at=$(now_ms)
ok "the holder releases" "$HOLDFAST" -u "$REDIS_URL" release --lease held.lease
wait "$living"
is "the process behind them holds" $? 0
after=$(($(cat held_at) - released_at))
echo "# it held $after ms after the release"
[ "$after" -lt 2000 ]
result "it holds within 2 s of the release" $? "$after ms"
ok "it releases" "$HOLDFAST" -u "$REDIS_URL" release --lease living.lease
done_testing
