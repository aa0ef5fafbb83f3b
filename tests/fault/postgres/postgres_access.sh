#!/usr/bin/env bash
# postgres_access.sh - ways into a database: who may install and who may lock, several hosts, services and password files, TLS,
# and a pooler in between.
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
start_postgres || exit 70
at=127.0.0.1:$PG_PORT/postgres
cd "$SCRATCH" || exit 70
unset HOLDFAST_URL PGSERVICE PGSERVICEFILE PGPASSFILE

# gets_in URL: a lease can be had with it. What the command printed is in $said.
gets_in() {
    said=$("$HOLDFAST" -u "$1" run -n --connect-wait 5s access -- echo in 2>&1)
    code=$?
    [ "$said" = in ] || { echo "$said" && return 1; }
}
# stays_out NAME CODE URL TEXT: no lease can be had, with that exit code and these words.
stays_out() {
    gets_in "$3"
    is "$1: $2" "$code" "$2"
    like "and it says why" "$said" "$4"
}

# ---- Installing

admin=postgres://postgres@$at
stays_out "install=0 makes no schema" 78 "$admin?install=0" "not installed.*docs/postgres.md"
sql "CREATE ROLE app LOGIN" >/dev/null
stays_out "a user who may not create a schema" 77 "postgres://app@$at" "permission denied"
like "doctor --install makes it, also with install=0" "$("$HOLDFAST" -u "$admin?install=0" doctor --install 2>&1)" \
    "^ok +schema +$at: holdfast, version [0-9]+, durable: installed\$"
like "and says so if it was there" "$("$HOLDFAST" -u "$admin?install=0" doctor --install 2>&1)" ": was there\$"
like "a memory schema is another one" "$("$HOLDFAST" -u "$admin?memory=1" doctor --install 2>&1)" \
    "holdfast_memory, version [0-9]+, in memory: installed\$"
is "nothing is locked by it" "$(sql "SELECT count(*) FROM holdfast.lock")" 0
like "there is nothing to prune" "$("$HOLDFAST" -u "$admin" doctor --prune 2>&1)" "no library of another release"

# ---- Least rights: those of docs/postgres.md

stays_out "a user without rights" 77 "postgres://app@$at" "permission denied"
grants=$(sed -n '/^### Rights/,/^#/p' "$ROOT/docs/postgres.md" | sed -n '/^```sql/,/^```/p' | sed '/^```/d')
sql "$grants" >/dev/null
app=postgres://app@$at
ok "a user with the rights of the docs gets a lease" gets_in "$app"
"$HOLDFAST" -u "$app" run --ttl 10s busy -- sleep 1.5 &
holder=$!
for _ in $(seq 200); do "$HOLDFAST" -u "$app" list 2>/dev/null | grep -q busy && break || sleep 0.02; done
begun=$(date +%s%N)
ok "waits for one, and is notified" "$HOLDFAST" -u "$app" run -w 20s busy -- true
ok "long before it would poll" test $((($(date +%s%N) - begun) / 1000000)) -lt 4000
wait $holder
token=$("$HOLDFAST" -u "$app" acquire -n --lease lease --ttl 20s fenced >/dev/null && jq -r .token lease)
as_app() { "$pg_bin/psql" -X -q -At -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$PG_PORT" -U app -d postgres -c "$1" 2>&1; }
is "its transactions may use fence()" "$(as_app "SELECT holdfast.fence('fenced', $token)")" ""
is "and within()" "$(as_app "SELECT holdfast.within('free')")" t
is "its operators may break" "$("$HOLDFAST" -u "$app" break fenced --token "$token" --reason test >/dev/null 2>&1 && echo broken)" broken
for table in lock hold waiter tombstone past incarnation; do
    like "it cannot read $table, which has ids" "$(as_app "SELECT * FROM holdfast.$table")" "permission denied for table $table"
done
like "nor call what the functions are made of" "$(as_app "SELECT holdfast.commit_lazily()")" "permission denied for function"
like "nor end the grace" "$(as_app "UPDATE holdfast.setup SET grace_ms = 0")" "permission denied for table setup"
like "doctor works with these rights" "$("$HOLDFAST" -u "$app" doctor 2>&1)" "ok +user +$at: app"$'\n'

# ---- Several hosts, services, passwords

nobody=1 # a port that no test listens on
ok "the host that answers is found behind one that does not" gets_in "postgres://postgres@127.0.0.1:$nobody,127.0.0.1:$PG_PORT/postgres"
stays_out "no host that answers" 69 "postgres://postgres@127.0.0.1:$nobody,127.0.0.1:$nobody/postgres" "refused"
stays_out "no such database" 78 "postgres://postgres@127.0.0.1:$PG_PORT/nowhere" "does not exist"
printf '%s\n' "[locks]" "host=127.0.0.1" "port=$PG_PORT" "user=postgres" "dbname=postgres" >services
ok "a service names the server" env PGSERVICEFILE="$PWD/services" "$HOLDFAST" -u "postgres:///?service=locks" run -n access -- true
said=$(PGSERVICEFILE="$PWD/services" "$HOLDFAST" -u "postgres:///?service=nothing" run -n access -- true 2>&1)
is "an unknown service is refused: 78" $? 78
like "by its name" "$said" nothing

sql "CREATE ROLE guarded LOGIN PASSWORD 'se cret' IN ROLE app" >/dev/null
sed -i "1i host all guarded 127.0.0.1/32 scram-sha-256" "$PG_FOLDER/data/pg_hba.conf"
sql "SELECT pg_reload_conf()" >/dev/null
sleep 0.2
guarded=postgres://guarded@$at
stays_out "no password" 77 "$guarded" "no password"
ok "a password in the URL" gets_in "postgres://guarded:se%20cret@$at"
stays_out "a wrong one" 77 "postgres://guarded:wrong@$at" "authentication failed"
[[ $said != *wrong* ]]
result "which is not repeated" $?
echo "se cret" >password
chmod 600 password
ok "password_file" gets_in "$guarded?password_file=$PWD/password"
echo "127.0.0.1:$PG_PORT:*:guarded:se cret" >pgpass
chmod 600 pgpass
ok "PGPASSFILE" env PGPASSFILE="$PWD/pgpass" "$HOLDFAST" -u "$guarded" run -n access -- true
ok "passfile in the URL" gets_in "$guarded?passfile=$PWD/pgpass"

# ---- TLS

"$ROOT/tests/lib/certificates" "$PWD" || exit 70
for name in server.crt server.key ca.crt; do
    cp "$name" "$PG_FOLDER/data/$name"
    [ "$(id -u)" -ne 0 ] || chown postgres "$PG_FOLDER/data/$name"
done
chmod 600 "$PG_FOLDER/data/server.key" client.key stranger.key
stays_out "a server without TLS" 69 "$admin?sslmode=require" "SSL"
sql "CREATE ROLE client LOGIN IN ROLE app" "ALTER SYSTEM SET ssl_ca_file = 'ca.crt'" "ALTER SYSTEM SET ssl = on" >/dev/null
sed -i "1i hostssl all client 127.0.0.1/32 cert" "$PG_FOLDER/data/pg_hba.conf"
sql "SELECT pg_reload_conf()" >/dev/null
for _ in $(seq 100); do gets_in "$admin?sslmode=require" && break || sleep 0.05; done
ok "TLS" gets_in "$admin?sslmode=verify-full&sslrootcert=$PWD/ca.crt"
ok "ca= is sslrootcert=" gets_in "$admin?sslmode=verify-full&ca=$PWD/ca.crt"
like "doctor knows it" "$("$HOLDFAST" -u "$admin?sslmode=verify-full&ca=$PWD/ca.crt" doctor)" "tls +$at: encrypted, sslmode=verify-full"
stays_out "an authority that did not sign" 69 "$admin?sslmode=verify-full&ca=$PWD/stranger-ca.crt" "certificate verify failed"
stays_out "another host's certificate" 69 "postgres://postgres@locks.example:$PG_PORT/postgres?hostaddr=127.0.0.1&sslmode=verify-full&ca=$PWD/ca.crt" \
    "does not match host name"
tls="postgres://client@$at?sslmode=verify-full&ca=$PWD/ca.crt"
stays_out "a certificate is asked for" 77 "$tls" "certificate"
ok "cert= and key= are the client's" gets_in "$tls&cert=$PWD/client.crt&key=$PWD/client.key"
stays_out "a stranger's" 69 "$tls&cert=$PWD/stranger.crt&key=$PWD/stranger.key" "unknown ca"

# ---- A pooler

[ -x /usr/sbin/pgbouncer ] || { skip "a pooler" "PgBouncer is not installed" && done_testing && exit; }
pooler_port=$((PG_PORT + 1000))
printf '%s\n' "[databases]" "postgres = host=127.0.0.1 port=$PG_PORT" "[pgbouncer]" "listen_addr = 127.0.0.1" "listen_port = $pooler_port" \
    "unix_socket_dir =" "auth_type = trust" "auth_file = $PG_FOLDER/users" "pool_mode = transaction" "default_pool_size = 2" \
    >"$PG_FOLDER/pooler.ini"
printf '"%s" ""\n' postgres app lazy >"$PG_FOLDER/users"
chmod 644 "$PG_FOLDER/pooler.ini" "$PG_FOLDER/users"
"${pg_as[@]}" setpriv --pdeathsig KILL /usr/sbin/pgbouncer "$PG_FOLDER/pooler.ini" >pooler.log 2>&1 &
pooler=$!
for _ in $(seq 100); do "$pg_bin/pg_isready" -q -h 127.0.0.1 -p $pooler_port && break || sleep 0.05; done
pooled=127.0.0.1:$pooler_port/postgres
like "a pooler is recognised" "$("$HOLDFAST" -u "postgres://postgres@$pooled" doctor 2>&1)" "waiters poll, because a pooler is in between"
ok "a user with the rights of the docs gets a lease behind it" gets_in "postgres://app@$pooled"
sql "CREATE ROLE lazy LOGIN IN ROLE app" "ALTER ROLE lazy SET synchronous_commit = off" >/dev/null
stays_out "lazy commits, which cannot be changed behind it" 78 "postgres://lazy@$pooled" "synchronous_commit is off behind this pooler"
ok "and are, without it" gets_in "postgres://lazy@$at"
is "no setting of ours reached the pooler's sessions" \
    "$("$pg_bin/psql" -X -q -At -h 127.0.0.1 -p $pooler_port -U postgres -d postgres -c 'SHOW default_transaction_isolation' -c "SHOW holdfast.session" 2>&1 | head -1)" \
    "read committed"
is "and none listens in them" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")" 0
kill "$pooler"
wait "$pooler" 2>/dev/null
done_testing
