#!/usr/bin/env bash
# bench.sh - what the bench says of its figures, on made-up ones: ratios within a repetition, medians, verdicts, and
# pictures that draw nothing where nothing was measured; the figures that it takes from the turns of workers; and how it
# runs a peer, with those that Debian has.
. "$(dirname "$0")/../lib/tap.sh"
. "$(dirname "$0")/../lib/servers.sh"

python="/usr/bin/python3 -B"
results=$SCRATCH/results.jsonl bars=$SCRATCH/bars.tsv page=$SCRATCH/docs/benchmarks.md pictures=$SCRATCH/docs/bench
mkdir -p "$SCRATCH/docs"

# line WORKLOAD WHO REP FIELDS: one result.
line() {
    echo "{\"workload\":\"$1\",\"who\":\"$2\",\"rep\":$3,$4}" >>"$results"
}
# bar NAME WORKLOAD METRIC WHO CEILING HOW RELATION BOUND TEXT
bar() {
    (IFS=$'\t' && echo "$*") >>"$bars"
}
report() {
    $python "$ROOT/bench/report.py" "$results" "$bars" "$SCRATCH/docs" 2>&1
}

# The medians are 100 and 100; the ratios are 0.9, 2 and 0.5, and 0.9 is their median.
ours=(90 100 200) theirs=(100 50 400)
for rep in 1 2 3; do
    line contended-10 holdfast $rep "\"per_s\":${ours[rep - 1]},\"jain\":0.9995,\"overlaps\":0,\"note\":\"queues\""
    line contended-10 bare $rep "\"per_s\":${theirs[rep - 1]}"
    line contended-2 holdfast $rep "\"per_s\":300,\"note\":\"queues; with two\""
    line contended-2 a-peer $rep "\"per_s\":20000"
    line redlock-5 holdfast $rep "\"p50_us\":100"
    line redlock-5-two-dead holdfast $rep "\"p50_us\":$((110 + rep))"
    line redlock-5-two-dead a-peer $rep "\"ops\":0"
done
line redlock-5 holdfast 3 '"p50_us":112'
line handoff holdfast 1 '"handoff_p50_us":50'
line idle-100 holdfast 1 '"commands_per_s":0'
bar tens contended-10 per_s holdfast bare ratio '>=' 0.95 'ten workers'
bar tens-low contended-10 per_s holdfast bare ratio '>=' 0.9 'ten workers, not so fast'
bar fair contended-10 jain holdfast - value '>=' 0.999 'ten workers, fairly'
bar dead redlock-5-two-dead p50_us holdfast holdfast@redlock-5 ratio '<=' 1.1 'two of five are dead'
bar lost renew-100000 bytes_each holdfast - value '<=' 512 'memory of a lease'
printf 'Before.\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nBehind.\n' >"$page"

said=$(report)
is "what is not met is named with its median, and those that are met are counted" "$said" "$(
    echo "missed: tens: 0.9, not >= 0.95: ten workers"
    echo "missed: dead: 1.11, not <= 1.1: two of five are dead"
    echo "bars: 2 met, 2 missed, 1 not measured"
)"
like "a ratio is taken within each repetition, with its spread, and may be missed" "$(cat "$page")" \
    'tens \| ten workers \| contended-10: per_s, holdfast to bare \| >= 0.95 \| 0.9 \| 0.5–2 \| \*\*missed\*\*'
like "the bound itself is met" "$(cat "$page")" '>= 0.9 \| 0.9 \| 0.5–2 \| met'
like "what was not measured is said as such" "$(cat "$page")" '<= 512 \|  \|  \| not measured'
like "a repetition that was run again replaces the earlier one" "$(cat "$page")" \
    'to holdfast@redlock-5 \| <= 1.1 \| 1.11 \| 1.009–1.12'
like "the table of a workload has the median and the spread" "$(cat "$page")" \
    '\*\*holdfast\*\* \| 100 \(90–200\) \| 0.9995 \| 0 \|'
like "what is always said of somebody stands once" "$(cat "$page")" '- holdfast: queues'$'\n'
like "what is said of one workload stands there" "$(cat "$page")" '\| 300 \| with two \|'
is "the text around the figures stays, the old figures do not" \
    "$(sed -n '1p;$p' "$page")$(grep -c '^old$' "$page")" $'Before.\nBehind.0'

is "there is a picture of whatever was measured, and of nothing else" "$(cd "$pictures" && echo *)" \
    "contended.svg handoff.svg idle.svg redlock.svg"
like "a missing picture is said as such" "$(cat "$page")" 'No picture of commands that the server gets'
like "a turn that never was has no point but a word" "$(cat "$pictures/redlock.svg")" \
    'nobody held while it was measured'
ok "the pictures are well-formed" xmllint --noout "$pictures"/*.svg

touch "$pictures/commands.svg"
report >/dev/null
is "a picture that can no longer be drawn does not stay" "$(find "$pictures" -name 'commands*')" ""

# Names and values of a picture with many rows and many lines: none lies upon another, none leaves the sheet.
for peer in p-{1..9} a-name-of-some-length; do
    for size in 2 10 50 100; do
        line contended-$size "$peer" 1 '"per_s":1000,"jain":0.5'
        line contended-$size-1ms "$peer" 1 '"commands_per_op":3'
    done
    line handoff "$peer" 1 '"handoff_p50_us":8600000'
done
crowded() {
    $python - "$pictures"/*.svg <<'END'
import sys
import xml.etree.ElementTree as tree
for path in sys.argv[1:]:
    picture = tree.parse(path).getroot()
    wide, high = map(float, picture.get("viewBox").split()[2:])
    boxes = []
    for text in picture.iter("{http://www.w3.org/2000/svg}text"):
        size = {"title": 16, "soft": 12}.get(text.get("class"), 13)
        width = 0.52 * size * len(text.text)
        left = float(text.get("x")) - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
        boxes.append((left, float(text.get("y")) - 0.7 * size, left + width, float(text.get("y")), text.text))
    for i, one in enumerate(boxes):
        if one[0] < 0 or one[2] > wide or one[3] > high:
            print(path, one, "leaves the sheet")
        for two in boxes[:i]:
            if one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]:
                print(path, one[4], "lies upon", two[4])
END
}
report >/dev/null
is "no text of a picture lies upon another" "$(crowded)" ""

echo 'not json' >>"$results"
like "a line that is not JSON is named" "$(report)" "results.jsonl:[0-9]+: not a line of JSON"
sed -i '$d' "$results"
bar short contended-10
like "a bar without all its columns is named" "$(report)" 'bars.tsv:6: 2 columns instead of 9'
sed -i '$d' "$bars"
echo nothing >"$page"
like "a page without the marks is refused" "$(report)" 'bench:begin.* and .*bench:end.* are missing'
is "and not overwritten" "$(cat "$page")" nothing

# turns EXPRESSION: of the module that makes figures from turns (worker, asked, held, gave it back, was done).
turns() {
    (cd "$ROOT/bench/peers" && $python -c "from turns import *; print($1)")
}
one="(0,10,20,30,31)" two="(1,12,25,40,41)" three="(2,33,45,50,51)"
is "two that hold at once overlap" "$(turns "overlaps([$one,$two,$three],1,99)")" 1
is "as many as may hold do not" "$(turns "overlaps([$one,$two,$three],2,99)")" 0
is "who had not given it back at the end still held it" "$(turns "overlaps([(0,1,2,0,0),$one],1,99)")" 1
is "one who comes when the other leaves does not overlap" "$(turns "overlaps([$one,(1,12,30,40,41)],1,99)")" 0
is "a hand-over is from the giving to the next hold of one who had asked before" \
    "$(turns "handovers([$one,(1,12,36,40,41),(2,45,50,60,61)])")" "[6]"
is "the longest gap counts the ends as well" "$(turns "longest_gap([$one,$two],0,99)")" 74
is "quantiles are values that occurred" \
    "$(turns "[quantile([4,1,3,2],s) for s in (0.5,0.99)], quantile([],0.5)")" "[3, 4] None"
is "fairness is 1 for equals and 1/n for one alone" \
    "$(turns "jain([5,5,5,5]), jain([9,0,0,0]), jain([0,0])")" "1.0 0.25 None"
is "turns that ended too late do not count" "$(turns "figures([$one,$two,$three],3,1e-9*60,45)['ops']")" 2

# peer WHO WORKLOAD FILTER: runs it for a moment and prints what jq finds in its line.
peer() {
    PEERS_HOME=$SCRATCH "$ROOT/bench/peers/run" "$1" "$2" --url "${REDIS_URL:-}" --seconds 0.5 --rep 2 "${@:4}" 2>&1 |
        jq -c "$3"
}
if missing_server redis >/dev/null; then
    echo "ok $((++tests_done)) - a peer is run # SKIP $(missing_server redis)"
else
    start_redis || exit 70
    is "a peer alone: two commands a turn, by the server's counters" \
        "$(peer python-redis uncontended-2cpu '[.who, .rep, .commands_per_op >= 2, .commands_per_op < 2.2]' --cpu 0)" \
        '["python-redis",2,true,true]'
    is "workers in several processes: all are counted, nobody overlaps" \
        "$(peer python-redis contended-10 '[.workers, .overlaps, .ops >= .most, .jain <= 1, .client_cpu_us > 0]')" \
        '[10,0,true,true,true]'
    is "one who waits comes in after the release, within the time that the peer sleeps" \
        "$(peer python-redis-5ms handoff '[.ops > 3, .handoff_p50_us > 0, .handoff_p50_us < 100000]')" \
        '[true,true,true]'
    is "waiters that look every 5 ms are heard by the server while nothing happens" \
        "$(peer python-redis-5ms idle-100 '[.commands_per_s > 300, .ops]' --workers 10)" '[true,null]'
    is "a holder that is killed: the next one holds after the ttl" \
        "$(peer python-redis-5ms killed-holder '[.ops, .p50_us > 0, .p50_us < 1000000]' --workers 3)" '[3,true,true]'
    like "a server that is not there is an error with a name" \
        "$(PEERS_HOME=$SCRATCH "$ROOT/bench/peers/run" python-redis contended-2 --url redis://127.0.0.1:1 2>&1)" \
        'python-redis contended-2: .'
fi
is "flock(1): processes of their own take turns" \
    "$(peer flock1 local-contended-2 '[.engine, .overlaps, .ops > 1, .least > 0]')" \
    '["local",0,true,true]'
is "what is not installed is not listed" "$(PEERS_HOME=$SCRATCH "$ROOT/bench/peers/run" --list handoff | xargs)" \
    "python-redis handoff python-redis-5ms handoff etcdctl handoff"
is "nothing is left in the folder of the peers" "$(cd "$SCRATCH" && echo scratch.* turns.*)" "scratch.* turns.*"
done_testing
