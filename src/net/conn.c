/* conn.c - one non-blocking connection to a server. */
#include "conn.h"

#include "base/error.h"
#include "buffer.h"
#include "resolver.h"
#include "tls.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TLS_RECORD = 16 * 1024 + 512 }; /* the largest record with header and padding */

struct conn {
    enum { RESOLVING, CONNECTING, HANDSHAKE, UP, FAILED } state;
    int fd; /* descriptor of the socket; -1: none */
    struct endpoint to;
    struct resolver *resolver; /* RESOLVING: the resolver; otherwise NULL */
    /* all addresses; the next one to try; the last one to try */
    struct addrinfo *found, *next, *last;
    struct tls *tls;      /* its TLS session; NULL: none */
    struct buffer out;    /* plain bytes to send */
    struct buffer sealed; /* TLS: encrypted bytes to send */
    bool mute;            /* sending failed; earlier replies may still be read */
    hf_status status;
    char error_text[ERROR_TEXT_MAX];
};

/* ---- Failing ---- */

static void set_error(struct conn *conn, hf_status status, const char *cause)
{
    char where[ENDPOINT_TEXT_MAX];
    endpoint_print(&conn->to, where);
    error_set(status, "%s: %s", where, cause);

    conn->status = status;
    snprintf(conn->error_text, sizeof conn->error_text, "%s", error_text());
}

static void close_socket(struct conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

/* The descriptor stays open until the connection is freed: a thread may be polling it. */
static void fail(struct conn *conn, hf_status status, const char *cause)
{
    set_error(conn, status, cause);
    conn->state = FAILED;
    conn_shut(conn);
}

/* Returns the error in words for the middle of a sentence: "connection refused". */
static const char *errno_text(int error, char *text, size_t size)
{
    snprintf(text, size, "%s", strerror(error));
    text[0] = (char)tolower((unsigned char)text[0]);
    return text;
}

static void fail_by_errno(struct conn *conn, int error)
{
    char text[128];
    fail(conn, HF_UNAVAILABLE, errno_text(error, text, sizeof text));
}

/* Fails after everything received was read, because the server may have sent a reason before it
 * closed. */
static void fail_sending(struct conn *conn, hf_status status, const char *cause)
{
    if (conn->mute)
        return;

    set_error(conn, status, cause);
    conn->mute = true;

    buffer_free(&conn->out);
    buffer_free(&conn->sealed);
    conn_shut(conn);
}

static void fail_reading(struct conn *conn, int error)
{
    static const char *const closed[] = {
        [HANDSHAKE] = "the server closed the connection during the TLS handshake",
        [UP] = "the server closed the connection",
    };

    if (conn->mute) /* the cause is already set */
        conn->state = FAILED;
    else if (error)
        fail_by_errno(conn, error);
    else
        fail(conn, HF_UNAVAILABLE, closed[conn->state]);
}

/* ---- Connecting ---- */

static void handshake(struct conn *conn);

/* Makes the socket blocking with a time-out, for conn_recv_wait(). All other calls pass
 * MSG_DONTWAIT. */
static void allow_recv_wait(const struct conn *conn)
{
    static const struct timeval limit = {.tv_usec = CONN_RECV_WAIT_MS * 1000};
    if (setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0)
        fcntl(conn->fd, F_SETFL, fcntl(conn->fd, F_GETFL) & ~O_NONBLOCK);
}

static void connected(struct conn *conn)
{
    if (!conn->tls) {
        allow_recv_wait(conn);
        conn->state = UP;
        return;
    }

    conn->state = HANDSHAKE;
    handshake(conn);
}

/* Returns 0 if connected, EINPROGRESS, or an error of this address. */
static int begin_connect(struct conn *conn, const struct sockaddr *address, socklen_t len)
{
    static const int on = 1;
    conn->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (conn->fd < 0)
        return errno;

    if (address->sa_family != AF_UNIX) {
        setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (connect(conn->fd, address, len) == 0)
        return 0;
    return errno == EINTR ? EINPROGRESS : errno; /* an interrupted connect continues */
}

/* Returns the address to try after `one`; the list is a ring. NULL: all were tried. */
static struct addrinfo *next_address(const struct conn *conn, struct addrinfo *one)
{
    if (one == conn->last)
        return NULL;
    return one->ai_next ? one->ai_next : conn->found;
}

/* Tries conn->next and those behind it, until one connects or is in progress, or none is left. */
static void try_addresses(struct conn *conn)
{
    int error = EADDRNOTAVAIL;
    while (conn->next) {
        struct addrinfo *one = conn->next;
        conn->next = next_address(conn, one);
        error = begin_connect(conn, one->ai_addr, one->ai_addrlen);
        if (error == EINPROGRESS)
            return;
        if (!error) {
            connected(conn);
            return;
        }
        close_socket(conn);
    }
    fail_by_errno(conn, error);
}

static void found_addresses(struct conn *conn, struct addrinfo *found)
{
    unsigned count = 0;
    conn->state = CONNECTING;
    conn->found = conn->next = found;
    for (struct addrinfo *one = found; one; one = one->ai_next) {
        conn->last = one;
        count++;
    }

    for (unsigned i = conn->to.skip % count; i; i--) {
        conn->last = conn->next;
        conn->next = conn->next->ai_next;
    }
    try_addresses(conn);
}

static void continue_resolving(struct conn *conn)
{
    char text[128];
    struct addrinfo *found;
    int error = resolver_answer(conn->resolver, &found);
    if (error == EAI_INPROGRESS)
        return;

    resolver_drop(conn->resolver);
    conn->resolver = NULL;
    if (found)
        found_addresses(conn, found);
    else if (error == EAI_NONAME || error == EAI_NODATA)
        fail(conn, HF_UNAVAILABLE, "no such host");
    else if (snprintf(text, sizeof text, "cannot resolve the name: %s", gai_strerror(error)) > 0)
        fail(conn, HF_UNAVAILABLE, text);
}

static void continue_connecting(struct conn *conn)
{
    struct pollfd ready = {.fd = conn->fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&ready, 1, 0) <= 0)
        return;

    getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (!error) {
        connected(conn);
        return;
    }

    close_socket(conn);
    if (conn->next)
        try_addresses(conn);
    else
        fail_by_errno(conn, error);
}

static void dial_path(struct conn *conn)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, conn->to.path, strnlen(conn->to.path, sizeof address.sun_path - 1));
    conn->state = CONNECTING;
    int error =
        begin_connect(conn, (const struct sockaddr *)(const void *)&address, sizeof address);

    if (!error)
        connected(conn);
    else if (error != EINPROGRESS)
        fail_by_errno(conn, error);
}

static void dial_host(struct conn *conn)
{
    struct addrinfo *found = resolver_number(conn->to.host, conn->to.port);
    if (found) {
        found_addresses(conn, found);
        return;
    }

    conn->state = RESOLVING;
    conn->resolver = resolver_start(conn->to.host, conn->to.port);
    if (!conn->resolver)
        fail_by_errno(conn, errno);
}

struct conn *conn_dial(const struct endpoint *to)
{
    struct conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;

    conn->fd = -1;
    conn->to = *to;
    hf_status status = to->tls ? tls_new(&conn->tls, to) : HF_OK;
    if (status != HF_OK)
        fail(conn, status, error_text());
    else if (*to->path)
        dial_path(conn);
    else
        dial_host(conn);
    return conn;
}

/* Begins TLS. The server may have sent further bytes in plain text behind its consent; TLS would
 * seem to protect them. So the caller, which has read those bytes, must refuse them. */
bool conn_start_tls(struct conn *conn)
{
    assert(conn->state == UP || conn->state == FAILED);
    assert(!conn->tls && !buffer_len(&conn->out));
    if (conn->mute)
        conn->state = FAILED; /* the cause is already set */
    if (conn->state == FAILED)
        return false;

    hf_status status = tls_new(&conn->tls, &conn->to);
    if (status != HF_OK) {
        fail(conn, status, error_text());
        return false;
    }

    connected(conn);
    return conn->state != FAILED;
}

/* ---- To and from the socket ---- */

static void send_bytes(struct conn *conn, struct buffer *buffer)
{
    while (buffer_len(buffer)) {
        ssize_t sent = send(conn->fd, buffer->bytes + buffer->from, buffer_len(buffer),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            buffer_take(buffer, (size_t)sent);
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            return;
        } else if (errno != EINTR) {
            char text[128];
            fail_sending(conn, HF_UNAVAILABLE, errno_text(errno, text, sizeof text));
            return;
        }
    }
}

/* Sends the bytes that the TLS session has produced. */
static void send_sealed(struct conn *conn)
{
    if (!tls_take_out(conn->tls, &conn->sealed))
        fail_sending(conn, HF_UNAVAILABLE, "no memory to send");
    send_bytes(conn, &conn->sealed);
}

static void seal_and_send(struct conn *conn)
{
    send_sealed(conn);
    size_t len = buffer_len(&conn->out);

    /* Encrypts only when the socket has taken the last piece, so that no byte is buffered twice. */
    if (!len || buffer_len(&conn->sealed))
        return;

    hf_status status = tls_write(conn->tls, conn->out.bytes + conn->out.from, len);
    if (status != HF_OK) {
        fail_sending(conn, status, error_text());
        return;
    }

    buffer_take(&conn->out, len);
    send_sealed(conn);
}

void conn_flush(struct conn *conn)
{
    if (conn->state != UP || conn->mute)
        return;
    if (conn->tls)
        seal_and_send(conn);
    else
        send_bytes(conn, &conn->out);
}

bool conn_send(struct conn *conn, const void *bytes, size_t len)
{
    static const char *const no_room = "no memory to send, or the server does not read";
    if (conn->state == FAILED || conn->mute)
        return false;
    if (buffer_append(&conn->out, bytes, len))
        return true;

    if (conn->state == UP)
        fail_sending(conn, HF_UNAVAILABLE, no_room);
    else
        fail(conn, HF_UNAVAILABLE, no_room);
    return false;
}

static ssize_t receive_by(int fd, char *bytes, size_t size, int flags)
{
    ssize_t n = recv(fd, bytes, size, flags);
    return n < 0 ? -errno : n;
}

/* Returns false if the connection failed. */
static bool note_received(struct conn *conn, ssize_t came, size_t *got)
{
    *got = came > 0 ? (size_t)came : 0;
    if (came > 0)
        return true;
    if (came == -EAGAIN || came == -EINTR)
        return true;

    fail_reading(conn, (int)-came);
    return false;
}

/* Makes one recv(). Returns false if the connection failed. */
static bool receive(struct conn *conn, char *bytes, size_t size, size_t *got)
{
    ssize_t came;
    do
        came = receive_by(conn->fd, bytes, size, MSG_DONTWAIT);
    while (came == -EINTR);
    return note_received(conn, came, got);
}

/* Makes one recv() into the TLS session. *got is the number of encrypted bytes. */
static bool receive_sealed(struct conn *conn, size_t *got)
{
    char record[TLS_RECORD];
    if (!receive(conn, record, sizeof record, got))
        return false;

    hf_status status = tls_take_in(conn->tls, record, *got);
    if (status != HF_OK)
        fail(conn, status, error_text());
    return status == HF_OK;
}

static void handshake(struct conn *conn)
{
    bool done;
    char cause[ERROR_TEXT_MAX];
    hf_status status = tls_handshake(conn->tls, &done);

    snprintf(cause, sizeof cause, "%s", error_text());
    send_sealed(conn); /* after a failure too: it sends the TLS alert */
    if (status != HF_OK)
        fail(conn, status, cause);
    else if (done)
        conn->state = UP;
}

static void continue_handshake(struct conn *conn)
{
    size_t got;
    send_sealed(conn);
    if (receive_sealed(conn, &got) && got)
        handshake(conn);
}

static bool open_sealed(struct conn *conn, char *bytes, size_t size, size_t *got)
{
    hf_status status = tls_read(conn->tls, bytes, size, got);
    if (status != HF_OK)
        fail(conn, status, error_text());
    return status == HF_OK;
}

static bool read_sealed(struct conn *conn, char *bytes, size_t size, size_t *got, bool *more)
{
    size_t came;
    if (!open_sealed(conn, bytes, size, got))
        return false;
    if (!*got && !receive_sealed(conn, &came))
        return false;
    if (!*got && !open_sealed(conn, bytes, size, got))
        return false;

    *more = tls_more(conn->tls);
    conn_flush(conn); /* TLS may have bytes of its own to send */
    return true;
}

bool conn_read(struct conn *conn, char *bytes, size_t size, size_t *got, bool *more)
{
    *got = 0;
    *more = false;
    if (conn->state != UP)
        return conn->state != FAILED;
    if (conn->tls)
        return read_sealed(conn, bytes, size, got, more);
    if (!receive(conn, bytes, size, got))
        return false;

    *more = *got == size;
    return true;
}

bool conn_can_recv_wait(const struct conn *conn)
{
    return conn->state == UP && !conn->tls && !conn->mute && !buffer_len(&conn->out);
}

ssize_t conn_recv_wait(int fd, char *bytes, size_t size)
{
    return receive_by(fd, bytes, size, 0);
}

ssize_t conn_recv_now(int fd, char *bytes, size_t size)
{
    return receive_by(fd, bytes, size, MSG_DONTWAIT);
}

bool conn_recv_waited(struct conn *conn, ssize_t came, size_t size, size_t *got, bool *more)
{
    bool good = conn->state != FAILED && note_received(conn, came, got);
    *more = good && *got == size;
    return good;
}

/* ---- The end ---- */

void conn_shut(struct conn *conn)
{
    if (conn->fd >= 0)
        shutdown(conn->fd, SHUT_RDWR);
}

void conn_free(struct conn *conn)
{
    if (conn->tls && conn->state == UP && !conn->mute) {
        tls_shutdown(conn->tls);
        send_sealed(conn);
    }

    close_socket(conn);
    if (conn->resolver)
        resolver_drop(conn->resolver);

    if (conn->found)
        freeaddrinfo(conn->found);
    tls_free(conn->tls);
    buffer_free(&conn->out);
    buffer_free(&conn->sealed);
    free(conn);
}

/* ---- Polling ---- */

int conn_fd(const struct conn *conn)
{
    return conn->state == RESOLVING && conn->resolver ? resolver_fd(conn->resolver) : conn->fd;
}

bool conn_ready(const struct conn *conn)
{
    return conn->state == FAILED || (conn->state == UP && conn->tls && tls_more(conn->tls));
}

short conn_events(const struct conn *conn)
{
    switch (conn->state) {
    case RESOLVING:
        return POLLIN;
    case CONNECTING:
        return POLLOUT;
    case HANDSHAKE:
        return buffer_len(&conn->sealed) ? POLLIN | POLLOUT : POLLIN;
    case UP:
        return buffer_len(&conn->out) || buffer_len(&conn->sealed) ? POLLIN | POLLOUT : POLLIN;
    default:
        return 0;
    }
}

enum conn_state conn_state(const struct conn *conn)
{
    if (conn->state == FAILED)
        return CONN_FAILED;
    return conn->state == UP ? CONN_UP : CONN_OPENING;
}

enum conn_state conn_continue(struct conn *conn)
{
    if (conn->state == RESOLVING)
        continue_resolving(conn);
    else if (conn->state == CONNECTING)
        continue_connecting(conn);
    else if (conn->state == HANDSHAKE)
        continue_handshake(conn);
    return conn_state(conn);
}

hf_status conn_status(const struct conn *conn)
{
    return conn->status;
}

const char *conn_error_text(const struct conn *conn)
{
    return conn->error_text;
}
