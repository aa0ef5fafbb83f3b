#!/usr/bin/env bash
# verbs.sh - what holds for every verb and every option, read from the tables of the command itself (__describe), and
# the verbs that only tell something: explain, doctor, bench, advise, version.
. "$(dirname "$0")/../lib/cli_tap.sh"

"$HOLDFAST" __describe >described
ok "__describe prints JSON" jq -e '.verbs | length > 10' described
is "the verbs are those of the design" "$(jq -r '.verbs[].name' described | sort | tr '\n' ' ')" \
    "acquire advise bench break completion doctor explain extend fence help history list release resize run serve show top version watch why "
is "no verb is there twice" "$(jq -r '.verbs[].name' described | sort | uniq -d)" ""
is "no option of a verb has its name or letter twice" \
    "$(jq -r '.verbs[] | .name as $verb | (.options | map(.name), map(.letter // empty)) | group_by(.)[] | select(length > 1) | $verb' described)" ""
is "every verb has --json but run, whose output is its command's, and help and top, which are for people" \
    "$(jq -r '.verbs[] | select(all(.options[]; .name != "json")) | .name' described | sort | tr '\n' ' ')" "help run top "
help=$("$HOLDFAST" --help)
fails "the help does not tell of hidden verbs" grep -q describe <<<"$help"
fails "and they are not suggested" grep -q __describe < <("$HOLDFAST" __describ 2>&1)

# help_of VERB: its summary and every option stand in its help.
help_of() {
    local text
    text=$("$HOLDFAST" "$1" --help) || return 1
    jq -r --arg verb "$1" '.verbs[] | select(.name == $verb) | .summary, (.options[]
        | (if .letter then "-\(.letter), " else "    " end) + "--\(.name)" + (if .argument then " \(.argument)" else "" end), .help)' described |
        while IFS= read -r line; do grep -qF -- "$line" <<<"$text" || echo "missing: $line"; done
}
for verb in $(jq -r '.verbs[].name' described); do
    like "the global help names $verb" "$help" "  $verb "
    is "$verb --help has its summary and all its options" "$(help_of "$verb")" ""
    exits "$verb -h is 0" 0 "$HOLDFAST" "$verb" -h
    exits "$verb with an unknown option is 64" 64 "$HOLDFAST" "$verb" --no-such-option
    like "and the message names it" "$said" 'unknown option --no-such-option'
    exits "$verb with an unknown letter is 64" 64 "$HOLDFAST" "$verb" -@
    exits "$verb --help into a full device is 70" 70 bash -c '"$0" "$1" --help >/dev/full' "$HOLDFAST" "$verb"
done

# Words of other tools lead to the verbs for them here.
while IFS='|' read -r word advice; do
    exits "holdfast $word is 64" 64 "$HOLDFAST" "$word"
    like "and says what to type instead" "$said" "$advice"
done <<'END'
lock|`run NAME -- CMD` holds a lock
unlock|`release` releases what `acquire` printed
status|`show NAME` prints the state of one lock
ps|`list` prints all holders and waiters
kill|`break NAME --token N
END
exits "run --timeout is 64" 64 "$HOLDFAST" run --timeout 5s x -- true
like "and names --wait" "$said" "unknown option --timeout; did you mean --wait?"
is "help VERB is VERB --help" "$("$HOLDFAST" help run)" "$("$HOLDFAST" run --help)"
is "help alone is --help" "$("$HOLDFAST" help)" "$help"
exits "help of an unknown verb is 64" 64 "$HOLDFAST" help no-such-verb
like "and names it" "$said" 'unknown verb "no-such-verb"'

# Parsing knows the same options as the description: those with an argument miss it at the end, the others refuse one.
wrong_parsing() {
    local verb name argument text
    while IFS=$'\t' read -r verb name argument; do
        if [ "$argument" = yes ]; then
            text=$("$HOLDFAST" "$verb" "--$name" 2>&1)
            [[ $? -eq 64 && $text == "holdfast: --$name needs an argument"* ]] || echo "$verb --$name: $text"
        else
            text=$("$HOLDFAST" "$verb" "--$name=x" 2>&1)
            [[ $? -eq 64 && $text == "holdfast: --$name takes no argument" ]] || echo "$verb --$name=x: $text"
        fi
    done < <(jq -r '.verbs[] | .name as $verb | .options[] | [$verb, .name, if .argument then "yes" else "no" end] | @tsv' described)
}
is "every option is parsed as it is described" "$(wrong_parsing)" ""

# A table of operands: verb, arguments, exit code.
while read -r code words; do
    # shellcheck disable=SC2086
    exits "holdfast $words is $code" "$code" "$HOLDFAST" $words
done <<'END'
64 acquire
64 acquire a b
64 acquire --units 2 a
64 acquire --units 3 --capacity 2 a
64 acquire -s --capacity 2 a
64 acquire -s -x a
64 acquire -n -w 1s a
64 extend a
64 release a
64 show
64 show a b
64 list a b
64 watch a b
64 history
64 history a b
64 break
64 break a b --token 1 --reason r
64 resize
64 resize a b --capacity 1
64 fence
64 fence http
64 fence sql --dialect oracle
64 fence sql --table x;y
64 fence sql --key 1x
64 explain a
64 explain --ttl soon
64 explain --ttl 1ms
64 doctor a
64 bench a
64 bench -d 1ms
64 bench --workers 1
64 advise a
64 completion
64 completion tcsh
64 completion bash zsh
64 version a
64 __describe a
0 explain --ttl 10s
0 advise
0 advise --many --skip
0 version
0 doctor
0 bench -d 10ms
0 completion bash
0 fence sql
0 list -- a
END
exits "a verb without its engine does not need one" 0 "$HOLDFAST" -u carrier-pigeon:// advise
for verb in acquire list show watch history explain bench; do
    operand=$([[ $verb =~ acquire|show|history ]] && echo name)
    # shellcheck disable=SC2086
    exits "$verb on an engine that does not exist is 78" 78 "$HOLDFAST" $verb -u carrier-pigeon:// $operand
done

# explain: timing and sources.
json=$(HOLDFAST_GRACE=2s "$HOLDFAST" -u "$HOLDFAST_URL?op_timeout=70ms" explain --ttl 9s --json)
source_of() {
    jq -r --arg name "$1" '.settings[] | select(.name == $name) | "\(.value) \(.source)"' <<<"$json"
}
is "explain: a flag" "$(source_of ttl)" "9000 flag"
is "explain: the URL" "$(source_of op_timeout)" "70 url"
is "explain: the environment" "$(source_of grace)" "2000 environment"
is "explain: a default" "$(source_of connect_timeout)" "2000 default"
is "explain: the command waits for ever" "$(source_of wait)" "-1 default"
like "explain says so in words" "$("$HOLDFAST" explain)" 'wait +forever +default'
like "explain: another wait" "$(HOLDFAST_WAIT=5s "$HOLDFAST" explain)" 'wait +5000ms +environment'
ok "explain: renewal comes at a third of the ttl, before the warning, before the end" \
    jq -e '.timing | .ttlMs == 9000 and .renewMs == 3000 and .renewMs < .warnMs and .warnMs < .stopMs and .stopMs <= .ttlMs and .opTimeoutMs == 70' <<<"$json"
like "explain in words" "$("$HOLDFAST" explain --ttl 9s)" $'A ttl of 9000 ms means.*\n  renew +3000 .*\nttl +9000ms +flag'
exits "a setting that nothing reads is not taken: 78" 78 "$HOLDFAST" -u "$HOLDFAST_URL?retry_limit=3" explain
like "the message names it" "$said" retry_limit
is "nor is it told of" "$("$HOLDFAST" explain | grep -c retry_limit)" 0
exits "explain with a bad setting is 78" 78 env HOLDFAST_TTL=soon "$HOLDFAST" explain
like "and names it and its source" "$said" 'ttl.*environment|HOLDFAST_TTL'

# doctor: a line for each thing.
json=$("$HOLDFAST" doctor --json)
is "doctor looks at these" "$(jq -r '.checks[].check' <<<"$json" | tr '\n' ' ')" "engine table mode disk namespace kernel cycle holds clock "
is "nothing failed" "$(jq -c '[.exit, any(.checks[]; .state == "fail")]' <<<"$json")" "[0,false]"
like "the table is named" "$(jq -r '.checks[] | select(.check == "table") | .text' <<<"$json")" "^$SCRATCH/table, "
like "and where several users share one" "$(jq -r '.checks[] | select(.check == "mode") | .text' <<<"$json")" 'local:/run/lock/holdfast/table.mode=0660$'
like "a shared table is named as such" "$("$HOLDFAST" -u "local:$SCRATCH/shared?mode=0660" doctor)" 'mode +0660, .* trusted with its locks'
chmod 666 table
is "a table that others can read is worth a warning" "$("$HOLDFAST" doctor --json | jq -r '.checks[] | select(.check == "mode") | .state')" warn
chmod 600 table
"$HOLDFAST" run stale -- sh -c 'echo >stale; exec sleep 1000' &
front=$!
eventually test -e stale
guard=$("$HOLDFAST" show --json stale | jq '.[0].pid')
kill -STOP "$guard"
eventually grep -q ') T' "/proc/$guard/stat"
like "a holder that is stopped is worth a warning" "$("$HOLDFAST" doctor)" "warn  holds +pid $guard holds \"stale\" and is stopped"
kill -CONT "$guard"
kill $front
wait $front
echo 'not a table' >foreign
exits "doctor of a foreign file is 78" 78 "$HOLDFAST" -u "local:$SCRATCH/foreign" doctor
like "the line says fail and names the file" "$said" "^fail  engine +.*$SCRATCH/foreign"
exits "doctor of an unknown engine is 78" 78 "$HOLDFAST" -u carrier-pigeon:// doctor
exits "doctor of a folder that is not there is 69" 69 "$HOLDFAST" -u "local:$SCRATCH/nowhere/table" doctor
is "with --json too" "$("$HOLDFAST" -u "local:$SCRATCH/nowhere/table" doctor --json | jq -c '[.exit, .checks[0].state]')" '[69,"fail"]'

# bench and advise.
ok "bench measures cycles, handoffs and contention" jq -e '.cyclesPerSecond > 0 and .handoffs > 0 and .handoffMedianUs > 0 and
    .handoffMedianUs <= .handoffWorstUs * 1.02 and .workers == 3 and .acquisitionsPerSecond > 0 and .fewest > 0 and .overlaps == 0' \
    <("$HOLDFAST" bench --json -d 200ms --workers 3)
like "and says that it is rough" "$("$HOLDFAST" bench -d 20ms)" 'figures are rough'
is "bench leaves nothing behind" "$("$HOLDFAST" list)" ""
is "advise --skip is for cron" "$("$HOLDFAST" advise --skip --json | jq -r '.[].use')" "holdfast run -n -E 0 NAME -- CMD"
is "every trait alone has an advice" "$(jq -r '.verbs[] | select(.name == "advise") | .options[].name' described | grep -vxE 'json|help|weights|ask|from-.*|url' |
    while read -r trait; do [ "$("$HOLDFAST" advise "--$trait" --json | jq length)" -ge 1 ] || echo "$trait"; done)" ""
is "traits that no lock has together are told one by one" "$("$HOLDFAST" advise --readers --machines --json | jq length)" 2
is "without a story all are told" "$("$HOLDFAST" advise --json | jq 'length > 8')" true
done_testing
