/* http.c - one state machine per connection: read a request, wait for its answer, write it, begin again.
 *
 * A client that waits for a lock and goes away must be noticed. A reset is told by the kernel at once. The end of what
 * the client sends may mean two things: it closed the socket, or only its sending side, which is legal. To tell them
 * apart something must be sent: the interim answer 102, which clients skip; a closed socket replies with a reset. */
#include "http.h"
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/rand.h>
#include <poll.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIPELINED_MAX 65536 /* bytes that a client may send ahead while it waits for an answer */
#define STREAM_BACKLOG_MAX 1048576
#define REFUSED_MAX 256 /* connections above the limit that get an answer that says so */
#define LINGER_MS 500
#define PROBE_MS 250
#define LISTENERS_MAX 16

struct address {
    uint8_t bytes[16];
    size_t count;
};

struct connection {
    struct http *http;
    struct connection *next, *prev;
    struct bufferevent *bev;
    struct event *timer;
    struct address *address; /* NULL: a unix socket, or one that is refused */
    struct exchange *exchange;
    bool tls, half_closed, lingers, refused, continued;
    size_t scanned; /* bytes that were searched for the end of a head */
    size_t needed;  /* of the request; 0: not known yet */
};

struct http {
    struct http_options o;
    struct evconnlistener *listeners[LISTENERS_MAX];
    bool listener_tls[LISTENERS_MAX];
    size_t listener_count;
    struct connection *connections;
    size_t count;
    void *addresses;
    bool draining;
};

static void read_request(struct connection *c);

int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}

/* ---- Exchanges ---- */

static void set_timer(struct connection *c, int64_t ms)
{
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    event_add(c->timer, &time);
}

static void name_request(struct exchange *x)
{
    unsigned char random[16];
    if (RAND_bytes(random, sizeof random) != 1)
        memset(random, 0, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(x->id + 2 * i, 3, "%02x", random[i]);
}

static void note_certificate(struct connection *c, struct exchange *x)
{
    SSL *ssl = c->tls ? bufferevent_openssl_get_ssl(c->bev) : NULL;
    X509 *certificate = ssl ? SSL_get1_peer_certificate(ssl) : NULL;
    if (!certificate)
        return;
    if (SSL_get_verify_result(ssl) == X509_V_OK)
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, x->client, sizeof x->client);
    X509_free(certificate);
}

static struct exchange *new_exchange(struct connection *c, size_t bytes)
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
    note_certificate(c, x);
    c->exchange = x;
    return x;
}

/* The last that is heard of an exchange. */
static void settle(struct http *http, struct exchange *x, bool delivered)
{
    if (x->settled)
        x->settled(x, delivered);
    http->o.ended(http->o.arg, x, delivered);
    evbuffer_free(x->extra);
    free(x->text);
    free(x);
}

/* ---- Connections ---- */

static void free_connection(struct connection *c)
{
    struct http *http = c->http;
    *(c->prev ? &c->prev->next : &http->connections) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    http->count--;
    if (c->address)
        c->address->count--;
    event_free(c->timer);
    bufferevent_free(c->bev);
    free(c);
}

/* The client cannot be answered any more. */
static void lose(struct connection *c)
{
    struct http *http = c->http;
    struct exchange *x = c->exchange;
    free_connection(c);
    if (!x)
        return;
    x->connection = NULL;
    if (x->status != 0 && !x->streams)
        settle(http, x, false);
    else if (x->gone)
        x->gone(x);
}

/* Closing while the client still sends would reset the connection, and the answer could be lost with it. */
static void linger(struct connection *c)
{
    c->lingers = true;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    if (c->half_closed || c->tls) {
        free_connection(c);
        return;
    }
    set_timer(c, LINGER_MS);
    bufferevent_enable(c->bev, EV_READ);
}

static void finish_answer(struct connection *c)
{
    struct exchange *x = c->exchange;
    bool more = evbuffer_get_length(bufferevent_get_input(c->bev)) > 0; /* sent ahead, before it half-closed */
    bool closes = x->closes || (c->half_closed && !more) || c->http->draining;
    c->exchange = NULL;
    settle(c->http, x, true);
    if (closes) {
        linger(c);
        return;
    }
    set_timer(c, c->http->o.limits.idle_ms);
    read_request(c);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;
    bool empty = evbuffer_get_length(bufferevent_get_output(bev)) == 0;
    if (c->exchange && c->exchange->status != 0 && !c->exchange->streams && empty)
        finish_answer(c);
}

/* Answers a request that was not understood, and closes: where the next one begins is not known. */
static void refuse(struct connection *c, int status, const char *why)
{
    struct exchange *x = new_exchange(c, 0);
    if (!x) {
        free_connection(c);
        return;
    }
    x->closes = true;
    c->http->o.refuse(c->http->o.arg, x, status, why);
}

static void begin_exchange(struct connection *c, size_t head_len, size_t total)
{
    const char *why;
    struct exchange *x = new_exchange(c, total);
    if (!x) {
        free_connection(c);
        return;
    }
    evbuffer_remove(bufferevent_get_input(c->bev), x->text, total);
    (void)head_read(&x->head, x->text, head_len, &why); /* it was read before: now the pieces point into our copy */
    x->body = x->text + head_len;
    x->body_len = total - head_len;
    x->closes = !x->head.keep_alive;
    c->scanned = c->needed = 0;
    c->continued = false;
    event_del(c->timer);
    c->http->o.handle(c->http->o.arg, x);
}

static void continue_client(struct connection *c, const struct head *head)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (head->expects && !c->continued)
        bufferevent_write(c->bev, go_on, sizeof go_on - 1);
    c->continued = true;
}

static void read_request(struct connection *c)
{
    const struct http_limits *limits = &c->http->o.limits;
    struct evbuffer *input = bufferevent_get_input(c->bev);
    size_t len = evbuffer_get_length(input);
    struct head head;
    const char *why = NULL;
    if (len == 0 || len < c->needed)
        return;
    if (c->scanned == 0)
        set_timer(c, limits->request_ms);
    size_t look = len > limits->head_bytes + 1 ? limits->head_bytes + 1 : len;
    const char *text = (const char *)evbuffer_pullup(input, (ev_ssize_t)look);
    size_t from = c->scanned > 3 ? c->scanned - 3 : 0;
    size_t end = text ? head_end(text + from, look - from) : 0;
    c->scanned = look;
    if (text && (text[0] < 'A' || text[0] > 'Z')) {
        refuse(c, 400, "the request does not begin with a method");
        return;
    }
    if (end == 0 && look > limits->head_bytes) {
        bool long_line = !memchr(text, '\n', look);
        refuse(c, long_line ? 414 : 431, long_line ? "the target is too long" : "the head is too long");
        return;
    }
    if (end == 0)
        return;
    end += from;
    int status = head_read(&head, text, end, &why);
    if (status == 0 && head.body_len > limits->body_bytes) {
        status = 413;
        why = "the body is too long";
    }
    if (status != 0) {
        refuse(c, status, why);
        return;
    }
    c->scanned = end > 3 ? end - 3 : 0; /* found again when the body is complete */
    c->needed = end + head.body_len;
    if (len < c->needed)
        continue_client(c, &head);
    else
        begin_exchange(c, end, end + head.body_len);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;
    struct evbuffer *input = bufferevent_get_input(bev);
    if (c->lingers)
        evbuffer_drain(input, evbuffer_get_length(input));
    else if (!c->exchange)
        read_request(c);
    else if (evbuffer_get_length(input) >= PIPELINED_MAX)
        lose(c);
}

/* ---- Leaving ---- */

static bool is_reset(const struct connection *c)
{
    struct pollfd ready = {.fd = bufferevent_getfd(c->bev)};
    return poll(&ready, 1, 0) == 1 && (ready.revents & (POLLERR | POLLHUP | POLLNVAL));
}

static void probe(struct connection *c)
{
    static const char interim[] = "HTTP/1.1 102 Processing\r\n\r\n";
    if (is_reset(c)) {
        lose(c);
        return;
    }
    bufferevent_write(c->bev, interim, sizeof interim - 1);
    set_timer(c, PROBE_MS);
}

static void on_end_of_input(struct connection *c)
{
    struct exchange *x = c->exchange;
    bool leaves = c->lingers || !x || x->streams || c->tls || x->head.old || c->http->o.limits.half_close_leaves;
    c->half_closed = true;
    if (x && x->status != 0 && !x->streams)
        return; /* the answer is on its way; should nobody be there, writing it fails */
    if (leaves) {
        lose(c);
        return;
    }
    probe(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct connection *c = arg;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED)
        return;
    if (what & BEV_EVENT_EOF)
        on_end_of_input(c);
    else
        lose(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct connection *c = arg;
    (void)fd;
    (void)what;
    if (c->lingers)
        free_connection(c);
    else if (c->exchange && c->half_closed && c->exchange->status == 0)
        probe(c);
    else if (!c->exchange && evbuffer_get_length(bufferevent_get_input(c->bev)) > 0)
        refuse(c, 408, "the request was not complete in time");
    else if (!c->exchange)
        free_connection(c);
}

/* ---- Accepting ---- */

static int by_address(const void *left, const void *right)
{
    return memcmp(((const struct address *)left)->bytes, ((const struct address *)right)->bytes, 16);
}

/* Of an IPv6 address the network counts: a customer has all of it. */
static bool address_key(const struct sockaddr *from, uint8_t bytes[16])
{
    memset(bytes, 0, 16);
    if (from->sa_family == AF_INET)
        memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else if (from->sa_family == AF_INET6)
        memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 8);
    else
        return false;
    return true;
}

static struct address *find_address(struct http *http, const struct sockaddr *from)
{
    struct address wanted = {.count = 0};
    if (!address_key(from, wanted.bytes))
        return NULL;
    struct address **found = tfind(&wanted, &http->addresses, by_address);
    if (found)
        return *found;
    struct address *new = malloc(sizeof *new);
    if (!new)
        return NULL;
    *new = wanted;
    if (!tsearch(new, &http->addresses, by_address)) {
        free(new);
        return NULL;
    }
    return new;
}

static struct bufferevent *open_bufferevent(struct http *http, int fd, bool tls)
{
    if (!tls)
        return bufferevent_socket_new(http->o.base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(http->o.tls);
    struct bufferevent *bev =
        ssl ? bufferevent_openssl_socket_new(http->o.base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
            : NULL;
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else
        SSL_free(ssl);
    return bev;
}

static struct connection *new_connection(struct http *http, int fd, bool tls)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct connection){.http = http, .tls = tls, .next = http->connections};
    c->bev = open_bufferevent(http, fd, tls);
    c->timer = c->bev ? event_new(http->o.base, -1, 0, on_timer, c) : NULL;
    if (!c->timer) {
        if (c->bev)
            bufferevent_free(c->bev);
        else
            close(fd);
        free(c);
        return NULL;
    }
    if (c->next)
        c->next->prev = c;
    http->connections = c;
    http->count++;
    return c;
}

/* What is wrong with having one connection more; 0: nothing. */
static int over_limit(const struct http *http, const struct address *address)
{
    if (http->count > http->o.limits.connections)
        return 503;
    if (address && address->count > http->o.limits.connections_per_address)
        return 429;
    return 0;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int len, void *arg)
{
    struct http *http = arg;
    int one = 1;
    bool tls = false;
    (void)len;
    for (size_t i = 0; i < http->listener_count; i++)
        if (http->listeners[i] == listener)
            tls = http->listener_tls[i];
    if (http->count >= http->o.limits.connections + REFUSED_MAX) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a unix socket has no such thing */
    struct connection *c = new_connection(http, fd, tls);
    if (!c)
        return;
    c->address = find_address(http, from);
    if (c->address)
        c->address->count++;
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, PIPELINED_MAX + http->o.limits.head_bytes + http->o.limits.body_bytes);
    set_timer(c, http->o.limits.request_ms);
    int refusal = over_limit(http, c->address);
    if (refusal != 0 && !tls) {
        refuse(c, refusal,
               refusal == 503 ? "there are too many connections" : "there are too many connections from this address");
        return;
    }
    if (refusal != 0) {
        free_connection(c);
        return;
    }
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

struct http *http_new(const struct http_options *options)
{
    struct http *http = calloc(1, sizeof *http);
    if (http)
        http->o = *options;
    return http;
}

bool http_listen(struct http *http, int fd, bool tls)
{
    if (http->listener_count == LISTENERS_MAX) {
        errno = EMFILE;
        return false;
    }
    struct evconnlistener *listener =
        evconnlistener_new(http->o.base, on_accept, http, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!listener)
        return false;
    http->listener_tls[http->listener_count] = tls;
    http->listeners[http->listener_count++] = listener;
    return true;
}

void http_stop_listening(struct http *http)
{
    for (size_t i = 0; i < http->listener_count; i++)
        evconnlistener_free(http->listeners[i]);
    http->listener_count = 0;
}

void http_drain(struct http *http)
{
    http->draining = true;
    for (struct connection *c = http->connections, *next; c; c = next) {
        next = c->next;
        if (!c->exchange && !c->lingers)
            free_connection(c);
    }
}

size_t http_connections(const struct http *http)
{
    return http->count;
}

void *http_arg(const struct http *http)
{
    return http->o.arg;
}

void http_free(struct http *http)
{
    http_stop_listening(http);
    while (http->connections)
        lose(http->connections);
    tdestroy(http->addresses, free);
    free(http);
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
    if (c->http->draining || (c->half_closed && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0))
        x->closes = true;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
    if (type)
        evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    evbuffer_add_buffer(out, x->extra);
    evbuffer_add_printf(out, "X-Request-Id: %s\r\n", x->id);
    if (x->closes)
        evbuffer_add_printf(out, "Connection: close\r\n");
    else if (x->head.old)
        evbuffer_add_printf(out, "Connection: keep-alive\r\n");
}

void exchange_answer(struct exchange *x, int status, const char *type, const void *body, size_t len)
{
    struct connection *c = x->connection;
    if (!c) {
        x->status = status;
        settle(x->http, x, false);
        return;
    }
    event_del(c->timer);
    write_head(x, status, type);
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (status != 204)
        evbuffer_add_printf(out, "Content-Length: %zu\r\n", len);
    evbuffer_add(out, "\r\n", 2);
    if (len > 0 && status != 204 && !piece_is(x->head.method, "HEAD"))
        evbuffer_add(out, body, len);
    bufferevent_enable(c->bev, EV_WRITE);
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
    return evbuffer_add(out, text, len) == 0;
}

void exchange_end(struct exchange *x)
{
    struct connection *c = x->connection;
    if (c) {
        c->exchange = NULL;
        free_connection(c);
    }
    x->connection = NULL;
    settle(x->http, x, c != NULL);
}
