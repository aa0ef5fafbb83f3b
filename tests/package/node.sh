#!/usr/bin/env bash
# node.sh - the Node package as `make node` lays it out: its tests on shared memory and on Redis, what its binary needs.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/servers.sh"
. "$ROOT/tests/lib/node_tap.sh"

ok "the package is built" test -e "$BUILD/node/holdfast/package.json"
addon=$(echo "$BUILD"/node/holdfast/prebuilds/*/holdfast.node)
is "the binary needs the C library alone" \
    "$(objdump -p "$addon" | sed -n 's/^ *NEEDED *//p' | grep -vxE 'libc\.so\.6|libm\.so\.6|ld-linux.*' | tr '\n' ' ')" ""
ok "every other symbol is Node's" env LD_BIND_NOW=1 node -e 'require(process.argv[1])' "$BUILD/node/holdfast"

# A server that started less than max_ttl ago does not count: these have time until they are asked.
HF_TEST_QUORUM=
for _ in a b c; do
    start_redis || exit 70
    HF_TEST_QUORUM+=${HF_TEST_QUORUM:+ }$REDIS_PORT
done
start_redis || exit 70
export HF_TEST_QUORUM HF_TEST_STOP_URL=$REDIS_URL HF_TEST_STOP_PID=$REDIS_PID HOLDFAST
# A server that speaks TLS, and asks clients for certificates and a password. Its TLS port is below those of others.
HF_TEST_TLS_FILES=$SCRATCH/certificates HF_TEST_TLS_PORT=$((10000 + RANDOM % 2000))
mkdir "$HF_TEST_TLS_FILES" && "$ROOT/tests/lib/certificates" "$HF_TEST_TLS_FILES" || exit 70
start_redis --tls-port "$HF_TEST_TLS_PORT" --tls-cert-file "$HF_TEST_TLS_FILES/server.crt" \
    --tls-key-file "$HF_TEST_TLS_FILES/server.key" --tls-ca-cert-file "$HF_TEST_TLS_FILES/ca.crt" \
    --requirepass 'p@ss:word/%' || exit 70
export HF_TEST_TLS_FILES HF_TEST_TLS_PORT
start_redis || exit 70
export HF_TEST_URLS="local:$SCRATCH/table $REDIS_URL"
node_app "$BUILD/node/holdfast" "$ROOT/bindings/node/test"
for file in "$NODE_APP"/test/*.test.mjs; do
    node_test "$file"
done

# program FILE: the JavaScript of a page.
program() {
    awk '$0 == "```js" { inside = 1; next } /^```/ { inside = 0 } inside' "$ROOT/docs/$1"
}
program node.md >"$NODE_APP/doc.mjs"
like "the program of docs/node.md runs" "$(cd "$NODE_APP" && HOLDFAST_URL=local:$SCRATCH/doc timeout 20 node doc.mjs 2>&1)" \
    '^my turn, token [0-9]+$'
# The clients of the page are three servers of this test; what matters of a client are its options.
program from-redlock.md >"$NODE_APP/redlock.mjs"
cat >"$NODE_APP/clients.mjs" <<'END'
const clients = process.env.HF_TEST_QUORUM.split(' ').map((port) => ({ options: { host: '127.0.0.1', port } }));
[globalThis.redisA, globalThis.redisB, globalThis.redisC] = clients;
END
ok "the program of docs/from-redlock.md runs" \
    env HOLDFAST_MAX_TTL=5s timeout 20 node --import "$NODE_APP/clients.mjs" "$NODE_APP/redlock.mjs"
done_testing
