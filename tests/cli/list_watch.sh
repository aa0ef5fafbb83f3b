#!/usr/bin/env bash
# list_watch.sh - list with trouble first, history, watch as lines, break, resize.
. "$(dirname "$0")/../lib/cli_tap.sh"

pids=()
# start OPTION... NAME: a run in the background until the end of the suite.
start() {
    "$HOLDFAST" run "$@" sleep 1000 2>/dev/null &
    pids+=($!)
}
order() {
    "$HOLDFAST" list --json | jq -r '.[].name' | uniq | tr '\n' ' '
}
start calm
eventually rows holder calm 1
start wanted
eventually rows holder wanted 1
start wanted
eventually rows waiter wanted 1
start also
eventually rows holder also 1
is "names with waiters come before names without" "$(order)" "wanted also calm "
start queue
eventually rows holder queue 1
start queue
eventually rows waiter queue 1
start queue
eventually rows waiter queue 2
is "those with most waiters first" "$(order)" "queue wanted also calm "
"$HOLDFAST" acquire --ttl 6s ending >/dev/null
less_than_half() {
    "$HOLDFAST" show --json ending | jq -e '.[0] | .leftMs * 2 < .ttlMs'
}
eventually less_than_half
is "a hold that is about to end comes before all others" "$(order | cut -d' ' -f1)" ending
is "the table has the same order" "$("$HOLDFAST" list | awk 'NR > 1 && $1 != last { printf "%s ", last = $1 }')" "$(order)"
"$HOLDFAST" acquire --label $'red \xe2\x80\xae' 'back\slash' >/dev/null
fails "what could reorder a line is not printed as it is" grep -q $'\xe2\x80\xae' <("$HOLDFAST" list)
like "but escaped" "$("$HOLDFAST" list back)" 'back\\x5cslash .* red \\xe2\\x80\\xae'

# Watch, where no terminal is.
"$HOLDFAST" watch w >watched &
watcher=$!
ok "watch begins with what is there" eventually grep -q 'granted   wanted' watched
"$HOLDFAST" run --label seen watch/me -- true
ok "then it tells what changes" eventually grep -q 'released  watch/me' watched
"$HOLDFAST" run unseen -- true
start --units 1 --capacity 2 watch/pool
ok "a grant" eventually grep -q 'granted   watch/pool' watched
"$HOLDFAST" resize --capacity 5 watch/pool
ok "a new capacity" eventually grep -q 'resized   watch/pool' watched
is "watch is still there" "$(jobs -r %% >/dev/null && echo yes)" yes
kill $watcher
wait $watcher 2>/dev/null
like "a line tells time, event, name, token, process and label" "$(grep -m1 'granted   watch/me' watched)" \
    '^[0-9-]+T[0-9:.]+Z  granted   watch/me  token [0-9]+  pid [0-9]+ seen$'
like "who waits is told at the beginning" "$(cat watched)" 'queued    wanted  pid'
fails "other names are not" grep -q unseen watched
"$HOLDFAST" watch --json | head -n 1 >first
ok "watch ends when its reader is gone" jq -e .event first
exits "watch of two prefixes is 64" 64 "$HOLDFAST" watch a b

# History.
is "without the setting there is none" "$("$HOLDFAST" history calm)" ""
is "and the array is empty" "$("$HOLDFAST" history --json calm)" "[]"
export HOLDFAST_HISTORY=2
for label in one two three; do "$HOLDFAST" run --label $label past true; done
is "history has the newest holds first, and as many as the setting says" "$("$HOLDFAST" history --json past | jq -c '[.[].label]')" '["three","two"]'
"$HOLDFAST" acquire --ttl 50ms --label four past >/dev/null
eventually bash -c '"$0" history --json past | jq -e ".[0].label == \"four\""' "$HOLDFAST"
is "how a hold ended is told" "$("$HOLDFAST" history --json past | jq -c '[.[].outcome]')" '["lost","released"]'
like "as a table too" "$("$HOLDFAST" history past)" $'^ENDED .*LABEL\n.* ago +lost +.* four\n.* ago +released +.* three$'
"$HOLDFAST" run -x written true
like "where a writer had all units" "$("$HOLDFAST" history written)" 'released +.* write +all +[0-9]{16}'
unset HOLDFAST_HISTORY
exits "history without a name is 64" 64 "$HOLDFAST" history

# Break.
"$HOLDFAST" run --label victim broken -- sh -c 'echo $$ >victim; exec sleep 1000' 2>said &
victim=$!
eventually test -s victim
token=$("$HOLDFAST" show --json broken | jq -r '.[0].token')
exits "break with another token is 79" 79 "$HOLDFAST" break broken --token $((token - 1)) --reason test
exits "break without a token is 64" 64 "$HOLDFAST" break broken --reason test
exits "break without a reason is 64" 64 "$HOLDFAST" break broken --token "$token"
exits "break with an empty reason is 64" 64 "$HOLDFAST" break broken --token "$token" --reason ''
exits "a token that is no number is 64" 64 "$HOLDFAST" break broken --token x --reason test
exits "a token that is too large is 64" 64 "$HOLDFAST" break broken --token 99999999999999999999 --reason test
ok "nothing of that changed anything" rows holder broken 1
exits "break with the token is 0, and options may follow the name" 0 "$HOLDFAST" break broken --token "$token" --reason 'gone for a week' --log log
wait $victim
is "the command of the broken hold is stopped with 79" $? 79
ok "it is gone" gone "$(cat victim)"
is "the reason is in the log" "$(jq -r '.event + " " + .text' log)" "broken gone for a week"
exits "a second break is 79" 79 "$HOLDFAST" break broken --token "$token" --reason test

# Resize.
start --capacity 1 pool
eventually rows holder pool 1
exits "one more does not fit" 75 "$HOLDFAST" run -n --capacity 1 pool true
"$HOLDFAST" run --capacity 1 pool true 2>/dev/null &
waiter=$!
eventually rows waiter pool 1
exits "resize is 0" 0 "$HOLDFAST" resize pool --capacity 2
wait $waiter
is "who waited fits then" $? 0
is "the new capacity is there for all" "$("$HOLDFAST" show --json pool | jq '.[0].capacity')" 2
exits "resize without a capacity is 64" 64 "$HOLDFAST" resize pool
exits "resize to 0 is 64" 64 "$HOLDFAST" resize pool --capacity 0
exits "resize of a free name is 79" 79 "$HOLDFAST" resize nobody --capacity 2
exits "resize of a mutex is 78" 78 "$HOLDFAST" resize calm --capacity 2
kill -TERM "${pids[@]}"
wait "${pids[@]}"
done_testing
