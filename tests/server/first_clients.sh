#!/usr/bin/env bash
# first_clients.sh - the clients of docs/serve.md, as they stand there: each takes, renews and releases, also behind another
# holder; each stops when its lease is lost.
. "$(dirname "$0")/serving.sh"
start_redis || exit 70
serve "$REDIS_URL" || exit 70

# block LANGUAGE: its example under "First clients", for the service of this test.
block() {
    awk -v fence="\`\`\`$1" '/^## First clients/ { inside = 1; next } /^## / { inside = 0 }
        inside && $0 == fence { taking = 1; next } /^```$/ { taking = 0 } taking' "$ROOT/docs/serve.md" |
        sed "s|http://localhost:3009|$BASE|"
}
holders() { curl -s -m 5 "$BASE/v1/locks/nightly" | jq '.holders | length'; }
is_taken() { grep -q '^taken, token [0-9]' said; }
is_free() { [ "$(holders)" = 0 ]; }

# try LANGUAGE ENDING COMMAND...: runs the example to its end, then once more with a break in the middle.
try() {
    local language=$1 file=client.$2
    shift 2
    block "$language" >"$file"
    if ! command -v "$1" >/dev/null; then
        skip "the client in $language" "there is no $1"
        return
    fi
    ok "$language: the page has an example" test -s "$file"
    "$@" "$file" >said 2>complained
    is "$language: it ends well" "$?" 0
    like "$language: it takes, renews and releases" "$(tr '\n' ' ' <said)" '^taken, token [0-9]+ (renewed )+released $'
    ok "$language: then the lock is free" is_free

    acquire nightly '{"ttlMs":1200}'
    "$@" "$file" >said 2>complained
    is "$language: behind another holder it waits, and ends well" "$?" 0
    like "$language: it renews what the handoff gave it" "$(tr '\n' ' ' <said)" '^taken, token [0-9]+ (renewed )+released $'

    : >said
    "$@" "$file" >said 2>complained &
    local client=$! token
    ok "$language: it takes the lock again" until_true 5 is_taken
    token=$(sed -n 's/^taken, token //p' said)
    ask DELETE "/v1/locks/nightly/holder?token=$token&reason=test"
    wait $client
    fails "$language: without its lease it fails" test $? -eq 0
    like "$language: and says that the lease is lost" "$(<complained)" 'lost'
    fails "$language: instead of going on" grep -q released said
    is "$language: nobody holds the lock" "$(holders)" 0
}

try sh sh sh
try python py python3
try js mjs node

# A lock that is held is not taken.
acquire nightly '{"ttlMs":60000}'
block sh | sed 's/"waitMs":5000/"waitMs":100/' >busy.sh
sh busy.sh >said 2>complained
is "while another one holds the lock, the shell's client exits with 75" $? 75
like "and says why" "$(<complained)" 'not taken: .'
done_testing
