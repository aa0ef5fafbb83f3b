#!/usr/bin/env bash
# install_packages.sh - what can be said of scripts/install-packages on a machine that has everything: it is quiet, it
# needs no root, and it refuses what it does not know.
. "$(dirname "$0")/../lib/tap.sh"

install=$ROOT/scripts/install-packages
for goal in build demo python wheel node man test; do
    is "nothing is said and done for $goal when all is there" "$("$install" $goal 2>&1)$?" 0
done
said=$("$install" everything 2>&1)
is "an unknown goal is a usage error" $? 64
like "the usage names the goals" "$said" 'build\|demo\|python\|wheel\|node\|man\|test\|deb\|nightly'
unknown_goals() {
    grep -oE 'scripts/install-packages [a-z]+' "$ROOT/Makefile" "$ROOT"/*.md | cut -d' ' -f2 | sort -u |
        while read -r goal; do grep -q "^$goal) wanted=" "$install" || echo "$goal"; done
}
is "every goal that Makefile and texts ask for is known" "$(unknown_goals)" ""
done_testing
