#!/usr/bin/env bash
# consul_cluster.sh - three real servers of Consul: a leader that dies takes no lock with it. One server with tokens,
# and one with TLS that asks for certificates.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
. "$ROOT/tests/lib/consul.sh"

CONSUL=$("$ROOT/tests/lib/fetch-consul" 2>why) || { skip "the servers" "$(tail -n 1 why)" && done_testing; exit; }

# ---- Three servers ----

consul_servers
for i in 1 2 3; do ok "server $i is up" eventually consul_ready "${http[i]}"; done
export HOLDFAST_URL="consul://$hosts?session_min=1s"
is "a lock on the servers" "$("$HOLDFAST" run -n job -- echo in)" in
"$HOLDFAST" run --ttl 15s job -- sh -c 'echo $HOLDFAST_TOKEN >first; sleep 8' &
holder=$!
ok "a command holds it" eventually test -s first
"$HOLDFAST" run -q -w 60s --ttl 15s job -- sh -c 'echo $HOLDFAST_TOKEN >second' &
waiter=$!
waits() { "$HOLDFAST" show --json job | jq -e 'map(select(.role == "waiter")) | length == 1'; }
ok "another one waits" eventually waits
dead=$(consul_leader 1)
ok "one of them leads" test -n "${dead:-}"
eval "kill -KILL \$pid_n${dead:-1}"
wait $holder
is "the leader dies: the command ends as if nothing had happened" $? 0
wait $waiter
is "and the one that waits is next" $? 0
ok "with a higher token" test "$(cat second)" -gt "$(cat first)"
in_again() { [ "$("$HOLDFAST" run -n job -- echo in)" = in ]; }
ok "two of three servers are enough" eventually in_again
next=$((dead % 3 + 1))
eval "kill -KILL \$pid_n$next"
exits "one of three is not: 69" 69 timeout 40 "$HOLDFAST" run -n job -- true
for i in 1 2 3; do eval "kill -KILL \$pid_n$i" 2>/dev/null; done

# ---- Tokens ----

one=$(free_port)
acl=', "acl": {"enabled": true, "default_policy": "deny", "tokens": {"master": "root-token", "agent": "root-token"}}'
consul_agent one "$one" "$(free_port)" "$(free_port)" "$acl" -data-dir "$PWD/one" -server -bootstrap-expect 1
ok "a server with tokens is up" eventually consul_ready "$one" root-token
rules='key_prefix \"lock/\" { policy = \"write\" } session_prefix \"\" { policy = \"write\" }'
ask() { curl -sf -m 5 -X PUT -H 'X-Consul-Token: root-token' -d "$2" "http://127.0.0.1:$one/v1/acl/$1"; }
ok "a policy for the prefix" ask policy "{\"Name\": \"locker\", \"Rules\": \"$rules\"}"
ok "and a token with it" ask token '{"SecretID": "11111111-2222-3333-4444-555555555555", "Policies": [{"Name": "locker"}]}'
url() { echo "consul://${1:+:$1@}127.0.0.1:$one/$2?session_min=1s"; }
exits "no token is 77" 77 env HOLDFAST_URL="$(url '' lock/)" "$HOLDFAST" run -n job -- true
exits "a wrong token is 77" 77 env HOLDFAST_URL="$(url wrong lock/)" "$HOLDFAST" run -n job -- true
token=11111111-2222-3333-4444-555555555555
is "a token for the prefix serves" "$(HOLDFAST_URL="$(url $token lock/)" "$HOLDFAST" run -n job -- echo in)" in
exits "another prefix is 77" 77 env HOLDFAST_URL="$(url $token other/)" "$HOLDFAST" run -n job -- true
HOLDFAST_URL="$(url $token lock/)" "$HOLDFAST" run -q --ttl 2s job -- sh -c 'echo >held; sleep 20' &
holding=$!
ok "a command holds a lock by its token" eventually test -s held
accessor=$(curl -sf -m 5 -H "X-Consul-Token: $token" "http://127.0.0.1:$one/v1/acl/token/self" | jq -r .AccessorID)
ok "the token is taken away" curl -sf -m 5 -X DELETE -H 'X-Consul-Token: root-token' "http://127.0.0.1:$one/v1/acl/token/$accessor"
wait $holding
is "that costs the hold, and the command is stopped: 79" $? 79
exits "and the next request is 77" 77 env HOLDFAST_URL="$(url $token lock/)" "$HOLDFAST" run -n job -- true
kill -KILL "$pid_one"
exits "a user is 78: Consul has tokens alone" 78 env HOLDFAST_URL="consul://user:word@127.0.0.1:$one" "$HOLDFAST" run -n job -- true

# ---- TLS ----

"$ROOT/tests/lib/certificates" "$PWD" || exit 70
plain=$(free_port) secure=$(free_port)
files=", \"ca_file\": \"$PWD/ca.crt\", \"cert_file\": \"$PWD/server.crt\", \"key_file\": \"$PWD/server.key\", \"verify_incoming_https\": true"
consul_agent two "$plain" "$(free_port)" "$(free_port)" "$files" -data-dir "$PWD/two" -server -bootstrap-expect 1 -hcl "ports { https = $secure }"
ok "a server with TLS is up" eventually consul_ready "$plain"
base="consuls://127.0.0.1:$secure/lock/?session_min=1s"
exits "an unknown authority is 78" 78 "$HOLDFAST" -u "$base" run -n job -- true
exits "no certificate of one's own is 78" 78 "$HOLDFAST" -u "$base&ca=$PWD/ca.crt" run -n job -- true
is "with one it serves" "$("$HOLDFAST" -u "$base&ca=$PWD/ca.crt&cert=$PWD/client.crt&key=$PWD/client.key" run -n job -- echo in)" in
exits "TLS on the plain port is 78" 78 "$HOLDFAST" -u "consuls://127.0.0.1:$plain/lock/?session_min=1s&ca=$PWD/ca.crt" run -n job -- true
exits "plain text on the TLS port is 78" 78 "$HOLDFAST" -u "consul://127.0.0.1:$secure/lock/?session_min=1s" run -n job -- true
kill -KILL "$pid_two"
done_testing
