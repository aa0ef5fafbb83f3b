#!/usr/bin/env bash
# safe.sh - who may come in: addresses, tokens, rights and scopes, Host and Origin, TLS; limits, each with its status.
. "$(dirname "$0")/serving.sh"
URL=local:$SCRATCH/table

# exits NAME CODE COMMAND...
exits() {
    local name=$1 wanted=$2 got
    shift 2
    said=$(timeout 10 "$@" 2>&1)
    got=$?
    is "$name" "$got" "$wanted"
}
exits "an address that others can reach is refused" 78 "$HOLDFAST" -u "$URL" serve --listen 0.0.0.0:3999
like "with the reason" "$said" 'others can reach this address'
exits "so is one of IPv6" 78 "$HOLDFAST" -u "$URL" serve --listen '[::]:3999'
for port in 65536 99999 99999999999999999999; do
    exits "there is no port $port" 78 "$HOLDFAST" -u "$URL" serve --listen "127.0.0.1:$port"
done
like "with the reason" "$said" 'a port is a number up to 65535'
exits "an empty HOLDFAST_URL is no URL" 78 env HOLDFAST_URL= "$HOLDFAST" serve --listen 127.0.0.1:0
exits "a flag that cannot be read is 64" 64 "$HOLDFAST" -u "$URL" serve --max-body lots
like "and named with its source" "$said" 'max-body "lots" \(flag\) is not a number'
HOLDFAST_SERVE_MAX_BODY=1 exits "one of the environment is 78" 78 "$HOLDFAST" -u "$URL" serve
like "and its source is named" "$said" 'environment'
printf '# a comment\nmax-waits = 7\nlisten = 127.0.0.1:4001\nlisten = unix:/tmp/x\n' >config
is "a file is read" "$("$HOLDFAST" serve --config config --print-config --json | jq -r '.[] | select(.name == "max-waits") | .value[0] + .source')" 7file
is "the environment beats it" "$(HOLDFAST_SERVE_MAX_WAITS=8 "$HOLDFAST" serve --config config --print-config --json | jq -r '.[] | select(.name == "max-waits").value[0]')" 8
is "a flag beats both" "$(HOLDFAST_SERVE_MAX_WAITS=8 "$HOLDFAST" serve --config config --max-waits 9 --print-config --json | jq -r '.[] | select(.name == "max-waits").value[0]')" 9
is "a list adds up" "$("$HOLDFAST" serve --config config --print-config --json | jq -c '.[] | select(.name == "listen").value')" '["127.0.0.1:4001","unix:/tmp/x"]'
"$HOLDFAST" serve --config config --print-config >printed
ok "what is printed can be read back" cmp <("$HOLDFAST" serve --config printed --print-config --json | jq 'map(.value)') \
    <("$HOLDFAST" serve --config config --print-config --json | jq 'map(.value)')
echo 'nonsense = 1' >bad
exits "an unknown setting in a file is 78" 78 "$HOLDFAST" -u "$URL" serve --config bad

# ---- Tokens ----
hash() { printf %s "$1" | sha256sum | cut -d' ' -f1; }
{
    echo "# name, rights, prefix"
    echo "sha256:$(hash reader) read * Rita"
    echo "sha256:$(hash worker) read,acquire jobs/ Walter"
    echo "sha256:$(hash admin) read,acquire,break * Anna"
} >tokens
chmod 600 tokens
serve "$URL" --token-file tokens --max-failed-logins 5 --log json || exit 70
refusals() { grep '^{' "$SERVICE_LOG" | jq -c --argjson status "$1" 'select(.event == "refused" and .status == $status)'; }
curl -s -o /dev/null -X POST "$BASE/v1/locks/x/leases" --json '{}'
# refusal STATUS FORMAT: the line of that refusal, which may be written a moment after the answer.
refusal() {
    local end=$((SECONDS + 10))
    until [ -n "$(refusals "$1")" ] || [ $SECONDS -ge $end ]; do sleep 0.01; done
    refusals "$1" | jq -r "$2"
}
is "a refused request leaves an audit line" "$(refusal 401 '"\(.level) \(.address)"')" "warn 127.0.0.1"
curl -s -o /dev/null -X POST "$BASE/v1/locks/x/leases" --json '{}' -H "Authorization: Bearer reader"
is "one without the right, too, with its caller and route" "$(refusal 403 '"\(.caller) \(.route)"')" "Rita acquire"
for i in 1 2 3 4 5; do curl -s -o /dev/null "$BASE/v1/locks" -H "Authorization: Bearer guess$i"; done
is "too many failed logins from an address are 429" "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/v1/locks" -H 'Authorization: Bearer reader')" 429
is "other addresses are not concerned" "$(curl -s -o /dev/null -w '%{http_code}' --interface 127.0.0.9 "$BASE/v1/locks" -H 'Authorization: Bearer reader')" 200
is "nor are probes" "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/livez")" 200
stop_service

# One client has all addresses of its IPv6 network.
cat >networks <<'END'
for address in ::1:0:0:0:1 ::1:0:0:0:2 ::2:0:0:0:1; do ip -6 address add "fd00$address/128" dev lo nodad; done
ip link set lo up
"$HOLDFAST" -u "$URL" serve --listen '[::]:3009' --token-file tokens --max-failed-logins 5 --max-per-address 2 --log none &
until curl -s -o /dev/null -m 1 http://127.0.0.1:3009/livez; do sleep 0.05; done
from() { curl -s -g -o /dev/null -m 5 -w '%{http_code} ' --interface "$1" "http://$2:3009/v1/locks" -H "Authorization: Bearer $3"; }
for i in 1 2 3 4 5; do from fd00::1:0:0:0:1 '[fd00::1:0:0:0:1]' wrong; done
from fd00::1:0:0:0:2 '[fd00::1:0:0:0:1]' reader
from fd00::2:0:0:0:1 '[fd00::1:0:0:0:1]' reader
exec {one}<>/dev/tcp/127.0.0.1/3009 {two}<>/dev/tcp/127.0.0.1/3009
sleep 0.2
from 127.0.0.1 127.0.0.1 reader
from 127.0.0.9 127.0.0.1 reader
kill $!
wait
END
if apart=$(namespaces --net) && command -v ip >/dev/null; then
    read -ra codes < <(HOLDFAST=$HOLDFAST URL=$URL $apart bash networks 2>networks.err)
    is "failed logins of an IPv6 address count for its network" "${codes[*]:0:6}" "401 401 401 401 401 429"
    is "and for no other network" "${codes[6]}" 200
    is "on a socket of both families, too, an IPv4 address has a limit of its own" "${codes[*]:7}" "429 200"
else
    skip "failed logins of an IPv6 address count for its network" "$(why_not)"
fi
chown nobody tokens 2>/dev/null && exits "a token file of another user is refused" 78 "$HOLDFAST" -u "$URL" serve --listen 127.0.0.1:0 --token-file tokens
chown "$(id -u)" tokens
mkdir links && ln -s "$PWD/tokens" links/tokens
exits "a token file behind a link of ours is read" 124 timeout 2 "$HOLDFAST" -u "$URL" serve --listen 127.0.0.1:0 --token-file links/tokens
chown -h nobody links/tokens 2>/dev/null && exits "behind a link of another user it is refused" 78 "$HOLDFAST" -u "$URL" serve --listen 127.0.0.1:0 --token-file links/tokens
mkfifo links/fifo
exits "a FIFO in its place does not hold up the start" 78 "$HOLDFAST" -u "$URL" serve --listen 127.0.0.1:0 --token-file links/fifo
exits "a reachable address with tokens and without TLS" 124 timeout 2 "$HOLDFAST" -u "$URL" serve --listen 0.0.0.0:0 --token-file tokens
like "is warned of" "$said" 'without TLS'
serve "$URL" --token-file tokens || exit 70
as() { echo "Authorization: Bearer $1"; }
curl -s "$BASE/openapi.json" >openapi.json
# wrongly_open: routes whose answer without a token is not what the document says: 401, or anything else where it wants none.
wrongly_open() {
    jq -r '.paths | to_entries[] | .key as $path | .value | to_entries[] | [.key, $path, (.value.security != null)] | @tsv' openapi.json |
        while IFS=$'\t' read -r method path wanted; do
            ask "${method^^}" "$(sed 's/{[a-zA-Z]*}/x/g' <<<"$path")" '' -m 2
            [ "$wanted" = "$([ "$STATUS" = 401 ] && echo true || echo false)" ] || echo "$method $path: $STATUS"
        done
}
is "the document says which routes need a token" "$(wrongly_open)" ""
is "and some need none" "$(jq '[.paths[][] | select(.security == null)] | length > 5' openapi.json)" true
status "without a token 401" 401 POST /v1/locks/jobs%2Fa/leases '{}'
like "with WWW-Authenticate" "$HEAD" 'WWW-Authenticate: Bearer'
status "with another one 401" 401 POST /v1/locks/jobs%2Fa/leases '{}' -H "$(as wrong)"
status "the reader may not acquire" 403 POST /v1/locks/jobs%2Fa/leases '{}' -H "$(as reader)"
status "the worker may" 201 POST /v1/locks/jobs%2Fa/leases '{"ttlMs":20000}' -H "$(as worker)"
LEASE=$(jq -r .leaseId <<<"$REPLY") TOKEN=$(jq -r .token <<<"$REPLY")
status "but not out of its scope" 403 POST /v1/locks/other/leases '{}' -H "$(as worker)"
status "nor with the name in the body" 403 POST /v1/leases '{"name":"other"}' -H "$(as worker)"
status "nor see it" 403 GET /v1/locks/other '' -H "$(as worker)"
status "the reader sees" 200 GET /v1/locks/jobs%2Fa '' -H "$(as reader)"
said "with the worker's name in its label" '.holders[0].label' "@ Walter"
status "the worker may not break" 403 DELETE "/v1/locks/jobs%2Fa/holder?token=$TOKEN&reason=x" '' -H "$(as worker)"
status "the admin takes one out of the worker's scope" 201 POST /v1/leases '{"name":"other","ttlMs":20000}' -H "$(as admin)"
status "which the worker cannot release" 403 DELETE "/v1/leases/$(jq -r .leaseId <<<"$REPLY")" '' -H "$(as worker)"
ask POST /v1/leases '{"name":"kept","ttlMs":20000,"autoRenew":true}' -H "$(as admin)"
status "nor one that is renewed here" 403 DELETE "/v1/leases/$(jq -r .leaseId <<<"$REPLY")" '' -H "$(as worker)"
ask GET /health
said "which goes on being renewed" .renewed 1
ask DELETE "/v1/locks/kept/holder?token=$(curl -s -H "$(as admin)" "$BASE/v1/locks/kept" | jq -r '.holders[0].token')&reason=x" '' -H "$(as admin)"
ask GET /v1/locks '' -H "$(as worker)"
said "the worker's list has its scope only" '[.locks[].name] | join(" ")' jobs/a
status "the admin breaks" 204 DELETE "/v1/locks/jobs%2Fa/holder?token=$TOKEN&reason=x" '' -H "$(as admin)"
status "health needs no token" 200 GET /health
status "metrics do" 401 GET /metrics
status "the same key of another caller is another request" 201 POST /v1/locks/jobs%2Fk/leases '{"ttlMs":20000}' -H "$(as worker)" -H 'Idempotency-Key: k'
status "so it is busy" 409 POST /v1/locks/jobs%2Fk/leases '{"ttlMs":20000}' -H "$(as admin)" -H 'Idempotency-Key: k'
status "an owner" 201 POST /v1/locks/jobs%2Fo/leases '{"ttlMs":20000,"owner":"o"}' -H "$(as worker)"
status "enters again" 201 POST /v1/locks/jobs%2Fo/leases '{"ttlMs":20000,"owner":"o"}' -H "$(as worker)"
status "another caller of that name is another owner" 409 POST /v1/locks/jobs%2Fo/leases '{"ttlMs":20000,"owner":"o"}' -H "$(as admin)"
status "whose names are read as strictly" 400 POST /v1/locks/jobs%2Fo/leases '{"owner":"a\nb"}' -H "$(as admin)"
fails "no token is in the log" grep -qE 'reader|worker|admin' "$SERVICE_LOG"
fails "and no id of a lease" grep -qF "$LEASE" "$SERVICE_LOG"
chmod 666 tokens
exits "a token file that others can write is 78" 78 "$HOLDFAST" -u "$URL" serve --token-file tokens
echo "sha256:123 read * x" >short && chmod 600 short
exits "a bad line is 78" 78 "$HOLDFAST" -u "$URL" serve --token-file short

# ---- Host, Origin, unix sockets ----
serve "$URL" --listen "unix:$SCRATCH/socket" --allow-host locks.example || exit 70
status "another Host is 421" 421 GET /livez '' -H 'Host: evil.example'
status "one that was allowed is not" 200 GET /livez '' -H 'Host: locks.example:80'
status "another Origin is 403" 403 POST /v1/locks/a/leases '{}' -H 'Origin: https://evil.example'
status "null, too" 403 POST /v1/locks/a/leases '{}' -H 'Origin: null'
status "our own is not" 200 GET /livez '' -H "Origin: $BASE"
is "the unix socket is for its owner" "$(stat -c %a socket)" 600
is "and answers" "$(curl -s --unix-socket socket http://localhost/livez | jq -r .status)" ok
status "a log line cannot be forged" 201 POST /v1/locks/log/leases '{"ttlMs":20000}' -H 'X-Correlation-Id: a" event=forged'
ok "what came from outside is escaped" grep -q 'correlationId="a\\x22 event=forged"' "$SERVICE_LOG"
ask GET /
like "the page has a strict policy" "$HEAD" "Content-Security-Policy: default-src 'none'; script-src 'self'"
is "every address is told" "$(sed -n 's/.*serving on //p' "$SERVICE_LOG")" "${BASE#http://}
unix:$SCRATCH/socket"
stop_service
ok "the unix socket is gone afterwards" test ! -e socket
if serve "$URL" --listen '[::1]:0' 2>ipv6; then
    six=$(sed -n 's/.*serving on \(\[.*\)/\1/p' "$SERVICE_LOG")
    is "an address of IPv6 is told with its port" "$(curl -s -g "http://$six/livez" | jq -r .status)" ok
else
    result "an address of IPv6 is told with its port # SKIP $(tail -n 1 ipv6)" 0
fi

# ---- TLS ----
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca 2>/dev/null
for who in localhost client; do
    openssl req -newkey rsa:2048 -nodes -keyout $who.key -out $who.csr -subj /CN=$who -addext "subjectAltName=DNS:$who" 2>/dev/null
    openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out $who.pem 2>/dev/null
done
serve "$URL" --tls-cert localhost.pem --tls-key localhost.key --tls-client-ca ca.pem || exit 70
TLS=https://localhost:${BASE##*:}
is "with a certificate of ours a client gets in" "$(curl -s --cacert ca.pem --cert client.pem --key client.key "$TLS/livez" | jq -r .status)" ok
fails "without one it does not" curl -sf --cacert ca.pem "$TLS/livez"
fails "nor without TLS" curl -sf -m 5 "$BASE/livez"
is "a lease over TLS" "$(curl -s --cacert ca.pem --cert client.pem --key client.key -X POST "$TLS/v1/locks/tls/leases" --json '{"ttlMs":20000}' | jq -r .name)" tls
exits "a certificate without its key is 78" 78 "$HOLDFAST" -u "$URL" serve --tls-cert localhost.pem

# ---- Limits ----
serve "$URL" --max-waits 3 --max-waits-per-name 2 --max-wait 20s --max-body 300 --max-head 1024 --request-timeout 300ms || exit 70
for name in one two; do
    acquire $name
    leases+=("$LEASE")
done
pending=()
for name in one one two; do
    curl -s -m 25 -X POST "$BASE/v1/locks/$name/leases" --json '{"waitMs":19000}' >/dev/null &
    pending+=($!)
done
ok "three wait" until_true 5 waiters_are two 1
ok "two of them for one name" until_true 5 waiters_are one 2
status "one more in all is 503" 503 POST /v1/locks/two/leases '{"waitMs":1000}'
said "with a code" .code too_many_waits
kill "${pending[2]}"
wait "${pending[2]}" 2>/dev/null
ok "one left" until_true 5 waiters_are two 0
status "one more for the name is 429" 429 POST /v1/locks/one/leases '{"waitMs":1000}'
status "without a wait it is only busy" 409 POST /v1/locks/one/leases '{}'
status "a longer wait than allowed is 400" 400 POST /v1/locks/one/leases '{"waitMs":20001}'
kill "${pending[@]:0:2}" && wait "${pending[@]:0:2}" 2>/dev/null
status "a longer body than allowed is 413" 413 POST /v1/locks/x/leases "{\"label\":\"$(printf 'a%.0s' {1..300})\"}"
status "a longer head is 431" 431 GET /livez '' -H "X-Long: $(printf 'a%.0s' {1..1100})"
exec {slow}<>"/dev/tcp/127.0.0.1/${BASE##*:}"
printf 'GET /livez HTTP/1.1\r\nHost: loc' >&"$slow"
like "a request that is not complete in time is 408" "$(timeout 5 cat <&"$slow")" 'HTTP/1.1 408'
exec {slow}>&-

# ---- A full table ----
mkdir small
cat >holdfast-small <<END
#!/bin/sh
exec unshare -rm sh -c 'mount -t tmpfs -o size=64k none "$SCRATCH/small" && exec "\$0" "\$@"' "$HOLDFAST" "\$@"
END
chmod +x holdfast-small
if unshare -rm mount -t tmpfs -o size=64k none small 2>why; then
    HOLDFAST=$SCRATCH/holdfast-small serve "local:$SCRATCH/small/table" || exit 70
    filled() {
        acquire "name$RANDOM"
        [ "$STATUS" != 201 ] || { LAST=$LEASE && false; }
    }
    until_true 20 filled
    is "a table that cannot grow is 507" "$STATUS $(jq -r .code <<<"$REPLY")" "507 full"
    fails "and its path is not told" grep -q small <<<"$REPLY"
    status "what is held can be given back" 204 DELETE "/v1/leases/$LAST"
    stop_service
else
    result "a table that cannot grow is 507 # SKIP no file system of its own: $(<why)" 0
fi

# ---- Half-closing, and the log as JSON ----
serve "$URL" --half-close leave --log json || exit 70
acquire halved
python3 - "${BASE##*:}" >halved 2>&1 <<'END'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10)
body = b'{"waitMs":8000}'
s.sendall(b"POST /v1/locks/halved/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
s.shutdown(socket.SHUT_WR)
print(len(s.recv(100)))
END
is "where half-closing means leaving, the connection ends without an answer" "$(<halved)" 0
ok "and nobody waits" until_true 1 waiters_are halved 0
ask POST /v1/locks/traced/leases '{"ttlMs":20000}' -H 'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
traced() { jq -r 'select(.event == "granted" and .name == "traced") | .correlationId' < <(grep '^{' "$SERVICE_LOG"); }
is "a line of JSON has the caller's traceparent" "$(traced)" 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01

# ---- Out of descriptors ----
cat >holdfast-few <<END
#!/bin/sh
ulimit -n 64
exec "$HOLDFAST" "\$@"
END
chmod +x holdfast-few
HOLDFAST=$SCRATCH/holdfast-few serve "$URL" --idle-timeout 60s || exit 70
like "few descriptors make few connections" "$(<"$SERVICE_LOG")" 'max-connections is lowered to 32: the limit of open files is 64'
python3 - "${BASE##*:}" "$SERVICE_PID" >few 2>&1 <<'END'
import os, socket, sys, time
def ticks():
    return sum(int(word) for word in open("/proc/%s/stat" % sys.argv[2]).read().rsplit(") ", 1)[1].split()[11:13])
all = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5) for _ in range(120)]
while len(os.listdir("/proc/%s/fd" % sys.argv[2])) < 60:
    time.sleep(0.02)
before = ticks()
time.sleep(1)
print("idle" if ticks() - before < 30 else "busy: %d" % (ticks() - before))
END
is "without any left it does not spin" "$(<few)" idle
ok "nor fill its log" test "$(grep -c 'ccept' "$SERVICE_LOG")" -lt 10
ok "and goes on when some are free again" until_true 5 curl -sf -o /dev/null "$BASE/livez"
stop_service

serve "$URL" --max-connections 4 --max-per-address 100 || exit 70
hold() {
    local i
    held=()
    for ((i = 0; i < $1; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/${BASE##*:}"
        held+=("$fd")
    done
    sleep 0.2
}
hold 4
status "a connection too many is 503" 503 GET /livez
for fd in "${held[@]}"; do exec {fd}>&-; done
ok "afterwards there is room again" until_true 5 curl -sf -o /dev/null "$BASE/livez"
serve "$URL" --max-connections 100 --max-per-address 3 || exit 70
hold 3
status "one too many from an address is 429" 429 GET /livez
for fd in "${held[@]}"; do exec {fd}>&-; done
done_testing
