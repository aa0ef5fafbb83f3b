#!/usr/bin/env bash
# typescript.sh - a TypeScript client made from the OpenAPI document by openapi-typescript compiles with every strict option,
# works against the service, and refuses to compile where it is used wrongly. Skipped with its reason where npm or its
# packages cannot be had.
. "$(dirname "$0")/serving.sh"
skip_all() {
    skip "a client in TypeScript" "$1"
    echo "1..$tests_done"
    exit
}
command -v npm >/dev/null || skip_all "there is no npm"
NPM=${TYPESCRIPT:-$SCRATCH/npm}
if [ ! -d "$NPM/node_modules/openapi-typescript" ]; then
    mkdir -p "$NPM" && npm install --silent --no-fund --no-audit --prefix "$NPM" openapi-typescript openapi-fetch \
        typescript@5 @types/node >npm.log 2>&1 || skip_all "its packages cannot be fetched: $(tail -n 1 npm.log)"
fi
serve "local:$SCRATCH/table?history=5" || exit 70
mkdir client && ln -s "$NPM/node_modules" client/node_modules && cp "$ROOT/tests/server/typed_client.ts" client/
echo '{"type":"module"}' >client/package.json
make_types() { node "$NPM/node_modules/openapi-typescript/bin/cli.js" "$BASE/openapi.json" --default-non-nullable=false -o client/holdfast.ts; }
compile() { (cd client && node node_modules/typescript/bin/tsc --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess \
    --module nodenext --target es2022 --skipLibCheck --types node "$@"); }
ok "openapi-typescript makes types of the document" make_types
ok "a client that uses them compiles strictly" compile typed_client.ts
ok "and works" node client/typed_client.js "$BASE"

# wrong NAME LINE: with this line it must not compile.
wrong() {
    { cat client/typed_client.ts && echo "$2"; } >client/wrong.ts
    fails "$1" compile --noEmit wrong.ts
}
wrong "an unknown kind does not compile" "await client.POST('/v1/leases', { body: { name: 'x', kind: 'shared' } });"
wrong "a body without its name does not compile" "await client.POST('/v1/leases', { body: { ttlMs: 1 } });"
wrong "a token is not a number" "const n: number = (await client.GET('/v1/leases/{id}', { params: { path: { id: 'x' } } })).data!.token;"
done_testing
