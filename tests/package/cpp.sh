#!/usr/bin/env bash
# cpp.sh - include/holdfast.hpp: compiled without a warning by every standard that it is for, and
# what it promises tried on shared memory and on Redis.
#
#     cpp.sh [COMPILER...]     default: g++
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/servers.sh"

[ $# -gt 0 ] || set -- g++
program=$ROOT/tests/package/consumer/lockable.cpp
library=("$BUILD/libholdfast.a" $(cat "$BUILD/libholdfast.libs"))
strict=(-Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -I"$ROOT/include")
sanitized=(-g -fsanitize=address,undefined -fno-sanitize-recover=all)

# tries URL PROGRAM: a line of TAP for every line that the program prints, and one for its end.
tries() {
    local line where=${1%%:*}
    while read -r line; do
        case $line in
        "ok - "*) result "$where: ${line#ok - }" 0 ;;
        "not ok - "*) result "$where: ${line#not ok - }" 1 ;;
        exit*) is "$where: the program ends" "$line" "exit 0" ;;
        *) echo "# $line" ;;
        esac
    done < <(timeout 60 "$2" "$1" 2>&1; echo "exit $?")
}

for compiler; do
    for standard in 17 20 2b; do # 2b: what older compilers call 23
        ok "$compiler builds the program as C++$standard" "$compiler" -std=c++$standard "${strict[@]}" \
            "${sanitized[@]}" "$program" "${library[@]}" -o "$SCRATCH/lockable-$standard"
    done
    tries "local:$SCRATCH/table" "$SCRATCH/lockable-17"
    tries "local:$SCRATCH/table" "$SCRATCH/lockable-2b"
done
awk '$0 == "```cpp" { inside = 1; next } /^```/ { inside = 0 } inside' "$ROOT/docs/cpp.md" >"$SCRATCH/doc.cpp"
ok "the program of docs/cpp.md compiles" "$1" -std=c++17 "${strict[@]}" "$SCRATCH/doc.cpp" "${library[@]}" -o "$SCRATCH/doc"
like "and runs" "$(HOLDFAST_URL=local:$SCRATCH/doc-table timeout 20 "$SCRATCH/doc")" '^token [0-9]+$'

start_redis
tries "$REDIS_URL" "$SCRATCH/lockable-2b"
done_testing
