#!/usr/bin/env bash
# completion.sh - the scripts for bash, zsh and fish complete what the tables of the command say, tried in the shells
# themselves.
. "$(dirname "$0")/../lib/cli_tap.sh"

"$HOLDFAST" __describe >described
for shell in bash zsh fish; do
    ok "completion $shell is 0" "$HOLDFAST" completion $shell
    "$HOLDFAST" completion $shell >"script.$shell"
    ok "$shell can read it" $shell -n "script.$shell"
done
verbs=$(jq -r '.verbs[].name' described | sort)
options() {
    jq -r --arg verb "$1" '.verbs[] | select(.name == $verb) | .options[] | "--" + .name' described | sort
}
# Name, verb, option and words of each option that is a choice.
choices() {
    jq -r '.verbs[] | .name as $verb | .options[] | select(.choices | length > 0) | [$verb, .name, (.choices | sort | join(" "))] | @tsv' described
}
ok "there are choices to try" test "$(choices | wc -l)" -ge 2

# ---- bash: the function is called as readline calls it.
cat >try.bash <<'END'
source script.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_holdfast
printf '%s\n' "${COMPREPLY[@]}" | sort -u
END
bash_offers() {
    bash --norc try.bash holdfast "$@"
}
is "bash: it is installed for holdfast" "$(bash --norc -c 'source script.bash; complete -p holdfast')" "complete -F _holdfast holdfast"
is "bash: all verbs" "$(bash_offers '')" "$verbs"
is "bash: a verb by its beginning" "$(bash_offers ac)" acquire
is "bash: options before the verb" "$(bash_offers -)" $'--help\n--url\n--version'
is "bash: the verb is found behind them" "$(bash_offers -u local: show --js)" --json
for verb in $verbs; do
    is "bash: the options of $verb" "$(bash_offers "$verb" --)" "$(options "$verb")"
done
while IFS=$'\t' read -r verb option words; do
    is "bash: what $verb --$option may be" "$(bash_offers "$verb" "--$option" '' | tr '\n' ' ')" "$words "
done < <(choices)
is "bash: operands that are words" "$(bash_offers completion '' | tr '\n' ' ')" "bash fish zsh "
is "bash: help takes a verb" "$(bash_offers help '')$(bash_offers help wh)" "${verbs}why"
is "bash: an operand that begins with that" "$(bash_offers fence s)" sql
touch some.lease
is "bash: a file where a file is meant" "$(bash_offers release --lease some)" some.lease
is "bash: nothing where anything may stand" "$(bash_offers run --label '')" ""
is "bash: a command after NAME" "$(bash_offers run -w 5 --ttl 10s job mkfif)" mkfifo
is "bash: and after --" "$(bash_offers run job -- mkfif)" mkfifo
is "bash: also where -l stands for NAME" "$(bash_offers run -l a -w 5 --lock b mkfif)" mkfifo
is "bash: and after -l and --" "$(bash_offers run -l a -- mkfif)" mkfifo
is "bash: behind -l there may be more options" "$(bash_offers run -l a --gra)" --grace
is "bash: but no command as the argument of -l, nor of what follows it" "$(bash_offers run -l a -l mkfif)$(bash_offers run -l a --ttl mkfif)" ""
is "bash: but no command as NAME" "$(bash_offers run -w 5 mkfif)" ""
is "bash: the command's arguments are files" "$(bash_offers run job cat --ttl some)" some.lease
is "bash: hidden verbs are not offered" "$(bash_offers __)" ""


# readline splits words at ":"; the line says what belongs together.
cat >split.bash <<'END'
source script.bash
COMP_LINE=$1
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_holdfast
printf '%s\n' "${COMPREPLY[@]}" | sort -u
END
is "bash: the verb is found behind a URL with colons" \
    "$(bash --norc split.bash 'holdfast -u redis://h:6379/0 sho' holdfast -u redis : //h : 6379/0 sho)" show
is "bash: and its options" "$(bash --norc split.bash 'holdfast -u redis://h:6379/0 show --js' holdfast -u redis : //h : 6379/0 show --js)" --json
is "bash: the URL itself is not completed as a verb" "$(bash --norc split.bash 'holdfast -u lis' holdfast -u lis)" ""

# Names of locks, of the engine that is named.
"$HOLDFAST" acquire named/a >/dev/null
"$HOLDFAST" acquire named:b >/dev/null
"$HOLDFAST" acquire 'tricky$(touch expanded)' >/dev/null
other=local:$SCRATCH/other
"$HOLDFAST" -u "$other" acquire named/elsewhere >/dev/null
names_of() { bash --norc try.bash "$HOLDFAST" "$@"; }
for verb in show break history why resize list watch top acquire run; do
    is "bash: names of locks for $verb" "$(names_of "$verb" named/)" named/a
done
is "bash: those of the engine behind -u" "$(names_of -u "$other" show named)" named/elsewhere
is "bash: behind a colon the rest is offered" "$(bash --norc split.bash "$HOLDFAST show named:" "$HOLDFAST" show named :)" b
is "bash: a name is never expanded" "$(names_of show tri)" 'tricky\$\(touch\ expanded\)'
fails "not even by the way" test -e expanded

# ---- fish: it completes a line by itself.
fish_offers() {
    HOME=$SCRATCH fish --no-config -c 'source script.fish; complete -C $argv[1]' "$1" | cut -f1 | sort
}
is "fish: all verbs" "$(fish_offers 'holdfast ')" "$verbs"
for verb in $verbs; do
    is "fish: the options of $verb" "$(fish_offers "holdfast $verb --" | grep '^--')" "$(options "$verb")"
done
while IFS=$'\t' read -r verb option words; do
    is "fish: what $verb --$option may be" "$(fish_offers "holdfast $verb --$option " | tr '\n' ' ')" "$words "
done < <(choices)
is "fish: operands that are words" "$(fish_offers 'holdfast completion ' | tr '\n' ' ')" "bash fish zsh "

is "fish: the verb behind -u URL" "$(fish_offers 'holdfast -u redis://h:6379/0 sho')" show
is "fish: names of locks" "$(PATH=$(dirname "$HOLDFAST"):$PATH fish_offers 'holdfast show named/')" named/a
is "fish: those of the engine behind -u" "$(PATH=$(dirname "$HOLDFAST"):$PATH fish_offers "holdfast -u $other show named")" named/elsewhere

# ---- zsh: it completes on a terminal only, so one is given to it.
mkdir home
cat >home/.zshrc <<'END'
PS1='PROMPT> '
unset zle_bracketed_paste
autoload -Uz compinit
compinit -u -D
source ./script.zsh
END
# zsh_completes TEXT REST: TEXT and the tabulator make REST appear.
zsh_completes() {
    ZDOTDIR=$SCRATCH/home TERM=xterm "$TEST_BIN/pty" 'expect:PROMPT> ' "send:$1\\x09" "expect:$2" 'send:\x15exit 3\r' -- zsh -d -i
}
if why=$(missing_terminal); then
    skip "zsh completes on a terminal" "$why"
else
    like "zsh: a verb by its beginning" "$(zsh_completes 'holdfast acq' 'uire')" $'\nexit 3$'
    like "zsh: an option by its beginning" "$(zsh_completes 'holdfast run --max' '-hold')" $'\nexit 3$'
    like "zsh: an option behind options of the command itself" "$(zsh_completes 'holdfast -u local: break --rea' 'son')" $'\nexit 3$'
    like "zsh: what an option may be" "$(zsh_completes 'holdfast run --on-lost wa' 'rn')" $'\nexit 3$'
    like "zsh: operands that are words" "$(zsh_completes 'holdfast completion fi' 'sh')" $'\nexit 3$'
    like "zsh: a file where a file is meant" "$(zsh_completes 'holdfast release --lease some' '.lease')" $'\nexit 3$'
    mkdir bin && printf '#!/bin/sh\n' >bin/unmistakable-command && chmod +x bin/unmistakable-command
    like "zsh: a command after NAME" "$(PATH=$PWD/bin:$PATH zsh_completes 'holdfast run job unmist' 'akable-command')" $'\nexit 3$'
    like "zsh: also where -l stands for NAME" "$(PATH=$PWD/bin:$PATH zsh_completes 'holdfast run -l a -l b unmist' 'akable-command')" $'\nexit 3$'
fi
missing_in_zsh() {
    local verb option
    for verb in $verbs; do
        for option in $(options "$verb"); do
            sed -n "/^_holdfast_$verb() {/,/^}/p" script.zsh | grep -qE -- "$option(=|\[|\})" || echo "$verb $option"
        done
    done
}
is "zsh: every option of every verb is in its function" "$(missing_in_zsh)" ""
done_testing
