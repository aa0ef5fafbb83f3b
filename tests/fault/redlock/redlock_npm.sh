#!/usr/bin/env bash
# redlock_npm.sh - npm's redlock and Holdfast on the same five servers and keys: each keeps the other out, and in a crowd of
# both there is never more than one inside. Usage: redlock_npm.sh [SECONDS of crowd]
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

seconds=${1:-20}
peer=$BUILD/npm/redlock
command -v npm >/dev/null || { echo "1..0 # SKIP there is no npm" && exit 0; }
if [ ! -d "$peer/node_modules/redlock" ]; then
    mkdir -p "$peer" && npm install --no-audit --no-fund --silent --prefix "$peer" redlock ioredis >npm.log 2>&1 ||
        { echo "1..0 # SKIP redlock cannot be fetched: $(tail -n 1 npm.log)" && exit 0; }
fi

cat >"$peer/peer.js" <<'JS'
// try: granted or refused. hold: until the input ends. loop SECONDS FOLDER: again and again, alone in FOLDER/inside.
const fs = require("fs"), Redis = require("ioredis"), Redlock = require("redlock");
const [, , verb, ports, seconds, folder] = process.argv;
const clients = ports.split(",").map((port) => new Redis({ port: +port, host: "127.0.0.1", maxRetriesPerRequest: 1 }));
const Lock = Redlock.default || Redlock;
const lock = new Lock(clients, verb === "loop" ? { retryCount: 1000, retryDelay: 10, retryJitter: 20 } : { retryCount: 0 });
const take = (ttl) => (lock.lock ? lock.lock("lock:job", ttl) : lock.acquire(["lock:job"], ttl));
const give = (held) => (held.unlock ? held.unlock() : held.release());
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
lock.on("error", () => {}); // of single servers: those that refuse

async function loop() {
  let held = 0, overlaps = 0;
  for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
    const mine = await take(2000);
    try {
      fs.mkdirSync(folder + "/inside");
      await pause(3);
      fs.rmdirSync(folder + "/inside");
    } catch (error) {
      overlaps++;
    }
    held++;
    await give(mine);
    await pause(Math.random() * 30);
  }
  return `${held} ${overlaps}`;
}

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  if (verb === "loop") return loop();
  const mine = await take(10000).catch(() => null);
  if (!mine) return "refused";
  if (verb === "hold") {
    console.log("granted");
    await new Promise((done) => process.stdin.resume().on("end", done));
  }
  await give(mine);
  return verb === "hold" ? "given back" : "granted";
}
main().then((said) => (console.log(said), process.exit(0)), (error) => (console.error(error), process.exit(1)));
JS

for _ in 1 2 3 4 5; do
    start_redis || exit 70
    ports=${ports:+$ports,}$REDIS_PORT
    quorum=${quorum:+$quorum,}127.0.0.1:$REDIS_PORT
    sockets=(${sockets[@]+"${sockets[@]}"} "$REDIS_SOCKET")
done
export HOLDFAST_URL="redlock://$quorum?max_ttl=2s&op_timeout=400ms"
is "servers that are old enough grant" "$(eventually "$HOLDFAST" run -n --ttl 1s job -- true; echo $?)" 0
echo "# redlock $(jq -r .version "$peer/node_modules/redlock/package.json"), ioredis $(jq -r .version "$peer/node_modules/ioredis/package.json")"

# ---- One keeps the other out

keys() { for socket in "${sockets[@]}"; do redis-cli -s "$socket" EXISTS lock:job; done | grep -c 1; }
is "redlock takes a free lock" "$(node "$peer/peer.js" try "$ports")" granted
coproc PEER { node "$peer/peer.js" hold "$ports"; }
read -r said <&"${PEER[0]}"
is "redlock holds" "$said" granted
exits "then we are refused" 75 "$HOLDFAST" run -n --ttl 1s job -- true
like "and told why" "$said" '"job" is held by another program, .* left, on 5 of 5 servers'
like "show says so, too" "$("$HOLDFAST" show job)" 'foreign.*5/5'
"$HOLDFAST" run -w 10 --ttl 1s job -- echo in >got & waiter=$!
eval "exec ${PEER[1]}>&-"
wait "$waiter"
is "who waits here gets in when redlock gives it back" "$(cat got)" in
"$HOLDFAST" run --ttl 2s job -- sh -c 'echo in >entered; while [ ! -e leave ]; do sleep 0.05; done' & holder=$!
eventually test -s entered
is "what we hold redlock is refused" "$(node "$peer/peer.js" try "$ports")" refused
touch leave
wait "$holder"
nothing_left() { [ "$(keys)" = 0 ]; }
ok "nothing of it is left on any server" eventually nothing_left
is "and redlock takes it" "$(node "$peer/peer.js" try "$ports")" granted

# ---- A crowd of both

cat >enter <<'SH'
mkdir inside || { echo overlap >>overlaps; exit 0; }
sleep 0.003
rmdir inside
echo held >>held
SH
ours() {
    while [ ! -e over ]; do
        "$HOLDFAST" run -w 30 --ttl 2s job -- sh ./enter 2>>waits || echo "exit $?" >>failures
    done
}
: >held
ours & us=$!
ours & us="$us $!"
theirs=()
for i in 1 2; do
    node "$peer/peer.js" loop "$ports" "$seconds" "$SCRATCH" >"theirs.$i" &
    theirs+=($!)
done
wait "${theirs[@]}"
touch over
# shellcheck disable=SC2086
wait $us
read -r first first_overlaps <theirs.1
read -r second second_overlaps <theirs.2
echo "# Holdfast held $(wc -l <held) times, redlock $((first + second)) times"
is "nobody was inside with another" "$(cat overlaps 2>/dev/null)$((first_overlaps + second_overlaps))" 0
is "nothing failed here" "$(cat failures 2>/dev/null)" ""
ok "both have held it many times" test "$(wc -l <held)" -gt 10 -a $((first + second)) -gt 10
ok "and nothing is left" eventually nothing_left
done_testing
