#!/usr/bin/env bash
# redis_error_replies.sh - what a real server refuses with (src/engines/redis/error_replies.def): what may pass is tried again until
# the wait is over, what will not pass fails at once with 77 or 78, and nothing of it is ever called busy. That the
# server did refuse is read from its own statistics.
#
#     redis_error_replies.sh [redis|valkey]
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
kind=${1:-redis}
needs_server "$kind"

# asks WAIT: one try to get the lock `job`; its words are in $said, its exit code in $code, its time in $took (ms).
asks() {
    local from=${EPOCHREALTIME/./}
    said=$("$HOLDFAST" -u "${URL:-$REDIS_URL}" run --ttl 2s -w "$1" job true 2>&1)
    code=$?
    took=$(((${EPOCHREALTIME/./} - from) / 1000))
}

# passes_later NAME WORDS HEAL...: a try ends when its wait is over, with 69 and these words; another one succeeds after HEAL.
passes_later() {
    local name=$1 words=$2 waiter
    shift 2
    asks 600ms
    result "$name: 69" $((code != 69)) "exit code $code: $said"
    result "$name: tried until the wait is over" $((took < 550)) "after $took ms: $said"
    like "$name: it says why" "$said" "$words"
    "$HOLDFAST" -u "${URL:-$REDIS_URL}" run --ttl 2s -w 9s job true 2>said 9>&- &
    waiter=$!
    sleep 0.3
    "$@" >/dev/null
    wait $waiter
    result "$name: and granted when it has passed" $? "$(cat said)"
}

# fails_at_once NAME CODE WORDS
fails_at_once() {
    asks 9s
    result "$1: $2" $((code != $2)) "exit code $code: $said"
    result "$1: at once" $((took > 3000)) "after $took ms: $said"
    like "$1: it says why" "$said" "$3"
}

# refused WORD: so many times did the server refuse with that.
refused() {
    redis_cli INFO errorstats | sed -n "s/^errorstat_$1:count=\([0-9]*\).*/\1/p" | grep . || echo 0
}

# has_refused WORD
has_refused() {
    [ "$(refused "$1")" -gt 0 ]
    result "the server did say $1" $? "$(redis_cli INFO errorstats)"
}

start_server "$kind" --enable-protected-configs yes || exit 70

# ---- Scripts that are gone
"$HOLDFAST" -u "$REDIS_URL" run --ttl 2s first bash -c 'read -r < go' 2>first &
holder=$!
mkfifo go
eventually redis_cli --raw EXISTS lock:first
"$HOLDFAST" -u "$REDIS_URL" run --ttl 2s -w 9s first true 2>second &
waiter=$!
queued() { [ "$(redis_cli ZCARD '{lock:first}:q')" -eq 1 ]; }
eventually queued
functions() { redis_cli FUNCTION LIST | grep -c holdfast_; }
loaded=$(functions)
redis_cli FUNCTION FLUSH >/dev/null
redis_cli SCRIPT FLUSH >/dev/null
echo >go
wait $holder
result "Function not found: a release after FUNCTION FLUSH is carried out" $? "$(cat first)"
wait $waiter
result "Function not found: and who waited gets its turn" $? "$(cat second)"
is "the library is there again" "$(functions)" "$loaded"

# ---- Another client's endless script
redis_cli CONFIG SET busy-reply-threshold 50 >/dev/null
redis_cli EVAL 'while true do end' 0 >/dev/null 2>&1 &
sleep 0.2
passes_later BUSY "busy with another client's script.*BUSY" redis_cli SCRIPT KILL
has_refused BUSY

# ---- Memory
redis_cli CONFIG SET maxmemory 1 >/dev/null
passes_later OOM "memory is full.*OOM" redis_cli CONFIG SET maxmemory 0
exits "OOM: a release works" 0 "$HOLDFAST" -u "$REDIS_URL" run --ttl 2s job redis-cli -s "$REDIS_SOCKET" CONFIG SET maxmemory 1
is "OOM: and frees the lock" "$(redis_cli EXISTS lock:job)" 0
redis_cli CONFIG SET maxmemory 0 >/dev/null
has_refused OOM

# ---- Replicas
redis_cli CONFIG SET min-replicas-to-write 1 >/dev/null
passes_later NOREPLICAS "too few replicas.*NOREPLICAS" redis_cli CONFIG SET min-replicas-to-write 0
has_refused NOREPLICAS
redis_cli REPLICAOF 127.0.0.1 1 >/dev/null
passes_later "a replica" "is a replica, which takes no locks" redis_cli REPLICAOF NO ONE

# demoted STALE WORD...: who waits while the server becomes a replica for a moment gets the lock in the end.
demoted() {
    redis_cli SET lock:job foreign PX 60000 >/dev/null
    redis_cli CONFIG SET replica-serve-stale-data "$1" >/dev/null
    "$HOLDFAST" -u "$REDIS_URL" run --ttl 2s -w 9s job true 2>said &
    waiter=$!
    queued() { [ "$(redis_cli ZCARD '{lock:job}:q')" -eq 1 ] && [ "$(redis_cli INFO clients | grep -c blocked_clients:1)" -eq 1 ]; }
    eventually queued
    redis_cli REPLICAOF 127.0.0.1 1 >/dev/null
    sleep 0.5
    redis_cli REPLICAOF NO ONE >/dev/null
    redis_cli DEL lock:job >/dev/null
    wait $waiter
    result "$2: who waits while the server is a replica gets the lock afterwards" $? "$(cat said)"
    has_refused "$2"
}
demoted yes UNBLOCKED
# told STALE READ-ONLY WORD: what a held connection hears when the server becomes a replica under it.
told() {
    redis_cli CONFIG SET replica-serve-stale-data "$1" replica-read-only "$2" >/dev/null
    "$HOLDFAST" -u "$REDIS_URL" run --ttl 1s job bash -c "redis-cli -s $REDIS_SOCKET REPLICAOF 127.0.0.1 1; sleep 0.6" >said 2>&1
    has_refused "$3"
    redis_cli REPLICAOF NO ONE >/dev/null
}
told yes yes READONLY
told no no MASTERDOWN
redis_cli CONFIG SET replica-serve-stale-data yes >/dev/null
eventually test "$(redis_cli EXISTS lock:job)" = 0

# ---- A disk that cannot be written
mkdir "$REDIS_FOLDER/in-the-way"
touch "$REDIS_FOLDER/in-the-way/file"
redis_cli CONFIG SET dbfilename in-the-way >/dev/null
redis_cli CONFIG SET save '3600 1' >/dev/null
redis_cli BGSAVE >/dev/null
broken() { redis_cli INFO persistence | grep -q rdb_last_bgsave_status:err; }
eventually broken
passes_later MISCONF "cannot save its data.*MISCONF" redis_cli CONFIG SET save ''
has_refused MISCONF

# ---- Connections
redis_cli CONFIG SET maxclients 1 >/dev/null
exec 9<>"/dev/tcp/127.0.0.1/$REDIS_PORT"
echo PING >&9 && read -r <&9
free_a_place() { exec 9>&-; }
passes_later "max clients" "too many connections.*max number of clients" free_a_place
redis-cli -s "$REDIS_SOCKET" CONFIG SET maxclients 100 >/dev/null

# ---- Keys of others
eventually test "$(redis_cli EXISTS lock:job)" = 0
redis_cli RPUSH lock:job something >/dev/null
fails_at_once WRONGTYPE 78 'job.*holds something that is not a lock'
redis_cli DEL lock:job >/dev/null
redis_cli SET lock:job something >/dev/null
asks 700ms
result "a foreign key without ttl is waited for: 75" $((code != 75)) "exit code $code: $said"
is "and never taken" "$(redis_cli GET lock:job) $(redis_cli PTTL lock:job)" "something -1"
redis_cli DEL lock:job >/dev/null
URL=redis://127.0.0.1:$REDIS_PORT/99 fails_at_once "a database that is not there" 78 'no such database'

# ---- Rights
redis_cli ACL SETUSER some reset on '>right' '~lock:*' '~{lock:*' '&{lock:*' +@all -fcall -evalsha >/dev/null
url() { echo "redis://$1@127.0.0.1:$REDIS_PORT/0${2:-}"; }
URL=$(url some:wrong) fails_at_once WRONGPASS 77 'refuses user or password.*WRONGPASS'
URL=$(url nobody:right) fails_at_once "an unknown user" 77 'refuses user or password.*WRONGPASS'
URL=$(url nobody) fails_at_once "a user without a password is not somebody else" 77 'refuses user or password.*WRONGPASS'
URL=$(url some:right) fails_at_once "NOPERM, a command" 77 'lacks a right: \+fcall'
redis_cli ACL SETUSER some +fcall +evalsha resetkeys '~other:*' >/dev/null
URL=$(url some:right) fails_at_once "NOPERM, a key" 77 'lacks a right: ~lock:\* ~\{lock:\*'
redis_cli ACL SETUSER some allkeys resetchannels >/dev/null
redis_cli SET lock:job foreign PX 60000 >/dev/null
URL=$(url some:right '?wake=pubsub') fails_at_once "NOPERM, a channel" 77 'lacks a right: &\{lock:\*'
redis_cli ACL SETUSER some -set allchannels >/dev/null
redis_cli DEL lock:job >/dev/null
URL=$(url some:right) fails_at_once "NOPERM, inside a script" 77 'lacks a right: \+set'

# ---- Users that call functions and users that may not share locks
redis_cli ACL SETUSER plain reset on '>right' '~*' '&*' +@all -fcall >/dev/null
echo 0 >count
# adds URL: counts to twenty in a file, each step under the lock.
adds() {
    for _ in {1..20}; do
        # shellcheck disable=SC2016
        "$HOLDFAST" -u "$1" run --ttl 5s -w 30s both -- sh -c 'n=$(cat count) && sleep 0.005 && echo $((n + 1)) >count' || return
    done
}
adds "$REDIS_URL" 2>first &
first=$!
adds "$(url plain:right)" 2>second &
wait $first $!
is "clients by FCALL and clients by EVALSHA exclude each other" "$(cat count)" 40
is "and both were there" "$(redis_cli INFO commandstats | grep -cE '^cmdstat_(fcall|evalsha):calls=[0-9]{2,}')" 2

redis_cli CONFIG SET requirepass secret >/dev/null
fails_at_once NOAUTH 77 'asks for a password.*NOAUTH'
redis-cli -s "$REDIS_SOCKET" -a secret --no-auth-warning CONFIG SET requirepass '' >/dev/null
stop_server

# ---- Servers that cannot do it
start_server "$kind" --rename-command BLMPOP '' || exit 70
redis_cli SET lock:job foreign PX 60000 >/dev/null
fails_at_once "a server without BLMPOP" 78 "lacks a command.*BLMPOP"
stop_server
start_server "$kind" --rename-command FCALL '' --rename-command EVALSHA '' || exit 70
fails_at_once "a server without FCALL and EVALSHA" 78 "lacks a command.*EVALSHA"
stop_server

# ---- Loading: each key takes a millisecond
start_server "$kind" || exit 70
redis_cli EVAL "for i = 1, 4000 do redis.call('SET', 'k' .. i, i) end" 0 >/dev/null
redis_cli SAVE >/dev/null
folder=$REDIS_FOLDER
stop_server
await_answer() { redis_cli PING 2>&1 | grep -q -e PONG -e LOADING; }
await_server() { eventually await_answer; } # it answers that it loads
start_server "$kind" --key-load-delay 1000 --loading-process-events-interval-bytes 1024 --dir "$folder" || exit 70
loaded() { redis_cli INFO persistence | grep -q loading:0; }
passes_later LOADING "is loading its data.*LOADING" eventually loaded
has_refused LOADING
stop_server

# ---- A cluster that the URL does not name: INFO says so at the greeting. A user who may not ask for it is refused later.
start_server "$kind" --cluster-enabled yes --cluster-require-full-coverage no || exit 70
fails_at_once "a node of a cluster" 78 'part of a cluster: the URL is redis\+cluster://127.0.0.1'
blind() {
    redis_cli ACL SETUSER blind reset on '>word' '~*' '&*' +@all -info >/dev/null
    URL=redis://blind:word@127.0.0.1:$REDIS_PORT/0
}
blind
asks 300ms
result "CLUSTERDOWN: 69" $((code != 69)) "exit code $code: $said"
like "CLUSTERDOWN: it says why" "$said" 'cluster that is down.*CLUSTERDOWN'
redis_cli CLUSTER ADDSLOTSRANGE 0 16383 >/dev/null
owner=$REDIS_PORT
start_server "$kind" --cluster-enabled yes || exit 70
redis_cli CLUSTER MEET 127.0.0.1 "$owner" >/dev/null
met() { redis_cli CLUSTER INFO | grep -q cluster_state:ok; }
eventually met
blind
fails_at_once MOVED 78 'part of a cluster, which this URL does not say.*MOVED'
has_refused MOVED
done_testing
