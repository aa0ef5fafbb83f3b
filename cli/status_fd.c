/* status_fd.c - writes the events of a run to --status-fd. */
#include "status_fd.h"
#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool status_fd_open(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return false;
    return fd <= STDERR_FILENO || fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static char *compose(const struct status_fd *status, const char *event, const char *members,
                     va_list args, size_t *len)
{
    char *line = NULL;
    FILE *out = open_memstream(&line, len);

    if (!out)
        return NULL;

    fprintf(out, "{\"event\":\"%s\",\"name\":", event);
    json_print_text(out, status->name);
    putc(',', out);
    vfprintf(out, members, args);
    fputs("}\n", out);
    if (fclose(out) == 0)
        return line;

    free(line);
    return NULL;
}

/* Never blocks, because a blocked guard would not watch its lease. A pipe that is ready takes a
 * page without blocking, and a line is shorter than that. */
static bool write_line(int fd, const char *line, size_t len)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    errno = EAGAIN;
    if (poll(&ready, 1, 0) != 1)
        return false;
    return write(fd, line, len) == (ssize_t)len;
}

void status_fd_write(struct status_fd *status, const char *event, const char *members, ...)
{
    va_list args;
    size_t len = 0;

    if (status->fd < 0)
        return;

    va_start(args, members);
    char *line = compose(status, event, members, args, &len);
    va_end(args);
    bool written = line && write_line(status->fd, line, len);
    if (!written && !status->failed) {
        status->failed = true;
        complain("--status-fd: cannot write to %d: %s", status->fd, strerror(errno));
    }

    free(line);
}
