#!/usr/bin/env bash
# redis_library.sh - the library inside real servers: an administrator installs it for users with the least rights, on every
# server of a URL; it is not loaded again after a restart, a failover or on a new replica; one that is lost or changed is
# mended; and `doctor --prune` removes what no client uses, and nothing else.
#
#     redis_library.sh [redis|valkey]
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
kind=${1:-redis}
needs_server "$kind"
TEXT=$BUILD/lua/library.lua
CURRENT=$(sed -n 's/^#!lua name=//p' "$TEXT")
OLD=holdfast_00000001 OLDER=holdfast_0000abcd

# doctor URL OPTION...: the lines about the library. The exit code is in $code.
doctor() {
    local url=$1
    shift
    lines=$("$HOLDFAST" -u "$url" doctor "$@" 2>&1)
    code=$?
}

# says NAME REGEX: one of these lines is like that.
says() {
    grep -qE "$2" <<<"$lines"
    result "$1" $? "$lines"$'\n'"wanted: $2"
}

# as_release NAME: our library, as one of another release.
as_release() {
    sed "s/$CURRENT/$1/; 2s/'.*'/'${1#holdfast_}'/" "$TEXT"
}
load() { as_release "$1" | redis_cli -x FUNCTION LOAD >/dev/null; }
libraries() { redis_cli --raw FUNCTION LIST LIBRARYNAME 'holdfast_*' | grep -xE 'holdfast_[0-9a-f]{8}' | sort | xargs; }
calls() { redis_cli INFO commandstats | sed -n "s/^cmdstat_$1:calls=\([0-9]*\),.*/\1/p" | grep . || echo 0; }
on() { REDIS_PORT=${ports[$1]} REDIS_SOCKET=${sockets[$1]}; }

# connect FD COMMAND...: a connection of another program, which stays open; the last command is what the server shows of it.
connect() {
    local fd=$1 command
    shift
    eval "exec $fd<>/dev/tcp/127.0.0.1/$REDIS_PORT"
    for command; do
        printf '%s\r\n' "$command" >&"$fd" && read -r -t 5 -u "$fd"
    done
}

# ---- An administrator installs it, users with the least rights run

start_server "$kind" --appendonly yes || exit 70
folder=$REDIS_FOLDER
least="on >word ~lock:* ~{lock:* ~~?:lock:* -@all +fcall +blmpop +scan +select +time +get +set +del +exists +pttl +pexpire \
+hget +hset +hdel +hmget +hrandfield +zadd +zrem +zpopmin +zrange +zrangebyscore +zscore +zrank +zcard +rpush"
# set_users: the least rights, and those of an administrator of libraries. A server that starts again has neither.
set_users() {
    # shellcheck disable=SC2086
    redis_cli ACL SETUSER least reset $least >/dev/null
    redis_cli ACL SETUSER chief reset on '>word' -@all +fcall '+function|load' '+function|list' >/dev/null
}
set_users
least_url() { echo "redis://least:word@127.0.0.1:$REDIS_PORT/0"; }
exits "without the library a user with the least rights is refused" 77 "$HOLDFAST" -u "$(least_url)" run -n job true
like "the right is named" "$said" 'function\|load'
is "and nothing was loaded" "$(libraries)" ""

chief=redis://chief:word@127.0.0.1:$REDIS_PORT/0
doctor "$chief" --install
is "an administrator may install it" "$code" 0
says "and is told so" "^ok +library +127.0.0.1:$REDIS_PORT: $CURRENT was loaded$"
is "it is there" "$(libraries)" "$CURRENT"
is "no lock was taken for it" "$(redis_cli DBSIZE)" 0
doctor "$chief" --install
says "once more does nothing" "^ok +library +.*$CURRENT was there already$"
redis_cli ACL SETUSER chief '-function|list' >/dev/null
doctor "$chief" --install
says "one that may not read it loads it in any case" "^ok .*$CURRENT was loaded, whether or not it was there"
redis_cli ACL SETUSER chief '-function|load' >/dev/null
doctor "$chief" --install
is "one that may do neither is told" "$code" 78
says "which right is missing" "^fail +library +.*could not be loaded: NOPERM.*function\|load.*what to do: use a user with"

redis_cli CONFIG RESETSTAT >/dev/null
exits "then the least rights are enough" 0 "$HOLDFAST" -u "$(least_url)" run -n job true
"$HOLDFAST" -u "$(least_url)" run job bash -c 'read -r <go' & holder=$!
mkfifo go
held() { [ "$(redis_cli EXISTS lock:job)" -eq 1 ]; }
queued() { [ "$(redis_cli ZCARD '{lock:job}:q')" -eq 1 ]; }
eventually held
"$HOLDFAST" -u "$(least_url)" run job true & waiter=$!
eventually queued
echo >go
wait $holder && wait $waiter
result "also to wait and to be handed the lock" $?
exits "for a semaphore" 0 "$HOLDFAST" -u "$(least_url)" run -n --capacity 3 pool true
exits "for a read lock" 0 "$HOLDFAST" -u "$(least_url)" run -n -s book true
exits "and for a list" 0 "$HOLDFAST" -u "$(least_url)" list
is "nothing was loaded for that, and no script was run" "$(calls 'function|load') $(calls 'script|load') $(calls evalsha)" "0 0 0"

# ---- Lost, or changed

stop_server
launch_server "$kind" --appendonly yes || exit 70
set_users
is "after a restart with its data the library is there" "$(libraries)" "$CURRENT"
exits "and the least rights are enough" 0 "$HOLDFAST" -u "$(least_url)" run -n job true
is "nothing was loaded" "$(calls 'function|load')" 0

ports=([0]=$REDIS_PORT) sockets=([0]=$REDIS_SOCKET) pids=([0]=$REDIS_PID)
start_server "$kind" --replicaof 127.0.0.1 "${ports[0]}" || exit 70
ports[1]=$REDIS_PORT sockets[1]=$REDIS_SOCKET
streams() { redis_cli INFO replication | grep -q 'master_link_status:up'; }
eventually streams
is "a new replica has it" "$(libraries)" "$CURRENT"
redis_cli CONFIG RESETSTAT >/dev/null
redis_cli REPLICAOF NO ONE >/dev/null
set_users
exits "promoted, it serves users with the least rights" 0 "$HOLDFAST" -u "$(least_url)" run -n job true
is "and nothing was loaded there" "$(calls 'function|load')" 0
stop_server
on 0
REDIS_PID=${pids[0]} REDIS_URL=redis://127.0.0.1:$REDIS_PORT/0 REDIS_FOLDER=$folder

redis_cli FUNCTION FLUSH >/dev/null
exits "lost, it is loaded again by a user that may" 0 "$HOLDFAST" -u "$REDIS_URL" run -n job true
is "so it is there" "$(libraries)" "$CURRENT"
redis_cli FUNCTION FLUSH >/dev/null
exits "a user that may not is refused" 77 "$HOLDFAST" -u "$(least_url)" run -n job true
like "with what is missing" "$said" 'lacks a right.*function\|load'

# Somebody's own copy lacks the verb that releases.
sed "/register('release'/d" "$TEXT" | redis_cli -x FUNCTION LOAD >/dev/null
exits "changed so that a function is missing, it is mended on the way" 0 "$HOLDFAST" -u "$REDIS_URL" run -n job true
is "the lock was released" "$(redis_cli EXISTS lock:job)" 0
(cat "$TEXT" && echo '-- changed') | redis_cli -x FUNCTION LOAD REPLACE >/dev/null
doctor "$REDIS_URL"
says "another change is a failure for doctor" 'fail +library +.*is not the text of that name: somebody changed it; what to do: holdfast doctor --install'
doctor "$REDIS_URL" --install
says "which installs the right one" "^ok +library +.*$CURRENT had been changed by somebody, and was loaded again$"
doctor "$REDIS_URL"
says "and is content" "ok +library +.*$CURRENT, as functions"

# ---- Removing those of other releases

doctor "$REDIS_URL" --prune
is "with nothing to remove" "$code $lines" "0 ok    library     127.0.0.1:$REDIS_PORT: nothing to remove: $CURRENT is the only library of Holdfast"
load $OLD
load $OLDER
# Two releases side by side: one takes the lock and waits for it, the other one releases it.
"$HOLDFAST" -u "$REDIS_URL" acquire --ttl 1m job >lease
"$HOLDFAST" -u "$REDIS_URL" run job true & waiter=$!
eventually queued
is "the library of another release hands a lock of this one on" "$(redis_cli FCALL ${OLD}_release 6 lock:job '{lock:job}:t' \
    '{lock:job}:q' '{lock:job}:w' '{lock:job}:h' '{lock:job}:p' "$(redis_cli GET lock:job | cut -d' ' -f1)")" 1
wait $waiter
result "and the waiter of this release gets it" $?
redis_cli FUNCTION LOAD $'#!lua name=holdfast_of_others\nredis.register_function("theirs", function() return 1 end)' >/dev/null
connect 7 "CLIENT SETNAME holdfast/web1/4711/$OLD" 'PING'
doctor "$REDIS_URL" --prune
says "a library that a connected client names is kept" "^note +library +.*kept $OLD: in use \(connections here: 1\); what to do: prune again"
says "one that nobody uses is removed, and named" "^ok +library +.*removed $OLDER: no client that is connected uses it$"
is "the current one stays" "$(libraries)" "$OLD $CURRENT"
is "so do libraries of others" "$(redis_cli FCALL theirs 0)" 1
exec 7>&-
load $OLDER

# may_be NAME COMMAND...: such a connection keeps every library, and is told of.
may_be() {
    local name=$1
    shift
    connect 7 "$@"
    doctor "$REDIS_URL" --prune
    exec 7>&-
    says "$name keeps every library" \
        "^note +library +.*kept $OLD: older clients may use it \(connections that do not say what they use: 1, one from 127.0.0.1:[0-9]+\)"
    is "$name: they are there" "$(libraries)" "$OLD $OLDER $CURRENT"
}
may_be "a client of an older release, which does not say what it uses," 'CLIENT SETNAME holdfast/web1/4711' 'PING'
may_be "a connection without a name that called a function" 'FCALL theirs 0'
may_be "one that named itself" 'CLIENT SETNAME worker' 'PEXPIRE no 1'
connect 7 'CLIENT SETNAME web' 'INCR hits'
doctor "$REDIS_URL" --prune
exec 7>&-
says "a connection of another program does not" "removed $OLD:"
is "only the current one is left" "$(libraries)" "$CURRENT"
load $OLD
"$HOLDFAST" -u "$REDIS_URL" run job bash -c 'read -r <go' & holder=$!
eventually held
doctor "$REDIS_URL" --prune
is "a client of this release does not keep others" "$(libraries)" "$CURRENT"
echo >go
wait $holder
load $OLD
redis_cli ACL SETUSER chief '+function|list' '+function|delete' >/dev/null
doctor "$chief" --prune
is "who may not see the clients removes nothing" "$code $(libraries)" "78 $OLD $CURRENT"
says "and says why" "^fail +library +.*kept $OLD: cannot see which clients use it: NOPERM"
redis_cli ACL SETUSER chief '+client|list' '-function|delete' >/dev/null
doctor "$chief" --prune
says "who may not remove is told so" "^fail +library +.*could not remove $OLD: NOPERM.*function\|delete"
doctor "$REDIS_URL" --install --prune --json
is "both at once, as JSON" "$(jq -r '[.exit] + [.checks[].text | sub(".*0: "; "") | sub("^[^ ]*: "; "")] | join("; ")' <<<"$lines")" \
    "0; $CURRENT was there already; removed $OLD: no client that is connected uses it"
exits "an engine without servers has no library: 70 or 78" 78 "$HOLDFAST" -u local: doctor --install
like "and says so" "$said" 'the engine local runs no library inside its servers'
stop_server

# ---- Several servers

# each CHECK URL COUNT: installs through that URL, then loads an old library everywhere and prunes.
each() {
    local i
    doctor "$2" --install
    is "$1: --install succeeds" "$code" 0
    is "$1: and says so of each server" "$(grep -cE "^ok +library +127.0.0.1:[0-9]+: $CURRENT was (loaded|there already)$" <<<"$lines")" "$3"
    for ((i = 0; i < $3; i++)); do
        on $i
        is "$1: server $i has it" "$(libraries)" "$CURRENT"
        load $OLD
    done
    on 0
    connect 7 "CLIENT SETNAME holdfast/web1/4711/$OLD" 'PING'
    doctor "$2" --prune
    is "$1: a client that is connected to the first server keeps its library on all" "$(grep -c "kept $OLD" <<<"$lines")" "$3"
    exec 7>&-
    doctor "$2" --prune
    is "$1: then it is removed from all" "$(grep -c "removed $OLD" <<<"$lines")" "$3"
    for ((i = 0; i < $3; i++)); do
        on $i
        is "$1: server $i has the current one alone" "$(libraries)" "$CURRENT"
    done
}

# begin COUNT [OPTION...]: so many servers: ports, sockets, pids.
begin() {
    local count=$1
    shift
    ports=() sockets=() pids=()
    while [ ${#ports[@]} -lt "$count" ]; do
        start_server "$kind" "$@" || exit 70
        ports+=("$REDIS_PORT") sockets+=("$REDIS_SOCKET") pids+=("$REDIS_PID")
    done
}

begin 3
quorum=redlock://127.0.0.1:${ports[0]},127.0.0.1:${ports[1]},127.0.0.1:${ports[2]}
each "a quorum" "$quorum?connect_timeout=500ms" 3
on 1
load $OLD
kill -STOP "${pids[2]}"
doctor "$quorum?connect_timeout=500ms" --prune
says "a quorum with a server that does not answer: nothing is removed" "kept $OLD: a client of another server may use it"
says "the silent server is named" "^fail +library +127.0.0.1:${ports[2]}: "
doctor "$quorum?connect_timeout=500ms" --install
is "and an install that missed one fails" "$code $(grep -c '^ok' <<<"$lines")" "78 2"
kill -CONT "${pids[2]}"

printf 'sentinel monitor mymaster 127.0.0.1 %s 1\n' "${ports[0]}" >sentinel.conf
on 0
redis_cli FUNCTION FLUSH >/dev/null
primary=("${ports[0]}" "${sockets[0]}")
start_sentinel() {
    REDIS_PORT=$((12000 + RANDOM % 10000)) REDIS_SOCKET=$SCRATCH/sentinel.socket
    "$kind-server" sentinel.conf --sentinel --port "$REDIS_PORT" --bind 127.0.0.1 --unixsocket "$REDIS_SOCKET" \
        --dir "$SCRATCH" </dev/null >sentinel.log 2>&1 &
    REDIS_PID=$!
    servers_started+=("$REDIS_PID")
    await_server
}
start_sentinel || start_sentinel || exit 70
sentinel=redis+sentinel://127.0.0.1:$REDIS_PORT/mymaster
ports=("${primary[0]}") sockets=("${primary[1]}")
each "the primary that sentinels name" "$sentinel" 1

begin 2 --cluster-enabled yes
on 0
redis_cli CLUSTER ADDSLOTSRANGE 0 8191 >/dev/null
on 1
redis_cli CLUSTER ADDSLOTSRANGE 8192 16383 >/dev/null
redis_cli CLUSTER MEET 127.0.0.1 "${ports[0]}" >/dev/null
is_whole() { on 0 && redis_cli CLUSTER INFO | grep -q cluster_state:ok && on 1 && redis_cli CLUSTER INFO | grep -q cluster_state:ok; }
eventually is_whole
each "each primary of a cluster" "redis+cluster://127.0.0.1:${ports[0]}" 2
kill -STOP "${pids[1]}"
on 0
load $OLD
doctor "redis+cluster://127.0.0.1:${ports[0]}?connect_timeout=500ms" --prune
is "a cluster with a primary that does not answer: exit code, and nothing is removed" "$code $(libraries)" "69 $OLD $CURRENT"
kill -CONT "${pids[1]}"
done_testing
