/* http.c - accepts connections within their limits, and handles all connections as a whole. */
#include "connection.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 100    /* pause before the next try to accept */
#define REFUSED_MAX 256 /* connections above the limit that are answered with 503 or 429 */

static int64_t ms_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_ms(void)
{
    return ms_of(CLOCK_BOOTTIME);
}

int64_t wall_ms(void)
{
    return ms_of(CLOCK_REALTIME);
}

/* ---- Accepting ---- */

static int by_address(const void *left, const void *right)
{
    return memcmp(((const struct address *)left)->bytes, ((const struct address *)right)->bytes,
                  16);
}

/* Turns a mapped address back: a socket of both families reports the address of an IPv4 client as
 * ::ffff:A.B.C.D. */
static const struct sockaddr *unmapped(const struct sockaddr *from, struct sockaddr_in *plain)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)from;

    if (from->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return from;
    *plain = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = six->sin6_port};
    memcpy(&plain->sin_addr, six->sin6_addr.s6_addr + 12, 4);
    return (const struct sockaddr *)plain;
}

/* Makes the key of an address. For IPv6 it is the network, because one customer has all
 * addresses of it. */
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

/* Prints the key of an address, which is its network if it is of IPv6. */
static void print_network(const struct sockaddr *from, char text[48])
{
    uint8_t bytes[16];

    if (!address_key(from, bytes))
        strcpy(text, "unix");
    else if (from->sa_family == AF_INET)
        inet_ntop(AF_INET, bytes + 12, text, 48);
    else
        inet_ntop(AF_INET6, bytes, text, 48);
}

static void print_peer(const struct sockaddr *from, char text[48])
{
    const void *address = NULL;

    if (from->sa_family == AF_INET)
        address = &((const struct sockaddr_in *)(const void *)from)->sin_addr;
    else if (from->sa_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    if (!address || !inet_ntop(from->sa_family, address, text, 48))
        strcpy(text, "unix");
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

void http_leave_address(struct http *http, struct address *address)
{
    if (--address->count > 0)
        return;
    tdelete(address, &http->addresses, by_address);
    free(address);
}

/* Returns the status that refuses one more connection, or 0. */
static int over_limit(const struct http *http, const struct address *address)
{
    if (http->count > http->o.limits.connections)
        return 503;
    if (address && address->count > http->o.limits.connections_per_address)
        return 429;
    return 0;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int len, void *arg)
{
    struct http *http = arg;
    struct sockaddr_in plain;
    const struct sockaddr *from = unmapped(peer, &plain);
    int one = 1;
    bool tls = false;
    (void)len;

    http->accept_paused = false;
    for (size_t i = 0; i < http->listener_count; i++)
        if (http->listeners[i] == listener)
            tls = http->listener_tls[i];
    if (http->count >= http->o.limits.connections + REFUSED_MAX) {
        close(fd);
        return;
    }

    /* fails harmlessly for a unix socket, which has no such option */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *c = connection_new(http, fd, tls);
    if (!c)
        return;

    print_peer(from, c->peer);
    print_network(from, c->network);
    c->address = find_address(http, from);
    if (c->address)
        c->address->count++;
    int refusal = over_limit(http, c->address);
    if (refusal != 0 && !tls) {
        connection_refuse(c, refusal,
                          refusal == 503 ? "too many connections"
                                         : "too many connections from this address");
        return;
    }
    if (refusal != 0) {
        connection_free(c);
        return;
    }

    connection_start(c);
}

/* Accepting failed, usually because descriptors are out. New connections stay in the kernel's
 * queue, and the loop must not spin on them, so accepting pauses. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct http *http = arg;
    struct timeval time = {.tv_usec = PAUSE_MS * 1000};
    (void)listener;

    if (!http->accept_paused)
        http->o.accept_failed(http->o.arg, strerror(errno));
    http->accept_paused = true;
    for (size_t i = 0; i < http->listener_count; i++)
        evconnlistener_disable(http->listeners[i]);
    event_add(http->resume, &time);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct http *http = arg;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < http->listener_count; i++)
        evconnlistener_enable(http->listeners[i]);
}

struct http *http_new(const struct http_options *options)
{
    struct http *http = calloc(1, sizeof *http);
    struct event *resume = http ? event_new(options->base, -1, 0, on_resume, http) : NULL;

    if (!resume) {
        free(http);
        return NULL;
    }

    http->o = *options;
    http->resume = resume;

    return http;
}

void http_set_tls(struct http *http, SSL_CTX *tls)
{
    http->o.tls = tls;
}

bool http_listen(struct http *http, int fd, bool tls)
{
    if (http->listener_count == LISTENERS_MAX) {
        errno = EMFILE;
        return false;
    }

    struct evconnlistener *listener = evconnlistener_new(
        http->o.base, on_accept, http, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!listener)
        return false;

    evconnlistener_set_error_cb(listener, on_accept_error);
    http->listener_tls[http->listener_count] = tls;
    http->listeners[http->listener_count++] = listener;

    return true;
}

int http_listening(const struct http *http, size_t i)
{
    return i < http->listener_count ? evconnlistener_get_fd(http->listeners[i]) : -1;
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
            connection_free(c);
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
        connection_lose(http->connections);
    tdestroy(http->addresses, free);
    event_free(http->resume);
    free(http);
}
