#!/usr/bin/env bash
# account.sh - money is moved under a lock by a teller that stands still for longer than its lease: before its transaction, in
# the middle of it, and beside a transaction that needs no lease at all. The lock and the balance commit together.
#
#     account.sh postgres://user@host/database     # needs psql; HOLDFAST names the command, if it is not in the PATH
set -u
url=${1:?the URL of a PostgreSQL database}
holdfast=${HOLDFAST:-holdfast}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sql() {
    psql -X -q -At -v ON_ERROR_STOP=1 -d "$url" -c "$1" 2>&1
}
fail() {
    echo "account.sh: $1" >&2
    exit 1
}
# acquire TTL: a lease on the account; prints its token.
acquire() {
    rm -f "$scratch/lease"
    "$holdfast" -u "$url" acquire -w 10s --ttl "$1" --lease "$scratch/lease" account >/dev/null || fail "the account cannot be locked"
    sed -n 's/.*"token": *"\([0-9]*\)".*/\1/p' "$scratch/lease"
}
# withdraw TOKEN AMOUNT [SECONDS]: with a pause in the middle of the transaction.
withdraw() {
    sql "BEGIN; SELECT holdfast.fence('account', $1); UPDATE account SET balance = balance - $2;
         SELECT pg_sleep(${3:-0}); COMMIT"
}
# is_inside: waits until a transaction of somebody else is in its pause.
is_inside() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")" = 0 ] || return 0
        sleep 0.05
    done
    fail "no transaction began"
}

sql "DROP TABLE IF EXISTS account; CREATE TABLE account (balance int); INSERT INTO account VALUES (100)" >/dev/null || fail "no database"

# A teller that stands still before its transaction: its lease is over, and another one was faster.
token=$(acquire 500ms)
echo "anna   has the account, token $token, and stands still"
sleep 0.8
"$holdfast" -u "$url" run -w 10s account -- psql -X -q -d "$url" -c 'UPDATE account SET balance = balance - 30' || fail "ben"
echo "ben    withdrew 30"
said=$(withdraw "$token" 30)
case $said in
*"is not held"*) echo "anna   is too late: the database refused her token" ;;
*) fail "a late write was not refused: $said" ;;
esac
[ "$(sql 'SELECT balance FROM account')" = 70 ] || fail "the balance is wrong"

# A teller that stands still in the middle of its transaction: its lease ends, and still nobody gets in before it commits.
token=$(acquire 2s)
withdraw "$token" 20 5 >/dev/null &
anna=$!
is_inside
sleep 2
"$holdfast" -u "$url" run -n account -- true 2>/dev/null && fail "somebody got in beside an open transaction"
echo "anna   is in the middle of her transaction, her lease is over, and ben still has to wait"
balance=$("$holdfast" -u "$url" run -w 10s account -- psql -X -q -At -d "$url" -c 'SELECT balance FROM account')
wait $anna
echo "ben    sees what anna wrote: $balance"
[ "$balance" = 50 ] || fail "the balance is $balance"

# A change that is one transaction needs no lease: within() keeps the leases out.
sql "BEGIN; SELECT holdfast.within('account'); UPDATE account SET balance = balance - 50; SELECT pg_sleep(4); COMMIT" >/dev/null &
carl=$!
is_inside
"$holdfast" -u "$url" run -n account -- true 2>/dev/null && fail "a lease was granted beside within()"
wait $carl
[ "$(sql 'SELECT balance FROM account')" = 0 ] || fail "the balance is wrong at the end"
echo "carl   needed no lease"
echo "proved: a late withdrawal was refused, one in the middle kept others out beyond its lease, and no lease got in beside within()"
