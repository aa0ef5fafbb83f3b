#!/usr/bin/env bash
# check_models.sh - lets spin look at every state of the models in this folder, and at models with a planted bug until it is found.
#
#     tests/models/check_models.sh [quick|nightly]
#
# Two checks at a time; one line each as they end, in TAP: the states that were explored and the time, or the bug. `quick`
# has the smaller bounds, `nightly` larger ones. Exit status 1 if a model fails, is not explored to its end, or a planted bug is not found.
. "$(dirname "$0")/../lib/tap.sh"

models=$ROOT/tests/models
patience=110 # seconds of a processor for one check: others may be busy

# explore DIRECTORY MODEL FLAGS DEFINES...: leaves what pan says in DIRECTORY/out.
explore() {
    local dir=$1 model=$2 flags=$3
    shift 3
    mkdir -p "$dir" && cd "$dir" || return 70
    spin -a "$@" "$models/$model.pml" >out 2>&1 || return 70
    # A list of words, unquoted on purpose.
    gcc $flags -w -DSAFETY -DMEMLIM=6000 -o pan pan.c >>out 2>&1 || return 70
    ulimit -t $patience
    ./pan -n -m1000000 >>out 2>&1
}

states_of() {
    awk '/states, stored/ { print $1 } /elapsed time/ { time = $4 } END { print time }' "$1/out" | xargs
}

# judge NUMBER KIND NAME DIRECTORY STATUS: one line.
judge() {
    local states seconds said
    read -r states seconds < <(states_of "$4")
    said="$3: ${states:-no} states in ${seconds:-?} s"
    if [ "$5" -ne 0 ]; then
        echo "not ok $1 - $3: did not end within $patience s, or could not be built"
        tail -n 5 "$4/out" | sed 's/^/# /'
    elif [ "$2" = plant ] && grep -q 'errors: 1$' "$4/out"; then
        echo "ok $1 - $said: found, $(sed -n 's/^pan:1: \(assertion violated\|invalid end state\).*(at depth \([0-9]*\))/\1 at depth \2/p' "$4/out")"
    elif [ "$2" = whole ] && grep -q 'errors: 0$' "$4/out" && ! grep -qE 'search not completed|max search depth' "$4/out"; then
        echo "ok $1 - $said: every state is right"
    else
        echo "not ok $1 - $said: $([ "$2" = plant ] && echo "the planted bug was not found" || echo "a state is wrong, or not all were seen")"
        grep '^pan:' "$4/out" | sed 's/^/# /'
    fi
}

# The lines of bounds and plants: kind, model, name, defines.
checks() {
    local without='^(#|night )'
    case ${1:-} in
    quick) without='^(#|night |long )' ;;
    nightly) without='^#' ;;
    esac
    grep -vE "$without" "$models/bounds"
}

one() {
    local number=$1 kind=$2 model=$3 flags=-O2
    shift 3
    # A planted bug is found in a moment: most of the time would go into the compiler's optimisation. Breadth first finds
    # the shortest way to it.
    case $kind in
    long | night) kind=whole ;;
    plant) flags='-O0 -DBFS' ;;
    deep) kind=plant flags=-O0 ;;
    esac
    local name="$model $*"
    (explore "$SCRATCH/$number" "$model" "$flags" "$@")
    local status=$?
    judge "$number" "$kind" "$kind of ${name//-D/}" "$SCRATCH/$number" $status
    rm -rf "${SCRATCH:?}/$number"
}

command -v spin >/dev/null || { echo "spin is missing: run scripts/install-packages test" >&2 && exit 1; }
number=0
while read -r kind model defines; do
    [ -n "$kind" ] || continue
    number=$((number + 1))
    while [ "$(jobs -pr | wc -l)" -ge 2 ]; do wait -n; done
    # Lists of words are unquoted on purpose.
    one $number "$kind" "$model" $defines | tee -a "$SCRATCH/lines" &
done < <(checks "${1:-}")
wait
echo "1..$number"
[ "$(grep -c '^ok ' "$SCRATCH/lines")" -eq $number ]
