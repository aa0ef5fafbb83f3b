#!/usr/bin/env bash
# python.sh - the Python package as `make python` lays it out, on shared memory and on Redis.
#
#     python.sh [GROUP [PYTHON]]     default: core, and Debian's Python
#
# core is what the package promises, its types and its pages; apps the recipes with Celery, Django and gunicorn
# (HF_TASKS: how many tasks); gil what others do while C code keeps the GIL; bars what a lock costs beside redis-py's.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/servers.sh"

group=${1:-core} python=${2:-/usr/bin/python3}
folder=$ROOT/bindings/python/tests
[ "$group" = core ] || folder+=/$group
package=${HF_PACKAGE:-$BUILD/python}
export PYTHONPATH=$package:$ROOT/bindings/python/tests PYTHONDONTWRITEBYTECODE=1 PYTHONDEVMODE=1 HF_LIBRARY=$BUILD/libholdfast.so
[ "$group" != bars ] || unset PYTHONDEVMODE
# A module that was built with ASan needs its library first in the process. What Python itself never frees is no leak.
preload=()
if nm -D "$package"/holdfast/_holdfast*.so | grep -q __asan_init; then
    preload=(env "LD_PRELOAD=$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0)
fi
if ! "${preload[@]}" "$python" -c 'import holdfast' 2>"$SCRATCH/errors"; then
    result "the package can be imported" 1 "$(cat "$SCRATCH/errors")"
    done_testing
    exit 1
fi
start_redis || exit 70
# To a file and not to a pipe: a process that a test left behind would keep the pipe open.
HF_TEST_URLS="local:$SCRATCH/table redis://127.0.0.1:$REDIS_PORT" "${preload[@]}" "$python" "$ROOT/tests/lib/unittest_tap.py" \
    "$folder" 2>"$SCRATCH/errors" >"$SCRATCH/tap"
grep -v '^1\.\.' "$SCRATCH/tap"
tests_done=$(grep -cE '^(not )?ok ' "$SCRATCH/tap")
ok "every test was run" grep -qx "1..$tests_done" "$SCRATCH/tap"
sed 's/^/# /' "$SCRATCH/errors" | head -n 40
[ "$group" = core ] || { done_testing && exit; }

# blocks FILE: its programs in Python.
blocks() {
    awk '$0 == "```python" { inside = 1; next } /^```/ { inside = 0 } inside' "$1"
}
for page in docs/python.md bindings/python/README.md; do
    blocks "$ROOT/$page" >"$SCRATCH/doc.py"
    like "the program of $page runs" "$(HOLDFAST_URL=local:$SCRATCH/doc timeout 20 "${preload[@]}" "$python" "$SCRATCH/doc.py" 2>&1)" \
        '^my turn, token [0-9]+$'
done

if [ ${#preload[@]} -eq 0 ]; then
    typed() {
        (cd "$package" && MYPY_CACHE_DIR=$SCRATCH/mypy mypy --strict --ignore-missing-imports -p holdfast)
    }
    ok "mypy --strict has nothing to say" typed
fi
done_testing
