#!/usr/bin/env bash
# etcd_newer.sh - the whole conformance suite, and the faults, on an etcd that this Debian release does not have.
#
#     etcd_newer.sh SUITE
#
# needs: conformance/* fault/etcd_exclusion fault/etcd_faults fault/etcd_nodes
. "$(dirname "$0")/../../lib/cli_tap.sh"
suite=$1

folder=$BUILD/newer/etcd-$suite
if ! "$ROOT/tests/lib/newer-server" etcd "$suite" "$folder" 2>why; then
    echo "ok 1 - etcd of $suite # SKIP $(tail -n 1 why)"
    echo 1..1
    exit
fi
export HF_ETCD=$folder/bin/etcd
version=$("$HF_ETCD" --version | sed -n 's/^etcd Version: //p')
echo "# etcd $version"
ok "it is newer than what the other suites run on" \
    test "$(printf '%s\n' "$version" 3.5.0 | sort -V | tail -n 1)" = "$version"

# try PROGRAM [ARGUMENT]: all its tests, in one.
try() {
    CMOCKA_MESSAGE_OUTPUT=TAP HF_TEST_ENGINES=etcd "$BUILD/tests/$1" "${@:2}" >out 2>&1
    local code=$?
    result "${1##*/}: $(grep -c '^ok' out) tests" $code "$(grep -A5 '^not ok' out | head -n 40)"
}
for source in "$ROOT"/tests/conformance/*.c; do
    program=$(basename "$source" .c)
    case $program in
    several_names) try conformance/$program 5 ;;
    event_loop) try conformance/$program 1000 ;;
    fail_nth_call) ;; # as in conformance/matrix.def: nghttp2 has no status for each allocation that fails
    *) try "conformance/$program" ;;
    esac
done
for program in etcd_exclusion etcd_faults etcd_nodes; do try fault/$program; done
rm -rf "$folder"
done_testing
