#!/usr/bin/env bash
# advise.sh - the tree of docs/choosing.md answers six stories, asked and told; and ttl from measured hold times.
. "$(dirname "$0")/tap.sh"

# told ANSWER...: asks, answers line by line, and prints what is to be used.
told() {
    printf '%s\n' "$@" | "$HOLDFAST" advise --ask --json 2>asked | jq -r '.[].use'
}
is "two guests booked table 12, all is in one database: no lock" "$(told y)" \
    "no lock: a transaction, SELECT ... FOR UPDATE, or UNIQUE"
is "the nightly job ran twice, on three machines" "$(told n 1 s p y t)" \
    $'holdfast run -n -E 0 NAME -- CMD\nholdfast -u URL run NAME -- CMD, URL of a server that all reach'
is "our workers overload the API" "$(told n n w p n t)" "holdfast run --capacity N NAME -- CMD"
is "the API allows ten calls a second" "$(told n r)" "no lock: a rate limiter"
is "a deployment in several steps must not meet another one" "$(told n 1 w s n t)" \
    "holdfast acquire --lease FILE --ttl 10m NAME; holdfast release --lease FILE"
is "two machines would pay an invoice twice" "$(told n 1 w p y d)" \
    "holdfast -u 'redis://HOST/0?replicas=1' run NAME -- CMD, and holdfast fence sql"
is "many read the configuration, one writes it" "$(told n w w p n t)" "holdfast run -s NAME -- READ; holdfast run -x NAME -- WRITE"
is "empty lines are the first answers" "$(told '' '' '' '' '' '')" "holdfast run NAME -- CMD"
is "it asks six questions at most" "$(sed 's/^\[.\] //' asked | grep -c '[?:]$')" 6
like "the flags come together in one line" "$(printf '%s\n' n n s p y t | "$HOLDFAST" advise --ask 2>/dev/null)" \
    $'together:\n    holdfast -u URL run -n -E 0 --capacity N NAME -- CMD$'
exits "answers that end too early are 64" 64 bash -c 'printf "n\n" | "$0" advise --ask' "$HOLDFAST"
like "an answer that is none is asked for again" "$(printf 'maybe\ny\n' | "$HOLDFAST" advise --ask 2>&1)" 'no lock: a transaction'
is "told by options it asks nothing" "$("$HOLDFAST" advise --many --machines --json 2>&1 </dev/null | jq length)" 2
is "an advice that is part of another one is not told" "$("$HOLDFAST" advise --many --skip --machines --json | jq -r '.[].use')" \
    $'holdfast run -n --capacity N NAME -- CMD\nholdfast -u URL run NAME -- CMD, URL of a server that all reach'
like "on a terminal it asks without being told to" "$(script -qec "$HOLDFAST advise" /dev/null <<<y)" 'no lock: a transaction'

# Times.
export HOLDFAST_HISTORY=200
for ((i = 0; i < 4; i++)); do "$HOLDFAST" run steps -- true; done
"$HOLDFAST" run steps -- sleep 0.5
json=$("$HOLDFAST" advise --from-history steps --json)
ok "five holds, one of half a second: that is the p99, and the ttl three times as long" jq -e \
    '.holds == 5 and .median_ms < 400 and .p99_ms >= 500 and .ttl_ms == ([1000, .p99_ms * 3] | max) and .max_hold_ms == .p99_ms * 10' <<<"$json"
like "in words" "$("$HOLDFAST" advise --from-history steps)" '5 holds: half of them up to [0-9]+ ms, 99 of 100 up to [0-9]+ ms'
exits "a name without a past is 79" 79 "$HOLDFAST" advise --from-history nobody
like "and is named" "$said" 'nobody tells of no holds'
cat >metrics <<'END'
# TYPE holdfast_hold_seconds histogram
holdfast_hold_seconds_bucket{le="0.5"} 50
holdfast_hold_seconds_bucket{le="2.5"} 99
holdfast_hold_seconds_bucket{le="+Inf"} 100
holdfast_hold_seconds_sum 99
holdfast_hold_seconds_count 100
holdfast_wait_seconds_bucket{le="0.001"} 7
END
times='{"holds":100,"median_ms":500,"p99_ms":2500,"ttl_ms":7500,"max_hold_ms":25000}'
is "metrics from a file" "$("$HOLDFAST" advise --from-metrics metrics --json)" "$times"
is "from stdin" "$("$HOLDFAST" advise --from-metrics - --json <metrics)" "$times"
python3 -u -m http.server --bind 127.0.0.1 0 >served 2>&1 &
web=$!
eventually grep -q port served
address=http://127.0.0.1:$(sed -n 's/.* port \([0-9]*\) .*/\1/p' served)
is "from an address" "$("$HOLDFAST" advise --from-metrics "$address/metrics" --json)" "$times"
exits "an address with nothing there is 69" 69 "$HOLDFAST" advise --from-metrics "$address/nothing"
like "and says what was answered" "$said" '404'
kill $web
wait $web 2>/dev/null
exits "nobody at the address is 69" 69 "$HOLDFAST" advise --from-metrics "$address/metrics"
exits "a file that is not there is 69" 69 "$HOLDFAST" advise --from-metrics nowhere
exits "no address is 69" 69 "$HOLDFAST" advise --from-metrics http://
sed -i 's/"2.5"} 99/"2.5"} 98/' metrics
exits "holds beyond the last bucket are 64" 64 "$HOLDFAST" advise --from-metrics metrics

# The same from the service itself.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$HOLDFAST" serve --listen "127.0.0.1:$port" --log none 2>serving &
serve=$!
eventually grep -q 'serving on' serving
address=http://127.0.0.1:$port
exits "a service that has seen no release is 79" 79 "$HOLDFAST" advise --from-metrics "$address/metrics"
lease=$(curl -s --json '{"name":"measured"}' "$address/v1/leases" | jq -r .leaseId)
curl -s -X DELETE "$address/v1/leases/$lease"
is "one that has seen one tells of it" "$("$HOLDFAST" advise --from-metrics "$address/metrics" --json | jq .holds)" 1
kill $serve
wait $serve

unsaid() {
    "$HOLDFAST" advise --json | jq -r '.[].use' | while IFS= read -r use; do grep -qF -- "$use" "$ROOT/docs/choosing.md" || echo "$use"; done
}
is "docs/choosing.md has every answer" "$(unsaid)" ""
done_testing
