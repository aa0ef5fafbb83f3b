/* base_settings.c - tests of the settings table and of reading settings from URL and environment.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/settings.h"
#include "engines/engine.h"
#include "lib/sentence.h"
#include "lib/setting_ids.h"

/* The environment of the test: one variable. */
static const char *variable_name, *variable_value;
static size_t lookups;

static char *lookup(const char *name)
{
    lookups++;
    return variable_name && strcmp(name, variable_name) == 0 ? (char *)(uintptr_t)variable_value
                                                             : NULL;
}

static hf_status read_variable(struct settings *settings, const char *name, const char *value)
{
    variable_name = name;
    variable_value = value;
    return settings_from_environment(settings, lookup);
}

static hf_status read_query(struct settings *settings, const char *query)
{
    settings_defaults(settings, engine_settings());
    return settings_from_query(settings, query);
}

static void test_table(void **state)
{
    (void)state;
    size_t count;
    const struct hf_setting *row = hf_settings(&count);
    assert_int_equal(count, engine_settings()->count);
    for (size_t i = 0; i < count; i++) {
        assert_true(row[i].min <= row[i].max);
        assert_true(row[i].standard == -1 ||
                    (row[i].standard >= row[i].min && row[i].standard <= row[i].max));
        assert_true(row[i].where & HF_IN_URL);
        assert_true(strlen(row[i].help) > 10 && !strchr(row[i].help, '\n'));
        for (const char *c = row[i].name; *c; c++)
            assert_true(islower((unsigned char)*c) || *c == '_');
        if (row[i].unit == HF_UNIT_TEXT)
            assert_true(row[i].max < SETTING_TEXT_MAX);
        if (row[i].standard == -1)
            assert_non_null(strstr(row[i].help, "default: "));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(row[i].name, row[j].name);
    }
}

/* Settings of all engines in one order: what the command and the man page list. */
static void test_order(void **state)
{
    (void)state;
    static const char *const names[] = {"ttl",
                                        "wait",
                                        "renew_at",
                                        "grace",
                                        "max_hold",
                                        "prefix",
                                        "wake",
                                        "history",
                                        "history_age",
                                        "password_file",
                                        "ca",
                                        "cert",
                                        "key",
                                        "name",
                                        "connect_timeout",
                                        "op_timeout",
                                        "retry_min",
                                        "retry_max",
                                        "drift",
                                        "replicas",
                                        "replica_timeout",
                                        "fsync",
                                        "max_ttl",
                                        "spin",
                                        "mode",
                                        "tls_name",
                                        "schema",
                                        "memory",
                                        "commit",
                                        "install",
                                        "sentinel_user",
                                        "sentinel_password_file",
                                        "sentinel_tls",
                                        "session_min",
                                        "lock_delay",
                                        "interop"};
    size_t count;
    const struct hf_setting *row = hf_settings(&count);

    assert_int_equal(count, sizeof names / sizeof *names);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(row[i].name, names[i]);
}

static void test_child_variables(void **state)
{
    (void)state;
    /* What `holdfast run` puts into its child's environment must not configure a holdfast inside.
     */
    static const char *const ours[] = {"name", "token", "ttl_ms", "lost_fd"};
    size_t count;
    const struct hf_setting *row = hf_settings(&count);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < sizeof ours / sizeof ours[0]; j++)
            assert_false(strcmp(row[i].name, ours[j]) == 0 && (row[i].where & HF_IN_ENVIRONMENT));
}

static void test_defaults(void **state)
{
    (void)state;
    struct settings s;
    memset(&s, 0xaa, sizeof s);
    settings_defaults(&s, engine_settings());
    assert_int_equal(s.value[SETTING_TTL], 30000);
    assert_int_equal(s.value[SETTING_WAIT], 0);
    assert_int_equal(s.value[SETTING_RENEW_AT], -1);
    assert_int_equal(s.value[SETTING_CONNECT_TIMEOUT], 2000);
    assert_int_equal(s.value[SETTING_RETRY_MIN], 50);
    assert_int_equal(s.value[SETTING_RETRY_MAX], 1000);
    assert_int_equal(s.value[SETTING_MAX_TTL], 60000);
    assert_int_equal(s.value[SETTING_HISTORY_AGE], 86400000);
    assert_int_equal(s.value[SETTING_SPIN], 50);
    assert_int_equal(s.value[SETTING_MODE], 0600);
    assert_string_equal(s.text[SETTING_PREFIX], "lock:");
    assert_int_equal(s.value[SETTING_PREFIX], 5);
    assert_string_equal(s.text[SETTING_WAKE], "inbox");
    assert_string_equal(s.text[SETTING_CA], "");
    for (size_t i = 0; i < engine_settings()->count; i++)
        assert_string_equal(s.source[engine_settings()->from[i]->index], "default");
}

static void test_text_defaults_in_help(void **state)
{
    (void)state;
    struct settings s;
    size_t count;
    const struct hf_setting *row = hf_settings(&count);
    settings_defaults(&s, engine_settings());
    for (size_t i = 0; i < count; i++) {
        const char *text = s.text[engine_settings()->from[i]->index];
        if (row[i].unit == HF_UNIT_TEXT && text[0])
            assert_string_equal(strstr(row[i].help, "default: ") + strlen("default: "), text);
    }
}

static void test_query(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(
        read_query(
            &s, "ttl=10s&wait=forever&wake=poll&mode=0660&spin=20us&replicas=2&prefix=a%3Ab%26%20"),
        HF_OK);
    assert_int_equal(s.value[SETTING_TTL], 10000);
    assert_string_equal(s.source[SETTING_TTL], "url");
    assert_int_equal(s.value[SETTING_WAIT], HF_FOREVER);
    assert_string_equal(s.text[SETTING_WAKE], "poll");
    assert_int_equal(s.value[SETTING_MODE], 0660);
    assert_int_equal(s.value[SETTING_SPIN], 20);
    assert_int_equal(s.value[SETTING_REPLICAS], 2);
    assert_string_equal(s.text[SETTING_PREFIX], "a:b& ");
    assert_int_equal(s.value[SETTING_PREFIX], 5);
    assert_string_equal(s.source[SETTING_GRACE], "default");
    assert_int_equal(read_query(&s, ""), HF_OK);
    assert_int_equal(read_query(&s, "prefix="), HF_OK);
    assert_string_equal(s.text[SETTING_PREFIX], "");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *query, *text;
    } bad[] = {
        {"ttl=banana", "ttl=banana from the URL: not a duration (like 500ms, 5s, 2m, 1h)"},
        {"ttl=", "ttl= from the URL: not a duration (like 500ms, 5s, 2m, 1h)"},
        {"ttl=9ms", "ttl=9ms from the URL: not between 10ms and 24h"},
        {"ttl=25h", "ttl=25h from the URL: not between 10ms and 24h"},
        {"ttl=forever", "ttl=forever from the URL: not between 10ms and 24h"},
        {"wait=-1", "wait=-1 from the URL: not a duration (like 500ms, 5s, 2m, 1h)"},
        {"wait=9000h", "wait=9000h from the URL: not between 0ms and 8784h"},
        {"max_hold=forever", "max_hold=forever from the URL: not between 0ms and 8784h"},
        {"spin=50", "spin=50 from the URL: not between 0us and 1ms"},
        {"spin=x", "spin=x from the URL: not a duration (like 50us, 1ms)"},
        {"replicas=-1", "replicas=-1 from the URL: not a whole number"},
        {"replicas=1.5", "replicas=1.5 from the URL: not a whole number"},
        {"replicas=101", "replicas=101 from the URL: not between 0 and 100"},
        {"replicas=99999999999999999999",
         "replicas=99999999999999999999 from the URL: not a whole number"},
        {"renew_at=0", "renew_at=0 from the URL: not between 50 and 800"},
        {"mode=0680", "mode=0680 from the URL: not an octal number (like 0660)"},
        {"mode=0777", "mode=0777 from the URL: not permissions between 0600 and 0666"},
        {"mode=0644x", "mode=0644x from the URL: not an octal number (like 0660)"},
        {"mode=0650", "mode=0650 from the URL: not permissions between 0600 and 0666"},
        {"mode=0460", "mode=0460 from the URL: not permissions between 0600 and 0666"},
        {"wake=inboxx", "wake=inboxx from the URL: not one of: inbox pubsub notify poll"},
        {"wake=inbox%20pubsub",
         "wake=inbox pubsub from the URL: not one of: inbox pubsub notify poll"},
        {"wake=", "wake= from the URL: not one of: inbox pubsub notify poll"},
        {"ca=", "ca= from the URL: not 1 to 255 bytes"},
        {"ca=a%0Ab", "ca=a?b from the URL: byte 2 is a control character"},
        {"ca=%FF", "ca=? from the URL: byte 1 is not valid UTF-8"},
        {"ca=%zz", "ca from the URL: byte 1 is a % without two hexadecimal digits"},
        {"ca=a%00", "ca from the URL: byte 2 is an escaped NUL"},
        {"ttl", "ttl from the URL: no value (write ttl=...)"},
        {"ttl=1s&ttl=1s", "ttl from the URL: given twice"},
        {"ttl=1s&wait=0&ttl=2s", "ttl from the URL: given twice"},
        {"password=hunter2", "\"password\" from the URL: no such setting"},
        {"tt=1s", "\"tt\" from the URL: no such setting"},
        {"ttll=1s", "\"ttll\" from the URL: no such setting"},
        {"TTL=1s", "\"TTL\" from the URL: no such setting"},
        {"=1s", "\"\" from the URL: no such setting"},
        {"ttl=1s&&wait=0", "\"\" from the URL: no such setting"},
        {"retry_min=5s", "retry_min=5s (url) is above retry_max=1s (default)"},
        {"retry_max=20ms", "retry_min=50ms (default) is above retry_max=20ms (url)"},
    };
    struct settings s;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (read_query(&s, bad[i].query) != HF_CONFIG)
            fail_msg("%s was accepted", bad[i].query);
        assert_string_equal(error_text(), bad[i].text);
    }
}

static void test_long_text(void **state)
{
    (void)state;
    struct settings s;
    char query[4096] = "ca=";
    memset(query + 3, 'x', 255);
    assert_int_equal(read_query(&s, query), HF_OK);
    assert_int_equal(strlen(s.text[SETTING_CA]), 255);
    memset(query + 3, 'x', 256);
    assert_int_equal(read_query(&s, query), HF_CONFIG);
    assert_non_null(strstr(error_text(), "from the URL: not 1 to 255 bytes"));
    assert_string_equal(s.text[SETTING_CA], "");
    memset(query + 3, 'x', sizeof query - 4);
    assert_int_equal(read_query(&s, query), HF_CONFIG);
}

static void test_environment(void **state)
{
    (void)state;
    struct settings s;
    settings_defaults(&s, engine_settings());
    assert_int_equal(read_variable(&s, "HOLDFAST_CONNECT_TIMEOUT", "3s"), HF_OK);
    assert_int_equal(s.value[SETTING_CONNECT_TIMEOUT], 3000);
    assert_string_equal(s.source[SETTING_CONNECT_TIMEOUT], "environment");
    assert_int_equal(read_variable(&s, "HOLDFAST_TTL", "banana"), HF_CONFIG);
    assert_string_equal(
        error_text(),
        "HOLDFAST_TTL=banana from the environment: not a duration (like 500ms, 5s, 2m, 1h)");
    assert_int_equal(s.value[SETTING_TTL], 30000);
    assert_int_equal(read_variable(&s, "HOLDFAST_NAME", "nightly"), HF_OK);
    assert_string_equal(s.text[SETTING_NAME], "");
}

static void test_every_variable(void **state)
{
    (void)state;
    struct settings s;
    size_t count, expected = 0;
    const struct hf_setting *row = hf_settings(&count);
    for (size_t i = 0; i < count; i++)
        expected += (row[i].where & HF_IN_ENVIRONMENT) != 0;
    settings_defaults(&s, engine_settings());
    lookups = 0;
    assert_int_equal(read_variable(&s, NULL, NULL), HF_OK);
    assert_int_equal(lookups, expected);
}

static void test_precedence(void **state)
{
    (void)state;
    struct settings s;
    settings_defaults(&s, engine_settings());
    /* Above the default of retry_max, but not above the one that the URL sets afterwards. */
    assert_int_equal(read_variable(&s, "HOLDFAST_RETRY_MIN", "5s"), HF_OK);
    assert_int_equal(settings_from_query(&s, "retry_max=10s"), HF_OK);
    assert_int_equal(s.value[SETTING_RETRY_MIN], 5000);
    assert_string_equal(s.source[SETTING_RETRY_MIN], "environment");
    assert_int_equal(settings_from_query(&s, "retry_min=1s"), HF_OK);
    assert_int_equal(s.value[SETTING_RETRY_MIN], 1000);
    assert_string_equal(s.source[SETTING_RETRY_MIN], "url");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("every row of the table is consistent and its name is used once", test_table),
        SENTENCE("the settings of all engines are listed in one order", test_order),
        SENTENCE("no setting is read from a variable that run gives to its child",
                 test_child_variables),
        SENTENCE("the defaults are those of the documentation", test_defaults),
        SENTENCE("the help of a text names its default", test_text_defaults_in_help),
        SENTENCE("a query sets values by their units and leaves the others alone", test_query),
        SENTENCE("a setting that is bad, unknown or given twice is refused by name and source",
                 test_refused),
        SENTENCE("the longest text fits and one byte more is refused", test_long_text),
        SENTENCE("the environment sets values, and a bad one names the variable", test_environment),
        SENTENCE("every setting that may stand in the environment is looked up once",
                 test_every_variable),
        SENTENCE("the URL beats the environment, and only the outcome must agree", test_precedence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
