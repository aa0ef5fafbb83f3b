#!/usr/bin/env bash
# redis_docs.sh - what docs/redis-operations.md says is true on a real server: its commands run, its keys are there with the
# types that it gives them, its users can be made, its tables name what the library knows.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

page=$ROOT/docs/redis-operations.md
start_redis || exit 70
export HOLDFAST_URL="$REDIS_URL?history=3" PATH=$BUILD:$PATH
redis=$(command -v redis-cli)
mkdir bin
printf '#!/bin/sh\nexec %s -s %s "$@"\n' "$redis" "$REDIS_SOCKET" >bin/redis-cli
chmod +x bin/redis-cli
PATH=$SCRATCH/bin:$PATH

# blocks LANGUAGE: the fenced blocks of that language; "": of none.
blocks() {
    awk -v open="\`\`\`$1" '$0 == open { inside = 1; next } /^```/ { inside = 0 } inside' "$page"
}

# Somebody holds `job`, somebody waits for it, and there is a past.
mkfifo go free
"$HOLDFAST" run job true
"$HOLDFAST" run job bash -c 'read -r < go' &
holder=$!
held() { [ "$(redis_cli EXISTS lock:job)" -eq 1 ]; }
eventually held
"$HOLDFAST" run -w 20s job true 2>/dev/null &
waiter=$!
"$HOLDFAST" run --capacity 3 pool bash -c 'read -r < free' &
semaphore=$!
queued() { [ "$(redis_cli ZCARD '{lock:job}:q')" -eq 1 ] && [ "$(redis_cli EXISTS lock:pool)" -eq 1 ]; }
eventually queued

while IFS= read -r line; do
    exits "$line" 0 timeout 20 bash -c "set -o pipefail; $line"
    result "it has something to say" $(([ -n "$said" ] || [[ $line == *'>'* || $line == *errorstats* ]]) && echo 0 || echo 1) "$said"
done < <(blocks sh)

# type_of KEY TYPE
type_of() {
    is "$1 is a $2" "$(redis_cli TYPE "$1")" "$2"
    ok "and stands in the table" grep -qF "| \`${1/pool/job}\` |" "$page"
}
type_of lock:job string
type_of '{lock:job}:t' string
type_of '{lock:job}:q' zset
type_of '{lock:job}:w' hash
type_of '{lock:job}:p' zset
type_of lock:pool hash
type_of '{lock:pool}:h' zset
echo >go
wait $holder $waiter
echo >free
wait $semaphore

# Users: a line that is indented goes on from the one before.
while IFS= read -r line; do
    read -ra words <<<"${line//PASSWORD/secret}"
    is "$(cut -c1-60 <<<"$line")" "$(redis_cli "${words[@]}")" OK
done < <(blocks "" | sed ':a;N;$!ba;s/\n  */ /g' | grep '^ACL ')
exits "that user locks" 0 "$HOLDFAST" -u "redis://locker:secret@127.0.0.1:$REDIS_PORT/0" run job true
exits "and doctor has nothing to complain of" 0 "$HOLDFAST" -u "redis://locker:secret@127.0.0.1:$REDIS_PORT/0" doctor

# Each word that servers refuse with is explained.
undocumented() {
    sed -n 's/^ERROR_REPLY("\([A-Z]\{3,\}\)[" ].*/\1/p' "$ROOT/src/engines/redis/error_replies.def" | grep -vx -e ERR -e UNKILLABLE -e NOPROTO -e ASK |
        while read -r word; do grep -q "^| .*$word" "$page" || echo "$word"; done
}
is "every refusal of error_replies.def stands in its table" "$(undocumented)" ""
done_testing
