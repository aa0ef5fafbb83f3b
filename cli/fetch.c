/* fetch.c - opens a text for reading: a file, stdin, or an http:// address. */
#include "fetch.h"
#include "output.h"
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SCHEME "http://"
#define ANSWER_SECONDS 10 /* longest time for connecting, and between two pieces of the answer */

struct address {
    char host[256], port[8], path[512];
};

static bool read_address(const char *url, struct address *to)
{
    const char *host = url + strlen(SCHEME);
    size_t whole = strcspn(host, "/"), len = strcspn(host, ":/");
    const char *port = host[len] == ':' ? host + len + 1 : "80";
    size_t port_len = host[len] == ':' ? whole - len - 1 : 2;
    bool has_host = len > 0 && len < sizeof to->host;
    bool has_port = port_len > 0 && port_len < sizeof to->port;
    bool has_path = strlen(host + whole) < sizeof to->path && !strpbrk(host, " \r\n@");
    bool is_address = has_host && has_port && has_path;

    if (!is_address)
        return false;

    snprintf(to->host, sizeof to->host, "%.*s", (int)len, host);
    snprintf(to->port, sizeof to->port, "%.*s", (int)port_len, port);
    snprintf(to->path, sizeof to->path, "%s", host[whole] ? host + whole : "/");

    return true;
}

/* Returns a socket, or -1 with errno or *why set. */
static int connect_to(const struct address *address, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    int failed = getaddrinfo(address->host, address->port, &hints, &found), fd = -1;

    *why = failed ? gai_strerror(failed) : NULL;
    for (struct addrinfo *one = failed ? NULL : found; one && fd < 0; one = one->ai_next) {
        fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (connect(fd, one->ai_addr, one->ai_addrlen) != 0) {
            *why = strerror(errno);
            close(fd);
            fd = -1;
        }
    }

    if (!failed)
        freeaddrinfo(found);

    return fd;
}

/* Reads the status line and skips the headers. Returns true for status 200; `line` is then the
 * status line. */
static bool is_answered_well(FILE *answer, char *line, int size)
{
    bool well =
        fgets(line, size, answer) && strncmp(line, "HTTP/1.", 7) == 0 && strstr(line, " 200 ");
    char status[64];

    snprintf(status, sizeof status, "%.*s", (int)strcspn(line, "\r\n"), line);
    while (well && fgets(line, size, answer) && strcmp(line, "\r\n") != 0)
        continue;

    snprintf(line, (size_t)size, "%s", status);
    return well;
}

static FILE *fetch_url(const char *url)
{
    struct address address;
    const char *why = NULL;
    char line[1024] = "no answer";

    if (!read_address(url, &address)) {
        complain("%s: the address looks like http://host:port/path", output_shown(url).text);
        return NULL;
    }

    int fd = connect_to(&address, &why);
    FILE *answer = fd < 0 ? NULL : fdopen(fd, "r");
    if (!answer) {
        complain("%s: %s", output_shown(url).text, why ? why : strerror(errno));
        return NULL;
    }
    if (dprintf(fd, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", address.path, address.host) > 0 &&
        is_answered_well(answer, line, sizeof line))
        return answer;

    complain("%s: %s", output_shown(url).text, output_shown(line).text);
    fclose(answer);

    return NULL;
}

FILE *fetch_open(const char *source)
{
    if (strncasecmp(source, SCHEME, strlen(SCHEME)) == 0)
        return fetch_url(source);
    FILE *file = strcmp(source, "-") == 0 ? stdin : fopen(source, "re");
    if (!file)
        complain("%s: %s", output_shown(source).text, strerror(errno));
    return file;
}
