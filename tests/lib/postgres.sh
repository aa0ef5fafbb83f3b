# shellcheck shell=bash
# postgres.sh - PostgreSQL servers for tests in bash; sourced behind tap.sh and, where that is used, servers.sh. Each has a
# folder and a free loopback port; they end with the script. PostgreSQL refuses to run as root: then it runs as the user
# postgres.
#
#     needs_postgres
#     start_postgres fsync=on
#     "$HOLDFAST" --url "$PG_URL" ...
#     sql "SELECT 1"
# A backend is a process, which a busy machine may begin late; a request of a test is not to end before.
export HOLDFAST_OP_TIMEOUT=5s
pg_started=()
trap 'end_postgres; [ -z "$(type -t end_servers)" ] || end_servers; rm -rf "$SCRATCH"' EXIT
pg_bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
pg_as=()
[ "$(id -u)" -ne 0 ] || pg_as=(setpriv --reuid=postgres "--regid=$(id -g postgres 2>/dev/null)" --clear-groups)

# needs_postgres: ends a script that cannot run without PostgreSQL, skipped with the reason.
needs_postgres() {
    local why=
    [ -n "$pg_bin" ] || why="PostgreSQL is not installed"
    "$HOLDFAST" version | grep -q '^engines:.*postgres' || why="the engine postgres is not built"
    [ -n "$why" ] || return 0
    result "this needs PostgreSQL # SKIP $why" 0
    done_testing
    exit
}

# needs_psycopg2: ends a script that talks to the server from Python, if that cannot be, skipped
# with the reason.
needs_psycopg2() {
    ! /usr/bin/python3 -c 'import psycopg2' 2>/dev/null || return 0
    result "this needs python3-psycopg2 # SKIP it is not installed" 0
    done_testing
    exit
}

# start_postgres [SETTING=VALUE...]: starts a server and waits until it answers. PG_PID, PG_PORT,
# PG_FOLDER, PG_URL and PG_SETTINGS are those of the server that was started last.
start_postgres() {
    PG_SETTINGS=("$@")
    PG_FOLDER=$(mktemp -d /tmp/holdfast-postgres.XXXXXX)
    [ "$(id -u)" -ne 0 ] || chown postgres "$PG_FOLDER"
    "${pg_as[@]}" env "HOME=$PG_FOLDER" "$pg_bin/initdb" -D "$PG_FOLDER/data" -U postgres -A trust -E UTF8 --no-locale --no-sync \
        --wal-segsize=1 >"$PG_FOLDER.initdb" 2>&1 || { cat "$PG_FOLDER.initdb" >&2 && return 1; }
    rm -f "$PG_FOLDER.initdb"
    PG_PORT=$((22000 + RANDOM % 8000))
    launch_postgres
}

# launch_postgres: starts the server in $PG_FOLDER on $PG_PORT, with $PG_SETTINGS.
launch_postgres() {
    local setting options=()
    for setting in fsync=off "${PG_SETTINGS[@]}"; do options+=(-c "$setting"); done
    # shellcheck disable=SC2034
    PG_URL=postgres://postgres@127.0.0.1:$PG_PORT/postgres
    "${pg_as[@]}" setpriv --pdeathsig QUIT "$pg_bin/postgres" -D "$PG_FOLDER/data" -p "$PG_PORT" -c listen_addresses=127.0.0.1 \
        -c unix_socket_directories= -c shared_buffers=16MB "${options[@]}" </dev/null >>"$SCRATCH/postgres.log" 2>&1 &
    PG_PID=$!
    pg_started+=("$PG_PID $PG_FOLDER")
    await_postgres
}

await_postgres() {
    local end=$((SECONDS + 30))
    until "$pg_bin/pg_isready" -q -h 127.0.0.1 -p "$PG_PORT" -U postgres; do
        kill -0 "$PG_PID" 2>/dev/null && [ $SECONDS -lt $end ] || { tail -n 20 "$SCRATCH/postgres.log" >&2 && return 1; }
        sleep 0.05
    done
}

# sql TEXT...: runs SQL on the last server, each in a transaction of its own, and prints what it answers.
sql() {
    local text arguments=()
    for text; do arguments+=(-c "$text"); done
    "$pg_bin/psql" -X -q -At -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$PG_PORT" -U postgres -d postgres "${arguments[@]}" 2>&1
}

# crash_postgres: kills the server and its processes with SIGKILL.
crash_postgres() {
    # shellcheck disable=SC2046
    kill -9 "$PG_PID" $(ps -o pid= --ppid "$PG_PID") 2>/dev/null
    wait "$PG_PID" 2>/dev/null
    rm -f "$PG_FOLDER/data/postmaster.pid"
}

end_postgres() {
    local pid folder
    for one in "${pg_started[@]}"; do
        read -r pid folder <<<"$one"
        kill -QUIT "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
        rm -rf "$folder"
    done
}
