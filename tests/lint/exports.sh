#!/usr/bin/env bash
# exports.sh - what libholdfast.so exports is what include/holdfast.h declares and packaging/libholdfast.symbols has
# stored, no more and no less: a symbol that vanishes would break programs that were linked before.
. "$(dirname "$0")/../lib/tap.sh"

list=$ROOT/packaging/libholdfast.symbols
exported() {
    nm -D --defined-only "$BUILD/libholdfast.so" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort -u
}
differs() {
    diff "$1" "$2" | grep '^[<>]'
}

"$ROOT/tests/lint/public_symbols" >"$SCRATCH/declared"
exported >"$SCRATCH/versioned"
sed 's/@.*//' "$SCRATCH/versioned" >"$SCRATCH/exported"
sed -n 's/^ \(hf_[^ ]*\) .*/\1/p' "$list" | sed 's/@/@@/' | LC_ALL=C sort >"$SCRATCH/stored"
ok "the header declares the functions that everybody needs" grep -qx hf_acquire "$SCRATCH/declared"
is "every function of the header is exported" "$(comm -23 "$SCRATCH/declared" "$SCRATCH/exported")" ""
is "nothing else is exported" "$(comm -13 "$SCRATCH/declared" "$SCRATCH/exported")" ""
is "each under the version that the stored list gives it" "$(differs "$SCRATCH/stored" "$SCRATCH/versioned")" ""
is "the stored list is in byte order" "$(sed -n 's/^ \(hf_[^@]*\)@.*/\1/p' "$list")" \
    "$(sed -n 's/^ \(hf_[^@]*\)@.*/\1/p' "$list" | LC_ALL=C sort)"
unversioned() {
    nm -D --defined-only "$BUILD/libholdfast.so" | awk '$3 !~ /@@HOLDFAST_[0-9]+$/ && $3 !~ /^HOLDFAST_[0-9]+/ { print $3 }'
}
is "no symbol is exported without a version" "$(unversioned)" ""
archived() {
    nm -g --defined-only "$BUILD/libholdfast.a" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort -u
}
is "the static library shows the same symbols and no others" "$(archived)" "$(cat "$SCRATCH/declared")"
soname=$(objdump -p "$BUILD/libholdfast.so" | awk '$1 == "SONAME" { print $2 }')
is "the library carries its version in its soname" "$soname" libholdfast.so.0
is "and the stored list is for that one" "$(head -n 1 "$list" | cut -d' ' -f1)" "$soname"
done_testing
