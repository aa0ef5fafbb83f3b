/* lease_file.c - makes, takes over and removes the file of a lease. */
#include "lease_file.h"
#include "output.h"
#include "verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 100 /* other commands may remove and create the file between two steps */
#define VANISHED (-1)

static int refuse(const char *path, const char *why)
{
    complain("\"%s\" %s", output_shown(path).text, why);
    return hf_status_exit_code(HF_CONFIG);
}

/* Locks the file without waiting. Returns false if another command has it locked, or if the path
 * names another file by now. */
static bool lock_file(int fd, const char *path)
{
    struct stat ours, there;
    errno = 0;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &ours) == 0 && lstat(path, &there) == 0 &&
           ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

/* ---- Taking over ---- */

/* Returns 0 if the lease has ended, otherwise an exit code after a message. An empty file was
 * left by an `acquire` that was killed before it had a lease. */
static int check_ended(int fd, const char *path, hf_client *client)
{
    struct lease_line line;
    struct stat info;
    hf_lease *lease;

    if (fstat(fd, &info) == 0 && info.st_size == 0)
        return 0;
    if (!lease_line_parse(fd, &line))
        return refuse(path, "exists, and is not the file of a lease");

    hf_status status = hf_lease_attach(client, line.secret, &lease);
    explicit_bzero(line.secret, sizeof line.secret);
    if (status == HF_OK) {
        hf_lease_free(lease);
        return refuse(path, "exists, and its lease has not ended");
    }
    if (status == HF_LOST || status == HF_NOT_HELD)
        return 0;

    return status == HF_INVALID ? refuse(path, "exists, and is not the file of a lease")
                                : fail_with(status);
}

static int take_over_open(int fd, const char *path, hf_client *client)
{
    int code = lease_file_check(fd, path);

    if (code != 0)
        return code;
    if (!lock_file(fd, path))
        return errno == EWOULDBLOCK
                   ? refuse(path, "exists, and another command is about to write it")
                   : VANISHED;
    code = check_ended(fd, path, client);
    if (code != 0)
        return code;
    if (ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0)
        return 0;

    return refuse(path, strerror(errno));
}

/* Returns 0, VANISHED, or an exit code after a message. */
static int take_over(const char *path, hf_client *client, int *fd)
{
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        return VANISHED;
    if (*fd < 0) {
        complain("\"%s\" exists, and cannot be opened: %s", output_shown(path).text,
                 strerror(errno));
        return hf_status_exit_code(HF_CONFIG);
    }

    int code = take_over_open(*fd, path, client);
    if (code != 0)
        close(*fd);

    return code;
}

/* ---- Making ---- */

static int make(const char *path, int *fd)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0 && errno == EEXIST)
        return VANISHED;
    if (*fd < 0) {
        complain("cannot create \"%s\": %s", output_shown(path).text, strerror(errno));
        return hf_status_exit_code(HF_CONFIG);
    }
    if (lock_file(*fd, path))
        return 0;
    close(*fd); /* another command found it empty and took it over */
    return VANISHED;
}

int lease_file_claim(const char *path, hf_client *client, int *fd)
{
    int code = VANISHED;

    for (int i = 0; i < TRIES && code == VANISHED; i++) {
        code = make(path, fd);
        if (code == VANISHED)
            code = take_over(path, client, fd);
    }

    if (code == 0)
        return 0;
    *fd = -1;
    return code == VANISHED ? refuse(path, "is made and removed by other commands all the time")
                            : code;
}

/* ---- Removing ---- */

static bool has_lease(int fd, const struct lease_line *lease)
{
    struct lease_line line;
    bool same = lease_line_parse(fd, &line) && strcmp(line.secret, lease->secret) == 0;
    explicit_bzero(line.secret, sizeof line.secret);
    return same;
}

int lease_file_remove(const char *path, const struct lease_line *lease)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT)
        return 0;

    bool failed = fd < 0;
    bool is_ours = fd >= 0 && lock_file(fd, path) && has_lease(fd, lease);
    if (is_ours)
        failed = unlink(path) != 0;
    if (failed)
        complain("the lease has ended, but \"%s\" cannot be removed: %s", output_shown(path).text,
                 strerror(errno));
    if (fd >= 0)
        close(fd);

    return failed ? EXIT_INTERNAL : 0;
}
