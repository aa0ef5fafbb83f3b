# shellcheck shell=bash
# serving.sh - what the suites of the service share; sourced at their top. Starts services on free ports, asks them with
# curl, and runs a suite once for each engine. Every answer that `ask` and the Python scripts get is recorded, and at the
# end all of them are compared with the OpenAPI document.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.sh"
. "$ROOT/tests/lib/servers.sh"
services=()
export HF_ANSWERS=$SCRATCH/answers # method, path, status, type and body in lines; a NUL behind each answer
STANDARD='{"ttlMs":20000}'
trap 'end_services; show_aborted; end_servers; rm -rf "$SCRATCH"' EXIT
cd "$SCRATCH" || exit 70

# serve URL [OPTION...]: starts one on a free port and waits until it serves. SERVICE_PID, BASE (its address) and SERVICE_LOG
# are those of the last one.
serve() {
    local url=$1 end=$((SECONDS + 15))
    shift
    SERVICE_LOG=$(mktemp "$SCRATCH/service.XXXXXX")
    "$HOLDFAST" -u "$url" serve --listen 127.0.0.1:0 "$@" 2>"$SERVICE_LOG" &
    SERVICE_PID=$!
    services+=("$SERVICE_PID")
    until BASE=$(sed -n 's|^.*serving on \(127[0-9.:]*\)$|http://\1|p' "$SERVICE_LOG") && [ -n "$BASE" ]; do
        if ! kill -0 "$SERVICE_PID" 2>/dev/null || [ $SECONDS -ge $end ]; then
            cat "$SERVICE_LOG" >&2
            return 1
        fi
        sleep 0.02
    done
}

# stop_service [PID]: with SIGTERM; its exit status.
stop_service() {
    kill -TERM "${1:-$SERVICE_PID}" && wait "${1:-$SERVICE_PID}"
}

end_services() {
    local pid
    for pid in "${services[@]}"; do
        kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
}

# show_aborted: the logs of services that an assertion or a sanitizer ended.
show_aborted() {
    grep -hE 'Assertion|ERROR: |SUMMARY: |runtime error' "$SCRATCH"/service.?????? >&2
}

# ask METHOD PATH [BODY [CURL OPTION...]]: STATUS, REPLY (the body) and HEAD (the header fields).
ask() {
    local method=$1 path=$2 body=${3:-}
    shift $(($# < 3 ? $# : 3))
    STATUS=$(curl -s -m 20 -o "$SCRATCH/reply" -D "$SCRATCH/head" -w '%{http_code}' -X "$method" \
        ${body:+--json "$body"} "$@" "$BASE$path")
    REPLY=$(cat "$SCRATCH/reply" 2>/dev/null)
    HEAD=$(tr -d '\r' <"$SCRATCH/head" 2>/dev/null)
    : >"$SCRATCH/reply"
    record "$method" "$path"
}

# record METHOD PATH: the last answer, for the comparison with the document. Answers to HEAD have no body. Starts no process,
# because some tests are about moments.
record() {
    local type=''
    [ "$STATUS" != 000 ] && [ "$1" != HEAD ] || return 0
    [[ $HEAD =~ [Cc]ontent-[Tt]ype:\ *([^$'\n']*) ]] && type=${BASH_REMATCH[1]}
    printf '%s\n%s\n%s\n%s\n%s\0' "$1" "$2" "$STATUS" "$type" "$REPLY" >>"$HF_ANSWERS"
}

# done_testing: the last test compares all answers with the document of a service that is started for that.
done_testing() {
    local wrong
    if [ -s "$HF_ANSWERS" ]; then
        serve "local:$SCRATCH/document" >/dev/null && curl -s -m 10 "$BASE/openapi.json" >"$SCRATCH/document.json"
        wrong=$(python3 -B "$ROOT/tests/server/openapi_match.py" "$SCRATCH/document.json" "$HF_ANSWERS" 2>&1)
        result "all answers fit the OpenAPI document" $? "$wrong"
        grep '^# ' <<<"$wrong"
    fi
    echo "1..$tests_done"
}

# status NAME WANTED METHOD PATH [BODY [CURL OPTION...]]: asks, and compares the status.
status() {
    local name=$1 wanted=$2
    shift 2
    ask "$@"
    is "$name" "$STATUS" "$wanted"
}

# said NAME FILTER WANTED: what jq finds in the last reply.
said() {
    is "$1" "$(jq -r "$2" <<<"$REPLY" 2>&1)" "$3"
}

# acquire NAME [BODY]: LEASE is its id.
acquire() {
    local body=${2:-}
    ask POST "/v1/locks/$1/leases" "${body:-$STANDARD}"
    LEASE=$(jq -r '.leaseId // empty' <<<"$REPLY")
}

# until_true SECONDS COMMAND...: tries until it succeeds. The last try begins in time.
until_true() {
    local began=${EPOCHREALTIME/./} most=$(($1 * 1000000)) tried
    shift
    while tried=$((${EPOCHREALTIME/./} - began)) && [ $tried -le $most ]; do
        ! "$@" || return 0
        sleep 0.05
    done
    return 1
}

# include SCRIPT [ARGUMENT...]: the tests of a Python script become part of this suite. One that ended early is a failure.
include() {
    python3 -B "$@" >included.tap
    tests_done=$((tests_done + $(grep -cE '^(not )?ok ' included.tap)))
    grep -v '^1\.\.' included.tap
    is "$(basename "$1") ran to its end" "$(grep -c '^1\.\.' included.tap)" 1
}

# milliseconds COMMAND...: how long it took.
milliseconds() {
    local began=${EPOCHREALTIME/./}
    "$@" >/dev/null
    echo $(((${EPOCHREALTIME/./} - began) / 1000))
}

# waiters NAME: how many the engine knows.
waiters() {
    curl -s -m 5 "$BASE/v1/locks/$1" | jq '.waiters | length'
}
waiters_are() {
    [ "$(waiters "$1")" = "$2" ]
}
