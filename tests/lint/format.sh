#!/usr/bin/env bash
# format.sh - every source is laid out as .clang-format says; `make format` repairs it.
. "$(dirname "$0")/../lib/tap.sh"

cd "$ROOT" || exit 70
# Versions lay out differently. The tree follows Debian 12's; with another one there is nothing to compare.
other_version=
case $(clang-format --version) in
*" 14."*) ;;
*) other_version=" # SKIP this is not clang-format 14" ;;
esac
well_formed() {
    [ -n "$other_version" ] || find "$1" \( -name '*.[ch]' -o -name '*.[ch]pp' \) -exec clang-format --dry-run -Werror {} +
}
for folder in src include cli server tests examples bench bindings; do
    ok "$folder/ has sources to look at" test -n "$(find $folder -name '*.[ch]')"
    ok "$folder/ is laid out as .clang-format says$other_version" well_formed $folder
done

texts() {
    find . -path ./.git -prune -o -path './build*' -prune -o -type f -size -1024k -print0
}
no_trailing_blanks() {
    ! texts | grep -zv '\.tsv$' | xargs -0 grep -nIE '[[:blank:]]+$' # the last column of a table may be empty
}
ends_with_newline() {
    ! texts | xargs -0 grep -lI . | while read -r file; do [ -z "$(tail -c 1 "$file")" ] || echo "$file"; done | grep .
}
opens_with_a_comment() {
    ! find src cli server include tests examples bench bindings \( -name '*.[ch]' -o -name '*.def' \) |
        while read -r file; do grep -m1 -v "clang-format off" "$file" | grep -qF "/* $(basename "$file") - " || echo "$file"; done | grep .
}
ok "no line ends with blanks" no_trailing_blanks
ok "every text file ends with a newline" ends_with_newline
ok "every source says in its first comment what lives there" opens_with_a_comment
nested_choices() {
    find src cli server bench include -name '*.[ch]' -exec tests/lint/nested_choices.py {} +
}
is "no ?: stands inside another one" "$(nested_choices)" ""
echo 'int f(int a, int b) { return a ? 1 : (b ? 2 : 3); }' >"$SCRATCH/nested.c"
is "one that does is found" "$(tests/lint/nested_choices.py "$SCRATCH/nested.c")" "$SCRATCH/nested.c:1"
done_testing
