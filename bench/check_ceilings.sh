#!/usr/bin/env bash
# check_ceilings.sh - tests of the bench: its ceilings send what the library sends, and its counts are right.
source "$(dirname "$0")/../tests/lib/tap.sh"
source "$ROOT/tests/lib/servers.sh"

# sends_the_same WORKLOAD URL: checks that ceiling and library send the same bytes.
sends_the_same() {
    "$BUILD/bench/check_bytes" "$1" --url "$2"
}

# If the servers of a quorum happen to propose the same token, nothing is written back, and one of
# the two recordings is shorter. So it is tried again.
sends_the_same_at_last() {
    for _ in 1 2 3 4 5; do
        sends_the_same "$@" && return
    done
    return 1
}

# shows FILTER PROGRAM ARGUMENT...: succeeds if the jq FILTER is true of the result that the program
# prints.
shows() {
    local filter=$1 line
    shift
    line=$("$@") && jq -e "$filter" <<<"$line" >/dev/null || { echo "$filter is not true of: $line" && return 1; }
}

# With two servers a majority is both, so no reply comes late. With late replies the next command
# would depend on their timing.
quorum=()
for _ in 1 2; do
    start_redis || exit 1
    quorum+=("127.0.0.1:$REDIS_PORT")
done
for workload in uncontended-1cpu contended-2 semaphore-5; do
    ok "the ceiling of $workload sends byte for byte what the library sends" sends_the_same $workload "$REDIS_URL"
done

ok "the bare queue lets in one at a time" \
    shows '.overlaps == 0 and .per_s > 0' "$BUILD/bench/redis_bare" contended-10 --who bare-queue --url "$REDIS_URL" --seconds 0.3
ok "and measures handoffs" \
    shows '.handoff_p50_us > 0' "$BUILD/bench/redis_bare" handoff --who bare-queue --url "$REDIS_URL" --seconds 0.3
ok "a lock that keeps nobody out is found out" \
    shows '.overlaps > 0' "$BUILD/bench/check_workload" open --workers 4 --section-ms 1 --seconds 0.1
for program in redis_bare redis_work; do
    ok "$program alone sends two commands a cycle" shows '.commands_per_op == 2 and .ops > 10 and .p50_us > 1' \
        "$BUILD/bench/$program" uncontended-1cpu --url "$REDIS_URL" --seconds 0.2
    ok "$program hands one lock round fairly, to one at a time, with three commands each" \
        shows '.overlaps == 0 and .jain > 0.9 and (.commands_per_op - 3 | fabs) < 0.1' \
        "$BUILD/bench/$program" contended-10-1ms --url "$REDIS_URL" --seconds 0.3
done

ok "threads that sleep are woken, each of them, and end" shows '.workers == 64 and .ops > 640' \
    timeout 10 "$BUILD/bench/local_bare" threads-64 --seconds 0.2

# Servers count only after they have run for longer than max_ttl.
until [ "$(redis_cli INFO server | tr -d '\r' | sed -n 's/^uptime_in_seconds://p')" -ge 3 ]; do sleep 0.05; done
ok "the ceiling of a quorum sends byte for byte what the library sends, write-back included" \
    sends_the_same_at_last redlock-5 "redlock://$(IFS=, && echo "${quorum[*]}")?max_ttl=1s"
done_testing
