#!/usr/bin/env bash
# editing.sh - two people edit the same article. Who opens it takes a lease for as long as the editor stays open; who
# goes away without closing it loses the lease, and a late save is refused.
#
#     editing.sh [URL]
#
# An editor thinks for minutes and no process holds the lock meanwhile: the lease is detached, and the editor's
# heartbeat extends it. In a browser the same steps are POST, PATCH and DELETE to `holdfast serve`.
set -euo pipefail

export HOLDFAST=${HOLDFAST:-holdfast} HOLDFAST_URL=${1:-${HOLDFAST_URL:-local:}}
TTL=1500ms
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
fail() {
    echo "editing: $*" >&2
    exit 1
}

# The articles, with a fence: a save with an older token than the article has seen is refused.
sqlite3 articles 'CREATE TABLE article (id INTEGER PRIMARY KEY, text TEXT); INSERT INTO article VALUES (9, "a draft")'
"$HOLDFAST" fence sql --dialect sqlite --table article | sqlite3 articles

# open_article WHO: does not wait; the lease, with its token, is in the file WHO.
open_article() {
    "$HOLDFAST" acquire -n --lease "$1" --ttl $TTL --label "$1" article/9 2>"$1.log"
}
# heartbeat WHO: while the editor is open.
heartbeat() {
    "$HOLDFAST" extend --lease "$1" --ttl $TTL >/dev/null 2>"$1.log"
}
# save WHO TEXT: with the token of the lease.
save() {
    local token
    token=$(sed -n 's/.*"token":"\([0-9]*\).*/\1/p' "$1")
    sqlite3 articles "UPDATE article SET text = '$2', fence_token = $token WHERE id = 9" 2>"$1.log"
}

echo "1. anna opens the article, ben is told that she has it"
open_article anna || fail "anna: $(cat anna.log)"
code=0
open_article ben || code=$?
[ $code -eq 75 ] || fail "ben got exit code $code"
echo "ben: $(cat ben.log)"

echo "2. anna thinks for three ttls; her heartbeat keeps the lease"
for ((i = 0; i < 15; i++)); do
    sleep 0.3
    heartbeat anna || fail "anna: $(cat anna.log)"
done
save anna "anna: first version" || fail "anna's save was refused"

echo "3. anna closes her laptop without closing the editor; ben gets the article when her lease is over"
for ((i = 0; i < 100; i++)); do
    ! open_article ben || break
    sleep 0.1
done
[ -s ben ] || fail "ben never got it: $(cat ben.log)"
save ben "ben: second version" || fail "ben's save was refused"

echo "4. anna opens her laptop and saves"
code=0
heartbeat anna || code=$?
[ $code -eq 79 ] || fail "anna's heartbeat: exit code $code"
! save anna "anna: over it all" || fail "anna overwrote ben's text"
echo "anna: $(cat anna.log)"
text=$(sqlite3 articles 'SELECT text FROM article')
echo "the article says: $text"
[ "$text" = "ben: second version" ] || fail "ben's text is gone"
"$HOLDFAST" release --lease ben || fail "ben's release failed"
echo "proved: the second editor was told who edits, a lost editor's lease ended by its ttl, and its late save was refused"
