#!/usr/bin/env bash
# failover_peers.sh - brings ioredis and redlock, and runs failover_peers beside them and redis-py.
# needs: fault/failover_peers
. "$(dirname "$0")/../../lib/cli_tap.sh"

peer=$BUILD/npm/failover
command -v npm >/dev/null && [ ! -d "$peer/node_modules/redlock" ] && mkdir -p "$peer" &&
    npm install --no-audit --no-fund --silent --prefix "$peer" redlock ioredis >npm.log 2>&1
if [ -d "$peer/node_modules/redlock" ]; then
    export HF_PEER_NODE=$peer
else
    echo "# without ioredis and redlock: $(tail -n 1 npm.log 2>/dev/null || echo there is no npm)"
fi
exec "$BUILD/tests/fault/failover_peers"
