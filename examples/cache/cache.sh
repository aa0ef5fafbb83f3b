#!/usr/bin/env bash
# cache.sh - a page is missing, twenty requests want it at once, and one of them builds it. Then a builder is killed in
# the middle of its work, and the next in line builds the page instead.
#
#     cache.sh [URL]
#
# A request looks, takes the lock, and looks again: the holder before it may have built the page meanwhile. A database
# migration at the start of several instances has the same shape.
set -euo pipefail

export HOLDFAST=${HOLDFAST:-holdfast} HOLDFAST_URL=${1:-${HOLDFAST_URL:-local:}}
scratch=$(mktemp -d)
trap 'jobs -p | xargs -r kill -KILL 2>/dev/null || true; rm -rf "$scratch"' EXIT
cd "$scratch"
fail() {
    echo "cache: $*" >&2
    exit 1
}

# Builds the page, slowly, and puts it in its place in one step. While there is a file "slow" it does not end.
cat >build <<'END'
#!/bin/sh
echo "request $1 builds the page as pid $$" >>builds
while [ -e slow ]; do sleep 0.05; done
sleep 0.3
echo "a page, built by request $1" >page.new
mv page.new page
END
# One request. It looks a second time under the lock.
cat >request <<'END'
#!/bin/sh
test -e page || "$HOLDFAST" run -w 20s page/home -- sh -c "test -e page || ./build $1" 2>/dev/null
cat page >"answer.$1" 2>/dev/null
END
chmod +x build request

# until_true COMMAND...: for ten seconds at most.
until_true() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        ! "$@" || return 0
        sleep 0.05
    done
    fail "waited in vain for: $*"
}
builds() { [ "$(cat builds 2>/dev/null | wc -l)" -eq "$1" ]; }
waiters() { [ "$("$HOLDFAST" show --json page/home | grep -c '"role":"waiter"')" -eq "$1" ]; }
# ask FIRST LAST: sends the requests of these numbers, all at once.
ask() {
    local number
    for ((number = $1; number <= $2; number++)); do ./request "$number" & done
}
# answered COUNT: all of them got the same page.
answered() {
    [ "$(cat answer.* | grep -c '^a page')" -eq "$1" ] && [ "$(cat answer.* | sort -u | wc -l)" -eq 1 ]
}

echo "1. the page is missing, and twenty requests want it"
ask 1 20
wait
cat builds
builds 1 || fail "the page was built more than once"
answered 20 || fail "not all got that page"

echo "2. the page expires, nineteen requests wait for the builder, and the builder is killed"
rm -f page builds answer.*
touch slow
ask 1 1
until_true builds 1
ask 2 20
until_true waiters 19
kill -KILL "$(sed 's/.* //' builds)"
rm slow
wait
cat builds
builds 2 || fail "the page was not built exactly once more"
rm -f answer.1 # its builder is dead: this one got no page
answered 19 || fail "not all who waited got that page"
echo "proved: one of 20 requests built the page, the others found it under the lock, and a killed builder was replaced once"
