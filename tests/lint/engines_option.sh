#!/usr/bin/env bash
# engines_option.sh - HF_ENGINES: a library with fewer engines is built and says which were left out, and why.
. "$(dirname "$0")/../lib/tap.sh"

# configure DIR OPTION...: what CMake says goes to DIR.log.
configure() {
    local dir=$SCRATCH/$1
    shift
    cmake -S "$ROOT" -B "$dir" "$@" >"$dir.log" 2>&1
}
made() {
    sed -n 's/^ENGINE(\([a-z]*\)_engine.*/\1/p' "$SCRATCH/$1/generated/built_engines.def" | paste -sd' '
}
left_out() {
    grep "^ENGINE_LEFT_OUT(\"$2\", " "$SCRATCH/$1/generated/built_engines.def"
}

ok "HF_ENGINES=local is configured" configure local -DHF_ENGINES=local -DCMAKE_BUILD_TYPE=Debug
is "it has that engine alone" "$(made local)" local
like "redis was left out" "$(left_out local redis)" 'it is not in HF_ENGINES'
cat >"$SCRATCH/try.c" <<'END'
#include "holdfast.h"
#include <stdio.h>
int main(void)
{
    hf_client *client;
    printf("%s\n%s", hf_engines(), hf_engines_left_out());
    if (hf_open("redis://127.0.0.1:1", NULL, &client) != HF_OK)
        printf("%s\n", hf_error_text());
    return hf_open("local:/nowhere/at/all?history=1", NULL, &client) == HF_OK;
}
END
build_and_try() {
    cmake --build "$SCRATCH/local" -j 2 --target holdfast-shared >"$SCRATCH/build.log" 2>&1 &&
        gcc -std=c17 -I"$ROOT/include" "$SCRATCH/try.c" -L"$SCRATCH/local" -lholdfast -Wl,-rpath,"$SCRATCH/local" -o "$SCRATCH/try" &&
        "$SCRATCH/try" >"$SCRATCH/said"
}
ok "a library without servers is built, and a program runs with it" build_and_try
is "it says what it has" "$(head -n 1 "$SCRATCH/said")" local
like "and what was left out" "$(cat "$SCRATCH/said")" 'redlock: it is not in HF_ENGINES'
like "an URL of another engine is refused with the reason" "$(cat "$SCRATCH/said")" \
    'redis: no such engine; this library has local; left out: redis: it is not in HF_ENGINES'
fails "it is not linked with hiredis" grep -q hiredis <(ldd "$SCRATCH/local/libholdfast.so")

ok "a machine without hiredis is configured" configure poor -DHF_LIBRARY_hiredis=OFF
fails "there redis is not built" grep -qw redis <<<"$(made poor)"
like "because a library is missing, whose package is named" "$(left_out poor redis)" \
    'libhiredis was not found .Debian: libhiredis-dev.'
like "and redlock because of redis" "$(left_out poor redlock)" 'it needs the engine redis, which is left out'
fails "an engine that is asked for and cannot be built is an error" configure asked -DHF_ENGINES=local,redis -DHF_LIBRARY_hiredis=OFF
like "which names the library" "$(cat "$SCRATCH/asked.log")" 'HF_ENGINES asks for redis: libhiredis was not found'
fails "an engine that does not exist is an error" configure unknown -DHF_ENGINES=local,banana
like "which names it" "$(cat "$SCRATCH/unknown.log")" 'HF_ENGINES names banana: there is no such engine'
done_testing
