#!/usr/bin/env bash
# exports.sh - what libholdfast.so exports is what include/holdfast.h declares, no more and no less.
. "$(dirname "$0")/../tap.sh"

exported() {
    nm -D --defined-only "$BUILD/libholdfast.so" | awk '{ print $3 }' | LC_ALL=C sort -u
}

"$ROOT/tests/house/public_symbols" >"$SCRATCH/declared"
exported >"$SCRATCH/exported"
ok "the header declares the functions that everybody needs" grep -qx hf_acquire "$SCRATCH/declared"
is "every function of the header is exported" "$(comm -23 "$SCRATCH/declared" "$SCRATCH/exported")" ""
is "nothing else is exported" "$(comm -13 "$SCRATCH/declared" "$SCRATCH/exported")" ""
soname=$(objdump -p "$BUILD/libholdfast.so" | awk '$1 == "SONAME" { print $2 }')
like "the library carries its version in its soname" "$soname" '^libholdfast\.so\.[0-9]+$'
done_testing
