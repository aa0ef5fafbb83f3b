#!/usr/bin/env bash
# fence.sh - the SQL that `fence sql` prints does in a real SQLite what it promises: equal tokens pass, lower ones do not.
. "$(dirname "$0")/../lib/cli_tap.sh"

sql() {
    sqlite3 -bail jobs.db "$@"
}
sql "CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT); INSERT INTO jobs VALUES ('a', 'new'), ('b', 'new');"
ok "SQLite takes what is printed" bash -c '"$0" fence sql --dialect sqlite --table jobs | sqlite3 -bail jobs.db' "$HOLDFAST"
state() {
    sql "SELECT state, fence_token FROM jobs WHERE id = '${1:-a}'"
}
is "rows that were there begin with token 0" "$(state)" "new|0"
ok "a first token passes" sql "UPDATE jobs SET state = 'one', fence_token = 10 WHERE id = 'a'"
ok "an equal one passes: the same holder writes again" sql "UPDATE jobs SET state = 'two', fence_token = 10 WHERE id = 'a'"
ok "a higher one passes" sql "UPDATE jobs SET state = 'three', fence_token = 11 WHERE id = 'a'"
said=$(sql "UPDATE jobs SET state = 'late', fence_token = 10 WHERE id = 'a'" 2>&1)
is "a lower one is an error" $((!$?)) 0
like "that says why" "$said" 'stale token'
is "and changes nothing" "$(state)" "three|11"
fails "a lower one among others undoes the whole statement" sql "UPDATE jobs SET state = 'late', fence_token = 5"
is "so that no row is changed" "$(state a) $(state b)" "three|11 new|0"
fails "INSERT OR REPLACE is no way around it" sql "INSERT OR REPLACE INTO jobs VALUES ('a', 'late', 10)"
is "that changes nothing" "$(state)" "three|11"
fails "nor is an upsert" sql "INSERT INTO jobs VALUES ('a', 'late', 10) ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence_token = excluded.fence_token"
ok "with a new token both pass" sql "INSERT OR REPLACE INTO jobs VALUES ('a', 'four', 12); INSERT INTO jobs VALUES ('a', 'five', 13)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence_token = excluded.fence_token"
is "and write" "$(state)" "five|13"
ok "rows of other keys are independent" sql "UPDATE jobs SET state = 'own', fence_token = 3 WHERE id = 'b'; INSERT INTO jobs VALUES ('c', 'new', 1)"

# Two holders, one after the other, with the tokens that they were given.
sql "CREATE TABLE work (number INTEGER PRIMARY KEY, by TEXT); INSERT INTO work VALUES (1, '');"
"$HOLDFAST" fence sql --dialect sqlite --table work --key number --token proof | sqlite3 -bail jobs.db
write='sqlite3 -bail jobs.db "UPDATE work SET by = '\''$WHO'\'', proof = $HOLDFAST_TOKEN WHERE number = 1"'
old=$("$HOLDFAST" run work -c 'echo $HOLDFAST_TOKEN')
ok "the second holder writes" env WHO=second "$HOLDFAST" run work -c "$write"
fails "the first one, woken late, does not" env WHO=first HOLDFAST_TOKEN="$old" sh -c "$write"
is "what stands there is the second's" "$(sql 'SELECT by FROM work')" second

postgres=$("$HOLDFAST" fence sql --table jobs --token proof)
is "postgres is the default" "$postgres" "$("$HOLDFAST" fence sql --dialect postgres --table jobs --token proof)"
like "it is a column" "$postgres" 'ALTER TABLE "jobs" ADD COLUMN "proof" bigint NOT NULL DEFAULT 0;'
like "with an error code that nobody retries" "$postgres" "ERRCODE = 'HF079'"
like "and a trigger" "$postgres" 'IF NEW."proof" < OLD."proof" THEN.*CREATE TRIGGER "jobs_fence" BEFORE UPDATE ON "jobs"'
fails "no place in the text is left open" grep -q '@' <<<"$postgres$("$HOLDFAST" fence sql --dialect sqlite)"
for name in '' 'a b' 'a"b' "a'b" 'a;b' 1a 'ä' "$(printf '%049d' 0 | tr 0 x)"; do
    exits "a table named \"$name\" is 64" 64 "$HOLDFAST" fence sql --table "$name"
done
done_testing
