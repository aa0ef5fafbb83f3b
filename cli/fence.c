/* fence.c - the verb `fence`: prints the checking side of a token for a database.
 *
 * A template is SQL with three places: @TABLE@, @KEY@ and @TOKEN@, which become quoted identifiers, and @NAME@, which
 * becomes the plain table name inside the names of trigger and function. */
#include "text.h"
#include "verbs.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define IDENTIFIER_MAX 48 /* with what we put around it below the 63 bytes that PostgreSQL keeps */

enum dialect { POSTGRES, SQLITE };
static const char *const DIALECTS[] = {[POSTGRES] = "postgres", [SQLITE] = "sqlite"};

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

static void print_sql(const void *arg)
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
    char *sql = text_printed(print_sql, fence);
    if (!sql)
        return EXIT_INTERNAL;
    printf("{\"dialect\":\"%s\",\"sql\":", DIALECTS[fence->dialect]);
    json_print_text(stdout, sql);
    printf("}\n");
    free(sql);
    return finish_stdout();
}

static int run_fence(const struct cli_options *options, int argc, char **argv)
{
    const struct fence fence = {
        .dialect = options->dialect,
        .table = options->table ? options->table : "guarded",
        .key = options->key_column ? options->key_column : "id",
        .token = options->token_column ? options->token_column : "fence_token",
    };
    int code = check_operands(&VERB_FENCE, argc, argv, 1, 1);
    if (code == 0 && strcmp(argv[0], "sql") != 0) {
        complain("fence: \"%s\" is not known; sql is", text_shown(argv[0]).text);
        code = EXIT_USAGE;
    }
    if (code == 0)
        code = check_identifier("table", fence.table);
    if (code == 0)
        code = check_identifier("key", fence.key);
    if (code == 0)
        code = check_identifier("token", fence.token);
    if (code != 0)
        return code;
    if (options->json)
        return print_json(&fence);
    print_sql(&fence);
    return finish_stdout();
}

const struct verb VERB_FENCE = {
    .name = "fence",
    .operands = "sql",
    .summary = "Prints SQL that makes a table refuse writes with an older token.",
    .details =
        "A column and a trigger: equal tokens pass, lower ones do not. Read what it prints, then run it once:\n\n"
        "    holdfast fence sql --dialect sqlite --table jobs | sqlite3 jobs.db\n\n"
        "With --json: one object with the keys dialect and sql.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_fence,
};
