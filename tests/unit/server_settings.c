/* server_settings.c - tests of the settings of the service: sources, bounds, lists, refusals. */
#include "serve_settings.h"

#include "lib/capture.h"
#include "lib/sentence.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct settings settings;
static const char *said;
static char path[64];

static int load(const struct serve_flag *flags, size_t count)
{
    struct serve_order order = {.config = *path ? path : NULL, .flags = flags, .flag_count = count};
    capture_stderr();
    int code = settings_load(&settings, &order);
    said = captured_stderr();
    return code;
}

static void write_config(const char *text)
{
    strcpy(path, "/tmp/holdfast-settings.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int forget(void **state)
{
    (void)state;
    settings_free(&settings);
    if (*path)
        unlink(path);
    *path = 0;
    unsetenv("HOLDFAST_SERVE_WORKERS");
    unsetenv("HOLDFAST_SERVE_LISTEN");
    unsetenv("HOLDFAST_SERVE_MAX_WAITS_PER_NAME");
    return 0;
}

static void check_source(enum serve_setting which, int64_t number, const char *source)
{
    assert_int_equal(setting_number(&settings, which), number);
    assert_string_equal(settings.value[which].source, source);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(load(NULL, 0), 0);
    check_source(SET_WORKERS, 4, "default");
    check_source(SET_MAX_WAIT, 600000, "default");
    assert_string_equal(setting_text(&settings, SET_LISTEN), "127.0.0.1:3009");
    assert_null(setting_text(&settings, SET_TOKEN_FILE));
    assert_int_equal(setting_number(&settings, SET_LOG), 0);
}

static void test_sources(void **state)
{
    (void)state;
    write_config("# a comment\n\n  workers = 5 \r\nmax-wait=2m\nlog = json\n");
    assert_int_equal(load(NULL, 0), 0);
    check_source(SET_WORKERS, 5, "file");
    check_source(SET_MAX_WAIT, 120000, "file");
    check_source(SET_LOG, 1, "file");
    settings_free(&settings);

    setenv("HOLDFAST_SERVE_WORKERS", "6", 1);
    setenv("HOLDFAST_SERVE_MAX_WAITS_PER_NAME", "7", 1);
    assert_int_equal(load(NULL, 0), 0);
    check_source(SET_WORKERS, 6, "environment");
    check_source(SET_MAX_WAITS_PER_NAME, 7, "environment");
    check_source(SET_MAX_WAIT, 120000, "file");
    settings_free(&settings);

    assert_int_equal(load(&(struct serve_flag){"workers", "8"}, 1), 0);
    check_source(SET_WORKERS, 8, "flag");
}

static void test_lists(void **state)
{
    const struct serve_flag flags[] = {{"listen", "a:1"}, {"listen", "b:2"}};
    (void)state;
    setenv("HOLDFAST_SERVE_LISTEN", "c:3", 1);
    assert_int_equal(load(flags, 2), 0);
    assert_int_equal(settings.value[SET_LISTEN].count, 2);
    assert_string_equal(settings.value[SET_LISTEN].items[0], "a:1");
    assert_string_equal(settings.value[SET_LISTEN].items[1], "b:2");
}

static void test_list_full(void **state)
{
    struct serve_flag flags[SETTING_ITEMS_MAX + 1];
    (void)state;
    for (size_t i = 0; i <= SETTING_ITEMS_MAX; i++)
        flags[i] = (struct serve_flag){"listen", "a:1"};
    assert_int_equal(load(flags, SETTING_ITEMS_MAX), 0);
    settings_free(&settings);
    assert_int_equal(load(flags, SETTING_ITEMS_MAX + 1), 64);
    assert_non_null(strstr(said, "is one item too many"));
}

static void check_refused(const char *name, const char *value, const char *words)
{
    assert_int_equal(load(&(struct serve_flag){name, value}, 1), 64);
    settings_free(&settings);
    if (!strstr(said, words) || !strstr(said, name))
        fail_msg("%s=%s: said \"%s\", not \"%s\"", name, value, said, words);
}

static void test_bounds(void **state)
{
    (void)state;
    assert_int_equal(load(&(struct serve_flag){"workers", "1"}, 1), 0);
    settings_free(&settings);
    assert_int_equal(load(&(struct serve_flag){"workers", "64"}, 1), 0);
    settings_free(&settings);
    check_refused("workers", "0", "is out of range");
    check_refused("workers", "65", "is out of range");
    check_refused("workers", "-1", "is not a number");
    check_refused("workers", " 5", "is not a number");
    check_refused("workers", "5 ", "is not a number");
    check_refused("workers", "", "is not a number");
    check_refused("workers", "99999999999999999999", "is not a number");
    check_refused("max-wait", "soon", "is not a duration");
    check_refused("max-wait", "forever", "is out of range");
    check_refused("max-wait", "25h", "is out of range");
    check_refused("log", "jso", "is not one of the choices");
    check_refused("log", "text|json", "is not one of the choices");
}

static void test_bad_files(void **state)
{
    (void)state;
    write_config("workers = 5\nworker = 6\n");
    assert_int_equal(load(NULL, 0), 78);
    assert_non_null(strstr(said, "line 2: no such setting: \"worker\""));
    forget(NULL);

    write_config("workers\n");
    assert_int_equal(load(NULL, 0), 78);
    assert_non_null(strstr(said, "line 1: no such setting"));
    forget(NULL);

    write_config("workers = many\n");
    assert_int_equal(load(NULL, 0), 78);
    assert_non_null(strstr(said, "workers \"many\" (file) is not a number"));
    forget(NULL);

    strcpy(path, "/nonexistent/holdfast.conf");
    assert_int_equal(load(NULL, 0), 78);
    assert_non_null(strstr(said, "cannot open the configuration"));
    *path = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "without a source each setting has its default",
         .test_func = test_defaults,
         .teardown_func = forget},
        {.name = "a flag beats the environment, which beats the file",
         .test_func = test_sources,
         .teardown_func = forget},
        {.name = "items of one source add up and replace those of a weaker one",
         .test_func = test_lists,
         .teardown_func = forget},
        {.name = "a list that is full is refused",
         .test_func = test_list_full,
         .teardown_func = forget},
        {.name = "the bounds are accepted, and whatever lies beyond is named",
         .test_func = test_bounds,
         .teardown_func = forget},
        {.name = "a line that cannot be read is named with its number",
         .test_func = test_bad_files,
         .teardown_func = forget},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
