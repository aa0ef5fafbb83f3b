#!/usr/bin/env bash
# etcd_fence.sh - `holdfast fence etcd` on a real etcd (G49): a holder that was stopped until its lease was over writes when another
# one holds the lock. Both transactions refuse that write, and pass those of the second holder.
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"

start_etcd || { skip "the fence of etcd" "etcd is not installed" && done_testing; exit; }
export HOLDFAST_URL=$ETCD_URL ETCDCTL_API=3
"$HOLDFAST" fence etcd >fence.sh
content() { etcdctl get --print-value-only "$1"; }
# under NAME WORDS: runs them in a shell that has read the fence, and that holds the lock.
under() { "$HOLDFAST" run -q --ttl 5s -w 20s "$1" -- sh -c ". ./fence.sh; $2"; }

ok "a shell reads what is printed" sh -n fence.sh
odd='a "quoted" \ text
of two lines $HOME `x`'
export odd
ok "a holder writes" under ledger 'etcd_put_if_held data/a "$odd"'
is "what it wrote is there, byte for byte" "$(content data/a)" "$odd"
ok "with the token as the fence, too" under ledger 'etcd_put_fenced data/b "$odd"'
is "what it wrote is there" "$(content data/b)" "$odd"
ok "the same holder writes again" under ledger 'etcd_put_fenced data/b 1 && etcd_put_fenced data/b 2 && etcd_put_if_held data/a 3'
is "and again" "$(content data/a) $(content data/b)" "3 2"
ok "a name with a slash is found" under a/b%c 'etcd_put_if_held data/c 1'
is "by its own key" "$(content data/c)" 1

# A holder that waited has a token above the creation of its key.
"$HOLDFAST" run -q --ttl 5s ledger -- sh -c 'echo >held; sleep 1' &
before=$!
eventually test -e held
ok "a holder that waited writes" under ledger 'etcd_put_if_held data/a waited'
is "under its own key" "$(content data/a)" waited
wait $before

# stalled: a holder is stopped for longer than its lease; a second one takes the lock and writes; then the first one goes on.
mkfifo go
setsid "$HOLDFAST" run -q --ttl 1s ledger -- bash -c '. ./fence.sh; echo $$ >pid; echo $HOLDFAST_TOKEN >old; read -r <go
    etcd_put_if_held data/a late; echo $? >late_a; etcd_put_fenced data/b late; echo $? >late_b' 2>/dev/null &
first=$!
eventually test -s old
members=$(pgrep -s "$first" | tr '\n' ' ')
# shellcheck disable=SC2086
kill -STOP $members
ok "a second holder writes" under ledger 'echo $HOLDFAST_TOKEN >new; etcd_put_if_held data/a second && etcd_put_fenced data/b second
    kill -CONT $(cat pid); echo >go; until test -s late_b; do sleep 0.1; done'
result "with a higher token" $(($(cat new) <= $(cat old))) "$(cat old new)"
is "the stalled holder's late write is refused: its key is gone" "$(cat late_a)" 79
is "and so it is by its token" "$(cat late_b)" 79
is "what stands there is the second holder's" "$(content data/a) $(content data/b)" "second second"
# shellcheck disable=SC2086
kill -KILL $members 2>/dev/null
wait "$first" 2>/dev/null

# A hold whose key is gone, while nobody else has the lock.
"$HOLDFAST" acquire -q --ttl 20s --lease solo.lease solo
write() { env HOLDFAST_NAME=solo HOLDFAST_TOKEN="$(jq -r .token solo.lease)" sh -c ". ./fence.sh; etcd_put_if_held data/d $1"; }
ok "the holder of a lease file writes" write early
etcdctl del --prefix lock/solo/ >/dev/null
exits "when its key was deleted it is refused at once, though nobody else holds" 79 write late
is "nothing was written" "$(content data/d)" early
exits "a fence for something else is 64" 64 "$HOLDFAST" fence consul
exits "options for tables are 64" 64 "$HOLDFAST" fence etcd --table x
is "as JSON it is the same text" "$("$HOLDFAST" fence etcd --json | jq -r .sh)" "$(cat fence.sh)"
done_testing
