#!/usr/bin/env bash
# list_show.sh - what `list` and `show` print: the table, the JSON, foreign text made harmless.
. "$(dirname "$0")/../lib/cli_tap.sh"

exits "list of nothing is 0" 0 "$HOLDFAST" list
is "and prints nothing" "$said" ""
is "list --json of nothing is an empty array" "$("$HOLDFAST" list --json)" "[]"
exits "show of a free name is 0" 0 "$HOLDFAST" show job
is "and says so" "$said" '"job" is free'
is "show --json of a free name is an empty array" "$("$HOLDFAST" show --json job)" "[]"
exits "show without a name is 64" 64 "$HOLDFAST" show
exits "show of two names is 64" 64 "$HOLDFAST" show a b
exits "list of two prefixes is 64" 64 "$HOLDFAST" list a b
exits "an unknown option is 64" 64 "$HOLDFAST" list --jsno
like "with a suggestion" "$said" 'did you mean --json\?'

pids=()
# start OPTION... NAME: a run in the background until the end of the suite.
start() {
    "$HOLDFAST" run "$@" sleep 1000 2>/dev/null &
    pids+=($!)
}
start --label 'say "hi" \o/' job
eventually rows holder job 1
start --label second --ttl 10s job
eventually rows waiter job 1
start --label third job
eventually rows waiter job 2
start --units 2 --capacity 5 pool
eventually rows holder pool 1
start 'päckchen'
eventually rows holder 'päckchen' 1

table=$("$HOLDFAST" list)
is "the table has a line for each, and a title" "$(wc -l <<<"$table")" 6
like "its title names the columns" "$table" '^NAME +KIND +ROLE +UNITS +TOKEN +LEFT +SINCE +PID +HOST +LABEL'
is "names are in byte order, holders come before waiters" "$(awk 'NR > 1 { print $1, $3 }' <<<"$table" | tr '\n' ';')" \
    "job holder;job waiter;job waiter;pool holder;päckchen holder;"
kinds=$(LC_ALL=C.UTF-8
    title=${table%%KIND*}
    while IFS= read -r line; do echo "${line:${#title}:4}"; done <<<"$table" | sort -u | tr '\n' ' ')
is "columns are aligned" "$kinds" "KIND excl sema "
like "a semaphore shows units of capacity" "$table" 'pool +semaphore +holder +2/5'
like "text that could be mistaken is escaped" "$table" 'say "hi" \\x5co/'
is "no colour where no terminal is" "$(grep -c $'\033' <<<"$table")" 0

json=$("$HOLDFAST" list --json)
is "the JSON parses and has a row for each" "$(jq length <<<"$json")" 5
is "a line for each row" "$(wc -l <<<"$json")" 7
is "every row has all keys" "$(jq -r '.[] | keys_unsorted | join(" ")' <<<"$json" | sort -u)" \
    "name role kind capacity used units depth place token leftMs sinceMs ttlMs pid host label detached ticket foreign servers"
is "strings survive" "$(jq -r '.[0].label' <<<"$json")" 'say "hi" \o/'
is "waiters are in their order" "$(jq -c '[.[] | select(.role == "waiter") | [.place, .label]]' <<<"$json")" \
    '[[1,"second"],[2,"third"]]'
is "a waiter has neither token nor time left" "$(jq -c '.[1] | [.token, .leftMs, .ttlMs]' <<<"$json")" '[null,null,10000]'
ok "a holder has both" jq -e '.[0] | (.token | test("^[1-9][0-9]+$")) and .leftMs > 0 and .leftMs <= 30000 and .place == null' <<<"$json"
is "a semaphore tells capacity and use" "$(jq -c '.[3] | [.kind, .capacity, .used, .units]' <<<"$json")" '["semaphore",5,2,2]'
is "the pid is that of a process of the run" "$(parent "$(jq '.[0].pid' <<<"$json")")" "${pids[0]}"
is "the host is ours" "$(jq -r '.[0].host' <<<"$json")" "$(uname -n)"
is "holds of run are bound to their process" "$(jq -c '[.[].detached] | unique' <<<"$json")" '[false]'
is "list takes a prefix" "$("$HOLDFAST" list --json p | jq -c '[.[].name]')" '["pool","päckchen"]'
is "show is for one name" "$("$HOLDFAST" show --json job | jq -c '[.[].name] | unique')" '["job"]'
is "show does not take a prefix" "$("$HOLDFAST" show --json po)" '[]'

start -s page
start -s page
eventually rows holder page 2
start -x page
eventually rows waiter page 1
like "a reader has one unit, and a writer all of them" "$("$HOLDFAST" show page)" \
    $'page +read +holder +1 .*\npage +read +holder +1 .*\npage +write +waiter 1 +all '
is "the JSON has them as numbers" "$("$HOLDFAST" show --json page | jq -c '[.[].units]')" '[1,1,1048576]'
exits "who finds readers there is told how many" 75 "$HOLDFAST" run -n -x page true
like "and of no capacity" "$said" '"page" is held by pid .*, and by 1 more reader$'

kill -TERM "${pids[@]}"
wait "${pids[@]}"
is "afterwards the list is empty" "$("$HOLDFAST" list --json)" "[]"

# Names that differ at their end alone stay apart on a narrow terminal.
for i in 1 2 3; do "$HOLDFAST" acquire --ttl 20s "tenant/with/a/long/name/in/front/of/the/job-$i" >lease.long; done
if why=$(missing_terminal); then
    skip "a long name keeps both ends" "$why"
else
    script -qec "stty cols 80; '$HOLDFAST' list tenant/" /dev/null </dev/null >narrow 2>&1
    is "a long name keeps both ends" "$(grep -oE 'ten[^ ]*~[^ ]*-[123] ' narrow | sort -u | wc -l)" 3
fi
done_testing
