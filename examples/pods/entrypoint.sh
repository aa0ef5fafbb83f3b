#!/bin/sh
# entrypoint.sh - the container's entry point: `holdfast run` is PID 1. It passes signals on to the command, reaps what
# that leaves behind, and stops it before the lease can end.
#
#     entrypoint.sh COMMAND...
#
# LOCK is the name, HOLDFAST_URL the engine, POD_NAME what others see. --on-lost names the command's own stop signal, so
# that a lost lease ends it as a stop of the container does.
set -eu
rm -f "$READY_FILE"
exec "${HOLDFAST:-holdfast}" run --label "$POD_NAME" --ttl "${LOCK_TTL:-30s}" --grace "${LOCK_GRACE:-10s}" \
    --on-lost signal:TERM "$LOCK" -- "$@"
