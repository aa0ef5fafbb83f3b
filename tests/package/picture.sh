#!/usr/bin/env bash
# picture.sh - the picture of README is what its script makes from a real run: well-formed, with somebody who waits, says
# for whom, and takes over.
. "$(dirname "$0")/../lib/tap.sh"

picture=$ROOT/docs/two-terminals.svg
if why=$(missing_terminal); then
    skip "the picture is what its script records on two terminals" "$why"
    done_testing
    exit
fi
# story FILE: the lines of the picture in the order in which they appear, without what differs from run to run.
story() {
    grep -o '<text.*</text>' "$1" | sed 's/<[^>]*>//g; s/&quot;/"/g; s/pid [0-9]*/pid N/; s/ on [^ ]* (/ on HOST (/; s/token [0-9]*/token N/
        s/[0-9.]* m\?s/N s/g' | uniq
}
ok "README shows it" grep -q '(docs/two-terminals.svg)' "$ROOT/README.md"
ok "the script records a run" bash -c '"$0" "$1" >"$2"' "$ROOT/scripts/record-terminals" "$HOLDFAST" "$SCRATCH/new.svg"
for file in "$picture" "$SCRATCH/new.svg"; do
    name=$(basename "$file")
    ok "$name is well-formed" xmllint --noout "$file"
    like "$name: the second one waits and says for whom" "$(story "$file")" 'waiting: "printer" is held by pid N on HOST \(anna\)'
    like "$name: it shows that moment where nothing moves" "$(grep 'visibility="visible"' "$file")" 'waiting:'
    like "$name: then it takes over" "$(story "$file")" 'waiting:.*page 2 of 2'
done
is "the stored picture tells what the command tells today" "$(story "$picture" | grep -v 'waiting:')" \
    "$(story "$SCRATCH/new.svg" | grep -v 'waiting:')"
done_testing
