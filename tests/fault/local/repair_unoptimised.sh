#!/usr/bin/env bash
# repair_unoptimised.sh - the same proof on a build without optimisation: other instructions, other orders of stores.
set -eu

cd "$(dirname "$0")/../../.."
DIR=${BUILD:?is set by tests/run}/unoptimised
cmake -S . -B "$DIR" -DHF_TESTS=ON -DCMAKE_BUILD_TYPE=Debug >&2
env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS cmake --build "$DIR" -j 2 --target test-fault-repair_steps >&2
exec "$DIR/tests/fault/repair_steps"
