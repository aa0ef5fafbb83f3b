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
agrees "a row that is right passes" row <<<"$row"
refused "a token must be a text" row "${row/\"7\"/7}"
refused "a key must not be missing" row "${row/\"pid\":1,/}"
refused "a key must be known" row "${row/\{/\{\"left_ms\":1,}"
refused "a word must be one of its words" row "${row/holder/keeper}"
refused "a duration is not negative" row "${row/\"sinceMs\":0/\"sinceMs\":-1}"
refused "nothing is not enough" row ''
refused "a time is UTC" logLine '{"time":"yesterday"}'
is "the tables of docs/json.md agree with the schema" "$(valid --tables "$ROOT/docs/json.md")" ""

"$HOLDFAST" acquire job >lease
agrees "acquire prints what is documented" lease <lease
"$HOLDFAST" acquire --json --lease kept.lease kept | jq -c '. + {lease: ""}' >shown
agrees "with --lease it prints the same without the secret" lease <shown
agrees "extend prints what is documented" leaseChange < <("$HOLDFAST" extend --json <lease)
HOLDFAST_URL="$HOLDFAST_URL?history=3" "$HOLDFAST" run --units 2 --capacity 4 pool -- sh -c 'echo >ready; exec sleep 1000' &
pool=$!
eventually test -e ready
"$HOLDFAST" run job true 2>/dev/null &
waiter=$!
eventually rows waiter job 1
agrees "list prints what is documented" row < <("$HOLDFAST" list --json | jq -c '.[]')
is "of holders and of waiters" "$("$HOLDFAST" list --json | jq -c '[.[].role] | unique')" '["holder","waiter"]'
agrees "show prints what is documented" row < <("$HOLDFAST" show --json job | jq -c '.[]')
"$HOLDFAST" watch --json >watched &
watcher=$!
eventually lines watched 4
kill $watcher
wait $watcher 2>/dev/null
agrees "watch prints what is documented" event <watched
agrees "resize prints what is documented" resize < <("$HOLDFAST" resize --json --capacity 3 pool)
agrees "release prints what is documented" leaseChange < <("$HOLDFAST" release --json <lease)
wait $waiter
token=$("$HOLDFAST" show --json kept | jq -r '.[0].token')
agrees "break prints what is documented" revocation < <("$HOLDFAST" break --json --token "$token" --reason 'a "reason"' kept)
kill $pool
wait $pool
agrees "history prints what is documented" hold < <("$HOLDFAST" history --json pool | jq -c '.[]')
"$HOLDFAST" explain --json >explained
agrees "explain prints what is documented" explanation <explained
agrees "its timing too" timing < <(jq -c .timing explained)
agrees "and its settings" setting < <(jq -c '.settings[]' explained)
"$HOLDFAST" doctor --json >examined
agrees "doctor prints what is documented" diagnosis <examined
agrees "and its checks" check < <(jq -c '.checks[]' examined)
agrees "bench prints what is documented" bench < <("$HOLDFAST" bench --json -d 20ms)
agrees "advise prints what is documented" advice < <("$HOLDFAST" advise --json | jq -c '.[]')
HOLDFAST_HISTORY=3 "$HOLDFAST" run measured -- true
agrees "advise --from-history prints what is documented" suggestedTimes < <("$HOLDFAST" advise --from-history measured --json)
for dialect in postgres sqlite; do
    "$HOLDFAST" fence sql --json --dialect $dialect --table jobs >fence
    agrees "fence sql prints what is documented, for $dialect" fence <fence
    is "its dialect" "$(jq -r .dialect fence)" $dialect
    ok "and the same SQL as without --json" cmp <(jq -j .sql fence) <("$HOLDFAST" fence sql --dialect $dialect --table jobs)
done
agrees "fence redis prints what is documented" fence < <("$HOLDFAST" fence redis --json)
for shell in bash zsh fish; do
    "$HOLDFAST" completion --json $shell >script
    agrees "completion prints what is documented, for $shell" completion <script
    is "its shell" "$(jq -r .shell script)" $shell
    ok "and the same script as without --json" cmp <(jq -j .script script) <("$HOLDFAST" completion $shell)
done
agrees "version prints what is documented" version < <("$HOLDFAST" version --json)
agrees "serve prints what is documented" serviceSetting < <("$HOLDFAST" serve --print-config --json | jq -c '.[]')
"$HOLDFAST" run --log log --correlation-id abc job -- true
agrees "the log has what is documented" logLine <log

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
agrees "--status-fd prints what is documented" statusLine <status
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
