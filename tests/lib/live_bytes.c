/* live_bytes.c - a library that a test preloads into a program, which then keeps count of its heap:
 * in the file that the variable HF_LIVE_BYTES names stands how many bytes are allocated and not
 * freed, as a 64-bit integer. That is exact, where resident memory also has what the allocator
 * keeps for later.
 *
 * Before the file is there, and in processes without the variable, the count is kept for nobody. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

/* The C library's own, by the names under which they are in reach when ours stand before them. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

static _Atomic int64_t early;
static _Atomic int64_t *_Atomic live = &early;

__attribute__((constructor)) static void map_count(void)
{
    const char *path = getenv("HF_LIVE_BYTES");
    if (!path)
        return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof early) != 0)
        _exit(72);
    _Atomic int64_t *count = mmap(NULL, sizeof early, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (count == MAP_FAILED)
        _exit(72);
    close(fd);
    atomic_store(count, atomic_load(&early));
    atomic_store(&live, count);
}

static void *taken(void *block)
{
    if (block)
        atomic_fetch_add(atomic_load(&live), (int64_t)malloc_usable_size(block));
    return block;
}

OURS void *malloc(size_t size)
{
    return taken(__libc_malloc(size));
}

OURS void *calloc(size_t count, size_t size)
{
    return taken(__libc_calloc(count, size));
}

OURS void *realloc(void *block, size_t size)
{
    int64_t before = (int64_t)malloc_usable_size(block);
    void *moved = __libc_realloc(block, size);
    if (moved || size == 0)
        atomic_fetch_sub(atomic_load(&live), before);
    return taken(moved);
}

OURS int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = taken(__libc_memalign(alignment, size));
    return *block ? 0 : ENOMEM;
}

OURS void *aligned_alloc(size_t alignment, size_t size)
{
    return taken(__libc_memalign(alignment, size));
}

OURS void free(void *block)
{
    atomic_fetch_sub(atomic_load(&live), (int64_t)malloc_usable_size(block));
    __libc_free(block);
}
