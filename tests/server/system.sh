#!/usr/bin/env bash
# system.sh - the service under systemd: readiness and the end are told, sockets are taken over.
. "$(dirname "$0")/serving.sh"
URL=local:$SCRATCH/table

# What is sent to NOTIFY_SOCKET, one line each.
python3 - "$SCRATCH/notify" >told <<'END' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
for _ in range(2):
    print(s.recv(4096).decode(), flush=True)
END
listener=$!
until_true 5 test -S notify
NOTIFY_SOCKET=$SCRATCH/notify serve "$URL" || exit 70
ok "systemd is told when it is ready" until_true 2 grep -qx READY=1 told
like "the port that was found for :0 is told" "$(<"$SERVICE_LOG")" 'serving on 127\.0\.0\.1:[1-9][0-9]*$'
stop_service
wait $listener
is "and that it stops" "$(tail -n 1 told)" STOPPING=1

if command -v systemd-socket-activate >/dev/null; then
    port=$((32000 + RANDOM % 500))
    # systemd-socket-activate becomes the service when the first client comes.
    systemd-socket-activate -l "127.0.0.1:$port" -l "$SCRATCH/given" -E HOME -E PATH -E HF_SUITE \
        "$HOLDFAST" -u "$URL" serve 2>activated.log &
    SERVICE_PID=$!
    services+=("$SERVICE_PID")
    ok "somebody listens" until_true 5 test -S given
    BASE=http://127.0.0.1:$port
    status "a socket of systemd is served" 200 GET /livez
    is "a second one, too" "$(curl -s -m 5 --unix-socket given http://localhost/livez | jq -r .status)" ok
    status "on it leases are taken" 201 POST /v1/locks/given/leases '{"ttlMs":20000}'
    status "another Host is refused there as well" 421 GET /livez '' -H 'Host: evil.example'
    fails "its own address is not opened" grep -q 'Address already' activated.log
    is "it tells the sockets that it was given" "$(sed -n 's/.*serving on //p' activated.log)" "127.0.0.1:$port
unix:$SCRATCH/given"
    stop_service
    is "it ends well" $? 0
    ok "a socket that systemd made is left to it" test -S given
    systemd-socket-activate -l 127.0.0.2:$port "$HOLDFAST" -u "$URL" serve 2>loop.log &
    SERVICE_PID=$!
    services+=("$SERVICE_PID")
    BASE=http://127.0.0.2:$port
    ok "a given socket of this machine alone needs no token" until_true 5 curl -sf -m 2 -o /dev/null -H 'Host: localhost' "$BASE/livez"
    kill "$SERVICE_PID" && wait "$SERVICE_PID"
    systemd-socket-activate -l 127.0.0.1:$port "$HOLDFAST" -u "$URL" serve --listen "unix:$SCRATCH/other" 2>other.log &
    SERVICE_PID=$!
    services+=("$SERVICE_PID")
    BASE=http://127.0.0.1:$port
    until_true 5 curl -sf -m 2 -o /dev/null "$BASE/livez"
    status "another Host is refused there, whatever --listen says" 421 GET /livez '' -H 'Host: evil.example'
    kill "$SERVICE_PID" && wait "$SERVICE_PID"
    outside=$(ip -4 -o addr show scope global 2>/dev/null | awk '{ sub(/\/.*/, "", $4); print $4; exit }')
    if [ -n "$outside" ]; then
        systemd-socket-activate -l "$outside:$port" "$HOLDFAST" -u "$URL" serve 2>outside.log &
        SERVICE_PID=$!
        services+=("$SERVICE_PID")
        until_true 5 grep -q Listening outside.log
        curl -s -m 2 -o /dev/null "http://$outside:$port/livez"
        wait "$SERVICE_PID"
        is "one that others can reach is refused without tokens" $? 78
        echo "sha256:$(printf %s secret | sha256sum | cut -d' ' -f1) read * someone" >tokens
        systemd-socket-activate -l "$outside:$port" "$HOLDFAST" -u "$URL" serve --token-file tokens 2>readable.log &
        SERVICE_PID=$!
        services+=("$SERVICE_PID")
        until_true 5 curl -sf -m 2 -o /dev/null "http://$outside:$port/livez"
        like "with tokens and without TLS it is warned of" "$(<readable.log)" 'a socket of systemd.*without TLS'
        kill "$SERVICE_PID" && wait "$SERVICE_PID"
    else
        result "one that others can reach is refused without tokens # SKIP this machine has no other address" 0
    fi
else
    result "sockets of systemd # SKIP there is no systemd-socket-activate" 0
fi
done_testing
