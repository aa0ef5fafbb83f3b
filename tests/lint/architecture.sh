#!/usr/bin/env bash
# architecture.sh - what ARCHITECTURE.md names is there: each function of its traces is defined in the file beside it, each
# file that it names exists, and the rooms of its table are those of CMakeLists.txt.
. "$(dirname "$0")/../lib/tap.sh"

cd "$ROOT" || exit 70
page=ARCHITECTURE.md

# steps: FILE FUNCTION of every step of a trace.
steps() {
    sed -n 's/^[0-9]*\. `\([^`]*\)`: `\([^`]*\)`.*/\1 \2/p' "$page"
}
# defines FILE FUNCTION: the function's body begins in the file.
defines() {
    grep -E "^[a-z].*[ *]$2\(" "$1" | grep -vq ';$'
}
count=$(steps | wc -l)
ok "there are traces to follow ($count steps)" test "$count" -ge 20
while read -r file function; do
    ok "$file defines $function" defines "$file" "$function"
done < <(steps)

# named: the files that the page names by path, from the root or from src/.
named() {
    grep -oE '`[a-z_]+(/[a-z_]+)*\.(c|h|def|hpp|sh|md|lua)`' "$page" | tr -d '`' | sort -u
}
is_there() {
    [ -e "$1" ] || [ -e "src/$1" ] || [ -e "src/engines/$1" ] || [ -n "$(find src cli server -name "$(basename "$1")")" ]
}
while read -r file; do
    ok "$file is there" is_there "$file"
done < <(named)
rooms() {
    sed -n 's/^room(\([a-z]*\).*/\1/p' CMakeLists.txt
    sed -n 's/^ENGINE(\([a-z]*\)_engine, .*/\1/p' src/engines/engines.def
}
is "every room of the build is in the table" \
    "$(rooms | while read -r room; do
        grep -qE "^\| .*\`(engines/)?$room(\.c)?\`" "$page" || echo "$room"
    done)" ""
is "no line is longer than 100 columns" \
    "$(awk 'length > 100 { print FILENAME ":" FNR }' "$page" README.md CONTRIBUTING.md)" ""
is "nor is one of these pages, but for rows of tables" \
    "$(awk 'length > 100 && !/^\|/ { print FILENAME ":" FNR }' SECURITY.md docs/README.md docs/guarantees.md)" ""
fails "a function that is elsewhere would be found" defines src/api.c client_acquire
done_testing
