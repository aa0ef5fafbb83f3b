#!/usr/bin/env bash
# node_npm.sh - the Node package as a tarball: packed, installed by npm in an empty folder without a script, and tested there;
# its types and the examples under both kinds of modules; and the package beside redlock of npm on the same keys.
#
#     node_npm.sh [SECONDS of crowd]
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/servers.sh"
. "$ROOT/tests/lib/node_tap.sh"

command -v npm >/dev/null || { echo "1..0 # SKIP there is no npm" && exit 0; }
# A server that started less than max_ttl ago does not count: these have time until they are asked.
HF_TEST_QUORUM=
for _ in a b c; do
    start_redis || exit 70
    HF_TEST_QUORUM+=${HF_TEST_QUORUM:+ }$REDIS_PORT
done
start_redis || exit 70
export HF_TEST_QUORUM HF_TEST_STOP_URL=$REDIS_URL HF_TEST_STOP_PID=$REDIS_PID HOLDFAST
start_redis || exit 70
export HF_TEST_URLS="local:$SCRATCH/table $REDIS_URL" HF_TEST_CROWD_MS=$((${1:-60} * 1000))

NODE_APP=$SCRATCH/app
mkdir -p "$NODE_APP"
cp -r "$BUILD/node/holdfast" "$SCRATCH/package"
strip "$SCRATCH"/package/prebuilds/*/holdfast.node
tarball=$(cd "$SCRATCH" && npm pack --silent ./package)
ok "npm packs it" test -s "$SCRATCH/$tarball"
ok "the tarball is below a megabyte" test "$(stat -c %s "$SCRATCH/$tarball")" -lt 1000000
is "it has no install script" "$(grep -E '"(pre|post)?install"' "$SCRATCH/package/package.json")" ""
npm_install() {
    (cd "$NODE_APP" && npm install --no-audit --no-fund --silent --ignore-scripts "$@")
}
ok "npm installs it in an empty folder" npm_install "$SCRATCH/$tarball"
cp -r "$ROOT/bindings/node/test" "$NODE_APP/test"
for file in "$NODE_APP"/test/*.test.mjs; do
    node_test "$file"
done

peers=(ioredis@5.11.1 redlock5@npm:redlock@5.0.0-beta.2 typescript@5.9.3 @types/node@20
    @nestjs/common@10 @nestjs/core@10 reflect-metadata@0.2 rxjs@7)
if ! npm_install "${peers[@]}"; then
    skip "beside redlock of npm" "npm could not fetch ${peers[*]}"
    done_testing
    exit
fi
node_test "$NODE_APP/test/peers.mjs"
grep '^# \(second\|[13] servers\)' "$SCRATCH/node.out"
node_test "$NODE_APP/test/nest.mjs"

for file in types types_redlock; do
    cp "$ROOT/bindings/node/test/$file.ts" "$NODE_APP/$file.ts"
    cp "$ROOT/bindings/node/test/$file.ts" "$NODE_APP/$file.mts"
done
compiles() {
    (cd "$NODE_APP" && npx --no-install tsc --strict --noEmit --target es2022 --lib es2022,esnext.disposable --skipLibCheck false "$@")
}
emits() {
    (cd "$NODE_APP" && npx --no-install tsc --strict --target es2022 --lib es2022,esnext.disposable --module nodenext --outDir "$1" \
        booking.ts order.ts slots.ts watchdog.ts readwrite.ts controller.ts)
}
ok "TypeScript takes the types under nodenext, as CommonJS" compiles --module nodenext types.ts types_redlock.ts
ok "TypeScript takes the types under nodenext, as an ES module" compiles --module nodenext types.mts types_redlock.mts
ok "TypeScript takes the types under commonjs" compiles --module commonjs --moduleResolution node10 --esModuleInterop types.ts types_redlock.ts

# The examples, as both kinds of modules.
cp "$ROOT"/examples/node/*.ts "$NODE_APP/"
for kind in commonjs module; do
    out=$NODE_APP/out-$kind
    mkdir -p "$out" && printf '{"type": "%s"}\n' $kind >"$NODE_APP/package.json"
    ok "TypeScript compiles the examples as $kind" emits "$out"
    printf '{"type": "%s"}\n' $kind >"$out/package.json"
    for example in "$ROOT"/examples/node/*.ts; do
        example=$(basename "$example" .ts)
        for url in "local:$SCRATCH/examples" "$REDIS_URL"; do
            like "$example runs as $kind on ${url%%:*}" \
                "$(HOLDFAST_URL=$url REDIS_PORTS=$HF_TEST_QUORUM timeout 30 node "$out/$example.js" 2>&1)" "^$example: "
        done
    done
done
done_testing
