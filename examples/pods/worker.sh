#!/bin/sh
# worker.sh - stands for the work in the container: ready while it holds the lock, and puts its things away when asked
# to stop.
stop() {
    rm -f "$READY_FILE"
    echo "$POD_NAME puts its things away"
    exit 0
}
trap stop TERM
echo "$POD_NAME works with token $HOLDFAST_TOKEN"
touch "$READY_FILE"
while :; do sleep 0.1; done
