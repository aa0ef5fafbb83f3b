/* exchange.c - an exchange from its request to the end of its answer. */
#include "connection.h"
#include <event2/bufferevent_ssl.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_BACKLOG_MAX 1048576

/* Gives the request its id. Random bytes are drawn for many requests at a time: a draw costs a
 * system call. */
static void name_request(struct exchange *x)
{
    static const char digits[] = "0123456789abcdef";
    static unsigned char random[4096];
    static size_t used = sizeof random;

    if (used == sizeof random) {
        if (RAND_bytes(random, sizeof random) != 1)
            memset(random, 0, sizeof random);
        used = 0;
    }
    for (size_t i = 0; i < sizeof x->id / 2; i++, used++) {
        x->id[2 * i] = digits[random[used] >> 4];
        x->id[2 * i + 1] = digits[random[used] & 15];
    }
}

static void note_certificate(struct connection *c, struct exchange *x)
{
    SSL *ssl = c->tls ? bufferevent_openssl_get_ssl(c->bev) : NULL;
    X509 *certificate = ssl ? SSL_get1_peer_certificate(ssl) : NULL;

    if (!certificate)
        return;

    if (SSL_get_verify_result(ssl) == X509_V_OK)
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, x->client,
                                  sizeof x->client);
    X509_free(certificate);
}

struct exchange *exchange_new(struct connection *c, size_t bytes)
{
    struct exchange *x = calloc(1, sizeof *x);
    char *text = x ? calloc(1, bytes + 1) : NULL;
    struct evbuffer *extra = text ? evbuffer_new() : NULL;

    if (!extra) {
        free(text);
        free(x);
        return NULL;
    }

    x->text = text;
    x->body = text + bytes;
    x->extra = extra;
    x->http = c->http;
    x->connection = c;
    x->began_ms = clock_ms();
    name_request(x);
    memcpy(x->address, c->peer, sizeof x->address);
    memcpy(x->network, c->network, sizeof x->network);
    note_certificate(c, x);
    c->exchange = x;

    return x;
}

void exchange_settle(struct http *http, struct exchange *x, bool delivered)
{
    if (x->settled)
        x->settled(x, delivered);
    http->o.ended(http->o.arg, x, delivered);
    evbuffer_free(x->extra);
    free(x->text);
    free(x);
}

/* ---- Answering ---- */

void exchange_field(struct exchange *x, const char *name, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    evbuffer_add_printf(x->extra, "%s: ", name);
    evbuffer_add_vprintf(x->extra, format, arguments);
    evbuffer_add(x->extra, "\r\n", 2);
    va_end(arguments);
}

static void write_head(struct exchange *x, int status, const char *type)
{
    struct connection *c = x->connection;
    struct evbuffer *out = bufferevent_get_output(c->bev);

    x->status = status;
    bool is_last = c->http->draining ||
                   (c->half_closed && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0);
    if (is_last)
        x->closes = true;
    const char *stays = x->head.is_http10 ? "Connection: keep-alive\r\n" : "";
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nX-Request-Id: %s\r\n%s%s%s%s", status,
                        http_reason(status), x->id, type ? "Content-Type: " : "", type ? type : "",
                        type ? "\r\n" : "", x->closes ? "Connection: close\r\n" : stays);
    evbuffer_add_buffer(out, x->extra);
}

void exchange_answer(struct exchange *x, int status, const char *type, const void *body, size_t len)
{
    struct connection *c = x->connection;

    if (!c) {
        x->status = status;
        exchange_settle(x->http, x, false);
        return;
    }

    event_del(c->timer);
    write_head(x, status, type);
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (status != 204)
        evbuffer_add_printf(out, "Content-Length: %zu\r\n", len);
    evbuffer_add(out, "\r\n", 2);
    bool has_body = len > 0 && status != 204 && !piece_is(x->head.method, "HEAD");
    if (has_body)
        evbuffer_add(out, body, len);
    connection_flush(c);
}

void exchange_stream(struct exchange *x, const char *type)
{
    x->streams = true;
    x->closes = true;
    write_head(x, 200, type);
    evbuffer_add(bufferevent_get_output(x->connection->bev), "\r\n", 2);
}

bool exchange_push(struct exchange *x, const char *text, size_t len)
{
    struct evbuffer *out = x->connection ? bufferevent_get_output(x->connection->bev) : NULL;

    if (!out || evbuffer_get_length(out) + len > STREAM_BACKLOG_MAX)
        return false;
    if (evbuffer_add(out, text, len) != 0)
        return false;

    connection_flush(x->connection);
    return true;
}

void exchange_end(struct exchange *x)
{
    struct connection *c = x->connection;

    if (c) {
        c->exchange = NULL;
        connection_free(c);
    }
    x->connection = NULL;
    exchange_settle(x->http, x, c != NULL);
}
