#!/usr/bin/env bash
# stories.sh - the examples run as shipped, against servers started for them, and prove what they say.
#
#     stories.sh ENGINE [NAME...]
. "$(dirname "$0")/../lib/tap.sh"

# What each must say, word for word; .* is what may differ.
declare -A PROVED=(
    [booking]="one booking for each evening; one winner of two; a dead holder's lock freed .*; a late write refused by its token"
    [workers]="never more than 5 at once, 8 workers killed and no permit lost; of 1000 tries 5 were granted"
    [nightly]="one machine ran the job, two skipped it with exit code 0, and when it died another one took over"
    [transcode]="cut off from the server, the job was stopped before its lease could end, and then the loss was told"
    [nested]="three depths, free after the third release; the fourth was refused and changed nothing"
    [config]="the writer got in 20 times beside 8 readers without a gap, no read was torn, and after each downgrade others read beside it"
    [tickets]="20 buyers, 3 died in the queue, 17 were served in the order in which they came, and all are in the audit trail"
    [leader]="three leaders one after the other, tokens rising, each in its place within the ttl after kill -9"
    [strong]="without its replica nothing was granted and nothing kept; with it the lock worked again"
    [loop]="one thread and one epoll loop served 10000 waits at 100 doors, tokens rising at each"
    [pods]="as PID 1 it passed SIGTERM on and exited with 0; only the holder was ready; the next pod took over twice"
    [payment]="20 invoices, each paid once, with a server killed and a cashier paused past its ttl"
    [cache]="one of 20 requests built the page, the others found it under the lock, and a killed builder was replaced once"
    [editing]="the second editor was told who edits, a lost editor's lease ended by its ttl, and its late save was refused"
    [account]="a late withdrawal was refused, one in the middle kept others out beyond its lease, and no lease got in beside within\(\)"
    [reshard]="the slot moved 4 times while four workers took turns: one at a time, tokens rising, no lease lost"
    [python-bookings]="one of five guests got the seat; a killed guest's seat went to the next; a late write was refused by its token"
    [python-uploads]="20 uploads of two processes, never more than 3 at once, and the one that outlived its permit was cancelled"
    [python-copies]="of 12 copies of the task one built the report, and the others left it alone"
)
engine=$1
shift
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $("$ROOT/examples/run" --list "$engine")

# Lines that an example must print on the way, beside its last one.
declare -A STEPS=(
    [booking]='anna   lock: table-12/monday granted, token [0-9]+.*is refused: table-12/wednesday: held by .*is too late: the database refused its token'
    [workers]=' 1000        5      995       0                5'
    [nightly]='beta skips, and cron has nothing to mail'
    [transcode]='the encoder is stopped, and [0-9]+ ms are still left'
    [nested]='the fourth release: not held'
    [config]='[0-9]+ reads, 0 of them saw half of a change'
    [tickets]='served: 1 2 3 4 6 7 8 9 10 12 13 14 15 16 18 19 20'
    [leader]='kill -9 of [0-9]+: the next one leads [0-9]+ ms later'
    [strong]='a new one is not granted: .*0 of 1 replicas acknowledged'
    [loop]='10000 asked, 9900 of them had to wait, 10000 granted'
    [pods]='SIGTERM to PID 1: mailer-1 puts its things away'
    [payment]='cashier 0 comes too late with invoice [0-9]+: the ledger refused its token'
    [cache]='request [0-9]+ builds the page as pid [0-9]+.*request [0-9]+ builds the page.*request [0-9]+ builds the page'
    [editing]='ben: holdfast: "article/9" is held by pid [0-9]+ .*\(anna\).*stale token.*the article says: ben: second version'
    [account]='anna   is too late: the database refused her token.*ben    sees what anna wrote: 50'
    [reshard]='moved; [0-9]+ orders were taken so far.*orders, the last under token [0-9]+'
    [python-bookings]='dirk: seat 3C is booked.*carla: seat 3C is refused: the token is too old'
    [python-uploads]='20 uploads, at most 3 at once.*the slow upload was cancelled after'
    [python-copies]='built by pid [0-9]+ with token [0-9]+'
)
for name; do
    said=$(BUILD=$BUILD "$ROOT/examples/run" -v "$engine" "$name")
    line=$(grep -E '^(ok|skip|FAIL) ' <<<"$said")
    if [[ $line == skip* ]]; then
        echo "ok $((++tests_done)) - $name on $engine # SKIP $(cut -c32- <<<"$line")"
        continue
    fi
    like "$name on $engine: ${PROVED[$name]}" "$said" "ok    $name +$engine +${PROVED[$name]}\$"
    like "$name on $engine prints how" "$said" "${STEPS[$name]}"
    [ "$name" != booking ] || like "a dead holder's lock on $engine" "$line" \
        "$([ "$engine" = local ] && echo 'freed at once' || echo 'freed by its ttl')"
done
# What the scripts of the pod need, its deployment gives them.
unset_in_pod() {
    grep -ohE '\$\{?(LOCK|POD|READY|HOLDFAST)_?[A-Z]*\b' "$ROOT"/examples/pods/{entrypoint,worker}.sh | tr -d '${' | sort -u |
        grep -vxE 'HOLDFAST|HOLDFAST_TOKEN' | while read -r name; do
        grep -qE "name: $name\b" "$ROOT/examples/pods/deployment.yaml" || echo "$name"
    done
}
is "deployment.yaml sets what the entry point reads" "$(unset_in_pod)" ""
is "each example has a folder with a README of some ten lines" \
    "$(for name in "${!PROVED[@]}"; do [ "$(wc -l <"$ROOT/examples/${name%%-*}/README.md")" -le 13 ] || echo "$name"; done)" ""
# Those in node are run by tests/package/node.sh.
is "no example is without a test" "$(cd "$ROOT/examples" && ls -d */ | tr -d / | while read -r name; do [[ " ${!PROVED[*]} node " =~ " $name"[\ -] ]] || echo "$name"; done)" ""
done_testing
