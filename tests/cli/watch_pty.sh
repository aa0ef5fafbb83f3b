#!/usr/bin/env bash
# watch_pty.sh - `watch` on a terminal: a view that is redrawn, a bar that shrinks, keys and signals that end it.
. "$(dirname "$0")/../lib/cli_tap.sh"

PTY=$TEST_BIN/pty
needs_terminal
export HOLDFAST TERM=xterm
"$HOLDFAST" acquire --ttl 12s --label shrinking short >/dev/null
"$HOLDFAST" run --label $'b\xc3\xa4r' job -- sleep 1000 2>/dev/null &
holder=$!
eventually rows holder job 1
"$HOLDFAST" run --label second job -- true 2>/dev/null &
waiter=$!
eventually rows waiter job 1

out=$("$PTY" 'expect:shrinking' 'expect:shrinking' 'expect:shrinking' 'expect:shrinking' 'expect:shrinking' 'send:q' -- "$HOLDFAST" watch)
like "q ends it with 0" "$out" $'\nexit 0$'
like "it says who holds" "$out" 'job  exclusive  1/1 used.*\[#+\.*\] +[0-9.]+ s +left  pid [0-9]+ on .* held [0-9.]+ s  token [0-9]+  bär'
like "and who waits" "$out" 'waiter 1  pid [0-9]+ on .* waits [0-9.]+ s  second'
bars=$(grep -oE '\[[#.]{20}\][^\r]*shrinking' <<<"$out" | grep -oE '^\[#*' | awk '{ print length($0) - 1 }')
ok "the bar shrinks" test "$(head -n 1 <<<"$bars")" -gt "$(tail -n 1 <<<"$bars")"
is "and never grows without a renewal" "$(sort -rn <<<"$bars")" "$bars"
like "it uses the other screen and hides the cursor" "$out" $'^\033\\[\\?1049h\033\\[\\?25l'
like "and gives both back at the end" "$out" $'\033\\[\\?25h\033\\[\\?1049l[^\033]*$'
like "it is redrawn in place" "$out" $'\033\\[H[^\033]*holdfast watch'
like "it is coloured" "$out" $'\033\\[32m'
out=$(NO_COLOR=1 "$PTY" 'expect:waiter 1' 'send:q' -- "$HOLDFAST" watch)
fails "but not with NO_COLOR" grep -q $'\033\\[[0-9;]*m' <<<"$out"
out=$("$PTY" 'expect:waiter 1' 'send:q' -- "$HOLDFAST" watch jo)
fails "with a prefix it shows those names only" grep -q short <<<"$out"
out=$("$PTY" size:30 'expect:waiter 1' 'expect:waiter 1' 'send:q' -- "$HOLDFAST" watch)
fails "a line never wraps" grep -qE $'[^\033\r]{32,}' < <(sed $'s/\033\\[[0-9;?]*[a-zA-Z]//g' <<<"$out" | tail -n +8)
out=$("$PTY" 'expect:waiter 1' 'send:\x03' -- "$HOLDFAST" watch)
like "Ctrl-C ends it with 130, and the screen is given back" "$out" $'\033\\[\\?1049l[^\033]*\nexit 130$'
out=$(PS1='PROMPT> ' ENV='' "$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST watch\r' 'expect:waiter 1' 'send:\x1a' 'expect:Stopped' 'expect:PROMPT> ' \
    'send:fg\r' 'expect:waiter 1' 'send:q' 'expect:PROMPT> ' 'send:exit 9\r' -- bash --norc --noprofile -i)
like "Ctrl-Z gives the screen back, fg goes on" "$out" $'1049l.*Stopped.*1049h.*\nexit 9$'
out=$("$PTY" 'expect:queued    job' 'send:\x03' -- "$HOLDFAST" watch --lines)
fails "--lines prints lines on a terminal too" grep -q $'\033' <<<"$out"
out=$(TERM=dumb "$PTY" 'expect:queued    job' 'send:\x03' -- "$HOLDFAST" watch)
fails "a dumb terminal gets lines" grep -q $'\033' <<<"$out"

# The table is deleted once the view has it open.
other=$SCRATCH/other
"$HOLDFAST" -u "local:$other" acquire job >/dev/null
is_open() {
    grep -qs "$other" "/proc/$(pgrep -fx "$HOLDFAST -u local:$other watch")/maps"
}
(eventually is_open && rm "$other") &
out=$("$PTY" 'expect:was deleted' -- "$HOLDFAST" -u "local:$other" watch)
wait $!
like "an error ends it, and can be read after the screen was given back" "$out" $'1049lholdfast: .*/other: the table was deleted or replaced\r\n\nexit 69$'

# The waiting line of acquire.
out=$("$PTY" 'expect:our place 2 of 2' 'expect:our place 2 of 2' 'send:\x03' -- "$HOLDFAST" acquire job)
like "acquire has a waiting line that is redrawn, and leaves the queue" "$out" $'\r[^\n]*waiting: "job" is held by pid.*\r\033\\[K[^\n]*\nexit 130$'
out=$("$PTY" 'expect:no lease: pipe in' -- "$HOLDFAST" release)
like "release does not wait for a lease to be typed" "$out" $'\nexit 64$'
kill $holder
wait $holder
wait $waiter
is "the waiter went on" $? 0
done_testing
