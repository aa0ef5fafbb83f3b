#!/usr/bin/env bash
# run_pty.sh - `holdfast run` on a terminal: the foreground group, Ctrl-C, Ctrl-Z and fg, the waiting line.
. "$(dirname "$0")/../lib/cli_tap.sh"

PTY=$TEST_BIN/pty
needs_terminal
export HOLDFAST TERM=xterm PS1='PROMPT> ' ENV=
shell=(bash --norc --noprofile -i)
# Prints whether the command's group has the terminal.
cat >whose <<'END'
read -r _ _ _ _ group _ _ owner _ < <(sed 's/(.*)/x/' /proc/$$/stat)
[ "$group" = "$owner" ] && echo FORE-GROUND || echo BACK-GROUND
END

out=$("$PTY" -- "$HOLDFAST" run job -- bash whose)
like "alone on a terminal the command is the foreground group" "$out" $'FORE-GROUND.*\nexit 0$'

out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run job -- bash whose\r' 'expect:GROUND' 'expect:PROMPT> ' \
    'send:echo code=$?\r' 'expect:code=0' 'send:exit 3\r' -- "${shell[@]}")
like "as a job of a shell too" "$out" 'FORE-GROUND'
like "and the shell gets the terminal back" "$out" $'\nexit 3$'

out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run job -- bash whose & wait\r' 'expect:GROUND' 'send:exit 4\r' -- "${shell[@]}")
like "a background job does not take the terminal" "$out" $'BACK-GROUND.*\nexit 4$'

out=$("$PTY" 'expect:READY' 'send:\x03' -- "$HOLDFAST" run job -- sh -c 'echo READY; exec sleep 1000')
like "Ctrl-C ends the command with 130" "$out" $'\nexit 130$'

# What is expected must not stand in what is typed: the terminal echoes that.
echo 'echo READY; read -r x; echo "got=$x"; . ./whose' >reader
echo 'echo READY; exec sleep 1000' >sleeper
# Tells when it is continued, and when its job leaves the foreground and comes back.
cat >observer <<'END'
field() { sed 's/(.*)/x/' "/proc/$1/stat" | cut -d' ' -f"$2"; }
front=$(field $PPID 4)
trap 'echo CON-TINUED' CONT
echo READY
while sleep 0.01; do
    owner=$(field $$ 8)
    if [ "$owner" != $$ ] && [ "$owner" != "$(field "$front" 5)" ]; then
        [ -n "${away:-}" ] || echo WENT-AWAY
        away=1
    elif [ -n "${away:-}" ]; then
        away= && echo CAME-BACK
    fi
done
END

out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run job -- bash reader | cat\r' 'expect:READY' 'send:typed\r' 'expect:got=typed' \
    'expect:PROMPT> ' 'send:exit 5\r' -- "${shell[@]}")
like "in a pipeline the command gets the terminal when it reads" "$out" $'FORE-GROUND.*\nexit 5$'

echo 'echo READY >&2; read -r x; echo "got=$x"' >asker
out=$("$PTY" 'expect:PROMPT> ' 'send:x=$($HOLDFAST run job -- bash asker); echo "heard $x"\r' 'expect:READY' 'send:typed\r' \
    'expect:heard got=typed' 'send:exit 8\r' -- "${shell[@]}")
like "and it has it where its words are taken, since nothing would stop it there" "$out" $'\nexit 8$'

cat >script <<'END'
"$HOLDFAST" run job -- sh sleeper
echo WENT-ON
END
out=$("$PTY" 'expect:PROMPT> ' 'send:bash script\r' 'expect:READY' 'send:\x03' 'expect:PROMPT> ' 'send:exit 6\r' -- "${shell[@]}")
like "Ctrl-C ends the script around it too" "$out" $'\nexit 6$'
fails "so that it does not go on" grep -q WENT-ON <<<"$out"

out=$("$PTY" 'expect:PROMPT> ' 'send:for i in 1 2; do $HOLDFAST run job -- sh sleeper; done; echo code=$?\r' 'expect:READY' 'send:\x03' \
    'expect:PROMPT> ' 'send:exit 6\r' -- "${shell[@]}")
like "Ctrl-C ends a loop of the shell too" "$out" $'READY.*\nexit 6$'
fails "so that its next turn does not begin" grep -q 'READY.*READY' <<<"${out//[$'\r\n']/ }"

# Ctrl-Z: the shell sees the job stopped, the lease is kept beyond its ttl, fg goes on.
out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run --ttl 1500ms job -- bash reader\r' 'expect:READY' \
    'send:\x1a' 'expect:Stopped' 'expect:PROMPT> ' \
    'send:$HOLDFAST run -w 3.5 job true; echo busy=$?\r' 'expect:busy=75' 'expect:PROMPT> ' \
    'send:fg\r' 'expect:bash reader' 'send:typed\r' 'expect:got=typed' 'expect:GROUND' 'expect:PROMPT> ' 'send:exit 7\r' -- "${shell[@]}")
like "Ctrl-Z stops the job, and the lease is kept meanwhile" "$out" 'Stopped.*busy=75'
like "fg continues it in the foreground" "$out" $'got=typed.*FORE-GROUND.*\nexit 7$'

out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run job -- bash reader\r' 'expect:READY' \
    'send:\x1a' 'expect:Stopped' 'expect:PROMPT> ' \
    'send:p=$(jobs -p %1); kill %1; while kill -0 $p 2>/dev/null; do sleep 0.02; done\r' 'expect:Exit 143' 'expect:PROMPT> ' 'send:exit 8\r' -- "${shell[@]}")
like "a stopped job can be killed" "$out" $'\nexit 8$'

sed -i 's/sh sleeper/bash observer/' script
out=$("$PTY" 'expect:PROMPT> ' 'send:bash script\r' 'expect:READY' 'send:\x1a' 'expect:Stopped' 'expect:PROMPT> ' \
    'send:fg\r' 'expect:CON-TINUED' 'send:\x03' 'expect:PROMPT> ' 'send:exit 8\r' -- "${shell[@]}")
like "Ctrl-Z stops the script around it too, and fg continues both" "$out" $'\nexit 8$'

out=$("$PTY" 'expect:READY' 'send:\x1a' 'send:typed\r' 'expect:got=typed' -- "$HOLDFAST" run job -- bash reader)
like "Ctrl-Z has no effect where nobody could continue" "$out" $'\nexit 0$'
out=$("$PTY" 'expect:READY' 'send:\x1a' 'expect:CON-TINUED' 'send:\x03' -- bash script)
like "nor does it stop a script for ever there" "$out" $'\nexit 130$'

out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run job -- bash observer\r' 'expect:READY' 'send:\x1a' \
    'expect:Stopped' 'expect:PROMPT> ' 'send:bg\r' 'expect:WENT-AWAY' 'send:jobs -r\r' 'expect:Running' 'expect:PROMPT> ' \
    'send:fg\r' 'expect:CAME-BACK' 'send:\x03' 'expect:PROMPT> ' 'send:exit 9\r' -- "${shell[@]}")
like "bg continues it in the background, fg and Ctrl-C end it" "$out" $'\nexit 9$'

# The waiting line.
"$HOLDFAST" run --label $'\xc3\xa4rger' wanted -- sh -c 'echo >held; exec sleep 1000' &
holder=$!
eventually test -e held
out=$("$PTY" 'expect:our place 1 of 1' 'expect:our place 1 of 1' 'expect:our place 1 of 1' 'send:\x03' -- "$HOLDFAST" run wanted -- echo NEVER)
like "the waiting line is redrawn in place" "$out" $'\r[^\n]*waiting: "wanted" is held by pid [0-9]+[^\n]*ärger[^\n]*\033\\[K\r[^\n]*waiting:'
like "and erased at the end; Ctrl-C leaves the queue" "$out" $'\r\033\\[K[^N]*\nexit 130$'
fails "nothing was run" grep -q NEVER <<<"$out"
like "it is coloured" "$out" $'\033\\[33m'
out=$(NO_COLOR=1 "$PTY" 'expect:our place' 'send:\x03' -- "$HOLDFAST" run wanted -- true)
fails "but not with NO_COLOR" grep -q $'\033\\[[0-9;]*m' <<<"$out"
out=$("$PTY" size:30 'expect:waiting: ' 'expect:waiting: ' 'send:\x03' -- "$HOLDFAST" run wanted -- true)
fails "it never wraps" grep -qE $'\r(\033\\[33m)?[^\r\033]{30,}' <<<"$out"
out=$("$PTY" 'expect:PROMPT> ' 'send:$HOLDFAST run wanted -- true\r' 'expect:our place' 'send:\x1a' 'expect:Stopped' 'expect:PROMPT> ' \
    'send:fg\r' 'expect:our place' 'send:\x03' 'expect:PROMPT> ' 'send:exit 10\r' -- "${shell[@]}")
like "Ctrl-Z and fg work while waiting" "$out" $'\nexit 10$'
out=$("$PTY" 'expect:our place' 'send:\x1a' 'expect:our place' 'expect:our place' 'send:\x03' -- "$HOLDFAST" acquire wanted)
like "nor does Ctrl-Z stop acquire where nobody could continue it" "$out" $'\nexit 130$'
kill $holder
wait $holder
done_testing
