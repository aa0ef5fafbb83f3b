#!/usr/bin/env bash
# retired_words.sh - one word per thing: words that were replaced (retired_words.txt; the glossary is in ARCHITECTURE.md) do not
# come back into product code, neither as a part of an identifier nor as the name of a file nor in a comment.
. "$(dirname "$0")/../lib/tap.sh"

list=$ROOT/tests/lint/retired_words.txt
rooms=("$ROOT"/{src,cli,server,bench,include})

# retired SECTION: the words of a section of the list, as an alternation.
retired() {
    awk -v section="[$1]" '/^\[/ { here = $0 == section; next } here && NF && !/^#/ { print $1 }' "$list" | paste -sd'|'
}

# code: every line of product code as FILE:LINE:TEXT, without strings and comments, and without names that are others'.
code() {
    find "${rooms[@]}" \( -name '*.[ch]' -o -name '*.def' \) -print0 | sort -z | xargs -0 perl -e '
        undef $/;
        for my $file (@ARGV) {
            open my $in, "<", $file or die;
            my ($text, $n) = (scalar <$in>, 0);
            $text =~ s{("(?:\\.|[^"\\\n])*")|(/\*.*?\*/|//[^\n]*)}{ defined $1 ? "\"\"" : "\n" x ($2 =~ tr/\n//) }gse;
            $text =~ s/\b(atomic_compare_exchange_strong\w*|HF_IN_DOUBT|ERR_peek_\w+)\b//g;
            print "$file:", ++$n, ":$_\n" for split /\n/, $text;
        }'
}

# parts WORDS: of the lines of code those in which one of the words is a part of an identifier.
parts() {
    grep -iE "(\<|_)($1)(\>|_)" | head -n 20
}

code >"$SCRATCH/code"
ok "there is code to read" test -s "$SCRATCH/code"
is "no identifier has a retired word as a part" "$(parts "$(retired identifiers)" <"$SCRATCH/code")" ""
is "nor one that is retired in src alone" \
    "$(grep "^$ROOT/src/" "$SCRATCH/code" | parts "$(retired 'identifiers of src')")" ""
is "no file is called by one" \
    "$(find "${rooms[@]}" "$ROOT/tests" -type f | grep -E "/($(retired files))\.[a-z]+$")" ""
is "no comment uses one" \
    "$(grep -rnwiE --include='*.[ch]' --include='*.def' --include='*.lua' "$(retired prose)" "${rooms[@]}" | head -n 20)" ""
gcc -E -dD -P -I"$ROOT/include" "$ROOT/include/holdfast.h" | grep -oE '\<(hf|HF)_\w+' | sort -u >"$SCRATCH/public"
is "no private name begins like a public one" \
    "$(grep -v "^$ROOT/include/" "$SCRATCH/code" | grep -oE '\<(hf|HF)_\w+' | sort -u | grep -vxFf "$SCRATCH/public" |
        grep -vxE 'HF_STATUS')" ""
is "a base name occurs once" \
    "$(find "${rooms[@]:0:4}" "$ROOT/tests" \( -name '*.[ch]' -o -name '*.def' \) -printf '%f\n' | sort | uniq -d)" ""
printf 'x.c:1:    hf_nudge_it(keeper);\n' >"$SCRATCH/bad"
ok "a retired word would be found" test -n "$(parts "$(retired identifiers)" <"$SCRATCH/bad")"
done_testing
