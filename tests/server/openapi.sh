#!/usr/bin/env bash
# openapi.sh - the OpenAPI document before a real validator, @seriousme/openapi-schema-validator of npm. Skipped with its
# reason where that cannot be fetched; admin_http.sh looks at the document in every run.
. "$(dirname "$0")/serving.sh"
VALIDATOR=${VALIDATOR:-$SCRATCH/npm}
serve "local:$SCRATCH/table" || exit 70
ask GET /openapi.json
printf '%s' "$REPLY" >openapi.json
jq '.paths["/livez"].get.responses = "none"' openapi.json >broken.json
if ! command -v npm >/dev/null; then
    why="there is no npm"
elif [ ! -d "$VALIDATOR/node_modules/@seriousme" ]; then
    mkdir -p "$VALIDATOR" && npm install --silent --no-fund --no-audit --prefix "$VALIDATOR" \
        @seriousme/openapi-schema-validator >npm.log 2>&1 || why="the validator cannot be fetched: $(tail -n 1 npm.log)"
fi
validate() {
    node --input-type=module -e "
        import { createRequire } from 'node:module';
        const { Validator } = await import(createRequire('$VALIDATOR/').resolve('@seriousme/openapi-schema-validator'));
        const { readFileSync } = await import('node:fs');
        const found = await new Validator().validate(JSON.parse(readFileSync('$1', 'utf8')));
        if (!found.valid) { console.log(JSON.stringify(found.errors, null, 1)); process.exit(1); }"
}
if [ -n "${why:-}" ]; then
    result "the document is valid OpenAPI # SKIP $why" 0
else
    ok "the document is valid OpenAPI" validate openapi.json
    fails "one with a mistake is not" validate broken.json
fi
# The members that a route knows are those of the document: one more is refused, each of them is not unknown.
unknown() {
    jq -r '. as $all | .paths | to_entries[] | .key as $path | .value | to_entries[] | select(.value.requestBody) | .key as $method |
        .value.requestBody.content["application/json"].schema["$ref"] | ltrimstr("#/") | split("/") as $p |
        $all | getpath($p).properties | keys[] | [$method, $path, .] | @tsv' openapi.json |
        while IFS=$'\t' read -r method path member; do
            ask "${method^^}" "$(sed 's/{[a-zA-Z]*}/x/g' <<<"$path")" "{\"$member\":{}}" -m 2
            ! grep -q 'no such member' <<<"$REPLY" || echo "$method $path: $member"
        done
}
is "every member of a body in the document is known to its route" "$(unknown)" ""
done_testing
