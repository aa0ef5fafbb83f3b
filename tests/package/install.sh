#!/usr/bin/env bash
# install.sh - `make install` lays everything down under DESTDIR and prefix, and `make uninstall` takes all of it away and
# nothing else.
. "$(dirname "$0")/../lib/tap.sh"

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
is "only what others put there stays, and no empty folder" "$(cd "$tree" && find . -mindepth 1 | LC_ALL=C sort)" \
    $'./bin\n./bin/mine\n./include\n./include/mine.h'
rm -r "$tree/bin/mine" "$tree/include"
ok "make uninstall a second time has nothing to do" "${made[@]}" uninstall
fails "but for what is empty by then, and the prefix itself" test -e "$tree"
ok "where the prefix is in stays" test -d "$SCRATCH/opt"

# A prefix of the system's: its folders stay, ours go.
made=(make --no-print-directory JOBS=1 "builddir=$BUILD" prefix=/usr/local "DESTDIR=$SCRATCH/root")
ok "make install into a folder of the system" "${made[@]}" install
ok "make uninstall there" "${made[@]}" uninstall
ok "the system's folders stay" test -d "$SCRATCH/root/usr/local/bin" -a -d "$SCRATCH/root/usr/local/share/man"
is "and nothing of ours" "$(find "$SCRATCH/root" ! -type d -o -name '*holdfast*')" ""
done_testing
