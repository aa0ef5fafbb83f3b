#!/usr/bin/env bash
# redlock_verbs.sh - the command on five real servers that are all different: one with a password, one with a user of its
# own, one that speaks TLS, two that ask for nothing. What is told of each of them: held, free, silent, too young (G35, G37).
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

certificates=$SCRATCH/certificates
mkdir "$certificates"
"$ROOT/tests/lib/certificates" "$certificates" || exit 70
operations=$ROOT/docs/redis-operations.md
mapfile -t rights < <(sed -n '/^ACL SETUSER locker reset/,/^```/p; s/^ACL SETUSER locker +/+/p' "$operations" |
    sed 's/^ACL SETUSER locker//; s/>PASSWORD/>let-me-in/; /```/d' | tr -s ' ' '\n' | sed '/^$/d' | awk '!seen[$0]++')

# server NAME URL-PREFIX [OPTION...]: starts one; port_NAME and pid_NAME are its own, and it joins $quorum.
server() {
    local name=$1 before=$2
    shift 2
    start_redis "$@" || exit 70
    eval "port_$name=$REDIS_PORT pid_$name=$REDIS_PID socket_$name=$REDIS_SOCKET"
    quorum=${quorum:+$quorum,}${before}127.0.0.1:$REDIS_PORT
}
server password ':se%2Ccret@' --requirepass 'se,cret'
server user 'locker:let-me-in@'
redis_cli ACL SETUSER locker "${rights[@]}" >acl && grep -qx OK acl || exit 70
redis_cli ACL SETUSER default off >>acl
eval "launch_plain() $(declare -f launch_server | tail -n +2)"
launch_server() { launch_plain "$@" --tls-port "$REDIS_PORT"; }
server tls 'rediss://' --port 0 --tls-cert-file "$certificates/server.crt" --tls-key-file "$certificates/server.key" \
    --tls-ca-cert-file "$certificates/ca.crt" --tls-auth-clients no
eval "launch_server() $(declare -f launch_plain | tail -n +2)"
server plain ''
server other 'redis://'
url() { echo "redlock://$quorum?max_ttl=${1:-1s}&op_timeout=400ms&ca=$certificates/ca.crt"; }
export HOLDFAST_URL
HOLDFAST_URL=$(url 24h)

# ---- Too young

exits "servers that have just started give no lease: 69" 69 "$HOLDFAST" run -n --ttl 1s job -- true
like "the message says which, and when each counts again" "$said" \
    'at most 2 of 5 servers can be counted on, and 3 are needed(; 127.0.0.1:[0-9]+: runs for [0-9]+ s only and counts again in [0-9]+ s){3}'

like "show says so of each" "$("$HOLDFAST" show job)" "127.0.0.1:$port_tls +free .*runs for [0-9]+ s only and counts again in [0-9]+ s"
like "doctor warns of each" "$("$HOLDFAST" doctor 2>&1)" "warn +quorum +127.0.0.1:$port_user: runs for [0-9]+ s only.*what to do: restart servers one at a time"

# ---- All of them

HOLDFAST_URL=$(url)
is "the five count when they are older than max_ttl" "$(eventually "$HOLDFAST" run -n --ttl 1s job -- true; echo $?)" 0
is "and each has been asked with its own password, user and way" "$("$HOLDFAST" show --json job | jq -c 'map(.state) | unique')" '["free"]'
HOLDFAST_URL=$(url 5s)
all_count() { "$HOLDFAST" show --json job | jq -e 'map(select(.counts)) | length == 5'; }
ok "each says when it counts" eventually all_count
token=$("$HOLDFAST" acquire --ttl 5s --label nightly job | tee lease | jq -r .token)
exits "busy is 75" 75 "$HOLDFAST" run -n --ttl 1s job -- true
like "and says who holds it on how many servers" "$said" '"job" is held by pid [0-9]+ on .* \(nightly\) for .* left, on [345] of 5 servers'
json=$("$HOLDFAST" show --json job) table=$("$HOLDFAST" show job)
# The command does not wait for a server that has yet to greet it: a majority is enough.
ok "show says that a majority holds it with its token" jq -e "map(select(.role == \"server\" and .state == \"held\")) |
    length >= 3 and (map(select(.token == \"$token\")) | length >= 3)" <<<"$json"
is "the hold, and five servers in the order of the URL" "$(jq -r 'map(.server // .role) | join(" ")' <<<"$json")" \
    "holder 127.0.0.1:$port_password 127.0.0.1:$port_user 127.0.0.1:$port_tls 127.0.0.1:$port_plain 127.0.0.1:$port_other"
held=$(jq -r 'map(select(.role == "server" and .state == "held"))[0].server' <<<"$json")
like "as a table, too" "$table" "$held +held +[0-9]+ +[0-9.]+ s +[0-9]+ +[^ ]+ +nightly +counts"
keys=$(sed -n '/^## show on redlock/,/^## why/s/^| \([a-zA-Z]*\) | \(string\|number\|boolean\)?\{0,1\} |.*/\1/p' "$ROOT/docs/json.md" | sort | tr '\n' ' ')
is "with the keys that are documented" "$(jq -r '.[-1] | keys | join(" ")' <<<"$json") " "$keys"
ok "release" "$HOLDFAST" release <lease
"$HOLDFAST" run --ttl 5s everywhere -- sleep 60 &
holder=$!
on_all_five() { "$HOLDFAST" show --json everywhere | jq -e 'map(select(.role == "server" and .state == "held")) | length == 5'; }
ok "a client that stays has it on every server" eventually on_all_five
kill $holder
wait $holder
# Three of the four that are left must answer in time, each after a greeting, one through TLS: that may take a busy machine a while.
wrong=${HOLDFAST_URL/cret@/crets@}
wrong=${wrong/op_timeout=400ms/op_timeout=2s}
exits "a second release is 79, also with a wrong password at one of them" 79 env HOLDFAST_URL="$wrong" "$HOLDFAST" release <lease

# ---- Another program's, and a part of one

redis-cli -p "$port_plain" SET lock:part somebody PX 60000 >set
like "what stands on one server is no hold" "$("$HOLDFAST" show part)" '"part" is free'
like "but that server says so" "$("$HOLDFAST" show part)" "127.0.0.1:$port_plain +held +- +.*foreign"
is "and it keeps nobody out" "$("$HOLDFAST" run -n --ttl 1s part -- echo in)" in

# ---- Some of them away

like "a wrong password costs one vote, and is told of" "$(HOLDFAST_URL=$wrong "$HOLDFAST" show job)" \
    "127.0.0.1:$port_password +silent .*(WRONGPASS|password)"
is "and the others still give it" "$(HOLDFAST_URL=$wrong "$HOLDFAST" run -n --ttl 5s job -- echo in)" in
all_free() { "$HOLDFAST" show --json job | jq -e 'map(select(.role == "server") | .state) | unique == ["free"]'; }
ok "each has heard of the last release" eventually all_free
stop_server "$pid_plain" KILL
kill -STOP "$pid_other"
is "with one dead and one hung it is given" "$("$HOLDFAST" run -n --ttl 5s job -- echo in)" in
stale() { redis-cli -s "$socket_tls" SET lock:job "$1" PX "$2" >set; }
stale somebody 250
is "also when the third one has yet to hear of the last release" "$("$HOLDFAST" run -n --ttl 5s job -- echo in)" in
stale somebody 60000
exits "one that stays is 69, because two that refuse nothing are away" 69 "$HOLDFAST" run -n --ttl 1s job -- true
like "and the message has all of it" "$said" "2 of 5 servers agreed, and 3 are needed; held by another program on 1 of 5 servers; .*$port_plain: .*; .*$port_other: no "
redis-cli -s "$socket_tls" DEL lock:job >set
shown=$("$HOLDFAST" show job)
is "show is 0" $? 0
like "the dead one is silent, with the reason" "$shown" "127.0.0.1:$port_plain +silent .*refused"
like "the hung one, too" "$shown" "127.0.0.1:$port_other +silent .*no answer|127.0.0.1:$port_other +silent .*no connection"
kill -CONT "$pid_other"
stop_server "$pid_other" KILL
examined=$("$HOLDFAST" doctor 2>&1)
like "doctor lists them" "$examined" "warn +quorum +127.0.0.1:$port_plain: .*refused.*what to do: start it"
like "and its own cycles keep within max_ttl" "$examined" '(ok|warn) +cycle +acquire and release: median'
stop_server "$pid_tls" KILL
exits "with three away it is 69" 69 "$HOLDFAST" run -n --ttl 1s job -- true
like "and the message names all three" "$said" "2 of 5 servers can be counted on, and 3 are needed; .*$port_tls.*; .*$port_plain.*; .*$port_other"
exits "show is 69, too" 69 "$HOLDFAST" show job
like "but lists them all" "$said" "127.0.0.1:$port_password +free .*127.0.0.1:$port_other +silent"
exits "and doctor" 69 "$HOLDFAST" doctor
done_testing
