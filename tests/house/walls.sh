#!/usr/bin/env bash
# walls.sh - a source that includes a header of a room it may not see does not compile, one that includes a header of a
# room below does; tried with the flags of a real file of the same room.
. "$(dirname "$0")/../tap.sh"

# flags REGEX: the compiler's include and language flags for the first source of that name.
flags() {
    jq -r --arg file "$1" '[.[] | select(.file | test($file))][0].command // empty' "$BUILD/compile_commands.json" |
        grep -oE -- '(-I|-isystem )[^ ]+|-D[^ ]+|-std=[^ ]+'
}

# try FOLDER HEADER: compiles a source that would lie in FOLDER and includes HEADER. The include paths are the room's
# own; the source lies elsewhere, so headers of the same folder are not in question here.
try() {
    local flags
    mapfile -t flags < <(flags "$ROOT/$1/[^/]+\\.c\$")
    [ ${#flags[@]} -gt 0 ] || { echo "no source of $1 in compile_commands.json" && return 2; }
    printf '#include "%s"\nint nothing;\n' "$2" >"$SCRATCH/try.c"
    gcc "${flags[@]}" -fsyntax-only "$SCRATCH/try.c"
}

# is_walled_off FOLDER HEADER: only a missing header counts; a source that fails for another reason proves nothing.
is_walled_off() {
    local output
    output=$(try "$1" "$2" 2>&1) && { echo "it compiled" && return 1; }
    grep -qF "$2: No such file" <<<"$output" || { echo "$output" && return 1; }
}

header_of() {
    (cd "$ROOT/src" && find "$1" -maxdepth 1 -name '*.h' | sort | head -n 1)
}

# room FOLDER SEES...: every other room of the house is behind a wall.
room() {
    local folder=$1 other header
    shift
    for other in client engines core net sys base; do
        [ "src/$other" != "$folder" ] || continue
        header=$(header_of $other)
        [ -n "$header" ] || { result "$other has a header to try" 1 && continue; }
        if [[ " $* " == *" $other "* ]]; then
            ok "$folder may include $header" try "$folder" "$header"
        else
            ok "$folder cannot include $header" is_walled_off "$folder" "$header"
        fi
    done
    ok "$folder may include holdfast.h" try "$folder" holdfast.h
}

room src/base
room src/sys base
room src/net sys base
room src/core base
room src/engines/wire engines net core sys base
room src/engines/local engines core sys base
room src/engines core sys base
room src/client engines core sys base
room cli
room server

no_way_around() {
    ! grep -rnE '#[[:space:]]*include[[:space:]]+"(\.\./|/)' "$ROOT/src" "$ROOT/cli" "$ROOT/server" "$ROOT/include"
}
ok "no source climbs over a wall with ../ or an absolute path" no_way_around

# Their folder holds the engines' own, so a view cannot keep this one out.
registry_knows_no_engine_inside() {
    ! grep -nE '#[[:space:]]*include[[:space:]]+"(engines/)?local/' "$ROOT"/src/{engines/,client/,}*.[ch]
}
ok "nobody outside an engine's folder includes its headers" registry_knows_no_engine_inside

public_symbols_outside_api() {
    local declared
    declared=$("$ROOT/tests/house/public_symbols" | paste -sd'|')
    ! find "$BUILD"/CMakeFiles/room-*.dir -name '*.o' -not -path '*/room-api.dir/*' -exec nm --defined-only {} + |
        awk 'NF == 3 { print $3 }' | grep -xE "$declared"
}
ok "public symbols are defined in src/api*.c alone" public_symbols_outside_api
done_testing
