/* table_fixture.h - a folder with a table of its own for each test, and what the tests of the table
 * do to it. */
#pragma once
#include "engines/local/table_file.h"
#include "lib/nap.h"
#include "lib/sentence.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Users that no system has. */
enum { SCENE_USER = 64987, SCENE_OTHER = 64988, SCENE_GROUP = 64989 };

struct scene {
    char dir[64], path[128], url[160];
};

struct answer {
    hf_status status;
    char text[1024];
};

int scene_begin(void **state);
int scene_end(void **state);

#define SCENE(text, function)                                                                      \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_begin, .teardown_func = scene_end \
    }

/* ---- In a child a failed cmocka assertion would go on with the other tests there ---- */

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so in a child: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    hf_error_text());                                                              \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Runs fn in a child, which ends after `seconds` at the latest, and with this process. */
pid_t start_child(void (*fn)(void *), void *arg, unsigned seconds);
int end_of(pid_t pid);
void in_child(void (*fn)(void *), void *arg);

/* Only a child may do this: there is no way back. */
void become(uid_t user, gid_t group, gid_t also);

/* ---- Opening ---- */

hf_status scene_open(const char *url, hf_client **client);
struct answer try_open(const char *url);
bool refused(const char *url, hf_status status, const char *path, const char *words);
void make_table(const struct scene *s);

/* ---- Files ---- */

struct bytes {
    char *at;
    size_t len;
};

struct bytes read_file(const char *path);
void write_file(const char *path, const void *bytes, size_t len);
void assert_file_is(const char *path, const void *bytes, size_t len);

/* Changes some bytes of a file in place: it stays the same file. */
void poke(const char *path, size_t at, const void *bytes, size_t len);

/* Changes a field of the head, and the checksum with it. */
void poke_head(const char *path, size_t at, const void *bytes, size_t len);

/* How many files of the folder have this in their names. */
int count_files(const char *dir, const char *part);

/* ---- Time and locks ---- */

hf_status acquire(hf_client *client, const char *name, int64_t wait_ms, hf_lease **lease);
