#!/usr/bin/env bash
# tls.sh - clients with a certificate come again: first and resumed sessions of openssl, curl, Python and Node, over TLS 1.2
# and 1.3. A resumed session has the certificate of the first one.
. "$(dirname "$0")/serving.sh"

openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca 2>/dev/null
for who in localhost client; do
    openssl req -newkey rsa:2048 -nodes -keyout $who.key -out $who.csr -subj /CN=$who -addext "subjectAltName=DNS:$who" 2>/dev/null
    openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out $who.pem 2>/dev/null
done
serve "local:$SCRATCH/table" --tls-cert localhost.pem --tls-key localhost.key --tls-client-ca ca.pem || exit 70
PORT=${BASE##*:}

# by_openssl VERSION [OPTION...]: how the session came about, and the status of the answer.
by_openssl() {
    local version=$1
    shift
    printf 'GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' |
        timeout 10 openssl s_client -connect "localhost:$PORT" -CAfile ca.pem -cert client.pem -key client.key \
            "-tls${version/./_}" -ign_eof "$@" 2>&1 | sed -n 's/^\(New\|Reused\), TLS.*/\1/p; s/^.*HTTP\/1.1 \([0-9]*\).*/\1/p' | xargs
}

# Two connections of one process, the second with the session of the first.
by_python() {
    timeout 20 python3 - "$PORT" "$1" <<'END' 2>&1
import socket, ssl, sys
context = ssl.create_default_context(cafile="ca.pem")
context.load_cert_chain("client.pem", "client.key")
context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, "TLSv" + sys.argv[2].replace(".", "_"))
session, said = None, []
for _ in range(2):
    raw = socket.create_connection(("localhost", int(sys.argv[1])), timeout=10)
    with context.wrap_socket(raw, server_hostname="localhost", session=session) as tls:
        tls.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = tls.recv(4096).split(b" ")[1].decode()
        said.append(("Reused " if tls.session_reused else "New ") + status)
        session = tls.session
print(" ".join(said))
END
}

by_node() {
    timeout 20 node --input-type=module - "$PORT" "$1" <<'END' 2>&1
import tls from 'node:tls';
import { readFileSync } from 'node:fs';
const version = 'TLSv' + process.argv[3];
const options = { host: 'localhost', port: +process.argv[2], servername: 'localhost', ca: readFileSync('ca.pem'),
    cert: readFileSync('client.pem'), key: readFileSync('client.key'), minVersion: version, maxVersion: version };
const ask = (session) => new Promise((resolve, reject) => {
    let kept, text = '';
    const socket = tls.connect({ ...options, session }, () =>
        socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'));
    socket.on('session', (one) => { kept = one; });
    socket.on('data', (data) => { text += data; });
    socket.on('end', () => resolve([kept, (socket.isSessionReused() ? 'Reused ' : 'New ') + text.split(' ')[1]]));
    socket.on('error', reject);
});
const [session, first] = await ask();
const [, second] = await ask(session);
console.log(first, second);
END
}

# curl keeps sessions for the connections of one call; each of them is closed after its answer.
by_curl() {
    timeout 20 curl -sv --cacert ca.pem --cert client.pem --key client.key "--tlsv$1" --tls-max "$1" -H 'Connection: close' \
        -o /dev/null -w '%{http_code}\n' "https://localhost:$PORT/livez" -o /dev/null "https://localhost:$PORT/livez" 2>curl.log | xargs
}

for version in 1.2 1.3; do
    is "openssl, TLS $version: a first session" "$(by_openssl $version -sess_out session)" "New 200"
    is "resumed" "$(by_openssl $version -sess_in session)" "Reused 200"
    is "Python, TLS $version: first and resumed" "$(by_python $version)" "New 200 Reused 200"
    if command -v node >/dev/null; then
        is "Node, TLS $version: first and resumed" "$(by_node $version)" "New 200 Reused 200"
    else
        result "Node, TLS $version: first and resumed # SKIP there is no node" 0
    fi
    is "curl, TLS $version: first and resumed" "$(by_curl $version)" "200 200"
    ok "where curl says so, it was resumed" grep -qE 're-?us(ing|ed) session' curl.log
done

# Who it is: a key belongs to the certificate, so the same lease under it is the same client.
keyed_twice() {
    curl -s --cacert ca.pem --cert client.pem --key client.key -H 'Connection: close' -H 'Idempotency-Key: k' \
        --json '{"ttlMs":20000}' "https://localhost:$PORT/v1/locks/tls/leases" "https://localhost:$PORT/v1/locks/tls/leases" |
        jq -r .leaseId | sort -u | wc -l
}
is "a resumed client is the same one as before" "$(keyed_twice)" 1
fails "a client without a certificate is still refused" curl -sf --cacert ca.pem "https://localhost:$PORT/livez"
# ---- A new certificate without a restart ----
openssl req -newkey rsa:2048 -nodes -keyout new.key -out new.csr -subj /CN=renewed -addext "subjectAltName=DNS:localhost" 2>/dev/null
openssl x509 -req -in new.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out new.pem 2>/dev/null
name_shown() { timeout 10 openssl s_client -connect "localhost:$PORT" -CAfile ca.pem -cert client.pem -key client.key </dev/null 2>/dev/null | sed -n 's/^subject=CN *= *//p'; }
is "a connection shows the certificate" "$(name_shown)" localhost
echo nonsense >localhost.pem
kill -HUP "$SERVICE_PID"
ok "one that cannot be read is not taken" until_true 5 grep -q 'the old ones stay in use' "$SERVICE_LOG"
is "the old one stays" "$(name_shown)" localhost
cp new.key localhost.key && cp new.pem localhost.pem
kill -HUP "$SERVICE_PID"
ok "after SIGHUP the new one is loaded" until_true 5 grep -q 'the certificates were reloaded' "$SERVICE_LOG"
is "and shown" "$(name_shown)" renewed
done_testing
