/* lua_memory.c - memory for the interpreter: a heap that only grows while scripts run, and then goes back, as a whole,
 * to what it was after the last script was compiled. A run leaves nothing behind in Lua that anybody could see, so
 * nothing has to be collected: that, and the C library's malloc(), took half of a script's time. */
#include "inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space; memory comes with use. A script that needs more hears that there is none. */
#define HEAP_ROOM ((size_t)256 << 20)
#define GARBAGE ((size_t)512 << 10) /* so much of it is left lying: it stays in the processor's cache */

enum { STEP = 16 };

struct lua_memory {
    char *heap, *kept; /* `kept` is a copy of its beginning */
    size_t used, kept_used;
};

struct lua_memory *lua_memory_open(void)
{
    struct lua_memory *memory = calloc(1, sizeof *memory);
    assert(memory);
    memory->heap = mmap(NULL, HEAP_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(memory->heap != MAP_FAILED);
    return memory;
}

void lua_memory_close(struct lua_memory *memory)
{
    munmap(memory->heap, HEAP_ROOM);
    free(memory->kept);
    free(memory);
}

/* The interpreter itself lives in the heap: both are for moments in which nothing is on its stack. */
void lua_memory_keep(struct lua_memory *memory)
{
    memory->kept = realloc(memory->kept, memory->used);
    assert(memory->kept);
    memcpy(memory->kept, memory->heap, memory->used);
    memory->kept_used = memory->used;
}

void lua_memory_go_back(struct lua_memory *memory)
{
    memcpy(memory->heap, memory->kept, memory->kept_used);
    memory->used = memory->kept_used;
}

bool lua_memory_has_garbage(const struct lua_memory *memory)
{
    return memory->used - memory->kept_used > GARBAGE;
}

static size_t rounded(size_t size)
{
    return (size + STEP - 1) & ~(size_t)(STEP - 1);
}

static void *take(struct lua_memory *memory, size_t size)
{
    if (HEAP_ROOM - memory->used < rounded(size))
        return NULL;
    memory->used += rounded(size);
    return memory->heap + memory->used - rounded(size);
}

/* lua_Alloc */
void *lua_memory_move(void *self, void *old, size_t old_size, size_t size)
{
    struct lua_memory *memory = self;
    if (size <= rounded(old_size))
        return size ? old : NULL;
    void *fresh = take(memory, size);
    if (fresh && old)
        memcpy(fresh, old, old_size);
    return fresh;
}
