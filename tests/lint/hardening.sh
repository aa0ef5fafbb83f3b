#!/usr/bin/env bash
# hardening.sh - what `make` builds is hardened as the packages are: protected stacks, fortified calls, addresses that are
# bound at the start and read-only afterwards, no executable stack, and a program that can be loaded anywhere.
. "$(dirname "$0")/../lib/tap.sh"


# imports FILE PATTERN: the file calls such a function of the C library.
imports() { nm -D --undefined-only "$1" | grep -qE "$2"; }
segment() { readelf -lW "$1" | grep -E "^ *$2 "; }
is_bound_now() { readelf -dW "$1" | grep -qE 'BIND_NOW|FLAGS_1.*NOW'; }
has_plain_stack() { segment "$1" GNU_STACK | grep -q ' RW ' && ! segment "$1" GNU_STACK | grep -q RWE; }
is_anywhere() { readelf -hW "$1" | grep -q 'Type:.*DYN'; }

for file in "$BUILD/holdfast" "$BUILD/libholdfast.so"; do
    name=${file##*/}
    ok "$name: stacks are protected" imports "$file" '__stack_chk_fail'
    ok "$name: calls are fortified" imports "$file" '__(memcpy|snprintf|vsnprintf|sprintf|strcpy|fprintf)_chk'
    ok "$name: addresses are bound at the start" is_bound_now "$file"
    ok "$name: and are read-only afterwards" segment "$file" GNU_RELRO
    ok "$name: the stack is not executable" has_plain_stack "$file"
    ok "$name: can be loaded anywhere" is_anywhere "$file"
done
done_testing
