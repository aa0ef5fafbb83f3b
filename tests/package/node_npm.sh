#!/usr/bin/env bash
# node_npm.sh - the Node package as a tarball: packed, installed by npm in an empty folder without a script, and tested there;
# its types and the examples under both kinds of modules; and the package beside redlock of npm on the same keys.
#
#     node_npm.sh [SECONDS of crowd]
#     node_npm.sh bars               what a lock costs beside redlock of npm
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
export HF_TEST_URLS="local:$SCRATCH/table $REDIS_URL"
[ "${1:-}" = bars ] || export HF_TEST_CROWD_MS=$((${1:-60} * 1000))

NODE_APP=$SCRATCH/app
mkdir -p "$NODE_APP"
tarball=$("$ROOT/scripts/build-npm" "$BUILD/node/holdfast" "$SCRATCH/pack")
ok "npm packs it" test -s "$tarball"
ok "the tarball is below a megabyte and a half" test "$(stat -c %s "$tarball")" -lt 1500000
is "it has no install script, and nothing that npm would build" \
    "$(grep -E '"(pre|post)?install"' "$SCRATCH/pack/package/package.json"; ls "$SCRATCH/pack/package" | grep gyp)" ""
npm_install() {
    (cd "$NODE_APP" && npm install --no-audit --no-fund --silent --ignore-scripts "$@")
}
ok "npm installs it in an empty folder" npm_install "$tarball"
cp -r "$ROOT/bindings/node/test" "$NODE_APP/test"
[ "${1:-}" = bars ] || for file in "$NODE_APP"/test/*.test.mjs; do
    node_test "$file"
done

peers=(ioredis@5.11.1 redlock5@npm:redlock@5.0.0-beta.2 typescript@5.9.3 @types/node@20
    @nestjs/common@10 @nestjs/core@10 reflect-metadata@0.2 rxjs@7)
if ! npm_install "${peers[@]}"; then
    skip "beside redlock of npm" "npm could not fetch ${peers[*]}"
    done_testing
    exit
fi
if [ "${1:-}" = bars ]; then
    while read -r line; do
        case $line in
        "ok "*) result "${line#ok * - }" 0 ;;
        "not ok "*) result "${line#not ok * - }" 1 ;;
        *) echo "$line" ;;
        esac
    done < <(cd "$NODE_APP" && node test/bars.mjs | grep -v '^1\.\.'; echo "not ok 0 - it ended with ${PIPESTATUS[0]}" | grep -v 'with 0$')
    done_testing
    exit
fi
node_test "$NODE_APP/test/peers.mjs"
grep '^# \(second\|[13] servers\)' "$SCRATCH/node.out"
node_test "$NODE_APP/test/nest.mjs"

# The C sources in it are whole: built by the node-gyp that npm brings, they take the place of the binary.
gyp=$(npm root -g)/npm/node_modules/node-gyp/bin/node-gyp.js
if [ -e "$gyp" ] && [ -e /usr/include/node/node_api.h ]; then
    mkdir "$SCRATCH/built" && tar -C "$SCRATCH/built" --strip-components=1 -xzf "$tarball" && rm -r "$SCRATCH/built/prebuilds"
    ok "node-gyp builds the sources" env -C "$SCRATCH/built/sources" node "$gyp" rebuild --nodedir=/usr --silent
    mkdir -p "$SCRATCH/other/node_modules" && ln -s "$SCRATCH/built" "$SCRATCH/other/node_modules/holdfast"
    cp -r "$ROOT/bindings/node/test" "$SCRATCH/other/test"
    node_test "$SCRATCH/other/test/basics.test.mjs"
else
    skip "the sources in it build" "there is no node-gyp or no node_api.h"
fi

# calls ENGINE PAIRS IN_FLIGHT: system calls a pair, of all threads of a process.
calls() {
    (cd "$NODE_APP" && strace -f -qq -o "$SCRATCH/calls" node test/pairs.mjs "$1" "$2" "$3") 2>/dev/null &&
        awk -v pairs="$2" '/BEGIN-OF-PAIRS|END-OF-PAIRS/ { inside = !inside; next } inside { n++ } END { printf "%d\n", n * 10 / pairs }' "$SCRATCH/calls"
}
# below TENTHS MOST: both are tenths of a call.
below() {
    [ -n "$1" ] && [ "$1" -gt 0 ] && [ "$1" -le "$2" ]
}
if command -v strace >/dev/null; then
    alone=$(calls "$REDIS_URL" 500 1) many=$(calls "$REDIS_URL" 3200 64)
    ok "at most 9 system calls a pair: $alone tenths" below "$alone" 90
    ok "at most 1.5 a pair with 64 in flight: $many tenths" below "$many" 15
else
    skip "system calls of a pair" "there is no strace"
fi

# The same binary in other versions of Node, as npm has them.
system=linux-$(node -p process.arch)
for version in 18 20 22 24; do
    folder=$SCRATCH/node-$version
    mkdir "$folder"
    if ! (cd "$folder" && npm install --no-audit --no-fund --silent --ignore-scripts "node-$system@$version"); then
        skip "the package in Node $version" "npm could not fetch node-$system@$version"
        continue
    fi
    echo "# Node $("$folder/node_modules/.bin/node" --version)"
    for file in basics process redlock; do
        PATH=$folder/node_modules/.bin:$PATH node_test "$NODE_APP/test/$file.test.mjs"
    done
done

# Other runtimes, as npm has them. Bun's program comes with a package of its own for each platform.
for runtime in bun deno; do
    npm_install $runtime && (cd "$NODE_APP/node_modules/$runtime" && node install.*js) >/dev/null 2>&1
    if ! "$NODE_APP/node_modules/.bin/$runtime" --version >/dev/null 2>&1; then
        skip "the package in $runtime" "npm could not fetch $runtime"
        continue
    fi
    words=("$NODE_APP/node_modules/.bin/$runtime") && [ $runtime = bun ] || words+=(run -A)
    for url in $HF_TEST_URLS; do
        is "the package works in $runtime on ${url%%:*}" \
            "$(cd "$NODE_APP" && timeout 60 "${words[@]}" test/runtimes.mjs "$url" 2>&1)" ok
    done
done

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
