#!/usr/bin/env bash
# postgres_races.sh - pairs of operations of the engine postgres:, of which one waits for the other's transaction
# (postgres_races.py), on a server of its own.
. "$(dirname "$0")/../../lib/tap.sh"
. "$(dirname "$0")/../../lib/postgres.sh"

needs_postgres
needs_psycopg2
start_postgres || exit 70
"$(dirname "$0")/postgres_races.py" "host=127.0.0.1 port=$PG_PORT user=postgres dbname=postgres"
