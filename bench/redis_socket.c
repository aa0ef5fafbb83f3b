/* redis_socket.c - a bare connection to a Redis server. */
#include "redis_socket.h"

#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Connecting ---- */

uint16_t url_port(const char *url)
{
    unsigned port = 0;
    bool has_port = url && sscanf(url, "redis://127.0.0.1:%u", &port) == 1;
    if (!has_port || port == 0 || port > 65535)
        bench_fail("--url %s: must be redis://127.0.0.1:PORT/...", url ? url : "");
    return (uint16_t)port;
}

struct redis_socket *redis_socket_on(int fd)
{
    struct redis_socket *conn = calloc(1, sizeof *conn);
    int on = 1;
    if (!conn)
        bench_fail("no memory");

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    conn->fd = fd;
    return conn;
}

struct redis_socket *redis_socket_open(const char *url)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(url_port(url))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        bench_fail("%s: %s", url, strerror(errno));
    return redis_socket_on(fd);
}

void redis_socket_close(struct redis_socket *conn)
{
    if (conn)
        close(conn->fd);
    free(conn);
}

/* ---- Bytes ---- */

void redis_socket_send(struct redis_socket *conn, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(conn->fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            bench_fail("cannot send to the server: %s", strerror(errno));
        bytes += sent;
        len -= (size_t)sent;
    }
}

void redis_socket_receive(struct redis_socket *conn)
{
    if (conn->from > 0) {
        memmove(conn->bytes, conn->bytes + conn->from, conn->to - conn->from);
        conn->to -= conn->from;
        conn->from = 0;
    }
    ssize_t got = recv(conn->fd, conn->bytes + conn->to, CONN_ROOM - conn->to, 0);
    if (got < 0 && errno == EINTR)
        return;
    if (got <= 0)
        bench_fail("the server closed the connection%s%s", got < 0 ? ": " : "",
                   got < 0 ? strerror(errno) : "");

    conn->to += (size_t)got;
}

/* Returns the end of the reply at `at`, or NULL if the reply is not complete. */
static const char *end_of_reply(const char *at, const char *end)
{
    const char *mark = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!mark)
        return NULL;

    long count = strtol(at + 1, NULL, 10);
    const char *next = mark + 1;
    if (*at == '$' && count < 0)
        return next;
    if (*at == '$')
        return end - next >= count + 2 ? next + count + 2 : NULL;

    for (long i = 0; *at == '*' && i < count && next; i++)
        next = end_of_reply(next, end);
    return next;
}

const char *redis_socket_reply_ready(struct redis_socket *conn, size_t *len)
{
    const char *at = conn->bytes + conn->from, *end = end_of_reply(at, conn->bytes + conn->to);
    if (!end)
        return NULL;
    if (*at == '-')
        bench_fail("the server says %.*s", (int)(end - at - 2), at);

    *len = (size_t)(end - at);
    conn->from += *len;
    return at;
}

const char *redis_socket_reply(struct redis_socket *conn, size_t *len)
{
    const char *reply;
    while (!(reply = redis_socket_reply_ready(conn, len)))
        redis_socket_receive(conn);
    return reply;
}

/* ---- Commands ---- */

const char *redis_socket_request(struct redis_socket *conn, size_t *len, const char *format, ...)
{
    char command[4096];
    va_list words;

    va_start(words, format);
    int size = vsnprintf(command, sizeof command - 2, format, words);
    va_end(words);
    memcpy(command + size, "\r\n", 2);
    redis_socket_send(conn, command, (size_t)size + 2);

    return redis_socket_reply(conn, len);
}

/* The text of a reply ends with CR LF, at which strtod stops as at a NUL. */
static double field_of(const char *info, size_t len, const char *field)
{
    const char *at = memmem(info, len, field, strlen(field));
    return at ? strtod(at + strlen(field), NULL) : NAN;
}

double redis_socket_info(struct redis_socket *conn, const char *section, const char *field)
{
    size_t len;
    const char *info = redis_socket_request(conn, &len, "INFO %s", section);
    return field_of(info, len, field);
}

static double calls(const char *info, size_t len, const char *command)
{
    char field[64];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    double count = field_of(info, len, field);
    return isnan(count) ? 0 : count;
}

/* The server also counts the commands that scripts call. So only commands count that our scripts
 * never call. */
double redis_socket_commands(struct redis_socket *conn, bool sets)
{
    static const char *const sent_by_clients[] = {
        "fcall", "evalsha", "eval",    "blmpop",      "blpop",         "subscribe", "unsubscribe",
        "ping",  "wait",    "waitaof", "script|load", "function|load", "hello"};
    size_t len;
    const char *info = redis_socket_request(conn, &len, "INFO commandstats");
    double sum = sets ? calls(info, len, "set") : 0;

    for (unsigned i = 0; i < sizeof sent_by_clients / sizeof sent_by_clients[0]; i++)
        sum += calls(info, len, sent_by_clients[i]);
    return sum;
}
