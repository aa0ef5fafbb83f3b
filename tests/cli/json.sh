#!/usr/bin/env bash
# json.sh - what the command prints as JSON fits docs/json-schema.json, and the tables of docs/json.md agree with it.
. "$(dirname "$0")/../lib/cli_tap.sh"

valid() { python3 "$ROOT/tests/lib/json_valid.py" "$ROOT/docs/json-schema.json" "$@"; }

# agrees NAME DEFINITION: the objects on stdin fit a definition of the schema; there is at least one.
agrees() {
    local wrong
    wrong=$(valid "$2" 2>&1)
    result "$1" $? "$wrong"
}

# refused NAME DEFINITION JSON: the check itself can fail.
refused() {
    ! valid "$2" <<<"$3" >wrong 2>&1
    result "$1" $? "the check accepts $3"
}

row='{"name":"a","role":"holder","kind":"read","capacity":1,"used":1,"units":1,"depth":1,"place":null,"token":"7","leftMs":1,
    "sinceMs":0,"ttlMs":1,"pid":1,"host":"","label":"","detached":true,"ticket":null,"foreign":false,"servers":null}'
agrees "a row that is right passes" Row <<<"$row"
refused "a token must be a text" Row "${row/\"7\"/7}"
refused "a key must not be missing" Row "${row/\"pid\":1,/}"
refused "a key must be known" Row "${row/\{/\{\"left_ms\":1,}"
refused "a word must be one of its words" Row "${row/holder/keeper}"
refused "a duration is not negative" Row "${row/\"sinceMs\":0/\"sinceMs\":-1}"
refused "nothing is not enough" Row ''
refused "a key must be known, also beside another schema" Holder "${row/\{/\{\"left_ms\":1,}"
refused "and fit both" Holder "${row/holder/waiter}"
agrees "a holder that is right passes" Holder <<<"$row"
refused "a time is UTC" LogLine '{"time":"yesterday"}'
is "the tables of docs/json.md agree with the schema" "$(valid --tables "$ROOT/docs/json.md")" ""

"$HOLDFAST" acquire job >lease
agrees "acquire prints what is documented" LeaseLine <lease
"$HOLDFAST" acquire --json --lease kept.lease kept | jq -c '. + {lease: ""}' >shown
agrees "with --lease it prints the same without the secret" LeaseLine <shown
agrees "extend prints what is documented" LeaseChange < <("$HOLDFAST" extend --json <lease)
HOLDFAST_URL="$HOLDFAST_URL?history=3" "$HOLDFAST" run --units 2 --capacity 4 pool -- sh -c 'echo >ready; exec sleep 1000' &
pool=$!
eventually test -e ready
"$HOLDFAST" run job true 2>/dev/null &
waiter=$!
eventually rows waiter job 1
agrees "list prints what is documented" Row < <("$HOLDFAST" list --json | jq -c '.[]')
is "of holders and of waiters" "$("$HOLDFAST" list --json | jq -c '[.[].role] | unique')" '["holder","waiter"]'
agrees "show prints what is documented" Row < <("$HOLDFAST" show --json job | jq -c '.[]')
"$HOLDFAST" watch --json >watched &
watcher=$!
eventually lines watched 4
kill $watcher
wait $watcher 2>/dev/null
agrees "watch prints what is documented" Event <watched
agrees "resize prints what is documented" Resize < <("$HOLDFAST" resize --json --capacity 3 pool)
agrees "release prints what is documented" LeaseChange < <("$HOLDFAST" release --json <lease)
wait $waiter
token=$("$HOLDFAST" show --json kept | jq -r '.[0].token')
agrees "break prints what is documented" Revocation < <("$HOLDFAST" break --json --token "$token" --reason 'a "reason"' kept)
kill $pool
wait $pool
agrees "history prints what is documented" Hold < <("$HOLDFAST" history --json pool | jq -c '.[]')
"$HOLDFAST" explain --json >explained
agrees "explain prints what is documented" Explanation <explained
agrees "its timing too" Timing < <(jq -c .timing explained)
agrees "and its settings" Setting < <(jq -c '.settings[]' explained)
"$HOLDFAST" doctor --json >examined
agrees "doctor prints what is documented" Diagnosis <examined
agrees "and its checks" Check < <(jq -c '.checks[]' examined)
agrees "bench prints what is documented" Bench < <("$HOLDFAST" bench --json -d 20ms)
agrees "advise prints what is documented" Advice < <("$HOLDFAST" advise --json | jq -c '.[]')
HOLDFAST_HISTORY=3 "$HOLDFAST" run measured -- true
agrees "advise --from-history prints what is documented" SuggestedTimes < <("$HOLDFAST" advise --from-history measured --json)
for dialect in postgres sqlite; do
    "$HOLDFAST" fence sql --json --dialect $dialect --table jobs >fence
    agrees "fence sql prints what is documented, for $dialect" Fence <fence
    is "its dialect" "$(jq -r .dialect fence)" $dialect
    ok "and the same SQL as without --json" cmp <(jq -j .sql fence) <("$HOLDFAST" fence sql --dialect $dialect --table jobs)
done
agrees "fence redis prints what is documented" Fence < <("$HOLDFAST" fence redis --json)
for shell in bash zsh fish; do
    "$HOLDFAST" completion --json $shell >script
    agrees "completion prints what is documented, for $shell" Completion <script
    is "its shell" "$(jq -r .shell script)" $shell
    ok "and the same script as without --json" cmp <(jq -j .script script) <("$HOLDFAST" completion $shell)
done
agrees "version prints what is documented" CommandVersion < <("$HOLDFAST" version --json)
agrees "serve prints what is documented" ServiceSetting < <("$HOLDFAST" serve --print-config --json | jq -c '.[]')
"$HOLDFAST" run --log log --correlation-id abc job -- true
agrees "the log has what is documented" LogLine <log

# --status-fd: the keys of each event.
"$HOLDFAST" run busy -- sh -c 'echo >busy; exec sleep 1000' &
holder=$!
eventually test -e busy
"$HOLDFAST" run --status-fd 3 -n busy true 3>status 2>/dev/null
"$HOLDFAST" run --status-fd 3 -w 0.3 busy true 3>>status 2>/dev/null
kill $holder
wait $holder
"$HOLDFAST" run --status-fd 3 busy -- sh -c 'exit 75' 3>>status
"$HOLDFAST" run --status-fd 3 --ttl 1s --max-hold 50ms busy -- sleep 1000 3>>status 2>/dev/null
agrees "--status-fd prints what is documented" StatusLine <status
status_table=$(sed -n 's/^| \([a-z]*\) | \([a-zA-Z, ]*\) | .* |$/\1: \2/p' <(sed -n '/^## run --status-fd/,$p' "$ROOT/docs/json.md") | grep -v '^event' | sort)
is "--status-fd prints the events and keys that are documented" \
    "$(jq -r '"\(.event): \(del(.event, .name) | keys_unsorted | join(", "))"' status | sort -u)" "$status_table"

undocumented() {
    local verb
    for verb in $("$HOLDFAST" __describe | jq -r '.verbs[] | select(any(.options[]; .name == "json")) | .name'); do
        grep -qE "^## $verb\$|\`$verb\` prints the same" "$ROOT/docs/json.md" || echo "$verb"
    done
}
is "every verb with --json is documented" "$(undocumented)" ""
done_testing
