#!/usr/bin/env bash
# man.sh - header, exported symbols, verbs, options and man pages agree, and every page can be set without a warning.
. "$(dirname "$0")/../lib/tap.sh"

pages=$BUILD/man
ok "the man pages are built" test -s "$pages/man1/holdfast.1"
is "every function of the header has a page, and no other has" \
    "$(cd "$pages/man3" && ls hf_*.3 | sed 's/\.3$//' | LC_ALL=C sort)" \
    "$({ "$ROOT/tests/lint/public_symbols" && printf '%s\n' hf_fence hf_lease hf_status; } | LC_ALL=C sort)"
functions_in_text() {
    local page name
    for page in $("$ROOT/tests/lint/public_symbols"); do
        name=$page
        [[ $(<"$pages/man3/$page.3") != ".so man3/"* ]] || name=$(sed 's|^\.so man3/||; s|\.3$||' "$pages/man3/$page.3")
        grep -qF "$page(" <(sed 's/\\//g' "$pages/man3/$name.3") || echo "$page is not in $name(3)"
    done
}
is "each of them stands in the page that its own leads to" "$(functions_in_text)" ""

"$HOLDFAST" __describe >"$SCRATCH/describe"
verbs=$(jq -r '.verbs[].name' "$SCRATCH/describe" | LC_ALL=C sort)
ok "the command has verbs" grep -qx run <<<"$verbs"
is "every verb has a page, and no other has" "$(cd "$pages/man1" && ls holdfast-*.1 | sed 's/holdfast-//; s/\.1$//' | LC_ALL=C sort)" "$verbs"
# plain PAGE: as a reader sees it, in one line.
plain() {
    groff -man -t -Tascii -rLL=10000n "$1" | sed 's/\x1b\[[0-9;]*m//g; s/.\x08//g' | tr -s ' \n' ' '
}
options_missing() {
    local verb option
    for verb in $verbs; do
        plain "$pages/man1/holdfast-$verb.1" >"$SCRATCH/page"
        for option in $(jq -r --arg verb "$verb" '.verbs[] | select(.name == $verb).options[].name' "$SCRATCH/describe"); do
            grep -qF -- "--$option" "$SCRATCH/page" || echo "$verb --$option"
        done
    done
}
is "every option of every verb is in its page" "$(options_missing)" ""
synopsis_wrong() {
    local verb operands
    for verb in $verbs; do
        operands=$(jq -r --arg verb "$verb" '.verbs[] | select(.name == $verb).operands' "$SCRATCH/describe")
        plain "$pages/man1/holdfast-$verb.1" | grep -qF "holdfast [-u URL] $verb [options]${operands:+ $operands}" || echo "$verb $operands"
    done
}
is "its synopsis is that of the command" "$(synopsis_wrong)" ""

statuses_missing() {
    local name
    plain "$pages/man3/hf_status.3" >"$SCRATCH/page"
    for name in $(sed -n 's/^HF_STATUS(\([A-Z_]*\),.*/HF_\1/p' "$ROOT/include/holdfast/status.def"); do
        grep -qF "$name " "$SCRATCH/page" || echo "$name"
    done
}
is "every status is in hf_status(3)" "$(statuses_missing)" ""
exit_codes_missing() {
    local code
    plain "$pages/man1/holdfast.1" >"$SCRATCH/page"
    for code in $(sed -n 's/^HF_STATUS([A-Z_]*, [0-9]*, \([1-9][0-9]*\),.*/\1/p' "$ROOT/include/holdfast/status.def" | sort -u); do
        grep -qE "(^| )$code " "$SCRATCH/page" || echo "$code"
    done
}
is "every exit code is in holdfast(1)" "$(exit_codes_missing)" ""
settings_missing() {
    local name
    plain "$pages/man3/hf_settings.3" >"$SCRATCH/page"
    for name in $("$HOLDFAST" explain --json | jq -r '.settings[].name'); do
        grep -qE "(^| )$name " "$SCRATCH/page" || echo "$name"
    done
}
is "every setting is in hf_settings(3)" "$(settings_missing)" ""

warnings() {
    local page
    cd "$pages" || exit
    for page in man?/*.[0-9]; do
        groff -man -t -ww -Tutf8 -z "$page" 2>&1
    done
}
is "all pages are set without a warning" "$(warnings)" ""
broken_references() {
    local page reference
    for page in "$pages"/man?/*.[0-9]; do
        plain "$page" 2>/dev/null | grep -oE '\b(holdfast|libholdfast|hf)[a-z_-]*\([137]\)' | sort -u | while read -r reference; do
            [ -e "$pages/man${reference: -2:1}/${reference%(*}.${reference: -2:1}" ] || echo "$(basename "$page"): $reference"
        done
    done
}
is "every page that a page refers to is there" "$(cd "$pages" && broken_references)" ""
done_testing
