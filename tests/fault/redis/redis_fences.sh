#!/usr/bin/env bash
# redis_fences.sh - fences that are checked where the work is done: a holder of a lock on a Redis server is stopped until its
# lease is over, a second one takes the lock, and then the first one goes on and writes. SQLite, PostgreSQL and Redis refuse
# that write; the second holder's pass, one after the other; and its token is recorded before it reads.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

start_redis || exit 70
export HOLDFAST_URL=$REDIS_URL REDIS_SOCKET
mkfifo go

# stalled_holder: takes the lock, is stopped for longer than its lease, and then goes on and writes. Leaves the second
# holder's token in `new`, the first one's in `old`, what came of its late write in `late` and `late_code`, and runs
# `second` while the second one holds it.
# The guard that would end the command is stopped as well, and stays so: that is a machine that sleeps.
stalled_holder() {
    rm -f old new late late_code
    setsid "$HOLDFAST" run --ttl 300ms ledger bash -c 'echo $$ >pid; echo $HOLDFAST_TOKEN >old.part; mv old.part old
        read -r <go; write "$HOLDFAST_TOKEN" late >late 2>&1; echo $? >code; mv code late_code' 2>/dev/null &
    local first=$! members
    eventually test -e old
    members=$(pgrep -s "$first" | tr '\n' ' ')
    # shellcheck disable=SC2086
    kill -STOP $members
    "$HOLDFAST" run --ttl 5s -w 9s ledger bash -c 'echo $HOLDFAST_TOKEN >new; second' || echo "the second holder failed"
    kill -CONT "$(cat pid)"
    echo >go
    eventually test -e late_code
    # shellcheck disable=SC2086
    kill -KILL $members 2>/dev/null
    wait "$first" 2>/dev/null
}

# guarded NAME WORDS: with write TOKEN TEXT, read_as TOKEN and content, which the database defines.
guarded() {
    local name=$1 words=$2
    ok "$name: a first holder's token is recorded with its write" write 5 first
    stalled_holder
    result "$name: the new token is higher" $(($(cat new) <= $(cat old))) "$(cat old new)"
    result "$name: the stalled holder's late write is refused" $(($(cat late_code) == 0)) "$(cat late)"
    like "$name: with these words" "$(cat late)" "$words"
    is "$name: what stands there is the second holder's second write" "$(content)" "second again"
    is "$name: it had recorded its token before it read" "$(cat before)" "first $(cat new)"
    fails "$name: also when nothing was written yet, an older holder is refused" write "$(($(cat new) - 1))" late
}
second() {
    local token
    token=$(cat new)
    read_as "$token" >before
    write "$token" second && write "$token" "second again"
}
export -f second

# ---- SQLite
sqlite3 ledger.db "CREATE TABLE ledger (id TEXT PRIMARY KEY, text TEXT); INSERT INTO ledger VALUES ('a', '')"
"$HOLDFAST" fence sql --dialect sqlite --table ledger | sqlite3 -bail ledger.db
write() { sqlite3 -bail ledger.db "UPDATE ledger SET text = '$2', fence_token = $1 WHERE id = 'a'"; }
# The token first: from then on nobody with an older one writes what we are about to read.
read_as() {
    sqlite3 -bail ledger.db "UPDATE ledger SET fence_token = $1 WHERE id = 'a'"
    sqlite3 -separator ' ' ledger.db "SELECT text, fence_token FROM ledger WHERE id = 'a'"
}
content() { sqlite3 ledger.db "SELECT text FROM ledger WHERE id = 'a'"; }
export -f write read_as content
guarded SQLite 'stale token'

# ---- Redis
"$HOLDFAST" fence redis >fence.lua
guard() { redis-cli -s "$REDIS_SOCKET" -e --eval fence.lua ledger '{ledger}:fence' , "$@"; }
write() { guard "$1" SET "$2" >/dev/null; }
read_as() { echo "$(guard "$1" GET) $(redis-cli -s "$REDIS_SOCKET" GET '{ledger}:fence')"; }
content() { redis-cli -s "$REDIS_SOCKET" GET ledger; }
export -f guard write read_as content
guarded Redis 'STALE token [0-9]+: [0-9]+ was seen'
is "Redis: without a command the token is recorded" "$(guard 99999999999999999999)" 99999999999999999999
fails "Redis: digits count, not the first of them" guard 100000000000000000 SET late
fails "Redis: what is no token is refused" guard 12x SET late
is "Redis: --json has the same text" "$("$HOLDFAST" fence redis --json | jq -j .lua)" "$(cat fence.lua)"
exits "Redis: options of sql are refused" 64 "$HOLDFAST" fence redis --table x

# ---- PostgreSQL
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
if [ -z "$bin" ]; then
    echo "ok $((tests_done += 1)) - PostgreSQL # SKIP it is not installed"
    done_testing
    exit
fi
as=
folder=$SCRATCH/postgres
mkdir "$folder"
if [ "$(id -u)" -eq 0 ]; then # it does not run as root
    chmod 755 "$SCRATCH"
    chown nobody "$folder"
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
fi
# shellcheck disable=SC2086
$as "$bin/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --no-locale --no-sync >initdb.log 2>&1 || cat initdb.log
port=$((22000 + RANDOM % 9000))
# shellcheck disable=SC2086
$as setpriv --pdeathsig KILL "$bin/postgres" -D "$folder/data" -p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
    -c shared_buffers=32MB -c fsync=off >postgres.log 2>&1 &
postgres=$!
servers_started+=("$postgres")
export PGHOST=127.0.0.1 PGPORT=$port PGUSER=postgres PGDATABASE=postgres
eventually pg_isready || cat postgres.log
sql() { psql -qAt -F ' ' -v ON_ERROR_STOP=1 "$@"; }
sql -c "CREATE TABLE ledger (id text PRIMARY KEY, text text); INSERT INTO ledger VALUES ('a', '')"
"$HOLDFAST" fence sql --table ledger | sql
write() { sql -c "UPDATE ledger SET text = '$2', fence_token = $1 WHERE id = 'a'"; }
read_as() { sql -c "UPDATE ledger SET fence_token = $1 WHERE id = 'a' RETURNING text, fence_token"; }
content() { sql -c "SELECT text FROM ledger WHERE id = 'a'"; }
export -f sql write read_as content
guarded PostgreSQL 'stale token [0-9]+: [0-9]+ was seen'
code=$(psql -qAt -c '\set VERBOSITY verbose' -c "UPDATE ledger SET fence_token = 1" 2>&1)
like "PostgreSQL: with a code that nobody retries" "$code" HF079
kill -INT "$postgres"
wait "$postgres"
done_testing
