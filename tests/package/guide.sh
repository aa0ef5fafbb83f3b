#!/usr/bin/env bash
# guide.sh - the guide in docs/ is true: its commands run, its C compiles and runs, and the promises, suites, functions,
# options and folders that it names are there. What its readers wrote before is run here as far as flock(1) and a Redis
# server go, the rest by guide_before.sh.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

guide=(choosing.md ttl.md failures.md from-flock.md from-setnx.md from-redlock.md from-redisson.md from-etcdctl.md)
# A server that started less than max_ttl ago does not count: these have time until they are asked.
hosts=
for _ in a b c; do
    start_redis || exit 70
    hosts+=${hosts:+,}127.0.0.1:$REDIS_PORT
done
QUORUM="redlock://$hosts?max_ttl=2s\&ttl=2s"
start_redis || exit 70
start_etcd || exit 70
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$HOLDFAST" serve --listen "127.0.0.1:$port" --log none 2>serving &
serve=$!
eventually grep -q 'serving on' serving
SERVE=http://127.0.0.1:$port
lease=$(curl -s --json '{"name":"measured"}' "$SERVE/v1/leases" | jq -r .leaseId)
curl -s -X DELETE "$SERVE/v1/leases/$lease"
# What the guide calls locks.example is the server, and the service, of this test, a, b and c are three servers; ./job is
# the reader's own command.
mkdir bin locks
ln -s "$HOLDFAST" bin/holdfast
printf '#!/bin/sh\nexec /usr/bin/redis-cli -p %d "$@"\n' "$REDIS_PORT" >bin/redis-cli
printf '#!/bin/sh\nexit 0\n' >job
chmod +x bin/redis-cli job
export PATH=$PWD/bin:$PATH

# blocks LANGUAGE FILE: the fenced blocks of that language.
blocks() {
    awk -v open="\`\`\`$1" '$0 == open { inside = 1; next } /^```/ { inside = 0 } inside' "$2"
}
# runs NAME LINE: "# exit N" behind a command says how it ends.
runs() {
    local code=0
    [[ $2 =~ \#\ exit\ ([0-9]+)$ ]] && code=${BASH_REMATCH[1]}
    exits "$1: $2" "$code" timeout 20 bash -c \
        "$(sed "s|redis://locks.example/0|$REDIS_URL|; s|http://locks.example:3009|$SERVE|; s|etcd://127.0.0.1:2379|$ETCD_URL|
            s|redlock://a:6379,b:6379,c:6379|'$QUORUM'|; s|/var/lock/|$PWD/locks/|g" <<<"$2")"
}
# What the reader fills in, and what looks at a lock that somebody holds.
OPEN='\b(NAME|PIECE|CMD|READ|WRITE|FILE|URL|HOST|TEXT|N|K)\b|show job'
# tables FILE: the commands of ours in its tables, where a pipe is written as \|.
tables() {
    grep '^|' "$ROOT/docs/$1" | grep -oE '`holdfast [^`]*`' | tr -d '`' | sed 's/\\|/|/g' | sort -u
}
for text in "${guide[@]}"; do
    while IFS= read -r line; do
        runs "$text" "$line"
    done < <(blocks sh "$ROOT/docs/$text")
    while IFS= read -r line; do
        runs "$text" "$line"
    done < <(tables "$text" | grep -vE "$OPEN")
done
kill $serve
wait $serve

# wrote FILE: the left column of its table, what stands between backticks.
wrote() {
    awk -F'|' '/^\| `/ { print $2 }' "$ROOT/docs/$1" | grep -oE '`[^`]*`' | tr -d '`'
}
while IFS= read -r line; do
    runs "from-flock.md, before" "${line//..././job}"
done < <(wrote from-flock.md | grep -v '^fuser')
if command -v fuser >/dev/null; then
    runs "from-flock.md, before" "flock /var/lock/job $(wrote from-flock.md | grep '^fuser')"
else
    result "from-flock.md, before: fuser # SKIP psmisc is not installed" 0
fi
is "from-setnx.md, before: SET, GET and DEL" "$(wrote from-setnx.md | grep 'lock:job' | redis-cli --no-raw)" $'OK\n"id"\n(integer) 1'

blocks c "$ROOT/docs/from-redisson.md" >redisson.c
ok "the C of from-redisson.md compiles" gcc -std=c17 -Wall -Wextra -Wconversion -Wshadow -Werror -I"$ROOT/include" redisson.c \
    -L"$BUILD" -lholdfast -Wl,-rpath,"$BUILD" -o redisson
like "and runs" "$(./redisson)" '^token [0-9]+$'

# The recipes of failures.md, played: who asks has a connection of its own each time. What stands in parentheses happens
# outside of the server; two of these things this test has to do itself.
primary=$REDIS_SOCKET primary_url=$REDIS_URL
start_redis --replicaof 127.0.0.1 "$REDIS_PORT" || exit 70
replica=$REDIS_PID
online() {
    redis-cli -s "$primary" INFO replication | grep -q 'state=online.*lag=[01]\b'
}
eventually online
# filled LINE: with something for every open word, and without the words behind the command.
filled() {
    sed -E "s/, .*//; s/\bNAME\b/filled/g; s/\bPIECE\b/piece/g; s:\b(CMD|READ|WRITE)\b:./job:g; s/\bFILE\b/filled.lease/g; s/capacity N\b/capacity 5/
        s/units K\b/units 2/; s|-u URL|-u $primary_url|g; s|redis://HOST/0|$primary_url|g; s|redis://locks.example/0|$primary_url|
        s|etcd://A,B,C|$ETCD_URL|g
        s/--token N\b/--token $token/; s/\bTEXT\b/moved/" <<<"$1"
}
for text in "${guide[@]}"; do
    while IFS= read -r line; do
        held=$("$HOLDFAST" acquire -n job 2>/dev/null) && token=$(jq -r .token <<<"$held")
        runs "$text, filled in" "$(filled "$line")"
    done < <(tables "$text" | grep -E "$OPEN")
done
# play LINE: prints what differs from the reply that the line wants.
play() {
    local words wanted reply
    case $1 in
    '   ('*expires\)) redis-cli -s "$primary" DEL lock >/dev/null ;;
    '   ('*'replica is cut off)') kill -STOP "$replica" ;;
    '   ('* | '') ;;
    *)
        wanted=${1##*-> }
        read -ra words <<<"${1%->*}"
        reply=$(redis-cli --no-raw -s "$primary" "${words[@]:1}" 2>&1)
        reply=${reply#(integer) }
        reply=${reply//[\"()]/}
        [ "$wanted" = "$reply" ] || { [ "$wanted" = '*' ] && [ "$reply" != nil ]; } || echo "$1 (it was: $reply)"
        ;;
    esac
}
# recipe TITLE: plays its block from an empty server.
recipe() {
    local line
    redis-cli -s "$primary" FLUSHALL >/dev/null
    awk -v title="### $1" '$0 == title { mine = 1; next } /^### / { mine = 0 } mine && /^```redis$/ { inside = 1; next }
        /^```/ { inside = 0 } inside' "$ROOT/docs/failures.md" >played
    while IFS= read -r line; do play "$line"; done <played
    [ "$(grep -c -e '-> ' played)" -ge 2 ] || echo "there is nothing to play"
}
while IFS= read -r title; do
    is "played on a server: $title" "$(recipe "$title")" ""
done < <(sed -n '/^# Recipes/,$s/^### //p' "$ROOT/docs/failures.md")
kill -CONT "$replica"

cd "$ROOT" || exit 70
# named PATTERN: what the guide names in that form.
named() {
    (cd docs && grep -ohE "$1" "${guide[@]}") | sort -u
}
missing_suites() {
    named '`(fault|conform|cli|sim|unit)-[a-z-]+`' | tr -d '`' | while read -r suite; do
        tests/lib/suites tests/suites tests/suites.nightly | grep -qE "^$suite " || echo "$suite"
    done
}
is "every suite that failures.md names is in tests/suites" "$(missing_suites)" ""
missing_promises() {
    named '\bG[0-9]+\b' | while read -r promise; do grep -q "^### $promise\." docs/guarantees.md || echo "$promise"; done
}
is "every promise that is cited is in guarantees.md" "$(missing_promises)" ""
missing_words() {
    named '\b(hf_[a-z_]+|HF_[A-Z_]+)\b' | grep -v '^HF_AUTO$' | while read -r word; do
        grep -qw "$word" include/holdfast.h || grep -qw "${word#HF_}" include/holdfast/status.def || echo "$word"
    done
}
is "every function, flag and status that is named is in the header" "$(missing_words)" ""
missing_options() {
    local known
    known=$'\n'$("$HOLDFAST" __describe | jq -r '.verbs[] | .name as $verb | .options[] | "\($verb) --\(.name)"')$'\n'
    named 'holdfast (-u [^ ]+ )?[a-z]+ [^`|]*' | grep -oE '^holdfast (-u [^ ]+ )?[a-z]+| --[a-z-]+' | while read -r word; do
        case $word in
        holdfast*) verb=${word##* } ;;
        *) [[ $known == *$'\n'"$verb $word"$'\n'* ]] || echo "$verb $word" ;;
        esac
    done
}
is "every option that is named belongs to its verb" "$(missing_options)" ""

# redis-operations.md is run by tests/fault/redis/redis_docs.sh, serve.md by tests/server/first_clients.sh.
not_run() {
    local page
    for page in $(cd docs && grep -l '^```sh$' ./*.md); do
        [[ " ${guide[*]} redis-operations.md serve.md " == *" ${page#./} "* ]] || echo "$page"
    done
}
is "every page with commands to run is run" "$(not_run)" ""

# measured WORKLOAD: the cells of its figures for Holdfast, one a line, without the spread.
measured() {
    awk -v title="#### $1" '$0 == title { mine = 1; next } /^####/ { mine = 0 } mine && /^\| \*\*holdfast/' docs/benchmarks.md |
        tr '|' '\n' | sed -E 's/^ +//; s/ *(\(.*)?$//'
}
# other_figures: what choosing.md says of a workload and benchmarks.md does not.
other_figures() {
    local row workload figure
    sed -n '/^## The patterns/,/^## /p' docs/choosing.md | grep -E '\| `[a-z0-9-]+` \|$' | while IFS= read -r row; do
        workload=$(grep -oE '`[a-z0-9-]+` \|$' <<<"$row" | tr -d '`| ')
        [ -n "$(measured "$workload")" ] || echo "$workload was not measured"
        grep -oE '[0-9][0-9.,]* (ns|µs|ms|commands)' <<<"$row" | sed 's/ commands//' | while read -r figure; do
            measured "$workload" | grep -qxF "$figure" || echo "$workload: $figure"
        done
    done
}
is "the figures of choosing.md are those of benchmarks.md" "$(other_figures)" ""
is "and each row with a figure names its workload" \
    "$(sed -n '/^## The patterns/,/^## /p' docs/choosing.md | grep -E '^\|.*[0-9] (ns|µs|ms|commands)' | grep -vE '\| `[a-z0-9-]+` \|$')" ""
done_testing
