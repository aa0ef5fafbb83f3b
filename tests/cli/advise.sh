#!/usr/bin/env bash
# advise.sh - the tree of docs/choosing.md answers stories, asked and told; permits and readers are sent to no fence that
# would refuse them; and ttl from measured hold times.
. "$(dirname "$0")/../lib/cli_tap.sh"

# told ANSWER...: asks, answers line by line, and prints what is to be used.
told() {
    printf '%s\n' "$@" | "$HOLDFAST" advise --ask --json 2>asked | jq -r '.[].use'
}
is "two guests booked table 12, all is in one database: no lock" "$(told y)" \
    "no lock: a transaction, SELECT ... FOR UPDATE, or UNIQUE"
is "the nightly job ran twice, on three machines" "$(told n 1 s p y n y t w)" \
    $'holdfast run -n -E 0 NAME -- CMD\nholdfast -u URL run NAME -- CMD, with the URL of a server that all reach'
is "our workers overload the API" "$(told n n w p y n n t)" "holdfast run --capacity N NAME -- CMD"
is "the API allows ten calls a second" "$(told n r)" "no lock: a rate limiter"
is "a deployment in several steps must not meet another one" "$(told n 1 w s y n n t)" \
    "holdfast acquire --lease FILE --ttl 10m NAME; holdfast release --lease FILE"
is "a job of unknown length is renewed, and bounded" "$(told n 1 w p n n n t)" "holdfast run --max-hold 2h NAME -- CMD"
is "steps of unknown length are extended" "$(told n 1 w s n n n t)" \
    "holdfast acquire --lease FILE --ttl 10m NAME; holdfast extend --lease FILE --ttl 10m; holdfast release --lease FILE"
is "a holder that calls code which takes the same lock" "$(told n 1 w p y y n t)" "holdfast run --owner ID NAME -- CMD, at every level"
is "two machines would pay an invoice twice" "$(told n 1 w p y n y d y)" \
    "holdfast -u 'redis://HOST/0?replicas=1' run NAME -- CMD, and holdfast fence sql"
is "clocks and lost data may not let two in: consensus" "$(told n 1 w p y n y d n)" \
    'holdfast -u etcd://A,B,C run NAME -- CMD, and holdfast fence sql'
is "the lock must survive the loss of its server" "$(told n 1 w p y n y t s)" "holdfast -u 'redis://HOST/0?replicas=1' run NAME -- CMD"
is "many read the configuration, one writes it" "$(told n w w p y n n t)" "holdfast run -s NAME -- READ; holdfast run -x NAME -- WRITE"
is "empty lines are the first answers" "$(told '' '' '' '' '' '' '' '')" "holdfast run NAME -- CMD"
told n 1 w p y n y d y >/dev/null
is "it asks nine questions at most" "$(sed 's/^\[.\] //' asked | grep -c '[?:]$')" 9
like "the flags come together in one line" "$(printf '%s\n' n n s p y n y t w | "$HOLDFAST" advise --ask 2>/dev/null)" \
    $'together:\n    holdfast -u URL run -n -E 0 --capacity N NAME -- CMD$'
exits "answers that end too early are 64" 64 bash -c 'printf "n\n" | "$0" advise --ask' "$HOLDFAST"
like "an answer that is none is asked for again" "$(printf 'maybe\ny\n' | "$HOLDFAST" advise --ask 2>&1)" 'no lock: a transaction'
is "told by options it asks nothing" "$("$HOLDFAST" advise --many --machines --json 2>&1 </dev/null | jq length)" 2
is "an advice that is part of another one is not told" "$("$HOLDFAST" advise --many --skip --machines --json | jq -r '.[].use')" \
    $'holdfast run -n --capacity N NAME -- CMD\nholdfast -u URL run NAME -- CMD, with the URL of a server that all reach'
if why=$(missing_terminal); then
    skip "on a terminal it asks without being told to" "$why"
else
    like "on a terminal it asks without being told to" "$(script -qec "$HOLDFAST advise" /dev/null <<<y)" 'no lock: a transaction'
fi

# ---- Permits and a fence ----

# The advice must avoid this: the permits of a semaphore are valid at once, and a fence refuses all but the newest.
sqlite3 books 'CREATE TABLE piece (id INTEGER PRIMARY KEY, done INTEGER); INSERT INTO piece VALUES (1, 0), (2, 0), (3, 0);'
"$HOLDFAST" fence sql --dialect sqlite --table piece | sqlite3 books
cat >write <<'END'
#!/bin/sh
exec sqlite3 -cmd '.timeout 5000' books "UPDATE piece SET done = done + 1, fence_token = $HOLDFAST_TOKEN WHERE id = $1"
END
chmod +x write
# begin PIECE COMMAND...: starts a holder that writes that piece when there is a file "go".
begin() {
    rm -f go
    "${@:2}" sh -c "until [ -e go ]; do sleep 0.02; done; ./write $1" 2>refused &
    holder=$!
}
# end_holder: lets it write; its exit code is that of the write.
end_holder() {
    touch go
    wait $holder
}
begin 1 "$HOLDFAST" run --capacity 5 pool --
eventually rows holder pool 1
ok "a newer permit writes" "$HOLDFAST" run --capacity 5 pool -- ./write 1
end_holder
like "and the fence refuses the older one, which is still valid" "$(cat refused)" 'stale token'

# misled OPTION...: the advice that would send a permit, or a reader, to a fence.
misled() {
    "$HOLDFAST" advise "$@" --json | jq -r '.[].use' | grep fence | grep -vE 'run PIECE -- CMD, and|run -x NAME -- WRITE, and' |
        sed "s/^/$*: /"
}
all_misled() {
    local shared one two
    for shared in --many --weights --readers; do
        for one in skip script nested several machines failover strict open-ended weights; do
            for two in skip script nested several machines failover strict open-ended weights; do
                [[ $one > $two ]] || misled $shared --correct "--$one" "--$two"
            done
        done
        misled $shared --correct
    done
}
is "whatever else the story has, no permit and no reader is sent to a fence" "$(all_misled)" ""
is "permits that must be correct: a permit for the load, and a lock of its own for each piece" \
    "$("$HOLDFAST" advise --many --correct --json | jq -r '.[].use')" \
    'holdfast run --capacity N NAME -- holdfast run PIECE -- CMD, and holdfast fence sql'
like "asked, the one line has both" "$(printf '%s\n' n n w p y n n d | "$HOLDFAST" advise --ask 2>/dev/null)" \
    $'together:\n    holdfast run --capacity N NAME -- holdfast run PIECE -- CMD$'
# A fence belongs to one lock: these are pieces that no permit of the pool has written.
begin 2 "$HOLDFAST" run --capacity 5 pool -- "$HOLDFAST" run piece/2 --
eventually rows holder piece/2 1
ok "as advised, a newer permit writes its piece" "$HOLDFAST" run --capacity 5 pool -- "$HOLDFAST" run piece/3 -- ./write 3
end_holder
is "and the older permit still writes its own" "$? $(cat refused)" "0 "
is "both pieces are written once" "$(sqlite3 books 'SELECT group_concat(done) FROM piece WHERE id > 1')" "1,1"
is "of readers and writers only the writer is fenced" "$("$HOLDFAST" advise --readers --correct --json | jq -r '.[].use')" \
    'holdfast run -s NAME -- READ; holdfast run -x NAME -- WRITE, and holdfast fence sql'

# Times.
export HOLDFAST_HISTORY=200
for ((i = 0; i < 4; i++)); do "$HOLDFAST" run steps -- true; done
"$HOLDFAST" run steps -- sleep 0.5
json=$("$HOLDFAST" advise --from-history steps --json)
ok "five holds, one of half a second: that is the p99, and the ttl three times as long" jq -e \
    '.holds == 5 and .medianMs < 400 and .p99Ms >= 500 and .ttlMs == ([1000, .p99Ms * 3] | max) and .maxHoldMs == .p99Ms * 10' <<<"$json"
like "in words" "$("$HOLDFAST" advise --from-history steps)" '5 holds: half of them up to [0-9]+ ms, 99 of 100 up to [0-9]+ ms'
exits "a name without a past is 79" 79 "$HOLDFAST" advise --from-history nobody
like "and is named" "$said" 'nobody has no holds to measure'
cat >metrics <<'END'
# TYPE holdfast_hold_seconds histogram
holdfast_hold_seconds_bucket{le="0.5"} 50
holdfast_hold_seconds_bucket{le="2.5"} 99
holdfast_hold_seconds_bucket{le="+Inf"} 100
holdfast_hold_seconds_sum 99
holdfast_hold_seconds_count 100
holdfast_wait_seconds_bucket{le="0.001"} 7
END
times='{"holds":100,"medianMs":500,"p99Ms":2500,"ttlMs":7500,"maxHoldMs":25000}'
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
