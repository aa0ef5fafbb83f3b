#!/usr/bin/env bash
# run_basics.sh - `holdfast run` with one command: exit codes, environment, options, descriptors, signals.
. "$(dirname "$0")/../lib/cli_tap.sh"

exits "the command's own exit code is passed on" 7 "$HOLDFAST" run job -- sh -c 'exit 7'
exits "success is 0" 0 "$HOLDFAST" run job true
# G29
exits "a command killed by signal 9 is 137" 137 "$HOLDFAST" run job -- sh -c 'kill -9 $$'
exits "a command that is not found is 127" 127 "$HOLDFAST" run job -- "$SCRATCH/nowhere"
like "the message names it" "$said" 'cannot run ".*/nowhere": No such file'
exits "a command that cannot be executed is 126" 126 "$HOLDFAST" run job -- /etc/passwd
exits "a directory as command is 126" 126 "$HOLDFAST" run job -- /
exits "no NAME is 64" 64 "$HOLDFAST" run
exits "no CMD is 64" 64 "$HOLDFAST" run job
exits "no CMD after -- is 64" 64 "$HOLDFAST" run job --
exits "an unknown option is 64" 64 "$HOLDFAST" run --tll 5 job true
like "the message names it and suggests one" "$said" 'unknown option --tll; did you mean --ttl\?'
exits "an unknown letter is 64" 64 "$HOLDFAST" run -Z job true
like "the message names the letter" "$said" 'unknown option -Z'
exits "an unknown verb is 64" 64 "$HOLDFAST" rum job true
like "the message names it and suggests one" "$said" 'unknown verb "rum"; did you mean run\?'
exits "no verb is 64" 64 "$HOLDFAST"
exits "a missing argument of an option is 64" 64 "$HOLDFAST" run -w
exits "a bad duration is 64" 64 "$HOLDFAST" run -w soon job true
like "the message names it" "$said" 'soon'
exits "a bad number is 64" 64 "$HOLDFAST" run --capacity 5x job true
exits "a number out of range is 64" 64 "$HOLDFAST" run -E 256 job true
exits "more units than capacity is 64" 64 "$HOLDFAST" run --units 3 --capacity 2 job true
exits "units without capacity is 64" 64 "$HOLDFAST" run --units 3 job true
exits "to read and to write is 64" 64 "$HOLDFAST" run -s -x job true
like "the message names both" "$said" '--shared and --exclusive cannot be combined'
exits "to wait and not to wait is 64" 64 "$HOLDFAST" run -n --wait=1s job true
like "the message names both" "$said" '--nonblock and --wait cannot be combined'
exits "also as one cluster, in the other order" 64 "$HOLDFAST" run -xs job true
exits "of one option that is given twice the last counts" 0 "$HOLDFAST" run -w 0 -w 1s job true
exits "a grace of half the ttl is 64" 64 "$HOLDFAST" run --ttl 10s --grace 5s job true
exits "a name with a control character is 64" 64 "$HOLDFAST" run $'a\tb' true
exits "an empty name is 64" 64 "$HOLDFAST" run '' true
exits "an unknown engine is 78" 78 "$HOLDFAST" -u carrier-pigeon://x run job true
exits "the URL may stand after the verb" 78 "$HOLDFAST" run -u carrier-pigeon://x job true
exits "--help is 0" 0 "$HOLDFAST" run --help
for option in nonblock wait conflict-exit-code shared exclusive units capacity ttl grace max-hold owner label command url; do
    like "the help tells of --$option" "$said" "--$option"
done
exits "--help without a verb is 0" 0 "$HOLDFAST" --help
exits "--version is 0" 0 "$HOLDFAST" --version
like "--version tells the version" "$said" '^holdfast [0-9]+\.[0-9]+\.[0-9]+'
is "version --json is one object" "$("$HOLDFAST" version --json | jq -r 'keys|join(" ")')" "engines leftOut libc serve version"

is "options after NAME belong to the command" "$("$HOLDFAST" run job echo -n -w 5 --help)" "-w 5 --help"
is "only the first -- after NAME is ours" "$("$HOLDFAST" run job -- echo -- x)" "-- x"
is "arguments arrive as they were given" "$("$HOLDFAST" run job -- printf '[%s]' 'a b' '' $'\n' '*' "\$x")" \
    "[a b][]["$'\n'"][*][\$x]"
is "-c runs one string through sh" "$("$HOLDFAST" run -c 'echo $((1 + 2))' job)" 3
is "-c may follow NAME, as flock has it" "$("$HOLDFAST" run job -c 'echo "a  b"')" "a  b"
exits "-c and CMD together are 64" 64 "$HOLDFAST" run -c true job true
exits "-c after NAME with two strings is 64" 64 "$HOLDFAST" run job -c true true

is "the command knows the name" "$(HOLDFAST_NAME=old "$HOLDFAST" run 'my job' -c 'echo "$HOLDFAST_NAME"')" "my job"
is "our variables replace inherited ones" \
    "$(HOLDFAST_NAME=old "$HOLDFAST" run job env | grep -c '^HOLDFAST_NAME=')" 1
is "the command knows the ttl" "$("$HOLDFAST" run --ttl 5 job -c 'echo "$HOLDFAST_TTL_MS"')" 5000
is "the ttl may come from the environment" "$(HOLDFAST_TTL=7s "$HOLDFAST" run job -c 'echo "$HOLDFAST_TTL_MS"')" 7000
first=$("$HOLDFAST" run job -c 'echo "$HOLDFAST_TOKEN"')
second=$("$HOLDFAST" run job -c 'echo "$HOLDFAST_TOKEN"')
ok "tokens rise" test "$second" -gt "$first"
is "no id is in the environment" \
    "$("$HOLDFAST" run job env | grep '^HOLDFAST_' | cut -d= -f1 | sort | tr '\n' ' ')" \
    "HOLDFAST_HELD HOLDFAST_LOST_FD HOLDFAST_NAME HOLDFAST_TOKEN HOLDFAST_TTL_MS HOLDFAST_URL "
is "holdfast can be nested" "$("$HOLDFAST" run a "$HOLDFAST" run b -c 'echo $HOLDFAST_NAME')" b

# Descriptors: those of the caller, and HOLDFAST_LOST_FD.
open_files='for f in /proc/self/fd/*; do echo "${f##*/}"; done'
before=$(bash -c "$open_files" | sort -n)
after=$("$HOLDFAST" run job bash -c "echo \$HOLDFAST_LOST_FD; $open_files" | awk 'NR == 1 { lost = $1; next } $1 != lost' | sort -n)
is "no descriptor but HOLDFAST_LOST_FD is leaked to the command" "$after" "$before"
is "a descriptor that the caller passed is passed on" "$("$HOLDFAST" run job -c 'cat <&9' 9<<<through)" through
exits "a closed stdin stays closed for the command" 0 bash -c '"$0" run job -- sh -c "! [ -e /proc/self/fd/0 ]" <&-' "$HOLDFAST"
exits "a closed stdout stays closed for the command" 0 bash -c '"$0" run job -- sh -c "! [ -e /proc/self/fd/1 ]" >&-' "$HOLDFAST"
exits "all three closed work" 5 bash -c '"$0" run job -- sh -c "exit 5" <&- >&- 2>&-' "$HOLDFAST"
exits "a full stdout is an error of version" 70 bash -c '"$0" version >/dev/full' "$HOLDFAST"
exits "a closed stdout is an error of list" 70 bash -c '"$0" list --json >&-' "$HOLDFAST"
exits "a reader that went away does not kill us" 127 \
    bash -c '{ sleep 0.1; exec "$0" run job -- ./nowhere 2>&1; } | true; exit ${PIPESTATUS[0]}' "$HOLDFAST"

# Signals as the command finds them, but for 32 and 33: they are glibc's own, which no program can set. posix_spawn, and so
# make, ignores them, and the first thread takes 33 over.
signals='while read -r key mask; do
    case $key in SigBlk: | SigIgn:) printf "%s %x\n" "$key" $((0x$mask & ~0x180000000)) ;; esac
done </proc/self/status'
is "the command gets mask and dispositions as we got them" "$("$HOLDFAST" run job sh -c "$signals")" "$(sh -c "$signals")"
is "what was ignored stays ignored" "$(trap '' HUP USR1; "$HOLDFAST" run job sh -c "$signals")" \
    "$(trap '' HUP USR1; sh -c "$signals")"

# hold NAME [OPTION...]: a background run that holds NAME until its front gets SIGTERM; $front is its pid.
hold() {
    local name=$1
    shift
    rm -f "held.$name"
    "$HOLDFAST" run "$@" "$name" -- sh -c "echo \$\$ >held.$name; exec sleep 1000" &
    front=$!
    eventually test -s "held.$name"
}

hold busy --label 'nightly "backup"'
exits "busy with -n is 75" 75 "$HOLDFAST" run -n busy true
like "the message says who holds it, for how long, and how long it is good for" "$said" \
    'holdfast: "busy" is held by pid [0-9]+.* \(nightly "backup"\) for [0-9.]+ s, [0-9.]+ s left'
exits "-E changes the code" 9 "$HOLDFAST" run -n -E 9 busy true
exits "letters may be joined" 11 "$HOLDFAST" run -nE11 busy true
exits "-E 0 is possible" 0 "$HOLDFAST" run -n -E 0 busy false
exits "a wait that is over is 75" 75 "$HOLDFAST" run -w 0.1 busy true
exits "-w 100ms is the same" 75 "$HOLDFAST" run --wait=100ms busy true
exits "the wait may come from the environment" 75 env HOLDFAST_WAIT=50ms "$HOLDFAST" run busy true
exits "another capacity while held is refused" 78 "$HOLDFAST" run -n --capacity 3 busy true

"$HOLDFAST" run busy -- touch waited 2>waiting.log &
waiter=$!
eventually rows waiter busy 1
ok "a waiter shows up in show" rows waiter busy 1
eventually lines waiting.log 1
like "who waits without a terminal says so in a line" "$(cat waiting.log)" \
    '^holdfast: waiting: "busy" is held by pid [0-9]+ .*; our place 1 of 1$'
# A script's background job ignores SIGINT and SIGQUIT; env gives them back.
# G30
for number in INT TERM HUP USR1; do
    env --default-signal "$HOLDFAST" run busy -- touch never 2>/dev/null &
    leaver=$!
    eventually rows waiter busy 2
    kill -$number $leaver
    wait $leaver
    is "SIG$number while waiting ends the wait with 128+N" $? $((128 + $(kill -l $number)))
    ok "and leaves the queue" rows waiter busy 1
done
ok "nothing was run for those" test ! -e never
kill -WINCH $waiter
kill -TERM $front
wait $front
is "SIGTERM reaches the command, and run says so" $? 143
wait $waiter
is "SIGWINCH does not end a wait: the waiter was next" "$? $(ls waited)" "0 waited"

env --default-signal "$HOLDFAST" run sig -- bash -c 'for s in INT TERM HUP QUIT USR1 USR2 WINCH; do trap "echo $s >>got" $s; done
    echo ready >>got; for ((i = 0; i < 1000; i++)); do sleep 0.02; [ -e enough ] && exit 21; done' 2>/dev/null &
front=$!
eventually lines got 1
count=1
for number in INT TERM HUP QUIT USR1 USR2 WINCH; do
    kill -$number $front
    count=$((count + 1))
    eventually lines got $count
done
touch enough
wait $front
is "a command that handles signals ends by itself" $? 21
is "each signal to the front reaches the command once" "$(tr '\n' ' ' <got)" "ready INT TERM HUP QUIT USR1 USR2 WINCH "

hold shown
kill -TERM "$("$HOLDFAST" show --json shown | jq '.[0].pid')"
wait $front
is "a signal to the pid that show tells reaches the command" $? 143

"$HOLDFAST" run left -- sh -c 'sleep 1000 & echo $! >background'
background=$(cat background)
fails "a background child of a command that ended is left alone" gone "$background"
is "although the lock is free" "$("$HOLDFAST" show left)" '"left" is free'
kill "$background"

hold library -s
exits "a second reader holds at the same time" 0 "$HOLDFAST" run -n -s library true
exits "a writer does not" 75 "$HOLDFAST" run -n -x library true
exits "a mutex of the same name is refused" 78 "$HOLDFAST" run -n library true
kill $front
wait $front
exits "after the readers a writer holds" 0 "$HOLDFAST" run -n -x library true

# Ends that nobody wanted.
hold guarded
command=$(cat held.guarded)
kill -KILL "$(parent "$command")"
wait $front
is "a guard that is killed is 70" $? 70
ok "and takes the command with it" gone "$command"

bash -c 'sleep 1000 & echo $! >before; exec "$0" run guarded -- sh -c "echo \$\$ >inherits; sleep 1001"' "$HOLDFAST" 2>/dev/null &
front=$!
eventually test -s inherits
kill -KILL "$(parent "$(cat inherits)")"
wait $front
is "a process that execs holdfast" $? 70
fails "keeps the children that it had before" gone "$(cat before)"
kill "$(cat before)"

"$HOLDFAST" run --ttl 3s --max-hold 100ms --grace 1400ms limited -- bash -c 'trap "echo asked; exit 0" TERM; while :; do sleep 0.01; done' >asked 2>said
is "a lease that is not renewed any more ends the command with 79" $? 79
is "SIGTERM came first" "$(cat asked)" asked
like "the message says why" "$(cat said)" 'the lease on "limited" could not be kept; the command was sent SIGTERM and ended with exit code 0'
"$HOLDFAST" run --ttl 600ms --max-hold 100ms stubborn -- bash -c 'trap "" TERM; echo $$ >stubborn; while :; do sleep 0.01; done' 2>/dev/null
is "a command that ignores SIGTERM is killed" $? 79
ok "and gone" gone "$(cat stubborn)"
"$HOLDFAST" run --ttl 600ms --max-hold 100ms told -- bash -c 'trap "" TERM; read -rn1 -u $HOLDFAST_LOST_FD; echo told >told; while :; do sleep 0.01; done' 2>/dev/null
is "HOLDFAST_LOST_FD becomes readable" "$(cat told)" told

if apart=$(namespaces --fork --pid --mount-proc); then
    # shellcheck disable=SC2086
    exits "run works as the first process of a pid namespace" 17 \
        $apart "$HOLDFAST" -u "local:$SCRATCH/inner" run job -- sh -c '[ $PPID -le 3 ] && exit 17'
else
    skip "run works as the first process of a pid namespace" "$(why_not)"
fi
done_testing
