#!/usr/bin/env bash
# docs.sh - what README, CONTRIBUTING and the other texts say is true: their commands run, their C compiles and runs,
# their links lead somewhere, and no text names a path of the machine where it was written.
. "$(dirname "$0")/../tap.sh"

cd "$ROOT" || exit 70
export HOLDFAST_URL=local:$SCRATCH/table PATH=$BUILD:$PATH

# blocks LANGUAGE FILE: the fenced blocks of that language.
blocks() {
    awk -v open="\`\`\`$1" '$0 == open { inside = 1; next } /^```/ { inside = 0 } inside' "$2"
}

# runs LINE: one command of a text. Goals of make are only looked up: this test is itself part of one.
runs() {
    case $1 in
    make*) make -n ${1#make} >/dev/null ;;
    *) timeout 20 bash -c "$1" ;;
    esac
}

for text in README.md CONTRIBUTING.md; do
    while IFS= read -r line; do
        line=${line%%  #*}
        ok "$text: $(sed 's/ *$//' <<<"$line")" runs "$(sed "s/ONLY='[^']*'//" <<<"$line")"
    done < <(blocks sh $text)
done

strict=(-std=c17 -Wall -Wextra -Wconversion -Wshadow -Werror -I"$ROOT/include")
blocks c README.md >"$SCRATCH/readme.c"
is "the C example of README is examples/turn.c" "$(cat "$SCRATCH/readme.c")" "$(sed 1d examples/turn.c)"
for example in examples/*.c; do
    program=$SCRATCH/$(basename "$example" .c)
    ok "$example compiles against the static library" \
        gcc "${strict[@]}" "$example" "$BUILD/libholdfast.a" -lhiredis -lssl -lcrypto -pthread -o "$program-static"
    ok "$example compiles against the shared library" \
        gcc "${strict[@]}" "$example" -L"$BUILD" -lholdfast -Wl,-rpath,"$BUILD" -o "$program"
    ok "$example runs with the static library" timeout 20 "$program-static"
    ok "$example runs with the shared library" timeout 20 "$program"
done

exit_codes_agree() {
    local code
    for code in $(sed -n 's/^HF_STATUS([A-Z_]*, [0-9]*, \([0-9]*\),.*/\1/p' include/holdfast/status.def | sort -un); do
        [ "$code" -eq 0 ] || grep -q "^| $code |" README.md || echo "exit code $code of status.def is not in README.md"
    done
}
is "README explains every exit code of status.def" "$(exit_codes_agree)" ""

engines_agree() {
    local engine
    for engine in $(sed -n 's/^HF_ENGINE([a-z_]*, "\([a-z]*\)")/\1/p' src/engines/engines.def); do
        grep -q "^| \`$engine:" README.md || echo "engine $engine is not in README.md"
    done
}
is "README names every engine that is built in" "$(engines_agree)" ""

broken_links() {
    local file target
    for file in *.md docs/*.md; do
        [ -e "$file" ] || continue
        grep -oE '\]\([^)#:]+\)' "$file" | tr -d '])(' | while read -r target; do
            [ -e "$(dirname "$file")/$target" ] || echo "$file: $target"
        done
    done
}
is "links between the texts lead somewhere" "$(broken_links)" ""

# A path under a home directory, or the folder of this very tree, is a path of one machine.
machine_paths() {
    local here
    here=$(sed 's/[].[*^$\\]/\\&/g' <<<"$ROOT")
    find . -path ./.git -prune -o -path './build*' -prune -o -type f -print0 |
        xargs -0 grep -nIE "(^|[^A-Za-z0-9_./-])($here|/home/[a-z]+)(/|\$|[^A-Za-z0-9_])" |
        grep -v -e '^\./tests/house/docs\.sh:' -e '/home/somebody'
}
is "no file names a path of one machine" "$(machine_paths)" ""
done_testing
