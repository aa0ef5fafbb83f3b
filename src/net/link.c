/* link.c - one connection to a server that makes nobody wait. */
#include "link.h"

#include "base/why.h"
#include "buffer.h"
#include "lookup.h"
#include "tls.h"

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

enum { TLS_RECORD = 16 * 1024 + 512 }; /* the largest, with what surrounds it */

struct hf_link {
    enum { LOOKING_UP, CONNECTING, GREETING, UP, FAILED } state;
    int fd; /* the socket; -1: none */
    struct hf_address to;
    unsigned skip;
    struct hf_lookup *lookup;             /* while it looks up */
    struct addrinfo *found, *next, *last; /* all addresses; the one to try; the one behind which nothing is left */
    struct hf_tls *tls;
    struct hf_buffer out;    /* as it was given to us */
    struct hf_buffer sealed; /* TLS: as it goes to the wire */
    bool mute;               /* sending failed; what the server said before may still be read */
    hf_status status;
    char why[HF_WHY_MAX];
};

/* ---- Failing ---- */

static void say(struct hf_link *link, hf_status status, const char *cause)
{
    const struct hf_address *to = &link->to;
    if (*to->path)
        hf_why(status, "%s: %s", to->path, cause);
    else
        hf_why(status, strchr(to->host, ':') ? "[%s]:%s: %s" : "%s:%s: %s", to->host, to->port, cause);
    link->status = status;
    snprintf(link->why, sizeof link->why, "%s", hf_why_text());
}

static void close_socket(struct hf_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

/* The descriptor stays until the link is freed: somebody may be polling it. */
static void fail(struct hf_link *link, hf_status status, const char *cause)
{
    say(link, status, cause);
    link->state = FAILED;
    hf_link_shut(link);
}

/* In the middle of a line: "connection refused". */
static const char *error_words(int error, char *words, size_t size)
{
    snprintf(words, size, "%s", strerror(error));
    words[0] = (char)tolower((unsigned char)words[0]);
    return words;
}

static void fail_by_errno(struct hf_link *link, int error)
{
    char words[128];
    fail(link, HF_UNAVAILABLE, error_words(error, words, sizeof words));
}

/* The server may have said why before it stopped listening, so its last words are read first. */
static void fail_sending(struct hf_link *link, hf_status status, const char *cause)
{
    if (link->mute)
        return;
    say(link, status, cause);
    link->mute = true;
    hf_buffer_free(&link->out);
    hf_buffer_free(&link->sealed);
    hf_link_shut(link);
}

static void fail_reading(struct hf_link *link, int error)
{
    static const char *const closed[] = {
        [GREETING] = "the server closed the connection during the TLS handshake",
        [UP] = "the server closed the connection",
    };
    if (link->mute) /* we know why */
        link->state = FAILED;
    else if (error)
        fail_by_errno(link, error);
    else
        fail(link, HF_UNAVAILABLE, closed[link->state]);
}

/* ---- Connecting ---- */

static void greet(struct hf_link *link);

/* From here on every call says itself that it does not wait, except the one that may. */
static void let_doze(const struct hf_link *link)
{
    static const struct timeval limit = {.tv_usec = HF_LINK_DOZE_MS * 1000};
    if (setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0)
        fcntl(link->fd, F_SETFL, fcntl(link->fd, F_GETFL) & ~O_NONBLOCK);
}

static void connected(struct hf_link *link)
{
    if (!link->tls) {
        let_doze(link);
        link->state = UP;
        return;
    }
    link->state = GREETING;
    greet(link);
}

/* 0: connected; EINPROGRESS: will be seen; another: not this address. */
static int begin_connect(struct hf_link *link, const struct sockaddr *address, socklen_t len)
{
    static const int on = 1;
    link->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd < 0)
        return errno;
    if (address->sa_family != AF_UNIX) {
        setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(link->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (connect(link->fd, address, len) == 0)
        return 0;
    return errno == EINTR ? EINPROGRESS : errno; /* interrupted, it goes on all the same */
}

/* The address behind `one`, around the end of the list; NULL: all were tried. */
static struct addrinfo *following(const struct hf_link *link, struct addrinfo *one)
{
    if (one == link->last)
        return NULL;
    return one->ai_next ? one->ai_next : link->found;
}

/* From the address that is next on: connects, or waits for one, or has none left. */
static void try_addresses(struct hf_link *link)
{
    int error = EADDRNOTAVAIL;
    while (link->next) {
        struct addrinfo *one = link->next;
        link->next = following(link, one);
        error = begin_connect(link, one->ai_addr, one->ai_addrlen);
        if (error == EINPROGRESS)
            return;
        if (!error) {
            connected(link);
            return;
        }
        close_socket(link);
    }
    fail_by_errno(link, error);
}

static void found_addresses(struct hf_link *link, struct addrinfo *found)
{
    unsigned count = 0;
    link->state = CONNECTING;
    link->found = link->next = found;
    for (struct addrinfo *one = found; one; one = one->ai_next) {
        link->last = one;
        count++;
    }
    for (unsigned i = link->skip % count; i; i--) {
        link->last = link->next;
        link->next = link->next->ai_next;
    }
    try_addresses(link);
}

static void go_on_looking_up(struct hf_link *link)
{
    char words[128];
    struct addrinfo *found;
    int error = hf_lookup_answer(link->lookup, &found);
    if (error == EAI_INPROGRESS)
        return;
    hf_lookup_drop(link->lookup);
    link->lookup = NULL;
    if (found)
        found_addresses(link, found);
    else if (error == EAI_NONAME || error == EAI_NODATA)
        fail(link, HF_UNAVAILABLE, "no such host");
    else if (snprintf(words, sizeof words, "the name look-up failed: %s", gai_strerror(error)) > 0)
        fail(link, HF_UNAVAILABLE, words);
}

static void go_on_connecting(struct hf_link *link)
{
    struct pollfd ready = {.fd = link->fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&ready, 1, 0) <= 0)
        return;
    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (!error) {
        connected(link);
        return;
    }
    close_socket(link);
    if (link->next)
        try_addresses(link);
    else
        fail_by_errno(link, error);
}

static void dial_path(struct hf_link *link)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, link->to.path, strnlen(link->to.path, sizeof address.sun_path - 1));
    link->state = CONNECTING;
    int error = begin_connect(link, (const struct sockaddr *)(const void *)&address, sizeof address);
    if (!error)
        connected(link);
    else if (error != EINPROGRESS)
        fail_by_errno(link, error);
}

static void dial_host(struct hf_link *link)
{
    struct addrinfo *found = hf_lookup_number(link->to.host, link->to.port);
    if (found) {
        found_addresses(link, found);
        return;
    }
    link->state = LOOKING_UP;
    link->lookup = hf_lookup_start(link->to.host, link->to.port);
    if (!link->lookup)
        fail_by_errno(link, errno);
}

struct hf_link *hf_link_dial(const struct hf_address *to, unsigned skip)
{
    struct hf_link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->fd = -1;
    link->to = *to;
    link->skip = skip;
    hf_status status = to->tls ? hf_tls_new(&link->tls, to) : HF_OK;
    if (status != HF_OK)
        fail(link, status, hf_why_text());
    else if (*to->path)
        dial_path(link);
    else
        dial_host(link);
    return link;
}

/* ---- To and from the socket ---- */

static void send_bytes(struct hf_link *link, struct hf_buffer *buffer)
{
    while (hf_buffer_len(buffer)) {
        ssize_t sent = send(link->fd, buffer->bytes + buffer->from, hf_buffer_len(buffer), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            hf_buffer_take(buffer, (size_t)sent);
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            return;
        } else if (errno != EINTR) {
            char words[128];
            fail_sending(link, HF_UNAVAILABLE, error_words(errno, words, sizeof words));
            return;
        }
    }
}

/* What the TLS session has to say goes to the socket. */
static void send_sealed(struct hf_link *link)
{
    if (!hf_tls_take_out(link->tls, &link->sealed))
        fail_sending(link, HF_UNAVAILABLE, "no memory to send");
    send_bytes(link, &link->sealed);
}

static void seal_and_send(struct hf_link *link)
{
    send_sealed(link);
    size_t len = hf_buffer_len(&link->out);
    if (!len || hf_buffer_len(&link->sealed)) /* sealed piece by piece: what cannot go out yet need not be held twice */
        return;
    hf_status status = hf_tls_write(link->tls, link->out.bytes + link->out.from, len);
    if (status != HF_OK) {
        fail_sending(link, status, hf_why_text());
        return;
    }
    hf_buffer_take(&link->out, len);
    send_sealed(link);
}

void hf_link_flush(struct hf_link *link)
{
    if (link->state != UP || link->mute)
        return;
    if (link->tls)
        seal_and_send(link);
    else
        send_bytes(link, &link->out);
}

bool hf_link_send(struct hf_link *link, const void *bytes, size_t len)
{
    static const char *const no_room = "no memory to send, or the server takes nothing";
    if (link->state == FAILED || link->mute)
        return false;
    if (hf_buffer_append(&link->out, bytes, len))
        return true;
    if (link->state == UP)
        fail_sending(link, HF_UNAVAILABLE, no_room);
    else
        fail(link, HF_UNAVAILABLE, no_room);
    return false;
}

static ssize_t receive_by(int fd, char *bytes, size_t size, int flags)
{
    ssize_t n = recv(fd, bytes, size, flags);
    return n < 0 ? -errno : n;
}

/* False: the link failed. */
static bool note_received(struct hf_link *link, ssize_t came, size_t *got)
{
    *got = came > 0 ? (size_t)came : 0;
    if (came > 0 || came == -EAGAIN || came == -EINTR)
        return true;
    fail_reading(link, (int)-came);
    return false;
}

/* One recv. False: it failed. */
static bool receive(struct hf_link *link, char *bytes, size_t size, size_t *got)
{
    ssize_t came;
    do
        came = receive_by(link->fd, bytes, size, MSG_DONTWAIT);
    while (came == -EINTR);
    return note_received(link, came, got);
}

/* One recv, into the TLS session. *got counts what came from the wire. */
static bool receive_sealed(struct hf_link *link, size_t *got)
{
    char record[TLS_RECORD];
    if (!receive(link, record, sizeof record, got))
        return false;
    hf_status status = hf_tls_take_in(link->tls, record, *got);
    if (status != HF_OK)
        fail(link, status, hf_why_text());
    return status == HF_OK;
}

static void greet(struct hf_link *link)
{
    bool done;
    char cause[HF_WHY_MAX];
    hf_status status = hf_tls_greet(link->tls, &done);
    snprintf(cause, sizeof cause, "%s", hf_why_text());
    send_sealed(link); /* also the alert that says what we did not like */
    if (status != HF_OK)
        fail(link, status, cause);
    else if (done)
        link->state = UP;
}

static void go_on_greeting(struct hf_link *link)
{
    size_t got;
    send_sealed(link);
    if (receive_sealed(link, &got) && got)
        greet(link);
}

static bool open_sealed(struct hf_link *link, char *bytes, size_t size, size_t *got)
{
    hf_status status = hf_tls_read(link->tls, bytes, size, got);
    if (status != HF_OK)
        fail(link, status, hf_why_text());
    return status == HF_OK;
}

static bool read_sealed(struct hf_link *link, char *bytes, size_t size, size_t *got, bool *more)
{
    size_t came;
    if (!open_sealed(link, bytes, size, got))
        return false;
    if (!*got && (!receive_sealed(link, &came) || !open_sealed(link, bytes, size, got)))
        return false;
    *more = hf_tls_more(link->tls);
    hf_link_flush(link); /* the session may have something to say of its own */
    return true;
}

bool hf_link_read(struct hf_link *link, char *bytes, size_t size, size_t *got, bool *more)
{
    *got = 0;
    *more = false;
    if (link->state != UP)
        return link->state != FAILED;
    if (link->tls)
        return read_sealed(link, bytes, size, got, more);
    if (!receive(link, bytes, size, got))
        return false;
    *more = *got == size;
    return true;
}

bool hf_link_can_doze(const struct hf_link *link)
{
    return link->state == UP && !link->tls && !link->mute && !hf_buffer_len(&link->out);
}

ssize_t hf_link_doze(int fd, char *bytes, size_t size)
{
    return receive_by(fd, bytes, size, 0);
}

ssize_t hf_link_glance(int fd, char *bytes, size_t size)
{
    return receive_by(fd, bytes, size, MSG_DONTWAIT);
}

bool hf_link_dozed(struct hf_link *link, ssize_t came, size_t size, size_t *got, bool *more)
{
    bool good = link->state != FAILED && note_received(link, came, got);
    *more = good && *got == size;
    return good;
}

/* ---- The end ---- */

void hf_link_shut(struct hf_link *link)
{
    if (link->fd >= 0)
        shutdown(link->fd, SHUT_RDWR);
}

void hf_link_free(struct hf_link *link)
{
    if (link->tls && link->state == UP && !link->mute) {
        hf_tls_farewell(link->tls);
        send_sealed(link);
    }
    close_socket(link);
    if (link->lookup)
        hf_lookup_drop(link->lookup);
    if (link->found)
        freeaddrinfo(link->found);
    hf_tls_free(link->tls);
    hf_buffer_free(&link->out);
    hf_buffer_free(&link->sealed);
    free(link);
}

/* ---- For whoever polls ---- */

int hf_link_fd(const struct hf_link *link)
{
    return link->state == LOOKING_UP && link->lookup ? hf_lookup_fd(link->lookup) : link->fd;
}

bool hf_link_ready(const struct hf_link *link)
{
    return link->state == FAILED || (link->state == UP && link->tls && hf_tls_more(link->tls));
}

short hf_link_events(const struct hf_link *link)
{
    switch (link->state) {
    case LOOKING_UP:
        return POLLIN;
    case CONNECTING:
        return POLLOUT;
    case GREETING:
        return hf_buffer_len(&link->sealed) ? POLLIN | POLLOUT : POLLIN;
    case UP:
        return hf_buffer_len(&link->out) || hf_buffer_len(&link->sealed) ? POLLIN | POLLOUT : POLLIN;
    default:
        return 0;
    }
}

enum hf_link_state hf_link_state(const struct hf_link *link)
{
    if (link->state == FAILED)
        return HF_LINK_FAILED;
    return link->state == UP ? HF_LINK_UP : HF_LINK_OPENING;
}

enum hf_link_state hf_link_go_on(struct hf_link *link)
{
    if (link->state == LOOKING_UP)
        go_on_looking_up(link);
    else if (link->state == CONNECTING)
        go_on_connecting(link);
    else if (link->state == GREETING)
        go_on_greeting(link);
    return hf_link_state(link);
}

hf_status hf_link_status(const struct hf_link *link)
{
    return link->status;
}

const char *hf_link_why(const struct hf_link *link)
{
    return link->why;
}
