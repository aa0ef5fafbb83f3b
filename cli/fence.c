/* fence.c - the verb `fence`: prints code that refuses old tokens, for a database or for keys of
 * a Redis server or of etcd.
 *
 * A template has four placeholders: @TABLE@, @KEY@ and @TOKEN@ become quoted identifiers; @NAME@
 * becomes the plain table name inside the names of trigger and function. */
#include "output.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>

/* most bytes of a name: templates add suffixes to it, and PostgreSQL keeps 63 bytes of the whole */
#define IDENTIFIER_MAX 48

enum dialect { POSTGRES, SQLITE, REDIS, ETCD };
static const char *const DIALECTS[] = {
    [POSTGRES] = "postgres", [SQLITE] = "sqlite", [REDIS] = "redis", [ETCD] = "etcd"};
/* key of the code in the JSON output, by kind of fence */
static const char *const LANGUAGES[] = {
    [POSTGRES] = "sql", [SQLITE] = "sql", [REDIS] = "lua", [ETCD] = "sh"};

struct fence {
    int64_t dialect;
    const char *table, *key, *token;
};

static const struct option_spec OPTIONS[] = {
    {"dialect", 0, "postgres|sqlite", STORE_CHOICE, OPTION_FIELD(dialect), 0, 0,
     "which database; default: postgres"},
    {"table", 0, "NAME", STORE_TEXT, OPTION_FIELD(table), 0, 0,
     "the table to guard; default: guarded"},
    {"key", 0, "NAME", STORE_TEXT, OPTION_FIELD(key_column), 0, 0, "its primary key; default: id"},
    {"token", 0, "NAME", STORE_TEXT, OPTION_FIELD(token_column), 0, 0,
     "the new column; default: fence_token"},
    OPTION_JSON,
    OPTION_HELP,
};

/* The error has a code of its own, so that programs which retry serialization failures do not
 * retry this one. */
#define HEADER                                                                                     \
    "-- A fence for @TABLE@, made by `holdfast fence sql`: a write with a token older than "       \
    "the newest that a row "                                                                       \
    "has\n"                                                                                        \
    "-- seen is refused. Equal tokens pass: the same holder writes again. Check and write are "    \
    "one statement.\n"                                                                             \
    "-- Every write must set the column, with the token of its lease (HOLDFAST_TOKEN under "       \
    "`holdfast run`), as in\n"                                                                     \
    "--     UPDATE @TABLE@ SET ..., @TOKEN@ = :token WHERE @KEY@ = :key;\n"                        \
    "-- A new holder writes its token before it reads. A DELETE carries no token: mark rows as "   \
    "deleted instead.\n"                                                                           \
    "-- Only for exclusive locks and writers: readers and permits of a semaphore are valid with "  \
    "different tokens.\n"

static const char *const TEMPLATES[] = {
    [POSTGRES] =
        HEADER "ALTER TABLE @TABLE@ ADD COLUMN @TOKEN@ bigint NOT NULL DEFAULT 0;\nCREATE FUNCTION "
               "\"@NAME@_fence\"() RETURNS trigger LANGUAGE plpgsql AS $$\nBEGIN\n    IF "
               "NEW.@TOKEN@ < OLD.@TOKEN@ THEN\n        RAISE EXCEPTION 'stale token %: % was "
               "seen', NEW.@TOKEN@, OLD.@TOKEN@\n            USING ERRCODE = 'HF079';\n    END "
               "IF;\n    RETURN NEW;\nEND $$;\nCREATE TRIGGER \"@NAME@_fence\" BEFORE UPDATE ON "
               "@TABLE@\n    FOR EACH ROW EXECUTE FUNCTION \"@NAME@_fence\"();\n",
    [SQLITE] = HEADER
    "ALTER TABLE @TABLE@ ADD COLUMN @TOKEN@ INTEGER NOT NULL DEFAULT 0;\nCREATE TRIGGER "
    "\"@NAME@_fence\" BEFORE UPDATE ON @TABLE@\n    WHEN NEW.@TOKEN@ < OLD.@TOKEN@\nBEGIN\n    "
    "SELECT RAISE(ABORT, 'stale token');\nEND;\n-- INSERT OR REPLACE fires no UPDATE trigger, so "
    "it has its own.\nCREATE TRIGGER \"@NAME@_fence_replace\" BEFORE INSERT ON @TABLE@\n    WHEN "
    "EXISTS (SELECT 1 FROM @TABLE@ WHERE @KEY@ = NEW.@KEY@ AND @TOKEN@ > NEW.@TOKEN@)\nBEGIN\n    "
    "SELECT RAISE(ABORT, 'stale token');\nEND;\n",
    /* Tokens are compared as text, because numbers in Lua are exact below 2^53 only. */
    [REDIS] =
        "-- A guarded write, made by `holdfast fence redis`: a call with a token older than the "
        "newest that a key has\n-- seen is refused. Equal tokens pass: the same holder writes "
        "again. Check and write are one step.\n-- KEYS  1 the key that is guarded  2 where its "
        "newest token stands; {key}:fence has the same slot in a cluster\n-- ARGV  1 the token of "
        "the lease (HOLDFAST_TOKEN under `holdfast run`)  2 a command  3... its arguments behind "
        "the\n--       key. Without a command the token is recorded, and that is all.\n--     "
        "redis-cli --eval fence.lua report '{report}:fence' , $HOLDFAST_TOKEN SET 'the text'\n-- A "
        "new holder records its token before it reads; with GET as the command both are one "
        "step.\n-- Only for exclusive locks and writers: readers and permits of a semaphore are "
        "valid with different tokens.\nlocal token, seen = ARGV[1] or '', redis.call('GET', "
        "KEYS[2])\nif not token:match('^[1-9]%d*$') then\n  return redis.error_reply('ERR not a "
        "token: ' .. token)\nend\nif seen and (#seen > #token or (#seen == #token and seen > "
        "token)) then\n  return redis.error_reply('STALE token ' .. token .. ': ' .. seen .. ' was "
        "seen')\nend\nredis.call('SET', KEYS[2], token)\nif not ARGV[2] then return token "
        "end\nreturn redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))\n",
    [ETCD] =
        "# Guarded writes to etcd, made by `holdfast fence etcd`, for holders of a lock that etcd "
        "keeps. Check and write are one\n"
        "# transaction. Read this file with `. ./fence.sh` in a command under `holdfast run`, and "
        "call one of:\n"
        "#\n"
        "#     etcd_put_if_held KEY VALUE   written only while the key of this hold is in etcd. "
        "For every kind of lock\n"
        "#     etcd_put_fenced KEY VALUE    written unless a newer token was seen. KEY.fence has "
        "the newest one. Also for data in\n"
        "#                                  another etcd than the lock. Only for exclusive locks "
        "and writers\n"
        "#\n"
        "# Each returns 0 if the value was written and 79 if it was refused; then nothing was "
        "written. etcdctl finds the cluster by its own\n"
        "# variables, ETCDCTL_ENDPOINTS above all. LOCK_PREFIX is the path of the URL, lock/ if "
        "there is none.\n"
        "export ETCDCTL_API=3\n"
        "\n"
        "# Prints the text as etcdctl reads it in a transaction.\n"
        "etcd_quoted() {\n"
        "    printf '%s' \"$1\" | sed 's/\\\\/&&/g; s/\"/\\\\&/g' | awk '\n"
        "        BEGIN { ORS = \"\"; print \"\\\"\" } NR > 1 { print \"\\\\n\" } { print } END { "
        "print \"\\\"\" }'\n"
        "}\n"
        "\n"
        "# Prints the key of this hold and the revision of its creation. A hold that waited notes "
        "its token in its key within 0.1 s.\n"
        "etcd_own_entry() {\n"
        "    name=$(printf '%s' \"$HOLDFAST_NAME\" | sed 's|%|%25|g; s|/|%2F|g; s|^\\.|%2E|')\n"
        "    etcdctl get --prefix \"${LOCK_PREFIX:-lock/}$name/\" -w fields | awk -F ' : ' -v "
        "token=\"$HOLDFAST_TOKEN\" '\n"
        "        $1 == \"\\\"Key\\\"\" { key = $2 }\n"
        "        $1 == \"\\\"CreateRevision\\\"\" { created = $2 }\n"
        "        $1 == \"\\\"Value\\\"\" { split($2, word, \" \"); if (created == token || word[7] "
        "== token) print key, created }'\n"
        "}\n"
        "\n"
        "# Runs the transaction on stdin. Its first line says whether it was carried out.\n"
        "etcd_written() {\n"
        "    reply=$(etcdctl txn) || return\n"
        "    case $reply in SUCCESS*) return 0 ;; esac\n"
        "    return 79\n"
        "}\n"
        "\n"
        "etcd_put_if_held() {\n"
        "    entry=\n"
        "    for _ in 1 2 3 4 5; do\n"
        "        entry=$(etcd_own_entry) || return\n"
        "        [ -z \"$entry\" ] || break\n"
        "        sleep 0.1\n"
        "    done\n"
        "    [ -n \"$entry\" ] || return 79\n"
        "    printf 'create(%s) = \"%s\"\\n\\nput %s %s\\n\\n\\n' \"${entry% *}\" \"${entry##* }\" "
        "\"$(etcd_quoted \"$1\")\" \"$(etcd_quoted \"$2\")\" |\n"
        "        etcd_written\n"
        "}\n"
        "\n"
        "# The first transaction gives a new key its fence. Tokens have 20 digits, because etcd "
        "compares text.\n"
        "etcd_put_fenced() {\n"
        "    fence=$(etcd_quoted \"$1.fence\")\n"
        "    printf 'version(%s) = \"0\"\\n\\nput %s \"%020d\"\\n\\n\\n' \"$fence\" \"$fence\" 0 | "
        "etcdctl txn >/dev/null || return\n"
        "    printf 'value(%s) < \"%020d\"\\n\\nput %s \"%020d\"\\nput %s %s\\n\\n\\n' \"$fence\" "
        "\"$((HOLDFAST_TOKEN + 1))\" \"$fence\" \\\n"
        "        \"$HOLDFAST_TOKEN\" \"$(etcd_quoted \"$1\")\" \"$(etcd_quoted \"$2\")\" | "
        "etcd_written\n"
        "}\n",
};

#define DIGITS "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool is_identifier(const char *text)
{
    size_t len = strlen(text);
    bool fits = len > 0 && len <= IDENTIFIER_MAX;
    return fits && !strchr(DIGITS, text[0]) && strspn(text, DIGITS LETTERS "_") == len;
}

/* Accepts letters, digits and underscores only, because the text becomes part of SQL. */
static int check_identifier(const char *option, const char *text)
{
    if (is_identifier(text))
        return 0;
    complain("--%s: \"%s\" is not a name of 1 to %d letters, digits and underscores", option,
             output_shown(text).text, IDENTIFIER_MAX);
    return EXIT_USAGE;
}

static void print_text(const void *arg)
{
    const struct fence *fence = arg;
    const char *text = TEMPLATES[fence->dialect];
    const struct {
        const char *mark, *value;
        bool quoted;
    } places[] = {{"@TABLE@", fence->table, true},
                  {"@KEY@", fence->key, true},
                  {"@TOKEN@", fence->token, true},
                  {"@NAME@", fence->table, false}};

    while (*text) {
        size_t plain = strcspn(text, "@"), i = 0;
        printf("%.*s", (int)plain, text);
        text += plain;
        if (!*text)
            break;
        while (i < 3 && strncmp(text, places[i].mark, strlen(places[i].mark)) != 0)
            i++;
        printf(places[i].quoted ? "\"%s\"" : "%s", places[i].value);
        text += strlen(places[i].mark);
    }
}

static int print_json(const struct fence *fence)
{
    char *text = text_printed(print_text, fence);

    if (!text)
        return EXIT_INTERNAL;
    printf("{\"dialect\":\"%s\",\"%s\":", DIALECTS[fence->dialect], LANGUAGES[fence->dialect]);
    json_print_text(stdout, text);
    printf("}\n");
    free(text);
    return finish_stdout();
}

/* Accepts sql, and redis and etcd without the options for tables and columns. */
static int check_kind(const struct cli_options *options, const char *kind)
{
    bool described =
        options->dialect || options->table || options->key_column || options->token_column;
    bool is_store = strcmp(kind, "redis") == 0 || strcmp(kind, "etcd") == 0;

    if (strcmp(kind, "sql") == 0)
        return 0;
    if (is_store && !described)
        return 0;
    if (is_store)
        complain("fence %s takes none of --dialect, --table, --key and --token: those are for sql",
                 kind);
    else
        complain("fence: \"%s\" is not one of sql, redis and etcd", output_shown(kind).text);

    return EXIT_USAGE;
}

static int run_fence(const struct cli_options *options, int argc, char **argv)
{
    struct fence fence = {
        .dialect = options->dialect,
        .table = options->table ? options->table : "guarded",
        .key = options->key_column ? options->key_column : "id",
        .token = options->token_column ? options->token_column : "fence_token",
    };
    int code = check_operands(&VERB_FENCE, argc, argv, 1, 1);

    if (code == 0)
        code = check_kind(options, argv[0]);
    if (code == 0)
        code = check_identifier("table", fence.table);
    if (code == 0)
        code = check_identifier("key", fence.key);
    if (code == 0)
        code = check_identifier("token", fence.token);
    if (code != 0)
        return code;
    if (strcmp(argv[0], "redis") == 0)
        fence.dialect = REDIS;
    if (strcmp(argv[0], "etcd") == 0)
        fence.dialect = ETCD;
    if (options->json)
        return print_json(&fence);

    print_text(&fence);
    return finish_stdout();
}

const struct verb VERB_FENCE = {
    .name = "fence",
    .operands = "sql|redis|etcd",
    .summary = "Prints code with which a table, or a key of Redis or etcd, refuses writes with an "
               "older token.",
    .details =
        "sql: a column and a trigger. Read what it prints, then run it once:\n"
        "\n"
        "    holdfast fence sql --dialect sqlite --table jobs | sqlite3 jobs.db\n"
        "\n"
        "redis: a script that writes a key; its first lines say how to call it.\n"
        "\n"
        "etcd: shell functions that write a key in one transaction of etcdctl. One compares\n"
        "the creation of the lock's own key, the other the token.\n"
        "\n"
        "Equal tokens pass, lower ones do not.\n"
        "With --json: one object with the keys dialect and sql, lua or sh.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_fence,
};
