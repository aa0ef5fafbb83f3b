#!/usr/bin/env bash
# postgres_walk.sh - the random walk through the SQL of the engine postgres: (postgres_walk.py) on a server of its own.
#
#     postgres_walk.sh [--steps N] [--seed N] [--plants]
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
needs_psycopg2
start_postgres || exit 70
"$(dirname "$0")/postgres_walk.py" "host=127.0.0.1 port=$PG_PORT user=postgres dbname=postgres" "$@"
