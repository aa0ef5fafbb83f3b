#!/usr/bin/env bash
# zookeeper_ensemble.sh - three real servers: a leader that stands still, a quorum that is lost, all servers killed and
# started again, a detached hold that two processes use, many holds in one session. Each case shows that its fault
# happened, and that the next one was granted behind the end of the one before.
. "$(dirname "$0")/../../lib/zookeeper.sh"
own_network "$@"
. "$(dirname "$0")/../../lib/cli_tap.sh"

if why=$(zookeeper_missing); then
    skip "an ensemble of ZooKeeper" "$why"
    done_testing
    exit
fi
zookeeper_ensemble syncLimit=4
export HOLDFAST_URL=zk://127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183 HOLDFAST_TTL=4s # the ensemble allows 7.5 s

# hold NAME URL TTL: a command that holds; it writes the time to NAME.held until NAME.stop is there. Its process: $holding.
hold() {
    rm -f "$1".{held,stop,token}
    "$HOLDFAST" -u "$2" run -q --ttl "$3" --grace 100ms "$1" -- python3 -c '
import os, sys, time
name = sys.argv[1]
with open(name + ".token", "w") as out:
    out.write(os.environ["HOLDFAST_TOKEN"])
while not os.path.exists(name + ".stop"):
    with open(name + ".new", "w") as out:
        out.write("%d\n" % (time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))
    os.rename(name + ".new", name + ".held")
    time.sleep(0.005)' "$1" 2>"$1.said" &
    holding=$!
    ok "$1: a command holds the lock" eventually test -s "$1.held"
}
# next_one NAME: waits for the lock, and writes when it was granted, and its token. Its process: $next.
next_one() {
    "$HOLDFAST" run -q -w 100s --ttl 4s "$1" -- python3 -c '
import os, sys, time
print(int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000), os.environ["HOLDFAST_TOKEN"])' >"$1.next" 2>"$1.next_said" &
    next=$!
}
waits() { "$HOLDFAST" show --json "$1" | jq -e 'map(select(.role == "waiter")) | length == 1'; }
# one_after_the_other NAME: the next one was granted behind the last time of the one before, with a higher token.
one_after_the_other() {
    local granted token
    wait $next
    is "$1: the next one was granted" $? 0
    read -r granted token <"$1.next"
    ok "$1: behind the end of the one before" test "$granted" -ge "$(cat "$1.held")"
    ok "$1: with a higher token" test "$token" -gt "$(cat "$1.token")"
}
stands_still() { grep -q '^State:.T' "/proc/${pid[$1]}/status"; }

# ---- A leader that stands still for 1, 3 and 8 s ----

for seconds in 1 3 8; do
    ok "there is a leader" eventually has_leader
    leader=$(zookeeper_who leader)
    name=still$seconds
    hold $name "$HOLDFAST_URL" 7s
    next_one $name
    ok "$name: another one waits" eventually waits $name
    kill -STOP "${pid[leader]}"
    ok "$name: the leader stands still" eventually stands_still "$leader"
    sleep $seconds
    if [ $seconds = 8 ]; then
        ok "$name: another server is the leader meanwhile" eventually has_leader
        ok "$name: while the first one still stands" stands_still "$leader"
    fi
    kill -CONT "${pid[leader]}"
    touch $name.stop
    wait $holding
    status=$?
    ok "$name: the command ended by itself, or was stopped as lost" test $status = 0 -o $status = 79
    echo "# the leader stood still for $seconds s: the hold was $([ $status = 0 ] && echo kept || echo lost)"
    one_after_the_other $name
done

# ---- The quorum is lost (Z6): a server that is left answers pings and reads, and no write ----

ok "there is a leader" eventually has_leader
leader=$(zookeeper_who leader) left=$(zookeeper_who follower)
stopped=()
for i in 1 2 3; do [ $i = "$left" ] || stopped+=($i); done
python3 "$ROOT/tests/fault/zookeeper/zookeeper_pinger.py" "218$left" pinged &
pinger=$!
hold quorum "zk://127.0.0.1:218$left" 2s
next_one quorum
ok "quorum: another one waits" eventually waits quorum
kill -STOP "${pid[stopped[0]]}" "${pid[stopped[1]]}"
ok "quorum: two of three stand still" eventually stands_still "${stopped[0]}"
wait $holding
is "quorum: the command was stopped as lost: 79" $? 79
ok "quorum: while both still stood" stands_still "${stopped[1]}"
ok "quorum: the server that is left had answered pings" test -s pinged
kill -CONT "${pid[stopped[0]]}" "${pid[stopped[1]]}"
kill $pinger 2>/dev/null
one_after_the_other quorum

# ---- All servers are killed, and started with their data (Z7) ----

ok "there is a leader" eventually has_leader
hold restart "$HOLDFAST_URL" 7s
next_one restart
ok "restart: another one waits" eventually waits restart
kill -KILL "${pid[@]}"
for i in 1 2 3; do ok "restart: server $i is gone" eventually gone "${pid[i]}"; done
for i in 1 2 3; do zookeeper_again $i; done
ok "restart: there is a leader again" eventually has_leader
touch restart.stop
wait $holding
status=$?
ok "restart: the command ended by itself, or was stopped as lost" test $status = 0 -o $status = 79
echo "# all servers were killed and restarted: the hold was $([ $status = 0 ] && echo kept || echo lost)"
one_after_the_other restart

# ---- A detached hold that two processes use at once (Z18) ----

"$HOLDFAST" acquire --ttl 7s --lease shared.lease shared 2>shared.said
is "shared: a detached hold" $? 0
token=$("$HOLDFAST" show --json shared | jq '.[0].token')
# extends FILE: the exit code of each extend, for some seconds.
extends() {
    local i
    for ((i = 0; i < 12; i++)); do
        "$HOLDFAST" extend --ttl 7s --lease shared.lease >/dev/null 2>>"$1.said"
        echo $?
    done >"$1"
}
extends first & one=$!
extends second & two=$!
wait $one $two
ok "shared: both extended it" grep -q '^0$' first
ok "shared: the other one as well" grep -q '^0$' second
is "shared: whoever was in the way of the other was told to try again, and nothing else" \
    "$(sort -u first second | grep -v -e '^0$' -e '^69$')" ''
echo "# of 24 extends by two processes at once $(cat first second | grep -c '^69$') were told to try again"
is "shared: it is one hold, with its token" "$("$HOLDFAST" show --json shared | jq -c '[length, .[0].token]')" "[1,$token]"
exits "shared: nobody else gets in: 75" 75 "$HOLDFAST" run -q -w 5s shared -- true
released() { "$HOLDFAST" release --lease shared.lease; }
ok "shared: one of them releases it" eventually released
is "shared: and the next one may" "$("$HOLDFAST" run -q -w 60s shared -- echo in)" in

# ---- What the doctor says of it ----

doctor=$("$HOLDFAST" -u zk://127.0.0.1:2181 doctor)
like "the doctor counts the servers that vote" "$doctor" '3 servers vote: 1 may fail'
like "and misses those that the URL does not name" "$doctor" 'the URL names one server'
like "with all in the URL it does not" "$("$HOLDFAST" doctor)" 'the URL names 3 servers'

kill -KILL "${pid[@]}" 2>/dev/null
done_testing
