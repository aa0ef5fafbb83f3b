#!/usr/bin/env bash
# strict.sh - requests that could be understood in two ways, sent to a service; it must live on.
. "$(dirname "$0")/serving.sh"
serve "local:$SCRATCH/table" || exit 70
include "$ROOT/tests/server/strict.py" "${BASE##*:}"
status "after all that it answers" 200 GET /livez
is "and no lock was taken" "$("$HOLDFAST" -u "local:$SCRATCH/table" list --json strict | jq length)" 0
stop_service
is "and ends well" $? 0
done_testing
