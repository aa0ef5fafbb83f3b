#!/usr/bin/env bash
# guarantees.sh - docs/guarantees.md is the one place where promises are numbered: without a gap, each with what it does
# not promise, each cited by a test, and no test cites one that is not there.
. "$(dirname "$0")/../lib/tap.sh"

cd "$ROOT" || exit 70
text=docs/guarantees.md
numbers=$(sed -n 's/^### G\([0-9]*\)\. .*/\1/p' $text)
count=$(wc -l <<<"$numbers")
is "the numbers go up by one" "$(tr '\n' ' ' <<<"$numbers")" "$(seq -s ' ' "$count") "
is "each promise says what is not promised" "$(grep -c '\*\*Not promised:\*\*' <(tr '\n' ' ' <$text | sed 's/### /\n/g'))" "$count"

cited() {
    grep -rhoE '\bG[0-9]+\b' tests --include='*.c' --include='*.h' --include='*.def' --include='*.sh' --exclude-dir=package | sort -u
}
cited >"$SCRATCH/cited"
uncited() {
    local number
    for number in $numbers; do
        grep -qx "G$number" "$SCRATCH/cited" || echo "G$number"
    done
}
is "each promise is cited by a test" "$(uncited)" ""
is "no test cites a promise that is not there" "$(grep -vxFf <(sed 's/^/G/' <<<"$numbers") "$SCRATCH/cited")" ""
is "no promise refers to one that is not there" \
    "$(grep -oE '\bG[0-9]+\b' $text | sort -u | grep -vxFf <(sed 's/^/G/' <<<"$numbers"))" ""
headings() {
    sed -n 's/^### \(G[0-9]*\.\) .*/\1/p' $text
}
is "holdfast-guarantees(7) has all of them" \
    "$(groff -man -t -Tascii "$BUILD/man/man7/holdfast-guarantees.7" | sed 's/\x1b\[[0-9;]*m//g; s/.\x08//g' | sed -n 's/^ *\(G[0-9]*\.\) .*/\1/p')" \
    "$(headings)"
done_testing
