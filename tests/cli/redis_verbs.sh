#!/usr/bin/env bash
# redis_verbs.sh - every verb of the command on redis://, over TCP (IPv4 and IPv6), a Unix socket, with a password and in
# another database; and what list shows of other programs' locks.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

start_redis --requirepass "se cret" --bind "127.0.0.1 ::1" || exit 1
redis_cli() {
    REDISCLI_AUTH="se cret" redis-cli -s "$REDIS_SOCKET" "$@"
}
export HOLDFAST_URL="redis://:se%20cret@127.0.0.1:$REDIS_PORT/0"

ok "run" "$HOLDFAST" run job -- true
is "run gives the command its token" "$("$HOLDFAST" run job -- sh -c 'test "$HOLDFAST_TOKEN" -gt 0 && echo yes')" yes
is "the command's own exit code is run's" "$("$HOLDFAST" run job -- sh -c 'exit 7'; echo $?)" 7
is "two jobs take turns" "$(for _ in 1 2 3; do "$HOLDFAST" run turn -- sh -c 'test ! -e in && : >in && sleep 0.1 && rm in && echo ok' & done; wait)" \
    "$(printf 'ok\nok\nok')"

"$HOLDFAST" acquire --ttl 20s --label nightly job >lease
is "acquire is 0" $? 0
exits "meanwhile run -n is busy" 75 "$HOLDFAST" run -n job -- true
like "the message says who holds it" "$said" '"job" is held by pid [0-9]+'
exits "run -w is over in time" 75 "$HOLDFAST" run -w 0.2 job -- true
ok "extend" "$HOLDFAST" extend --ttl 1m <lease
ok "it lasts longer" jq -e '.[0].leftMs > 50000' <("$HOLDFAST" show --json job)
is "the key is there" "$(redis_cli EXISTS lock:job)" 1
redis_cli SET lock:theirs somebody NX PX 60000 >"$SCRATCH/set"
redis_cli SET lock:endless somebody NX >>"$SCRATCH/set"
redis_cli RPUSH lock:notalock 1 2 3 >>"$SCRATCH/set"
"$HOLDFAST" run job -- true & waiter=$!
eventually jq -e 'map(select(.role == "waiter")) | length == 1' <("$HOLDFAST" show --json job)
is "list --foreign shows ours, theirs and who waits, and nothing else" "$("$HOLDFAST" list --foreign --json | jq -r '.[] | "\(.name) \(.role) \(.foreign)"' | sort)" \
    "$(printf 'endless holder true\njob holder false\njob waiter false\ntheirs holder true')"
like "the table marks them" "$("$HOLDFAST" list --foreign)" 'theirs .*foreign'
like "one without an end says so" "$("$HOLDFAST" list --foreign endless)" 'no end'
exits "a foreign lock excludes us" 75 "$HOLDFAST" run -n theirs -- true
like "and the message says that it is one" "$said" '"theirs" is held by another program, .* left'
exits "what is no lock is 78" 78 "$HOLDFAST" run -n notalock -- true
like "and says why" "$said" 'notalock.*not a lock'
ok "release" "$HOLDFAST" release <lease
"$HOLDFAST" acquire --ttl 1s handed >lease
"$HOLDFAST" acquire --ttl 20s handed >lease
ok "behind another holder, acquire prints the ttl that was asked for, not the short time of a handoff" jq -e '.leftMs > 10000' lease
ok "and releases it" "$HOLDFAST" release <lease
wait "$waiter"
is "the one who waited has had it" $? 0
exits "a second release is 79" 79 "$HOLDFAST" release <lease
like "watch tells what is there" "$(timeout 2 "$HOLDFAST" watch theirs)" theirs

token=$("$HOLDFAST" acquire broken | jq -r .token)
exits "break wants the right token" 79 "$HOLDFAST" break broken --token 1 --reason test
ok "break" "$HOLDFAST" break broken --token "$token" --reason test
is "it is free" "$("$HOLDFAST" show broken)" '"broken" is free'

"$HOLDFAST" acquire --units 2 --capacity 5 pool >permit
ok "resize" "$HOLDFAST" resize pool --capacity 9
is "all see it" "$("$HOLDFAST" show --json pool | jq '.[0].capacity')" 9
ok "there is room for five more units" "$HOLDFAST" run -n --units 5 --capacity 5 pool -- true
exits "a shrunk one has no room" 75 sh -c '"$0" resize pool --capacity 2 && "$0" run -n --capacity 5 pool -- true' "$HOLDFAST"
"$HOLDFAST" release <permit

HOLDFAST_HISTORY=3 "$HOLDFAST" run kept -- true
HOLDFAST_HISTORY=3 "$HOLDFAST" run kept -- true
is "history" "$("$HOLDFAST" history --json kept | jq length)" 2
fails "which has units, and no capacity that it does not know" grep -qE '[0-9]/0 ' <("$HOLDFAST" history kept)
HOLDFAST_HISTORY=3 "$HOLDFAST" run -s shelf -- true
like "a reader had one unit of a lock, not all" "$("$HOLDFAST" history shelf)" 'released +[0-9.]+ s +read +1 +[0-9]+ '
HOLDFAST_HISTORY=3 "$HOLDFAST" run -x shelf -- true
like "and a writer had all" "$("$HOLDFAST" history shelf)" 'write +all +[0-9]+ '
HOLDFAST_HISTORY=3 "$HOLDFAST" acquire --ttl 200ms --capacity 2 permits >permit
sleep 0.9 && HOLDFAST_HISTORY=3 "$HOLDFAST" run --capacity 2 permits -- true # nobody looks before that
is "a permit ended with its ttl, not when somebody came" \
    "$("$HOLDFAST" history --json permits | jq -r '.[] | select(.outcome == "lost") | .heldMs < 600')" true
ok "doctor" "$HOLDFAST" doctor
like "explain knows the drift" "$("$HOLDFAST" explain --ttl 10s)" 'drift +102'
ok "bench" "$HOLDFAST" bench --duration 50ms
ok "fence sql" "$HOLDFAST" fence sql --table t
like "version" "$("$HOLDFAST" version)" 'engines:.* redis'

ok "over a Unix socket" "$HOLDFAST" -u "redis+unix://:se%20cret@$REDIS_SOCKET" run sock -- true
ok "over IPv6" "$HOLDFAST" -u "redis://:se%20cret@[::1]:$REDIS_PORT/0" run six -- true
ok "by name" "$HOLDFAST" -u "redis://:se%20cret@localhost:$REDIS_PORT/0" run named -- true
ok "in another database" "$HOLDFAST" -u "redis://:se%20cret@127.0.0.1:$REDIS_PORT/3" run elsewhere -- \
    sh -c '[ "$(redis-cli --no-auth-warning -a "se cret" -p "$0" -n 3 EXISTS lock:elsewhere)" = 1 ]' "$REDIS_PORT"
is "valkey:// is the same" "$("$HOLDFAST" -u "valkey://:se%20cret@127.0.0.1:$REDIS_PORT" run v -- echo yes)" yes
exits "a wrong password is 77" 77 "$HOLDFAST" -u "redis://:wrong@127.0.0.1:$REDIS_PORT" run x -- true
fails "and is not shown" grep -q wrong <<<"$said"
exits "no password is 77" 77 "$HOLDFAST" -u "redis://127.0.0.1:$REDIS_PORT" run x -- true
exits "nobody there is 69" 69 "$HOLDFAST" -u redis://127.0.0.1:1 run -n x -- true
like "which names the place" "$said" '127\.0\.0\.1:1'
exits "a bad port is 78" 78 "$HOLDFAST" -u redis://127.0.0.1:port run x -- true
exits "a bad database is 78" 78 "$HOLDFAST" -u "redis://:se%20cret@127.0.0.1:$REDIS_PORT/99" run x -- true

# The server's list of clients shows who we are; a host's name may have bytes that it would refuse.
named() {
    python3 -c 'import socket, sys; socket.sethostname(sys.argv[1])' "$1" &&
        "$HOLDFAST" run named -- redis-cli --no-auth-warning -a "se cret" -p "$REDIS_PORT" CLIENT LIST
}
export -f named
export HOLDFAST REDIS_PORT
long=$(printf '%064d' 7)
if apart=$(namespaces --uts); then
    like "a strange host name is made printable" "$($apart bash -c 'named "our host é"')" 'name=holdfast/our-host---/[0-9]+/holdfast_[0-9a-f]{8} '
    like "one of 64 bytes is told whole" "$($apart bash -c "named $long")" "name=holdfast/$long/[0-9]+/holdfast_[0-9a-f]{8} "
else
    skip "a strange host name is made printable" "$(why_not)"
    skip "one of 64 bytes is told whole" "$(why_not)"
fi

exits "an empty URL is no URL" 78 "$HOLDFAST" -u "" run x -- true
exits "nor is an empty variable" 78 env HOLDFAST_URL= "$HOLDFAST" run x -- true
like "who waits for replicas is not told to wait for itself" "$("$HOLDFAST" -u "$HOLDFAST_URL?replicas=1" run -n own true 2>&1)" \
    'the server has granted "own" to this process; the confirmation is on its way'

# ---- A release that the server refuses is no end of the lease
redis_cli ACL SETUSER helper on '>pass word' '~*' '&*' +@all >/dev/null
said=$("$HOLDFAST" -u "redis://helper:pass%20word@127.0.0.1:$REDIS_PORT" run --status-fd 3 refused -- \
    env REDISCLI_AUTH="se cret" redis-cli -s "$REDIS_SOCKET" ACL SETUSER helper -del 2>&1 >/dev/null 3>refused.events)
is "a refused release does not change the exit code" $? 0
like "but run says what was refused" "$said" 'release of "refused": .*lacks a right: .del'
is "it does not call the lease lost" "$(jq -r '.event + " " + (.status // "")' refused.events | grep -E 'lost|released')" "released DENIED"
redis_cli ACL DELUSER helper >/dev/null

# ---- A server that says nothing holds up neither the end of a wait nor a signal, though both ask who holds it.
now_ms() { echo $(($(date +%s%N) / 1000000)); }
"$HOLDFAST" acquire silent >silent.lease
"$HOLDFAST" run -w 3 silent -- true 2>deadline.said &
deadline=$!
"$HOLDFAST" run -w 60 silent -- true 2>signal.said &
signal=$!
ok "two wait" eventually rows waiter silent 2
kill -STOP "$REDIS_PID"
began=$(now_ms)
wait "$deadline"
is "the wait ends" "$?" 75
result "in time" $(($(now_ms) - began > 4800)) "after $(($(now_ms) - began)) ms: $(cat deadline.said)"
began=$(now_ms)
kill -TERM "$signal"
wait "$signal"
is "the signal is heard" "$?" 143
result "in time" $(($(now_ms) - began > 1500)) "after $(($(now_ms) - began)) ms: $(cat signal.said)"
kill -CONT "$REDIS_PID"

stop_server "$REDIS_PID" KILL
exits "a server that is gone is 69" 69 "$HOLDFAST" run -n job -- true
done_testing
