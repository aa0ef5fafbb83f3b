#!/usr/bin/env bash
# two_holders.sh - docs/two-holders.sh runs, with a real etcd, and tells the story that docs/two-holders.md shows.
. "$(dirname "$0")/../lib/tap.sh"

# story: the lines without times, versions and tokens, in byte order: what two processes say at the same moment may be
# told in either order.
story() {
    sed -n 's/^ *[0-9.]* s  *//p' | sed 's/([^)]*)//; s/token [0-9]*/token N/; s/after [0-9]* of/after N of/' | LC_ALL=C sort
}
said=$("$ROOT/docs/two-holders.sh" "$HOLDFAST" 2>&1)
result "the script finds etcdctl and holdfast as described" $? "$said"
is "docs/two-holders.md shows what it prints" "$(story <"$ROOT/docs/two-holders.md")" "$(story <<<"$said")"
done_testing
