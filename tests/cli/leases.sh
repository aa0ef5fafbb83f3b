#!/usr/bin/env bash
# leases.sh - acquire, extend and release: a lease for scripts, through a pipe or a file, and its secret, which is nowhere
# else.
. "$(dirname "$0")/tap.sh"

# free NAME: nobody holds it.
free() {
    [ "$("$HOLDFAST" show "$1")" = "\"$1\" is free" ]
}

"$HOLDFAST" acquire --label nightly job >lease
is "acquire is 0" $? 0
is "it prints one line" "$(wc -l <lease)" 1
ok "the line is JSON with a token, time left, and the lease" jq -e '.name == "job" and .kind == "exclusive" and .token > 0
    and .ttl_ms == 30000 and .left_ms > 0 and .left_ms <= 30000 and (.lease | length) > 60' lease
is "the hold outlives the process" "$("$HOLDFAST" show --json job | jq -c '.[] | [.role, .label, .detached]')" \
    '["holder","nightly",true]'
exits "meanwhile the lock is busy" 75 "$HOLDFAST" acquire -n job
like "the message says who holds it" "$said" '"job" is held by pid [0-9]+.* \(nightly\)'
exits "-E changes the code" 9 "$HOLDFAST" acquire -n -E 9 job
exits "-E 0 is possible" 0 "$HOLDFAST" acquire -n -E 0 job
is "and prints no lease" "$("$HOLDFAST" acquire -n -E 0 job 2>/dev/null)" ""
exits "a wait that is over is 75" 75 "$HOLDFAST" acquire -w 0.1 job
ok "extend takes the lease from stdin" "$HOLDFAST" extend --ttl 2m <lease
ok "and it lasts longer" jq -e '.[0].left_ms > 100000' <("$HOLDFAST" show --json job)
ok "a shorter ttl does not shorten it" "$HOLDFAST" extend --ttl 1s <lease
ok "it lasts as long as before" jq -e '.[0].left_ms > 100000' <("$HOLDFAST" show --json job)
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
    "$("$HOLDFAST" acquire --json --lease file.lease job | jq -c 'keys')" '["kind","left_ms","name","token","ttl_ms"]'
exits "busy leaves no file behind" 75 "$HOLDFAST" acquire -n --lease second.lease job
ok "none" test ! -e second.lease
exits "also with -E 0" 0 "$HOLDFAST" acquire -n -E 0 --lease second.lease job
ok "none" test ! -e second.lease
cp -p file.lease copy.lease
"$HOLDFAST" release --lease file.lease
exits "79 leaves the file alone" 79 "$HOLDFAST" release --lease copy.lease
ok "it is there still" test -e copy.lease

# Ways out: a lease that nobody was told of is given back.
exits "a full stdout is 70" 70 bash -c '"$0" acquire job >/dev/full' "$HOLDFAST"
like "and the message says that it is given back" "$said" 'given back: No space left'
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
"$HOLDFAST" break --token "$("$HOLDFAST" show --json secret | jq '.[0].token')" --reason test --log log secret
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
