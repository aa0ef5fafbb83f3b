#!/usr/bin/env bash
# acquire_release.sh - acquire, extend and release: a lease for scripts, through a pipe or a file, and its secret, which is nowhere
# else.
. "$(dirname "$0")/../lib/cli_tap.sh"

# free NAME: nobody holds it.
free() {
    [ "$("$HOLDFAST" show "$1")" = "\"$1\" is free" ]
}

"$HOLDFAST" acquire --label nightly job >lease
is "acquire is 0" $? 0
is "it prints one line" "$(wc -l <lease)" 1
ok "the line is JSON with a token, time left, and the lease" jq -e '.name == "job" and .kind == "exclusive" and (.token | test("^[1-9][0-9]+$"))
    and .ttlMs == 30000 and .leftMs > 0 and .leftMs <= 30000 and (.lease | length) > 60' lease
is "the hold outlives the process" "$("$HOLDFAST" show --json job | jq -c '.[] | [.role, .label, .detached]')" \
    '["holder","nightly",true]'
exits "meanwhile the lock is busy" 75 "$HOLDFAST" acquire -n job
like "the message says who holds it" "$said" '"job" is held by pid [0-9]+.* \(nightly\)'
exits "-E changes the code" 9 "$HOLDFAST" acquire -n -E 9 job
exits "-E 0 is possible" 0 "$HOLDFAST" acquire -n -E 0 job
is "and prints no lease" "$("$HOLDFAST" acquire -n -E 0 job 2>/dev/null)" ""
exits "a wait that is over is 75" 75 "$HOLDFAST" acquire -w 0.1 job
ok "extend takes the lease from stdin" "$HOLDFAST" extend --ttl 2m <lease
ok "and it lasts longer" jq -e '.[0].leftMs > 100000' <("$HOLDFAST" show --json job)
ok "a shorter ttl does not shorten it" "$HOLDFAST" extend --ttl 1s <lease
ok "it lasts as long as before" jq -e '.[0].leftMs > 100000' <("$HOLDFAST" show --json job)
is "extend says nothing unless asked" "$("$HOLDFAST" extend <lease)" ""
ok "release takes the lease from stdin, also through another program" "$HOLDFAST" release < <(jq . lease)
ok "the lock is free" free job
exits "a second release is 79" 79 "$HOLDFAST" release <lease
exits "so is a late extend" 79 "$HOLDFAST" extend <lease
fails "their message does not tell the secret" grep -qF "$(jq -r .lease lease | cut -d' ' -f2)" <<<"$said"
ok "acquire | release is a whole life" bash -c '"$0" acquire job | "$0" release' "$HOLDFAST"
ok "after which the lock is free" free job

"$HOLDFAST" acquire --ttl 100ms short >short
eventually free short
exits "release of a lease that ended by itself is 79" 79 "$HOLDFAST" release <short
exits "extend does not revive it" 79 "$HOLDFAST" extend <short

is "a semaphore too" "$("$HOLDFAST" acquire --units 2 --capacity 3 pool | jq -r .kind)" semaphore
exits "which is full then for two more" 75 "$HOLDFAST" acquire -n --units 2 --capacity 3 pool
is "readers share" "$("$HOLDFAST" acquire -s books | jq -r .kind; "$HOLDFAST" acquire -n -s books | jq -r .kind)" $'read\nread'
name=$'quote " back\\slash \xc3\xa4 \xf0\x9f\x94\x92'
"$HOLDFAST" acquire "$name" >odd
is "a name is told as it is" "$(jq -r .name odd)" "$name"
ok "and its lease can be released" "$HOLDFAST" release <odd
ok "also when another program escaped all that is not ASCII" "$HOLDFAST" release < <("$HOLDFAST" acquire "$name" | jq -a .)

# What is not a lease.
for text in '' '{' 'hf1' '[]' '{}' '{"lease":5}' '{"lease":"x"}' '{"lease":"hf1 00 00 0 1 1 1 1 job"}' '{"lease":"x"} more' \
    '{"lease":"\u0000"}' '{"lease":"\ud800"}' "{\"lease\":\"$(printf '%2000s' x)\"}" "$(printf '{"a":%0.s' {1..50})"; do
    exits "what is not a lease is 64: ${text:0:40}" 64 bash -c '"$0" release <<<"$1"' "$HOLDFAST" "$text"
done
exits "a NUL in it is 64" 64 bash -c 'printf "{\"lease\":\"a\0b\"}" | "$0" release' "$HOLDFAST"
exits "a directory as stdin is 78" 78 bash -c '"$0" release </' "$HOLDFAST"

# Files.
umask 000
is "--lease prints nothing" "$("$HOLDFAST" acquire --lease file.lease job)" ""
is "the file is 0600 whatever the umask" "$(stat -c %a file.lease)" 600
ok "the file has the lease" jq -e '.lease' file.lease
exits "a file that exists is 78" 78 "$HOLDFAST" acquire --lease file.lease other
like "the message names it" "$said" '"file.lease" exists'
ok "and nothing was taken" free other
exits "a file that cannot be made is 78" 78 "$HOLDFAST" acquire --lease nowhere/file other
ok "extend reads the file" "$HOLDFAST" extend --lease file.lease
for mode in 640 604 620 660; do
    chmod $mode file.lease
    exits "a file of mode $mode is refused with 78" 78 "$HOLDFAST" release --lease file.lease
    like "the message says why" "$said" 'file.lease.*group or others.*0600'
done
chmod 600 file.lease
ln -s file.lease link.lease
exits "a symbolic link is refused" 78 "$HOLDFAST" release --lease link.lease
mkfifo -m 600 pipe.lease
exits "a pipe is refused and not waited for" 78 timeout 10 "$HOLDFAST" release --lease pipe.lease
exits "a missing file is 78" 78 "$HOLDFAST" release --lease nowhere
is "nothing of that released the lock" "$("$HOLDFAST" show --json job | jq length)" 1
like "a file that is not there is named, and why" "$("$HOLDFAST" release --lease ./nowhere 2>&1)" \
    'cannot open the lease file "./nowhere": No such file or directory'
ok "release reads the file" "$HOLDFAST" release --lease file.lease
ok "and removes it" test ! -e file.lease
ok "the lock is free then" free job
is "with --json the line is printed without the secret" \
    "$("$HOLDFAST" acquire --json --lease file.lease job | jq -c 'keys')" '["kind","leftMs","name","token","ttlMs"]'
exits "busy leaves no file behind" 75 "$HOLDFAST" acquire -n --lease second.lease job
ok "none" test ! -e second.lease
exits "also with -E 0" 0 "$HOLDFAST" acquire -n -E 0 --lease second.lease job
ok "none" test ! -e second.lease
cp -p file.lease copy.lease
"$HOLDFAST" release --lease file.lease
exits "a release that comes too late is 79" 79 "$HOLDFAST" release --lease copy.lease
ok "and removes the file, whose lease is no more" test ! -e copy.lease

# A file whose lease has ended is in nobody's way.
"$HOLDFAST" acquire --ttl 100ms --lease old.lease old
eventually free old
cp -p old.lease ended.lease
exits "extend of a lease that has ended leaves its file alone" 79 "$HOLDFAST" extend --lease old.lease
ok "so that it can be looked at" test -s old.lease
exits "acquire replaces the file of a lease that has ended" 0 "$HOLDFAST" acquire --lease old.lease new
is "it has the new one, and nothing else" "$(jq -r .name old.lease)" new
is "for its owner alone" "$(stat -c %a old.lease)" 600
exits "a file whose lease is held is not replaced: 78" 78 "$HOLDFAST" acquire --lease old.lease other
like "the message says why" "$said" '"old.lease" exists, and its lease has not ended'
is "and it is as it was" "$(jq -r .name old.lease)" new
ok "nothing was taken" free other
ok "its lease can be released" "$HOLDFAST" release --lease old.lease
"$HOLDFAST" acquire new >/dev/null
exits "busy leaves no file of an ended lease either" 75 "$HOLDFAST" acquire -n --lease ended.lease new
ok "none" test ! -e ended.lease
for text in 'not a lease' '{"lease":"x"}' '{}'; do
    (umask 077; echo "$text" >note)
    exits "a file that is not a lease's is not replaced: $text" 78 "$HOLDFAST" acquire --lease note other
    is "it is as it was" "$(cat note)" "$text"
done
(umask 022; : >readable)
exits "nor one that others can read" 78 "$HOLDFAST" acquire --lease readable other
ok "nothing was taken" free other
"$HOLDFAST" acquire --lease waits.lease new 2>/dev/null &
waiter=$!
eventually rows waiter new 1
exits "nor one that another acquire is about to write" 78 "$HOLDFAST" acquire --lease waits.lease other
like "the message says so" "$said" '"waits.lease" exists, and another command is about to write it'
kill -KILL $waiter
wait $waiter 2>/dev/null
ok "a killed acquire leaves an empty file" test -e waits.lease
exits "which is in nobody's way" 0 "$HOLDFAST" acquire --lease waits.lease other
"$HOLDFAST" release --lease waits.lease
"$HOLDFAST" acquire --ttl 50ms --lease race.lease old
eventually free old
for i in {1..8}; do
    { "$HOLDFAST" acquire --lease race.lease "race/$i" 2>/dev/null; echo "$? race/$i" >"raced.$i"; } &
done
wait
is "of several that find the same ended lease one gets the file" "$(cat raced.* | grep -c '^0 ')" 1
is "and it has that one's lease" "0 $(jq -r .name race.lease)" "$(cat raced.* | grep '^0 ')"
is "the others took nothing" "$("$HOLDFAST" list --json race/ | jq length)" 1
exits "with the server of another lease that cannot be reached the file stays: 69" 69 \
    "$HOLDFAST" -u redis://127.0.0.1:1 acquire -n --lease race.lease other
ok "it does" test -s race.lease
"$HOLDFAST" release --lease race.lease

# Ways out: a lease that nobody was told of is given back.
exits "a full stdout is 70" 70 bash -c '"$0" acquire job >/dev/full' "$HOLDFAST"
like "and the message says that it was released" "$said" 'was released: No space left'
ok "so it is" free job
exits "so is a closed one" 70 bash -c '"$0" acquire job >&-' "$HOLDFAST"
ok "it is free too" free job
"$HOLDFAST" acquire --lease held.lease job
for number in INT TERM HUP; do
    env --default-signal "$HOLDFAST" acquire --lease wait.lease job 2>/dev/null &
    waiter=$!
    eventually rows waiter job 1
    kill -$number $waiter
    wait $waiter
    is "SIG$number ends the wait with 128+N" $? $((128 + $(kill -l $number)))
    ok "leaves the queue" rows waiter job 0
    ok "and no file" test ! -e wait.lease
done
"$HOLDFAST" acquire job >next 2>/dev/null &
waiter=$!
eventually rows waiter job 1
"$HOLDFAST" release --lease held.lease
wait $waiter
is "a waiter gets it when it is released" "$? $(jq -r .name next)" "0 job"
"$HOLDFAST" release <next

# The log of a lease that several commands work on.
export TRACEPARENT=00-trace
ok "acquire takes --log and --correlation-id" "$HOLDFAST" acquire --log life.log --correlation-id deploy-7 --lease life.lease life
HOLDFAST_CORRELATION_ID=from-environment "$HOLDFAST" extend --log life.log --lease life.lease
is "extend takes --log, and the correlation id of our variable" $? 0
cp -p life.lease late.lease
held_long_enough() {
    "$HOLDFAST" show --json life | jq -e '.[0].sinceMs > 100'
}
eventually held_long_enough
ok "release takes --log" "$HOLDFAST" release --log life.log --lease life.lease
exits "a release that comes too late is 79" 79 "$HOLDFAST" release --log life.log --correlation-id late --lease late.lease
is "the log has each step, with name, status and correlation id" \
    "$(jq -r '[.event, .name, .status, .correlationId] | join(" ")' life.log)" \
    $'granted life OK deploy-7\nextended life OK from-environment\nreleased life OK 00-trace\nlost life LOST late'
is "all steps but the last have the token of the grant" "$(jq -s '[.[:3][].token] | unique | length' life.log)" 1
ok "the release tells how long the lease was held, by whatever process" jq -se '.[2].heldMs > 100 and .[2].ttlMs == 30000' life.log
is "a release that comes too late is a warning" "$(jq -rs '.[3].level' life.log)" warn
exits "break takes --correlation-id too" 0 "$HOLDFAST" break --log life.log --correlation-id broke --reason test \
    --token "$("$HOLDFAST" acquire life | jq -r .token)" life
is "and has it in the log" "$(jq -rs '.[-1] | .event + " " + .correlationId' life.log)" "broken broke"
unset TRACEPARENT
for verb in "acquire life" "extend" "release"; do
    # shellcheck disable=SC2086
    exits "$verb: a log that cannot be opened is 78" 78 "$HOLDFAST" $verb --log nowhere/log </dev/null
    # shellcheck disable=SC2086
    exits "$verb: a correlation id that is too long is 64" 64 "$HOLDFAST" $verb --correlation-id "$(printf '%65s' x)" </dev/null
    like "the message names it" "$said" '--correlation-id'
done
ok "and nothing was taken" free life
"$HOLDFAST" acquire -n --log busy.log --correlation-id first busy >/dev/null
exits "busy is in the log of acquire" 75 "$HOLDFAST" acquire -n --log busy.log --correlation-id second busy
is "as a denial" "$(jq -r 'select(.correlationId == "second") | .event + " " + .status' busy.log)" "denied BUSY"

# The secret is in the line and nowhere else. Both ids are looked for, in all that our processes show.
"$HOLDFAST" acquire --ttl 1m secret >secret.lease
read -r _ attempt owner _ < <(jq -r .lease secret.lease)
"$HOLDFAST" run --log log secret -- sh -c 'env >environment; exec sleep 1000' 2>said &
front=$!
eventually rows waiter secret 1
# Held open, so that the process that has read the secret can be looked at.
mkfifo line
"$HOLDFAST" extend <line 2>>said &
reader=$!
exec 7>line
head -c 20 secret.lease >&7
eventually grep -qF extend "/proc/$reader/cmdline"
shown() {
    local pid
    for pid in $reader $front $(pgrep -P $front); do
        tr '\0' '\n' <"/proc/$pid/cmdline"
        tr '\0' '\n' <"/proc/$pid/environ"
    done
    "$HOLDFAST" list
    "$HOLDFAST" list --json
    "$HOLDFAST" show --json secret
    timeout 1 "$HOLDFAST" watch --json
}
shown >all.txt 2>&1
tail -c +21 secret.lease >&7
exec 7>&-
wait $reader
is "the lease was read" $? 0
"$HOLDFAST" release <secret.lease
eventually test -s environment
"$HOLDFAST" break --token "$("$HOLDFAST" show --json secret | jq -r '.[0].token')" --reason test --log log secret
wait $front
cat said log environment >>all.txt
"$HOLDFAST" history --json secret >>all.txt
ok "what was looked at is what it should be" grep -q '"role":"holder"' all.txt
ok "with the log" grep -q '"event":"broken"' all.txt
is "the attempt is 32 digits" "${#attempt}" 32
fails "it is in no command line, environment, list, watch or log" grep -qF "$attempt" all.txt
fails "neither is the owner" grep -qF "$owner" all.txt
fails "no 32 hexadecimal digits are anywhere" grep -qE '(^|[^0-9a-f])[0-9a-f]{32}([^0-9a-f]|$)' all.txt
done_testing
