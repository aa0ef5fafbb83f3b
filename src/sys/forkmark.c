/* forkmark.c - tells whether a handle was made by this process. */
#include "forkmark.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int hf_forkmark_set(struct hf_forkmark *mark)
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

void hf_forkmark_clear(struct hf_forkmark *mark)
{
    munmap((void *)(uintptr_t)mark->page, PAGE);
    mark->page = NULL;
}
