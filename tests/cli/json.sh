#!/usr/bin/env bash
# json.sh - what --json prints is what docs/json.md says: the tables there are read and compared key by key.
. "$(dirname "$0")/tap.sh"

# documented SECTION: "key type" lines of its table, sorted.
documented() {
    awk -v title="## $1" '$0 == title { inside = 1; next } /^## / { inside = 0 }
        inside && /^\| [a-z0-9_]+ \| (string|number|boolean|array|object)\?? \|/ { print $2, $4 }' "$ROOT/docs/json.md" | sort
}

# agrees NAME SECTION: the objects on stdin have the keys of the section, each with its type; there is at least one.
agrees() {
    local seen wanted
    wanted=$(documented "$2")
    seen=$(jq -rs --arg wanted "$wanted" '
        def fits($wish; $got): ($got | type) as $is
            | ($wish | rtrimstr("?")) == $is or ($is == "null" and ($wish | endswith("?")));
        ($wanted | split("\n") | map(split(" ") | {key: .[0], value: .[1]}) | from_entries) as $table
        | if length == 0 then "nothing was printed" else
            .[] | . as $object
            | (($table | keys) - ($object | keys) | map("missing: " + .)),
              (($object | keys) - ($table | keys) | map("not documented: " + .)),
              [$object | to_entries[] | select($table[.key] and (fits($table[.key]; .value) | not))
                  | "\(.key) is \(.value | type)"]
            | .[]
          end') || seen="jq: $seen"
    [ -n "$wanted" ] && [ -z "$seen" ]
    result "$1" $? "documented: $wanted"$'\n'"$seen"
}

"$HOLDFAST" acquire job >lease
agrees "acquire prints what is documented" acquire <lease
"$HOLDFAST" acquire --json --lease kept.lease kept | jq -c '. + {lease: ""}' >shown
agrees "with --lease it prints the same without the secret" acquire <shown
agrees "extend prints what is documented" extend < <("$HOLDFAST" extend --json <lease)
HOLDFAST_URL="$HOLDFAST_URL?history=3" "$HOLDFAST" run --units 2 --capacity 4 pool -- sh -c 'echo >ready; exec sleep 1000' &
pool=$!
eventually test -e ready
"$HOLDFAST" run job true 2>/dev/null &
waiter=$!
eventually rows waiter job 1
agrees "list prints what is documented" list < <("$HOLDFAST" list --json | jq -c '.[]')
is "of holders and of waiters" "$("$HOLDFAST" list --json | jq -c '[.[].role] | unique')" '["holder","waiter"]'
agrees "show prints what is documented" list < <("$HOLDFAST" show --json job | jq -c '.[]')
"$HOLDFAST" watch --json >watched &
watcher=$!
eventually lines watched 4
kill $watcher
wait $watcher 2>/dev/null
agrees "watch prints what is documented" watch <watched
agrees "resize prints what is documented" resize < <("$HOLDFAST" resize --json --capacity 3 pool)
agrees "release prints what is documented" extend < <("$HOLDFAST" release --json <lease)
wait $waiter
token=$("$HOLDFAST" show --json kept | jq '.[0].token')
agrees "break prints what is documented" break < <("$HOLDFAST" break --json --token "$token" --reason 'a "reason"' kept)
kill $pool
wait $pool
agrees "history prints what is documented" history < <("$HOLDFAST" history --json pool | jq -c '.[]')
"$HOLDFAST" explain --json >explained
agrees "explain prints what is documented" explain <explained
agrees "its timing too" explain.timing < <(jq -c .timing explained)
agrees "and its settings" explain.settings < <(jq -c '.settings[]' explained)
"$HOLDFAST" doctor --json >examined
agrees "doctor prints what is documented" doctor <examined
agrees "and its checks" doctor.checks < <(jq -c '.checks[]' examined)
agrees "bench prints what is documented" bench < <("$HOLDFAST" bench --json -d 20ms)
agrees "advise prints what is documented" advise < <("$HOLDFAST" advise --json | jq -c '.[]')
HOLDFAST_HISTORY=3 "$HOLDFAST" run measured -- true
agrees "advise --from-history prints what is documented" "advise --from-history" < <("$HOLDFAST" advise --from-history measured --json)
for dialect in postgres sqlite; do
    "$HOLDFAST" fence sql --json --dialect $dialect --table jobs >fence
    agrees "fence sql prints what is documented, for $dialect" fence <fence
    is "its dialect" "$(jq -r .dialect fence)" $dialect
    ok "and the same SQL as without --json" cmp <(jq -j .sql fence) <("$HOLDFAST" fence sql --dialect $dialect --table jobs)
done
for shell in bash zsh fish; do
    "$HOLDFAST" completion --json $shell >script
    agrees "completion prints what is documented, for $shell" completion <script
    is "its shell" "$(jq -r .shell script)" $shell
    ok "and the same script as without --json" cmp <(jq -j .script script) <("$HOLDFAST" completion $shell)
done
agrees "version prints what is documented" version < <("$HOLDFAST" version --json)
agrees "serve prints what is documented" serve < <("$HOLDFAST" serve --print-config --json | jq -c '.[]')
"$HOLDFAST" run --log log --correlation-id abc job -- true
agrees "the log has what is documented" 'run --log' <log

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
status_table=$(sed -n 's/^| \([a-z]*\) | \([a-z_, ]*\) | .* |$/\1: \2/p' <(sed -n '/^## run --status-fd/,$p' "$ROOT/docs/json.md") | grep -v '^event' | sort)
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
