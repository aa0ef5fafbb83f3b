/* redis_line.c - a bare connection to a Redis server. */
#include "redis_line.h"

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
    if (!url || (sscanf(url, "redis://127.0.0.1:%u", &port) != 1) || port == 0 || port > 65535)
        bench_fail("--url %s: must be redis://127.0.0.1:PORT/...", url ? url : "");
    return (uint16_t)port;
}

struct redis_line *line_on(int fd)
{
    struct redis_line *line = calloc(1, sizeof *line);
    int on = 1;
    if (!line)
        bench_fail("no memory");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    line->fd = fd;
    return line;
}

struct redis_line *line_open(const char *url)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(url_port(url))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        bench_fail("%s: %s", url, strerror(errno));
    return line_on(fd);
}

void line_close(struct redis_line *line)
{
    if (line)
        close(line->fd);
    free(line);
}

/* ---- Bytes ---- */

void line_send(struct redis_line *line, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(line->fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            bench_fail("the server took no more: %s", strerror(errno));
        bytes += sent;
        len -= (size_t)sent;
    }
}

void line_receive(struct redis_line *line)
{
    if (line->from > 0) {
        memmove(line->bytes, line->bytes + line->from, line->to - line->from);
        line->to -= line->from;
        line->from = 0;
    }
    ssize_t got = recv(line->fd, line->bytes + line->to, LINE_ROOM - line->to, 0);
    if (got < 0 && errno == EINTR)
        return;
    if (got <= 0)
        bench_fail("the server ended the connection%s%s", got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
    line->to += (size_t)got;
}

/* Where the reply at `at` ends; NULL: not all of it is there. */
static const char *end_of_reply(const char *at, const char *end)
{
    const char *mark = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!mark)
        return NULL;
    long count = strtol(at + 1, NULL, 10);
    const char *next = mark + 1;
    if (*at == '$')
        return count < 0 ? next : end - next >= count + 2 ? next + count + 2 : NULL;
    for (long i = 0; *at == '*' && i < count && next; i++)
        next = end_of_reply(next, end);
    return next;
}

const char *line_reply_ready(struct redis_line *line, size_t *len)
{
    const char *at = line->bytes + line->from, *end = end_of_reply(at, line->bytes + line->to);
    if (!end)
        return NULL;
    if (*at == '-')
        bench_fail("the server says %.*s", (int)(end - at - 2), at);
    *len = (size_t)(end - at);
    line->from += *len;
    return at;
}

const char *line_reply(struct redis_line *line, size_t *len)
{
    const char *reply;
    while (!(reply = line_reply_ready(line, len)))
        line_receive(line);
    return reply;
}

/* ---- Questions ---- */

const char *line_ask(struct redis_line *line, size_t *len, const char *format, ...)
{
    char command[4096];
    va_list words;
    va_start(words, format);
    int size = vsnprintf(command, sizeof command - 2, format, words);
    va_end(words);
    memcpy(command + size, "\r\n", 2);
    line_send(line, command, (size_t)size + 2);
    return line_reply(line, len);
}

/* A reply's text ends with CR LF, which is as good as a NUL for looking for a number. */
static double field_of(const char *info, size_t len, const char *field)
{
    const char *at = memmem(info, len, field, strlen(field));
    return at ? strtod(at + strlen(field), NULL) : NAN;
}

double line_info(struct redis_line *line, const char *section, const char *field)
{
    size_t len;
    const char *info = line_ask(line, &len, "INFO %s", section);
    return field_of(info, len, field);
}

static double calls(const char *info, size_t len, const char *command)
{
    char field[64];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    double count = field_of(info, len, field);
    return isnan(count) ? 0 : count;
}

/* The server counts what scripts call, too. So only those count that our scripts never call. */
double line_commands(struct redis_line *line, bool sets)
{
    static const char *const sent_by_clients[] = {"evalsha",   "eval",        "blmpop", "blpop",
                                                  "subscribe", "unsubscribe", "ping",   "wait",
                                                  "waitaof",   "script|load", "hello"};
    size_t len;
    const char *info = line_ask(line, &len, "INFO commandstats");
    double sum = sets ? calls(info, len, "set") : 0;
    for (unsigned i = 0; i < sizeof sent_by_clients / sizeof sent_by_clients[0]; i++)
        sum += calls(info, len, sent_by_clients[i]);
    return sum;
}
