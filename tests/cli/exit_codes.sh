#!/usr/bin/env bash
# exit_codes.sh - each row of status.def is provoked through the command and gives the exit code that stands there, or
# stands here with the reason why the command cannot meet it on the embedded engine.
. "$(dirname "$0")/../lib/cli_tap.sh"

"$HOLDFAST" run --capacity 4 pool -- sh -c 'echo >held; exec sleep 1000' &
holder=$!
eventually test -e held
"$HOLDFAST" run mutex -- sh -c 'echo >held2; exec sleep 1000' &
mutex=$!
eventually test -e held2
"$HOLDFAST" acquire --lease once.lease once
cp -p once.lease twice.lease
"$HOLDFAST" release --lease once.lease
echo 'not a table' >foreign
ln -s table link

# Each is a function that provokes its status; what it prints must fit the words beside it.
OK() { "$HOLDFAST" run free true; }
BUSY() { "$HOLDFAST" run -n mutex true; }
TIMEOUT() { "$HOLDFAST" run -w 0.1 mutex true; }
LOST() { "$HOLDFAST" run --ttl 1s --max-hold 50ms free -- sleep 1000; }
NOT_HELD() { "$HOLDFAST" break --token 1 --reason test mutex; }
INVALID() { "$HOLDFAST" run $'tab\t' true; }
TOO_BIG() { "$HOLDFAST" resize --capacity 2 pool && "$HOLDFAST" run --units 3 --capacity 4 pool true; }
MISMATCH() { "$HOLDFAST" run -n -s mutex true; }
UNAVAILABLE() { "$HOLDFAST" -u "local:$SCRATCH/nowhere/table" run free true; }
FULL() { (ulimit -v 2000000 && "$BUILD_PLAIN" run free true); }
DENIED() { "$HOLDFAST" -u "local:$SCRATCH/link" run free true; }
CONFIG() { HOLDFAST_TTL=soon "$HOLDFAST" run free true; }
DAMAGED() { "$HOLDFAST" -u "local:$SCRATCH/foreign" run free true; }
INTERNAL() { "$HOLDFAST" version >/dev/full; }
declare -A words=(
    [OK]='^$' [BUSY]='"mutex" is held by pid' [TIMEOUT]='"mutex" is held by pid' [LOST]='could not be kept; the command was stopped'
    [NOT_HELD]='nobody holds it with token 1' [INVALID]='name' [TOO_BIG]='3 units are more than its capacity, which was changed to 2'
    [MISMATCH]='mutex.*is in use' [UNAVAILABLE]='nowhere.*No such file' [FULL]='cannot map' [DENIED]='symbolic link'
    [CONFIG]='ttl.*soon|soon.*ttl|HOLDFAST_TTL' [DAMAGED]='foreign' [INTERNAL]='cannot write to standard output'
)
# Why the command cannot meet the others here. The library's suites provoke those that it can.
declare -A unreachable=(
    [CANCELLED]='a wait of the command ends by a signal, and then the exit code is 128+N'
    [IN_DOUBT]='the embedded engine always answers: there is no wire on which an answer could get lost'
    [UNSUPPORTED]='the embedded engine offers everything that the command can ask for'
    [NO_QUORUM]='the embedded engine has no majority to miss'
    [NOT_REPLICATED]='the embedded engine has no replicas'
    [FORKED]='the command uses no handle after a fork'
    [CLOSED]='the command uses no client after its close'
    [NO_MEMORY]='where memory ends depends on the machine; the suites of the library fail each allocation in turn'
)

# The shadow memory of a sanitizer does not fit under a limit of address space.
if nm -D "$HOLDFAST" | grep -q __asan_init; then
    unset -f FULL
    unreachable[FULL]='under a sanitizer a limit of address space ends the program itself'
else
    BUILD_PLAIN=$HOLDFAST
fi

rows=0
unmet=
while read -r status number code; do
    rows=$((rows + 1))
    if [ -n "${unreachable[$status]:-}" ]; then
        echo "# $status ($number) is not met, because ${unreachable[$status]}"
        unmet="$unmet $status"
        continue
    fi
    exits "$status ($number) is exit code $code" "$code" "$status"
    like "$status says what happened to which thing" "$said" "${words[$status]:-no words are expected for $status}"
done < <(sed -n 's/^HF_STATUS(\([A-Z_]*\), \([0-9]*\), \([0-9]*\),.*/\1 \2 \3/p' "$ROOT/include/holdfast/status.def")
ok "status.def was read" test $rows -ge 22
is "these and no others the command does not meet on the embedded engine" "$unmet" \
    " CANCELLED IN_DOUBT UNSUPPORTED NO_QUORUM NOT_REPLICATED FORKED CLOSED NO_MEMORY"

# The codes that are not a status.
exits "usage is 64" 64 "$HOLDFAST"
exits "a release of what was released is 79" 79 "$HOLDFAST" release --lease twice.lease
exits "a command that cannot be executed is 126" 126 "$HOLDFAST" run free /etc/passwd
exits "a command that is not found is 127" 127 "$HOLDFAST" run free ./nowhere
exits "a command ended by a signal is 128+N" 143 "$HOLDFAST" run free -- sh -c 'kill $$'
exits "-E 0 turns busy into success" 0 "$HOLDFAST" run -n -E 0 mutex false
exits "-E 0 does not touch other codes" 78 "$HOLDFAST" run -n -E 0 -s mutex true
exits "an engine's name that is no scheme is 78" 78 "$HOLDFAST" -u sentinel://127.0.0.1/main list
like "and the message has the scheme" "$("$HOLDFAST" -u sentinel://127.0.0.1/main list 2>&1)" 'redis\+sentinel://'
kill $holder $mutex
wait $holder $mutex
done_testing
