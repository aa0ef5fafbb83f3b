#!/usr/bin/env bash
# two-holders.sh - what happens to a command when its lock is taken away: under `etcdctl lock`, and under `holdfast run`.
#
#     docs/two-holders.sh [HOLDFAST]
#
# Starts an etcd server of its own on free ports of the loopback interface. Exits with 0 when both behave as
# docs/two-holders.md says.
set -euo pipefail

HOLDFAST=$(realpath "${1:-$(dirname "$0")/../build/holdfast}")
scratch=$(mktemp -d)
etcd=
finish() {
    local status=$?
    trap - EXIT
    jobs -p | xargs -r kill 2>/dev/null || true
    wait
    rm -rf "$scratch"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM
cd "$scratch"
# stamp TEXT: a line with the time since etcd was up.
stamp() {
    local passed=$((${EPOCHREALTIME/[.,]/} - began))
    printf '%2d.%d s  %s\n' $((passed / 1000000)) $((passed / 100000 % 10)) "$*"
}
fail() {
    echo "two-holders: $*" >&2
    exit 1
}
until_true() {
    local tries
    for ((tries = 0; tries < 1000; tries++)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.02
    done
    fail "waited in vain for: $*"
}

# The command under the lock: works for four seconds, then says that it is done. Ended by a signal, it says nothing.
cat >work <<'END'
#!/bin/bash
echo "$1 begins"
for ((i = 0; i < 40; i++)); do echo "$1 works" >>"$2"; sleep 0.1; done
echo "$1 is done"
END
chmod +x work
# watched: prints lines as they come, with the time.
watched() {
    while IFS= read -r line; do stamp "  $line"; done
}

start_etcd() {
    local client peer
    client=$((20000 + RANDOM % 20000)) peer=$((40000 + RANDOM % 20000))
    url=http://127.0.0.1:$client
    env -i PATH="$PATH" etcd --name s1 --data-dir "$scratch/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls http://127.0.0.1:$peer --initial-advertise-peer-urls http://127.0.0.1:$peer \
        --initial-cluster s1=http://127.0.0.1:$peer >"$scratch/etcd.log" 2>&1 &
    etcd=$!
    until etcdctl_ endpoint health >/dev/null 2>&1; do
        kill -0 $etcd 2>/dev/null || return 1
        sleep 0.05
    done
}
etcdctl_() {
    env -i PATH="$PATH" ETCDCTL_API=3 etcdctl --endpoints "$url" "$@"
}
for ((tries = 0; ; tries++)); do
    ! start_etcd || break
    [ $tries -lt 5 ] || fail "etcd does not start: $(tail -n 3 etcd.log)"
done

began=${EPOCHREALTIME/[.,]/}
leases() { etcdctl_ lease list | grep -v found; }
# steps FILE COUNT: the command has done at least so many steps.
steps() { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }

stamp "etcdctl lock ($(etcdctl_ version | sed -n 's/^etcdctl version: //p'))"
first_code=0 second_code=0
{ etcdctl_ lock nightly "$scratch/work" first "$scratch/first" || echo "failed: $?" >first.failed; } > >(watched) 2>&1 &
first=$!
until_true steps first 1
stamp "the lease of the first is revoked: its lock is gone"
for lease in $(leases); do etcdctl_ lease revoke "$lease" >/dev/null; done
{ etcdctl_ lock nightly "$scratch/work" second "$scratch/second" || echo "failed: $?" >second.failed; } > >(watched) 2>&1 &
second=$!
until_true steps second 2
until_true steps first $(($(wc -l <first) + 2))
stamp "both work: two holders"
wait $first $second
[ ! -e first.failed ] || fail "etcdctl lock did not exit with 0: $(cat first.failed)"
[ "$(wc -l <first)" -eq 40 ] || fail "the first did not work to its end under etcdctl"
stamp "etcdctl lock of the first exits with 0, as if all had been well"
kill $etcd
wait $etcd || true

echo
stamp "holdfast run ($("$HOLDFAST" version | head -n 1))"
rm -f first second
export HOLDFAST_URL=local:$scratch/table
"$HOLDFAST" run --ttl 2s nightly -- "$scratch/work" first "$scratch/first" > >(watched) 2>&1 &
first=$!
until_true steps first 1
token=$("$HOLDFAST" show --json nightly | sed -n 's/.*"token":"\([0-9]*\).*/\1/p')
stamp "the lock of the first is taken away: holdfast break nightly --token $token"
"$HOLDFAST" break nightly --token "$token" --reason "two-holders.sh" >/dev/null
"$HOLDFAST" run --ttl 2s nightly -- "$scratch/work" second "$scratch/second" > >(watched) 2>&1 &
second=$!
wait $first || first_code=$?
done_steps=$(wc -l <first)
stamp "holdfast run of the first exits with $first_code; its command was stopped after $done_steps of 40 steps"
[ $first_code -eq 79 ] || fail "holdfast run exited with $first_code instead of 79"
[ "$done_steps" -lt 40 ] || fail "the command was not stopped"
wait $second || second_code=$?
[ $second_code -eq 0 ] || fail "the second exited with $second_code"
[ "$(wc -l <first)" -eq "$done_steps" ] || fail "the first worked on after its run had ended"
stamp "holdfast run of the second exits with 0"
