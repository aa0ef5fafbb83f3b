#!/usr/bin/env bash
# redlock_gaps_npm.sh - redlock_gaps.c with every case, and beside each what npm's redlock does on the same servers: it tries
# again after a delay with jitter. Usage: redlock_gaps_npm.sh [SECONDS of each phase]
set -eu
BUILD=${BUILD:-build-plain}
peer=$BUILD/npm/redlock
if command -v npm >/dev/null && [ ! -d "$peer/node_modules/redlock" ]; then
    mkdir -p "$peer"
    npm install --no-audit --no-fund --silent --prefix "$peer" redlock ioredis >/dev/null 2>&1 || true
fi
if [ -d "$peer/node_modules/redlock" ]; then
    # Its own delay and jitter, and as many tries as make 20 s. Without a time for each command it would wait for a server that
    # hangs for ever; ours have half a second, too.
    cat >"$peer/gaps.js" <<'JS'
const fs = require("fs"), Redis = require("ioredis"), Redlock = require("redlock");
const [, , ports, holdMs, log] = process.argv;
const clients = ports.split(",").map((port) => new Redis({ port: +port, host: "127.0.0.1", commandTimeout: 500 }));
const Lock = Redlock.default || Redlock;
const lock = new Lock(clients, { retryCount: 100, retryDelay: 200, retryJitter: 100 });
const take = () => (lock.lock ? lock.lock("lock:job", 20000) : lock.acquire(["lock:job"], 20000));
const give = (held) => (held.unlock ? held.unlock() : held.release()).catch(() => {});
const out = fs.openSync(log, "a");
const note = (what) => fs.writeSync(out, `${what} ${process.hrtime.bigint()}\n`);
lock.on("error", () => {}); // of single servers
clients.forEach((client) => client.on("error", () => {}));
(async () => {
  for (;;) {
    const held = await take().catch(() => null);
    if (!held) continue;
    note("G");
    if (+holdMs) await new Promise((done) => setTimeout(done, +holdMs));
    note("L");
    await give(held);
  }
})();
JS
    echo "# redlock $(jq -r .version "$peer/node_modules/redlock/package.json"), ioredis $(jq -r .version "$peer/node_modules/ioredis/package.json")"
    export REDLOCK_PEER=$PWD/$peer/gaps.js
    case $peer in /*) REDLOCK_PEER=$peer/gaps.js ;; esac
else
    echo "# npm's redlock cannot be fetched: ours is measured alone"
fi
exec "$BUILD/tests/fault/redlock_gaps" "${1:-5}" "${2:-all}"
