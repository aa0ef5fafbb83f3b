/* fork_guard.c - a page that tells whether this process made a handle. */
#include "fork_guard.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int fork_guard_set(struct fork_guard *mark)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return errno;

    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0) {
        int error = errno;
        munmap(page, PAGE);
        return error;
    }

    mark->page = page;
    *mark->page = 1;
    return 0;
}

void fork_guard_clear(struct fork_guard *mark)
{
    munmap((void *)(uintptr_t)mark->page, PAGE);
    mark->page = NULL;
}
