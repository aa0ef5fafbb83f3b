#!/bin/sh
# core_is_pure.sh - checks with nm that the object files of core, given as arguments, call nothing but each other, memcpy
# and memset: no clock, no malloc, no I/O, no thread. What sanitizers add is not counted. Prints TAP.
echo "1..1"
if [ $# -eq 0 ]; then
    echo "not ok 1 - core_is_pure.sh needs the object files of core as arguments"
    exit 1
fi
symbols=$(nm -u "$@") || {
    echo "not ok 1 - nm cannot read the object files of core"
    exit 1
}
foreign=$(echo "$symbols" | sed -n 's/^ *[Uwv] //p' | sort -u |
    grep -Ev '^(hf_.*|memcpy|memset|_GLOBAL_OFFSET_TABLE_|__(asan|ubsan|tsan|sanitizer)_.*)$')
if [ -n "$foreign" ]; then
    echo "$foreign" | sed 's/^/# core calls /'
    echo "not ok 1 - core is pure"
    exit 1
fi
echo "ok 1 - core is pure: its $# object files call neither clock, malloc, I/O nor threads"
