#!/usr/bin/env bash
# check.sh - the bench itself: its ceilings send what the library sends, and what it counts is what happened.
source "$(dirname "$0")/../tests/tap.sh"
source "$ROOT/tests/servers.sh"

# sends_the_same WORKLOAD URL
sends_the_same() {
    "$BUILD/bench/check_bytes" "$1" --url "$2"
}

# A quorum writes nothing back when its servers happened to propose the same token: then one of both is shorter.
sends_the_same_at_last() {
    for _ in 1 2 3 4 5; do
        sends_the_same "$@" && return
    done
    return 1
}

# shows FILTER PROGRAM ARGUMENT...: of the line that the program prints.
shows() {
    local filter=$1 line
    shift
    line=$("$@") && jq -e "$filter" <<<"$line" >/dev/null || { echo "$filter is not true of: $line" && return 1; }
}

# Of two servers a majority is both: no answer comes late, when it depends on the moment what is said next.
quorum=()
for _ in 1 2; do
    start_redis || exit 1
    quorum+=("127.0.0.1:$REDIS_PORT")
done
for workload in uncontended-1cpu contended-2 semaphore-5; do
    ok "the ceiling of $workload sends byte for byte what the library sends" sends_the_same $workload "$REDIS_URL"
done

ok "a lock that keeps nobody out is found out" \
    shows '.overlaps > 0' "$BUILD/bench/check_crew" open --workers 4 --section-ms 1 --seconds 0.1
for program in redis_bare redis_work; do
    ok "$program alone sends two commands a cycle" shows '.commands_per_op == 2 and .ops > 10 and .p50_us > 1' \
        "$BUILD/bench/$program" uncontended-1cpu --url "$REDIS_URL" --seconds 0.2
    ok "$program hands one lock round fairly, to one at a time, with three commands each" \
        shows '.overlaps == 0 and .jain > 0.9 and (.commands_per_op - 3 | fabs) < 0.1' \
        "$BUILD/bench/$program" contended-10-1ms --url "$REDIS_URL" --seconds 0.3
done

ok "threads that sleep are woken, each of them, and end" shows '.workers == 64 and .ops > 640' \
    timeout 10 "$BUILD/bench/local_bare" threads-64 --seconds 0.2

# The servers count when they have run for longer than the longest ttl.
until [ "$(redis_cli INFO server | tr -d '\r' | sed -n 's/^uptime_in_seconds://p')" -ge 3 ]; do sleep 0.05; done
ok "the ceiling of a quorum sends byte for byte what the library sends, write-back included" \
    sends_the_same_at_last redlock-5 "redlock://$(IFS=, && echo "${quorum[*]}")?max_ttl=1s"
done_testing
