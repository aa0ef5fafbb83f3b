#!/usr/bin/env bash
# top_pty.sh - `top` on a terminal: choosing, filtering, sorting, one lock with its past, revoking; and what `list` can leave out.
. "$(dirname "$0")/../lib/cli_tap.sh"
PTY=$TEST_BIN/pty
needs_terminal
export HOLDFAST TERM=xterm
HOLDFAST_URL="$HOLDFAST_URL?history=5"
long=$(printf 'n%.0s' {1..60})
"$HOLDFAST" run past -- true
"$HOLDFAST" acquire --ttl 600s --label one alpha >one
"$HOLDFAST" acquire --ttl 500s --label two beta >two
"$HOLDFAST" acquire --ttl 400s --capacity 2 --label first pool >three
"$HOLDFAST" acquire --ttl 400s --capacity 2 --label second pool >four
"$HOLDFAST" acquire --ttl 300s "$long" >five
"$HOLDFAST" run -q --label waiting beta -- true &
waiter=$!
eventually rows waiter beta 1

# ---- list
names() { "$HOLDFAST" list "$@" | uniq | tr '\n' ' '; }
is "--format prints the columns that are named" "$("$HOLDFAST" list --format name,label alpha)" $'alpha\tone'
exits "an unknown column is 64" 64 "$HOLDFAST" list --format name,nonsense
like "which is said" "$said" '"nonsense" is not one of name, kind'
is "--sort name" "$(names --sort name --format name)" "alpha beta $long pool "
is "--sort waiters" "$(names --sort waiters --format name | cut -d' ' -f1)" beta
is "--sort left: what ends first" "$(names --sort left --format name)" "$long pool beta alpha "
is "--state waited" "$("$HOLDFAST" list --state waited --format name,role)" $'beta\tholder\nbeta\twaiter 1'
is "--state held" "$(names --state held --format name --sort name)" "alpha beta $long pool "
exits "an unknown order is 64" 64 "$HOLDFAST" list --sort nonsense
ok "without a terminal names are whole" grep -q "$long" <("$HOLDFAST" list)
out=$("$PTY" size:100 'expect:LABEL' -- "$HOLDFAST" list)
fails "on a terminal a long name is cut" grep -q "$long" <<<"$out"
like "which is shown" "$out" 'n~n+ +exclusive'
out=$("$PTY" size:100 'expect:LABEL' -- "$HOLDFAST" list --wide)
ok "but not with --wide" grep -q "$long" <<<"$out"

# ---- top
exits "without a terminal top is 64" 64 "$HOLDFAST" top
out=$("$PTY" 'expect:5 holders, 1 waiter; by urgency' 'send:s' 'expect:by name' 'send:s' 'expect:by waiters' 'send:q' -- "$HOLDFAST" top)
like "the summary counts, s sorts, q ends with 0" "$out" $'\nexit 0$'
out=$("$PTY" 'expect:alpha' 'send:/' 'send:two' 'expect:/two' 'send:\r' 'expect:with two' 'expect:with two' 'send:q' -- "$HOLDFAST" top)
like "/ filters by name or label" "$out" $'\nexit 0$'
fails "what does not match is left out" grep -q alpha <<<"${out##*with two}"
out=$("$PTY" 'expect:alpha' 'send:?' 'expect:revoke the chosen hold' 'send:\x1b' 'expect:alpha' 'send:q' -- "$HOLDFAST" top)
like "? helps, Esc goes back" "$out" $'\nexit 0$'
out=$("$PTY" 'expect:beta' 'send:/' 'send:beta\r' 'expect:with beta' 'send:\r' 'expect:past holds' 'expect:waiter 1' 'send:q' -- "$HOLDFAST" top)
like "Enter shows one lock with its queue and its past" "$out" 'waiter 1  pid [0-9]+ on .* waits .*waiting'
HOLDFAST_URL=$HOLDFAST_URL "$HOLDFAST" run past -- sh -c 'echo >held; exec sleep 1000' &
holder=$!
eventually test -e held
out=$("$PTY" 'expect:past' 'send:/' 'send:past\r' 'expect:with past' 'send:\r' 'expect:released' 'send:q' -- "$HOLDFAST" top)
like "a past hold is there with its length" "$out" 'released .* ago  held .*  pid [0-9]+'
kill $holder
wait $holder 2>/dev/null

out=$("$PTY" 'expect:alpha' 'send:/' 'send:alpha\r' 'expect:with alpha' 'send:b' 'expect:revoke "alpha" of pid' 'send:n' 'expect:with alpha' 'send:q' -- "$HOLDFAST" top)
ok "b asks, and n revokes nothing" rows holder alpha 1
out=$("$PTY" 'expect:alpha' 'send:/' 'send:alpha\r' 'expect:with alpha' 'send:b' 'expect:(one), token' 'expect:y/n' 'send:y' 'expect:revoked "alpha"' 'send:q' -- "$HOLDFAST" top)
ok "y revokes the hold that was named" rows holder alpha 0
out=$("$PTY" 'expect:pool' 'send:/' 'send:pool\r' 'expect:with pool' 'send:b' 'expect:several hold it' 'send:j' 'send:b' 'expect:(second), token' \
    'send:y' 'expect:revoked "pool"' 'send:q' -- "$HOLDFAST" top)
is "of several holders the chosen one is revoked" "$("$HOLDFAST" list --format name,label pool)" $'pool\tfirst'

# Scrolling: 40 locks on 24 lines.
for i in {10..49}; do "$HOLDFAST" acquire --ttl 600s "many/$i" >/dev/null; done
out=$("$PTY" 'expect:many/10' 'send:G' 'expect:many/49' 'send:g' 'expect:many/10' 'send:q' -- "$HOLDFAST" top --sort name many/)
like "G scrolls to the last lock, g to the first" "$out" $'\nexit 0$'
fails "before that the last one is not on the screen" grep -q many/49 <<<"${out%%many/2?  ex*}"
"$HOLDFAST" release <two
wait $waiter
done_testing
