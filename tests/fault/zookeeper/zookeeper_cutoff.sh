#!/usr/bin/env bash
# zookeeper_cutoff.sh - a follower of three real servers is cut off from its leader, and goes on answering pings. A holder
# that is connected to it gives up before the next one is granted. One that knows the other servers, too, goes on holding.
. "$(dirname "$0")/../../lib/zookeeper.sh"
own_network "$@"
. "$(dirname "$0")/../../lib/cli_tap.sh"

skip_all() {
    skip "the cut-off follower" "$1"
    done_testing
    exit
}
! why=$(zookeeper_missing) || skip_all "$why"
for program in nft ip ss; do
    command -v $program >/dev/null || skip_all "$program is not installed"
done

# ---- Three servers: ticks of 500 ms, sessions of 1 s and more ----

zookeeper_ensemble
leader=$(zookeeper_who leader) follower=$(zookeeper_who follower)
ok "there is a leader, and a follower" test -n "$leader" -a -n "$follower"

# cut: nothing passes between the follower and its leader any more, and nobody is told. heal: it does again.
cut() {
    local port
    nft add table ip cut && nft 'add chain ip cut in { type filter hook input priority 0; }'
    for port in $(ss -Htnp state established | grep "pid=${pid[follower]}," |
        awk -v to=":288$leader" '$4 ~ to "$" || $3 ~ to "$" { n = split($3, a, ":"); print a[n] }'); do
        nft add rule ip cut in tcp sport "$port" tcp dport "288$leader" drop
        nft add rule ip cut in tcp dport "$port" tcp sport "288$leader" drop
    done
    now_ms >cut_at
    nft list table ip cut | grep -q drop
}
heal() { nft delete table ip cut; }

# holder FILE URL NAME: holds, and writes the time to FILE for as long as its command may run.
holder() {
    "$HOLDFAST" -u "$2" run -q --ttl 2s --grace 100ms "$3" -- python3 -c '
import os, sys, time
while True:
    with open(sys.argv[1] + ".new", "w") as out:
        out.write("%d\n" % (time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.005)' "$1" &
}
# next FILE NAME: waits for it through the leader, and writes when it was granted.
next() {
    "$HOLDFAST" -u "zk://127.0.0.1:218$leader" run -q -w 60s --ttl 2s "$2" -- \
        python3 -c 'import sys, time; print(int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))' >"$1" &
}
waits() { "$HOLDFAST" -u "zk://127.0.0.1:218$leader" show --json "$1" | jq -e 'map(select(.role == "waiter")) | length == 1'; }

# kazoo PORT FILE holder|next: the same with kazoo's lock, if it is installed.
kazoo() { /usr/bin/python3 "$ROOT/tests/fault/zookeeper/kazoo_peer.py" "$1" /kazoo/job "$2" "$3" & }
has_kazoo() { /usr/bin/python3 -c 'import kazoo' 2>/dev/null; }
# curator PORT FILE holder|next: the same with Curator's.
curator() { java -Xmx64m -cp "$PWD$CURATOR_JARS" CuratorPeer "127.0.0.1:$1" /curator/job "$3" "$2" 2>curator.err & }
has_curator() { javac -cp "${CURATOR_JARS#:}" -d . "$ROOT/tests/fault/zookeeper/CuratorPeer.java" 2>javac.err; }

# ---- A holder that knows the cut-off follower alone (G50); kazoo's and Curator's beside it ----

python3 "$ROOT/tests/fault/zookeeper/zookeeper_pinger.py" "218$follower" pinged &
pinger=$!
holder held "zk://127.0.0.1:218$follower" job
holding=$!
ok "a command holds the lock through the follower" eventually test -s held
next granted job
next=$!
ok "another one waits, through the leader" eventually waits job
if has_kazoo; then
    kazoo "218$follower" kazoo_held holder
    kazoo_holder=$!
    ok "kazoo holds a lock of its own, through the follower" eventually test -s kazoo_held
    kazoo "218$leader" kazoo_granted next
    kazoo_next=$!
fi
if has_curator; then
    curator "218$follower" curator_held holder
    curator_holder=$!
    ok "Curator holds a lock of its own, through the follower" eventually test -s curator_held
    curator "218$leader" curator_granted next
    curator_next=$!
fi
sleep 2.5 # so that all renew, and ping, for a while
ok "the follower is cut off from its leader" cut
wait $next
is "the next one was granted" $? 0
sleep 1
begin=$(cat cut_at) last=$(cat held) granted=$(cat granted) pinged=$(cat pinged)
echo "# after the cut: the holder's command ended at $((last - begin)) ms, the next one was granted at $((granted - begin)) ms," \
    "pings were answered until $((pinged - begin)) ms at least"
ok "the holder had given up before that" test "$last" -lt "$granted"
ok "although the follower went on answering pings" test "$pinged" -gt "$last"
wait $holding
is "its command ended as lost: 79" $? 79
if has_kazoo; then
    wait $kazoo_next
    is "kazoo's next one was granted, too" $? 0
    sleep 1
    echo "# kazoo: the holder was told that it is connected until $(($(cat kazoo_held) - begin)) ms," \
        "the next one was granted at $(($(cat kazoo_granted) - begin)) ms"
    kill -KILL $kazoo_holder && wait $kazoo_holder 2>/dev/null
else
    skip "kazoo's lock beside ours" "kazoo is not installed (Debian: python3-kazoo)"
fi
if has_curator; then
    wait $curator_next
    is "Curator's next one was granted, too" $? 0
    wait $curator_holder
    echo "# Curator: the holder was told nothing until $(($(cat curator_held) - begin)) ms," \
        "the next one was granted at $(($(cat curator_granted) - begin)) ms"
else
    skip "Curator's lock beside ours" "it or javac is not installed (Debian: libcurator-recipes-java, default-jdk-headless)"
fi
heal
kill $pinger 2>/dev/null
ok "the follower is back" eventually zookeeper_serves "$follower"

# ---- A holder that knows all servers ----

connected() { ss -Htn state established dst "127.0.0.1:218$follower" | grep -q .; }
for _ in {1..20}; do # servers are dialled in random order
    rm -f all
    holder all "zk://127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183" all
    holding=$!
    eventually test -s all
    ! connected || break
    kill $holding && wait $holding
done
ok "a command holds a lock, connected to the follower, with all servers in its URL" connected
ok "the follower is cut off again" cut
sleep 6
ok "it goes on holding, by another server" kill -0 $holding
ok "and is the holder to others" eventually test "$(($(now_ms) - $(cat all)))" -lt 1000
kill $holding
wait $holding
heal
ok "the follower is back again" eventually zookeeper_serves "$follower"

# ---- The leader dies ----

export HOLDFAST_URL=zk://127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183
"$HOLDFAST" run -q --ttl 7s dies -- sh -c 'echo $HOLDFAST_TOKEN >first; sleep 8' &
holding=$!
ok "a command holds a lock" eventually test -s first
"$HOLDFAST" run -q -w 40s --ttl 7s dies -- sh -c 'echo $HOLDFAST_TOKEN >second' &
next=$!
kill -KILL "${pid[leader]}"
wait $holding
is "the leader dies: the command ends as if nothing had happened" $? 0
wait $next
is "and the one that waits is next" $? 0
ok "with a higher token" test "$(cat second)" -gt "$(cat first)"
kill -KILL "${pid[@]}" 2>/dev/null
done_testing
