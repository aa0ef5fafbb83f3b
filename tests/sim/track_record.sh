#!/usr/bin/env bash
# track_record.sh - docs/track-record.md names a command for every bug that the simulator can plant again: each of them
# finds it.
. "$(dirname "$0")/../lib/tap.sh"

commands() {
    grep -oE "make sim ARGS='[^']*'" "$ROOT/docs/track-record.md" | sed "s/^make sim ARGS='//; s/'\$//" | sort -u
}
mapfile -t found < <(commands)
ok "there are such commands" test "${#found[@]}" -gt 5
for words in "${found[@]}"; do
    # shellcheck disable=SC2086 # typed as it stands
    ok "$words" "$BUILD/tests/sim/redis_sim" $words
done
done_testing
