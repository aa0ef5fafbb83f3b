#!/usr/bin/env bash
# postgres_walk.sh - the random walk through the SQL of the engine postgres: (postgres_walk.py) on a server of its own.
#
#     postgres_walk.sh [--steps N] [--seed N] [--plants]
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
if ! /usr/bin/python3 -c 'import psycopg2' 2>/dev/null; then
    result "this needs python3-psycopg2 # SKIP it is not installed" 0
    done_testing
    exit
fi
start_postgres || exit 70
"$(dirname "$0")/postgres_walk.py" "host=127.0.0.1 port=$PG_PORT user=postgres dbname=postgres" "$@"
