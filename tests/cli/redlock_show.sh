#!/usr/bin/env bash
# redlock_show.sh - show on redlock where no holder has a majority: who has how many votes, what is free, silent or does not
# count, and whether the lock could be taken.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
needs_server redis

ports=() pids=()
for _ in 1 2 3 4 5; do
    start_redis || exit 70
    ports+=("$REDIS_PORT") pids+=("$REDIS_PID")
done
# url SERVER...: a quorum of those servers.
url() {
    local server all=
    for server; do all+=${all:+,}127.0.0.1:${ports[server - 1]}; done
    echo "redlock://$all?max_ttl=${MAX_TTL:-1s}&op_timeout=400ms"
}
say() { "$HOLDFAST" -u "$(url 1 2 3 4 5)" show "$1" | head -n 1; }
hold() { "$HOLDFAST" -u "$1" acquire -n --ttl "$2" --label "$3" job | jq -r .token; }

is "young servers: not held, and not to be had" "$(MAX_TTL=24h say job)" \
    '"job" is not held, but nobody can take it: that needs 3 of 5 servers; 5 are free and do not count'
ready() { "$HOLDFAST" -u "$(url 1 2 3 4 5)" show --json job | jq -e 'map(select(.counts)) | length == 5'; }
ok "five servers count" eventually ready
exits "with a max_ttl below 30 s and no ttl, the default ttl is max_ttl" 0 "$HOLDFAST" -u "$(url 1 2 3 4 5)" run -w 5s fitted -- true
exits "a ttl above max_ttl is still refused" 64 "$HOLDFAST" -u "$(url 1 2 3 4 5)" run -w 5s --ttl 2s fitted -- true
is "free on all of them: no more to say" "$(say job)" '"job" is free'

# Two holders that never met a majority of the five: each was given by two of them.
two() {
    first=$(hold "$(url 1 2)" 1s one) && second=$(hold "$(url 3 4)" 1s two) && shown=$("$HOLDFAST" -u "$(url 1 2 3 4 5)" show job) &&
        json=$("$HOLDFAST" -u "$(url 1 2 3 4 5)" show --json job) &&
        [ "$(jq -c 'map(.state) | sort' <<<"$json")" = '["free","held","held","held","held"]' ]
}
eventually two # not in a subshell: what it found is looked at
result "two servers have one hold, two another" $?
like "neither held nor free: the votes of each are told, and who has them" "$(head -n 1 <<<"$shown")" \
    "^\"job\" is neither held nor free: either needs 3 of 5 servers; 2 have token $first \(pid [0-9]+ on [^,]+, one\); 2 have token $second \(pid [0-9]+ on [^,]+, two\); 1 is free$"
for server in 1 2; do like "server $server has the first" "$shown" "127.0.0.1:${ports[server - 1]} +held +$first "; done
for server in 3 4; do like "server $server has the second" "$shown" "127.0.0.1:${ports[server - 1]} +held +$second "; done
like "server 5 is free" "$shown" "127.0.0.1:${ports[4]} +free "
is "as JSON: the votes of each hold" "$(jq -c 'map([.token, .votes])' <<<"$json")" \
    "[[\"$first\",2],[\"$first\",2],[\"$second\",2],[\"$second\",2],[null,null]]"
all_free() { [ "$(say job)" = '"job" is free' ]; }
ok "they end" eventually all_free

redis-cli -p "${ports[0]}" SET lock:job somebody PX 60000 >set
is "what stands on one server does not keep anybody out" "$(say job)" '"job" is free on 4 of 5 servers; 1 has another program'"'s lock"
redis-cli -p "${ports[1]}" SET lock:job somebody PX 60000 >set
stop_server "${pids[4]}" KILL
is "two of them and a silent one do" "$(say job)" \
    '"job" is neither held nor free: either needs 3 of 5 servers; 2 have another program'"'s lock; 2 are free; 1 is silent"
done_testing
