#!/usr/bin/env bash
# refused_lines.sh - adds up for two simulators in which lines of the library a call was refused. A line where none was must
# be in refused_lines.except, with the reason.
# Usage: refused_lines.sh [SCHEDULES]
# needs: sim/redis_sim sim/redlock_sim
set -u
BUILD=${BUILD:-build-plain}
here=$(dirname "$0")
schedules=${1:-8000}
lines=$(mktemp) && trap 'rm -f "$lines"' EXIT
echo 1..2
failed=0
"$BUILD/tests/sim/redis_sim" --every-line --schedules "$schedules" --seed 5000 >>"$lines" || failed=1
"$BUILD/tests/sim/redlock_sim" --every-line $((schedules / 1000)) >>"$lines" || failed=1
grep -E '^# (seed|a call)|^(ok|not ok)' "$lines" | sed 's/^\([^#]\)/# \1/'
[ $failed = 0 ] && echo "ok 1 - every promise is kept whichever line fails" || echo "not ok 1 - every promise is kept whichever line fails"

# The best state of each line over both simulators.
awk '/^# line / { n = $3; s = $4; sub(/:.*/, "", s)
                  rank = s == "refused" ? 2 : s == "repeats" ? 1 : 0
                  if (!(n in best) || rank > best[n]) best[n] = rank
                  text[n] = substr($0, index($0, ":") + 1) }
     END { for (n in best) print best[n] "\t" text[n] }' "$lines" | sed 's/\t */\t/' | sort >"$lines.best"
all=$(wc -l <"$lines.best") refused=$(grep -c '^2' "$lines.best") repeats=$(grep -c '^1' "$lines.best")
echo "# a call was refused in $refused of $all lines that have one; $repeats only repeat the call before them"
missing=$(grep '^0' "$lines.best" | cut -f2 | grep -vxF -f <(grep -v '^#' "$here/refused_lines.except"))
rm -f "$lines.best"
if [ -z "$missing" ]; then
    echo "ok 2 - every other line is known to be out of reach of the simulators"
else
    echo "not ok 2 - every other line is known to be out of reach of the simulators"
    while read -r line; do echo "# never refused: $line"; done <<<"$missing"
    failed=1
fi
exit $failed
