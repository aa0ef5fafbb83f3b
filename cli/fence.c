/* fence.c - the verb `fence`: prints the checking side of a token for a database, or for keys of a Redis server.
 *
 * A template is SQL with three places: @TABLE@, @KEY@ and @TOKEN@, which become quoted identifiers, and @NAME@, which
 * becomes the plain table name inside the names of trigger and function. */
#include "text.h"
#include "verbs.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define IDENTIFIER_MAX 48 /* with what we put around it below the 63 bytes that PostgreSQL keeps */

enum dialect { POSTGRES, SQLITE, REDIS };
static const char *const DIALECTS[] = {[POSTGRES] = "postgres", [SQLITE] = "sqlite", [REDIS] = "redis"};

struct fence {
    int64_t dialect;
    const char *table, *key, *token;
};

static const struct option_spec OPTIONS[] = {
    {"dialect", 0, "postgres|sqlite", STORE_CHOICE, OPTION_FIELD(dialect), 0, 0, "which database; default: postgres"},
    {"table", 0, "NAME", STORE_TEXT, OPTION_FIELD(table), 0, 0, "the table to guard; default: guarded"},
    {"key", 0, "NAME", STORE_TEXT, OPTION_FIELD(key_column), 0, 0, "its primary key; default: id"},
    {"token", 0, "NAME", STORE_TEXT, OPTION_FIELD(token_column), 0, 0, "the new column; default: fence_token"},
    OPTION_JSON,
    OPTION_HELP,
};

/* The error has a code of its own: who retries what PostgreSQL calls a serialization failure must not retry this. */
#define HEADER                                                                                                         \
    "-- A fence for @TABLE@, made by `holdfast fence sql`: who writes with a token older than the newest that a row "  \
    "has\n"                                                                                                            \
    "-- seen is refused. Equal tokens pass: the same holder writes again. Check and write are one statement.\n"        \
    "-- Every write must set the column, with the token of its lease (HOLDFAST_TOKEN under `holdfast run`), as in\n"   \
    "--     UPDATE @TABLE@ SET ..., @TOKEN@ = :token WHERE @KEY@ = :key;\n"                                            \
    "-- A new holder writes its token before it reads. A DELETE carries no token: mark rows as deleted instead.\n"     \
    "-- Only for exclusive locks and writers: readers and permits of a semaphore are valid with different tokens.\n"

static const char *const TEMPLATES[] = {
    [POSTGRES] = HEADER "ALTER TABLE @TABLE@ ADD COLUMN @TOKEN@ bigint NOT NULL DEFAULT 0;\n"
                        "CREATE FUNCTION \"@NAME@_fence\"() RETURNS trigger LANGUAGE plpgsql AS $$\n"
                        "BEGIN\n"
                        "    IF NEW.@TOKEN@ < OLD.@TOKEN@ THEN\n"
                        "        RAISE EXCEPTION 'stale token %: % was seen', NEW.@TOKEN@, OLD.@TOKEN@\n"
                        "            USING ERRCODE = 'HF079';\n"
                        "    END IF;\n"
                        "    RETURN NEW;\n"
                        "END $$;\n"
                        "CREATE TRIGGER \"@NAME@_fence\" BEFORE UPDATE ON @TABLE@\n"
                        "    FOR EACH ROW EXECUTE FUNCTION \"@NAME@_fence\"();\n",
    [SQLITE] = HEADER "ALTER TABLE @TABLE@ ADD COLUMN @TOKEN@ INTEGER NOT NULL DEFAULT 0;\n"
                      "CREATE TRIGGER \"@NAME@_fence\" BEFORE UPDATE ON @TABLE@\n"
                      "    WHEN NEW.@TOKEN@ < OLD.@TOKEN@\n"
                      "BEGIN\n"
                      "    SELECT RAISE(ABORT, 'stale token');\n"
                      "END;\n"
                      "-- INSERT OR REPLACE fires no UPDATE trigger, so it has its own.\n"
                      "CREATE TRIGGER \"@NAME@_fence_replace\" BEFORE INSERT ON @TABLE@\n"
                      "    WHEN EXISTS (SELECT 1 FROM @TABLE@ WHERE @KEY@ = NEW.@KEY@ AND @TOKEN@ > NEW.@TOKEN@)\n"
                      "BEGIN\n"
                      "    SELECT RAISE(ABORT, 'stale token');\n"
                      "END;\n",
    /* Tokens are compared as text: numbers in Lua are exact below 2^53 only. */
    [REDIS] = "-- A guarded write, made by `holdfast fence redis`: who comes with a token older than the newest that a "
              "key has\n"
              "-- seen is refused. Equal tokens pass: the same holder writes again. Check and write are one step.\n"
              "-- KEYS  1 the key that is guarded  2 where its newest token stands; {key}:fence has the same slot in a "
              "cluster\n"
              "-- ARGV  1 the token of the lease (HOLDFAST_TOKEN under `holdfast run`)  2 a command  3... its "
              "arguments behind the\n"
              "--       key. Without a command the token is recorded, and that is all.\n"
              "--     redis-cli --eval fence.lua report '{report}:fence' , $HOLDFAST_TOKEN SET 'the text'\n"
              "-- A new holder records its token before it reads; with GET as the command both are one step.\n"
              "-- Only for exclusive locks and writers: readers and permits of a semaphore are valid with different "
              "tokens.\n"
              "local token, seen = ARGV[1] or '', redis.call('GET', KEYS[2])\n"
              "if not token:match('^[1-9]%d*$') then\n"
              "  return redis.error_reply('ERR not a token: ' .. token)\n"
              "end\n"
              "if seen and (#seen > #token or (#seen == #token and seen > token)) then\n"
              "  return redis.error_reply('STALE token ' .. token .. ': ' .. seen .. ' was seen')\n"
              "end\n"
              "redis.call('SET', KEYS[2], token)\n"
              "if not ARGV[2] then return token end\n"
              "return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))\n",
};

static bool is_identifier(const char *text)
{
    size_t len = strlen(text);
    if (len == 0 || len > IDENTIFIER_MAX || isdigit((unsigned char)text[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!(text[i] == '_' || (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'z') ||
              (text[i] >= 'A' && text[i] <= 'Z')))
            return false;
    return true;
}

/* Letters, digits and underscores only: the text becomes part of SQL. */
static int check_identifier(const char *option, const char *text)
{
    if (is_identifier(text))
        return 0;
    complain("--%s: \"%s\" is not a name of 1 to %d letters, digits and underscores", option, text_shown(text).text,
             IDENTIFIER_MAX);
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
    printf("{\"dialect\":\"%s\",\"%s\":", DIALECTS[fence->dialect], fence->dialect == REDIS ? "lua" : "sql");
    json_print_text(stdout, text);
    printf("}\n");
    free(text);
    return finish_stdout();
}

/* sql, or redis, which has neither tables nor columns. */
static int check_kind(const struct cli_options *options, const char *kind)
{
    bool described = options->dialect || options->table || options->key_column || options->token_column;
    if (strcmp(kind, "sql") == 0 || (strcmp(kind, "redis") == 0 && !described))
        return 0;
    if (described && strcmp(kind, "redis") == 0)
        complain("fence redis takes none of --dialect, --table, --key and --token: those are for sql");
    else
        complain("fence: \"%s\" is not known; sql and redis are", text_shown(kind).text);
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
    if (options->json)
        return print_json(&fence);
    print_text(&fence);
    return finish_stdout();
}

const struct verb VERB_FENCE = {
    .name = "fence",
    .operands = "sql|redis",
    .summary = "Prints what makes a table, or a key of Redis, refuse writes with an older token.",
    .details = "sql: a column and a trigger. Read what it prints, then run it once:\n\n"
               "    holdfast fence sql --dialect sqlite --table jobs | sqlite3 jobs.db\n\n"
               "redis: a script through which a key is written; it says how it is called.\n\n"
               "Equal tokens pass, lower ones do not. With --json: one object with the keys dialect and sql, or lua.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_fence,
};
