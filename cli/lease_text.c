/* lease_text.c - writes and reads the line of JSON of a detached lease. */
#include "lease_text.h"
#include "json_read.h"
#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 16384 /* escapes may make a name of 512 bytes six times as long */

static void print_line(FILE *out, const hf_lease *lease, const struct hf_request *request,
                       const char *secret)
{
    fputs("{\"name\":", out);
    json_print_text(out, hf_lease_name(lease));
    fprintf(out,
            ",\"kind\":\"%s\",\"token\":\"%" PRIu64 "\",\"ttlMs\":%" PRId64 ",\"leftMs\":%" PRId64,
            hf_kind_name(request->kind), hf_lease_token(lease), request->ttl_ms,
            hf_lease_left_ms(lease));
    if (secret) {
        fputs(",\"lease\":", out);
        json_print_text(out, secret);
    }

    fputs("}\n", out);
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t done = write(fd, text, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        text += done;
        len -= (size_t)done;
    }

    return 0;
}

int lease_line_write(int fd, const hf_lease *lease, const struct hf_request *request,
                     const char *secret)
{
    char *line = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&line, &len);

    if (!out)
        return -1;
    print_line(out, lease, request, secret);
    int result = fclose(out) == 0 ? write_all(fd, line, len) : -1;
    int error = errno;
    free(line);
    errno = error;
    return result;
}

static int refuse_file(const char *path, const char *why)
{
    complain("the lease file \"%s\" %s", output_shown(path).text, why);
    return hf_status_exit_code(HF_CONFIG);
}

static int cannot_open(const char *path)
{
    complain("cannot open the lease file \"%s\": %s", output_shown(path).text, strerror(errno));
    return hf_status_exit_code(HF_CONFIG);
}

/* Refuses a file that others can read, because they would have the secret, or write, because
 * they could replace it. */
int lease_file_check(int fd, const char *path)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return cannot_open(path);
    if (!S_ISREG(info.st_mode))
        return refuse_file(path, "is not a file");
    if (info.st_uid != geteuid())
        return refuse_file(path, "belongs to another user");
    if (info.st_mode & 077)
        return refuse_file(path, "can be read or written by group or others; it must be 0600");
    return 0;
}

/* Returns 0, or -1 and errno. */
static int read_all(int fd, char *text, size_t size)
{
    size_t len = 0;

    for (;;) {
        ssize_t got = read(fd, text + len, size - 1 - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        len += (size_t)got;
        if (got == 0 || len == size - 1)
            break;
    }

    text[len] = 0;
    if (strlen(text) < len) /* a NUL inside would hide the bytes after it */
        text[0] = 0;

    return 0;
}

static bool parse_line(const char *line, struct lease_line *parts)
{
    if (!json_find_text(line, "name", parts->name, sizeof parts->name))
        parts->name[0] = 0;
    return json_find_text(line, "lease", parts->secret, sizeof parts->secret);
}

bool lease_line_parse(int fd, struct lease_line *parts)
{
    char line[LINE_MAX_BYTES];
    return read_all(fd, line, sizeof line) == 0 && parse_line(line, parts);
}

static int read_line(int fd, const char *from, struct lease_line *parts)
{
    char line[LINE_MAX_BYTES];

    if (read_all(fd, line, sizeof line) != 0) {
        complain("cannot read a lease from %s: %s", from, strerror(errno));
        return hf_status_exit_code(HF_CONFIG);
    }
    if (parse_line(line, parts))
        return 0;
    complain("%s has no lease as `holdfast acquire` prints it", from);
    return EXIT_USAGE;
}

int lease_line_read(const char *path, struct lease_line *parts)
{
    struct shown from = output_shown(path ? path : "standard input");
    int code = 0, fd = STDIN_FILENO;

    if (!path && isatty(fd)) {
        complain("no lease: pipe in what `holdfast acquire` printed, or give --lease FILE");
        return EXIT_USAGE;
    }
    if (path && (fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) < 0)
        return cannot_open(path);
    if (path)
        code = lease_file_check(fd, path);
    if (code == 0)
        code = read_line(fd, from.text, parts);
    if (path)
        close(fd);

    return code;
}
