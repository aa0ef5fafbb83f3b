#!/usr/bin/env bash
# install.sh - `make install` lays everything down under DESTDIR and prefix, and `make uninstall` takes all of it away and
# nothing else.
. "$(dirname "$0")/../tap.sh"

cd "$ROOT" || exit 70
made=(make --no-print-directory JOBS=1 "builddir=$BUILD" prefix=/opt/holdfast "DESTDIR=$SCRATCH")
tree=$SCRATCH/opt/holdfast
mkdir -p "$tree/bin" "$tree/include"
echo mine >"$tree/bin/mine"
echo mine >"$tree/include/mine.h"

ok "make install" "${made[@]}" install
export HOLDFAST_URL=local:$SCRATCH/table
like "the installed command runs" "$("$tree/bin/holdfast" version)" '^holdfast [0-9]+\.[0-9]+\.[0-9]+'
for file in include/holdfast.h include/holdfast/status.def 'lib*/libholdfast.a' 'lib*/libholdfast.so' 'lib*/libholdfast.so.0' \
    'lib*/pkgconfig/holdfast.pc' 'lib*/cmake/holdfast/holdfast-config.cmake' share/man/man1/holdfast.1 share/man/man1/holdfast-run.1 \
    share/man/man3/libholdfast.3 share/man/man3/hf_acquire.3 share/man/man3/hf_cancel.3 share/man/man7/holdfast-guarantees.7; do
    found=$(compgen -G "$tree/$file" | head -n 1)
    ok "$file is there and not empty" test -s "$found"
done
is "pkg-config is told the prefix, not DESTDIR" \
    "$(PKG_CONFIG_PATH=$(dirname "$(find "$tree" -name holdfast.pc)") pkg-config --variable=prefix holdfast)" /opt/holdfast
is "no installed file names the tree that it was built in" "$(grep -rlIF "$ROOT" "$tree")" ""

ok "make uninstall" "${made[@]}" uninstall
is "only what others put there stays" "$(cd "$tree" && find . ! -type d | LC_ALL=C sort)" $'./bin/mine\n./include/mine.h'
ok "make uninstall a second time has nothing to do" "${made[@]}" uninstall
done_testing
