#!/usr/bin/env bash
# behind.sh - requests that two readers could understand differently, through nginx and haproxy: whatever the proxy makes of
# one, the service sees no request that was hidden in another. Skipped with its reason where there is no such proxy.
. "$(dirname "$0")/serving.sh"
serve "local:$SCRATCH/table" || exit 70
proxies=()
trap 'kill "${proxies[@]}" 2>/dev/null; wait "${proxies[@]}" 2>/dev/null; end_services; end_servers; rm -rf "$SCRATCH"' EXIT
PORT=$((31000 + RANDOM % 900))

start_nginx() {
    mkdir -p nginx
    cat >nginx.conf <<END
daemon off; worker_processes 1; pid $SCRATCH/nginx/pid; error_log $SCRATCH/nginx/error.log;
events { worker_connections 256; }
http {
    access_log off; underscores_in_headers on; ignore_invalid_headers off;
    client_body_temp_path $SCRATCH/nginx/body; proxy_temp_path $SCRATCH/nginx/proxy; fastcgi_temp_path $SCRATCH/nginx/f;
    uwsgi_temp_path $SCRATCH/nginx/u; scgi_temp_path $SCRATCH/nginx/s;
    upstream service { server ${BASE#http://}; keepalive 4; }
    server { listen 127.0.0.1:$PORT; location /v1/locks/smuggled { return 403; } location / { proxy_pass http://service; proxy_http_version 1.1;
        proxy_request_buffering off; proxy_set_header Connection ""; proxy_set_header Host localhost; } }
}
END
    /usr/sbin/nginx -c "$SCRATCH/nginx.conf" -p "$SCRATCH/nginx" 2>nginx.log &
    proxies+=($!)
}

start_haproxy() {
    cat >haproxy.conf <<END
defaults
    mode http
    timeout connect 2s
    timeout client 3s
    timeout server 5s
    option http-keep-alive
    http-reuse always
frontend in
    bind 127.0.0.1:$PORT
    default_backend service
backend service
    http-request deny if { path_beg /v1/locks/smuggled }
    http-request set-header Host localhost
    server one ${BASE#http://}
END
    haproxy -db -f haproxy.conf >haproxy.log 2>&1 &
    proxies+=($!)
}

for proxy in nginx haproxy; do
    if ! PATH=$PATH:/usr/sbin command -v $proxy >/dev/null; then
        result "behind $proxy # SKIP $proxy is not installed" 0
        continue
    fi
    PORT=$((PORT + 1))
    PATH=$PATH:/usr/sbin start_$proxy
    answers() { curl -sf -m 2 -o /dev/null "http://127.0.0.1:$PORT/livez"; }
    until_true 10 answers
    result "$proxy stands before the service" $? "$(cat $proxy.log)"
    include "$ROOT/tests/server/strict.py" $PORT "${BASE##*:}"
    ask GET /v1/locks/smuggled
    ask DELETE "/v1/locks/smuggled/holder?token=$(jq -r '.holders[0].token' <<<"$REPLY")&reason=done"
done
stop_service
is "and the service ends well" $? 0
done_testing
