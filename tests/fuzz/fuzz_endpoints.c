/* fuzz_endpoints.c - the servers of a URL are within their bounds, what was read is read again the
 * same way, and no password is shown. */
#include "fuzz.h"

#include "base/error.h"
#include "base/name.h"
#include "engines/kit/endpoints.h"
#include "engines/wire_engine.h"

#define PASSWORD "hunter2-and-more"

const char *const fuzz_seeds[] = {"//user:pass@host:6379,b:2,[::1]:3/0",
                                  "//",
                                  "//:1",
                                  "//u@/run/redis.sock",
                                  "///run/a%20b.sock",
                                  "//h%C3%A4us:65535/x",
                                  "//a,b,c,d,e",
                                  "//a,a:2379",
                                  "//u:%00@h",
                                  "host",
                                  "//[",
                                  NULL};
unsigned long fuzz_accepted, fuzz_refused;

static const struct endpoint_form forms[] = {
    {.example = "h:1", .default_port = "6379", .most = 1, .tls = true},
    {.example = "h,h",
     .default_host = "127.0.0.1",
     .default_port = "2379",
     .most = 4,
     .alpn = "h2"},
    {.example = "/run/s", .default_port = "1", .most = 1, .is_path = true},
};

/* Without the settings of the engines: it needs none but those of all wire engines. */
static void make_settings(struct settings *settings)
{
    static struct settings_table table;
    if (!table.count)
        settings_table_join(&table, &wire_settings);
    settings_defaults(settings, &table);
}

static hf_status read_body(struct endpoints *e, struct url *url, const char *body,
                           const struct endpoint_form *form)
{
    struct settings settings;
    make_settings(&settings);
    *url = (struct url){.scheme = "x"};
    snprintf(url->body, sizeof url->body, "%s", body);
    return endpoints_read(e, url, &settings, form);
}

static void check_one(const struct endpoint *one, const struct endpoint_form *form)
{
    long port = strtol(one->port, NULL, 10);
    MUST(memchr(one->host, 0, sizeof one->host) && memchr(one->path, 0, sizeof one->path));
    MUST(form->is_path == (one->path[0] != '\0') && form->is_path == (one->host[0] == '\0'));
    MUST(form->is_path || (port >= 1 && port <= 65535));
    MUST(one->tls == form->tls && one->skip == 0);
}

/* Shows each byte that has a meaning in a URL in percent-encoding. */
static size_t encode(char *out, const char *text)
{
    size_t used = 0;
    for (; *text; text++)
        used += (size_t)sprintf(out + used, "%%%02x", (unsigned)(uint8_t)*text);
    return used;
}

/* The servers that were read, written as a URL, are read as the same. */
static void check_again(const struct endpoints *e, const struct endpoint_form *form)
{
    static char body[8 * URL_MAX];
    static struct url url;
    struct endpoints again;
    size_t used = (size_t)sprintf(body, "//");
    used += encode(body + used, e->user);
    used += (size_t)sprintf(body + used, ":");
    used += encode(body + used, e->password);
    used += (size_t)sprintf(body + used, "@");
    for (unsigned i = 0; i < e->count && !form->is_path; i++) {
        used += (size_t)sprintf(body + used, i ? "," : "");
        used += encode(body + used, e->one[i].host);
        used += (size_t)sprintf(body + used, ":%s", e->one[i].port);
    }
    used += (size_t)sprintf(body + used, "/");
    if (form->is_path)
        used += encode(body + used, e->one[0].path + 1);
    if (used >= URL_MAX)
        return;

    MUST(read_body(&again, &url, body, form) == HF_OK);
    MUST(again.count == e->count);
    MUST(strcmp(again.user, e->user) == 0 && strcmp(again.password, e->password) == 0);
    for (unsigned i = 0; i < e->count; i++)
        MUST(memcmp(&again.one[i], &e->one[i], sizeof e->one[i]) == 0);
    endpoints_free(&again);
}

static void check_form(const char *text, const struct endpoint_form *form)
{
    static struct url url;
    struct endpoints e;
    size_t place;
    if (read_body(&e, &url, text, form) != HF_OK) {
        MUST(strstr(error_text(), "the URL") && !e.one);
        MUST(!name_flaw(error_text(), strlen(error_text()), &place));
        fuzz_refused++;
        return;
    }

    MUST(e.count >= 1 && e.count <= form->most);
    MUST(e.rest[0] == '\0' || e.rest[0] == '/');
    for (unsigned i = 0; i < e.count; i++)
        check_one(&e.one[i], form);
    check_again(&e, form);
    endpoints_free(&e);
    fuzz_accepted++;
}

/* A password in front of the input must not be in the words. */
static void check_secret(const char *text, const struct endpoint_form *form)
{
    static struct url url;
    static char with[URL_MAX];
    struct endpoints e;
    snprintf(with, sizeof with, "//u:" PASSWORD "%%zz@%s", text);
    if (strstr(text, PASSWORD))
        return;
    MUST(read_body(&e, &url, with, form) == HF_CONFIG);
    MUST(!strstr(error_text(), PASSWORD));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size < URL_MAX ? size : URL_MAX - 1);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        check_form(text, &forms[i]);
        check_secret(text, &forms[i]);
    }
    free(text);
    return 0;
}
