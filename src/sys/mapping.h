/* mapping.h - files that processes share as memory: made whole, checked, mapped, grown. Functions return 0 or an errno.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EFTYPE_NOT_FILE 10001 /* an "errno" of our own: not a regular file */

struct hf_mapping_stat {
    dev_t device;
    ino_t inode;
    int64_t size;
    mode_t mode;
    uid_t user;
    gid_t group;
};

/* The path of the user's own table, whatever the environment says; makes its directory. EPERM: the directory is not
 * ours alone. `path` is set in any case. */
int hf_mapping_home(char *path, size_t size);

/* Opens for reading and writing. ELOOP: a symbolic link; EREMOTE: a network file system; EFTYPE_NOT_FILE. */
int hf_mapping_open(const char *path, int *fd, struct hf_mapping_stat *st);

/* A new file of that size beside path, under a name that is put into `temporary`, its blocks allocated. */
int hf_mapping_create(const char *path, mode_t mode, int64_t size, char *temporary, size_t temporary_size, int *fd);
/* Gives a new file to those who shared the old one. EPERM: they would be locked out. */
int hf_mapping_inherit(int fd, const struct hf_mapping_stat *old);
int hf_mapping_publish(const char *temporary, const char *path); /* EEXIST if there is one */
int hf_mapping_replace(const char *temporary, const char *path);
void hf_mapping_discard(const char *temporary);

int hf_mapping_lock(int fd);               /* exclusive, until closed; waits */
char *hf_mapping_map(int fd, size_t size); /* NULL with errno */
void hf_mapping_unmap(char *map, size_t size);
int64_t hf_mapping_size(int fd);
/* Gives the range blocks, or fails: writing into it later cannot. */
int hf_mapping_allocate(int fd, int64_t from, int64_t length);
bool hf_mapping_is(const char *path, dev_t device, ino_t inode);
