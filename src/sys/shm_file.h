/* shm_file.h - files that processes share as memory: made whole, checked, mapped, grown. Functions
 * return 0 or an errno. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EFTYPE_NOT_FILE 10001 /* our own "errno": not a regular file */

struct shm_file_stat {
    dev_t device;
    ino_t inode;
    int64_t size;
    mode_t mode;
    uid_t user;
    gid_t group;
};

/* Sets `path` to the user's own table, whatever the environment says, and makes its directory.
 * Returns EPERM if other users have access to the directory. `path` is set in any case. */
int shm_file_home(char *path, size_t size);

/* Opens for reading and writing. Returns ELOOP for a symbolic link, EREMOTE on a network file
 * system, EFTYPE_NOT_FILE. */
int shm_file_open(const char *path, int *fd, struct shm_file_stat *st);

/* Makes a file of that size beside `path`, with its blocks allocated. `temporary` is set to its
 * name. */
int shm_file_create(const char *path, mode_t mode, int64_t size, char *temporary,
                    size_t temporary_size, int *fd);
/* Gives a new file the owner and group of the old one. Returns EPERM if its users would be locked
 * out. */
int shm_file_inherit(int fd, const struct shm_file_stat *old);
int shm_file_publish(const char *temporary, const char *path); /* EEXIST if the path is taken */
int shm_file_replace(const char *temporary, const char *path);
void shm_file_discard(const char *temporary);

/* Marks the file as in use as long as the descriptor is open. Returns EWOULDBLOCK if another
 * process has it locked. */
int shm_file_mark_used(int fd);
/* Locks the file if nobody uses it, until the descriptor is closed. Otherwise returns EWOULDBLOCK.
 */
int shm_file_lock_unused(int fd);
int shm_file_lock(int fd); /* waits for an exclusive flock, which ends with the descriptor */
char *shm_file_map(int fd, size_t size); /* NULL with errno */
void shm_file_unmap(char *map, size_t size);
int64_t shm_file_size(int fd);
/* Allocates the blocks of the range, so that later stores into it cannot fail. */
int shm_file_allocate(int fd, int64_t from, int64_t length);
bool shm_file_is(const char *path, dev_t device, ino_t inode);
