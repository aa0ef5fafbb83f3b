#!/usr/bin/env bash
# redis_doctor.sh - what `holdfast doctor` finds on real servers: each finding is provoked, says what it means and what to do,
# and what keeps locks from working is an exit code.
#
#     redis_doctor.sh [redis|valkey]
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
kind=${1:-redis}
needs_server "$kind"

# finds NAME STATE CHECK REGEX [QUERY]: doctor's line of that check.
finds() {
    local line
    line=$("$HOLDFAST" -u "$REDIS_URL${5:+?$5}" doctor 2>&1 | grep -E "^(ok|note|warn|fail) +$3 ")
    like "$1" "$line" "^$2 +$3 +$4"
}

start_server "$kind" --enable-protected-configs yes || exit 70
json=$("$HOLDFAST" -u "$REDIS_URL" doctor --json)
is "it looks at these" "$(jq -r '.checks[].check' <<<"$json" | tr '\n' ' ')" \
    "engine server uptime persistence replicas eviction connections user library offers clock cycle holds clock "
is "and a server that only keeps nothing is no failure" "$(jq -r .exit <<<"$json")" 0
is "nothing of it is worse than good to know" "$(jq -r '.checks[].state' <<<"$json" | sort -u | tr '\n' ' ')" "note ok "
finds "version and mode" ok server "127.0.0.1:$REDIS_PORT: ${kind^} [0-9.]+, standalone, up for [0-9]+ s"
finds "it started a moment ago" note uptime '.*started [0-9]+ s ago; what to do: see why it restarted'
finds "it keeps nothing" note persistence '.*no append-only file: a restart frees locks.*what to do: appendonly yes'
finds "who we are" note user '.*default, which has every right.*redis-operations.md'
finds "how the library is called" ok library '.*holdfast_[0-9a-f]{8}, as functions \(FCALL\)$'
library=$(redis_cli FUNCTION LIST | grep -o 'holdfast_[0-9a-f]*' | head -n 1)
changed=$(redis_cli --raw FUNCTION LIST LIBRARYNAME "$library" WITHCODE | sed -n '/^#!lua/,$p'; echo '-- changed')
redis_cli -x FUNCTION LOAD REPLACE <<<"$changed" >/dev/null
finds "a library that somebody changed" fail library '.*is not the text of that name: somebody changed it; what to do: holdfast doctor --install'
redis_cli FUNCTION DELETE "$library" >/dev/null
finds "and the next client loads it again" ok library '.*as functions'
redis_cli ACL SETUSER plain reset on '>word' '~*' '&*' +@all -fcall >/dev/null
like "a user without functions" "$("$HOLDFAST" -u "redis://plain:word@127.0.0.1:$REDIS_PORT/0" doctor)" \
    'note +library +.*runs as scripts \(EVALSHA\), which cost the server more: NOPERM.*what to do: give the user \+fcall'
finds "what it offers" ok offers '.*EVAL, keys that are not declared, BLMPOP, PUBLISH and WAIT work'
# A user whose keys are those of locks, but not those of inboxes, is what a service without undeclared keys is to a script.
redis_cli ACL SETUSER closed reset on '>word' '~lock:*' '~{lock:?*}*' '~~?:lock:*' '&*' +@all >/dev/null
like "keys that scripts may not use" "$("$HOLDFAST" -u "redis://closed:word@127.0.0.1:$REDIS_PORT/0" doctor 2>&1)" \
    'fail +offers +.*scripts with keys that are not declared: .*what to do: wake=pubsub, or wake=poll'
like "who polls does not need them" "$("$HOLDFAST" -u "redis://closed:word@127.0.0.1:$REDIS_PORT/0?wake=poll" doctor 2>&1)" \
    'note +offers +.*scripts with keys that are not declared: '
unlike() { if grep -qE "$3" <<<"$2"; then result "$1" 1 "$2"; else result "$1" 0; fi; }
redis_cli ACL SETUSER plain +fcall -eval >/dev/null
unlike "without EVAL, where functions are there" "$("$HOLDFAST" -u "redis://plain:word@127.0.0.1:$REDIS_PORT/0" doctor 2>&1)" \
    '^(note|warn|fail) +offers'
finds "its clock" ok clock '.*[0-9]+ ms (ahead of|behind) ours'
finds "the round trip" ok cycle 'acquire and release: median [0-9]+ us'
finds "nothing is dropped" ok eviction '.*memory has no limit: nothing is dropped'

redis_cli CONFIG SET appendonly yes >/dev/null
finds "an append-only file" ok persistence '.*append-only file: locks survive a restart'
redis_cli CONFIG SET appendonly no >/dev/null
mkdir "$REDIS_FOLDER/in-the-way"
touch "$REDIS_FOLDER/in-the-way/file"
redis_cli CONFIG SET dbfilename in-the-way >/dev/null
redis_cli BGSAVE >/dev/null
broken() { redis_cli INFO persistence | grep -q rdb_last_bgsave_status:err; }
eventually broken
finds "a disk that cannot be written is a failure" fail persistence '.*cannot write its data; it may refuse every write.*what to do: make room'
exits "with an exit code" 78 "$HOLDFAST" -u "$REDIS_URL" doctor
redis_cli CONFIG SET dbfilename dump.rdb >/dev/null
redis_cli BGSAVE >/dev/null
repaired() { redis_cli INFO persistence | grep -q rdb_last_bgsave_status:ok; }
eventually repaired

finds "replicas that are asked for and not there are a failure" fail replicas '.*0 connected, 1 must acknowledge each grant: none will succeed' 'replicas=1&replica_timeout=10ms'
primary=$REDIS_URL primary_port=$REDIS_PORT primary_socket=$REDIS_SOCKET primary_pid=$REDIS_PID
start_server "$kind" --replicaof 127.0.0.1 "$primary_port" || exit 70
exits "a replica takes no locks: 69" 69 "$HOLDFAST" -u "$REDIS_URL" doctor
like "and says so" "$said" 'fail +server .*is a replica, which takes no locks'
replica=$REDIS_PID
REDIS_URL=$primary REDIS_PORT=$primary_port REDIS_SOCKET=$primary_socket REDIS_PID=$primary_pid
streams() { redis_cli INFO replication | grep -q 'slave0:.*state=online,offset=[1-9]'; }
eventually streams
finds "replicas that nobody waits for" note replicas '.*1 connected; after a failover one that lags.*replicas=1 makes each grant wait'
finds "replicas that are waited for" ok replicas '.*1 connected' replicas=1
stop_server "$replica"

used=$(redis_cli INFO memory | sed -n 's/^used_memory:\([0-9]*\).*/\1/p')
redis_cli CONFIG SET maxmemory $((used * 10)) maxmemory-policy volatile-lru >/dev/null
finds "a policy that may drop locks" warn eviction '.*volatile-lru: when its memory is full the server may drop locks.*0 keys.*noeviction'
redis_cli CONFIG SET maxmemory-policy noeviction >/dev/null
finds "one that drops nothing" ok eviction '.*noeviction: nothing is dropped'
redis_cli CONFIG SET maxmemory $((used + used / 20)) >/dev/null
redis_cli SET filler "$(head -c 60000 /dev/zero | tr '\0' x)" >/dev/null
finds "memory that is nearly full" warn memory '.*MiB are used; what to do: raise maxmemory'
redis_cli CONFIG SET maxmemory-policy allkeys-lru >/dev/null
redis_cli CONFIG SET maxmemory $((used - 100000)) >/dev/null
for _ in 1 2 3; do redis_cli SET more 1 PX 1000 >/dev/null 2>&1; done
evicted() { [ "$(redis_cli INFO stats | sed -n 's/^evicted_keys:\([0-9]*\).*/\1/p')" -gt 0 ]; }
eventually evicted
finds "keys that were dropped are a failure" fail eviction '.*allkeys-lru.*[1-9][0-9]* keys were dropped'
redis_cli CONFIG SET maxmemory 0 >/dev/null

redis_cli CONFIG SET maxclients 3 >/dev/null
exec 8<>"/dev/tcp/127.0.0.1/$REDIS_PORT"
exec 9<>"/dev/tcp/127.0.0.1/$REDIS_PORT"
echo PING >&8 && read -r <&8 && echo PING >&9 && read -r <&9
finds "connections that run out" warn connections '.*3 of 3, .*what to do: raise maxclients'
redis-cli -p "$REDIS_PORT" PING >/dev/null 2>&1 &
exec 7<>"/dev/tcp/127.0.0.1/$REDIS_PORT"
exec 6<>"/dev/tcp/127.0.0.1/$REDIS_PORT"
wait $!
exec 6>&- 7>&- 8>&- 9>&-
redis_cli CONFIG SET maxclients 100 >/dev/null
finds "connections that were refused" note connections '.*[1-9][0-9]* were refused since the start'

# The library that gives servers another clock gives it to the command as well: ours is a minute behind then.
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<qq", 0, -60000000))' >clock
like "a server whose clock is far from ours" "$(LD_PRELOAD=$BUILD/tests/libtest-wrong-clock.so "$HOLDFAST" -u "$REDIS_URL" doctor)" \
    'warn +clock +127.0.0.1:[0-9]+: [56][0-9]{4} ms ahead of ours; what to do: let ntp or chrony set it'

# A counter that is ahead of the clock was written before the clock stepped back. The ~ says that the name is not in the index.
redis_cli SET '{lock:ahead}:t' "~$(($(date +%s%6N) + 60000000)) 0" PX 60000 >/dev/null
"$HOLDFAST" -u "$REDIS_URL" run ahead bash -c 'read -r < go' &
holder=$!
mkfifo go
held() { [ "$(redis_cli EXISTS lock:ahead)" -eq 1 ]; }
eventually held
like "a clock that was stepped back" "$("$HOLDFAST" -u "$REDIS_URL" doctor)" 'warn +clock +[^ ]+ .*is [56][0-9] s behind the newest token: it was stepped back'
guard=$("$HOLDFAST" -u "$REDIS_URL" show --json ahead | jq -r '.. | objects | select(.role? == "holder") | .pid')
kill -STOP "$guard"
finds "a holder of this machine that is stopped" warn holds "pid $guard holds \"ahead\" and is stopped"
kill -CONT "$guard"
echo >go
wait $holder

# ---- Services that lack a command
stop_server
start_server "$kind" --rename-command BLMPOP "" --rename-command WAIT "" || exit 70
finds "without BLMPOP" fail offers '.*BLMPOP: the server refuses this: ERR unknown command.*what to do: wake=pubsub, or wake=poll'
exits "is a failure with an inbox" 78 "$HOLDFAST" -u "$REDIS_URL" doctor
finds "and good to know with another way" note offers '.*BLMPOP: the server refuses this' wake=pubsub
exits "which is no failure" 0 "$HOLDFAST" -u "$REDIS_URL?wake=pubsub" doctor
like "without WAIT" "$("$HOLDFAST" -u "$REDIS_URL?wake=poll" doctor)" 'note +offers +.*WAIT: the server refuses this.*what to do: leave out replicas='
stop_server
start_server "$kind" --rename-command PUBLISH "" || exit 70
finds "without PUBLISH" fail offers '.*PUBLISH: the server refuses this.*what to do: wake=inbox, or wake=poll' wake=pubsub
finds "which an inbox does not need" note offers '.*PUBLISH: the server refuses this'
stop_server
start_server "$kind" || exit 70

redis_cli ACL SETUSER locker on '>secret' '~*' '&*' +@all -info -acl >/dev/null
as_locker=redis://locker:secret@127.0.0.1:$REDIS_PORT/0
like "a user that may not ask" "$("$HOLDFAST" -u "$as_locker" doctor)" 'note +server .*does not answer INFO: NOPERM.*what to do: give the user \+info'
like "nor for its own name" "$("$HOLDFAST" -u "$as_locker" doctor)" 'ok +user .*may not ask for its own name'
redis_cli ACL SETUSER locker +acl\|whoami >/dev/null
like "who is named where it may" "$("$HOLDFAST" -u "$as_locker" doctor)" 'ok +user .*locker'
exits "a wrong password is 78" 78 "$HOLDFAST" -u "redis://locker:wrong@127.0.0.1:$REDIS_PORT/0" doctor
like "and says so" "$said" 'fail .*refuses user or password'
kill -STOP "$REDIS_PID"
exits "a server that hangs is 69" 69 "$HOLDFAST" -u "$REDIS_URL?connect_timeout=300ms" doctor
kill -CONT "$REDIS_PID"
stop_server
exits "a server that is not there is 69" 69 "$HOLDFAST" -u "$REDIS_URL" doctor
is "with --json too" "$("$HOLDFAST" -u "$REDIS_URL" doctor --json | jq -c '[.exit, ([.checks[] | select(.state == "fail") | .check] | first)]')" '[69,"server"]'
done_testing
