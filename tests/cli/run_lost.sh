#!/usr/bin/env bash
# run_lost.sh - `run` when its lease cannot be kept (--on-lost), and what it tells other programs: --status-fd, --log,
# --correlation-id.
. "$(dirname "$0")/../lib/cli_tap.sh"

# lose WORD SCRIPT: a run whose lease is not renewed any more soon after its grant; its exit code is in $code, its words
# in `said`, its events in `status`.
lose() {
    rm -f got
    "$HOLDFAST" run --ttl 1500ms --grace 600ms --max-hold 50ms --on-lost "$1" --status-fd 3 job -- bash -c "$2" 3>status 2>said
    code=$?
}
events() {
    jq -r .event status | tr '\n' ' '
}
traps='for s in TERM USR1 INT; do trap "echo $s >>got" $s; done; '
for_ever='while :; do read -rt 0.01 <> <(:); done'

lose stop "$traps$for_ever"
is "stop: 79" $code 79
is "stop: SIGTERM comes before SIGKILL" "$(cat got)" TERM
is "stop: --status-fd tells it" "$(events)" "granted started lost exited released "
is "stop: it was SIGTERM first, and SIGKILL ended it" "$(jq -c 'select(.event == "lost" or .event == "exited") | .signal' status | tr '\n' ' ')" "15 9 "
lose kill "$traps$for_ever"
is "kill: 79" $code 79
ok "kill: no signal comes before SIGKILL" test ! -e got
is "kill: which ended it" "$(jq -c 'select(.event == "exited") | [.code, .signal]' status)" '[null,9]'
lose signal:USR1 "$traps$for_ever"
is "signal: 79" $code 79
is "signal: the signal comes instead of SIGTERM" "$(cat got)" USR1
is "signal: and SIGKILL after it" "$(jq -c 'select(.event == "exited") | .signal' status)" 9
lose signal:SIGINT "$traps"'until [ -s got ]; do read -rt 0.01 <> <(:); done; exit 5'
is "signal: a name may begin with SIG, and a command that listens ends by itself" "$code $(cat got)" "79 INT"
is "signal: its own code is told" "$(jq -c 'select(.event == "exited") | .code' status)" 5
lose warn "$traps"'read -rn1 -u $HOLDFAST_LOST_FD; until [ -e taken ]; do read -rt 0.01 <> <(:); done; echo done >>got; exit 6' &
loser=$!
"$HOLDFAST" run -w 20 job -- touch taken
is "warn: another one gets the lock" $? 0
wait $loser
lose warn 'read -rn1 -u $HOLDFAST_LOST_FD; echo done >>got; exit 6'
is "warn: the command goes on to its end, but the exit code tells of the loss" "$code $(cat got)" "79 done"
like "warn: there is a message" "$(cat said)" 'the lease on "job" was lost; the command goes on without it'
is "warn: its own code is told" "$(events) $(jq -c 'select(.event == "exited") | .code' status)" \
    "granted started lost exited released  6"
is "warn: the release finds nothing" "$(jq -r 'select(.event == "released") | .status' status)" NOT_HELD
"$HOLDFAST" run --on-lost warn --ttl 800ms job -- sh -c 'exit 8'
is "warn: a lease that is kept changes nothing" $? 8
"$HOLDFAST" run --on-lost warn --ttl 1s --max-hold 50ms job -- sh -c 'echo $$ >orphan; exec sleep 1000' 2>said &
front=$!
eventually grep -q 'goes on' said && eventually test -s orphan
kill -KILL $front
wait $front 2>/dev/null
eventually gone "$(cat orphan)"
ok "warn: a command whose lease is lost still ends with its front" gone "$(cat orphan)"
for word in '' soon signal signal: signal:NONE signal:9 STOP; do
    exits "--on-lost \"$word\" is 64" 64 "$HOLDFAST" run --on-lost "$word" job true
done
like "the message says what is possible" "$said" 'is not stop, kill, warn, or signal:'

# --status-fd tells the command's own 75 and 79 from ours.
"$HOLDFAST" run busy -- sh -c 'echo >held; exec sleep 1000' &
holder=$!
eventually test -e held
"$HOLDFAST" run -n --status-fd 3 busy true 3>status 2>/dev/null
is "our 75 is refused" "$? $(events) $(jq .code status)" "75 refused  75"
"$HOLDFAST" run -n -E 4 --status-fd 3 busy true 3>status 2>/dev/null
is "-E changes what is told too" "$? $(jq .code status)" "4 4"
"$HOLDFAST" run -w 0.2 --status-fd 3 busy true 3>status 2>/dev/null
is "who waits is told so" "$? $(events)" "75 waiting refused "
"$HOLDFAST" -u carrier-pigeon:// run --status-fd 3 busy true 3>status 2>/dev/null
is "an engine that is not there is told too" "$? $(events) $(jq .code status)" "78 refused  78"
"$HOLDFAST" run --status-fd 3 waited true 3>status
is "who does not wait is not told so" "$(events)" "granted started exited released "
for own in 75 79; do
    "$HOLDFAST" run --status-fd 3 other -- sh -c "exit $own" 3>status
    is "a command's own $own is told as such" "$? $(events) $(jq -c 'select(.event == "exited") | [.code, .signal]' status)" \
        "$own granted started exited released  [$own,null]"
done
"$HOLDFAST" run --status-fd 3 other -- sh -c 'kill -9 $$' 3>status
is "a signal that ended it is told" "$(jq -c 'select(.event == "exited") | [.code, .signal]' status)" '[null,9]'
is "token, ttl and pid are told" \
    "$("$HOLDFAST" run --status-fd 3 --ttl 5s other -- sh -c 'echo $HOLDFAST_TOKEN $HOLDFAST_TTL_MS $$' 3>status)" \
    "$(jq -rs '"\(.[0].token) \(.[0].ttlMs) \(.[1].pid)"' status)"
is "the command does not inherit the descriptor" "$("$HOLDFAST" run --status-fd 9 other -- sh -c '[ -e /proc/self/fd/9 ] || echo none' 9>status)" none
exits "--status-fd 1 mixes with the command's output" 0 "$HOLDFAST" run --status-fd 1 other echo own
is "in order" "$(sed 's/.*"event":"\([a-z]*\)".*/\1/' <<<"$said" | tr '\n' ' ')" "granted started own exited released "
exits "a descriptor that is not open is 64" 64 "$HOLDFAST" run --status-fd 8 other true
exits "one that cannot be written to is 64" 64 bash -c '"$0" run --status-fd 8 other true 8</dev/null' "$HOLDFAST"
exits "one that nobody reads does not end the command" 3 bash -c '"$0" run --status-fd 8 other -- sh -c "exit 3" 8> >(exec true)' "$HOLDFAST"
exits "one whose reader is gone is complained of once" 3 bash -c 'mkfifo gone; exec 7<>gone 8>gone 7<&-
    "$0" run --status-fd 8 other -- sh -c "exit 3"' "$HOLDFAST"
is "in one line" "$said" "holdfast: --status-fd: cannot write to 8: Broken pipe"
exits "one that is full does not stop the run" 3 bash -c 'mkfifo full; exec 8<>full
    head -c 65536 /dev/zero >&8; "$0" run --status-fd 8 other -- sh -c "exit 3"' "$HOLDFAST"
like "and is complained of" "$said" '--status-fd: cannot write to 8: Resource temporarily unavailable'

# The log.
"$HOLDFAST" run --log log logged -- true
HOLDFAST_CORRELATION_ID=from-environment TRACEPARENT=00-trace "$HOLDFAST" run --log log logged -- true
TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 "$HOLDFAST" run --log log logged -- true
HOLDFAST_CORRELATION_ID=from-environment "$HOLDFAST" run --log log --correlation-id given logged -- true
is "a log is appended to, with the correlation id of option, our variable, TRACEPARENT" \
    "$(jq -rs '[.[] | select(.event == "granted") | .correlationId] | join(" ")' log)" \
    " from-environment 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 given"
is "every grant has its release with the same token" "$(jq -cs 'group_by(.token) | map(map(.event)) | unique' log)" '[["granted","released"]]'
is "a new log is for its owner alone" "$(stat -c %a log)" 600
"$HOLDFAST" run --log log --correlation-id waits -w 0.2 busy -- true 2>/dev/null
is "waiting and its end are in the log" "$(jq -r 'select(.correlationId == "waits") | .event + " " + .status' log | tr '\n' ' ')" \
    "queued OK denied TIMEOUT "
"$HOLDFAST" run --ttl 1s --max-hold 50ms --log log --correlation-id loses --on-lost warn logged -- sh -c 'read x <&$HOLDFAST_LOST_FD' 2>/dev/null
ok "a loss is in the log" jq -se '[.[] | select(.correlationId == "loses" and .event == "lost" and .level == "error")] | length == 1' log
exits "a log that cannot be opened is 78" 78 "$HOLDFAST" run --log nowhere/log logged true
like "the message names it" "$said" 'cannot open the log "nowhere/log"'
exits "a full log does not end the command" 5 "$HOLDFAST" run --log /dev/full logged -- sh -c 'exit 5'
like "but is complained of" "$said" 'cannot write to the log: No space left'
exits "a correlation id that is too long is 64" 64 "$HOLDFAST" run --correlation-id "$(printf '%65s' x)" logged true
exits "from our variable it is 78" 78 env HOLDFAST_CORRELATION_ID="$(printf '%65s' x)" "$HOLDFAST" run logged true
like "and the message names the variable" "$said" HOLDFAST_CORRELATION_ID
exits "from TRACEPARENT it is ignored: that is somebody else's" 0 env TRACEPARENT=$'a\nb' "$HOLDFAST" run logged true
kill $holder
wait $holder
done_testing
