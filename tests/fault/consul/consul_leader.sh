#!/usr/bin/env bash
# consul_leader.sh - a leader of Consul that stands still for more than two ttl, goes on, and leads again: it may end sessions
# that were renewed all the time. Holders are told, the next tokens are higher, and whoever was not told still holds.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
. "$ROOT/tests/lib/consul.sh"

CONSUL=$("$ROOT/tests/lib/fetch-consul" 2>why) || { skip "the servers" "$(tail -n 1 why)" && done_testing; exit; }
holds=5 ttl=15 # seconds
# Otherwise the servers strike one off that was silent, and two of three become two of two.
consul_servers ', "autopilot": {"cleanup_dead_servers": false}'
for i in 1 2 3; do ok "server $i is up" eventually consul_ready "${http[i]}"; done
eventually consul_leader 1 >/dev/null
old=$(consul_leader 1)
ok "one of them leads" test -n "$old"

# Clients of the other two servers: to them the old leader is not known.
others='' here=
for i in 1 2 3; do [ "$i" = "$old" ] || others+=${others:+,}127.0.0.1:${http[i]} here=$i; done
export HOLDFAST_URL="consul://$others?session_min=1s"
for ((i = 1; i <= holds; i++)); do
    { "$HOLDFAST" run -q --ttl ${ttl}s "job-$i" -- sh -c "echo \$HOLDFAST_TOKEN >first.$i; echo \$\$ >pid.$i; exec sleep 600"
        echo "$? $(date +%s%N)" >ended.$i; } &
done
for ((i = 1; i <= holds; i++)); do ok "job-$i is held" eventually test -s "first.$i"; done
for ((i = 1; i <= holds; i++)); do
    "$HOLDFAST" run -q -w 300s --ttl ${ttl}s "job-$i" -- sh -c "echo \$HOLDFAST_TOKEN >second.$i; date +%s%N >granted.$i" &
done
waits() { "$HOLDFAST" show --json "job-$1" | jq -e 'map(select(.role == "waiter")) | length == 1' >/dev/null; }
for ((i = 1; i <= holds; i++)); do ok "job-$i is waited for" eventually waits $i; done

# ---- The old leader stands still ----

eval "kill -STOP \$pid_n$old"
stopped=$SECONDS
exits "a request while the leader stands still is served by its successor" 0 "$HOLDFAST" run -w 20s --ttl ${ttl}s another -- true
sleep $((stopped + ttl * 5 / 2 - SECONDS))
leads() { [ "$(consul_leader "$1")" = "$2" ]; }
ok "another one leads" test "$(consul_leader "$here")" != "$old"
lost() { ls ended.* 2>/dev/null | wc -l; }
is "and nobody has lost a hold" "$(lost)" 0
eval "kill -CONT \$pid_n$old"
ok "the old leader follows" eventually consul_leader "$old"
sleep 2

# ---- It leads again: whoever leads meanwhile stands still until another one does ----

for ((tries = 0; tries < 20; tries++)); do
    now=$(consul_leader "$old") || { sleep 0.5 && continue; }
    [ "$now" != "$old" ] || break
    eval "kill -STOP \$pid_n$now"
    for _ in {1..50}; do
        next=$(consul_leader "$old") && [ "$next" != "$now" ] && break
        sleep 0.2
    done
    eval "kill -CONT \$pid_n$now"
    sleep 1
done
ok "the old leader leads again" leads "$old" "$old"

# It tries its failed invalidations again after 10, 20 and 40 s.
for ((waited = 0; waited < 60 && $(lost) < holds; waited++)); do sleep 1; done
echo "# $(lost) of $holds holds were ended although they were renewed all the time"
for ((i = 1; i <= holds; i++)); do
    if [ -s "ended.$i" ]; then
        read -r code ended <"ended.$i"
        is "job-$i was lost, and its holder was stopped: 79" "$code" 79
        ok "the next one holds" eventually test -s "granted.$i"
        ok "with a higher token" test "$(cat "second.$i")" -gt "$(cat "first.$i")"
        late=$(((ended - $(cat "granted.$i")) / 1000000))
        ok "the old holder's command ended at most 1 s later" test $late -lt 1000
        echo "# job-$i: ended $late ms after the next grant"
    else
        ok "job-$i is still held, by the first holder alone" test ! -e "granted.$i"
        kill -TERM "$(cat "pid.$i")"
    fi
    ok "and the waiter of job-$i had its turn" eventually test -s "granted.$i"
done
for ((i = 1; i <= holds; i++)); do eventually test -s "ended.$i"; done
for i in 1 2 3; do eval "kill -KILL \$pid_n$i"; done
done_testing
