#!/usr/bin/env bash
# browser.sh - the page in Chromium, driven by playwright-core. Skipped with its reason where one of them cannot be had.
# Screenshots stay in $HF_SCREENSHOTS (build-logs/screenshots).
. "$(dirname "$0")/serving.sh"

skip_all() {
    result "the page in a browser # SKIP $1" 0
    done_testing
    exit
}
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip_all "there is no chromium"
command -v npm >/dev/null || skip_all "there is no npm"
PLAYWRIGHT=${PLAYWRIGHT:-$SCRATCH/npm}
if [ ! -d "$PLAYWRIGHT/node_modules/playwright-core" ]; then
    mkdir -p "$PLAYWRIGHT" && npm install --silent --no-fund --no-audit --prefix "$PLAYWRIGHT" playwright-core >npm.log 2>&1 ||
        skip_all "playwright-core cannot be fetched: $(tail -n 1 npm.log)"
fi
export CHROMIUM PLAYWRIGHT HOLDFAST
SHOTS=${HF_SCREENSHOTS:-$ROOT/build-logs/screenshots}
mkdir -p "$SHOTS" && rm -f "$SHOTS"/*.png
start_redis || exit 70
serve "$REDIS_URL?op_timeout=1s" --title "Board of the test" --colour violet || exit 70
timeout 220 node "$ROOT/tests/server/browser.mjs" "$BASE" "$REDIS_URL" "$SHOTS" "$REDIS_PID" "$SERVICE_PID" >browser.tap
tests_done=$(grep -cE '^(not )?ok ' browser.tap)
grep -v '^1\.\.' browser.tap
is "it ran to its end" "$(grep -c '^1\.\.' browser.tap)" 1
is "every view was kept as a picture" "$(find "$SHOTS" -name '*.png' -size +4k | wc -l)" 24
done_testing
