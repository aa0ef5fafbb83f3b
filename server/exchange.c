/* exchange.c - an exchange from its request to the end of its answer. */
#include "connection.h"
#include "flat_json.h"
#include <event2/bufferevent_ssl.h>
#include <openssl/rand.h>
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

    if (!text) {
        free(x);
        return NULL;
    }

    x->text = text;
    x->body = text + bytes;
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
    free(x->fields);
    free(x->text);
    free(x);
}

/* ---- Answering ---- */

void exchange_field(struct exchange *x, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);
    char *fields = realloc(x->fields, x->fields_len + name_len + value_len + 4);

    if (!fields)
        return;

    char *at = fields + x->fields_len;
    memcpy(at, name, name_len);
    memcpy(at + name_len, ": ", 2);
    memcpy(at + name_len + 2, value, value_len);
    memcpy(at + name_len + 2 + value_len, "\r\n", 2);
    x->fields = fields;
    x->fields_len += name_len + value_len + 4;
}

/* An answer as pieces, which are copied into the output at once. */
struct answer {
    struct piece part[20];
    size_t count, bytes;
};

static void add_bytes(struct answer *answer, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    answer->part[answer->count++] = (struct piece){bytes, len};
    answer->bytes += len;
}

static void add_text(struct answer *answer, const char *text)
{
    add_bytes(answer, text, strlen(text));
}

static void put(struct exchange *x, const struct answer *answer)
{
    struct evbuffer *out = bufferevent_get_output(x->connection->bev);
    struct evbuffer_iovec space;

    if (evbuffer_reserve_space(out, (ev_ssize_t)answer->bytes, &space, 1) != 1)
        return;

    char *at = space.iov_base;
    for (size_t i = 0; i < answer->count; i++) {
        memcpy(at, answer->part[i].at, answer->part[i].len);
        at += answer->part[i].len;
    }
    space.iov_len = answer->bytes;
    evbuffer_commit_space(out, &space, 1);
}

/* `digits` gets the status and must live as long as `answer`. */
static void add_head(struct answer *answer, struct exchange *x, int status, const char *type,
                     char digits[DIGITS_MAX])
{
    struct connection *c = x->connection;

    x->status = status;
    bool is_last = c->http->draining ||
                   (c->half_closed && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0);
    if (is_last)
        x->closes = true;

    add_text(answer, "HTTP/1.1 ");
    add_bytes(answer, digits, digits_print((uint64_t)status, digits));
    add_text(answer, " ");
    add_text(answer, http_reason(status));
    add_text(answer, "\r\nX-Request-Id: ");
    add_text(answer, x->id);
    if (type) {
        add_text(answer, "\r\nContent-Type: ");
        add_text(answer, type);
    }
    if (x->closes)
        add_text(answer, "\r\nConnection: close");
    else if (x->head.is_http10)
        add_text(answer, "\r\nConnection: keep-alive");
    add_text(answer, "\r\n");
    add_bytes(answer, x->fields, x->fields_len);
}

void exchange_answer(struct exchange *x, int status, const char *type, const void *body, size_t len)
{
    struct connection *c = x->connection;
    struct answer answer = {.count = 0};
    char digits[DIGITS_MAX], length[DIGITS_MAX];

    if (!c) {
        x->status = status;
        exchange_settle(x->http, x, false);
        return;
    }

    event_del(c->timer);
    add_head(&answer, x, status, type, digits);
    if (status != 204) {
        add_text(&answer, "Content-Length: ");
        add_bytes(&answer, length, digits_print(len, length));
        add_text(&answer, "\r\n");
    }
    add_text(&answer, "\r\n");
    bool has_body = len > 0 && status != 204 && !piece_is(x->head.method, "HEAD");
    if (has_body)
        add_bytes(&answer, body, len);
    put(x, &answer);
    connection_flush(c);
}

void exchange_stream(struct exchange *x, const char *type)
{
    struct answer answer = {.count = 0};
    char digits[DIGITS_MAX];

    x->streams = true;
    x->closes = true;
    add_head(&answer, x, 200, type, digits);
    add_text(&answer, "\r\n");
    put(x, &answer);
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
