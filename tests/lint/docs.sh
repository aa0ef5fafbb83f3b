#!/usr/bin/env bash
# docs.sh - what README, CONTRIBUTING and the other texts say is true: their commands run, their C compiles and runs,
# their links lead somewhere, and no text names a path of the machine where it was written.
. "$(dirname "$0")/../lib/tap.sh"

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
        gcc "${strict[@]}" "$example" "$BUILD/libholdfast.a" $(cat "$BUILD/libholdfast.libs") -o "$program-static"
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
    for engine in $(sed -n 's/^ENGINE([a-z_]*, "\([a-z]*\)")/\1/p' src/engines/engines.def); do
        grep -qE "^\| \`([a-z]+\+)?$engine:" README.md || echo "engine $engine is not in README.md"
        grep -qE "^\*([a-z]+\+)?$engine:" man/holdfast.1.scd || echo "engine $engine is not in holdfast(1)"
    done
}
is "README and holdfast(1) name every engine that is built in" "$(engines_agree)" ""

# anchors FILE: the anchors of its headings, made as web pages of Markdown make them.
anchors() {
    awk '/^```/ { inside = !inside } !inside && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" |
        sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g; s/[^[:alnum:] _-]//g; s/ /-/g'
}
# targets FILE: where its links within the tree lead, one a line.
targets() {
    grep -oE '\]\([^) ]+\)' "$1" | tr -d '])(' | grep -vE '^[a-z]+:'
}
broken_links() {
    local file target path
    for file in *.md docs/*.md examples/*.md examples/*/*.md tests/*/*.md; do
        targets "$file" | while read -r target; do
            path=$(dirname "$file")/${target%%#*}
            [ "${target%%#*}" ] || path=$file
            [ -e "$path" ] || { echo "$file: $target" && continue; }
            [[ $target != *#* ]] || anchors "$path" | grep -qxF -- "${target#*#}" || echo "$file: $target: no such heading"
        done
    done
}
is "links between the texts lead somewhere, to a heading too" "$(broken_links)" ""
is "links are found" "$([ "$(targets README.md | wc -l)" -ge 20 ] || targets README.md)" ""
unlisted() {
    local file
    for file in docs/*; do
        case $file in
        docs/README.md | *.svg | *.png | docs/bench) ;;
        *) targets docs/README.md | grep -qxF "${file#docs/}" || echo "$file" ;;
        esac
    done
}
is "docs/README.md lists every page of docs/" "$(unlisted)" ""
pictures_unused() {
    local file
    for file in docs/*.svg docs/*.png docs/bench/*; do
        cat *.md docs/*.md | grep -qF "${file#docs/}" || echo "$file"
    done
}
is "every picture in docs/ is shown by a text" "$(pictures_unused)" ""

# A path under a home directory, or the folder of this very tree, is a path of one machine.
machine_paths() {
    local here
    here=$(sed 's/[].[*^$\\]/\\&/g' <<<"$ROOT")
    find . -path ./.git -prune -o -path './build*' -prune -o -type f -print0 |
        xargs -0 grep -nIE "(^|[^A-Za-z0-9_./-])($here|/home/[a-z]+)(/|\$|[^A-Za-z0-9_])" |
        grep -v -e '^\./tests/lint/docs\.sh:' -e '/home/somebody'
}
is "no file names a path of one machine" "$(machine_paths)" ""
done_testing
