#!/usr/bin/env bash
# nightly.sh - the same line in the crontab of three machines: one runs the job, the others skip it, and a machine that
# dies is replaced.
#
#     nightly.sh [URL]
#
# The "machines" are processes here. In earnest this stands in the crontab of each, with the URL of a server that all
# reach (HOLDFAST_URL=redis://locks.example at the top):
#
#     0 3 * * *  holdfast run -n -E 0 --ttl 2m --label "$(hostname)" nightly -- /usr/local/bin/nightly
set -euo pipefail

export HOLDFAST=${HOLDFAST:-holdfast} HOLDFAST_URL=${1:-${HOLDFAST_URL:-local:}}
scratch=$(mktemp -d)
trap 'jobs -p | xargs -r kill -KILL 2>/dev/null || true; rm -rf "$scratch"' EXIT
cd "$scratch"
fail() {
    echo "nightly: $*" >&2
    exit 1
}

# The job says that it runs, and where, and goes on until there is a file "enough".
cat >job <<'END'
#!/bin/sh
echo "$1 runs"
echo "$1 $$" >>ran
until [ -e enough ]; do sleep 0.05; done
END
chmod +x job

# cron MACHINE: what its cron does at three o'clock. Skipping is success, so nobody gets mail.
cron() {
    "$HOLDFAST" run -n -E 0 --ttl 2s --label "$1" nightly -- ./job "$1" 2>"$1.log"
}
# until_true COMMAND...: for ten seconds at most.
until_true() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        ! "$@" || return 0
        sleep 0.05
    done
    fail "waited in vain for: $*"
}
runs() { [ "$(cat ran 2>/dev/null | wc -l)" -ge "$1" ]; }

echo "1. three o'clock on three machines"
cron alpha & alpha=$!
until_true runs 1
for machine in beta gamma; do
    cron $machine || fail "$machine should have skipped with success, not $?"
    [ ! -s $machine.log ] || fail "cron on $machine would send mail: $(cat $machine.log)"
    echo "$machine skips, and cron has nothing to mail"
done
runs 2 && fail "two machines ran the job"

echo "2. alpha dies, with everything on it"
guard=$("$HOLDFAST" show --json nightly | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
read -r _ job <ran
kill -KILL $alpha "$guard" "$job"
wait $alpha 2>/dev/null || true

echo "3. the next time cron comes round"
touch enough
rounds=0
until runs 2; do
    [ $((rounds += 1)) -le 100 ] || fail "nobody took over"
    for machine in beta gamma; do
        runs 2 || cron $machine || fail "$machine: $(cat $machine.log)"
    done
    sleep 0.1
done
echo "proved: one machine ran the job, two skipped it with exit code 0, and when it died another one took over"
