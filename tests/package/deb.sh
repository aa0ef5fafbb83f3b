#!/usr/bin/env bash
# deb.sh - `make deb` builds packages that lintian has no error for; in a fresh Debian of its own they install, run, are
# built against, serve cron, and leave nothing behind when they are removed. Needs root, or sudo without a password.
. "$(dirname "$0")/../lib/tap.sh"

cd "$ROOT" || exit 70
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
root=$SCRATCH/root
trap '"${as_root[@]}" rm -rf --one-file-system "$SCRATCH"' EXIT

ok "the packages are built, and lintian finds no error" scripts/build-deb "$SCRATCH/deb"
debs=("$SCRATCH"/deb/{libholdfast0,libholdfast-dev,holdfast,python3-holdfast}_*.deb)
is "there are four packages" "$(ls "${debs[@]}" | wc -l)" 4
is "lintian has no warning either" "$(lintian "$SCRATCH"/deb/*.changes 2>/dev/null)" ""
version=$(dpkg-deb -f "${debs[0]}" Version)
like "their version is that of the command" "$("$HOLDFAST" version)" "^holdfast ${version//./\\.}"
fails "the build met no symbol that the stored list lacks, and missed none" grep -E '^[-+] hf_' "$SCRATCH/deb/build.log"

# The fresh root comes from where this machine gets its own packages, with what ours say that they need, and no more.
needs=$(for deb in "${debs[@]}"; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' | sed 's/[(|:].*//; s/ //g' |
    grep -v holdfast | sort -u | paste -sd,)
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk -v release="$codename" '$2 == release { print $1; exit }')
ok "debootstrap makes a fresh $codename" \
    "${as_root[@]}" debootstrap --variant=minbase --include="gcc,g++,libc6-dev,pkg-config,cron,$needs" "$codename" "$root" "$mirror"
for language in cpp python; do
    awk -v open="\`\`\`$language" '$0 == open { inside = 1; next } /^```/ { inside = 0 } inside' docs/$language.md >"$SCRATCH/doc.$language"
done
"${as_root[@]}" cp "${debs[@]}" tests/package/consumer/turn.c "$SCRATCH"/doc.* examples/crontab "$root/srv/"

# inside SCRIPT: runs it in the fresh root, in namespaces of its own for processes and mounts.
inside() {
    "${as_root[@]}" unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" && mkdir -p "$1/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" &&
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv LC_ALL=C chroot "$1" sh -euc "cd /srv; $2"' sh "$root" "$1" 2>&1
}
ok "the packages install there" inside 'dpkg -i /srv/*.deb'
like "the command runs there" "$(inside 'holdfast run job -- sh -c "holdfast list; echo token \$HOLDFAST_TOKEN"')" 'job .*token [0-9]+$'
like "busy is 75 there" "$(inside 'holdfast run job -- sh -c "holdfast run -n job true; echo code=\$?"')" 'code=75'
ok "programs find the shared library" inside 'ldconfig -p | grep -q "libholdfast.so.0 "'
like "a program is built there with pkg-config and runs" \
    "$(inside 'gcc turn.c $(pkg-config --cflags --libs holdfast) -o turn && ./turn')" 'my turn is over'
like "so is the C++ program of docs/cpp.md, with the header of the same package" \
    "$(inside 'g++ -std=c++17 doc.cpp $(pkg-config --cflags --libs holdfast) -o doc && ./doc')" 'token [0-9]+'
like "the program of docs/python.md runs there" "$(inside 'python3 doc.python')" 'my turn, token [0-9]+'
ok "its module is linked to the library of the other package" inside 'ldd /usr/lib/python3/dist-packages/holdfast/_holdfast.abi3.so | grep -q "libholdfast.so.0 => /"'
ok "the manual is there" inside 'test -s /usr/share/man/man1/holdfast-run.1.gz && test -s /usr/share/man/man7/holdfast-guarantees.7.gz'

# cron itself runs the line of examples/crontab, every minute instead of every five.
cron='sed "s|^\*/5 |* |" crontab | crontab - && { cron -f & } && n=0
    while [ $n -lt 130 ] && [ ! -s ~root/mirror.log ]; do sleep 0.5; n=$((n + 1)); done; kill $! && cat ~root/mirror.log'
like "cron runs the line of examples/crontab" "$(inside "$cron")" 'UTC'

ok "the packages can be removed" inside 'dpkg --purge python3-holdfast holdfast libholdfast-dev libholdfast0'
is "and leave nothing behind" "$(inside 'find / -xdev -path /proc -prune -o -path /srv -prune -o -name "*holdfast*" -print')" ""
done_testing
