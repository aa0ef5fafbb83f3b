#!/usr/bin/env bash
# guard.sh - a command of --operation ends with the service that runs it, before its lock can be had; it does not inherit the
# engine's password, and the service's own names are not for anybody else.
. "$(dirname "$0")/serving.sh"

cat >writes <<'END'
#!/bin/sh
# Writes for as long as it lives, and so does a child in a session of its own.
echo started >>trace
setsid sh -c 'while :; do echo child >>trace; sleep 0.02; done' &
while :; do echo command >>trace; sleep 0.02; done
END
cat >environment <<'END'
#!/bin/sh
env >environment.out
exit 3
END
chmod +x writes environment
URL="local:$SCRATCH/table?ttl=1500ms"
export HOLDFAST_URL="local:$SCRATCH/table?secret"
serve "$URL" --operation "writes=$SCRATCH/writes" --operation "environment=$SCRATCH/environment" || exit 70
unset HOLDFAST_URL

status "the exit code of a command is told" 502 POST /api/locks/simple/env '{"operation":"environment"}'
said "as it is" .exitCode 3
like "it has the token" "$(<environment.out)" 'HOLDFAST_TOKEN=[0-9]+'
fails "and not the URL of the engine" grep -q '^HOLDFAST_URL=' environment.out

status "the service's own names cannot be locked" 403 POST /api/locks/simple/holdfast.idempotency%2Fx '{"durationMs":10}'
status "on no route" 403 POST /v1/locks/holdfast.idempotency%2Fx/leases '{}'
status "nor broken" 400 DELETE '/v1/locks/holdfast.idempotency%2Fx/holder?token=5&reason=x'

curl -s -m 20 -X POST "$BASE/api/locks/simple/job" --json '{"operation":"writes"}' >/dev/null &
has_child() { grep -q child trace && grep -q command trace; }
ok "a command writes, and so does its child" until_true 5 has_child
kill -KILL "$SERVICE_PID"
wait "$SERVICE_PID" 2>/dev/null
"$HOLDFAST" -u "$URL" run -w 10s job -- sh -c 'echo next >>trace; sleep 0.5'
is "the next one gets the lock" $? 0
is "nothing of the command writes after that" "$(sed -n '/^next/,$p' trace | sort | uniq -c | xargs)" "1 next"
done_testing
