#!/usr/bin/env bash
# consumers.sh - programs of others, in C and in C++, are built out of the tree against what was installed, with CMake
# and with pkg-config, shared and static, and run.
. "$(dirname "$0")/../lib/tap.sh"

prefix=$SCRATCH/usr
sources=$ROOT/tests/package/consumer
export HOLDFAST_URL=local:$SCRATCH/table
ok "cmake installs under a prefix" cmake --install "$BUILD" --prefix "$prefix"
config=$(dirname "$(find "$prefix" -name holdfast-config.cmake)")
library=$(dirname "$(find "$prefix" -name libholdfast.so)")
export PKG_CONFIG_PATH=$library/pkgconfig

# uses_library PROGRAM shared|static: whether the program needs libholdfast.so.0.
uses_library() {
    if [ "$2" = shared ]; then
        objdump -p "$1" | grep -q 'NEEDED *libholdfast\.so\.0$'
    else
        ! objdump -p "$1" | grep -q libholdfast
    fi
}
# takes_a_turn WHAT PROGRAM shared|static
takes_a_turn() {
    ok "$1, $3: linked as it should be" uses_library "$2" "$3"
    like "$1, $3: runs" "$(LD_LIBRARY_PATH=$library timeout 20 "$2" 2>&1; echo "exit $?")" \
        'version [0-9.]+: my turn is over.exit 0$'
}

ok "find_package finds it" cmake -S "$sources" -B "$SCRATCH/cmake" -Dholdfast_DIR="$config"
ok "CMake builds the consumers" cmake --build "$SCRATCH/cmake"
for language in c cpp; do
    for how in shared static; do
        takes_a_turn "CMake, $language" "$SCRATCH/cmake/$language-$how" $how
    done
done
mkdir "$SCRATCH/newer" && cp "$sources"/* "$SCRATCH/newer"
sed -i 's/find_package(holdfast 0.2 /find_package(holdfast 0.99 /' "$SCRATCH/newer/CMakeLists.txt"
like "who asks for another minor version is told so" \
    "$(cmake -S "$SCRATCH/newer" -B "$SCRATCH/newer/build" -Dholdfast_DIR="$config" 2>&1; echo "exit $?")" \
    'compatible with requested.*"0\.99".*exit 1$'

read -ra flags < <(pkg-config --cflags --libs holdfast)
read -ra static < <(pkg-config --static --cflags --libs holdfast)
is "pkg-config knows the version" "$(pkg-config --modversion holdfast)" "$("$prefix/bin/holdfast" version | sed -n '1s/.* //p')"
for language in c cpp; do
    compiler=gcc
    [ $language = c ] || compiler=g++
    ok "pkg-config, $language: builds shared" $compiler -Wall -Wextra -Werror "$sources/turn.$language" "${flags[@]}" -o "$SCRATCH/$language"
    takes_a_turn "pkg-config, $language" "$SCRATCH/$language" shared
    ok "pkg-config, $language: builds static" $compiler -Wall -Wextra -Werror "$sources/turn.$language" \
        -Wl,-Bstatic "${static[@]}" -Wl,-Bdynamic -o "$SCRATCH/$language-static"
    takes_a_turn "pkg-config, $language" "$SCRATCH/$language-static" static
done
done_testing
