#!/usr/bin/env bash
# lua.sh - the Lua that runs inside the server, as the build finished it: each text is loaded alone by a Lua 5.1
# interpreter, keeps nothing from one call to the next, and uses no globals but those that servers offer.
. "$(dirname "$0")/../lib/tap.sh"
allowed='^(ARGV|KEYS|error|ipairs|math|pcall|redis|string|table|tonumber|type|unpack)$'

for text in library claiming keeping reading; do
    sed '1s/^#!.*//' "$BUILD/lua/$text.lua" >"$SCRATCH/$text.lua" # the server takes its first line off, too
    ok "$text: Lua 5.1 compiles it" luac5.1 -p "$SCRATCH/$text.lua"
    luac5.1 -l -p "$SCRATCH/$text.lua" >"$SCRATCH/$text.list"
    is "$text: no function assigns a variable outside of it, or a global" \
        "$(grep -cE 'SETUPVAL|SETGLOBAL' "$SCRATCH/$text.list")" 0
    is "$text: it uses these globals alone" \
        "$(awk '$3 == "GETGLOBAL" { print $NF }' "$SCRATCH/$text.list" | sort -u | grep -vE "$allowed" | tr '\n' ' ')" ""
done

# As a server does: FUNCTION LOAD runs the text, in which most globals are not there yet; EVALSHA runs it at every call.
cat >"$SCRATCH/load.lua" <<'LUA'
local names, chunk = {}, assert(loadfile(arg[1]))
setfenv(chunk, { redis = { register_function = function(f) names[#names + 1] = f.function_name end } })
chunk()
table.sort(names)
print(#names, names[1])
LUA
version=$(sed -n "s/^local VERSION = '\(.*\)'/\1/p" "$BUILD/lua/library.lua")
is "the library registers its functions, with no other global than redis" \
    "$(lua5.1 "$SCRATCH/load.lua" "$SCRATCH/library.lua" | tr '\t' ' ')" "14 holdfast_${version}_acquire"
cat >"$SCRATCH/call.lua" <<'LUA'
redis = { pcall = function(name) assert(name == 'SET') return false end }
redis.call = function(name) return name == 'TIME' and { '1700000000', '7' } or false end
KEYS, ARGV = { 'lock', 'counter' }, { 'acquire', ('A'):rep(22), '1000', '0 b 1 host ', 'e - 0 0 1 1', '' }
print(assert(loadfile(arg[1]))())
LUA
is "a script answers from its first part if it can" \
    "$(lua5.1 "$SCRATCH/call.lua" "$SCRATCH/claiming.lua")" 1700000000000007
is "the texts differ in their first two lines alone" \
    "$(for text in library claiming keeping reading; do sed 1,2d "$BUILD/lua/$text.lua" | sha1sum; done | sort -u | wc -l)" 1

# The build leaves comments out. The compiled code may differ in line numbers and addresses alone, and those go here.
code_of() {
    sed '1s/^#!.*//' "$BUILD/lua/$1.lua" >"$SCRATCH/code.lua"
    luac5.1 -l -l -p "$SCRATCH/code.lua" | sed -E 's/0x[0-9a-f]+//g; s/^(main|function) <[^>]*>/\1/; s/\[[0-9-]+\]//; s/\([0-9]+\)//'
}
is "the library has code, and the same one with and without its comments" \
    "$(code_of library | grep -c '^function') $(code_of library | sha1sum)" \
    "$(grep -cE '\bfunction\b' "$BUILD/lua/library.lua") $(code_of commented | sha1sum)"
is "no comment is loaded" "$(grep -cE -- '(^|[^-])-- ' "$BUILD/lua/library.lua")" 0
done_testing
