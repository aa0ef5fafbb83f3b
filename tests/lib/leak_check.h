/* leak_check.h - what a client may have left in this process: threads, open files. */
#pragma once
#include "actors.h"

#include <dirent.h>

static inline int count_in(const char *directory)
{
    int count = 0;
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        count++;
    closedir(entries);
    return count;
}

/* A thread that was joined is gone from /proc a moment later. */
static inline void assert_threads(int expected)
{
    for (int tries = 0; count_in("/proc/self/task") != expected; tries++) {
        assert_true(tries < 10000);
        nap_us(100);
    }
}
