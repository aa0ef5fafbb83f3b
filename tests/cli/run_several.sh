#!/usr/bin/env bash
# run_several.sh - `run` with several locks (-l): all or none, in an order in which nobody waits for himself, lost
# together, given back together; what the command and other programs are told of each.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

# held NAME...: each of them has one holder.
held() {
    local name
    for name; do rows holder "$name" 1 || return 1; done
}

# free NAME...: nobody holds any of them.
free() {
    local name
    for name; do rows holder "$name" 0 || return 1; done
}

# ---- Words

exits "the command's exit code is passed on" 7 "$HOLDFAST" run -l a -l b -- sh -c 'exit 7'
exits "-- may be left out" 7 "$HOLDFAST" run -l a --lock b sh -c 'exit 7'
is "-c runs one string" "$("$HOLDFAST" run -l a -l b -c 'echo $((1 + 2))')" 3
exits "no CMD is 64" 64 "$HOLDFAST" run -l a -l b --
exits "-c and CMD together are 64" 64 "$HOLDFAST" run -l a -c true true
exits "an empty name is 64" 64 "$HOLDFAST" run -l a -l '' true
exits "a name that is given twice is 64" 64 "$HOLDFAST" run -l a -l b -l a true
like "the message names it" "$said" '-l "a" is given twice'
exits "a name with a control character is 64" 64 "$HOLDFAST" run -l a -l $'b\tc' true
like "the message names it and what is wrong" "$said" '"b\\x09c": name: byte 2 \(0x09\) is a control character'
exits "-l without a name is 64" 64 "$HOLDFAST" run -l
# shellcheck disable=SC2046
exits "more than 64 are 64" 64 "$HOLDFAST" run $(printf -- '-l %d ' {1..65}) true
# shellcheck disable=SC2046
exits "64 are taken" 0 "$HOLDFAST" run $(printf -- '-l %d ' {1..64}) true
is "a comma is a part of a name, as it always was" "$("$HOLDFAST" run a,b -c 'echo "$HOLDFAST_NAME"')" a,b

# ---- What the command finds

"$HOLDFAST" run --ttl 5s -l 'the second' -l first -- env >found
"$HOLDFAST" run -l a -l b -- sh -c 'echo $HOLDFAST_TOKEN_1 $HOLDFAST_TOKEN_2; "$0" show --json a; "$0" show --json b' "$HOLDFAST" >shown 2>/dev/null
is "names in the order in which they were given" "$(sed -n 's/^HOLDFAST_NAME_//p' found | sort)" $'1=the second\n2=first'
is "tokens too" "$(head -n 1 shown)" "$(tail -n +2 shown | jq -s -r '[.[][].token] | join(" ")')"
is "name and token without a number are the first's" "$(sed -n 's/^HOLDFAST_\(NAME\|TOKEN\)=//p' found | sort)" \
    "$(sed -n 's/^HOLDFAST_\(NAME\|TOKEN\)_1=//p' found | sort)"
is "one -l has a number too" "$("$HOLDFAST" run -l only -c 'echo $HOLDFAST_NAME_1 $HOLDFAST_NAME')" "only only"
is "a run inside does not inherit numbers that are not its own" \
    "$("$HOLDFAST" run -l a -l b -- "$HOLDFAST" run c env | grep -c '^HOLDFAST_\(NAME\|TOKEN\)_[0-9]')" 0
is "other variables stay" "$(HOLDFAST_NAME_X=kept "$HOLDFAST" run -l a -c 'echo $HOLDFAST_NAME_X')" kept
ok "all are free afterwards" free a b c only first

# ---- All or none

# hold NAME: a background run that holds it until $holder gets SIGTERM.
hold() {
    "$HOLDFAST" run "$1" -- sleep 1000 &
    holder=$!
    eventually held "$1"
}

hold b
exits "one that is busy refuses all" 75 "$HOLDFAST" run -n -l a -l b -l c -- touch never
like "the message says which, and who holds it" "$said" '^holdfast: "b" is held by pid [0-9]+'
ok "the others were given back" free a c
exits "-E changes the code" 9 "$HOLDFAST" run -n -E 9 -l b -l a true
exits "a wait that is over is 75" 75 "$HOLDFAST" run -w 0.3 -l c -l b -l a true
like "and names the one that was waited for" "$said" '"b" is held by pid'
ok "the others were given back" free a c
ok "the command was not run" test ! -e never
"$HOLDFAST" run --status-fd 3 -l c -l b -l a -- touch both 3>status 2>waiting.log &
several=$!
eventually lines waiting.log 1
like "who waits says for which one" "$(cat waiting.log)" '^holdfast: waiting: "b" is held by pid [0-9]+.*; our place 1 of 1$'
ok "while it waits it holds those before it" held a b
for number in TERM INT; do
    env --default-signal "$HOLDFAST" run -l 1 -l b -- touch never 2>/dev/null &
    leaver=$!
    eventually rows waiter b 2
    ok "holds the first" held 1
    kill -$number $leaver
    wait $leaver
    is "SIG$number ends the wait for several with 128+N" $? $((128 + $(kill -l $number)))
    ok "gives back what it had, and leaves the queue" eventually free 1
    ok "at once" rows waiter b 1
done
kill $holder
wait $holder
wait $several
is "it runs when it has all" "$? $(ls both)" "0 both"
is "what happened is told, with the name of each" "$(jq -r '.event + " " + .name' status | tr '\n' ,)" \
    "waiting b,granted c,granted b,granted a,started c,exited c,released c,released b,released a,"
is "each was released" "$(jq -r 'select(.event == "released").status' status | sort -u)" OK

# ---- Nobody waits for himself: contenders that give the names in every order all come through.
echo 0 >count
pids=()
for order in 'x y z' 'z y x' 'y x z' 'z x y'; do
    # shellcheck disable=SC2086
    for _ in 1 2 3 4 5; do "$HOLDFAST" run -w 30 $(printf -- '-l %s ' $order) -c 'echo $(($(cat count) + 1)) >count' 2>/dev/null || exit 1; done &
    pids+=($!)
done
wait "${pids[@]}"
is "twenty runs in four orders all come through, one at a time" "$? $(cat count)" "0 20"

# ---- Lost together

# lose NAME: a run on three locks of which one is broken; its exit code is in $code.
lose() {
    rm -f began
    "$HOLDFAST" run --ttl 3s --status-fd 3 -l p -l q -l r -- sh -c 'echo $$ >began; exec sleep 1000' 3>status 2>said &
    local front=$!
    eventually test -s began
    "$HOLDFAST" break --token "$("$HOLDFAST" show --json "$1" | jq -r '.[0].token')" --reason test "$1"
    wait $front
    code=$?
}
for name in p r; do
    lose $name
    is "$name is lost: 79" $code 79
    ok "$name is lost: the command is stopped" gone "$(cat began)"
    like "$name is lost: the message names it" "$(cat said)" "the lease on \"$name\" was lost; the command was stopped"
    is "$name is lost: --status-fd does too" "$(jq -r 'select(.event == "lost").name' status)" $name
    ok "$name is lost: the others are free" free p q r
done
"$HOLDFAST" run --ttl 1500ms --grace 600ms --max-hold 50ms -l p -l q -- bash -c 'trap "echo asked >asked; exit 0" TERM; while :; do sleep 0.01; done' 2>said
is "what cannot be kept is 79" "$? $(cat asked)" "79 asked"
"$HOLDFAST" run -l p -l q -- sh -c 'echo $$ >killed; exec sleep 1000' 2>/dev/null &
front=$!
eventually test -s killed
kill -KILL $front
wait $front 2>/dev/null
ok "a killed run takes its command along" eventually gone "$(cat killed)"
ok "and gives all back" eventually free p q

# ---- With other options
exits "readers share several" 0 "$HOLDFAST" run -s -l p -l q -- "$HOLDFAST" run -n -s -l q -l p true
exits "an owner enters several again" 0 "$HOLDFAST" run --owner me -l p -l q -- "$HOLDFAST" run -n --owner me -l q -l p true
exits "a semaphore each" 0 "$HOLDFAST" run --capacity 2 -l p -l q -- "$HOLDFAST" run -n --capacity 2 -l q -l p true
exits "an engine that is not there is 78" 78 "$HOLDFAST" -u carrier-pigeon:// run -l p -l q true

# ---- On a server, where what is not given back stays.
if why=$(missing_server redis); then
    result "on Redis several are given back after a signal # SKIP $why" 0
    done_testing
    exit
fi
start_redis || exit 70
export HOLDFAST_URL=$REDIS_URL
exits "redis: several" 3 "$HOLDFAST" run -l a -l b -- sh -c '"$0" list --json | grep -c holder | grep -qx 2 && exit 3' "$HOLDFAST"
hold b
"$HOLDFAST" run -l c -l b -l a -- touch never 2>/dev/null &
leaver=$!
eventually rows waiter b 1
kill -TERM $leaver
wait $leaver
is "redis: a signal ends the wait" $? 143
ok "redis: what was held is free at once" free a c
ok "redis: and the place in the queue is left" rows waiter b 0
exits "redis: one that is busy refuses all" 75 "$HOLDFAST" run -n -l a -l b -l c -- touch never
ok "redis: the others are free" free a c
kill $holder
wait $holder
lose q
is "redis: one lost is all lost" $code 79
ok "redis: the others are free" eventually free p q r
"$HOLDFAST" run --ttl 2s --grace 200ms -l p -l q -- sh -c 'echo $$ >hung; exec sleep 1000' 2>said &
front=$!
eventually test -s hung
kill -STOP "$REDIS_PID"
wait $front
is "redis: a server that hangs stops the command before the leases can end" $? 79
kill -CONT "$REDIS_PID"
done_testing
