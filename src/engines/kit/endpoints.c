/* endpoints.c - reads the servers that an engine's URL names. */
#include "endpoints.h"

#include "base/error.h"
#include "base/name.h"
#include "engines/wire_engine.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* The state of the parser. */
struct reading {
    struct endpoints *into;
    const char *scheme;
    const struct endpoint_form *form;
};

static hf_status bad_url(const struct reading *r, const char *what)
{
    return error_set(HF_CONFIG, "%s: the URL: %s (it looks like %s://%s)", r->scheme, what,
                     r->scheme, r->form->example);
}

/* Decodes one part of the URL. */
static hf_status take_part(const struct reading *r, const char *what, const char *text, size_t len,
                           char *out, size_t size)
{
    hf_status status = url_decode(text, len, out, size);
    return status == HF_OK
               ? HF_OK
               : error_set(status, "%s: the URL's %s: %s", r->scheme, what, error_text());
}

/* Decodes a part that messages show, so it must be printable. */
static hf_status take_shown(const struct reading *r, const char *what, const char *text, size_t len,
                            char *out, size_t size)
{
    hf_status status = take_part(r, what, text, len, out, size);
    size_t place;
    const char *flaw = status == HF_OK ? name_flaw(out, strlen(out), &place) : NULL;
    return flaw ? error_set(HF_CONFIG, "%s: the URL's %s: byte %zu is %s", r->scheme, what,
                            place + 1, flaw)
                : status;
}

/* Reads "user:password". */
static hf_status read_user(const struct reading *r, const char *text, size_t len)
{
    struct endpoints *e = r->into;
    const char *colon = memchr(text, ':', len);
    size_t user = colon ? (size_t)(colon - text) : len;

    hf_status status = take_part(r, "user", text, user, e->user, sizeof e->user);
    if (status == HF_OK && colon)
        status =
            take_part(r, "password", colon + 1, len - user - 1, e->password, sizeof e->password);
    return status;
}

/* Reads ":6379". */
static hf_status read_port(const struct reading *r, struct endpoint *one, const char *port,
                           const char *end)
{
    assert(port <= end);
    snprintf(one->port, sizeof one->port, "%s", r->form->default_port);
    if (port == end)
        return HF_OK;

    size_t digits = (size_t)(end - port) - 1;
    bool is_number =
        *port == ':' && digits >= 1 && digits <= 5 && strspn(port + 1, "0123456789") >= digits;
    if (!is_number || atoi(port + 1) < 1 || atoi(port + 1) > 65535)
        return bad_url(r, "the port is not a number between 1 and 65535");

    snprintf(one->port, sizeof one->port, "%.*s", (int)digits, port + 1);
    return HF_OK;
}

/* Reads "host", "host:port" or "[::1]:port". */
static hf_status read_host(const struct reading *r, struct endpoint *one, const char *text,
                           size_t len)
{
    const char *end = text + len, *host = text, *host_end, *port;

    if (len && *text == '[') {
        host = text + 1;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end)
            return bad_url(r, "[ without ]");
        port = host_end + 1;
    } else {
        host_end = memchr(text, ':', len);
        host_end = host_end ? host_end : end;
        port = host_end;
    }

    hf_status status =
        take_shown(r, "host", host, (size_t)(host_end - host), one->host, sizeof one->host);
    if (status == HF_OK && !one->host[0] && !r->form->default_host)
        status = bad_url(r, "a server without a name");
    if (status != HF_OK)
        return status;

    if (!one->host[0])
        snprintf(one->host, sizeof one->host, "%s", r->form->default_host);
    return read_port(r, one, port, end);
}

static hf_status refuse_twice(const struct reading *r)
{
    char last[ENDPOINT_TEXT_MAX], other[ENDPOINT_TEXT_MAX];
    const struct endpoints *e = r->into;
    assert(e->count > 0);

    endpoint_print(&e->one[e->count - 1], last);

    for (unsigned i = 0; i + 1 < e->count; i++) {
        endpoint_print(&e->one[i], other);
        if (strcasecmp(last, other) == 0)
            return error_set(HF_CONFIG, "%s: the URL: it names %s twice", r->scheme, last);
    }

    return HF_OK;
}

/* Reads "host:port,host:port". */
static hf_status read_hosts(const struct reading *r, const char *text, size_t len)
{
    const char *end = text + len;
    for (const char *at = text;; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *host_end = comma ? comma : end;
        if (r->into->count == r->form->most)
            return error_set(HF_CONFIG, "%s: the URL: more than %u server%s", r->scheme,
                             r->form->most, r->form->most == 1 ? "" : "s");
        if (host_end == at && (comma || r->into->count))
            return bad_url(r, "a server without a name");

        struct endpoint *one = &r->into->one[r->into->count++];
        hf_status status = read_host(r, one, at, (size_t)(host_end - at));
        if (status == HF_OK)
            status = refuse_twice(r);
        if (status != HF_OK || !comma)
            return status;
        at = comma;
    }
}

static hf_status read_path(const struct reading *r, const char *host, const char *path)
{
    struct endpoint *one = r->into->one;
    if (host != path || !*path)
        return error_set(HF_CONFIG,
                         "%s: the URL: a unix socket has a path and no host, as in %s://%s",
                         r->scheme, r->scheme, r->form->example);

    r->into->count = 1;
    r->into->rest = "";
    return take_shown(r, "path", path, strlen(path), one->path, sizeof one->path);
}

static hf_status read_body(const struct reading *r, const char *body)
{
    if (strncmp(body, "//", 2) != 0)
        return bad_url(r, "// is missing");

    body += 2;
    size_t authority = strcspn(body, "/");
    const char *at = memrchr(body, '@', authority);
    const char *host = at ? at + 1 : body, *rest = body + authority;
    hf_status status = at ? read_user(r, body, (size_t)(at - body)) : HF_OK;
    r->into->rest = rest;
    if (status != HF_OK)
        return status;
    return r->form->is_path ? read_path(r, host, rest) : read_hosts(r, host, (size_t)(rest - host));
}

/* Returns what is wrong with a password file; NULL: nothing. Symbolic links are followed,
 * because orchestrators mount secrets that way. But a link of another user could lead to any file
 * of this user, and its first line would be sent to the server. */
static const char *flaw_of_file(const char *path, const struct stat *file)
{
    struct stat link;
    if (!S_ISREG(file->st_mode))
        return "is not a regular file";
    if (file->st_uid != 0 && file->st_uid != geteuid())
        return "belongs to another user";
    if (file->st_mode & 077)
        return "others may read it; chmod 600";

    bool is_foreign = lstat(path, &link) != 0 || (link.st_uid != 0 && link.st_uid != geteuid());
    return is_foreign ? "is a link of another user" : NULL;
}

hf_status endpoints_read_password(const char *path, char *password, size_t size)
{
    if (!*path)
        return HF_OK;

    /* O_NONBLOCK: without it, a FIFO that another user put there would block the caller for
     * ever. */
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file || fstat(fd, &st) != 0) {
        if (file)
            fclose(file);
        else if (fd >= 0)
            close(fd);
        return error_set(HF_CONFIG, "password_file=%s: cannot be read: %m", path);
    }

    const char *flaw = flaw_of_file(path, &st);
    bool read = !flaw && fgets(password, (int)size, file);
    fclose(file);
    if (flaw)
        return error_set(HF_CONFIG, "password_file=%s: %s", path, flaw);

    if (read)
        password[strcspn(password, "\r\n")] = 0;
    return read && password[0]
               ? HF_OK
               : error_set(HF_CONFIG, "password_file=%s: its first line is empty", path);
}

static void set_tls(struct endpoint *one, const struct endpoint_form *form,
                    const struct settings *settings)
{
    one->tls = form->tls;
    snprintf(one->alpn, sizeof one->alpn, "%s", form->alpn ? form->alpn : "");
    snprintf(one->server_name, sizeof one->server_name, "%s", settings->text[SETTING_TLS_NAME]);
    snprintf(one->ca, sizeof one->ca, "%s", settings->text[SETTING_CA]);
    snprintf(one->cert, sizeof one->cert, "%s", settings->text[SETTING_CERT]);
    snprintf(one->key, sizeof one->key, "%s", settings->text[SETTING_KEY]);
}

hf_status endpoints_read(struct endpoints *e, const struct url *url,
                         const struct settings *settings, const struct endpoint_form *form)
{
    assert(form->most >= 1 && form->most <= ENDPOINTS_MAX && form->default_port);
    *e = (struct endpoints){.rest = "", .one = calloc(form->most, sizeof *e->one)};
    if (!e->one)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    struct reading reading = {.into = e, .scheme = url->scheme, .form = form};
    hf_status status = read_body(&reading, url->body);
    for (unsigned i = 0; i < e->count; i++)
        set_tls(&e->one[i], form, settings);
    if (status == HF_OK)
        status = endpoints_read_password(settings->text[SETTING_PASSWORD_FILE], e->password,
                                         sizeof e->password);
    if (status != HF_OK)
        endpoints_free(e);
    return status;
}

void endpoints_free(struct endpoints *e)
{
    free(e->one);
    explicit_bzero(e, sizeof *e);
}

const struct endpoint *endpoints_turn(struct endpoints *e, unsigned failures)
{
    assert(e->count > 0 && e->first < e->count);
    struct endpoint *one = &e->one[(e->first + failures) % e->count];
    one->skip = failures / e->count;
    return one;
}

void endpoints_keep(struct endpoints *e, const struct endpoint *endpoint)
{
    assert(endpoint >= e->one && endpoint < e->one + e->count);
    e->first = (unsigned)(endpoint - e->one);
}
