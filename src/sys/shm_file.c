/* shm_file.c - files that processes share as memory. */
#include "shm_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int shm_file_home(char *path, size_t size)
{
    snprintf(path, size, "/dev/shm/holdfast-%u", (unsigned)geteuid());
    /* chmod, because the umask may have narrowed the mode of mkdir */
    if (mkdir(path, 0700) == 0 ? chmod(path, 0700) != 0 : errno != EEXIST)
        return errno;

    struct stat st;
    if (lstat(path, &st) != 0)
        return errno;

    bool is_ours_alone = S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
    if (!is_ours_alone)
        return EPERM;

    snprintf(path, size, "/dev/shm/holdfast-%u/table", (unsigned)geteuid());
    return 0;
}

/* Machines that share a file through a network file system do not share memory. */
static bool is_network(const struct statfs *fs)
{
    static const uint32_t networks[] = {
        NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC, CODA_SUPER_MAGIC,
        AFS_SUPER_MAGIC, V9FS_MAGIC,      CEPH_SUPER_MAGIC, 0x0bd00bd0, /* Lustre */
        0x01161970,                                                     /* GFS2 */
        0x7461636f,                                                     /* OCFS2 */
    };

    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if ((uint32_t)fs->f_type == networks[i])
            return true;

    return false;
}

static int check_file(int fd, struct shm_file_stat *out)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return EFTYPE_NOT_FILE;
    if (is_network(&fs))
        return EREMOTE;

    *out = (struct shm_file_stat){st.st_dev,         st.st_ino, st.st_size,
                                  st.st_mode & 0777, st.st_uid, st.st_gid};
    return 0;
}

int shm_file_open(const char *path, int *fd, struct shm_file_stat *st)
{
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0)
        return errno == EISDIR || errno == ENXIO ? EFTYPE_NOT_FILE : errno;

    int error = check_file(*fd, st);
    if (error) {
        close(*fd);
        *fd = -1;
    }

    return error;
}

int shm_file_create(const char *path, mode_t mode, int64_t size, char *temporary,
                    size_t temporary_size, int *fd)
{
    snprintf(temporary, temporary_size, "%s.new-XXXXXX", path);
    *fd = mkostemp(temporary, O_CLOEXEC);
    if (*fd < 0)
        return errno;

    struct shm_file_stat st;
    int error = check_file(*fd, &st);

    /* set by fchmod: the umask of open() must not decide who shares a table */
    if (!error && fchmod(*fd, mode) != 0)
        error = errno;

    if (!error)
        error = shm_file_allocate(*fd, 0, size);
    if (error) {
        unlink(temporary);
        close(*fd);
        *fd = -1;
    }

    return error;
}

/* Only root can give a file away. A member of the old group can keep that group, which is enough
 * to share the file. */
int shm_file_inherit(int fd, const struct shm_file_stat *old)
{
    if (fchown(fd, old->user, old->group) == 0 || fchown(fd, (uid_t)-1, old->group) == 0)
        return 0;
    return (old->mode & 06) == 06 ? 0 : errno;
}

int shm_file_publish(const char *temporary, const char *path)
{
    return link(temporary, path) == 0 ? 0 : errno;
}

int shm_file_replace(const char *temporary, const char *path)
{
    return rename(temporary, path) == 0 ? 0 : errno;
}

void shm_file_discard(const char *temporary)
{
    unlink(temporary);
}

int shm_file_mark_used(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
}

int shm_file_lock_unused(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

int shm_file_lock(int fd)
{
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

char *shm_file_map(int fd, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

void shm_file_unmap(char *map, size_t size)
{
    munmap(map, size);
}

int64_t shm_file_size(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_size : 0;
}

int shm_file_allocate(int fd, int64_t from, int64_t length)
{
    int error;
    do
        error = posix_fallocate(fd, from, length);
    while (error == EINTR);
    return error;
}

/* Only a successful lstat, ENOENT or ENOTDIR tells whether the file was replaced. Another error
 * (memory, permission) says nothing and must not end the holds. */
bool shm_file_is(const char *path, dev_t device, ino_t inode)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno != ENOENT && errno != ENOTDIR;
    return st.st_dev == device && st.st_ino == inode;
}
