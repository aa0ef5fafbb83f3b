#!/usr/bin/env bash
# wheel.sh - `make wheel` without a network: the source package holds all that a build needs, the wheel is one for every CPython from
# 3.9 on, pip installs it into an empty environment, and what is installed there passes the tests.
#
#     wheel.sh [PYTHON...]     more interpreters, which get the same wheel
. "$(dirname "$0")/../lib/tap.sh"

cd "$ROOT" || exit 70
ok "the source package and the wheel are built" "$ROOT/scripts/build-wheel" "$SCRATCH/dist"
wheel=$(ls "$SCRATCH"/dist/*.whl)
version=$("$HOLDFAST" version | sed -n '1s/.* //p')
like "the wheel is for the stable ABI" "$(basename "$wheel")" "^holdfast-${version//./\\.}-cp39-abi3-linux_[a-z0-9_]+\.whl$"
is "it has the package and no more" "$(python3 -m zipfile -l "$wheel" | awk 'NR > 1 { print $1 }' | grep -v dist-info | LC_ALL=C sort | xargs)" \
    "holdfast/__init__.py holdfast/_holdfast.abi3.so holdfast/_holdfast.pyi holdfast/aio.py holdfast/py.typed holdfast/redis.py"

ok "an environment of its own" /usr/bin/python3 -m venv "$SCRATCH/venv"
python=$SCRATCH/venv/bin/python
ok "pip installs the wheel without an index" "$python" -m pip install --no-index --quiet "$wheel"
is "pip knows it" "$("$python" -m pip list --format freeze 2>/dev/null | grep holdfast)" "holdfast==$version"
module=$(echo "$SCRATCH"/venv/lib/python3*/site-packages/holdfast/_holdfast.abi3.so)
is "it needs OpenSSL and the C library, and nothing else" \
    "$(objdump -p "$module" | awk '$1 == "NEEDED" { print $2 }' | grep -vE '^(lib(c|m|ssl|crypto)|ld-linux.*)\.so' )" ""
is "it shows Python its entry and nothing else" \
    "$(nm -D --defined-only "$module" | awk '{ print $3 }' | xargs)" PyInit__holdfast

# Each interpreter runs the package that pip installed.
for interpreter in /usr/bin/python3 "$@"; do
    HF_PACKAGE=$(dirname "$(dirname "$module")") "$ROOT/tests/package/python.sh" core "$interpreter" >"$SCRATCH/tap"
    ok "the tests pass with what was installed: $("$interpreter" --version)" \
        sh -c 'grep -q "^1\.\." "$1" && ! grep "^not ok" "$1"' sh "$SCRATCH/tap"
    echo "# $(grep -c '^ok' "$SCRATCH/tap") tests with $("$interpreter" --version)"
done
done_testing
