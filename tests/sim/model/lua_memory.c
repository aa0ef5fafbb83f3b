/* lua_memory.c - memory for the interpreter: a heap that only grows while scripts run, and then
 * goes back to what it was after the last script was compiled. A run leaves nothing behind in Lua
 * that anybody could see, so nothing has to be collected: that, and the C library's malloc(), took
 * half of a script's time.
 *
 * The heap's beginning is the interpreter with its tables and stacks, which every run writes to.
 * Behind it lies what was compiled, ten times as much, which no run writes to: it need not be
 * copied back, unless something of the beginning had to move, because it grew, and so came to lie
 * there. A look now and then proves it. */
#include "model_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space; memory comes with use. A script that needs more hears that there is none. */
#define HEAP_ROOM ((size_t)256 << 20)
#define GARBAGE                                                                                    \
    ((size_t)192 << 10)      /* so much of it is left lying: it stays in the processor's cache */
#define HALF (HEAP_ROOM / 2) /* behind it are the scraps */

enum { STEP = 16, PROOF = 1024 };

struct lua_memory {
    char *heap, *kept; /* `kept` is a copy of its beginning */
    size_t used, kept_used;
    size_t lively; /* the size of the beginning; 0: not known yet */
    bool moved;    /* something that was kept has grown, or has been given up */
    bool scraps;   /* what is taken lies apart, and is gone when this ends */
    size_t scrap_used;
    unsigned returns;
};

struct lua_memory *lua_memory_open(void)
{
    struct lua_memory *memory = calloc(1, sizeof *memory);
    assert(memory);
    memory->heap = mmap(NULL, HEAP_ROOM, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(memory->heap != MAP_FAILED);
    madvise(memory->heap, HEAP_ROOM,
            MADV_HUGEPAGE); /* where there are none it is slower, and the same */
    return memory;
}

void lua_memory_close(struct lua_memory *memory)
{
    munmap(memory->heap, HEAP_ROOM);
    free(memory->kept);
    free(memory);
}

/* The interpreter itself lives in the heap: both are for moments in which nothing is on its stack.
 */
void lua_memory_keep(struct lua_memory *memory)
{
    memory->kept = realloc(memory->kept, memory->used);
    assert(memory->kept);
    memcpy(memory->kept, memory->heap, memory->used);
    memory->kept_used = memory->used;
    if (!memory->lively || memory->moved)
        memory->lively = memory->used;
    memory->moved = false;
}

void lua_memory_go_back(struct lua_memory *memory)
{
    size_t lively = memory->moved ? memory->kept_used : memory->lively;
    memcpy(memory->heap, memory->kept, lively);
    memory->used = memory->kept_used;
    memory->moved = false;
    if (++memory->returns % PROOF == 0)
        assert(memcmp(memory->heap, memory->kept, memory->kept_used) == 0);
}

bool lua_memory_has_garbage(const struct lua_memory *memory)
{
    return memory->used - memory->kept_used > GARBAGE;
}

static size_t rounded(size_t size)
{
    return (size + STEP - 1) & ~(size_t)(STEP - 1);
}

void lua_memory_scraps(struct lua_memory *memory, bool on)
{
    memory->scraps = on;
    memory->scrap_used = 0;
}

static void *take(struct lua_memory *memory, size_t size)
{
    size_t *used = memory->scraps ? &memory->scrap_used : &memory->used;
    size_t at = *used, room = rounded(size);
    if (HALF - at < room)
        return NULL;
    *used = at + room;
    return memory->heap + at + (memory->scraps ? HALF : 0);
}

/* lua_Alloc */
void *lua_memory_move(void *self, void *old, size_t old_size, size_t size)
{
    struct lua_memory *memory = self;
    if (!old_size)
        return size ? take(memory, size) : NULL;
    memory->moved |= (char *)old < memory->heap + memory->kept_used && old_size != size;
    if (size <= rounded(old_size))
        return size ? old : NULL;
    void *fresh = take(memory, size);
    if (fresh)
        memcpy(fresh, old, old_size);
    return fresh;
}
