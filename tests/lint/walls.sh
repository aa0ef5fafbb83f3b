#!/usr/bin/env bash
# walls.sh - every pair of rooms: a source of one room can include just those headers of the other that it may see. Tried
# with the flags of a real file of the same room.
. "$(dirname "$0")/../lib/tap.sh"

# flags FOLDER: the compiler's include and language flags for the first source of that folder.
flags() {
    jq -r --arg file "$ROOT/$1/[^/]+\\.c\$" '[.[] | select(.file | test($file))][0].command // empty' \
        "$BUILD/compile_commands.json" | grep -oE -- '(-I|-isystem )[^ ]+|-D[^ ]+|-std=[^ ]+'
}

# headers FOLDER: the headers and tables of one folder of src/, as another room would write them.
headers() {
    (cd "$ROOT/src" && find "$1" -maxdepth 1 \( -name '*.h' -o -name '*.def' \) | sort)
}

# seen FOLDER: all headers of src/ that a source in FOLDER could include. The source lies elsewhere, so that headers of its
# own folder count only if its include paths lead there.
seen() {
    local flags header
    mapfile -t flags < <(flags "$1")
    [ ${#flags[@]} -gt 0 ] || { echo "no source of $1 in compile_commands.json" && return 2; }
    for header in $all; do
        printf '#if __has_include("%s")\nseen %s\n#endif\n' "$header" "$header"
    done >"$SCRATCH/try.c"
    gcc "${flags[@]}" -E -P "$SCRATCH/try.c" | awk '$1 == "seen" { print $2 }' | sort
}

# compiles FOLDER HEADER: a source of FOLDER that includes HEADER.
compiles() {
    local flags
    mapfile -t flags < <(flags "$1")
    printf '#include "%s"\nint nothing;\n' "$2" >"$SCRATCH/try.c"
    gcc "${flags[@]}" -fsyntax-only "$SCRATCH/try.c"
}

ROOMS=(base sys net core engines engines/io engines/kit engines/local engines/redis engines/redlock engines/sentinel engines/cluster engines/postgres engines/etcd engines/consul engines/zookeeper client)
all=$(for room in "${ROOMS[@]}"; do headers "$room"; done)

# room FOLDER SEES...: SEES are rooms, of which all headers are seen, or single headers.
room() {
    local folder=$1 other allowed first
    shift
    seen "$folder" >"$SCRATCH/seen"
    for other in "${ROOMS[@]}"; do
        [ "src/$other" != "$folder" ] || continue
        allowed=$(headers "$other" | grep -xF "$(printf '%s\n' "$@")")
        [[ " $* " != *" $other "* ]] || allowed=$(headers "$other")
        is "$folder sees of $other: $(wc -w <<<"$allowed") of $(headers "$other" | wc -l) headers" \
            "$(headers "$other" | grep -xFf "$SCRATCH/seen")" "$allowed"
        first=$(grep -m 1 '\.h$' <<<"$allowed")
        [ -z "$first" ] || ok "$folder may include $first" compiles "$folder" "$first"
    done
    ok "$folder may include holdfast.h" compiles "$folder" holdfast.h
}

door="engines/engine.h engines/admin.h"
wire_door="$door engines/wire_engine.h engines/wire_settings.def"
room src/base
room src/sys base
room src/net sys base
room src/core base
room src/engines core sys base
room src/engines/io $wire_door net core sys base
room src/engines/local $door core sys base
room src/engines/kit $wire_door core sys base
wire_engine="$wire_door engines/io/io_driver.h engines/kit core sys base"
room src/engines/redis $wire_engine
room src/engines/redlock $wire_engine engines/redis/quorum_member.h engines/redis/redis_member.h
room src/engines/sentinel $wire_engine engines/redis/followed_server.h engines/redis/redis_member.h engines/redis/resp.h
room src/engines/cluster $wire_engine engines/redis/cluster_member.h engines/redis/followed_server.h engines/redis/key_slot.h engines/redis/redis_member.h engines/redis/resp.h
room src/engines/postgres $wire_engine
room src/engines/etcd $wire_engine
room src/engines/consul $wire_engine
room src/engines/zookeeper $wire_engine
room src/client $door core sys base
room src client $door core sys base
room cli
room server

# each_has_headers: a room without a header would be tried in vain.
each_has_headers() {
    local room
    for room in "${ROOMS[@]}"; do
        [ -n "$(headers "$room")" ] || echo "$room"
    done
}
is "every room has a header to try" "$(each_has_headers)" ""
is "every folder of src is a room" \
    "$(cd "$ROOT/src" && find . -mindepth 1 -type d ! -path ./engines/redis/scripts ! -path ./engines/postgres/sql -printf '%P\n' | sort)" \
    "$(printf '%s\n' "${ROOMS[@]}" | sort)"

no_way_around() {
    ! grep -rnE '#[[:space:]]*include[[:space:]]+"(\.\./|/)' "$ROOT/src" "$ROOT/cli" "$ROOT/server" "$ROOT/include"
}
ok "no source climbs over a wall with ../ or an absolute path" no_way_around

# Sources in src and src/engines could include headers of the folders beside them, whatever their view is.
nobody_reaches_below() {
    ! grep -nE '#[[:space:]]*include[[:space:]]+"(engines/)?(io|kit|local|redis|redlock|sentinel|cluster|postgres|etcd|consul|zookeeper)/' "$ROOT"/src/{engines/,}*.[ch]
}
ok "nobody outside an engine's folder includes its headers" nobody_reaches_below

public_symbols_outside_api() {
    local declared
    declared=$("$ROOT/tests/lint/public_symbols" | paste -sd'|')
    ! find "$BUILD"/CMakeFiles/room-*.dir -name '*.o' -not -path '*/room-api.dir/*' -exec nm --defined-only {} + |
        awk 'NF == 3 { print $3 }' | grep -xE "$declared"
}
ok "public symbols are defined in src/api*.c alone" public_symbols_outside_api
done_testing
