#!/usr/bin/env bash
# driver_states.sh - the model of the I/O driver has the states and fields of the code, and each policy of the driver has its file.
. "$(dirname "$0")/../lib/tap.sh"

model=$ROOT/tests/models/driver.pml
io=$ROOT/src/engines/io

# The names of an enum of io_internal.h without their prefix, in a line.
states_of_code() {
    sed -n '/^enum io_waiter_state {/,/^};/p' "$io/io_internal.h" | grep -oE '\bIO_[A-Z]+' | sed 's/^IO_//' | xargs
}
states_of_model() {
    grep -A1 'enum io_waiter_state' "$model" | sed -n 's/^mtype = { \(.*\) };/\1/p' | tr -d ,
}
is "a waiting thread has the same states in code and model" "$(states_of_model)" "$(states_of_code)"

for field in wake_fd wake_fd_written word woken; do
    like "a waiter has a field $field in both" "$(sed -n '/^struct io_waiter {/,/^};/p' "$io/io_internal.h")$(
        sed -n "s/^\(bool\|byte\) $field\[THREADS\];.*/MODEL/p" "$model")" "[ *]$field;.*MODEL"
done
# Each policy has a file that says so.
for policy in $(sed -n '/^struct io_policy {/,/^};/s/^ *bool \([a-z_]*\);.*/\1/p' "$io/io_policy.h"); do
    ok "the policy $policy has a file" test -s "$io/io_$policy.c"
    like "io_$policy.c says that it is a policy" "$(head -n 1 "$io/io_$policy.c")" "^/\* io_$policy\.c - policy: "
done
done_testing
