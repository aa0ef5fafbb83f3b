#!/usr/bin/env bash
# headers.sh - the public header compiles alone, as every language that it promises to serve.
. "$(dirname "$0")/../lib/tap.sh"

printf '#include <holdfast.h>\nint main(void) { return hf_status_exit_code(HF_OK); }\n' >"$SCRATCH/user.c"
strict=(-Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -fsyntax-only -I"$ROOT/include")
for standard in c11 c17; do
    ok "a program that includes nothing but holdfast.h compiles as $standard" \
        gcc -std=$standard "${strict[@]}" "$SCRATCH/user.c"
done
for standard in c++17 c++20; do
    ok "a program that includes nothing but holdfast.h compiles as $standard" \
        g++ -x c++ -std=$standard "${strict[@]}" "$SCRATCH/user.c"
done
printf '#include <holdfast.h>\n#include <holdfast.h>\nint nothing;\n' >"$SCRATCH/twice.c"
ok "the header may be included twice" gcc -std=c11 "${strict[@]}" "$SCRATCH/twice.c"
done_testing
