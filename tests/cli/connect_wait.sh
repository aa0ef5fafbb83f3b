#!/usr/bin/env bash
# connect_wait.sh - a server that cannot be reached at the start is waited for at most --connect-wait; a host that does not
# exist ends the wait at once; once the server answered, only -w bounds the wait.
. "$(dirname "$0")/../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
needs_server redis
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# within NAME CODE LOW HIGH COMMAND...: the command exits with CODE after LOW to HIGH milliseconds.
within() {
    local name=$1 code=$2 low=$3 high=$4 began took
    shift 4
    began=$(now_ms)
    exits "$name" "$code" "$@"
    took=$(($(now_ms) - began))
    ok "$name: after $low to $high ms" test $took -ge "$low" -a $took -lt "$high"
}

missing() { python3 -c 'import socket, sys
try: socket.getaddrinfo("no-such-host.invalid", 1)
except socket.gaierror as error: sys.exit(error.errno != socket.EAI_NONAME)'; }
if missing; then
    for how in "run -w 10s x -- true" "run x -- true" "run -q x -- true" "acquire x"; do
        # shellcheck disable=SC2086
        within "an unknown host is 69 at once: $how" 69 0 5000 "$HOLDFAST" -u redis://no-such-host.invalid/0 $how
        like "and is named: $how" "$said" 'no-such-host.invalid.*no such host$'
    done
else
    result "an unknown host is 69 at once # SKIP the resolver cannot say that a name does not exist" 0
fi

start_redis || exit 70
dead=$REDIS_PORT
stop_server
within "run waits for a dead server as long as --connect-wait says" 69 1400 9000 \
    "$HOLDFAST" -u "redis://127.0.0.1:$dead/0" run --connect-wait 1500ms x -- true
like "and says why it gave up" "$said" "127.0.0.1:$dead.*given up, as --connect-wait says"
like "before that it says what it waits for" "$said" 'waiting for "x" \(.*127.0.0.1'
within "acquire does the same, also with -q" 69 1400 9000 \
    "$HOLDFAST" -u "redis://127.0.0.1:$dead/0" acquire -q --connect-wait 1500ms x
within "a shorter -w ends it before" 69 400 5000 "$HOLDFAST" -u "redis://127.0.0.1:$dead/0" run -w 500ms x -- true

# It comes up meanwhile.
"$HOLDFAST" -u "redis://127.0.0.1:$dead/0" run --connect-wait 60s x -- sh -c 'echo ran >ran' 2>said &
runner=$!
eventually grep -q waiting said
REDIS_PORT=$dead
rm -rf "$SCRATCH/server.$dead"
REDIS_FOLDER=$SCRATCH/server.$dead
launch_server redis || exit 70
wait $runner
is "a server that comes up within --connect-wait is used" "$? $(cat ran)" "0 ran"

# Once it answered, --connect-wait is over.
"$HOLDFAST" -u "redis://127.0.0.1:$dead/0" acquire --ttl 3s held >/dev/null
within "a held lock is waited for beyond --connect-wait" 0 1500 15000 \
    "$HOLDFAST" -u "redis://127.0.0.1:$dead/0" run -q --connect-wait 500ms held -- true
done_testing
