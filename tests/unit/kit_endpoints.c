/* kit_endpoints.c - tests of reading the servers that a URL names. */
#include "engines/kit/endpoints.h"

#include "base/error.h"
#include "engines/engine.h"
#include "lib/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct endpoint_form list_form = {.example = "user:password@host:2379,host:2379",
                                               .default_host = "127.0.0.1",
                                               .default_port = "2379",
                                               .most = 3,
                                               .alpn = "h2"};
static const struct endpoint_form single_form = {
    .example = "user:password@host:1/0", .default_port = "6379", .most = 1, .tls = true};
static const struct endpoint_form path_form = {
    .example = "/run/x.sock", .default_port = "1", .most = 1, .is_path = true};

static hf_status read_text(struct endpoints *e, const char *text, const struct endpoint_form *form)
{
    struct settings settings;
    static struct url url; /* e->rest points into it */
    assert_int_equal(url_parse(&url, text), HF_OK);
    settings_defaults(&settings, engine_settings());
    hf_status status = settings_from_query(&settings, url.query);
    return status == HF_OK ? endpoints_read(e, &url, &settings, form) : status;
}

static void assert_at(const struct endpoints *e, unsigned which, const char *text)
{
    char shown[ENDPOINT_TEXT_MAX];
    assert_true(which < e->count);
    endpoint_print(&e->one[which], shown);
    assert_string_equal(shown, text);
}

/* ---- Hosts ---- */

static void test_lists(void **state)
{
    (void)state;
    struct endpoints e;
    assert_int_equal(read_text(&e, "x://a,b:7,[::1]:8/rest?ttl=1s", &list_form), HF_OK);
    assert_int_equal(e.count, 3);
    assert_at(&e, 0, "a:2379");
    assert_at(&e, 1, "b:7");
    assert_at(&e, 2, "[::1]:8");
    assert_string_equal(e.one[2].host, "::1");
    assert_string_equal(e.rest, "/rest");
    assert_string_equal(e.user, "");
    assert_string_equal(e.password, "");
    assert_string_equal(e.one[1].alpn, "h2");
    assert_false(e.one[1].tls);
    endpoints_free(&e);
}

static void test_defaults(void **state)
{
    (void)state;
    static const char *const urls[] = {"x://", "x:///rest", "x://:2379", "x://u:p@"};
    struct endpoints e;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        assert_int_equal(read_text(&e, urls[i], &list_form), HF_OK);
        assert_int_equal(e.count, 1);
        assert_at(&e, 0, "127.0.0.1:2379");
        endpoints_free(&e);
    }
}

static void test_decoded(void **state)
{
    (void)state;
    struct endpoints e;
    assert_int_equal(read_text(&e, "x://us%40er:p,a%3Ass:w@h%C3%A4us:1", &single_form), HF_OK);
    assert_string_equal(e.user, "us@er");
    assert_string_equal(e.password, "p,a:ss:w");
    assert_string_equal(e.one[0].host, "h\xc3\xa4us");
    assert_true(e.one[0].tls);
    endpoints_free(&e);
    assert_int_equal(read_text(&e, "x://a@b@h", &single_form), HF_OK);
    assert_string_equal(e.user, "a@b");
    endpoints_free(&e);
}

static void test_paths(void **state)
{
    (void)state;
    struct endpoints e;
    assert_int_equal(read_text(&e, "x://u:p@/run/a%20b.sock", &path_form), HF_OK);
    assert_at(&e, 0, "/run/a b.sock");
    assert_string_equal(e.one[0].host, "");
    assert_string_equal(e.user, "u");
    assert_string_equal(e.rest, "");
    endpoints_free(&e);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        const struct endpoint_form *form;
        const char *why;
    } rows[] = {
        {"x:h", &single_form,
         "x: the URL: // is missing (it looks like x://user:password@host:1/0)"},
        {"x://h:0", &single_form, "the port is not a number between 1 and 65535"},
        {"x://h:65536", &single_form, "the port is not a number between 1 and 65535"},
        {"x://h:", &single_form, "the port is not a number between 1 and 65535"},
        {"x://h:1x", &single_form, "the port is not a number between 1 and 65535"},
        {"x://[::1", &single_form, "[ without ]"},
        {"x://[::1]9", &single_form, "the port is not a number between 1 and 65535"},
        {"x://", &single_form, "a server without a name"},
        {"x://a,b", &single_form, "x: the URL: more than 1 server"},
        {"x://a,b,c,d", &list_form, "x: the URL: more than 3 servers"},
        {"x://a,", &list_form, "a server without a name"},
        {"x://,a", &list_form, "a server without a name"},
        {"x://a,,b", &list_form, "a server without a name"},
        {"x://a,A:2379", &list_form, "x: the URL: it names A:2379 twice"},
        {"x://a%0ab", &single_form, "x: the URL's host: byte 2 is a control character"},
        {"x://u:%zz@h", &single_form, "x: the URL's password: byte 1 is a % without two"},
        {"x://h/x", &path_form, "a unix socket has a path and no host, as in x:///run/x.sock"},
        {"x://", &path_form, "a unix socket has a path and no host"},
    };
    struct endpoints e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(read_text(&e, rows[i].url, rows[i].form), HF_CONFIG);
        assert_null(e.one);
        if (!strstr(error_text(), rows[i].why))
            fail_msg("%s: wanted \"%s\", got \"%s\"", rows[i].url, rows[i].why, error_text());
    }
}

/* ---- Settings ---- */

static void test_tls_settings(void **state)
{
    (void)state;
    struct endpoints e;
    assert_int_equal(read_text(&e, "x://h?ca=/a&cert=/b&key=/c&tls_name=db.test", &single_form),
                     HF_OK);
    assert_string_equal(e.one[0].ca, "/a");
    assert_string_equal(e.one[0].cert, "/b");
    assert_string_equal(e.one[0].key, "/c");
    assert_string_equal(e.one[0].server_name, "db.test");
    endpoints_free(&e);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_password_files(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        mode_t mode;
        const char *password, *why; /* why: NULL if it is taken */
    } rows[] = {
        {"secret\nmore\n", 0600, "secret", NULL},
        {"secret\r\n", 0400, "secret", NULL},
        {"secret", 0600, "secret", NULL},
        {"secret\n", 0640, NULL, "others may read it"},
        {"\nsecret\n", 0600, NULL, "line is empty"},
        {"", 0600, NULL, "line is empty"},
    };
    struct endpoints e;
    char path[] = "/tmp/kit-endpoints-XXXXXX", url[128];
    close(mkstemp(path));
    snprintf(url, sizeof url, "x://user:overridden@h?password_file=%s", path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unlink(path);
        write_file(path, rows[i].content, rows[i].mode);
        hf_status status = read_text(&e, url, &single_form);
        assert_int_equal(status, rows[i].why ? HF_CONFIG : HF_OK);
        if (rows[i].why)
            assert_non_null(strstr(error_text(), rows[i].why));
        else
            assert_string_equal(e.password, rows[i].password);
        assert_null(strstr(error_text(), "secret"));
        endpoints_free(&e);
    }
    unlink(path);
    assert_int_equal(read_text(&e, url, &single_form), HF_CONFIG);
    assert_non_null(strstr(error_text(), "cannot be read: No such file"));
}

/* As root only: a link that another user made. */
static void test_password_links(void **state)
{
    (void)state;
    struct endpoints e;
    char path[] = "/tmp/kit-endpoints-XXXXXX", link[64], url[128];
    close(mkstemp(path));
    write_file(path, "secret\n", 0600);
    snprintf(link, sizeof link, "%s.link", path);
    snprintf(url, sizeof url, "x://user@h?password_file=%s", link);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(read_text(&e, url, &single_form), HF_OK);
    endpoints_free(&e);

    if (geteuid() == 0) {
        assert_int_equal(lchown(link, 65534, 65534), 0);
        assert_int_equal(read_text(&e, url, &single_form), HF_CONFIG);
        /* The kernel may refuse it first, in a folder like /tmp. */
        assert_true(strstr(error_text(), "link of another user") ||
                    strstr(error_text(), "Permission denied"));
        endpoints_free(&e);
        assert_int_equal(chown(path, 65534, 65534), 0);
        snprintf(url, sizeof url, "x://user@h?password_file=%s", path);
        assert_int_equal(read_text(&e, url, &single_form), HF_CONFIG);
        assert_non_null(strstr(error_text(), "belongs to another user"));
        endpoints_free(&e);
    }
    unlink(link);
    unlink(path);
}

/* Opening a FIFO for reading waits for a writer; the alarm ends a test that waits. */
static void test_password_fifo(void **state)
{
    (void)state;
    struct endpoints e;
    char path[64], url[128];
    snprintf(path, sizeof path, "/tmp/kit-endpoints-%d.fifo", (int)getpid());
    snprintf(url, sizeof url, "x://user@h?password_file=%s", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(5);
    assert_int_equal(read_text(&e, url, &single_form), HF_CONFIG);
    alarm(0);
    assert_non_null(strstr(error_text(), "is not a regular file"));
    endpoints_free(&e);
    unlink(path);
}

/* ---- Turns ---- */

static void test_turns(void **state)
{
    (void)state;
    struct endpoints e;
    static const struct {
        unsigned failures, which, skip;
    } rows[] = {{0, 1, 0}, {1, 2, 0}, {2, 0, 0}, {3, 1, 1}, {5, 0, 1}, {6, 1, 2}};
    assert_int_equal(read_text(&e, "x://a,b,c", &list_form), HF_OK);
    endpoints_keep(&e, endpoints_turn(&e, 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct endpoint *one = endpoints_turn(&e, rows[i].failures);
        assert_ptr_equal(one, &e.one[rows[i].which]);
        assert_int_equal(one->skip, rows[i].skip);
    }
    endpoints_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a list of servers is read, each with its port", test_lists),
        SENTENCE("a URL without a host means the default server", test_defaults),
        SENTENCE("each part is decoded, and a password may have a comma", test_decoded),
        SENTENCE("a unix socket has a path and no host", test_paths),
        SENTENCE("what is no list of servers is refused, and named", test_refused),
        SENTENCE("TLS files and the server's name come from settings", test_tls_settings),
        SENTENCE("a password file is private and has a first line", test_password_files),
        SENTENCE("a password file behind a link of another user is refused", test_password_links),
        SENTENCE("a FIFO in its place holds up nobody", test_password_fifo),
        SENTENCE("failed dials go round the servers, then round their addresses", test_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
