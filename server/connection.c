/* connection.c - one state machine per connection: read a request, wait for its answer, write
 * the answer, begin again.
 *
 * A client that disconnects while it waits for a lock must be noticed. The kernel reports a
 * reset at once. The end of the client's input is ambiguous: the client closed the socket, or
 * only its sending side, which is legal. To find out, the service sends the interim answer 102,
 * which clients skip; a closed socket replies with a reset.
 *
 * An answer is written when it is made. Almost always the socket takes it whole, so nothing has
 * to wait until the socket is writable. The event `written` reports from the loop that the
 * answer went out, never from inside the handler. */
#include "connection.h"
#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_MS 500
#define PROBE_MS 250
#define READ_MAX 16384

static void connection_read(struct connection *c);

void connection_set_timer(struct connection *c, int64_t ms)
{
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    event_add(c->timer, &time);
}

void connection_free(struct connection *c)
{
    struct http *http = c->http;

    *(c->prev ? &c->prev->next : &http->connections) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    http->count--;
    if (c->address)
        http_leave_address(c->http, c->address);
    event_free(c->timer);
    event_free(c->written);
    if (c->readable)
        event_free(c->readable);
    bufferevent_free(c->bev);
    free(c);
}

void connection_lose(struct connection *c)
{
    struct http *http = c->http;
    struct exchange *x = c->exchange;

    connection_free(c);
    if (!x)
        return;

    x->connection = NULL;
    if (x->status != 0 && !x->streams)
        exchange_settle(http, x, false);
    else if (x->disconnected)
        x->disconnected(x);
}

/* Half-closes and waits for the client to close. Closing while the client still sends would
 * reset the connection, and the answer could be lost. */
static void linger(struct connection *c)
{
    c->lingers = true;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    if (c->half_closed || c->tls) {
        connection_free(c);
        return;
    }

    connection_set_timer(c, LINGER_MS);
    connection_start(c);
}

static void finish_answer(struct connection *c)
{
    struct exchange *x = c->exchange;
    /* Bytes are left if the client sent another request before it half-closed. */
    bool more = evbuffer_get_length(bufferevent_get_input(c->bev)) > 0;
    bool closes = x->closes || (c->half_closed && !more) || c->http->draining;

    c->exchange = NULL;
    exchange_settle(c->http, x, true);
    if (closes) {
        linger(c);
        return;
    }

    connection_set_timer(c, c->http->o.limits.idle_ms);
    connection_read(c);
}

static void after_write(struct connection *c)
{
    bool empty = evbuffer_get_length(bufferevent_get_output(c->bev)) == 0;
    bool is_written = c->exchange && c->exchange->status != 0 && !c->exchange->streams && empty;
    if (is_written)
        finish_answer(c);
}

static void on_written(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    after_write(arg);
}

/* An answer did not fit into the socket at once, and the socket has now taken the rest. */
static void on_drained(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;
    if (!c->tls)
        bufferevent_disable(bev, EV_WRITE);
    after_write(c);
}

void connection_flush(struct connection *c)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);

    if (!c->tls) {
        evbuffer_unfreeze(out, 1); /* the bufferevent has frozen the front of its output */
        /* If it fails, the bufferevent's next write reports why. */
        (void)evbuffer_write(out, bufferevent_getfd(c->bev));
        evbuffer_freeze(out, 1);
    }

    if (evbuffer_get_length(out) > 0)
        bufferevent_enable(c->bev, EV_WRITE);
    else
        event_active(c->written, EV_WRITE, 0);
}

void connection_refuse(struct connection *c, int status, const char *why)
{
    struct exchange *x = exchange_new(c, 0);

    if (!x) {
        connection_free(c);
        return;
    }

    x->closes = true;
    c->http->o.refuse(c->http->o.arg, x, status, why);
}

/* `head` points into `text`, the begin of the input. */
static void begin_exchange(struct connection *c, const struct request_head *head, const char *text,
                           size_t head_len)
{
    size_t total = head_len + head->body_len;
    struct exchange *x = exchange_new(c, total);

    if (!x) {
        connection_free(c);
        return;
    }

    request_head_copy(&x->head, head, text, x->text);
    evbuffer_remove(bufferevent_get_input(c->bev), x->text, total);
    x->body = x->text + head_len;
    x->body_len = total - head_len;
    x->closes = !x->head.keep_alive;
    c->scanned = c->needed = 0;
    c->continued = false;
    event_del(c->timer);
    c->http->o.handle(c->http->o.arg, x);
}

static void continue_client(struct connection *c, const struct request_head *head)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

    if (head->expects_continue && !c->continued) {
        bufferevent_write(c->bev, go_on, sizeof go_on - 1);
        connection_flush(c);
    }
    c->continued = true;
}

static void connection_read(struct connection *c)
{
    const struct http_limits *limits = &c->http->o.limits;
    struct evbuffer *input = bufferevent_get_input(c->bev);
    size_t len = evbuffer_get_length(input);
    struct request_head head;
    const char *why = NULL;

    if (len == 0 || len < c->needed)
        return;

    if (c->scanned == 0)
        connection_set_timer(c, limits->request_ms);
    size_t searched = len > limits->head_bytes + 1 ? limits->head_bytes + 1 : len;
    const char *text = (const char *)evbuffer_pullup(input, (ev_ssize_t)searched);
    size_t from = c->scanned > 3 ? c->scanned - 3 : 0;
    size_t end = text ? request_head_end(text + from, searched - from) : 0;
    c->scanned = searched;
    bool is_garbage = text && (text[0] < 'A' || text[0] > 'Z');
    if (is_garbage) {
        connection_refuse(c, 400, "the request does not begin with a method");
        return;
    }
    if (end == 0 && searched > limits->head_bytes) {
        bool long_line = !memchr(text, '\n', searched);
        connection_refuse(c, long_line ? 414 : 431,
                          long_line ? "the target is too long" : "the head is too long");
        return;
    }
    if (end == 0)
        return;

    end += from;
    int status = request_head_read(&head, text, end, &why);
    if (status == 0 && head.body_len > limits->body_bytes) {
        status = 413;
        why = "the body is too long";
    }
    if (status != 0) {
        connection_refuse(c, status, why);
        return;
    }

    /* When the body is complete, the head is parsed again: search again from just before its
     * end. */
    c->scanned = end > 3 ? end - 3 : 0;
    c->needed = end + head.body_len;
    if (len < c->needed)
        continue_client(c, &head);
    else
        begin_exchange(c, &head, text, end);
}

static void take_input(struct connection *c)
{
    struct evbuffer *input = bufferevent_get_input(c->bev);

    if (c->lingers)
        evbuffer_drain(input, evbuffer_get_length(input));
    else if (!c->exchange)
        connection_read(c);
    else if (evbuffer_get_length(input) >= PIPELINED_MAX)
        connection_lose(c);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    take_input(arg);
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
        connection_lose(c);
        return;
    }

    bufferevent_write(c->bev, interim, sizeof interim - 1);
    connection_flush(c);
    connection_set_timer(c, PROBE_MS);
}

static void on_end_of_input(struct connection *c)
{
    struct exchange *x = c->exchange;
    bool leaves = c->lingers || !x || x->streams || c->tls || x->head.is_http10 ||
                  c->http->o.limits.half_close_leaves;

    c->half_closed = true;
    /* An answer is being written. If the client has closed, that write fails and ends the
     * connection. */
    bool is_answered = x && x->status != 0 && !x->streams;
    if (is_answered)
        return;
    if (leaves) {
        connection_lose(c);
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
        connection_lose(c);
}

/* Reads a socket without TLS. The bufferevent would first ask how many bytes there are: one more
 * system call for each request. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    static char bytes[READ_MAX];
    struct connection *c = arg;
    struct evbuffer *input = bufferevent_get_input(c->bev);
    (void)what;

    ssize_t len = recv(fd, bytes, sizeof bytes, 0);
    bool is_early = len < 0 && (errno == EAGAIN || errno == EINTR);
    if (is_early)
        return;
    if (len < 0) {
        connection_lose(c);
        return;
    }
    if (len == 0) {
        event_del(c->readable);
        on_end_of_input(c);
        return;
    }

    evbuffer_unfreeze(input, 0); /* the bufferevent has frozen the end of its input */
    int added = evbuffer_add(input, bytes, (size_t)len);
    evbuffer_freeze(input, 0);
    if (added == 0)
        take_input(c);
    else
        connection_lose(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct connection *c = arg;
    (void)fd;
    (void)what;

    struct exchange *x = c->exchange;
    bool may_have_left = x && c->half_closed && x->status == 0;

    if (c->lingers)
        connection_free(c);
    else if (may_have_left)
        probe(c);
    else if (!c->exchange && evbuffer_get_length(bufferevent_get_input(c->bev)) > 0)
        connection_refuse(c, 408, "the request was not complete in time");
    else if (!c->exchange)
        connection_free(c);
}

static struct bufferevent *open_bufferevent(struct http *http, int fd, bool tls)
{
    if (!tls)
        return bufferevent_socket_new(http->o.base, fd, BEV_OPT_CLOSE_ON_FREE);

    SSL *ssl = SSL_new(http->o.tls);
    struct bufferevent *bev =
        ssl ? bufferevent_openssl_socket_new(http->o.base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                             BEV_OPT_CLOSE_ON_FREE)
            : NULL;
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else
        SSL_free(ssl);
    return bev;
}

struct connection *connection_new(struct http *http, int fd, bool tls)
{
    struct connection *c = calloc(1, sizeof *c);
    struct bufferevent *bev = c ? open_bufferevent(http, fd, tls) : NULL;
    struct event *timer = bev ? event_new(http->o.base, -1, 0, on_timer, c) : NULL;
    struct event *written = timer ? event_new(http->o.base, -1, 0, on_written, c) : NULL;
    struct event *readable =
        written && !tls ? event_new(http->o.base, fd, EV_READ | EV_PERSIST, on_readable, c) : NULL;

    if (!written || (!readable && !tls)) {
        if (written)
            event_free(written);
        if (timer)
            event_free(timer);
        if (bev)
            bufferevent_free(bev);
        else
            close(fd);
        free(c);
        return NULL;
    }

    *c = (struct connection){.http = http,
                             .tls = tls,
                             .bev = bev,
                             .timer = timer,
                             .written = written,
                             .readable = readable,
                             .next = http->connections};
    if (c->next)
        c->next->prev = c;
    http->connections = c;
    http->count++;
    bufferevent_setcb(bev, on_read, on_drained, on_event, c);
    /* Without TLS this file reads and writes the socket itself, so the bufferevent must not. */
    if (tls)
        bufferevent_setwatermark(
            bev, EV_READ, 0, PIPELINED_MAX + http->o.limits.head_bytes + http->o.limits.body_bytes);
    else
        bufferevent_disable(bev, EV_WRITE);
    connection_set_timer(c, http->o.limits.request_ms);

    return c;
}

void connection_start(struct connection *c)
{
    if (c->tls)
        bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    else
        event_add(c->readable, NULL);
}
