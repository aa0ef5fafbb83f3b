#!/usr/bin/env bash
# redis_tls.sh - TLS and passwords on a real server: every way in which a certificate can be wrong has words of its own and
# fails at once (78), new files are used without a restart, and no output, log or list of processes shows a password.
#
#     redis_tls.sh [redis|valkey]
. "$(dirname "$0")/../../lib/cli_tap.sh"
. "$ROOT/tests/lib/servers.sh"
kind=${1:-redis}
needs_server "$kind"

certificates=$SCRATCH/certificates
mkdir "$certificates"
"$ROOT/tests/lib/certificates" "$certificates" || exit 70
cd "$certificates" || exit 70

# certificate NAME CA EXTENSION [OPTION...]: one more for a server.
certificate() {
    local name=$1 ca=$2 extension=$3
    shift 3
    openssl ecparam -name prime256v1 -genkey -noout -out "$name.key"
    echo "$extension" >ext
    openssl req -new -key "$name.key" -subj "/CN=$name" 2>/dev/null |
        openssl x509 -req -CA "$ca.crt" -CAkey "$ca.key" -CAcreateserial -extfile ext -out "$name.crt" "$@" 2>/dev/null
}
here=subjectAltName=DNS:localhost,IP:127.0.0.1
certificate expired ca $here -days -1
certificate elsewhere ca subjectAltName=DNS:elsewhere.example,IP:192.0.2.1 -days 2
certificate unknown stranger-ca $here -days 2
certificate self ca $here -days 2

# serve CERTIFICATE [OPTION...]: a server with that certificate on $REDIS_PORT, plain on its socket.
serve() {
    local name=$1
    shift
    # The last --port counts: none but the one that speaks TLS.
    start_server "$kind" --tls-cert-file "$certificates/$name.crt" --tls-key-file "$certificates/$name.key" --tls-ca-cert-file "$certificates/ca.crt" --port 0 "$@" || exit 70
}

# With --port 0 the port of TLS must be told apart; start_server picks it before it starts the server.
launch_tls() {
    launch_plain "$@" --tls-port "$REDIS_PORT"
}
eval "launch_plain() $(declare -f launch_server | tail -n +2)"
eval "launch_server() $(declare -f launch_tls | tail -n +2)"

# run_at URL [WAIT]
run_at() {
    "$HOLDFAST" -u "$1" run -w "${2:-9s}" job true
}
ours="ca=$certificates/ca.crt"
mine="$ours&cert=$certificates/client.crt&key=$certificates/client.key"
printf '# %-38s %-4s %s\n' "what is wrong" exit words

# refused NAME CODE WORDS URL: at once, and the table's line is shown.
refused() {
    local from=$SECONDS
    exits "$1: $2" "$2" run_at "$4"
    result "$1: at once" $((SECONDS - from > 3)) "$((SECONDS - from)) s"
    like "$1: it says what" "$said" "$3"
    printf '# %-38s %-4s %s\n' "$1" "$2" "${said%%$'\n'*}"
}

# ---- A server that asks for a client's certificate
serve server
url=rediss://localhost:$REDIS_PORT/0
exits "all is right" 0 run_at "$url?$mine"
exits "by address" 0 run_at "rediss://127.0.0.1:$REDIS_PORT/0?$mine"
refused "no client certificate" 78 'asks for a certificate' "$url?$ours"

# The same as texts that a program has in memory: hf_client_options, with no file that the library could open.
with_texts() {
    "$BUILD/tests/cli/secret_client" "$@"
}
texts=("ca=$certificates/ca.crt" "cert=$certificates/client.crt" "key=$certificates/client.key")
exits "certificates as texts" 0 with_texts "$url" "${texts[@]}"
exits "as texts, without ours: 78" 78 with_texts "$url" "${texts[0]}"
like "as texts, without ours: it says what" "$said" 'asks for a certificate'
exits "as texts, of an unknown authority: 78" 78 with_texts "$url" "ca=$certificates/stranger-ca.crt" "${texts[@]:1}"
exits "as texts, no certificate at all: 78" 78 with_texts "$url" "ca=$certificates/ca.key"
exits "as text and in the URL: 78" 78 with_texts "$url?$ours" "${texts[@]}"
like "as text and in the URL: it says what" "$said" 'ca_pem: the setting ca is given as well .url.'

refused "a stranger's client certificate" 78 'refuses our certificate' \
    "$url?$ours&cert=$certificates/stranger.crt&key=$certificates/stranger.key"
refused "unknown authority (the system's)" 78 'from an unknown authority' "$url"
refused "unknown authority (another file)" 78 'from an unknown authority' "$url?ca=$certificates/stranger-ca.crt"
refused "a key that is another's" 78 'is not the key of' "$url?$ours&cert=$certificates/client.crt&key=$certificates/stranger.key"
refused "a file that is not there" 78 'No such file' "$url?ca=$certificates/nothing.crt"
refused "a file that is no certificate" 78 'has no PEM certificate' "$url?ca=$certificates/ca.key"
exits "plain text to the port of TLS: 69" 69 run_at "redis://localhost:$REDIS_PORT/0" 300ms
like "plain text to the port of TLS: it says what" "$said" 'is this a port for TLS'
printf '# %-38s %-4s %s\n' "plain text to the port of TLS" 69 "${said##*$'\n'}"

# ---- The name that the handshake carries: a front writes it down and passes the rest on to the server
"$ROOT/tests/lib/sni-front" "$REDIS_SOCKET" server.crt server.key >names 2>/dev/null &
front=$!
servers_started+=("$front")
eventually lines names 1
port=$(head -n 1 names)
exits "through the front, by name" 0 run_at "rediss://localhost:$port/0?$ours"
is "the handshake carries the host name" "$(sed 1d names | sort -u)" localhost
before=$(wc -l <names)
exits "through the front, by address" 0 run_at "rediss://127.0.0.1:$port/0?$ours"
is "an address is no name, and is not sent as one" "$(tail -n "+$((before + 1))" names | sort -u)" -
stop_server "$front"

# ---- New files without a restart: a holder reconnects with what is in the files then
cp client.crt own.crt && cp client.key own.key
"$HOLDFAST" -u "$url?$ours&cert=$certificates/own.crt&key=$certificates/own.key" run --ttl 3s reload bash -c 'read -r < go' 2>holder &
holder=$!
mkfifo go
eventually test -e go
held() { [ "$(redis_cli EXISTS lock:reload)" -eq 1 ]; }
eventually held
certificate renewed ca basicConstraints=CA:FALSE -days 2
mv renewed.crt own.crt && mv renewed.key own.key
openssl ecparam -name prime256v1 -genkey -noout -out new-server.key
certificate again ca $here -days 2
redis_cli CONFIG SET tls-cert-file "$certificates/again.crt" tls-key-file "$certificates/again.key" >/dev/null
killed=$(redis_cli CLIENT KILL TYPE normal)
sleep 0.5
back() { redis_cli CLIENT LIST | grep -q name=holdfast/; }
ok "the connections of a holder were cut" test "$killed" -ge 1
ok "it is back, with new certificates on both sides" eventually back
echo >go
wait $holder
result "and held its lock throughout" $? "$(cat holder)"
stop_server

# ---- Certificates of the server
serve expired --tls-auth-clients no
refused "expired" 78 'certificate has expired' "rediss://localhost:$REDIS_PORT/0?$ours"
stop_server
serve elsewhere --tls-auth-clients no
refused "wrong host" 78 'is for another host' "rediss://localhost:$REDIS_PORT/0?$ours"
refused "wrong address" 78 'is for another host' "rediss://127.0.0.1:$REDIS_PORT/0?$ours"
stop_server
serve unknown --tls-auth-clients no
refused "of an unknown authority" 78 'from an unknown authority' "rediss://localhost:$REDIS_PORT/0?$ours"
stop_server
eval "launch_server() $(declare -f launch_plain | tail -n +2)"
secret=Geheim$$ # of this run alone: other suites show theirs to ps meanwhile
start_server "$kind" --requirepass "$secret" || exit 70
exits "TLS to a plain port: 69, for it does not answer" 69 run_at "rediss://localhost:$REDIS_PORT/0?$ours&connect_timeout=300ms" 700ms
like "TLS to a plain port: it says what" "$said" 'no connection within 300 ms: is this a port for TLS'
printf '# %-38s %-4s %s\n' "TLS to a plain port" 69 "${said##*$'\n'}"

# ---- Passwords
echo $secret >password && chmod 600 password
plain=redis://127.0.0.1:$REDIS_PORT/0
exits "a password in a file" 0 run_at "$plain?password_file=$certificates/password"
exits "whose path is in the environment" 0 env HOLDFAST_PASSWORD_FILE="$certificates/password" "$HOLDFAST" -u "$plain" run job true
exits "a password in the URL" 0 run_at "redis://:$secret@127.0.0.1:$REDIS_PORT/0"
exits "in a URL in the environment" 0 env HOLDFAST_URL="redis://:$secret@127.0.0.1:$REDIS_PORT/0" "$HOLDFAST" run job true
chmod 644 password
exits "a file that others may read: 78" 78 run_at "$plain?password_file=$certificates/password"
like "it says what to do" "$said" 'chmod 600'
exits "a file that is not there: 78" 78 run_at "$plain?password_file=$certificates/nothing"

# All that can be said with a password in the URL, right or wrong, is looked through.
with=redis://default:$secret@127.0.0.1:$REDIS_PORT/0
quick=connect_timeout=200ms
{
    for verb in 'run -w 100ms job true' 'acquire job' list 'list --json' 'show job' doctor 'doctor --json' explain 'history job' \
        'break job' 'resize job 3'; do
        # shellcheck disable=SC2086
        "$HOLDFAST" -u "$with" $verb
    done
    for url in "redis://nobody:$secret@127.0.0.1:$REDIS_PORT/0" "redis://x:$secret@127.0.0.1:1/0?$quick" "redis://x:$secret@host:99999/0" \
        "redis://x:$secret@[::1/0" "redis://x:$secret@127.0.0.1/x" "redis:x:$secret@127.0.0.1/0" "redis+unix://x:$secret@nowhere/x" \
        "$with?ttl=x" "pigeon://x:$secret@host" "rediss://x:$secret@localhost:$REDIS_PORT/0?$quick"; do
        for verb in 'run -w 100ms job true' list doctor; do
            # shellcheck disable=SC2086
            timeout 20 "$HOLDFAST" -u "$url" $verb
        done
    done
} >everything 2>&1
exits "a password apart from the URL" 0 with_texts "redis://127.0.0.1:$REDIS_PORT/0" "password=$secret"
exits "a wrong password apart from the URL: 77" 77 with_texts "redis://127.0.0.1:$REDIS_PORT/0" password=wrong
result "there was much to look through" $(($(wc -l <everything) < 40)) "$(wc -l <everything)"
result "no output of any verb has the password" $(($(grep -c $secret everything) > 0)) "$(grep $secret everything | head -5)"
"$HOLDFAST" -u "$with" run seen bash -c 'read -r < go' &
holder=$!
held() { [ "$(redis-cli -s "$REDIS_SOCKET" -a $secret --no-auth-warning EXISTS lock:seen)" -eq 1 ]; }
eventually held
ok "ps shows the command" bash -c "tr '\\0' ' ' </proc/$holder/cmdline | grep -q 'run seen'"
shown() {
    local pid
    for pid in $(pgrep -f "$HOLDFAST" | grep -v $$); do
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -H --label="$pid" $secret
    done
}
is "and no command line has the password" "$(shown)" ""
is "nor has the server's log" "$(grep -c $secret "$REDIS_FOLDER/log")" 0
echo >go
wait $holder
done_testing
