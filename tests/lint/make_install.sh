#!/usr/bin/env bash
# make_install.sh - what `cmake --install` lays down is enough: the command runs, and a program finds header and library.
. "$(dirname "$0")/../lib/tap.sh"

prefix=$SCRATCH/usr
export HOLDFAST_URL=local:$SCRATCH/table
ok "cmake installs under a prefix" cmake --install "$BUILD" --prefix "$prefix" --strip
ok "the installed command says its version" "$prefix/bin/holdfast" version
library=$(dirname "$(find "$prefix" -name libholdfast.so)")
ok "a program is built against what was installed" gcc -std=c17 -Wall -Werror "$ROOT/examples/turn.c" \
    -I"$prefix/include" -L"$library" -lholdfast -Wl,-rpath,"$library" -o "$SCRATCH/turn"
ok "the program takes its turn" timeout 20 "$SCRATCH/turn"
like "it uses the installed library" "$(ldd "$SCRATCH/turn")" "$library/libholdfast\\.so"
done_testing
